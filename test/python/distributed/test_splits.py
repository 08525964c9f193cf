# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Splits of rows, and the tables of a part of them, against definitions; no processes."""

import attn
import numpy
import pytest
import torch
from attn import distributed
from attn.distributed import sequences
from hypothesis import given, settings
from hypothesis import strategies as st
from visibilities import VISIBILITIES

LENGTHS = st.lists(st.integers(0, 30), min_size=1, max_size=5)


def starts_of(lengths):
    return [sum(lengths[:i]) for i in range(len(lengths) + 1)]


def seen_pairs(whole, see):
    """Return a matrix of whether each row of the whole batch sees each token."""
    found = numpy.zeros((whole.tokens, whole.tokens), bool)
    ends = [*whole.begin[1:], whole.tokens]
    for i, (begin, end) in enumerate(zip(whole.begin, ends, strict=True)):
        rows = numpy.arange(whole.first[i], whole.last[i])
        positions = whole.pos0[i] + numpy.arange(end - begin)
        found[rows[:, None], numpy.arange(begin, end)[None]] = see.sees(
            whole.q_pos[rows][:, None], positions[None]
        )
    return found


@settings(max_examples=150, deadline=None)
@given(VISIBILITIES, st.integers(0, 20), st.integers(0, 25))
def test_visible_tokens_are_counted_as_sees_says(see, begin, length):
    positions = numpy.arange(40)
    keys = numpy.arange(begin, begin + length)
    want = see.sees(positions[:, None], keys[None]).sum(1)
    assert (sequences.count_visible(see, positions, begin, begin + length) == want).all()


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.data())
def test_tables_of_a_part_show_what_its_rows_see(lengths, data):
    """Tables of drawn rows over drawn runs of tokens, read as kernels read them, give the pairs of the whole batch."""
    if data.draw(st.booleans(), label="forest"):
        parents = [data.draw(st.integers(-1, -1 if i == 0 else i - 1)) for i in range(len(lengths))]
        try:
            whole = sequences.sequences_of(attn.Forest(starts_of(lengths), parents))
        except attn.PlanError:  # Not in depth-first order.
            return
    else:
        whole = sequences.sequences_of(starts_of(lengths))
    see = data.draw(VISIBILITIES, label="see")
    marks = sorted(data.draw(st.lists(st.integers(0, whole.tokens), min_size=2, max_size=8), label="marks"))
    runs = list(zip(marks[::2], marks[1::2], strict=False))
    keys = data.draw(st.permutations(runs), label="keys") if data.draw(st.booleans()) else runs
    cut = data.draw(st.sampled_from([0, 3, 8]), label="cut")
    tables = whole.tables(runs, keys, cut)
    rows, tokens = sequences.expanded(runs), sequences.expanded(keys)
    found = numpy.zeros((len(rows), len(tokens)), bool)
    columns = [tables[f"kv.{name}"] for name in ("lengths", "pos0", "rows")]
    for start, length, pos0, (first, last) in zip(tables["kv.start"][:-1], *columns, strict=True):
        seen = see.sees(tables["q_pos"][first:last][:, None], (pos0 + numpy.arange(length))[None])
        found[first:last, start : start + length] = seen
    assert (numpy.diff(tables["kv.start"]) >= tables["kv.lengths"]).all()
    assert (found == seen_pairs(whole, see)[rows][:, tokens]).all()
    assert (whole.visible(see, keys)[rows] == found.sum(1)).all()


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.integers(1, 6), VISIBILITIES, st.sampled_from(["balanced", "zigzag", "contiguous"]))
def test_each_row_has_one_rank(lengths, ranks, see, method):
    block = {"block": 4} if method == "balanced" else {}
    split = distributed.split(starts_of(lengths), ranks, see=see, method=method, **block)
    rows = numpy.concatenate([split.rows(rank) for rank in range(ranks)])
    assert split.ranks == ranks and sorted(rows.tolist()) == list(range(sum(lengths)))
    assert all((numpy.diff(split.rows(rank)) > 0).all() for rank in range(ranks))


def test_a_balanced_split_of_a_causal_sequence_is_the_zigzag():
    for ranks in (2, 4, 8):
        balanced = distributed.split(256 * ranks, ranks, see=attn.causal())
        assert balanced.parts == distributed.split(256 * ranks, ranks, method="zigzag").parts


SKEWED = [0, 40000, 41000, 42500, 42600, 65536]


@pytest.mark.parametrize(
    ("tokens", "see"),
    [
        (65536, attn.causal()),
        (65536, attn.causal() & (attn.sink(64) | attn.recent(1000))),
        (SKEWED, attn.causal()),
        (SKEWED, attn.all_tokens()),
        (SKEWED, attn.window(3000)),
        (attn.Forest([0, 32768, *range(33768, 64769, 1000)], [-1, *[0] * 32]), attn.causal()),
    ],
    ids=["causal", "streaming", "documents", "documents-all", "documents-window", "forest"],
)
@pytest.mark.parametrize("ranks", [2, 8])
def test_balanced_costs_are_equal_for_any_visibility(tokens, see, ranks):
    split = distributed.split(tokens, ranks, see=see)
    costs = split.costs(tokens, see)
    rows = [split.count(rank) for rank in range(ranks)]
    assert max(costs) <= 1.02 * sum(costs) / ranks, (split, costs)
    assert max(rows) - min(rows) <= 0.05 * sum(rows) / ranks + 1500, rows
    whole = sequences.sequences_of(tokens)
    assert sum(costs) == whole.visible(see).sum()


def test_ordered_blocks_begin_with_sequences():
    starts = [0, 1000, 1001, 5000]
    split = distributed.split(starts, 3, see=attn.causal(), ordered=True)
    assert split.block == 384
    for part in split.parts:
        for begin, end in part:
            for edge in (begin, end):
                start = max(each for each in starts if each <= edge)
                assert edge in starts or (edge - start) % 384 == 0


def test_shards_of_a_tensor_are_its_rows():
    split = distributed.split([0, 5, 20], 3, block=2)
    whole = torch.arange(40.0).view(2, 20).requires_grad_()
    parts = [distributed.shard(whole, split, dim=1, rank=rank) for rank in range(3)]
    assert all((part[0] == torch.from_numpy(split.rows(rank))).all() for rank, part in enumerate(parts))
    torch.cat(parts, dim=1).sum().backward()
    assert (whole.grad == 1).all()


def test_ranges_of_other_code_make_a_split():
    split = distributed.split_of_parts(10, [[(0, 2), (8, 10)], [(2, 8)]])
    assert split.rows(0).tolist() == [0, 1, 8, 9] and split.count(1) == 6
    with pytest.raises(
        attn.PlanError, match="parts: expected each of the 10 rows once, got 11 rows, 10 of them"
    ):
        distributed.split_of_parts(10, [[(0, 5)], [(4, 10)]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: distributed.split(8, 0), "ranks: expected a number from 1 on, got 0; nearest legal: 1"),
        (lambda: distributed.split(-1, 2), "tokens: expected a number from 0 to 2147483647, got -1"),
        (lambda: distributed.split([1, 2], 2), "tokens: expected offsets that rise from 0"),
        (lambda: distributed.split(8, 2, method="zig-zag"), "method: expected balanced or zigzag .*'zigzag'"),
        (lambda: distributed.split(8, 2, block=0), "block: expected a number of rows from 1 on, got 0"),
        (lambda: distributed.split(8, 2, block=400, ordered=True), "block: .* multiple of 384 .* legal: 384"),
        (
            lambda: distributed.split(8, 2, method="zigzag", ordered=True),
            "ordered: expected beside method='bal",
        ),
        (lambda: distributed.spread_heads([1, 2, 3], 2), "ranks: expected a divisor of the 3 heads, got 2"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(attn.PlanError, match=message):
        call()


def test_heads_are_spread_so_that_bytes_are_equal():
    long, short = 100.0, 1.0
    heads = distributed.spread_heads([long, long, short, short, long, short, short, long], 2)
    assert [sum(1 for head in own if head in (0, 1, 4, 7)) for own in heads] == [2, 2]
    assert sorted(heads[0] + heads[1]) == list(range(8)) and len(heads[0]) == 4
