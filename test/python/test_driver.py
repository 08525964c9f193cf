# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels, plans and caches on a GPU, down to its driver: a stand-in that counts launches and does nothing
(FakeCuda.cc)."""

import os
import subprocess
import sys
from pathlib import Path

import attn
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
ROOT = Path(__file__).resolve().parents[2]
FAKE = Path(os.environ.get("ATTN_BUILD", ROOT / "build")) / "test" / "runtime" / "fake" / "libfakecuda.so"
pytestmark = pytest.mark.skipif(not FAKE.exists(), reason="the tests' CUDA driver is not built")

SETUP = """
import ctypes, os, sys
sys.path[:0] = sys.argv[1:2]
import numpy
import attn
from attn import _attn
from attn.cache import pages
from attn.compiler import requests
from attn.memory import devices, views

fake = ctypes.CDLL(sys.argv[2])
fake.fakeCudaStream.restype = ctypes.c_void_p
devices._devices["cuda:0"] = _attn.Device.cuda(0, library=sys.argv[2])

class OnGpu(numpy.ndarray):
    "Memory of the process, which the driver takes for that of its GPU."

def look(tensor):
    strides = tuple(stride // tensor.itemsize for stride in tensor.strides)
    return tensor.ctypes.data, (tensor.dtype, tensor.shape, strides, "cuda:0", True, False)

def zeros(*shape, dtype=numpy.float16):
    return numpy.zeros(shape, dtype).view(OnGpu)

views._viewers[OnGpu] = look
pages.memory_of = lambda sizes, *_: zeros(*sizes)
spec = attn.Spec(q_heads=4, kv_heads=2, head_dim=64, dtype="float16", kv=[attn.Paged()], see=attn.causal())
kernel = attn.compile(spec, device="cuda:0")
cache = attn.PagedCache(layers=2, pages=64, kv_heads=2, head_dim=64, dtype="float16", device="cuda")
node = cache.add()
change = cache.append(node, 20)
for layer in range(2):
    change.write(layer, zeros(20, 2, 64), zeros(20, 2, 64), stream=9)
    assert fake.fakeCudaStream() == 9
twin = cache.fork(node)
cache.append([node, twin]).write_all(zeros(2, 2, 2, 64), zeros(2, 2, 2, 64))
plan = kernel.plan(cache.batch([node, twin]), stream=4)
q, out, lse = zeros(2, 4, 64), zeros(2, 4, 64), zeros(2, 4, dtype=numpy.float32)
"""


def in_process(code):
    environment = dict(os.environ, FAKE_CUDA_MEMORY=str(1 << 26))
    package = Path(attn.__file__).parents[1]
    run = [sys.executable, "-c", SETUP + code, str(package), str(FAKE)]
    done = subprocess.run(run, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_runs_go_to_the_callers_stream():
    in_process("""
assert kernel.device == "cuda:0" and "ptx" in kernel.about["forms"]
for stream in (5, 6, None, 5):
    assert kernel.run(q, cache.layer(1), plan, out=out, lse=lse, stream=stream) is out
    assert (fake.fakeCudaStream() or 0) == (stream or 0)
for odd in ("x", 1.5, -1, 1 << 64, True):
    try:
        kernel.run(q, cache.layer(1), plan, out=out, lse=lse, stream=odd)
    except attn.TensorError as error:
        assert "stream: expected" in str(error)
    else:
        raise AssertionError(odd)
""")


CAPTURE = """
import contextlib

@contextlib.contextmanager
def capture(stream):
    assert fake.cuStreamBeginCapture_v2(ctypes.c_void_p(stream), 1) == 0
    try:
        yield
    finally:
        assert fake.cuStreamEndCapture(ctypes.c_void_p(stream), ctypes.byref(ctypes.c_void_p())) == 0

def refused(act, *words):
    try:
        act()
    except attn.Error as error:
        assert all(word in str(error) for word in words), str(error)
        return type(error)
    raise AssertionError("not refused: " + ", ".join(words))
"""


def test_what_is_captured_must_be_fixed():
    """A plan must be fixed before a capture: updates change the launches of other plans, and a graph would replay the
    old ones."""
    in_process(
        CAPTURE
        + """
run = lambda: kernel.run(q, cache.layer(0), plan, out=out, lse=lse, stream=5)
run()
with capture(5):
    assert refused(run, "plan: the stream is being captured", "plan.fix()") is attn.PlanError
    kernel.run(q, cache.layer(0), plan, out=out, lse=lse, stream=6)  # not captured
plan.fix()
with capture(5):
    run()
    # Copies would be replayed from memory that holds something else by then.
    assert refused(lambda: plan.update(stream=5), "plan: expected to be made and updated before") is attn.PlanError
    batch = cache.batch([node])
    assert refused(lambda: kernel.plan(batch, stream=5), "plan: expected to be made and updated before") is attn.PlanError
    change = cache.append(node)
    refused(lambda: change.write(0, zeros(1, 2, 64), zeros(1, 2, 64), stream=5), "being captured")
"""
    )


def test_captures_have_numbers():
    in_process(
        CAPTURE
        + """
from attn.memory.devices import get_device
device, found = get_device("cuda:0"), []
for _ in range(2):
    with capture(5):
        found.append(device.capture(5))
        assert device.capture(5) == found[-1] and device.capture(6) == device.capture(0) == 0
assert 0 not in found and found[0] != found[1] and device.capture(5) == 0
"""
    )


def test_a_captured_call_keeps_its_plan():
    """Similar calls reuse the plans of calls from long ago, but not the plan of a call in a graph."""
    in_process(
        CAPTURE
        + """
from attn.run import direct
direct._stream = lambda q: 5
def call(tokens):
    q, k, v, out = (zeros(1, tokens, heads, 64) for heads in (4, 2, 2, 4))
    attn.attend(q, k, v, causal=True, out=out)
call(33)
with capture(5):
    call(33)
    refused(lambda: call(34), "plan: expected to be made and updated before")
(captured,) = [call for call in direct._calls.values() if call.pinned]
plan, rows = captured.plan, captured.plan.rows
for tokens in range(40, 140):
    call(tokens)
assert captured.alive and plan.rows == rows
assert all(call is captured or call.plan is not plan for call in direct._calls.values())
"""
    )


def test_memory_of_the_host_is_refused():
    in_process("""
for given in (dict(q=numpy.zeros((2, 4, 64), numpy.float16)), dict(out=numpy.zeros((2, 4, 64), numpy.float16))):
    try:
        kernel.run(given.get("q", q), cache.layer(0), plan, out=given.get("out", out), lse=lse)
    except attn.TensorError as error:
        assert "expected memory of cuda:0, where the kernel runs, got host" in str(error)
    else:
        raise AssertionError("ran")
host = attn.PagedCache(layers=1, pages=4, kv_heads=2, head_dim=64, dtype="float16", device="host")
node = host.add()
host.append(node, 1).skip()
try:
    kernel.plan(host.batch([node]))
except attn.PlanError as error:
    assert "a cache on host for a kernel on cuda:0" in str(error)
else:
    raise AssertionError("planned")
""")


def test_a_forked_child_is_told_how_to_use_the_gpu():
    in_process("""
child = os.fork()
if child == 0:
    messages = []
    for act in (lambda: kernel.run(q, cache.layer(0), plan, out=out, lse=lse), lambda: attn.compile(spec, device="cuda")):
        try:
            act()
        except attn.DeviceError as error:
            messages.append(str(error))
    os._exit(0 if len(messages) == 2 and "forked" in messages[0] and "spawn" in messages[1] else 1)
assert os.waitpid(child, 0)[1] == 0
""")


def test_reports_of_gpu_kernels_have_what_ptxas_said():
    in_process("""
report = kernel.report(q, cache.layer(0), plan, out=out, lse=lse)
assert report.measured_seconds > 0 and report.predicted_seconds > 0
if requests.build_info()["ptxas"]:
    assert kernel.about["forms"] == ["ptx", "cubin"]
    assert all(f.registers > 0 and f.spill_bytes == 0 for f in report.functions), str(report)
""")


COST = '''
import timeit

def numbers():
    return {number: (number, str(number)) for number in range(100)}

def cost(call, number, turns):
    """The least time of a call in us, and how often numbers() runs in that time. Both take turns, in spans of less than
    a millisecond: both meet a machine of the same speed, and some spans meet no other process."""
    times = [(timeit.timeit(call, number=number), timeit.timeit(numbers, number=20)) for _ in range(turns)]
    took, unit = map(min, zip(*times))
    return took / number * 1e6, took / number / (unit / 20)
'''


@pytest.mark.alone
def test_a_whole_run_costs_little():
    """The time of Python, the binding and the runtime for a launch. The bar is 15 us on an otherwise idle machine, where
    a unit of cost() takes some 10 us."""
    printed = in_process(
        COST + "print(*cost(lambda: kernel.run(q, cache.layer(0), plan, out=out, lse=lse), 20, 500))"
    )
    us, units = map(float, printed.split())
    assert units < 3, f"{us:.1f} us, {units:.1f} units"


STEPS = """
from attn.cache import steps as of_steps

of_steps.memory_of = lambda sizes, dtype, *_: zeros(*sizes, dtype=numpy.int32)
fake.fakeCudaTraffic.restype = ctypes.POINTER(ctypes.c_int * 3)
traffic = lambda: list(fake.fakeCudaTraffic().contents)
planned = attn.compile(
    attn.Spec(
        q_heads=4,
        kv_heads=2,
        head_dim=64,
        dtype="float16",
        kv=[attn.Paged()],
        see=attn.causal(),
        return_lse=False,
        device_plan=True,
    ),
    device="cuda:0",
)
cache = attn.PagedCache(layers=32, pages=500, kv_heads=2, head_dim=64, dtype="float16", device="cuda")
steps = cache.steps(planned, sequences=64, rows=64, tokens=512)
q, out = zeros(64, 4, 64), zeros(64, 4, 64)
k, v = zeros(64, 2, 64), zeros(64, 2, 64)

def launches(stream):
    plan = steps.plan(stream=stream)
    for layer in range(32):
        steps.write(layer, k, v, stream=stream)
        planned.run(q, cache.layer(layer), plan, out=out, stream=stream)

nodes = [cache.add() for _ in range(64)]

def update():
    steps.append(nodes)
    steps.update(nodes, stream=5)
    steps.ran()
"""


def test_steps_are_captured_and_updated_without_waiting():
    """Launches of all layers are captured in a graph; a step is one copy, without a wait or an allocation."""
    in_process(
        CAPTURE
        + STEPS
        + """
launches(5)
fake.fakeCudaCounters.restype = ctypes.POINTER(ctypes.c_int * 6)
before = traffic(), fake.fakeCudaCounters().contents[0]
with capture(5):
    launches(5)
    assert refused(update, "the stream is being captured") is attn.PlanError
    change = steps.cache.append(cache.add(), 1)
    refused(lambda: change.write(0, zeros(1, 2, 64), zeros(1, 2, 64), stream=5), "being captured", "CacheSteps.write")
    change.skip()
assert (traffic(), fake.fakeCudaCounters().contents[0]) == before
steps.update(nodes, stream=5)
steps.ran()
before = traffic()
for step in range(1, 51):
    update()
    assert traffic() == [before[0] + step, before[1], before[2]], step
assert fake.fakeCudaStream() == 5
"""
    )


def test_new_tokens_of_all_layers_are_listed_once():
    in_process(
        STEPS
        + """
change = cache.append(nodes[:3], [5, 1, 1])
k, v = zeros(7, 2, 64), zeros(7, 2, 64)
change.write(0, k, v, stream=5)
before = traffic()
for layer in range(1, 32):
    change.write(layer, k, v, stream=5)
assert traffic() == before
"""
    )


def test_a_step_costs_little():
    """The host's time for a step of 64 sequences, without the launch of the graph. The bar is 60 us on an otherwise
    idle machine, where a unit of cost() takes some 10 us."""
    printed = in_process(COST + STEPS + "update()\nprint(*cost(update, 1, 100))")
    us, units = map(float, printed.split())
    assert units < 6, f"{us:.1f} us, {units:.1f} units"


def test_a_plan_lies_where_one_of_its_stream_lay():
    in_process(
        """
fake.fakeCudaTraffic.restype = ctypes.POINTER(ctypes.c_int * 3)
batch = cache.batch([node, twin])

def allocations(stream, **options):
    before = fake.fakeCudaTraffic().contents[2]
    made = kernel.plan(batch, stream=stream, **options)
    return fake.fakeCudaTraffic().contents[2] - before, made

first, held = allocations(5)
assert first > 3 and allocations(5)[0] == first  # the first is held
del held
assert allocations(5)[0] == 0 and allocations(5)[0] == 0
assert allocations(6)[0] == first  # kernels on the other stream may still read
assert allocations(5, blocks=2)[0] > 0 and allocations(5, limits={"rows": 2})[0] > 0
two = [allocations(5)[1] for _ in range(2)]
kernel.run(q, cache.layer(0), two[0], out=out, lse=lse, stream=6)  # was on two streams
two[1].fix()  # may be in a graph
stats = two[1]._native.stats()
two.clear()
assert allocations(5)[0] == first
before = fake.fakeCudaTraffic().contents[2]  # and of the options that it was fixed with
again = kernel._native.plan(kernel._prepare(batch).native, kernel=stats["kernel"], blocks=stats["blocks"], stream=5)
assert fake.fakeCudaTraffic().contents[2] - before == first
"""
    )
