# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""With numerics="row" a row has the same bits alone and in any batch: random pairs of calls (row_pairs.py). CI takes a
hundred and fifty for each visibility, --full 100,000 in all."""

import os

import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from row_pairs import VISIBLE, Pairs  # noqa: E402

PAIRS = 34_000 if os.environ.get("ATTN_FULL") else 150


def run(pairs, count):
    while pairs.counts["pairs"] < count and len(pairs.differing) < 20:
        pairs.launch()
    return pairs


@pytest.mark.parametrize("see", VISIBLE)
def test_rows_are_the_same_bits(see):
    pairs = run(Pairs(see), PAIRS)
    assert not pairs.differing, pairs.differing[:3]
    assert all(pairs.counts[store] for store in ("dense", "heads first", "packed", "pages", "steps"))


def test_the_quickest_plans_differ():
    """Without the contract bits move: these pairs can tell."""
    assert run(Pairs("causal", numerics=None), 200).differing


def test_another_contract_in_pages_differs(monkeypatch):
    """Tensors follow the contract, and pages are cut elsewhere, in tiles of other kernels."""
    kernel = Pairs.kernel

    def elsewhere(pairs, page, planned):
        asked, pairs.numerics = pairs.numerics, None
        found = kernel(pairs, page, planned)
        pairs.numerics = asked
        return found

    monkeypatch.setattr(Pairs, "kernel", elsewhere)
    pairs = run(Pairs("causal"), 200)
    assert pairs.differing and all(each.startswith(("pages", "steps")) for each in pairs.differing)
