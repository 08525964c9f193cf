# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pages of lists that lose tokens in their middle, against plain lists."""

import os

import attn
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from attn.cache.list_pages import ListPages  # noqa: E402
from attn.cache.token_lists import HIGH_END, LOW_END  # noqa: E402

LAYERS, LISTS, PAGES, TOKENS, DIMS = 2, 3, 240, 120, (64, 64)
OPERATIONS = 3000 if os.environ.get("ATTN_FULL") else 120
FORMATS = [
    ({}, {}),
    ({"key": "int8", "value": "int4"}, {"key": "int4", "value": "int2"}),
    ({}, {"key": "int8"}),
]


def lists_of(high, low, pages=PAGES):
    stores = [
        attn.Unified(name=name, page_size=page, dtype="float16", **formats).settled(*DIMS)
        for name, page, formats in (("high", 4, high), ("low", 8, low))
    ]
    sizes = dict(pages=pages, layers=LAYERS, lists=LISTS, tokens=TOKENS, dims=DIMS)
    return ListPages(stores, **sizes, dtype="f16", device="host")


def numbers(shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).half()


def stored(lists, layer, end, index):
    """Return the stored bytes of a list's tokens by position."""
    count = int(lists.counts[end, layer, index])
    place = torch.arange(count).expand(LISTS, count)
    positions = lists.positions(layer, end, count)[index].tolist()
    if not count:
        return {}
    lines = lists._read(end, lists.slots(layer, end, place)[index])
    return {position: [line[n] for line in lines] for n, position in enumerate(positions)}


def snapshot(lists, layer):
    return [[stored(lists, layer, end, index) for index in range(LISTS)] for end in (HIGH_END, LOW_END)]


def same(one, other):
    return one.keys() == other.keys() and all(
        torch.equal(a, b) for key in one for a, b in zip(one[key], other[key], strict=True)
    )


def all_same(one, other):
    return all(same(a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True))


@pytest.mark.parametrize("high,low", FORMATS)
def test_random_operations(high, low):
    """Kept tokens keep their bytes, and tokens that are brought back have their old bytes."""
    lists, random = lists_of(high, low), torch.Generator().manual_seed(1)
    known = [torch.zeros(LISTS, dtype=torch.int64) for _ in range(LAYERS)]
    for step in range(OPERATIONS):
        layer = step % LAYERS
        lists.reserve(1)
        before = snapshot(lists, layer)
        keys, values = (numbers((LISTS, 64), 2 * step + i) for i in range(2))
        lists.put(layer, known[layer], keys, values)
        added = snapshot(lists, layer)
        for index in range(LISTS):
            new = int(known[layer][index])
            assert added[0][index].keys() == before[0][index].keys() | {new}
            added[0][index].pop(new)
        assert all_same(added, before)
        chosen = []
        for end in (HIGH_END, LOW_END):
            picks = [list(found) for found in snapshot(lists, layer)[end]]
            draws = torch.rand(LISTS, generator=random).tolist()
            chosen.append(
                torch.tensor(
                    [
                        p[int(d * 1e4) % len(p)] if p and d < 0.5 else -1
                        for p, d in zip(picks, draws, strict=True)
                    ]
                )
            )
        before = snapshot(lists, layer)
        place = lists.find(layer, HIGH_END, chosen[0], TOKENS)
        assert ((place >= 0) == (chosen[0] >= 0)).all()
        lists.demote(layer, place)
        demoted = lists.drop(layer, HIGH_END, place)
        gone = lists.drop(layer, LOW_END, lists.find(layer, LOW_END, chosen[1], TOKENS))
        after = snapshot(lists, layer)
        for index, (down, lost) in enumerate(zip(*(each.tolist() for each in chosen), strict=True)):
            assert after[0][index].keys() == before[0][index].keys() - {down}
            assert after[1][index].keys() == (before[1][index].keys() | {down}) - {lost, -1}
        if step % 3 == 0:
            lists.bring_back(layer, gone)
            lists.bring_back(layer, demoted)
            # The demoted tokens are the last ones at the other end.
            lists.take_back(layer, LOW_END, place >= 0)
            assert all_same(snapshot(lists, layer), before)
        known[layer] += 1
        if int(known[layer].max()) == TOKENS:
            lists.counts[:, layer] = 0
            known[layer].zero_()


def test_prompts():
    """Prompts of ragged lists are stored layer by layer."""
    lists = lists_of(*FORMATS[1])
    levels = torch.randint(0, 3, (LAYERS, LISTS, 30), generator=torch.Generator().manual_seed(3))
    levels[:, 1, 20:] = 0
    keys, values = (numbers((LISTS, 30, 64), i) for i in range(2))
    for layer in range(LAYERS):
        lists.prompt(layer, [levels[layer] == 2, levels[layer] == 1], keys, values)
        for end, level in enumerate((2, 1)):
            for index in range(LISTS):
                found = stored(lists, layer, end, index)
                assert sorted(found) == (levels[layer, index] == level).nonzero()[:, 0].tolist()
                format = ("int8", "int4")[end]
                codes, meta = attn.quantize(keys[index][:, None], format)
                for position, line in found.items():
                    assert torch.equal(line[0].flatten(), codes[position].flatten())
                    assert torch.equal(line[2].flatten(), meta[position].flatten())


def test_pages_run_out():
    lists = lists_of(*FORMATS[1], pages=20)
    levels = torch.ones(LISTS, 25, dtype=torch.bool)
    with pytest.raises(attn.OutOfPages, match="expected 21 free ones, got 20 of 20; nothing was changed"):
        lists.prompt(0, [levels, ~levels], *(numbers((LISTS, 25, 64), i) for i in range(2)))
    assert not lists.counts.any() and lists.pool.free_pages() == 20
    lists.reserve(1)  # one page at each end of each list
    with pytest.raises(attn.OutOfPages, match="expected 18 free ones, got 8 of 20"):
        lists.reserve(9)
    with pytest.raises(attn.PlanError, match="tokens: expected lists of 0 to 34 pages"):
        lists.reserve(200)
