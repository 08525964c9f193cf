# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pictures of visibilities: every cell has the colour of the visibility there."""

import xml.etree.ElementTree as ElementTree

import attn
import numpy
import pictures
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from visibilities import VISIBILITIES

from examples import EXAMPLES, LLAMA


def spec(**given):
    return attn.Spec(**{**LLAMA, "kv": [attn.Paged()], "see": attn.causal(), **given})


def panels(svg):
    """Return the states of each panel's cells: 0 if no pair is visible, 1 some, 2 all."""
    found, size = [], None
    root = ElementTree.fromstring(svg)
    legend = set(root.findall("{*}g[@class='attn-legend']/{*}rect"))
    for rect in root.iter("{http://www.w3.org/2000/svg}rect"):
        if rect in legend:
            continue
        if rect.get("stroke"):
            found.append((rect, []))
        elif found:
            found[-1][1].append(rect)
    for frame, rects in found:
        size = min([float(r.get("height")) for r in rects], default=1.0)
        place = [[float(r.get(a)) for a in ("x", "y", "width", "height")] for r in (frame, *rects)]
        left, top, width, height = place[0]
        states = numpy.zeros((round(height / size), round(width / size)), int)
        for (x, y, w, _), rect in zip(place[1:], rects, strict=True):
            column = round((x - left) / size)
            states[round((y - top) / size), column : column + round(w / size)] = (
                1 if rect.get("fill-opacity") else 2
            )
        yield states


@settings(max_examples=50, deadline=None)
@given(VISIBILITIES, st.integers(1, 40), st.integers(0, 40))
def test_small_ones_show_every_pair(see, q_len, before):
    assume(not see.is_empty())  # no description may have an empty visibility
    kv_len = q_len + before
    (states,) = panels(spec(see=see).svg(q_len=q_len, kv_len=kv_len))
    pictures.check(spec(see=see).svg(q_len=q_len, kv_len=kv_len), numbers=2)
    q, k = numpy.arange(before, kv_len)[:, None], numpy.arange(kv_len)[None]
    seen = numpy.broadcast_to(see.sees(q, k), (q_len, kv_len))
    if seen.any():
        assert (states == 2 * seen).all()
    else:
        assert not states.any()


def test_large_ones_show_tiles():
    (states,) = panels(spec().svg(q_len=960, kv_len=960))
    assert states.shape == (96, 96)
    assert (states == numpy.tri(96, k=-1) * 2 + numpy.eye(96)).all()


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name, tmp_path):
    described = EXAMPLES[name]()
    path = described.draw(tmp_path / "mask.svg", q_len=5, kv_len=20)
    count = sum(
        store.head_class in (None, head_class)
        for head_class in (described.heads.names if described.heads else [None])
        for store in described.operands
    )
    assert len(list(panels(path.read_text()))) == count
    pictures.check(path.read_text(), numbers=1 + count)


@pytest.mark.parametrize("lengths", [(1 << 23, 4), (9000, 4000), (1, 1), (96, 95), (100_000, 100_000)])
def test_operands_stand_side_by_side(lengths):
    """Numbers of one panel do not reach into the next, whatever the lengths are."""
    two = spec(
        kv=[attn.Paged(name="prompt", see=attn.all_tokens()), attn.Dense(name="fresh", see=attn.causal())],
        see=None,
    )
    pictures.check(two.svg(q_len=1, kv_len=dict(zip(("prompt", "fresh"), lengths, strict=True))), numbers=3)


def test_a_class_that_keeps_fewer_tokens_keeps_the_last():
    described = spec(
        kv=[attn.Paged(name="full", head_class="a"), attn.Paged(name="short", head_class="b")],
        heads=attn.heads(a=attn.all_tokens(), b=attn.all_tokens()),
    )
    full, short = panels(described.svg(q_len=4, kv_len={"full": 10, "short": 6}))
    assert (short == full[:, 4:]).all()


def test_wrong_ones_are_refused(tmp_path):
    for sizes, message in (
        (
            {"q_len": 0, "kv_len": 4},
            "q_len: expected an integer from 1 to the 4 tokens, got 0; nearest legal: 1",
        ),
        ({"q_len": 5, "kv_len": 4}, "nearest legal: 4"),
        ({"q_len": 1, "kv_len": "4"}, "kv_len: expected an integer from 1"),
        ({"q_len": 1, "kv_len": {"cache": 3}}, "kv_len: expected a number, or one for each of kv"),
        ({"q_len": 1 << 22, "kv_len": 1 << 22}, "q_len: expected at most 64 beside 4194304 tokens"),
    ):
        with pytest.raises(attn.SpecError) as error:
            spec().svg(**sizes)
        assert message in str(error.value)
    with pytest.raises(attn.SpecError, match="path: expected a name that ends with .svg"):
        spec().draw(tmp_path / "mask.png", q_len=1, kv_len=1)
