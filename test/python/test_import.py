# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`import attn` is quick, loads neither PyTorch nor the compiler, and every public name resolves."""

import ast
import re
import shutil
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


FIRST = """
import time, attn
begin = time.monotonic()
import numpy
q, k, v = (numpy.random.default_rng(seed).standard_normal((1, 16, 2, 64)).astype("float16") for seed in range(3))
assert attn.attend(q, k, v, causal=True).shape == q.shape
print(time.monotonic() - begin)
"""


@pytest.mark.alone
def test_the_first_result_is_quick(monkeypatch, tmp_path):
    """A kernel that no cache has is compiled for the CPU, and run, a second after the import at the latest."""
    pytest.importorskip("attn._attn", reason="the extension is not built")
    times = []
    for index in range(3):
        monkeypatch.setenv("ATTN_CACHE_DIR", str(tmp_path / str(index)))
        result, _ = child(FIRST)
        assert result.returncode == 0, result.stderr
        times.append(float(result.stdout))
    assert min(times) <= 1


@pytest.mark.parametrize("name", attn.__all__)
def test_every_public_name_resolves(name):
    if name in ("attend", "check", "CheckReport"):
        pytest.importorskip("attn._attn", reason="the extension is not built")
    if name in ("BitsReport", "MixedCache", "bits", "check_bits", "distributed", "flash_attn"):
        pytest.importorskip("torch", reason="its tensors are PyTorch's, which is not installed")
    assert getattr(attn, name) is getattr(attn, name)


def test_type_checkers_see_every_name():
    """The imports under TYPE_CHECKING are those that __getattr__ makes."""
    tree = ast.parse(Path(attn.__file__).read_text())
    conditions = [node for node in tree.body if isinstance(node, ast.If)]
    (block,) = (node for node in conditions if ast.unparse(node.test) == "TYPE_CHECKING")
    found = {alias.name: line.module for line in block.body for alias in line.names}
    assert found.pop("heads") == "heads.typed"  # a module that is also callable, which has a type of its own
    assert found == attn._LAZY | {name: None for name in attn._MODULES if name != "heads"}
    assert all(alias.asname == alias.name for line in block.body for alias in line.names)


# The modules of the compiler's package; all others are built on them (test/lint/test_rooms.py).
COMPILER = (
    "cache",
    "compiler",
    "describe",
    "memory",
    "run",
    "errors.py",
    "forks.py",
    "math.py",
    "aot.py",
    "env.py",
    "__main__.py",
)
ALONE = """
import numpy
import attn

q = numpy.random.default_rng(1).normal(size=(1, 9, 4, 32)).astype(numpy.float16)
o = attn.attend(q, q, q, causal=True)
cache = attn.PagedCache(layers=1, pages=4, kv_heads=2, head_dim=32, dtype="float16", device="host", key="int8")
cache.append(cache.add(), 5).write(0, *numpy.zeros((2, 5, 2, 32), numpy.float16))
spec = attn.Spec(q_heads=4, kv_heads=2, head_dim=32, dtype="float16", kv=[attn.Paged()], see=attn.causal())
attn.check(spec, batch=2, kv_len=20)
assert not set(__import__("sys").modules) & {"torch", "transformers", "matplotlib"}
"""


def test_the_compiler_needs_no_product(tmp_path):
    pytest.importorskip("attn._attn", reason="the extension is not built")
    source, package = Path(attn.__file__).parent, tmp_path / "attn"
    package.mkdir()
    for name in ("__init__.py", *COMPILER):
        path = source / name
        copy = shutil.copytree if path.is_dir() else shutil.copy
        copy(path, package / name)
    for built in [*source.glob("_attn*.so"), *source.glob("libattn*")]:
        (package / built.name).symlink_to(built.resolve())
    result = subprocess.run(
        [sys.executable, "-c", ALONE], capture_output=True, text=True, cwd=tmp_path, timeout=120
    )
    assert result.returncode == 0, result.stderr


def test_no_module_has_a_public_name():
    """An import of the module would replace the public name."""
    modules = {path.stem for path in Path(attn.__file__).parent.iterdir()}
    assert {"math", "run"} <= modules and not modules & attn._LAZY.keys()


def test_version():
    pytest.importorskip("attn._attn", reason="the extension is not built")
    root = Path(__file__).resolve().parents[2]
    [version] = re.findall(r"project\(attn VERSION ([0-9.]+)", (root / "CMakeLists.txt").read_text())
    assert attn.__version__ == version


def test_version_without_the_extension(tmp_path):
    source = Path(attn.__file__).parent
    (tmp_path / "attn").mkdir()
    for name in ("__init__.py", "errors.py", "forks.py"):
        shutil.copy(source / name, tmp_path / "attn" / name)
    code = "import attn; print(getattr(attn, '__version__', 'none'))"
    run = [sys.executable, "-S", "-c", code]
    assert subprocess.run(run, capture_output=True, text=True, cwd=tmp_path).stdout == "none\n"
    metadata = tmp_path / "attn-4.5.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: attn\nVersion: 4.5\n")
    assert subprocess.run(run, capture_output=True, text=True, cwd=tmp_path).stdout == "4.5\n"


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
