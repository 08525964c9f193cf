# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Any arguments to kernels, plans and caches give an attn.Error with a message, or a right result, and never a crash or
an access to memory that was not given."""

import gc
import os
import threading
import warnings

import attn
import numpy
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from attn.run import kernels  # noqa: E402
from kernel_problem import DIM, KV_HEADS, LENGTHS, PAGES, Q_HEADS, Problem, spec  # noqa: E402
from seeds import of_seeds  # noqa: E402

ODD = [
    None, True, 0, -1, 1.5, 2**31, 2**63, 2**200, 2**2000, float("nan"), "", "q", b"bytes", [], [1], (), (1, 2), {}, {"q": 1},
    object(), type, print, numpy.float32(1), numpy.zeros(0), numpy.zeros((3, 4, 64)), numpy.array(None), bytearray(8),
    memoryview(b"12345678"), range(3), float, Ellipsis,
]  # fmt: skip


try:
    import torch
except ImportError:  # tests of the wheel run without PyTorch
    pass
else:
    ODD += [
        torch.zeros(3, 4, 64, dtype=torch.float16, device="meta"),
        torch.zeros(2, dtype=torch.int32, device="meta"),
    ]


@pytest.fixture(scope="module")
def kernel():
    return attn.compile(spec(), device="host")


def shapes(rng, good):
    """Return a shape that is near the good one in most cases."""
    shape = list(good)
    for _ in range(rng.randint(0, 2)):
        act = rng.randint(0, 3)
        if act == 0 and shape:
            shape[rng.randrange(len(shape))] = rng.choice([0, 1, 2, 3, 5, 63, 64, 65, 128])
        elif act == 1 and shape:
            del shape[rng.randrange(len(shape))]
        elif act == 2:
            shape.insert(rng.randint(0, len(shape)), rng.choice([1, 2]))
        elif shape:
            rng.shuffle(shape)
    return shape


def tensor(rng, good):
    """Return an array that may be wrong in dtype, shape or strides."""
    dtype = rng.choice(
        [numpy.float16] * 6 + [numpy.float32, numpy.int16, numpy.uint16, bool, ">f2", "S2", "O"]
    )
    array = numpy.zeros(shapes(rng, good), dtype)
    act = rng.randint(0, 9)
    if act == 0:
        array = array[..., ::-1]
    elif act == 1:
        array = array.T
    elif act == 2:
        array = array[::2]
    elif act == 3:
        array = numpy.broadcast_to(array, (2, *array.shape))[0]
    elif act == 4:
        array.flags.writeable = False
    return array


def test_runs_with_anything(kernel):
    """A run gives results in the right place, or an error before it has written any."""
    refused = of_seeds(300, lambda rng: run_with_anything(kernel, rng))
    assert 30 < refused < 270


def run_with_anything(kernel, rng):
    problem = Problem()
    plan = kernel.plan(problem.batch)
    good = dict(
        q=(3, Q_HEADS, DIM), k=(PAGES, 16, KV_HEADS, DIM), v=(PAGES, 16, KV_HEADS, DIM), out=(3, Q_HEADS, DIM)
    )
    given = {
        name: tensor(rng, shape) if rng.random() < 0.25 else numpy.zeros(shape, numpy.float16)
        for name, shape in good.items()
    }
    if rng.random() < 0.3:
        given[rng.choice(list(given))] = rng.choice(ODD)
    named = {"lse": rng.choice(ODD)} if rng.random() < 0.2 else {}
    if rng.random() < 0.1:
        named[rng.choice(["rows", "classes", "stream", "sinks"])] = rng.choice(ODD)
    before = given["out"].copy() if isinstance(given["out"], numpy.ndarray) else given["out"]
    error = None
    try:
        o = kernel.run(given["q"], (given["k"], given["v"]), plan, out=given["out"], **named)
    except attn.Error as raised:
        error = raised
        assert str(error)
        if isinstance(before, numpy.ndarray):
            assert numpy.array_equal(given["out"], before)
    else:
        assert o is given["out"] or given["out"] is None
        assert o.shape == good["out"] and numpy.array_equal(o, numpy.zeros_like(o))
    problem.check(kernel.run(problem.q, (problem.k, problem.v), plan))
    return error is not None


def test_plans_of_anything(kernel):
    """A plan runs on the tensors it was made for, or is refused."""
    refused = of_seeds(300, lambda rng: plan_of_anything(kernel, rng))
    assert 30 < refused < 300


def plan_of_anything(kernel, rng):
    problem = Problem()
    batch = problem.batch
    for _ in range(rng.randint(1, 2)):
        name = rng.choice([*batch, "kv.pos0", "kv.rows", "q_start", "q_pos", "kv.start", "classes", ""])
        act = rng.randint(0, 3)
        if act == 0:
            batch[name] = rng.choice(ODD)
        elif act == 1 and name in batch:
            del batch[name]
        elif act == 2:
            batch[name] = [
                rng.choice([-1, 0, 1, 2, 3, 16, 17, 63, 64, 65, 2**31 - 1]) for _ in range(rng.randint(0, 7))
            ]
        else:
            batch[name] = (
                rng.choice(["float16", "bf16", "f32", "?", None]),
                tuple(rng.choice([-1, 0, 1, 3, 4, 64, 2**31, 2**62]) for _ in range(rng.randint(0, 5))),
            )
    try:
        plan = kernel.plan(batch)
    except attn.Error as error:
        assert str(error)
        return True
    assert plan.rows >= 0 and plan.explain()
    try:  # tensors of the problem, perhaps not those of the plan
        o = kernel.run(problem.q, (problem.k, problem.v), plan)
    except attn.TensorError as error:
        assert str(error)
    else:
        assert o.shape == (plan.rows, Q_HEADS, DIM) and numpy.isfinite(o).all()
    return False


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd)[:20])
def test_every_argument_once(kernel, odd):
    problem = Problem()
    plan = kernel.plan(problem.batch)
    cache = attn.PagedCache(
        layers=1, pages=8, kv_heads=KV_HEADS, head_dim=DIM, dtype="float16", device="host"
    )
    node = cache.add()
    cache.append(node, 3).skip()
    calls = [
        lambda: kernel.run(odd, (problem.k, problem.v), plan),
        lambda: kernel.run(problem.q, odd, plan),
        lambda: kernel.run(problem.q, (odd, problem.v), plan),
        lambda: kernel.run(problem.q, (problem.k, problem.v), odd),
        lambda: kernel.plan(odd),
        lambda: kernel.plan(problem.batch, blocks=odd),
        lambda: kernel.plan(problem.batch, strategy=odd),
        lambda: kernel.plan(problem.batch, limits=odd),
        lambda: plan.update(odd),
        lambda: kernel.emit(odd),
        lambda: attn.compile(odd, device="host"),
        lambda: attn.compile(spec(), device="host", target=odd),
        lambda: attn.compile(spec(), device="host", schedule=odd),
        lambda: attn.compile(spec(), device="host", entry=odd),
        lambda: attn.compile(spec(), device=odd),
        lambda: cache.append(odd),
        lambda: cache.append(node, odd),
        lambda: cache.branch(node, odd),
        lambda: cache.speculate(node, odd),
        lambda: cache.commit(node, odd),
        lambda: cache.apply(prune=odd),
        lambda: cache.apply(branch=odd),
        lambda: cache.apply(branch=[odd]),
        lambda: cache.batch(odd),
        lambda: kernel.plan(cache.batch([odd])),
        lambda: kernel.plan(cache.batch([node], classes=odd)),
        lambda: kernel.plan(cache.batch([node], ends=odd)),
        lambda: cache.layer(odd),
        lambda: cache.free_pages(odd),
        lambda: cache.slots(node, odd),
        lambda: attn.PagedCache(layers=1, pages=odd, kv_heads=1, head_dim=32, device="host"),
        lambda: attn.PagedCache(layers=1, pages=1, kv_heads=1, head_dim=32, dtype=odd, device="host"),
        lambda: attn.PagedCache(layers=1, kv_heads=1, head_dim=32, classes=odd, device="host"),
    ]  # fmt: skip
    for call in calls:
        try:
            call()
        except attn.Error as error:
            assert str(error)
        cache.rollback()
        if cache.contains(node) and cache.draft_tokens(node):
            cache.commit(node, -1)
    cache._native.check_invariants()
    problem.check(kernel.run(problem.q, (problem.k, problem.v), kernel.plan(problem.batch)))


def test_what_was_let_go_of_lives_as_long_as_it_is_used(kernel):
    """A layer keeps its cache alive, and a plan its kernel and batch."""
    cache = attn.PagedCache(
        layers=1, pages=8, kv_heads=KV_HEADS, head_dim=DIM, dtype="float16", device="host"
    )
    node = cache.add()
    ones = numpy.ones((20, KV_HEADS, DIM), numpy.float16)
    cache.append(node, 20).write(0, ones, ones)
    batch, layer = cache.batch([node]), cache.layer(0)
    own = attn.compile(spec(name="let_go"), device="host")
    plan = own.plan(batch)
    del cache, batch, own
    kernels.clear_kernels()
    gc.collect()
    o = plan.kernel.run(numpy.ones((1, Q_HEADS, DIM), numpy.float16), layer, plan)
    assert numpy.array_equal(o, numpy.ones_like(o))
    plan.batch.cache.prune(node)
    with pytest.raises(attn.PlanError, match="pruned"):
        plan.kernel.run(numpy.ones((1, Q_HEADS, DIM), numpy.float16), layer, plan)
    with pytest.raises(attn.PlanError, match="pruned"):
        plan.batch.update()


def test_a_forked_child_goes_on_with_a_cache_and_kernels_of_its_own(kernel):
    cache = attn.PagedCache(
        layers=1, pages=8, kv_heads=KV_HEADS, head_dim=DIM, dtype="float16", device="host"
    )
    node = cache.add()
    ones = numpy.ones((20, KV_HEADS, DIM), numpy.float16)
    cache.append(node, 20).write(0, ones, ones)
    plan = kernel.plan(cache.batch([node]))
    q = numpy.ones((1, Q_HEADS, DIM), numpy.float16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            try:
                kernel.run(q, cache.layer(0), plan)
            except attn.DeviceError as error:
                cache.append(node, 1).write(0, ones[:1], ones[:1])
                mine = attn.compile(spec(), device="host")
                o = mine.run(q, cache.layer(0), mine.plan(cache.batch([node])))
                status = 0 if "forked" in str(error) and numpy.array_equal(o, numpy.ones_like(o)) else 2
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    assert cache.tokens(node) == 20
    assert numpy.array_equal(
        kernel.run(q, cache.layer(0), plan), numpy.ones((1, Q_HEADS, DIM), numpy.float16)
    )


def test_threads_that_share_everything(kernel):
    """Threads run and update one plan, change and read one cache, and drop kernels: errors, not crashes."""
    problem = Problem()
    plan = kernel.plan(problem.batch)
    cache = attn.PagedCache(
        layers=1, pages=64, kv_heads=KV_HEADS, head_dim=DIM, dtype="float16", device="host"
    )
    unexpected = []

    def attempt(act):
        for _ in range(30):
            try:
                act()
            except attn.Error:
                pass
            except BaseException as error:
                unexpected.append(error)

    def change():
        node = cache.add()
        cache.append(node, 5).skip()
        kernel.plan(cache.batch([node]))
        cache.prune(node)

    acts = [
        lambda: kernel.run(problem.q, (problem.k, problem.v), plan),
        lambda: kernel.run(problem.q, (problem.k, problem.v), plan),
        lambda: plan.update(problem.batch | {"kv.lengths": [length - 1 for length in LENGTHS]}),
        lambda: (plan.explain(), plan.stats, plan.svg()),
        lambda: (kernels.clear_kernels(), attn.compile(spec(), device="host")),
        change,
        change,
    ]
    threads = [threading.Thread(target=attempt, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not unexpected, unexpected[0]
    plan.update(problem.batch)
    problem.check(kernel.run(problem.q, (problem.k, problem.v), plan))
