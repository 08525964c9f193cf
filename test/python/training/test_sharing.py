# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reports, against counts by hand and the numbers in the DualKV paper (arXiv 2605.15422)."""

import attn
import numpy
import pytest
from attn.training import ModelShape, Tree, group, pack, report

QWEN3_8B = ModelShape(q_heads=32, kv_heads=8, head_dim=128, layers=36, linear_weights=192937984)


def star(responses, prompt, response):
    return attn.Forest(numpy.cumsum([0, prompt, *[response] * responses]), [-1] + [0] * responses)


def test_memory_of_the_papers_table_6():
    """N = 8 and P = 16K save 469 MB of keys and values, 940 of queries, 14 of LSE: 1,423 MB a layer, each part rounded."""
    saved = report(star(8, 16384, 2048), QWEN3_8B).saved_bytes
    assert saved == {"kv": 469_762_048, "q": 939_524_096, "lse": 14_680_064}
    assert abs(sum(saved.values()) / 1e6 - 1423) < 1
    assert report(star(8, 16384, 17), QWEN3_8B).saved_bytes == saved, "depends on no response"


@pytest.mark.parametrize(
    ("n", "p", "r"), [(16, 8192, 2048), (32, 8192, 1024), (8, 16384, 2048), (28, 4096, 131)]
)
def test_sharing_ratio(n, p, r):
    found = report(star(n, p, r), QWEN3_8B)
    assert found.sharing == n * (p + r) / (p + n * r)
    assert (n, p, r) != (16, 8192, 2048) or found.sharing == 4.0


@pytest.mark.parametrize("seed", range(5))
def test_pairs_by_hand(seed):
    random = numpy.random.default_rng(seed)
    trees = [group(random.integers(0, 9, 7), [random.integers(0, 9, n) for n in (3, 5, 1)]) for _ in range(3)]
    (packed,) = pack([*trees, Tree([1, 2, 3])])
    found = report(packed, QWEN3_8B)
    parts = [len(packed.rows(n)) for n in range(len(packed.trajectories))]
    assert found.replicated_rows == sum(parts) and found.rows == len(packed.tokens)
    assert found.replicated_pairs == sum(n * (n + 1) // 2 for n in parts)
    assert found.pairs == int((packed.forest.positions.astype(int) + 1).sum())


def test_work():
    shape = ModelShape(q_heads=2, kv_heads=1, head_dim=4, layers=3, linear_weights=5)
    found = report(attn.Forest([0, 2], [-1]), shape)
    assert found.flops == found.replicated_flops == 3 * (7 * 2 * 3 * 2 * 4 + 6 * 2 * 5)
    assert found.saved_bytes == {"kv": 0, "q": 0, "lse": 0} and found.sharing == 1.0


def test_text():
    text = str(report(star(8, 16384, 2048), QWEN3_8B))
    assert "32,768 in place of 147,456: 4.50 times fewer" in text
    assert "K, V 469.8 MB + Q 939.5 MB + LSE 14.7 MB = 1,424.0 MB less in each layer" in text


def test_shape_of_a_configuration():
    transformers = pytest.importorskip("transformers", reason="Transformers is not installed")
    sizes = dict(hidden_size=4096, num_attention_heads=32, num_key_value_heads=8, head_dim=128)
    config = transformers.Qwen3Config(num_hidden_layers=36, intermediate_size=12288, **sizes)
    assert ModelShape.of(config) == QWEN3_8B
    moe = transformers.Qwen3MoeConfig(num_experts_per_tok=8, moe_intermediate_size=768, **sizes)
    assert ModelShape.of(moe).linear_weights == 4096 * (128 * 80 + 3 * 8 * 768)
    with pytest.raises(attn.SpecError, match="config.hidden_size: expected a number, got None"):
        ModelShape.of(object())


def test_bad_input_is_named():
    with pytest.raises(attn.SpecError, match="packed: expected what attn.training.pack gives"):
        report([1], QWEN3_8B)
    with pytest.raises(attn.SpecError, match="a forest of none"):
        report(attn.Forest([0], []), QWEN3_8B)


@pytest.mark.parametrize(
    ("size", "given", "nearest"), [("q_heads", 0, 1), ("layers", 1.5, 1), ("linear_weights", -1, 0)]
)
def test_sizes_that_no_model_has(size, given, nearest):
    sizes = {"q_heads": 8, "kv_heads": 2, "head_dim": 64} | {size: given}
    message = (
        rf"ModelShape\({size}\): expected a number from {nearest} on, got {given}; nearest legal: {nearest}"
    )
    with pytest.raises(attn.SpecError, match=message):
        ModelShape(**sizes)
