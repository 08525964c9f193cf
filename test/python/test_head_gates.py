# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""DuoAttention's gates as the published files have them."""

import json
import os
from pathlib import Path

import attn
import numpy
import pytest
from attn.head_gates import head_gates, read_head_gates, read_streaming_sizes
from hypothesis import given
from hypothesis import strategies as st


def test_reads_what_was_published(tmp_path):
    path = tmp_path / "full_attention_heads.tsv"
    path.write_text("6.05e-01\t0.0\t1\n9.9e-01 2.5e-02\t0.0\n\n")
    gates = read_head_gates(path)
    assert (gates.layers, gates.kv_heads) == (2, 3)
    assert gates.at_least(0.5).tolist() == [[0, 1, 0], [0, 1, 1]]
    assert gates.by_share(1 / 6).tolist() == [[1, 1, 0], [1, 1, 1]]


@pytest.mark.parametrize(
    "text,message",
    [
        ("", "expected a line for each layer, got none"),
        ("0.1 0.2\n0.3\n", ":2: expected a gate for each of 2 heads, as in the first line, got 1"),
        ("0.1 x2\n", ":1: head 1: expected a number, got 'x2'"),
        ("0.1 nan\n", r"gates\[0\]\[1\]: expected a finite number, got nan"),
    ],
)
def test_says_where_a_file_is_wrong(tmp_path, text, message):
    path = tmp_path / "gates.tsv"
    path.write_text(text)
    with pytest.raises(attn.SpecError, match=message):
        read_head_gates(path)


def test_refuses_other_shapes():
    for wrong in ([1.0, 2.0], [[]], "gates", [[1.0], [2.0, 3.0]]):
        with pytest.raises(attn.SpecError, match="gates: expected"):
            head_gates(wrong)
    with pytest.raises(attn.SpecError, match=r"share: expected .* got 1.5; nearest legal: 1.0"):
        head_gates([[0.5]]).by_share(1.5)


def test_streaming_sizes(tmp_path):
    path = tmp_path / "config.json"
    sizes = {"sink_size": 128, "recent_size": 256, "deploy_sink_size": None, "deploy_recent_size": 512}
    path.write_text(json.dumps(sizes))
    assert read_streaming_sizes(path) == (128, 512)
    for wrong in ("[]", "{", '{"sink_size": -1, "recent_size": 1}'):
        path.write_text(wrong)
        with pytest.raises(attn.SpecError, match="config.json"):
            read_streaming_sizes(path)


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=12, max_size=12), st.floats(0, 1))
def test_a_share_takes_the_largest_gates(values, share):
    gates = head_gates(numpy.reshape(values, (3, 4)))
    classes = gates.by_share(share)
    assert abs((classes == 0).sum() - share * 12) <= 0.5 + 1e-9
    chosen, others = gates.values[classes == 0], gates.values[classes == 1]
    assert not chosen.size or not others.size or chosen.min() >= others.max()


def test_selects_as_published():
    """From the threshold on, of gates clipped to 0 to 1."""
    gates = head_gates([[0.5, -1.4e-3, 1.2], [0.49, 0.0, 1.0]])
    assert gates.at_least(0.5).tolist() == [[0, 1, 0], [1, 1, 0]]
    assert gates.at_least(0).tolist() == [[0, 0, 0], [0, 0, 0]]
    assert gates.at_least(1).tolist() == [[1, 1, 0], [1, 1, 0]]
    assert gates.at_least(1.1).tolist() == [[1, 1, 1], [1, 1, 1]]


def test_published_gates():
    folder = Path(os.environ.get("ATTN_DATA_DIR", "")) / "duo"
    files = sorted(folder.glob("*.full_attention_heads.tsv")) if os.environ.get("ATTN_DATA_DIR") else []
    if not files:
        pytest.skip("ATTN_DATA_DIR names no folder with published gates")
    for path in files:
        gates = read_head_gates(path)
        assert gates.layers == 32 and gates.kv_heads in (8, 32)
        assert 0 < (gates.by_share(0.5) == 0).mean() <= 0.5
        assert (gates.at_least(0) == 0).all() and (gates.at_least(1.01) == 1).all()
        if path.name.startswith("Llama-2-7B"):  # two of its gates are 0.5
            assert (gates.at_least(0.5) == 0).sum() == 446 == (gates.values > 0.5).sum() + 2
        sink, recent = read_streaming_sizes(str(path).replace("full_attention_heads.tsv", "config.json"))
        assert 0 < sink < recent
