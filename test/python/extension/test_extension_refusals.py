# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Refusals of attn._attn, and arguments that must not crash the interpreter."""

import gc
import random
from pathlib import Path

import numpy as np
import pytest

_attn = pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")

from extension_problem import DECODE, Problem, in_process  # noqa: E402


@pytest.fixture(scope="module")
def device():
    return _attn.Device.host()


@pytest.fixture(scope="module")
def compiled():
    return _attn.compile(DECODE)


@pytest.fixture(scope="module")
def kernel(device, compiled):
    return _attn.Kernel(compiled.artifact, device)


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
        lambda k, p, t: _attn.reference_gradients(DECODE, {}),
        lambda k, p, t: _attn.reference_gradients(DECODE, {"do": ("f64", (HUGE,), None)}),
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
        lambda k, p, t: k.ordinal_heads([0, 1]),
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
        lambda k, p, t: _attn.StepTables(
            k, _attn.Cache(classes=[("kv", 4, 0, 0, 0)]), sequences=1, rows=1, new_tokens=1, operands=[]
        ),
        lambda k, p, t: _attn.StepTables(
            k,
            _attn.Cache(classes=[("kv", 4, 0, 0, 0)]),
            sequences=1,
            rows=-1,
            new_tokens=1,
            operands=[(0, True, False, 1)],
        ),
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
        lambda k, p: p.grow(None, 1),
        lambda k, p: p.run(None, None),
        lambda k, p: p.run(["a"] * 5, [1] * 5),
        lambda k, p: p.run([1.5] * 5, [1] * 5),
        lambda k, p: _attn.View(None),
        lambda k, p: _attn.BatchBuilder(None),
        lambda k, p: _attn.CacheKernels(None, None),
        lambda k, p: _attn.StepTables(None, None, sequences=1, rows=1, new_tokens=1, operands=[]),
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
from extension_problem import DECODE, APPEND, MOVE, Problem
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


def test_no_call_brings_the_interpreter_down():
    for seed in range(6):
        code = FUZZ.format(tests=str(Path(__file__).parents[1]), seed=seed, rounds=3000)
        assert "alive" in in_process(code), f"seed {seed}"


def test_launches_of_other_arguments():
    launches = _attn.Launches()
    for given in ((), ((),), ((), (), ())):
        with pytest.raises(TypeError, match="expected tensors and options"):
            launches.run(*given)
        with pytest.raises(TypeError, match="expected tensors, options"):
            launches.add(*given[:2])
    assert launches.run((), ()) is None and launches.run(5, "x") is None and len(launches) == 0
