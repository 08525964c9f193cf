# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.sample: tensors that attn-run accepts, with right results, and with NaN where a kernel may not read."""

import attn
import numpy
import pytest
from attnlab import attn_run

from examples import EXAMPLES, LLAMA, SIZES, save


def spec(**given):
    return attn.Spec(**{**LLAMA, "kv": [attn.Paged()], "see": attn.causal(), **given})


@pytest.mark.parametrize("name", EXAMPLES)
def test_attn_run_takes_them(name, tmp_path):
    described = EXAMPLES[name]()
    save(tmp_path / "in.safetensors", attn.sample(described, seed=3, **SIZES[name]))
    (tmp_path / "spec.mlir").write_text(described.mlir())
    status, report, error = attn_run(
        tmp_path / "spec.mlir", "--inputs", tmp_path / "in.safetensors", "--check", "--device=host"
    )
    assert status == 0, error
    assert report["races"] == report["uninitialized"] == report["out_of_bounds"] == 0


def test_the_seed_decides():
    a, b, c = (attn.sample(spec(), seed=seed, kv_len=(10, 100)) for seed in (1, 1, 2))
    assert a.keys() == b.keys() and all(numpy.array_equal(a[name], b[name]) for name in a)
    assert not numpy.array_equal(a["kv.lengths"], c["kv.lengths"])
    one, other = attn.sample(spec(), seed=1), attn.sample(spec(sink_logits=True), seed=1)
    assert numpy.array_equal(one["kv.k_pages"], other["kv.k_pages"])


def test_amplitudes():
    """An amplitude multiplies the same numbers; from a range it is drawn for each tensor, with queries so small that
    scores stay usable."""
    plain, small = (attn.sample(spec(), amplitude=size, kv_len=40) for size in (1.0, 2.0**-12))
    for name in ("q", "kv.k_pages", "kv.v_pages"):
        one, other = (attn.from_bfloat16_bits(each[name]) for each in (plain, small))
        assert numpy.array_equal(one * numpy.float32(2.0**-12), other, equal_nan=True)
    found = []
    for seed in range(30):
        given = attn.sample(spec(), seed=seed, amplitude=(1e-6, 1e4), kv_len=40)
        q, k, v = (
            numpy.nanstd(attn.from_bfloat16_bits(given[name])) for name in ("q", "kv.k_pages", "kv.v_pages")
        )
        assert q * k < 9  # a score is q * k times a standard normal number
        found.append((k, v))
    assert (numpy.min(found, 0) < 1e-4).all() and (numpy.max(found, 0) > 1e2).all()
    for wrong in (0, -1.0, (2, 1), "1", True, (1e-6, float("inf")), float("nan")):
        with pytest.raises(attn.SpecError, match="amplitude: expected a number from 1e-30 to 1e\\+30, or"):
            attn.sample(spec(), amplitude=wrong)


def test_what_may_not_be_read_is_nan():
    t = attn.sample(spec(), batch=3, kv_len=[5, 16, 40])
    keys = attn.from_bfloat16_bits(t["kv.k_pages"])
    read = numpy.zeros(keys.shape[:2], bool)
    for pages, length in zip(t["kv.block_table"], t["kv.lengths"], strict=True):
        for token in range(length):
            read[pages[token // 16], token % 16] = True
        assert (pages[-(-length // 16) :] == 2**31 - 1).all()
    assert read.sum() == 61
    assert numpy.isnan(keys[~read]).all() and numpy.isfinite(keys[read]).all()


@pytest.mark.parametrize("store", [attn.Dense, attn.Packed, attn.Paged])
def test_ragged_heads(store):
    described = spec(kv=[store(ragged=True)])
    t = attn.sample(described, batch=2, kv_len=[[n + 8 * i for n in range(8)] for i in range(2)])
    assert t["kv.lengths"].tolist() == [[*range(8)], [*range(8, 16)]]
    keys = attn.from_bfloat16_bits(t["kv.k_pages" if store is attn.Paged else "kv.k"]).reshape(-1, 8, 128)
    assert numpy.isfinite(keys).all(axis=2).sum(axis=0).tolist() == [8 + 2 * n for n in range(8)]
    pytest.importorskip("attn._attn", reason="the extension is not built")
    assert attn.check(described, t).right


def test_heads_of_classes():
    heads = attn.heads(a=attn.all_tokens(), b=attn.sink(1), c=attn.sink(2))
    assert attn.sample(spec(heads=heads))["classes"].tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    counted = attn.sample(spec(heads=heads), b=5)["classes"].tolist()
    assert counted.count(1) == 5 and counted.count(0) == 2 and counted.count(2) == 1


def test_dynamic_extents():
    described = spec(score=lambda s, h, qi, ki, bias: s + bias[qi, ki], tensors={"bias": ("kv_len", "wide")})
    assert attn.sample(described, kv_len=33, wide=9)["bias"].shape == (33, 9)
    with pytest.raises(attn.SpecError, match="wide: expected the extent of 'bias'"):
        attn.sample(described)


@pytest.mark.parametrize(
    "dims,message",
    [
        (
            {"kvlen": 3},
            "dimension: expected one of batch, q_len, kv_len, got 'kvlen'; nearest legal: 'kv_len'",
        ),
        ({"batch": 0}, "batch: expected a number of at least 1, got 0; nearest legal: 4"),
        ({"batch": 1 << 20, "kv_len": 1 << 20}, "kv: 1125899906842624 numbers are too many for this machine"),
        ({"seed": -1}, "seed: expected an integer from 0 to"),
        ({"batch": True}, "batch: expected a number of at least 1, got True"),
        ({"kv_len": -1}, "kv_len: expected a number of at least 0, (low, high), or a list of 4, got -1"),
        ({"kv_len": (9, 2)}, "kv_len: expected (low, high) with low <= high"),
        ({"kv_len": [1, 2, 3]}, "kv_len: expected a number of at least 0, (low, high), or a list of 4"),
        ({"kv_len": "many"}, "kv_len: expected a number of at least 0"),
        ({"q_len": 9, "kv_len": 3}, "q_len: expected at most the 3 tokens of sequence 0, got 9"),
    ],
)
def test_wrong_sizes_are_refused(dims, message):
    with pytest.raises(attn.SpecError) as error:
        attn.sample(spec(), **dims)
    assert message in str(error.value)


def test_wrong_shares_are_refused():
    shared = spec(kv=[attn.Dense(name="a", dims=("shared", "a_len")), attn.Paged(name="b")])
    with pytest.raises(
        attn.SpecError, match="shared: expected at most the 2 sequences, got 3; nearest legal: 2"
    ):
        attn.sample(shared, batch=2, shared=3)
    late = spec(kv=[attn.Paged(name="b"), attn.Dense(name="a", dims=("shared", "a_len"))])
    with pytest.raises(attn.SpecError, match="put shared operands first"):
        attn.sample(late, batch=2, kv_len=[3, 4])
    with pytest.raises(attn.SpecError, match="spec: expected an attn.Spec"):
        attn.sample("decode")
