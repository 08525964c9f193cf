# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.env.collect: facts, or reasons for their absence; python -m attn prints them."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import attn
import pytest
from attn import env

ROOT = Path(__file__).resolve().parents[2]
FAKE = Path(os.environ.get("ATTN_BUILD", ROOT / "build")) / "test" / "runtime" / "fake" / "libfakecuda.so"
PACKAGE = Path(attn.__file__).parent


def collected(package=PACKAGE.parent, **environment):
    """Return the facts that a new process collects, with these variables set; `None` removes one."""
    variables = {name: value for name, value in (os.environ | environment).items() if value is not None}
    code = "import json, sys; from attn import env; print(json.dumps(env.collect())); assert 'torch' not in sys.modules"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=variables | {"PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0 and not run.stderr, run.stderr
    return json.loads(run.stdout)


@pytest.fixture
def sources(tmp_path):
    """Return the package without its extension, as in a checkout before a build."""
    shutil.copytree(
        PACKAGE, tmp_path / "attn", ignore=shutil.ignore_patterns("*.so*", "__pycache__", "_attn.pyi")
    )
    return tmp_path


def test_what_is_there(tmp_path):
    pytest.importorskip("attn._attn", reason="the extension is not built")
    from attn import _attn

    found = collected(ATTN_CACHE_DIR=str(tmp_path))
    assert found["attn"]["version"] == attn.__version__ == _attn.build_info()["version"]
    assert found["attn"]["compiler"] == _attn.build_info()["producer"]
    assert found["attn"]["targets"] == _attn.targets()
    assert found["python"]["packages"]["numpy"][0].isdigit()
    assert found["cache"] == {
        "directory": str(tmp_path / "kernels"),
        "problem": None,
        "entries": 0,
        "bytes": 0,
        "limit_bytes": 1 << 30,
    }
    assert found["environment"]["ATTN_CACHE_DIR"] == str(tmp_path) and found["machine"]["cores"] >= 1


def test_entries_and_their_bytes(fresh):
    pytest.importorskip("attn._attn", reason="the extension is not built")
    attn.compile(
        attn.Spec(q_heads=2, kv_heads=2, head_dim=32, dtype="float16", kv=[attn.Dense()], see=attn.causal()),
        device="host",
    )
    [entry] = (fresh / "cache" / "kernels").glob("*.attn")
    found = env.collect()["cache"]
    assert (found["entries"], found["bytes"]) == (1, entry.stat().st_size)


def test_no_gpu(tmp_path):
    pytest.importorskip("attn._attn", reason="the extension is not built")
    (tmp_path / "libcuda.so.1").write_text("no library")
    found = collected(LD_LIBRARY_PATH=str(tmp_path))["gpus"]
    assert found["none"].startswith("cuda: no NVIDIA driver: cannot load ") and "\n" not in found["none"]
    assert found.keys() == {"driver", "none"}


@pytest.mark.skipif(not FAKE.exists(), reason="the tests' CUDA driver is not built")
def test_a_gpu(tmp_path):
    pytest.importorskip("attn._attn", reason="the extension is not built")
    (tmp_path / "libcuda.so.1").symlink_to(FAKE)
    found = collected(LD_LIBRARY_PATH=str(tmp_path))["gpus"]
    assert "none" not in found
    gpu = found["cuda:0"]
    assert gpu["status"] == env.gpu_status(gpu["name"], gpu["compute_capability"], gpu["target"])
    assert gpu["cuda"].partition(".")[0].isdigit() and gpu["memory_bytes"] > 0


@pytest.mark.parametrize(
    "name,capability,target,status",
    [
        ("NVIDIA H200", 90, "sm_90a", "measured"),
        ("NVIDIA GH200 480GB", 90, "sm_90a", "not measured: sm_90a kernels are checked on the CPU"),
        ("NVIDIA L40S", 89, "sm_89", "not measured: sm_89 kernels are checked on the CPU"),
        ("Orin", 87, "sm_86", "not measured: runs sm_86 kernels, which are checked on the CPU"),
        ("Tesla T4", 75, "sm_80", "too old: attn compiles for compute capability 8.0 and later"),
    ],
)
def test_status(name, capability, target, status):
    assert env.gpu_status(name, capability, target) == status


def test_results_are_of_the_gpus_that_count_as_measured():
    results = (ROOT / "benchmarks/results").glob("*.json")
    devices = {
        session["device"]
        for path in results
        for session in json.loads(path.read_text()).get("sessions", [])
        if "device" in session
    }
    assert devices == set(env.MEASURED)


@pytest.mark.parametrize(
    "assembler,said",
    [
        ("", {"path": None, "version": "none found: the driver assembles kernels"}),
        ("/nonexistent", "FileNotFoundError: [Errno 2] No such file or directory: '/nonexistent'"),
        ("/bin/true", {"path": "/bin/true", "version": "unknown"}),
    ],
)
def test_no_ptxas(assembler, said):
    pytest.importorskip("attn._attn", reason="the extension is not built")
    found = collected(ATTN_PTXAS=assembler)
    ptxas = found["ptxas"]
    if isinstance(ptxas, dict):
        ptxas["version"] = ptxas["version"].partition(": 'true")[0]
    assert ptxas == said and found["attn"]["version"] == attn.__version__


@pytest.mark.parametrize(
    "environment,said",
    [
        ({"ATTN_CACHE_SIZE": "much"}, "Error: ATTN_CACHE_SIZE: expected bytes"),
        ({"ATTN_CACHE_DIR": "/etc/passwd"}, "/etc/passwd is no directory"),
    ],
)
def test_no_cache(environment, said):
    assert said in str(collected(**environment)["cache"])


def test_no_extension(sources):
    found = collected(sources)
    assert found["attn"]["extension"].startswith("missing: ")
    assert found["gpus"].startswith("ImportError: ") and found["ptxas"].startswith("ImportError: ")
    assert found["cache"]["problem"] is None and found["python"]["version"]


# --- python -m attn -------------------------------------------------------------------------------------------

COMMAND = [sys.executable, "-m", "attn"]
ENVIRONMENT = dict(os.environ, PYTHONPATH=str(Path(attn.__file__).parents[1]))


def printed(*arguments):
    run = subprocess.run([*COMMAND, *arguments], env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0 and not run.stderr, run.stderr
    return run.stdout


def test_for_people():
    text = printed()
    assert text.startswith(f"attn\n  version              {attn.__version__}\n")
    sections = [line.split()[0] for line in text.splitlines() if not line.startswith(" ")]
    assert sections == ["attn", "python", "gpus", "ptxas", "cache", "machine", "environment"]
    assert "  targets              sm_80, sm_86, " in text and "  limit                1.0 GiB\n" in text


def test_for_programs():
    found = json.loads(printed("--json"))
    assert list(found) == ["attn", "python", "gpus", "ptxas", "cache", "machine", "environment"]
    assert found["attn"]["version"] == attn.__version__


def test_help():
    assert "--json" in printed("--help")


def test_unknown_option():
    run = subprocess.run([*COMMAND, "--all"], env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert run.returncode == 2 and "unrecognized arguments: --all" in run.stderr


def test_a_reader_that_stops_reading():
    read, write = os.pipe()
    os.close(read)
    try:
        run = subprocess.run(COMMAND, env=ENVIRONMENT, stdout=write, stderr=subprocess.PIPE, timeout=60)
    finally:
        os.close(write)
    assert run.returncode == 0 and not run.stderr


@pytest.mark.alone
def test_is_quick():
    def seconds():
        begin = time.monotonic()
        printed()
        return time.monotonic() - begin

    assert min(seconds() for _ in range(3)) <= 1
