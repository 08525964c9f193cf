# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What docs/adding-a-loss-on-scores.md changes: the page's test, run over the compiler library that it makes, and ptxas."""

import json
import os
import re
import subprocess
import sys

import pytest
from attnlab import BUILD, ROOT, ptxas
from page_library import package_over

pytest.importorskip("torch", reason="PyTorch is not installed")
PAGE = ROOT / "docs/adding-a-loss-on-scores.md"
LIBRARY = BUILD / "test/docs/loss/libattn_compiler.so.0"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With the package of the page, and its files of Python."""
    folder = tmp_path_factory.mktemp("loss")
    package_over(LIBRARY, folder / "python")
    for name, text in re.findall(
        r"^`(\w+\.py)`:\n```python\n(.*?)^```$", PAGE.read_text(), flags=re.M | re.S
    ):
        (folder / name).write_text(text)
    return folder


def run(folder, *arguments):
    environment = dict(os.environ, PYTHONPATH=str(folder / "python"), ATTN_CACHE_DIR=str(folder / "cache"))
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1200)


def run_test(folder, *arguments):
    return run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_entropy.py", *arguments)


def test_page(folder):
    result = run_test(folder)
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"^\d+ passed", result.stdout.splitlines()[-1]), result.stdout


@pytest.mark.parametrize(
    ("right", "wrong", "case"),
    [
        ("entropy=cost)", "entropy=-cost)", "causal"),
        ("d_lse - cost * constant", "d_lse", "causal"),
        ("(lse - bound) +", "lse +", "causal"),
        ("+= cost * sink", "+= 0 * sink", "sinks"),
    ],
    ids=["sign", "constant", "entropy", "sink"],
)
def test_what_is_wrong_fails(folder, right, wrong, case):
    text = (folder / "entropy.py").read_text()
    assert text.count(right) == 1
    try:
        (folder / "entropy.py").write_text(text.replace(right, wrong))
        result = run_test(folder, "-k", f"test_loss and {case}-False")
    finally:
        (folder / "entropy.py").write_text(text)
    assert re.search(r"^2 failed", result.stdout.splitlines()[-1]), result.stdout


EMIT = """
import json, sys
from attn import _attn
from attn.compiler.requests import Asks
from test_entropy import describe
for name, (target, schedule, ordered, see, score, dim) in json.loads(sys.argv[1]).items():
    text = describe(see, "packed", "bf16", score, heads=8, dim=dim)
    asks = Asks(backward=(), ordered=ordered)
    with open(name + ".ptx", "wb") as file:
        file.write(_attn.emit(text, "ptx", target=target, schedule=schedule, asks=asks))
"""
ASSEMBLED = {
    f"{target}-{ {'apart': 'apart', True: 'ordered', False: 'fused'}[ordered] }-{see}-{score}-{dim}".replace(
        " ", "-"
    ): (
        target,
        schedule,
        ordered,
        see,
        score,
        dim,
    )
    for target, schedule, ordered in (
        ("sm_80", "mma", "apart"),
        ("sm_90a", "wgmma", "apart"),
        ("sm_90a", "wgmma", True),
        ("sm_90a", "wgmma", False),
    )
    for see, score, dim in (
        ("causal", "plain", 64),
        ("causal", "plain", 96),
        ("causal", "plain", 128),
        ("all", "plain", 128),
        ("window(64)", "plain", 128),
        ("causal", "soft cap", 64),
        ("causal", "soft cap", 128),
    )
}


@pytest.fixture(scope="module")
def emitted(folder):
    result = run(folder, "-c", EMIT, json.dumps(ASSEMBLED))
    assert result.returncode == 0, result.stderr
    return folder


@pytest.mark.parametrize("name", ASSEMBLED)
def test_nothing_is_spilled(emitted, name):
    target, _, ordered, _, score, dim = ASSEMBLED[name]
    kernels = ptxas(emitted / f"{name}.ptx", target)
    if dim != 96 and score == "plain":
        assert any("_begin" in kernel.kernel for kernel in kernels) == (
            ordered is False or (ordered is True and "window" not in name)
        )
    for kernel in kernels:
        assert (kernel.spill_stores, kernel.spill_loads) == (0, 0), kernel


def test_files():
    """As few as the page says."""
    text = PAGE.read_text()
    new = re.findall(r"^`([\w/]+\.\w+)`:\n```", text, flags=re.M)
    changed = re.findall(r"^```diff\n--- (.*)$", text, flags=re.M)
    assert sorted(new + changed) == [
        "entropy.py",
        "lib/Conversion/AttnToTile/Steps/PenalizeEntropy.cpp",
        "lib/Conversion/AttnToTile/Steps/PenalizeEntropy.h",
        "lib/Pipelines/Pipelines.cpp",
        "test_entropy.py",
    ]
