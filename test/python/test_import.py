# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`import attn` is quick, loads neither PyTorch nor the compiler, and every public name resolves."""

import ast
import subprocess
import sys
import time
from pathlib import Path

import attn
import pytest

PYTHON = Path(attn.__file__).parents[1]


def child(code):
    start = time.monotonic()
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=PYTHON, timeout=60
    )
    return result, time.monotonic() - start


def test_loads_nothing_heavy():
    result, _ = child("import sys, attn; print(*sorted(sys.modules))")
    assert result.returncode == 0, result.stderr
    loaded = set(result.stdout.split())
    assert not loaded & {"torch", "numpy", "attn._attn", "transformers", "matplotlib"}


@pytest.mark.alone
def test_is_quick():
    bare = min(child("pass")[1] for _ in range(3))
    assert min(child("import attn")[1] for _ in range(3)) - bare <= 0.2


@pytest.mark.parametrize("name", attn.__all__)
def test_every_public_name_resolves(name):
    if name in ("attend", "check", "CheckReport"):
        pytest.importorskip("attn._attn", reason="the extension is not built")
    if name == "MixedCache":
        pytest.importorskip("torch", reason="its tensors are PyTorch's, which is not installed")
    assert getattr(attn, name) is getattr(attn, name)


def test_type_checkers_see_every_name():
    """The imports under TYPE_CHECKING are those that __getattr__ makes."""
    tree = ast.parse(Path(attn.__file__).read_text())
    conditions = [node for node in tree.body if isinstance(node, ast.If)]
    (block,) = (node for node in conditions if ast.unparse(node.test) == "TYPE_CHECKING")
    found = {alias.name: line.module for line in block.body for alias in line.names}
    assert found.pop("heads") == "heads.typed"  # a module that is called, too, which has a type of its own
    assert found == attn._LAZY | {name: None for name in attn._MODULES if name != "heads"}
    assert all(alias.asname == alias.name for line in block.body for alias in line.names)


def test_no_module_has_a_public_name():
    """Importing the one would replace the other."""
    modules = {path.stem for path in Path(attn.__file__).parent.iterdir()}
    assert {"math", "run"} <= modules and not modules & attn._LAZY.keys()


def test_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = attn.nonsense


@pytest.mark.parametrize(
    "error,builtin",
    [
        (attn.SpecError, ValueError),
        (attn.TensorError, ValueError),
        (attn.PlanError, ValueError),
        (attn.DeviceError, RuntimeError),
        (attn.CheckError, AssertionError),
    ],
)
def test_errors_are_also_the_builtin_ones(error, builtin):
    assert issubclass(error, attn.Error) and issubclass(error, builtin)
