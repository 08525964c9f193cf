# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Refusals of PagedCache, before anything has changed."""

import attn
import numpy
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from attn.cache.state import CacheClass  # noqa: E402
from paged_model import DIM, KV_HEADS, Q_HEADS, make, raw, spec  # noqa: E402


@pytest.fixture(scope="module")
def kernel():
    return attn.compile(spec(), device="host")


def test_exhaustion_changes_nothing():
    cache = make(pages=4)
    node = cache.add()
    cache.append(node, 40).skip()
    with pytest.raises(attn.OutOfPages, match=r"\b1\b.*page"):
        cache.append(node, 30)
    assert cache.tokens(node) == 40 and cache.free_pages() == 1
    with pytest.raises(attn.OutOfPages):
        cache.apply(append=[node], tokens=[8], branch=[(cache.add(), 2, 1)])
    assert cache.tokens(node) == 40 and cache.free_pages() == 1
    cache.append(node, 8).skip()


def test_changes_are_written_before_the_next():
    cache = make()
    node = cache.add()
    change = cache.append(node, 3)
    tokens = numpy.zeros((3, KV_HEADS, DIM), numpy.float16)
    change.write(1, tokens, tokens)
    changes = (cache.append, cache.fork, cache.prune, lambda of: cache.truncate(of, 1))
    for act in (lambda change=change: change(node) for change in changes):
        with pytest.raises(attn.PlanError, match=r"not written in layers \[0\]"):
            act()
    with pytest.raises(attn.PlanError, match=r"written before in layers \[1\]"):
        change.write(1, tokens, tokens)
    change.write(0, tokens, tokens)
    cache.append(node).skip()


@pytest.mark.parametrize(
    "argument,value,message",
    [
        (
            "k",
            numpy.zeros((3, KV_HEADS, DIM), numpy.float32),
            r"k: expected float16 \[3, 2, 64\], got float32",
        ),
        (
            "v",
            numpy.zeros((2, KV_HEADS, DIM), numpy.float16),
            r"v: expected float16 \[3, 2, 64\], got float16 \[2",
        ),
        ("k", numpy.zeros((KV_HEADS, 3, DIM), numpy.float16).transpose(1, 0, 2), "k: expected a contiguous"),
        ("v", None, "v: expected a tensor"),
        ("layer", 2, "layer: expected a number from 0 to 1, got 2; nearest legal: 1"),
        ("layer", -1, "layer: expected a number from 0 to 1, got -1; nearest legal: 0"),
        ("layer", "x", "layer: expected"),
    ],
)
def test_wrong_rows_are_refused_before_anything_moves(argument, value, message):
    cache = make()
    change = cache.append(cache.add(), 3)
    tokens = numpy.ones((3, KV_HEADS, DIM), numpy.float16)
    before = raw(cache._runs[0][0].k), raw(cache._runs[0][0].v)
    with pytest.raises(attn.Error, match=message):
        change.write(**(dict(layer=0, k=tokens, v=tokens) | {argument: value}))
    assert (raw(cache._runs[0][0].k), raw(cache._runs[0][0].v)) == before
    change.write(0, tokens, tokens)


def test_pruned_nodes_stay_refused():
    cache = make()
    node = cache.add()
    cache.prune(node)
    again = cache.add()
    assert node != again and not cache.contains(node)
    for act in (
        cache.append,
        cache.branch,
        cache.fork,
        cache.evict,
        cache.prune,
        cache.tokens,
        cache.children,
    ):
        with pytest.raises(attn.PlanError, match="node"):
            act(node)
    for act in (cache.append, cache.branch, cache.fork, cache.contains):
        for odd in (None, "a", 1.5, -1, 2**63, 2**200, True):
            if act == cache.contains and odd == 2**63:
                continue
            with pytest.raises(attn.PlanError):
                act(odd)


@pytest.mark.parametrize(
    "changes,message",
    [
        (dict(pages=0), "pages: expected a whole number from 1"),
        (dict(pages=2**31 - 1, layers=10_000), "cache: .* are not to be had"),
        (dict(pages=2**31), "pages: expected a whole number"),
        (dict(layers=0), "layers"),
        (dict(page_size=50), "page_size: expected 1 to 8 or a multiple of 16 .*nearest legal: 48 or 64"),
        (dict(page_size=4096), "page_size: .*nearest legal: 2048"),
        (dict(page_size=True), "page_size"),
        (dict(draft_page=3), "draft"),
        (dict(dtype="int8"), "dtype"),
        (dict(kv_heads=-1), "kv_heads"),
        (dict(head_dim=2.5), "head_dim"),
        (dict(head_dim=70), "key: expected a dim of whole 16 bytes"),
        (dict(pages=None), "pages: give either"),
        (dict(device="tpu"), "device"),
        (dict(pages=None, classes=["a"]), "classes"),
        (
            dict(pages=None, classes=[CacheClass(name="a", pages=1, heads=[1])]),
            "heads: expected a number, or one",
        ),
    ],
)
def test_caches_that_cannot_be(changes, message):
    with pytest.raises(attn.Error, match=message):
        make(**changes)


def test_sizes_are_any_whole_numbers():
    number = numpy.int64
    plain = make(pages=number(8), layers=number(1), kv_heads=number(2), head_dim=number(64))
    of_class = make(
        pages=None, classes=[CacheClass(name="a", pages=number(8), heads=number(2))], layers=1, kv_heads=2
    )
    for cache, classes in ((plain, None), (of_class, [0, 0])):
        k = numpy.ones((3, 2, 64), numpy.float16)
        cache.append(cache.add(), 3).write(0, k, k, classes=classes)
        with pytest.raises(
            attn.TensorError, match="head_class: expected None or a number from 0 to 0, got 7"
        ):
            cache.layer(0).keys(7)
    with pytest.raises(attn.PlanError, match="ends: expected a sequence of numbers"):
        plain.batch([plain.add()], ends=[[2, 4]])


def test_kernels_of_other_caches_are_refused(kernel):
    cache, other = make(), make()
    node = cache.add()
    cache.append(node, 3).skip()
    plan = kernel.plan(cache.batch([node]))
    q = numpy.zeros((1, Q_HEADS, DIM), numpy.float16)
    with pytest.raises(attn.TensorError, match="another cache"):
        kernel.run(q, other.layer(0), plan)
    for changes, message in (
        (dict(head_dim=128), "head_dim=64, and the cache head_dim=128"),
        (dict(kv_heads=4), "kv_heads=2, and the cache kv_heads=4"),
        (dict(dtype="bfloat16"), "dtype='float16', and the cache dtype='bfloat16'"),
        (
            dict(page_size=32),
            r"the kernel reads Paged\(page_size=16\), and the cache is Paged\(page_size=32\)",
        ),
        (
            dict(
                pages=None,
                classes=[CacheClass(name="a", pages=9, heads=2), CacheClass(name="b", pages=9, heads=0)],
            ),
            "shows no class",
        ),
    ):
        odd = make(**changes)
        node = odd.add()
        odd.append(node, 1).skip()
        with pytest.raises(attn.PlanError, match=message):
            kernel.plan(odd.batch([node]))


@pytest.mark.parametrize(
    "requests", [[], [None], ["a"], [(1,)], [(1, -1)], [(1, 1, 1)], [(1, 2**40)], [2**70], [1.5]]
)
def test_odd_requests(kernel, requests):
    cache = make()
    cache.append(cache.add(), 3).skip()
    with pytest.raises(attn.PlanError):
        kernel.plan(cache.batch(requests))


def test_rows_that_are_not_there(kernel):
    cache = make()
    node = cache.add()
    cache.append(node, 3).skip()
    for request in ((node, 4), (node, 1, True), (node, 0)):
        with pytest.raises(attn.PlanError):
            kernel.plan(cache.batch([request]))
    batch = cache.batch([node])
    plan = kernel.plan(batch)
    cache.prune(node)
    with pytest.raises(attn.PlanError, match="pruned"):
        batch.update()
    assert plan.rows == 1


def test_memory_of_a_gpu_that_is_not_there():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    pool = {"pages": 4, "requests": 1, "lists": 1, "columns": 2}
    for ask in (lambda: make(device="cuda"), lambda: attn.PagePool(**pool, device="cuda")):
        with pytest.raises(
            attn.DeviceError, match="memory of cuda:0 comes from PyTorch, which has no GPU here"
        ):
            ask()
