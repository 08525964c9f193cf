# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prefixes that neighbours in a block table share: the tree that tables make, and steps that read it once."""

import random

import numpy
import pytest

torch = pytest.importorskip("torch")

import attn  # noqa: E402
from attn.serving import Layer, Plans, split_lines, write_tokens  # noqa: E402
from attn.serving.prefixes import shared_tables  # noqa: E402

PAGE, Q, KV, DIM = 16, 4, 2, 16


def tables_of(prompts, rows, page_size=4):
    """Tables of sequences of tokens: equal pages behind equal pages are the same page."""
    numbers, table = (
        {},
        numpy.zeros((len(prompts), max(-(-len(p) // page_size) for p in prompts) + 1), numpy.int32),
    )
    for row, prompt in enumerate(prompts):
        kept = (len(prompt) - rows[row]) // page_size
        for page in range(-(-len(prompt) // page_size)):
            whole = tuple(prompt[: page_size * (page + 1)]) if page < kept else (row, page, "own")
            table[row, page] = numbers.setdefault(whole, len(numbers) + 1)
    starts = numpy.concatenate([[0], numpy.cumsum(rows)]).astype(numpy.int32)
    return starts, numpy.array([len(p) for p in prompts], numpy.int32), table


def seen_pages(tables, starts, lengths, table, page_size=4):
    """Return the pages that each sequence's rows see in order, by the tree and by the table itself."""
    found, wanted = [], []
    for i in range(len(lengths)):
        if starts[i] == starts[i + 1]:
            continue
        wanted.append(table[i, : -(-lengths[i] // page_size)].tolist())
        here = numpy.flatnonzero(
            (tables["kv.rows"][:, 0] <= starts[i]) & (tables["kv.rows"][:, 1] >= starts[i + 1])
        )
        pages, position = [], 0
        for node in sorted(here, key=lambda node: tables["kv.pos0"][node]):
            tokens = int(tables["kv.lengths"][node])
            assert tables["kv.pos0"][node] == position and (
                tokens % page_size == 0 or position + tokens == lengths[i]
            )
            pages += tables["kv.block_table"][node, : -(-tokens // page_size)].tolist()
            position += tokens
        assert position == lengths[i]
        found.append(pages)
    return found, wanted


def test_the_tree_of_a_table():
    prompts = [[*range(16), 1], [*range(16), 2, 3], [*range(8), 9, 9, 9, 9, 9], [7] * 9]
    rows = [1, 2, 1, 1]
    given = tables_of(prompts, rows)
    found = shared_tables(*given, 4, 1)
    nodes = {
        tuple(map(int, each))
        for each in zip(found["kv.pos0"], found["kv.lengths"], *found["kv.rows"].T, strict=True)
    }
    assert nodes == {(0, 8, 0, 4), (8, 8, 0, 3), (16, 1, 0, 1), (16, 2, 1, 3), (8, 5, 3, 4), (0, 9, 4, 5)}
    assert found["q_pos"].tolist() == [16, 16, 17, 12, 8]
    four = shared_tables(*given, 4, 4)
    assert sorted(four["kv.lengths"].tolist()) == [1, 2, 9, 13, 16], "two neighbours share four pages"
    assert shared_tables(*given, 4, 5) is None


def test_pages_that_rows_may_write_are_not_shared():
    """A table may name the same page for two sequences whose rows begin in it: only what is in front of both counts."""
    table = numpy.array([[1, 2, 3], [1, 2, 3]], numpy.int32)
    lengths, starts = numpy.array([12, 12], numpy.int32), numpy.array([0, 5, 6], numpy.int32)
    found = shared_tables(starts, lengths, table, 4, 1)
    assert sorted(found["kv.lengths"].tolist()) == [4, 8, 8]
    assert shared_tables(starts, numpy.array([3, 3], numpy.int32), table, 4, 1) is None


@pytest.mark.parametrize("least", [1, 2, 3])
def test_random_tables(least):
    """Rows see the pages of their sequence, each once and in order, whatever is shared."""
    chance, shared = random.Random(least), 0
    for _ in range(300):
        count = chance.randrange(1, 9)
        prompts = [[chance.randrange(2) for _ in range(chance.randrange(1, 40))] for _ in range(count)]
        for i in range(1, count):
            if chance.random() < 0.7:
                other = prompts[i - 1]
                prompts[i] = other[: chance.randrange(len(other) + 1)] + prompts[i]
        rows = [chance.choice([1, 1, len(p), chance.randrange(len(p) + 1)]) for p in prompts]
        given = tables_of(prompts, rows)
        found = shared_tables(*given, 4, least)
        if found is not None:
            shared += 1
            pages, wanted = seen_pages(found, *given)
            assert pages == wanted
    assert shared > 50


@pytest.mark.parametrize(
    "options",
    [{}, {"window": 40}, {"sinks": True, "softcap": 2.0}, {"alibi": True}],
    ids=lambda each: " ".join(each) or "causal",
)
def test_shared_prefixes_are_read_once(options):
    """Results are those of tables without sharing, and fewer bytes are read. Steps with a prompt, then decoding."""
    torch.manual_seed(1)
    layer = Layer(q_heads=Q, kv_heads=KV, head_dim=DIM, dtype="float16", page_size=PAGE, **options)
    kernel, alone, together = layer.compile("cpu"), Plans(), Plans(shared_pages=2)
    tensors = {}
    if layer.sinks:
        tensors["sink_logits"] = torch.tensor([0.5, -1.0, 2.0, 0.0])
    if layer.alibi:
        tensors["slopes"] = torch.tensor([0.5, 0.25, 0.125, 0.0625])
    lines = torch.zeros(24, PAGE, KV, 2 * DIM, dtype=torch.float16).transpose(1, 2)
    pages = split_lines(lines, DIM)
    k, v = (torch.randn(24 * PAGE, KV, DIM, dtype=torch.float16) for _ in "kv")
    write_tokens(*pages, k, v, torch.arange(24 * PAGE))
    table = torch.zeros(5, 8, dtype=torch.int32)
    for row, own in enumerate(
        ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 7, 8], [1, 2, 3, 9, 10], [1, 2, 3, 9, 11], [12, 13])
    ):
        table[row, : len(own)] = torch.tensor(own)
    for rows, lengths in (
        ([9, 3, 1, 1, 5], [90, 70, 65, 66, 20]),
        ([1] * 5, [91, 71, 66, 67, 21]),
        ([1] * 5, [92, 72, 67, 68, 22]),
    ):
        starts = numpy.concatenate([[0], numpy.cumsum(rows)])
        q, found = torch.randn(sum(rows), Q, DIM, dtype=torch.float16), []
        for plans in (alone, together):
            step = plans.step(starts, lengths, table)
            found.append(step.run(kernel, q, pages, **tensors))
        torch.testing.assert_close(*found, atol=2e-3, rtol=2e-3)
    fewer, more = (plans.kept[kernel, True].stats for plans in (together, alone))
    if not layer.window:
        assert fewer["kv_bytes"] < 0.7 * more["kv_bytes"]
    assert fewer["extended"] > 0, "the tree grew, and was not planned anew"


WRONG = {
    "longer than its pages": ([0, 1, 2], [60, 60], r"kv.lengths.*between 0 and 48.*got 60"),
    "one is longer": ([0, 1, 2], [40, 60], r"kv.lengths.*between 0 and 48.*got 60"),
    "more rows than tokens": ([0, 41, 42], [40, 40], r"at most the 40 tokens of sequence 0 as rows.*got 41"),
    "a first row that is not 0": ([3, 4, 5], [40, 40], r"q_start.*expected 0, got 3"),
    "rows that fall": ([0, 5, 2], [40, 40], r"q_start.*at least 5.*got 2"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_tables_are_refused_where_pages_are_shared(case):
    starts, lengths, said = WRONG[case]
    layer = Layer(q_heads=Q, kv_heads=KV, head_dim=DIM, dtype="float16", page_size=PAGE)
    pages = split_lines(torch.zeros(6, KV, PAGE, 2 * DIM, dtype=torch.float16), DIM)
    step = Plans(shared_pages=1).step(starts, lengths, [[0, 1, 2], [0, 1, 5]])
    with pytest.raises(attn.PlanError, match=said):
        step.run(layer.compile("cpu"), torch.zeros(step.rows, Q, DIM, dtype=torch.float16), pages)


@pytest.mark.parametrize("format", [None, "int8"])
def test_rows_with_a_contract_share_nothing(format):
    """A prefix that is read once is a part of its own, which would move bits."""
    torch.manual_seed(1)
    sizes = dict(q_heads=Q, kv_heads=KV, head_dim=64, dtype="float16", page_size=PAGE, format=format)
    layer = Layer(**sizes, numerics="row")
    cache = torch.zeros(9, KV, PAGE, layer.token_bytes, dtype=torch.uint8)
    pages = layer.pages(cache if format else cache.view(torch.float16))
    k, v = (torch.randn(9 * PAGE, KV, 64, dtype=torch.float16) for _ in "kv")
    pages.write(k, v, torch.arange(9 * PAGE))
    table, q = [[1, 2, 3, 4, 5], [1, 2, 3, 6, 7]], torch.randn(2, Q, 64, dtype=torch.float16)
    kernel, others = layer.compile("cpu"), Layer(**sizes).compile("cpu")
    plans = Plans(shared_pages=2)
    step, alone = plans.step([0, 1, 2], [70, 66], table), Plans().step([0, 1, 2], [70, 66], table)
    assert torch.equal(step.run(kernel, q, pages), alone.run(kernel, q, pages))
    found, wanted = step.run(others, q, pages), alone.run(others, q, pages)
    torch.testing.assert_close(found, wanted, atol=2e-3, rtol=2e-3)
    read = [plans.kept[each, True].stats["kv_bytes"] for each in (kernel, others)]
    assert read[1] < 0.8 * read[0], "a layer without a contract still reads shared pages once"


def test_a_number_of_pages():
    with pytest.raises(attn.PlanError, match="shared_pages: expected a whole number from 0"):
        Plans(shared_pages=-1)
