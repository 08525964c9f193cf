"""attn._attn: what it computes, what it refuses, and that nothing a caller does brings the interpreter down."""

import ctypes
import gc
import glob
import os
import random
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

_attn = pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ATTN_BUILD", ROOT / "build"))
FAKE = BUILD / "test" / "runtime" / "fake" / "libfakecuda.so"

DECODE = """
!query = tensor<?x4x64xbf16>
!cache = !attn.kv<paged<16>, heads = 2, dim = 64, key = bf16, value = bf16>
func.func @decode(%q: !query {attn.name = "q", attn.dims = ["rows"]},
                  %kv: !cache {attn.name = "kv", attn.dims = ["batch", "kv_len"]}) -> (!query, tensor<?x?xf32>) {
  %o, %lse = attn.attend %q over (%kv see causal & window(64)) scale 0.125
      : !query, !cache -> !query, tensor<?x?xf32>
  return %o, %lse : !query, tensor<?x?xf32>
}
"""
APPEND = (ROOT / "examples" / "07_cache" / "append.mlir").read_text()
MOVE = (ROOT / "examples" / "07_cache" / "move.mlir").read_text()


def bfloat16(values):
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def widen(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


class Problem:
    """A batch of three sequences over scattered pages, and where its results go."""

    def __init__(self, seed=0, pages=24):
        rng = np.random.default_rng(seed)
        self.q = bfloat16(rng.standard_normal((3, 4, 64)))
        self.k = bfloat16(rng.standard_normal((pages, 16, 2, 64)))
        self.v = bfloat16(rng.standard_normal((pages, 16, 2, 64)))
        self.table = rng.permutation(pages)[:18].reshape(3, 6).astype(np.int32)
        self.lengths = np.array([90, 33, 1], np.int32)
        self.o = np.zeros_like(self.q)
        self.lse = np.zeros((3, 4), np.float32)

    def tensors(self, contents=False):
        def data(array):
            return ("bf16", array.shape, array if contents else None)

        return {
            "q": data(self.q),
            "kv.k_pages": data(self.k),
            "kv.v_pages": data(self.v),
            "kv.block_table": self.table,
            "kv.lengths": self.lengths,
        }

    def arrays(self):
        return [self.q, self.k, self.v, self.o, self.lse]

    def addresses(self):
        return [array.ctypes.data for array in self.arrays()]

    def sizes(self):
        return [array.nbytes for array in self.arrays()]

    def check(self):
        results = _attn.reference(DECODE, self.tensors(contents=True))
        o, lse = (np.frombuffer(results[name][2]).reshape(results[name][1]) for name in ("o", "lse"))
        error = np.linalg.norm(widen(self.o) - o, axis=-1) / np.linalg.norm(o, axis=-1)
        assert error.max() <= 8e-3
        assert np.abs(self.lse - lse).max() <= 2e-3


@pytest.fixture(scope="module")
def device():
    return _attn.Device.host()


@pytest.fixture(scope="module")
def compiled():
    return _attn.compile(DECODE)


@pytest.fixture(scope="module")
def kernel(device, compiled):
    return _attn.Kernel(compiled.artifact, device)


def test_computes_what_the_reference_says(kernel):
    problem = Problem()
    plan = kernel.plan(kernel.batch(problem.tensors()))
    assert kernel.slots == plan.slots == ("q", "kv.k_pages", "kv.v_pages", "o", "lse")
    assert plan.nbytes == tuple(problem.sizes())
    plan.run(problem.addresses(), problem.sizes())
    problem.check()


def test_checked_code_gives_the_same_bits_and_clean_detectors(kernel):
    plain, checked = Problem(), Problem()
    kernel.plan(kernel.batch(plain.tensors())).run(plain.addresses(), plain.sizes())
    device = _attn.Device.host(checked=True, seed=7, shuffle=True)
    instrumented = _attn.Kernel(_attn.compile(DECODE, checked=True).artifact, device)
    assert instrumented.checked and not kernel.checked
    instrumented.plan(instrumented.batch(checked.tensors())).run(checked.addresses(), checked.sizes())
    np.testing.assert_array_equal(plain.o, checked.o)
    report = device.report()
    assert report["clean"] and report["bytes_read"] > 0 and report["findings"] == []
    device.reset_report()
    assert device.report()["bytes_read"] == 0


def test_detectors_see_memory_that_nobody_wrote():
    device = _attn.Device.host(checked=True)
    kernel = _attn.Kernel(_attn.compile(DECODE, checked=True).artifact, device)
    problem = Problem()
    plan = kernel.plan(kernel.batch(problem.tensors()))
    queries = device.allocate(problem.q.nbytes, "queries")
    plan.run([queries.address, *problem.addresses()[1:]], problem.sizes())
    report = device.report()
    assert report["uninitialized"] > 0 and not report["clean"] and "nobody wrote" in report["text"]


def test_sizes_of_windows_are_run_time_values(kernel):
    problem = Problem()
    plan = kernel.plan(kernel.batch(problem.tensors(), ends=[8]))
    plan.run(problem.addresses(), problem.sizes())
    narrow = problem.o.copy()
    kernel.plan(kernel.batch(problem.tensors())).run(problem.addresses(), problem.sizes())
    assert (narrow[0] != problem.o[0]).any()
    with pytest.raises(_attn.Failure, match="expected 1 sizes"):
        kernel.batch(problem.tensors(), ends=[1, 2])


def test_updates_grow_where_they_must(kernel):
    problem = Problem()
    batch = kernel.batch(problem.tensors())
    plan = kernel.plan(batch)
    problem.lengths[:] += 1
    assert plan.update(kernel.batch(problem.tensors()))
    assert plan.stats()["extended"] == 1
    plan.run(problem.addresses(), problem.sizes())
    problem.check()
    more = Problem(pages=1000)
    more.q = np.repeat(more.q, 50, axis=0)
    more.o = np.zeros_like(more.q)
    more.lse = np.zeros((150, 4), np.float32)
    more.table = np.random.default_rng(1).integers(0, 1000, (150, 6)).astype(np.int32)
    more.lengths = np.full(150, 96, np.int32)
    assert not plan.update(kernel.batch(more.tensors()))
    assert plan.rows == 150
    plan.run(more.addresses(), more.sizes())
    more.check()


def test_tensor_maps_follow_addresses(device):
    """Prefill on Hopper fetches through tensor maps: another layer's tensors must be seen through new ones."""
    text = DECODE.replace("4x64", "4x128").replace("dim = 64", "dim = 128")
    kernel = _attn.Kernel(_attn.compile(text).artifact, device)
    assert '"map"' in kernel.manifest
    rng = np.random.default_rng(5)
    table = np.arange(16, dtype=np.int32).reshape(1, 16)

    def layer():
        shapes = [(256, 4, 128), (16, 16, 2, 128), (16, 16, 2, 128)]
        return [bfloat16(rng.standard_normal(shape)) for shape in shapes]

    names = ("q", "kv.k_pages", "kv.v_pages")
    layers = [layer(), layer()]
    tables = {
        "q_start": np.array([0, 256], np.int32),
        "kv.block_table": table,
        "kv.lengths": np.array([256], np.int32),
    }
    described = {name: ("bf16", array.shape, None) for name, array in zip(names, layers[0], strict=True)}
    plan = kernel.plan(kernel.batch({**described, **tables}))
    o, lse = np.zeros((256, 4, 128), np.uint16), np.zeros((256, 4), np.float32)
    for arrays in layers:
        buffers = [*arrays, o, lse]
        plan.run([array.ctypes.data for array in buffers], [array.nbytes for array in buffers])
        given = {name: ("bf16", array.shape, array) for name, array in zip(names, arrays, strict=True)}
        dtype, shape, content = _attn.reference(text, {**given, **tables})["o"]
        exact = np.frombuffer(content).reshape(shape)
        error = np.linalg.norm(widen(o) - exact, axis=-1) / np.linalg.norm(exact, axis=-1)
        assert error.max() <= 8e-3


def test_strategies_move_only_rounding(kernel):
    for strategy in ("auto", "flatten", "by-query", "by-node", "by-node-chunk"):
        problem = Problem()
        kernel.plan(kernel.batch(problem.tensors()), strategy=strategy).run(
            problem.addresses(), problem.sizes()
        )
        problem.check()


def test_fixed_plans_refuse_what_does_not_fit(kernel):
    problem = Problem()
    plan = kernel.plan(kernel.batch(problem.tensors()), blocks=4)
    plan.fix()
    problem.lengths[:] -= 1
    plan.update(kernel.batch(problem.tensors()))
    plan.run(problem.addresses(), problem.sizes())
    with pytest.raises(_attn.Failure):
        plan.update(kernel.batch({**problem.tensors(), "kv.block_table": np.zeros((3, 4000), np.int32)}))
    with pytest.raises(_attn.Failure, match="update it before"):
        plan.run(problem.addresses(), problem.sizes())


def test_buffers_may_share_one_tensor(kernel):
    problem = Problem()
    both = np.concatenate([problem.k, problem.v])
    plan = kernel.plan(kernel.batch(problem.tensors()))
    address, half = both.ctypes.data, problem.k.nbytes
    addresses = [
        problem.q.ctypes.data,
        address,
        address + half,
        problem.o.ctypes.data,
        problem.lse.ctypes.data,
    ]
    sizes = problem.sizes()
    sizes[1] = both.nbytes  # overlaps the values
    plan.run(addresses, sizes)
    problem.check()


def test_diagnostics_carry_the_place():
    with pytest.raises(_attn.Failure) as caught:
        _attn.compile(DECODE.replace("causal", "nonsense"), name="mine")
    assert caught.value.kind == "input"
    assert caught.value.message.startswith("mine:6:43: error:")
    assert caught.value.args == ("input", caught.value.message) and str(caught.value) == caught.value.message
    assert "remark: schedule" in _attn.compile(DECODE).remarks[0]


def test_every_level_can_be_printed():
    for level in ("problem", "online", "tile", "machine", "ptx", "manifest"):
        assert _attn.emit(DECODE, level).strip()
    assert b"attn.attend" in _attn.emit(DECODE, "problem")
    assert _attn.check(DECODE) == _attn.emit(DECODE, "problem").decode()


def test_build_info_names_the_build():
    info = _attn.build_info()
    assert info["host_target"].startswith("x86-64-v")
    assert len(info["producer"].rsplit(" ", 1)[1]) == 16, "the linker's build id"
    assert _attn.targets() == ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"]


HUGE = 2**63


@pytest.mark.parametrize(
    "call",
    [
        lambda k, p, t: _attn.compile(""),
        lambda k, p, t: _attn.compile("\0\xff"),
        lambda k, p, t: _attn.compile("(" * 100000),
        lambda k, p, t: _attn.compile("module {" * 100000),
        lambda k, p, t: _attn.compile(DECODE.replace("0.125", "0." + "1" * 100000)),
        lambda k, p, t: _attn.compile("!t = " + "tuple<" * 100000),
        lambda k, p, t: _attn.compile(b"ML\xefR" + b"\1" * 100),
        lambda k, p, t: _attn.compile(DECODE, target="sm_1"),
        lambda k, p, t: _attn.compile(DECODE, schedule="none"),
        lambda k, p, t: _attn.compile(DECODE, entry="other"),
        lambda k, p, t: _attn.compile(DECODE, forms=["elf"]),
        lambda k, p, t: _attn.emit(DECODE, "level"),
        lambda k, p, t: _attn.reference(DECODE, {}),
        lambda k, p, t: _attn.reference(DECODE, {"q": ("bf16", (HUGE,), None)}),
        lambda k, p, t: _attn.Kernel(b"", k.device),
        lambda k, p, t: _attn.Kernel(b"\0" * 1000, k.device),
        lambda k, p, t: _attn.Kernel(_attn.compile(DECODE, forms=["ptx"]).artifact, k.device),
        lambda k, p, t: _attn.Device.cuda(0, library="libnothing.so"),
        lambda k, p, t: _attn.Device.host(threads=100000),
        lambda k, p, t: k.device.allocate(HUGE - 1),
        lambda k, p, t: k.batch({}),
        lambda k, p, t: k.batch({**t, "other": t["kv.lengths"]}),
        lambda k, p, t: k.batch({**t, "q": ("bf16", (3, 4, 65), None)}),
        lambda k, p, t: k.batch({**t, "q": ("f16", (3, 4, 64), None)}),
        lambda k, p, t: k.batch({**t, "q": ("bf16", (HUGE - 1, 4, 64), None)}),
        lambda k, p, t: k.batch({**t, "q": ("bf16", (2**29, 4, 64), None)}),
        lambda k, p, t: k.batch({**t, "q": ("bf16", (-1, 4, 64), None)}),
        lambda k, p, t: k.batch({**t, "q": ("bf16", (1,) * 40, None)}),
        lambda k, p, t: k.batch({**t, "q": ("bf17", (3, 4, 64), None)}),
        lambda k, p, t: k.batch({**t, "kv.lengths": ("i32", (3,), None)}),
        lambda k, p, t: k.batch({**t, "kv.lengths": ("i32", (3,), b"\0" * 11)}),
        lambda k, p, t: k.batch({**t, "kv.lengths": np.array([1, 2, -3], np.int32)}),
        lambda k, p, t: k.batch({**t, "kv.lengths": np.array([1, 2, 2**31 - 1], np.int32)}),
        lambda k, p, t: k.batch({**t, "kv.block_table": np.full((3, 6), 99, np.int32)}),
        lambda k, p, t: k.batch({**t, "kv.block_table": np.zeros((3, 6), np.int64)}),
        lambda k, p, t: k.plan(k.batch(t), strategy="other"),
        lambda k, p, t: k.plan(k.batch(t), blocks=-1),
        lambda k, p, t: k.plan(k.batch(t), kernel=99),
        lambda k, p, t: k.plan(k.batch(t), fixed_split=7),
        lambda k, p, t: k.plan(k.batch(t), limits={"rows": HUGE}),
        lambda k, p, t: k.plan(k.batch(t), limits={"other": 1}),
        lambda k, p, t: k.slot_heads([0, 1]),
        lambda k, p, t: p.run([], []),
        lambda k, p, t: p.run([0] * 5, [0] * 5),
        lambda k, p, t: p.run([0] * 5, [HUGE] * 5),
        lambda k, p, t: p.run([16] * 5, [1] * 5),
        lambda k, p, t: p.run([-16] * 5, [HUGE] * 5),
        lambda k, p, t: p.run([2**64 - 16] * 5, [HUGE] * 5),
        lambda k, p, t: p.run([2**70] * 5, [HUGE] * 5),
        lambda k, p, t: p.run([8] * 5, [2**40] * 5),
        lambda k, p, t: p.run([0] * 1000, [0] * 1000),
        lambda k, p, t: k.device.allocate(16).copy_in(b"x" * 17),
        lambda k, p, t: k.device.allocate(16).copy_out(bytearray(4), offset=13),
        lambda k, p, t: _attn.Cache(classes=[]),
        lambda k, p, t: _attn.Cache(page_tokens=-1, classes=[("kv", 4, 0, 0, 0)]),
        lambda k, p, t: _attn.Cache(classes=[("kv", -4, 0, 0, 0)]),
        lambda k, p, t: _attn.Cache(classes=[("kv", 4, 0, 0, 0)]).append(77, 1),
        lambda k, p, t: _attn.Cache(classes=[("kv", 4, 0, 0, 0)]).free_pages(-1),
        lambda k, p, t: _attn.BatchBuilder(k, operands=[]),
        lambda k, p, t: _attn.BatchBuilder(k, max_pages=-1),
        lambda k, p, t: _attn.CacheKernels(k, k),
    ],
)
def test_bad_input_is_refused(kernel, call):
    tensors = Problem().tensors()
    plan = kernel.plan(kernel.batch(tensors))
    with pytest.raises(_attn.Failure) as caught:
        call(kernel, plan, tensors)
    assert caught.value.kind in ("input", "device", "memory")
    assert caught.value.message


@pytest.mark.parametrize(
    "call",
    [
        lambda k, p: _attn.compile(None),
        lambda k, p: _attn.compile("text", forms=3),
        lambda k, p: _attn.Kernel("text", k.device),
        lambda k, p: _attn.Kernel(b"text", None),
        lambda k, p: k.batch(None),
        lambda k, p: k.batch({1: 2}),
        lambda k, p: k.batch({"q": object()}),
        lambda k, p: k.batch({"q": ("bf16", 3, None)}),
        lambda k, p: k.batch({"q": ("bf16", ("a",), None)}),
        lambda k, p: k.plan(None),
        lambda k, p: p.update(None),
        lambda k, p: p.run(None, None),
        lambda k, p: p.run(["a"] * 5, [1] * 5),
        lambda k, p: p.run([1.5] * 5, [1] * 5),
        lambda k, p: _attn.View(None),
        lambda k, p: _attn.BatchBuilder(None),
        lambda k, p: _attn.CacheKernels(None, None),
        lambda k, p: _attn.Plan(),
        lambda k, p: _attn.Device(),
    ],
)
def test_wrong_types_are_type_errors(kernel, call):
    plan = kernel.plan(kernel.batch(Problem().tensors()))
    with pytest.raises(TypeError):
        call(kernel, plan)


def test_altered_artifacts_are_refused(device, compiled):
    artifact = bytearray(compiled.artifact)
    for at in random.Random(3).sample(range(len(artifact)), 40):
        damaged = artifact.copy()
        damaged[at] ^= 1 << at % 8
        with pytest.raises(_attn.Failure, match=r"artifact 'kernel'"):
            _attn.Kernel(damaged, device)
    for size in (0, 1, 40, 50, len(artifact) - 1):
        with pytest.raises(_attn.Failure, match="artifact"):
            _attn.Kernel(artifact[:size], device)


def test_objects_outlive_what_they_were_made_from():
    problem = Problem()
    device = _attn.Device.host()
    kernel = _attn.Kernel(_attn.compile(DECODE).artifact, device)
    batch = kernel.batch(problem.tensors())
    plan = kernel.plan(batch)
    memory = device.allocate(64)
    del device, kernel, batch
    gc.collect()
    plan.run(problem.addresses(), problem.sizes())
    problem.check()
    plan.explain()
    del plan
    memory.fill(1)


FUZZ = """
import random, sys
import numpy as np
from attn import _attn
sys.path.insert(0, {tests!r})
from test_extension import DECODE, APPEND, MOVE, Problem
rng = random.Random({seed})
device = _attn.Device.host()
compiled = _attn.compile(DECODE)
kernel = _attn.Kernel(compiled.artifact, device)
problem = Problem()
cache = _attn.Cache(classes=[("kv", 32, 0, 0, 0), ("recent", 32, 40, 8, 4)])
root = cache.create_root()
batch = kernel.batch(problem.tensors())
plan = kernel.plan(batch)
builder = _attn.BatchBuilder(kernel)
movement = cache.append(root, 20)
kernels = _attn.CacheKernels(*(_attn.Kernel(_attn.compile(text).artifact, device) for text in (APPEND, MOVE)))
objects = [device, compiled, kernel, cache, batch, plan, builder, movement, kernels, device.allocate(64)]
values = [None, True, False, 0, 1, -1, 2, 3, 7, 16, 2**31 - 1, 2**31, -2**31, 2**32, 2**63 - 1, 2**63, 2**64, 10**30,
          0.5, float("nan"), "", "host", "flatten", "kv", "x" * 1000, b"", b"abc", bytearray(8), [], [0], [1, 2], (),
          (0, 1, True), [(root, 1, False)], [(root, 1)], [root], root, {{}}, {{"rows": 3}}, problem.tensors(), object(),
          np.zeros(3, np.int32), np.zeros((2, 2)), np.zeros(3, complex), memoryview(b"abcd")[::2], int, len, *objects]
# Addresses are trusted: these take some that are right, and any sizes.
trusted = {{"run", "execute", "reserve"}}
for _ in range({rounds}):
    target = rng.choice(objects + [_attn])
    name = rng.choice([n for n in dir(target) if not n.startswith("__")])
    if name in trusted or name == "cuda":
        continue
    try:
        member = getattr(target, name)
        if not callable(member):
            continue
        arguments = [rng.choice(values) for _ in range(rng.randrange(4))]
        keywords = {{}}
        for word in ("stream", "ends", "classes", "prune", "append", "branch", "head_class", "forms", "name", "blocks",
                     "entry", "max_pages", "operands", "limits", "checked", "seed"):
            if rng.random() < 0.1:
                keywords[word] = rng.choice(values)
        result = member(*arguments, **keywords)
        if type(result).__module__ == "attn._attn" and len(objects) < 60:
            objects.append(result)
            values.append(result)
    except Exception:
        pass
for _ in range(300):
    addresses = [rng.choice([a, 0, a + rng.randrange(64)]) for a in problem.addresses()]
    sizes = [rng.choice([s, 0, s - 1, 2**63, 2**64 - 1]) for s in problem.sizes()]
    try:
        plan.run(addresses, sizes, rng.choice([0, 1, 2**64 - 1]))
    except _attn.Failure:
        pass
cache.check_invariants()
plan = kernel.plan(kernel.batch(problem.tensors()))
plan.run(problem.addresses(), problem.sizes())
problem.check()
print("alive")
"""


def in_process(code, **environment):
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
    )
    assert result.returncode == 0, (
        f"exit status {result.returncode}\n{result.stdout}\n{result.stderr[-4000:]}"
    )
    return result.stdout


@pytest.mark.parametrize("seed", range(6))
def test_no_call_brings_the_interpreter_down(seed):
    code = FUZZ.format(tests=str(Path(__file__).parent), seed=seed, rounds=3000)
    assert "alive" in in_process(code)


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


def test_others_run_while_it_compiles():
    """The GIL is given back: another thread counts on."""
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
    """What a forked child exits with, after 60 s at the most."""
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
from test_extension import DECODE, Problem
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
    in_process(code.format(tests=str(Path(__file__).parent), fake=str(FAKE)), FAKE_CUDA_MEMORY=str(1 << 24))


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
        code.format(tests=str(Path(__file__).parent), fake=str(FAKE)), FAKE_CUDA_MEMORY=str(1 << 24)
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
        return [line.split()[-1] for line in listed.stdout.splitlines()]

    library = symbols(package / "libattn_compiler.so")
    assert "attnCompile" in library and [s for s in library if not s.startswith("attn")] == []
    assert symbols(_attn.__file__) == ["PyInit__attn"]


RUN = """
import sys
sys.path.insert(0, {tests!r})
from test_extension import DECODE, Problem
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
    code = RUN.format(tests=str(Path(__file__).parent))
    assert "alive" in in_process(other + code if first else code + other)


@pytest.mark.parametrize("first", [True, False])
def test_loads_beside_torch(first):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    other = "import torch; assert float((torch.ones(8, 8) @ torch.ones(8, 8)).sum()) == 512\n"
    code = RUN.format(tests=str(Path(__file__).parent))
    assert "alive" in in_process(other + code if first else code + other)


def test_views_copy_nothing():
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    view = _attn.View(array[::2, 1:])
    assert (view.shape, view.strides, view.dtype, view.contiguous) == ((2, 5), (12, 1), "f32", False)
    assert view.address == array[::2, 1:].ctypes.data and view.nbytes == 40 and view.device == "cpu"
    assert _attn.View(b"abc").readonly and _attn.View(array).contiguous
    with pytest.raises(_attn.Failure, match="format"):
        _attn.View(np.zeros(3, complex))
    with pytest.raises(TypeError):
        _attn.View(3)


def test_views_of_torch_keep_it_alive():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    tensor = torch.full((3, 5), 2.0, dtype=torch.bfloat16)
    view = _attn.View(tensor.T)
    assert (view.dtype, view.shape, view.strides, view.address) == ("bf16", (5, 3), (1, 5), tensor.data_ptr())
    del tensor
    gc.collect()
    assert ctypes.c_uint16.from_address(view.address).value == 0x4000
    with pytest.raises(_attn.Failure, match="dtype"):
        _attn.View(torch.zeros(3, dtype=torch.complex64))
