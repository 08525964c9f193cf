# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pages of lists that lose tokens in their middle, against plain lists."""

import os
import random

import attn
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from attn.cache.token_pool import TokenPool  # noqa: E402

LISTS, PAGES, PAGE, DIMS = 5, 13, 4, (32, 64)
OPERATIONS = 20000 if os.environ.get("ATTN_FULL") else 1000


def numbers(count, of):
    rows = torch.Generator().manual_seed(of)
    return [torch.randn(count, dim, generator=rows) for dim in DIMS]


def pool_of(**formats):
    store = attn.Paged(name="kv", page_size=PAGE, dtype="float16", **formats)
    return TokenPool("pool", store, PAGES, LISTS, DIMS)


def check(pool, model):
    """Pages are conserved, none is in two lists, and each list holds its tokens, as they were stored."""
    held = [page for table in pool.tables for page in table]
    assert sorted(held + pool.free) == list(range(PAGES))
    for index, tokens in enumerate(model):
        assert sorted(pool.positions[index]) == sorted(tokens)
        assert len(pool.tables[index]) == -(-len(tokens) // PAGE)


@pytest.mark.parametrize("formats", [{}, {"key": "int8", "value": "int4"}, {"key": "fp8_e4m3"}])
def test_random_operations(formats):
    draw, pool, model, known, failed = random.Random(1), pool_of(**formats), [{} for _ in range(LISTS)], 0, 0
    for step in range(OPERATIONS):
        index, kind = draw.randrange(LISTS), draw.random()
        if kind < 0.55:
            count = draw.randrange(1, 7)
            before = [list(table) for table in pool.tables], list(pool.free)
            lines = pool.encode(*numbers(count, step))
            room = sum(PAGE - 1 - (len(tokens) - 1) % PAGE for i, tokens in enumerate(model) if i == index)
            positions = list(range(known, known + count))
            if count > room + PAGE * len(pool.free):
                with pytest.raises(attn.OutOfPages, match="nothing was changed"):
                    pool.put([index] * count, positions, lines)
                assert before == ([list(table) for table in pool.tables], list(pool.free))
                failed += 1
                continue
            pool.put([index] * count, positions, lines)
            known += count
            for i, position in enumerate(positions):
                model[index][position] = {name: line[i] for name, line in lines.items()}
        elif kind < 0.97:
            chosen = [i for i in range(LISTS) if model[i] and draw.random() < 0.7]
            positions = [draw.choice(list(model[i])) for i in chosen]
            taken = pool.take(chosen, positions)
            for n, (i, position) in enumerate(zip(chosen, positions, strict=True)):
                stored = model[i].pop(position)
                assert all(torch.equal(taken[name][n], line) for name, line in stored.items())
                assert not pool.holds(i, position)
        else:
            pool.clear([index])
            model[index] = {}
        check(pool, model)
    assert failed > 10
    for index, tokens in enumerate(model):
        lines = pool.read(pool.slots([index]))
        for n, position in enumerate(pool.positions[index]):
            assert all(torch.equal(lines[name][n], line) for name, line in tokens[position].items())


@pytest.mark.parametrize(
    "formats,tolerance",
    [({}, 1e-3), ({"key": "int8", "value": "int4"}, 0.1), ({"value": "int4", "value_group": 16}, 0.1)],
)
def test_numbers_come_back(formats, tolerance):
    pool = pool_of(**formats)
    keys, values = numbers(9, 0)
    lines = pool.encode(keys, values)
    for letter, given in (("k", keys), ("v", values)):
        assert (pool.decode(lines, letter) - given).norm() <= tolerance * given.norm()
    assert pool.decode({name: line[:0] for name, line in lines.items()}, "k").shape == (0, DIMS[0])
