# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How answers of vLLM are asked for in a process of their own, and compared."""

import json
import os
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILT = Path(os.environ.get("ATTN_BUILD", ROOT / "build")) / "python"
PYTHON = os.environ.get("ATTN_VLLM_PYTHON")
CLOSE = 0.05  # the largest difference of log-probabilities


def need_vllm():
    """Skip a module where no interpreter has vLLM, or attn is not built."""
    if not PYTHON:
        why = os.environ.get("ATTN_WITHOUT_VLLM") or "ATTN_VLLM_PYTHON names no Python with vLLM"
        pytest.skip(f"{why}: ./dev test --full makes build/vllm-env", allow_module_level=True)
    if not (BUILT / "attn" / "libattn_compiler.so.0").exists():
        pytest.skip("the extension is not built", allow_module_level=True)


def installed(folder, entry_point):
    """Write the entry points of an installed attn, as pyproject.toml has them unless another is given."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    about = folder / "attn-0.1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: attn\nVersion: 0.1.0\n")
    lines = []
    for group, points in declared.items():
        lines += [f"[{group}]", *(f"{name} = {entry_point or value}" for name, value in points.items())]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return str(folder)


def run(folder, cases, entry_point=None, **environment):
    """Run cases in a process of their own, with attn's entry points in a new folder; return the results by name."""
    paths = [
        installed(folder, entry_point),
        str(BUILT),
        str(Path(__file__).parent),
    ]
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(paths), **environment)
    worker = [PYTHON, Path(__file__).with_name("vllm_worker.py")]
    done = subprocess.run(
        worker, input=json.dumps(cases), env=env, capture_output=True, text=True, timeout=1800
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert done.returncode == 0 and len(lines) == len(cases), done.stderr[-4000:]
    found = [json.loads(line.removeprefix("RESULT ")) for line in lines]
    return {each.pop("name"): each for each in found}


def differences(one, other):
    """Return whether all tokens are equal, and the largest difference of their log-probabilities."""
    assert "error" not in one and "error" not in other, (one, other)
    pairs = zip(sum(one["logprobs"], []), sum(other["logprobs"], []), strict=True)
    return one["tokens"] == other["tokens"], max(abs(a - b) for a, b in pairs)


def right(one, other, close=CLOSE):
    same, apart = differences(one, other)
    return same and apart <= close


def followed(one, other):
    """Return the share of tokens up to the first one of each answer that differs, and the largest difference of
    log-probabilities up to there. Either of two tokens that are equally likely may be chosen."""
    assert "error" not in one and "error" not in other, (one, other)
    most, compared, count = 0, 0, 0
    for name in range(len(one["tokens"])):
        tokens = list(zip(one["tokens"][name], other["tokens"][name], strict=True))
        same = next((at for at, (a, b) in enumerate(tokens) if a != b), len(tokens))
        pairs = list(zip(one["logprobs"][name], other["logprobs"][name], strict=True))
        most = max(most, *(abs(a - b) for a, b in pairs[: same + 1]))
        compared, count = compared + same, count + len(tokens)
    return compared / count, most


def close(one, other, most):
    """Whether answers are alike where they can be compared, and that is nearly everywhere."""
    share, apart = followed(one, other)
    return share > 0.75 and apart <= most


def refused(ask, folder, cases):
    """Return what vLLM says of models that attn's backend refuses, by name."""
    like = dict(backend="CUSTOM", prompts=[[3]], tokens=1)
    return ask(
        [like | dict(name=name, model=str(folder / case["kind"])) | case for name, (case, _) in cases.items()]
    )
