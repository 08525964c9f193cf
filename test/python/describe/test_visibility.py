# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Visibilities: visible pairs, combinations, refusals."""

import attn
import numpy
import pytest
from attn.describe.visibility import MAX_SIZE, Visibility
from hypothesis import given
from hypothesis import strategies as st
from visibilities import VISIBILITIES

POSITIONS = st.integers(0, 20)


@given(VISIBILITIES, VISIBILITIES, POSITIONS, POSITIONS)
def test_union_and_intersection_are_what_they_say(a, b, q, k):
    assert (a | b).sees(q, k) == (a.sees(q, k) or b.sees(q, k))
    assert (a & b).sees(q, k) == (a.sees(q, k) and b.sees(q, k))


@given(st.integers(0, 12), POSITIONS, POSITIONS)
def test_leaves(n, q, k):
    assert attn.all_tokens().sees(q, k)
    assert attn.causal().sees(q, k) == (k <= q)
    assert attn.window(n).sees(q, k) == attn.recent(n).sees(q, k) == (0 <= q - k < n)
    assert attn.sink(n).sees(q, k) == (k < n)
    assert attn.window(n, 3).sees(q, k) == (k in range(q - n, q + 4))
    assert attn.chunk(n + 1).sees(q, k) == (k in range(q - q % (n + 1), q - q % (n + 1) + n + 1))


@given(VISIBILITIES)
def test_arrays_see_what_numbers_see(see):
    q, k = numpy.arange(15)[:, None], numpy.arange(17)[None]
    mask = numpy.broadcast_to(see.sees(q, k), (15, 17))
    assert mask.tolist() == [[bool(see.sees(i, j)) for j in range(17)] for i in range(15)]


@given(VISIBILITIES)
def test_repr_is_python_that_makes_it(see):
    names = {
        name: getattr(attn, name) for name in ("all_tokens", "causal", "window", "recent", "sink", "chunk")
    }
    assert eval(repr(see), names) == see


@given(VISIBILITIES)
def test_equal_ones_hash_alike(see):
    again = Visibility(see.kind, see.own, see.parts)
    assert again == see and hash(again) == hash(see) and list(again.sizes()) == list(see.sizes())


@given(VISIBILITIES)
def test_what_is_empty_shows_nothing(see):
    if see.is_empty():
        assert not any(see.sees(q, k) for q in range(25) for k in range(25))
    elif all(size > 0 for size in see.sizes()):
        assert see.sees(0, 0)


def test_text():
    see = attn.causal() & (attn.sink(64) | attn.recent(256)) | attn.window(2)
    assert see.mlir() == "causal and (sink(64) | recent(256)) | window(2)"
    assert (attn.causal() | attn.sink(1) | attn.sink(2)).parts == (attn.causal(), attn.sink(1), attn.sink(2))


@pytest.mark.parametrize("make", [attn.window, attn.recent, attn.sink], ids=lambda make: make.__name__)
@pytest.mark.parametrize("n,nearest", [(-1, "0"), (MAX_SIZE + 1, str(MAX_SIZE)), (2.0, "2")])
def test_sizes_out_of_range(make, n, nearest):
    with pytest.raises(attn.SpecError) as error:
        make(n)
    assert f"expected an integer from 0 to {MAX_SIZE}, got {n!r}; nearest legal: {nearest}" in str(
        error.value
    )


@pytest.mark.parametrize("n", [None, "8", True, [8], 1e400])
def test_sizes_that_are_no_integers(n):
    with pytest.raises(attn.SpecError, match=r"window\(n\): expected an integer"):
        attn.window(n)


def test_numpy_integers_are_integers():
    assert attn.window(numpy.int64(8)) == attn.window(8)


def test_python_words_are_refused():
    with pytest.raises(attn.SpecError, match=r"combine visibilities with & and \|"):
        attn.causal() and attn.sink(4)


@pytest.mark.parametrize("other", [None, 4, "causal", attn.causal])
def test_other_operands_are_refused(other):
    for combine in (lambda: attn.sink(4) | other, lambda: other | attn.sink(4), lambda: other & attn.sink(4)):
        with pytest.raises(attn.SpecError, match="expected a visibility"):
            combine()
    with pytest.raises(attn.SpecError, match=r"Did you mean causal\(\)\?"):
        attn.sink(4) | attn.causal


def test_nesting_is_bounded():
    see = attn.causal()
    with pytest.raises(attn.SpecError, match="at most 32 unions"):
        for n in range(40):
            see = (see | attn.sink(n)) & attn.window(n)
