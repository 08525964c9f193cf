# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Type checkers over code that uses attn: no message for the documentation's code, and an error where a name is
misspelt or a value is of the wrong type."""

import os
import re
import subprocess
import sys
from pathlib import Path

import attn
import pytest
from attn.run.attention import AttendOptions, attend
from pages import without_tests

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(attn.__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

# Large libraries that may be missing are typed as Any.
ANY = "from typing import Any\ndef __getattr__(name: str) -> Any: ...\n"
OTHERS = ("torch", "transformers", "trl", "pytest", "flash_attn", "flashinfer")
CONFIG = """
[mypy]
check_untyped_defs = True
mypy_path = $MYPY_CONFIG_FILE_DIR/stubs
[mypy-attn.*]
ignore_errors = True
[mypy-torch.nn.*,transformers.*,trl.*]
follow_imports = skip
"""

# A stub of PyTorch for the lines below.
TORCH = """
class dtype: ...
class Tensor:
    def sum(self) -> Tensor: ...
bfloat16: dtype
def randn(*sizes: int, dtype: dtype = ...) -> Tensor: ...
"""

RIGHT = """
import attn
import numpy
import torch

q = numpy.zeros((1, 4, 2, 64), numpy.float16)
out: numpy.ndarray = attn.attend(q, q, q, causal=True, window=3)
pair: tuple[numpy.ndarray, numpy.ndarray] = attn.attend(q, q, q, return_lse=True)
scaled: tuple[numpy.ndarray, numpy.ndarray] = attn.attend(q, q, q, output_scales="head")
three: tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray] = attn.attend(q, q, q, output_scales="head", return_lse=True)
spec = attn.Spec(q_heads=2, kv_heads=2, head_dim=64, dtype=numpy.float16, kv=[attn.Dense()], see=attn.causal())
also = attn.Spec(q_heads=2, kv_heads=2, head_dim=64, dtype=q.dtype, kv=[attn.Dense()], see=attn.causal())
kernel: attn.Kernel = attn.compile(spec, device="host")
cache = attn.PagedCache(layers=1, pages=4, kv_heads=2, head_dim=64, dtype=q.dtype, device="host")
plan = kernel.plan(cache.batch([cache.add()]))
result: numpy.ndarray = kernel.run(q, cache.layer(0), plan)
both: tuple[numpy.ndarray, numpy.ndarray] = kernel.run(q, cache.layer(0), plan, return_lse=True)
theirs = attn.Spec(q_heads=2, kv_heads=2, head_dim=64, dtype=torch.bfloat16, kv=[attn.Dense()], see=attn.causal())
t = torch.randn(1, 4, 2, 64, dtype=torch.bfloat16)
total: torch.Tensor = attn.attend(t, t, t, causal=True).sum()
classes: attn.HeadClasses = attn.heads(retrieval=attn.all_tokens(), streaming=attn.recent(9))
"""

# Each line is an error.
WRONG = """
attn.attend(q, q, q, windw=3)
attn.attend(q, q, q, causal="yes")
attn.attend(q, q, q, layout="bhds")
attn.attend(q, q)
attn.nope
attn.PagdCache
attn.heads.nope
attn.heads(retrieval=3)
attn.Spec(q_heads=2, kv_heads=2, head_dim=64, dtype=q.dtype, kv=[attn.Dense()], seee=attn.causal())
attn.Spec(q_heads=2, kv_heads=2, head_dim=64, dtype=16, kv=[attn.Dense()], see=attn.causal())
attn.Spec(q_heads="2", kv_heads=2, head_dim=64, dtype=q.dtype, kv=[attn.Dense()], see=attn.causal())
attn.Paged(page_sise=16)
attn.PagedCache(layers=1, pages="4", kv_heads=2, head_dim=64)
attn.causal(3)
attn.sink("3")
kernel.rum(q, cache.layer(0), plan)
kernel.run(q, cache.layer(0), plan, return_lse="yes")
number: int = kernel.run(q, cache.layer(0), plan)
cache.apend(0, 3)
cache.append("a")
cache.truncate(0)
cache.append(0, 3).wrte(0, q, q)
plan.statistics
text: str = attn.attend(t, t, t)
"""


def mypy(folder, *paths):
    """Return the lines of messages, by file and line."""
    pytest.importorskip("mypy", reason="mypy is not installed")
    (folder / "mypy.ini").write_text(CONFIG)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        "mypy.ini",
        "--no-error-summary",
        "--hide-error-context",
    ]
    return run(
        folder, [*command, "--cache-dir", str(folder / "cache"), *(path.name for path in paths)], {0, 1}
    )


def pyright(folder, *paths):
    """Basedpyright brings its own Node, and needs no network."""
    pytest.importorskip("basedpyright", reason="basedpyright is not installed")
    settings = """{"typeCheckingMode": "standard", "extraPaths": ["stubs"], "reportMissingImports": false, "reportMissingModuleSource": false,
        "reportPossiblyUnboundVariable": false,
        "reportAttributeAccessIssue": "error", "reportOptionalMemberAccess": "error"}"""
    (folder / "pyrightconfig.json").write_text(settings)
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--level", "error"]
    return run(folder, [*command, *(path.name for path in paths)], {0, 1})


def run(folder, command, ended):
    paths = os.pathsep.join([str(PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        env=dict(
            os.environ, MYPYPATH=os.pathsep.join([str(folder / "stubs"), str(PACKAGE)]), PYTHONPATH=paths
        ),
        timeout=900,
    )
    assert done.returncode in ended, done.stdout + done.stderr
    lines = re.findall(r"([\w.]+\.py):(\d+)(?::\d+)?(?: -|:) error: (.*)", done.stdout)
    return [(name, int(line), text) for name, line, text in lines]


CHECKERS = [mypy, pyright]


@pytest.fixture
def folder(tmp_path):
    """Make a folder with stubs of other libraries, which take precedence over installed ones."""
    for name in OTHERS:
        (tmp_path / "stubs" / name).mkdir(parents=True)
        (tmp_path / "stubs" / name / "__init__.pyi").write_text(ANY)
    return tmp_path


@pytest.mark.parametrize("checker", CHECKERS, ids=lambda checker: checker.__name__)
def test_the_documentation(checker, folder):
    files = []
    for page in PAGES:
        code = re.findall(r"^```python\n(.*?)^```", without_tests(page.read_text()), flags=re.M | re.S)
        if code:
            files.append(
                folder
                / (str(page.relative_to(ROOT).with_suffix("")).replace("/", "_").replace("-", "_") + ".py")
            )
            files[-1].write_text("\n".join(code))
    assert len(files) > 5
    assert checker(folder, *files) == []


@pytest.mark.parametrize("checker", CHECKERS, ids=lambda checker: checker.__name__)
def test_mistakes(checker, folder):
    (folder / "stubs/torch/__init__.pyi").write_text(TORCH)
    path = folder / "user.py"
    path.write_text(RIGHT + WRONG)
    first = RIGHT.count("\n") + 1
    found = {line for _, line, _ in checker(folder, path)}
    wanted = {first + i for i, line in enumerate(WRONG.split("\n")) if line}
    text = (RIGHT + WRONG).split("\n")
    assert not found - wanted, [text[line - 1] for line in sorted(found - wanted)]
    assert not wanted - found, [text[line - 1] for line in sorted(wanted - found)]


def test_options_are_those_of_attend():
    decide = {"return_lse", "significance", "output_scales"}
    assert set(AttendOptions.__annotations__) | decide == set(attend.__kwdefaults__)


def test_names_are_those_that_there_are():
    """The names that __init__ shows to checkers are those that it gives."""
    source = (ROOT / "python/attn/__init__.py").read_text()
    shown = re.findall(r"^    from \.[\w.]* import (\w+) as \1$", source, flags=re.M)
    assert sorted(shown) == sorted({*attn._LAZY, *attn._MODULES})
    typed = (ROOT / "python/attn/heads/typed.pyi").read_text()
    assert sorted(re.findall(r"^    (\w+) = ", typed, flags=re.M)) == sorted(attn.heads.__all__)
