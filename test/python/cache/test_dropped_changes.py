# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Changes of a paged cache that are not ended: dropped, refused by a write, interrupted. The cache takes their tokens
back and is then as before the change."""

import gc
import sys

import attn
import numpy
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from attn.cache.state import CacheClass  # noqa: E402
from paged_model import DIM, KV_HEADS, make  # noqa: E402

LAYERS = 2
RING = [
    CacheClass(name="all", pages=64, heads=1),
    CacheClass(name="ring", pages=64, heads=1, recent=24, sink=8, draft=4),
]


def rows(count, layers=None):
    front = () if layers is None else (layers,)
    return numpy.ones((*front, count, KV_HEADS, DIM), numpy.float16)


def plain():
    cache = make()
    nodes = [cache.add(), cache.add()]
    cache.append(nodes, [37, 5]).skip()
    return cache, nodes


def quantized():
    cache = make(key="int8", value="int4")
    nodes = [cache.add(), cache.add()]
    cache.append(nodes, [37, 5]).skip()
    return cache, nodes


def forest():
    cache = make()
    trunk, other = cache.add(), cache.add()
    cache.append([trunk, other], [37, 16]).skip()
    first, second = cache.branch(trunk, 2)
    cache.append([first, second], [3, 16]).skip()
    return cache, [second, cache.fork(other), first]


def ring():
    cache = make(pages=None, classes=RING)
    nodes = [cache.add(), cache.add()]
    for _ in range(5):
        cache.append(nodes, [20, 3]).skip()
    return cache, nodes


MAKERS = [plain, quantized, forest, ring]
CHANGES = {
    "append": lambda cache, nodes: cache.append(nodes, [9 + 8 * i for i in range(len(nodes))]),
    "one": lambda cache, nodes: cache.append(nodes[0]),
    "draft": lambda cache, nodes: cache.speculate(nodes[0], [-1, 0, 0, 1, -1]),
    "branch": lambda cache, nodes: cache.apply(append=nodes[1:], tokens=20, branch=[(nodes[0], 3, 5)])[1],
}


def classes_of(cache):
    return [0, 1] if cache._own_stores else None


def drop(cache, change):
    pass


def refuse(cache, change):
    with pytest.raises(attn.TensorError, match="k: expected float16"):
        change.write(0, rows(change.rows + 1), rows(change.rows), classes=classes_of(cache))


def write_some(cache, change):
    change.write(1, rows(change.rows), rows(change.rows), classes=classes_of(cache))


def interrupt(cache, change):
    """Interrupt the change while the second layer is written."""
    write_some(cache, change)
    run, moved = cache._runs[0][0], type(cache._runs[0][0]).move

    def move(self, *arguments):
        moved(self, *arguments)
        raise KeyboardInterrupt

    type(run).move = move
    try:
        with pytest.raises(KeyboardInterrupt):
            change.write(0, rows(change.rows), rows(change.rows), classes=classes_of(cache))
    finally:
        type(run).move = moved


def roll_back(cache, change):
    cache.rollback()
    with pytest.raises(attn.PlanError, match="new tokens were taken back.*append them again"):
        write_some(cache, change)
    with pytest.raises(attn.PlanError, match="new tokens were taken back"):
        change.skip()


ENDS = [drop, refuse, write_some, interrupt, roll_back]


def books(cache, *, exact=True):
    """Return the whole state of the cache; with `exact`, also page numbers."""
    cache._native.check_invariants()
    found, left = {}, list(cache.sequences)
    while left:
        node = left.pop(0)
        left += cache.children(node)
        slots = [cache.slots(node, index) for index in range(len(cache._classes))]
        found[node] = (
            cache.tokens(node),
            cache.parent(node),
            cache.draft_tokens(node),
            [(each if exact else each >= 0).tolist() for each in slots],
        )
    return found, [cache.free_pages(each.name) for each in cache._classes]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
def test_the_cache_is_as_if_it_had_not_been_asked(maker, change, end):
    """The cache is as before the change, and its next changes are those of a cache without it."""
    cache, nodes = maker()
    twin, others = maker()
    assert nodes == others
    end(cache, CHANGES[change](cache, nodes))
    exact = maker is not ring
    if exact:
        assert books(cache) == books(twin)
    else:  # pages that streaming classes free at a change stay free
        assert {node: each[:3] for node, each in books(cache)[0].items()} == {
            node: each[:3] for node, each in books(twin)[0].items()
        }
    for each, of in ((cache, nodes), (twin, others)):
        again = CHANGES["append"](each, of)
        for layer in range(LAYERS):
            again.write(layer, rows(again.rows), rows(again.rows), classes=classes_of(each))
    found, wanted = (books(each, exact=exact) for each in (cache, twin))
    assert found[0] == wanted[0]
    if exact:  # a ring may keep pages that it took for the draft
        assert found == wanted
    cache.prune(*cache.sequences)
    assert cache.free_pages() == 64


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
def test_what_is_held_may_be_written_again(maker):
    """A refused write changes nothing, and the change can be written again."""
    cache, nodes = maker()
    before = cache.tokens(nodes[0])
    change = cache.append(nodes[0], 3)
    for wrong in (rows(4), rows(3).astype(numpy.float32), None):
        with pytest.raises(attn.TensorError):
            change.write(0, wrong, wrong, classes=classes_of(cache))
    for layer in range(LAYERS):
        change.write(layer, rows(3), rows(3), classes=classes_of(cache))
    assert cache.tokens(nodes[0]) == before + 3
    assert repr(change) == "<attn.CacheChange of 3 new tokens: written>"


def test_a_change_that_somebody_holds_is_not_taken_back():
    cache, nodes = plain()
    change = cache.append(nodes[0], 3)
    gc.collect()
    assert cache.tokens(nodes[0]) == 40
    assert repr(change) == "<attn.CacheChange of 3 new tokens: not written>"
    change.write(1, rows(3), rows(3))
    assert repr(change) == "<attn.CacheChange of 3 new tokens: not written in layers [0]>"
    with pytest.raises(
        attn.PlanError, match=r"not written in layers \[0\]; write them, .*cache\.rollback\(\)"
    ):
        cache.prune(nodes[1])
    cache.rollback()
    assert repr(change) == "<attn.CacheChange of 3 new tokens: taken back>"
    cache.rollback()  # nothing to take back
    cache.prune(nodes[1])


def test_what_the_change_pruned_stays_pruned():
    cache, nodes = plain()
    twin, others = plain()
    cache.apply(prune=[nodes[1]], append=nodes[0], tokens=30)
    twin.prune(others[1])
    assert books(cache) == books(twin)


def test_the_prompt_of_an_interpreter_keeps_nothing():
    """The last error of an interactive interpreter keeps frames alive, and with them the change, which is taken back
    all the same."""
    cache, nodes = plain()
    try:
        cache.append(nodes, [300, 70]).write(0, rows(300), rows(70))
    except attn.TensorError:
        kept = sys.exc_info()
    assert kept and cache.tokens(nodes[0]) == 37
    cache.append(nodes, [300, 70]).skip()
    assert [cache.tokens(node) for node in nodes] == [337, 75]


def interrupted(act, line, functions=()):
    """Raise KeyboardInterrupt at the n-th line that runs in the cache, or in these functions of it, during `act`.
    Return whether it was raised."""
    left = [line]

    def trace(frame, event, argument):
        if "attn/cache" not in frame.f_code.co_filename:
            return None
        if event == "line" and (not functions or frame.f_code.co_name in functions):
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
        return trace

    old = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(old)
    return False


@pytest.mark.parametrize("change", CHANGES)
def test_an_interrupt_at_any_line(change):
    """An interrupted change has happened wholly or not at all."""
    done, line = set(), 0
    while True:
        line += 1
        cache, nodes = forest()
        before = books(cache)

        def act(cache=cache, nodes=nodes):
            made = CHANGES[change](cache, nodes)
            for layer in range(LAYERS):
                made.write(layer, rows(made.rows), rows(made.rows))

        came = interrupted(act, line)
        found = books(cache) != before
        done.add(found)
        if not came:
            break
        if not found:
            act()
        cache.prune(*cache.sequences)
        assert cache.free_pages() == 64
    assert found and done == {False, True} and line > 30


def test_copies_within_the_cache_are_ended():
    """A fork, truncation or commit whose copies an interrupt stopped is completed: no copy is left half done."""
    for act in (
        lambda cache, node: cache.fork(node),
        lambda cache, node: cache.truncate(cache.fork(node), 7),
        lambda cache, node: (
            cache.speculate(node, [-1, 0, 1]).write_all(rows(3, 2), rows(3, 2)),
            cache.commit(node, 2),
        ),
    ):
        line = 0
        while True:
            line += 1
            cache = make()
            node = cache.add()
            numbers = numpy.arange(21 * KV_HEADS * DIM, dtype=numpy.float16).reshape(21, KV_HEADS, DIM) % 512
            change = cache.append(node, 21)
            for layer in range(LAYERS):
                change.write(layer, numbers, -numbers)
            came = interrupted(lambda: act(cache, node), line, ("_copy", "move"))  # noqa: B023
            cache.batch([node])
            if cache.draft_tokens(node):
                cache.commit(node, -1)
            for leaf in (each for each in cache.sequences or [] for each in (cache.children(each) or [each])):
                path = [] if cache.parent(leaf) is None else [cache.slots(cache.parent(leaf))]
                slots = numpy.concatenate([*path, cache.slots(leaf)])[:21]
                kept = numpy.asarray(cache.layer(1).k).reshape(-1, KV_HEADS, DIM)[slots]
                assert numpy.array_equal(kept, numbers[: len(kept)])
            if not came:
                break
        assert line > 5
