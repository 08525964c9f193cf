# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn._attn beside others: threads, forked children, streams of a driver, and other libraries in the process."""

import glob
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest

_attn = pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")

from extension_problem import DECODE, FAKE, Problem, in_process  # noqa: E402


@pytest.fixture(scope="module")
def kernel():
    return _attn.Kernel(_attn.compile(DECODE).artifact, _attn.Device.host())


def test_threads_compile_and_run_together():
    device = _attn.Device.host()
    shared = _attn.Kernel(_attn.compile(DECODE).artifact, device)
    problems = [Problem(seed) for seed in range(4)]
    failures = []

    def work(problem, seed):
        try:
            own = _attn.Kernel(_attn.compile(DECODE.replace("0.125", f"0.12{seed + 1}")).artifact, device)
            for kernel in (shared, own, shared):
                batch = kernel.batch(problem.tensors())
                plan = kernel.plan(batch)
                for _ in range(5):
                    plan.run(problem.addresses(), problem.sizes())
                    plan.update(batch)
            problem.check()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(p, s)) for s, p in enumerate(problems)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


@pytest.mark.alone
def test_others_run_while_it_compiles():
    """Compilation releases the GIL: another thread counts meanwhile."""
    counts = []

    def count():
        while not done.is_set():
            counts.append(time.perf_counter())
            time.sleep(0)

    done = threading.Event()
    thread = threading.Thread(target=count)
    thread.start()
    begin = time.perf_counter()
    _attn.compile(DECODE)
    end = time.perf_counter()
    done.set()
    thread.join()
    meanwhile = [at for at in counts if begin < at < end]
    assert max(np.diff([begin, *meanwhile, end])) < 0.5 * (end - begin)


def in_child(body):
    """Return the exit status of a forked child, after 60 s at most."""
    child = os.fork()
    if child == 0:
        status = 3
        try:
            status = body()
        finally:
            os._exit(status)
    for _ in range(600):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.1)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return "hangs"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_goes_on(kernel):
    problem = Problem()
    plan = kernel.plan(kernel.batch(problem.tensors()))

    def body():
        plan.run(problem.addresses(), problem.sizes())
        problem.check()
        _attn.Kernel(_attn.compile(DECODE).artifact, _attn.Device.host())
        return 0

    assert in_child(body) == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_forked_while_a_launch_runs_does_not_hang(kernel):
    problem = Problem()
    plan = kernel.plan(kernel.batch(problem.tensors()))
    stop = threading.Event()

    def keep_running():
        while not stop.is_set():
            plan.run(problem.addresses(), problem.sizes())

    thread = threading.Thread(target=keep_running)
    thread.start()

    def body():
        try:
            plan.run(problem.addresses(), problem.sizes())
            problem.check()
            return 0
        except _attn.Failure as failure:
            return 0 if "forked" in failure.message else 1

    try:
        assert [in_child(body) for _ in range(8)] == [0] * 8
    finally:
        stop.set()
        thread.join()


needs_fake = pytest.mark.skipif(not FAKE.exists(), reason="the tests' CUDA driver is not built")
CUDA = """
import ctypes, os, time
import numpy as np
import sys
sys.path.insert(0, {tests!r})
from extension_problem import DECODE, Problem
from attn import _attn
fake = ctypes.CDLL({fake!r})
fake.fakeCudaStream.restype = ctypes.c_void_p
device = _attn.Device.cuda(0, library={fake!r})
kernel = _attn.Kernel(_attn.compile(DECODE, forms=["ptx"], target=device.target).artifact, device)
problem = Problem()
plan = kernel.plan(kernel.batch(problem.tensors()), stream=3)
"""


@needs_fake
def test_launches_go_to_the_callers_stream():
    code = (
        CUDA
        + """
for stream in (5, 6, 0, 5):
    plan.run(problem.addresses(), problem.sizes(), stream)
    assert (fake.fakeCudaStream() or 0) == stream
    plan.update(kernel.batch(problem.tensors()), stream=stream)
child = os.fork()
if child == 0:
    try:
        plan.run(problem.addresses(), problem.sizes(), 5)
    except _attn.Failure as failure:
        os._exit(0 if failure.kind == "device" and "forked" in failure.message else 1)
    os._exit(2)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    )
    in_process(
        code.format(tests=str(Path(__file__).parents[1]), fake=str(FAKE)), FAKE_CUDA_MEMORY=str(1 << 24)
    )


@pytest.mark.alone
@needs_fake
def test_a_run_costs_next_to_nothing():
    code = (
        CUDA
        + """
addresses = [problem.addresses(), Problem(1).addresses()]
sizes = problem.sizes()
best = 1.0
for _ in range(20):
    begin = time.perf_counter()
    for i in range(2000):
        plan.run(addresses[i & 1], sizes, 5)
    best = min(best, (time.perf_counter() - begin) / 2000)
print(best * 1e6)
"""
    )
    output = in_process(
        code.format(tests=str(Path(__file__).parents[1]), fake=str(FAKE)), FAKE_CUDA_MEMORY=str(1 << 24)
    )
    assert float(output) < 5, "microseconds; the whole of a run may add 15"


def test_symbols_are_hidden():
    nm = shutil.which("nm") or shutil.which("llvm-nm-22")
    if not nm:
        pytest.skip("no nm")
    package = Path(_attn.__file__).parent

    def symbols(path):
        listed = subprocess.run(
            [nm, "-D", "--defined-only", str(path)], capture_output=True, text=True, check=True
        )
        rows = [line.split() for line in listed.stdout.splitlines()]
        # A: the versions themselves
        return [name.partition("@")[0] for *_, kind, name in rows if kind != "A"]

    library = symbols(package / "libattn_compiler.so.0")
    assert "attnCompile" in library and [s for s in library if not s.startswith("attn")] == []
    assert symbols(_attn.__file__) == ["PyInit__attn"]


RUN = """
import sys
sys.path.insert(0, {tests!r})
from extension_problem import DECODE, Problem
from attn import _attn
kernel = _attn.Kernel(_attn.compile(DECODE).artifact, _attn.Device.host())
problem = Problem()
kernel.plan(kernel.batch(problem.tensors())).run(problem.addresses(), problem.sizes())
problem.check()
try:
    _attn.compile("nonsense")
except _attn.Failure:
    print("alive")
"""


@pytest.mark.parametrize("first", [True, False])
def test_loads_beside_another_llvm(first):
    found = glob.glob("/usr/lib/llvm-*/lib/libLLVM.so*") + glob.glob("/usr/lib/*/libLLVM*.so*")
    if not found:
        pytest.skip("no other LLVM on this machine")
    other = f"import ctypes; ctypes.CDLL({found[0]!r}, mode=ctypes.RTLD_GLOBAL)\n"
    code = RUN.format(tests=str(Path(__file__).parents[1]))
    assert "alive" in in_process(other + code if first else code + other)


@pytest.mark.parametrize("first", [True, False])
def test_loads_beside_torch(first):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    other = "import torch; assert float((torch.ones(8, 8) @ torch.ones(8, 8)).sum()) == 512\n"
    code = RUN.format(tests=str(Path(__file__).parents[1]))
    assert "alive" in in_process(other + code if first else code + other)
