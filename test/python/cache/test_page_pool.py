# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pages that the device manages, against plain lists; with the detectors, in captured steps, under attention."""

import os

import attn
import numpy
import page_model
import pytest
from attn import _attn

# (requests, lists of one, columns, pages, page_tokens): one warp, several blocks with an end in the middle of one
SMALL, LARGE = (3, 5, 7, 24, (4, 8)), (9, 70, 12, 1100, (16, 32))
ODD = (5, 9, 9, 90, (7, 48))
OPERATIONS = 1_000_000 if os.environ.get("ATTN_FULL") else 12_000


def pool_of(shape, **options):
    requests, lists, columns, pages, page_tokens = shape
    sizes = dict(requests=requests, lists=lists, columns=columns, pages=pages, page_tokens=page_tokens)
    model = page_model.PageModel(pages, requests * lists, columns, page_tokens)
    return attn.PagePool(**sizes, device="host", **options), model


def checked(seed):
    return _attn.Device.host(checked=True, seed=seed, shuffle=bool(seed))


def step_of(draw, tokens, most, page_tokens):
    """Return token counts after requests come, grow, downgrade, prune, are forked or cancelled; now and then lists that
    fit no row."""
    after, kind = tokens.copy(), draw.random()
    requests = draw.permutation(len(tokens))[: 1 + draw.integers(len(tokens))]
    if kind < 0.45:
        after[requests] += draw.integers(0, 6, after[requests].shape, dtype=numpy.int32)
    elif kind < 0.6:  # from the left end to the right
        moved = numpy.minimum(after[requests, :, 0], draw.integers(0, 9, dtype=numpy.int32))
        after[requests, :, 0] -= moved
        after[requests, :, 1] += moved
    elif kind < 0.7:
        after[requests] = numpy.maximum(after[requests] - draw.integers(0, 40, dtype=numpy.int32), 0)
    elif kind < 0.8:
        after[requests[0]] = 0
        after[requests[-1]] = tokens[requests[len(requests) // 2]]
    elif kind < 0.95:
        shape = after[requests[:2]].shape
        after[requests[:2]] = draw.integers(0, most * max(page_tokens) // 2, shape, dtype=numpy.int32)
    else:
        after[requests[0], 0] = (-1, 5) if draw.random() < 0.5 else (2**31 - 1, 2**31 - 1)
    return after


@pytest.mark.parametrize("shape,share", [(SMALL, 0.1), (ODD, 0.1), (LARGE, 0.8)])
def test_random_operations(shape, share):
    (pool, model), draw = pool_of(shape), numpy.random.default_rng(0)
    requests, lists, columns, pages, page_tokens = shape
    tokens = numpy.zeros((requests, lists, 2), numpy.int32)
    operations = steps = failures = unfit = taken = 0
    while operations < OPERATIONS * share:
        after = step_of(draw, tokens, columns, page_tokens)
        numpy.asarray(pool.tokens)[:] = after
        pool.manage()
        expected, changed = model.manage(after.reshape(-1, 2))
        status = pool.status()
        assert (status.done, status.asked, status.there, status.unfit) == expected
        if status.done:
            tokens, taken = after, taken + status.asked
        failures, unfit = failures + (not status.done and not status.unfit), unfit + (status.unfit > 0)
        operations, steps = operations + changed, steps + 1
        page_model.compare(pool, model)
    # The ring of free pages wrapped around.
    assert failures > 3 and unfit > 3 and taken > 2 * pages, (failures, unfit, taken)


@pytest.mark.parametrize("shape,steps,seed", [(SMALL, 25, 3), (ODD, 10, 0), (LARGE, 2, 0)])
def test_the_detectors_find_nothing(shape, steps, seed):
    device, draw = checked(seed), numpy.random.default_rng(seed)
    pool, model = pool_of(shape)
    requests, lists, columns, pages, page_tokens = shape
    pool = attn.PagePool(
        requests=requests,
        lists=lists,
        columns=columns,
        pages=pages,
        page_tokens=page_tokens,
        device=device,
        checked=True,
    )
    tokens = numpy.zeros((requests, lists, 2), numpy.int32)
    for _ in range(steps):
        after = step_of(draw, tokens, columns, page_tokens)
        numpy.asarray(pool.tokens)[:] = after
        pool.manage()
        (done, *_), _ = model.manage(after.reshape(-1, 2))
        tokens = after if done else tokens
    page_model.compare(pool, model)
    report = device.report()
    assert report["clean"], report["text"]


def test_a_captured_step_launches_and_does_nothing_else():
    device, (pool, model) = checked(0), pool_of(SMALL)
    pool = attn.PagePool(
        requests=3, lists=5, columns=7, pages=24, page_tokens=(4, 8), device=device, checked=True
    )
    seen = set()
    for count in (1, 9, 0, 300, 2):  # one request fails
        numpy.asarray(pool.tokens)[:] = count
        device.work(reset=True)
        pool.manage()
        work = device.work()
        assert (work["launches"], work["allocations"], work["copies"]) == (3, 0, 0)
        seen.add((work["shapes"], work["arguments"]))
        model.manage(numpy.asarray(pool.tokens).reshape(-1, 2))
    assert len(seen) == 1
    page_model.compare(pool, model)


def test_a_cancelled_request_gives_back_in_the_step_in_which_another_takes():
    pool = attn.PagePool(requests=2, lists=2, columns=4, pages=8, page_tokens=(4, 4), device="host")
    tokens = numpy.asarray(pool.tokens)
    tokens[0] = 8, 8  # all pages
    pool.manage()
    assert pool.free_pages() == 0
    tokens[1] = 4, 4
    before = numpy.asarray(pool.table).copy()
    pool.manage()
    assert pool.status() == attn.PageStatus(done=False, asked=4, there=0, unfit=0)
    with pytest.raises(
        attn.OutOfPages, match=r"pages: expected 4 free ones, got 0 of 8; nothing was changed"
    ):
        pool.require_done()
    numpy.testing.assert_array_equal(pool.table, before)
    tokens[0] = 0
    pool.manage()
    pool.require_done()
    assert pool.status() == attn.PageStatus(done=True, asked=4, there=8, unfit=0)
    assert (numpy.asarray(pool.table)[0] == -1).all() and pool.free_pages() == 4


def test_a_fork_has_pages_of_its_own():
    pool = attn.PagePool(requests=3, lists=2, columns=6, pages=40, page_tokens=(4, 8), device="host")
    memory, tokens, table = numpy.arange(40.0), numpy.asarray(pool.tokens), numpy.asarray(pool.table)
    tokens[0], tokens[2] = (9, 17), (4, 0)
    pool.manage()
    kept = table[0].copy()
    tokens[1] = tokens[0]
    pool.manage()
    pool.require_done()
    held = table[0] >= 0
    numpy.testing.assert_array_equal(table[0], kept)
    numpy.testing.assert_array_equal(table[1] >= 0, held)
    memory[table[1][held]] = memory[table[0][held]]
    memory[table[0][held]] = -1  # the first list's pages are reused
    assert memory[table[1][held]].tolist() == kept[held].tolist()


@pytest.mark.parametrize("page", [16, 48])
def test_attention_reads_both_ends_of_a_row(page):
    rows, d = 6, 64
    pool = attn.PagePool(requests=3, lists=2, columns=9, pages=60, page_tokens=(page, page), device="host")
    draw = numpy.random.default_rng(1)
    tokens = numpy.asarray(pool.tokens)
    tokens[:] = draw.integers(1, 70, tokens.shape)
    pool.manage()
    tokens[1] = (20, 40)  # freed pages go to other lists
    tokens[2, 0] = (70, 64)
    pool.manage()
    pool.require_done()
    k, v = draw.standard_normal((2, 60, page, 1, d)).astype(numpy.float16)
    q = draw.standard_normal((rows, 2, d)).astype(numpy.float16)
    stores = [attn.Paged(name=name, page_size=page, dtype="float16") for name in ("left", "right")]
    spec = attn.Spec(q_heads=2, kv_heads=1, head_dim=d, dtype="float16", kv=stores, see=attn.all_tokens())
    left = numpy.asarray(pool.table).reshape(rows, -1).copy()
    tables = {"left": left, "right": numpy.ascontiguousarray(left[:, ::-1])}
    batch = {"q": q, "q_start": numpy.arange(rows + 1, dtype=numpy.int32)}
    for end, name in enumerate(tables):
        batch |= {f"{name}.k_pages": k, f"{name}.v_pages": v, f"{name}.pos0": numpy.zeros(rows, numpy.int32)}
        batch[f"{name}.lengths"] = tokens.reshape(rows, 2)[:, end].copy()
        batch[f"{name}.block_table"] = tables[name]
    kernel = attn.compile(spec, device="host")
    out = numpy.asarray(kernel.run(q, (k, v), (k, v), kernel.plan(batch)))
    for row in range(rows):
        slots = [
            (tables[name][row, i // page], i % page)
            for name in tables
            for i in range(batch[f"{name}.lengths"][row])
        ]
        keys, values = (numpy.stack([x[p, i, 0] for p, i in slots]).astype(numpy.float64) for x in (k, v))
        scores = q[row].astype(numpy.float64) @ keys.T / d**0.5
        weights = numpy.exp(scores - scores.max(1, keepdims=True))
        expected = weights @ values / weights.sum(1, keepdims=True)
        assert numpy.abs(out[row] - expected).max() < 2e-3


def kept_of(pool, memory, end):
    """Return the tokens of each list at one end, in the order of storage."""
    page, step = pool.page_tokens[end], 1 - 2 * end
    table, tokens = (numpy.asarray(x).reshape(-1, x.shape[-1]) for x in (pool.table, pool.tokens))
    return [
        [memory[row[::step][i // page] * page + i % page] for i in range(count)]
        for row, count in zip(table, tokens[:, end].tolist(), strict=True)
    ]


@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize(
    "end,page,moves,most",
    [("left", 4, 40, 60), ("right", 8, 5, 60), ("right", 8, 300, 500), ("right", 48, 300, 500)],
)
def test_compaction_moves_as_few_tokens_as_can_be(end, page, moves, most, seed):
    device, draw, which = checked(seed), numpy.random.default_rng(seed), int(end == "right")
    pages = (4, page) if which else (page, 8)
    sizes = dict(requests=3, lists=7, columns=most // 2, pages=9 * most, page_tokens=pages)
    pool = attn.PagePool(**sizes, device=device, checked=True)
    tokens, memory = numpy.asarray(pool.tokens), numpy.arange(9 * most * page)
    tokens[:] = draw.integers(0, most, tokens.shape)
    tokens[0, :3] = [[0, 0], [1, 1], [2, 2]]
    for _ in range(3):
        pool.manage()
        pool.require_done()
        before = kept_of(pool, memory, which)
        keep = draw.random((3, 7, most // 16 * 16 + 32)) < draw.random((3, 7, 1)) * 1.2
        other = tokens[:, :, 1 - which].copy()
        found = pool.compact(keep, end=end, moves=moves)
        source, target = (numpy.asarray(x).reshape(21, moves) for x in (found.source, found.target))
        skipped = 0
        for old, flags, froms, tos in zip(before, keep.reshape(21, -1), source, target, strict=True):
            stay = [value for value, flag in zip(old, flags, strict=False) if flag]
            moved = sum(flags[len(stay) : len(old)])
            skipped += moved > moves
            filled = moved if moved <= moves else 0
            assert (froms >= 0).tolist() == (tos >= 0).tolist() == [j < filled for j in range(moves)]
            if moved > moves:
                stay = old
            old[:] = stay
        assert found.skipped() == skipped
        listed = source >= 0
        slots = numpy.concatenate([source[listed], target[listed]])
        assert len(numpy.unique(slots)) == len(slots)
        memory[target[listed]] = memory[source[listed]]
        after = kept_of(pool, memory, which)
        assert [sorted(values) for values in after] == [sorted(values) for values in before]
        numpy.testing.assert_array_equal(tokens[:, :, 1 - which], other)
        pool.manage()  # frees the pages left over
        assert kept_of(pool, memory, which) == after
        counts = numpy.asarray(pool.counts)[:, :, which]
        numpy.testing.assert_array_equal(counts, -(-tokens[:, :, which] // page))
        tokens += draw.integers(0, 9, tokens.shape, dtype=numpy.int32)
        memory = numpy.arange(9 * most * page)
    assert device.report()["clean"], device.report()["text"]


def test_lists_that_compaction_leaves_as_they_are():
    pool = attn.PagePool(pages=20, requests=1, lists=4, columns=5, page_tokens=(4, 4), device="host")
    tokens = numpy.asarray(pool.tokens)
    tokens[0, :, 0] = 8, 8, 20, 8
    pool.manage()
    keep = numpy.zeros((1, 4, 16), numpy.int8)
    keep[0, :, 6:8] = 1  # two of eight tokens move
    tokens[0, :, 0] = 8, 9, 20, -1  # pages of eight but for the third, flags of sixteen
    found = pool.compact(keep, moves=2)
    assert found.skipped() == 3 and tokens[0, :, 0].tolist() == [2, 9, 20, -1]
    page = pool.table[0, 0].tolist()
    assert found.source[0].tolist() == [[page[1] * 4 + 2, page[1] * 4 + 3]] + [[-1, -1]] * 3
    assert found.target[0].tolist() == [[page[0] * 4, page[0] * 4 + 1]] + [[-1, -1]] * 3
    for flags, moves, end, message in (
        (keep, 0, "left", "moves: expected a whole number from 1 to 2147483647, got 0"),
        (keep, 1, "middle", "end: expected 'left' or 'right', got 'middle'"),
        (keep[0], 1, "left", "keep: expected int8 or bool [1, 4, flags], got one of shape [4, 16]"),
        (keep.astype(numpy.int32), 1, "left", "keep: expected int8 [1, 4, 16], got int32 [1, 4, 16]"),
        (keep[:, :, :9], 1, "left", "expected a multiple of 16 flags, got 9; nearest legal: 16"),
        (keep[:, :3], 1, "left", "keep: expected int8 [1, 4, 16], got int8 [1, 3, 16]"),
    ):
        with pytest.raises(attn.Error) as error:
            pool.compact(flags, moves=moves, end=end)
        assert message in str(error.value)


@pytest.mark.parametrize(
    "change,message",
    [
        (dict(pages=0), "pages: expected a whole number from 1 to 2147483647, got 0; nearest legal: 1"),
        (
            dict(pages=5),
            "pages: expected at least 6, a page for each list of one request, got 5; nearest legal: 6",
        ),
        (dict(pages=2**30), "pages: expected at most 536870912, got 1073741824; nearest legal: 536870912"),
        (dict(columns=2**29), "columns: expected at most 178956970: 12 rows of a table of 2^31 entries"),
        (
            dict(page_tokens=(16, 24)),
            "page_tokens: expected 1 to 8 or a multiple of 16 up to 2048, got 24; nearest legal: 16 or 32",
        ),
        (
            dict(page_tokens=(16, 4096)),
            "page_tokens: expected 1 to 8 or a multiple of 16 up to 2048, got 4096; nearest legal: 2048",
        ),
        (dict(page_tokens=16), "page_tokens: expected a sequence"),
        (dict(page_tokens=(16,)), "page_tokens: expected two numbers, of the left and the right end"),
        (dict(requests=2.0), "requests: expected a whole number"),
    ],
)
def test_sizes_that_are_refused(change, message):
    with pytest.raises(attn.PlanError) as error:
        attn.PagePool(**dict(pages=100, requests=2, lists=6, columns=8, device="host") | change)
    assert message in str(error.value)


def test_tokens_that_are_refused():
    pool = attn.PagePool(pages=100, requests=2, lists=3, columns=4, device="host")
    with pytest.raises(attn.TensorError, match=r"tokens: expected int32 \[2, 3, 2\], got int64 \[2, 3, 2\]"):
        pool.manage(numpy.zeros((2, 3, 2), numpy.int64))
    with pytest.raises(attn.TensorError, match=r"tokens: expected int32 \[2, 3, 2\], got int32 \[2, 2\]"):
        pool.manage(numpy.zeros((2, 2), numpy.int32))
    given = numpy.full((2, 3, 2), 20, numpy.int32)
    given.flags.writeable = False  # input only
    pool.manage(given)
    pool.require_done()
    given = numpy.full((2, 3, 2), 40, numpy.int32)
    pool.manage(given)
    with pytest.raises(
        attn.PlanError, match=r"lists of 0 to 4 pages, of 16 tokens .* got 6 lists that take more"
    ):
        pool.require_done()
    assert pool.free_pages() == 100 - 24
    pool.reset()
    assert pool.free_pages() == 100 and "100 pages of (16, 16) tokens" in repr(pool)
