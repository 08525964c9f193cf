# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""DuoAttention's gates as published in files, and the heads that they choose."""

import json
import os
import xml.etree.ElementTree
from pathlib import Path

import attn
import numpy
import pictures
import pytest
from attn.describe.drawing import INK, LINE
from attn.heads import Gates, HeadChoice
from hypothesis import given
from hypothesis import strategies as st


def published():
    """Return the files of the release, where they are on disk."""
    folder = Path(os.environ.get("ATTN_DATA_DIR", "")) / "duo"
    files = sorted(folder.glob("*.full_attention_heads.tsv")) if os.environ.get("ATTN_DATA_DIR") else []
    if not files:
        pytest.skip("ATTN_DATA_DIR names no folder with published gates")
    return files


# --- Files ---------------------------------------------------------------------------------------------------


def test_reads_what_was_published(tmp_path):
    path = tmp_path / "full_attention_heads.tsv"
    path.write_text("6.05e-01\t0.0\t1\n9.9e-01 2.5e-02\t0.0\n\n")
    for gates in (Gates.load(path), Gates.load(tmp_path)):
        assert (gates.layers, gates.kv_heads, gates.sink, gates.recent) == (2, 3, 64, 256)
        assert gates.values.tolist() == [[0.605, 0, 1], [0.99, 0.025, 0]]


def test_writes_what_it_reads(tmp_path):
    settings = {"lr": 0.02, "deploy_sink_size": 16, "deploy_recent_size": None}
    gates = Gates([[0.1, -3e-5], [1.0, 2 / 3]], sink=16, recent=32, settings=settings)
    assert gates.save(tmp_path / "model") == tmp_path / "model"
    names = sorted(path.name for path in (tmp_path / "model").iterdir())
    assert names == ["config.json", "full_attention_heads.tsv"]
    again = Gates.load(tmp_path / "model")
    assert (again.values == gates.values).all()
    assert (again.sink, again.recent, again.settings["lr"]) == (16, 32, 0.02)


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
        Gates.load(path)


def test_refuses_other_shapes():
    for wrong in ([1.0, 2.0], [[]], "gates", [[1.0], [2.0, 3.0]]):
        with pytest.raises(attn.SpecError, match="gates: expected"):
            Gates(wrong)


def test_sizes_are_those_to_deploy_with(tmp_path):
    (tmp_path / "full_attention_heads.tsv").write_text("1 0\n")
    path = tmp_path / "config.json"
    sizes = {"sink_size": 128, "recent_size": 256, "deploy_sink_size": None, "deploy_recent_size": 512}
    path.write_text(json.dumps(sizes))
    gates = Gates.load(tmp_path)
    assert (gates.sink, gates.recent) == (128, 512)
    for wrong in ("[]", "{", '{"sink_size": -1, "recent_size": 1}'):
        path.write_text(wrong)
        with pytest.raises(attn.SpecError, match="config.json"):
            Gates.load(tmp_path)


# --- Choices -------------------------------------------------------------------------------------------------


def released(values, sparsity, noise):
    """The release's selection, in which noise breaks ties. (Source: duo_attn/utils.py, sparsify_attention_heads.)"""
    values = numpy.clip(values, 0, 1) + noise
    threshold = 2 if sparsity >= 1 else -1 if sparsity <= 0 else numpy.quantile(values, sparsity)
    return (values >= threshold).astype(int)


@given(
    st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=12, max_size=12),
    st.integers(0, 96),
)
def test_sparsity_is_the_release_s_quantile(values, ninety_sixths):
    """Tied heads retrieve in the order of layers, then of heads, as if the noise fell with the number of the head."""
    values, sparsity = numpy.reshape(values, (3, 4)), ninety_sixths / 96
    noise = numpy.arange(12, 0, -1).reshape(3, 4) * 1e-8
    classes = Gates(values).select(sparsity=sparsity).classes
    assert (classes == 1 - released(values, sparsity, noise)).all()


def test_published_gates_at_the_paper_s_shares():
    """The head sets are those of the release with any of its noises, except for ties."""
    random = numpy.random.default_rng(0)
    for path in published():
        gates = Gates.load(path)
        for sparsity in (0.25, 0.5, 0.75):
            retrieve = gates.select(sparsity=sparsity).classes == 0
            least = gates.values.clip(0, 1)[retrieve].min()
            decided = abs(gates.values.clip(0, 1) - least) > 1e-6
            for _ in range(5):
                found = released(gates.values, sparsity, random.uniform(0, 1e-6, gates.values.shape))
                assert found.sum() == retrieve.sum()
                assert (retrieve == found)[decided].all()


def test_published_files():
    for path in published():
        gates = Gates.load(path)
        assert gates.layers == 32 and gates.kv_heads in (8, 32)
        assert (gates.sink, gates.recent) == (128, 256)
        above = {"Llama-2": 0.43, "Llama-3-": 0.81, "Meta-Llama-3.1": 0.91}
        for model, share in above.items():
            assert not path.name.startswith(model) or abs((gates.values > 0.5).mean() - share) < 0.01
        if path.name.startswith("Llama-2-7B"):  # two of its gates are 0.5
            count = (gates.select(threshold=0.5).classes == 0).sum()
            assert count == 446 == (gates.values > 0.5).sum() + 2


def test_published_files_are_written_as_they_were(tmp_path):
    for path in published():
        folder = Gates.load(path).save(tmp_path / path.name)
        assert (folder / "full_attention_heads.tsv").read_text().split() == path.read_text().split()
        config = json.loads(Path(str(path).replace("full_attention_heads.tsv", "config.json")).read_text())
        assert json.loads((folder / "config.json").read_text()) == config


def test_thresholds():
    """A threshold selects gates, clipped to 0 to 1, from the threshold on."""
    gates = Gates([[0.5, -1.4e-3, 1.2], [0.49, 0.0, 1.0]])
    assert gates.select(threshold=0.5).classes.tolist() == [[0, 1, 0], [1, 1, 0]]
    assert gates.select(threshold=0).classes.tolist() == [[0, 0, 0], [0, 0, 0]]
    assert gates.select(threshold=1).classes.tolist() == [[1, 1, 0], [1, 1, 0]]
    assert gates.select(threshold=1.1).classes.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_budgets():
    """Budgets in bytes: three heads of four stream, and keep 8 of 100 tokens."""
    gates = Gates([[0.5, 0.9], [0.1, 0.2]], sink=2, recent=6)

    def retrieving(budget, tokens=100):
        classes = gates.select(budget=budget, tokens=tokens, token_bytes=10).classes
        return (classes == 0).sum()

    assert gates.select(budget=1240, tokens=100, token_bytes=10).classes.tolist() == [[1, 0], [1, 1]]
    assert [retrieving(b) for b in (320, 1239, 1240, 2160, 4000, 9999)] == [0, 0, 1, 2, 4, 4]
    assert retrieving(320, tokens=8) == 4  # streaming saves nothing
    with pytest.raises(attn.SpecError, match="budget: expected the 320 bytes that 4 .* nearest legal: 320"):
        retrieving(319)


@pytest.mark.parametrize(
    "options,message",
    [
        ({}, "expected one of the three"),
        ({"sparsity": 0.5, "threshold": 0.5}, "expected one of the three"),
        ({"sparsity": 1.5}, r"sparsity: expected .* got 1.5; nearest legal: 1.0"),
        ({"sparsity": True}, "sparsity: expected"),
        ({"threshold": float("nan")}, "threshold: expected a number"),
        ({"budget": 100}, "tokens: expected beside budget"),
        ({"sparsity": 0.5, "tokens": 3}, "tokens: expected beside budget"),
        ({"budget": 1.5, "tokens": 3}, "budget: expected a number of bytes"),
        ({"budget": 1000, "tokens": 0}, "tokens: expected a number of tokens from 1 on"),
    ],
)
def test_refuses_other_choices(options, message):
    with pytest.raises(attn.SpecError, match=message):
        Gates([[0.5]]).select(**options)
    for wrong in ([[2]], [0, 1], [[]], "heads", None):
        with pytest.raises(attn.SpecError, match="classes: expected 0 or 1 for each head"):
            HeadChoice(wrong, sink=1, recent=1)


# --- Pictures and reports ------------------------------------------------------------------------------------


def test_a_heat_map(tmp_path):
    gates = Gates([[0.5, -1e-3, 1.2], [0.4, 0.0, 1.0]])
    picture = xml.etree.ElementTree.fromstring(gates.svg(gates.select(threshold=0.5)))
    pictures.check(gates.svg(), numbers=5)  # a layer, two heads, the ends of the scale
    cells = [each for each in picture.iter("{http://www.w3.org/2000/svg}rect") if len(each)]
    assert len(cells) == 6 + 11  # and a scale
    shown = [(each.get("fill-opacity"), each.get("stroke")) for each in cells[:6]]
    black, grey = INK[0], LINE[0]
    assert shown[:3] == [("0.50", black), ("0.00", grey), ("1.00", black)]
    assert gates.draw(tmp_path / "gates.svg").read_text() == gates.svg()
    with pytest.raises(attn.SpecError, match="nearest legal: .*gates.svg"):
        gates.draw(tmp_path / "gates.png")


def test_a_report():
    """A report counts bytes, and its predicted time of decoding grows with the bytes read."""
    pytest.importorskip("attn._attn", reason="the extension is not built")
    choices = [Gates([[0.9, 0.1], [0.8, 0.7]], sink=64, recent=192).select(sparsity=s) for s in (0, 0.5, 1)]
    size = {"q_heads": 8, "head_dim": 128}
    reports = [choice.report(**size, tokens=65536, batch=4) for choice in choices]
    line = 4 * 4 * 128
    assert [r.kept_bytes for r in reports] == [line * n for n in (4 * 65536, 2 * 65536 + 2 * 256, 4 * 256)]
    assert all(r.full_bytes == line * 4 * 65536 for r in reports)
    seconds = [r.seconds for r in reports]
    assert seconds[0] == reports[0].full_seconds > 1.3 * seconds[1] > seconds[2]
    assert "1.99 times less" in str(reports[1]) and "50% of the heads stream" in str(reports[1])
    with pytest.raises(attn.SpecError, match="q_heads"):
        choices[0].report(q_heads=7, head_dim=128, tokens=100)
