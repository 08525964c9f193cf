# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prompts with heads of more than 256 features, whose keys and values lie apart: on Hopper two warpgroups share the weights
of their rows. Under all detectors against float64, over stores, masks, lengths and contracts."""

import attn
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from attn import Dense, Packed, Paged, causal  # noqa: E402

STORES = (
    Dense(),
    Packed(),
    Paged(page_size=16),
    Paged(page_size=64),
    Paged(page_size=8, ragged=True),
    Paged(page_size=1),
)
SEES = (causal(), attn.all_tokens(), attn.window(33), attn.chunk(64))
# Key dim, value dim, dtype, query and KV heads.
SHAPES = (
    (512, 512, "bfloat16", 4, 2),
    (512, 512, "float16", 7, 1),
    (384, 384, "bfloat16", 5, 5),
    (64, 384, "float16", 16, 2),
    (320, 512, "bfloat16", 3, 1),
)


def spec(shape, **changes):
    key_dim, value_dim, dtype, q_heads, kv_heads = shape
    given = {"see": causal(), "kv": [Dense()]}
    dims = {"head_dim": key_dim, "value_dim": value_dim, "dtype": dtype}
    return attn.Spec(q_heads=q_heads, kv_heads=kv_heads, **(given | dims | changes))


@pytest.mark.parametrize("store", STORES, ids=repr)
@pytest.mark.parametrize("shape", SHAPES)
def test_stores_and_masks(shape, store):
    see = SEES[(SHAPES.index(shape) + STORES.index(store)) % len(SEES)]
    described = spec(shape, kv=[store], see=see, sink_logits=STORES.index(store) % 2 == 0)
    for rows, tokens in ((70, (70, 200)), ((17, 40), (40, 64))):
        report = attn.check(described, batch=2, q_len=rows, kv_len=tokens, target="sm_90a")
        assert report.right and not report.findings


@pytest.mark.parametrize("tokens", [1, 31, 32, 33, 63, 64, 65, 128])
def test_tails(tokens):
    """The second half of a tile has no tokens, one, or all."""
    report = attn.check(
        spec(SHAPES[0], see=attn.all_tokens()), batch=3, q_len=min(40, tokens), kv_len=tokens, target="sm_90a"
    )
    assert report.right and not report.findings


@pytest.mark.parametrize("store", [Dense(), Paged(page_size=16), Paged(page_size=64)], ids=repr)
@pytest.mark.parametrize("see", [causal(), attn.window(40)], ids=repr)
def test_contracts(store, see):
    described = spec(SHAPES[0], kv=[store], see=see, numerics="row")
    for rows, tokens in ((1, (1, 200)), (40, (70, 200))):
        report = attn.check(described, batch=2, q_len=rows, kv_len=tokens, target="sm_90a")
        assert report.right and not report.findings


def test_two_operands():
    prefix = Dense(name="prefix", see=attn.all_tokens(), dims=("prefixes", "prefix_len"))
    described = spec(SHAPES[0], see=None, kv=[prefix, Paged(name="own", see=causal())])
    report = attn.check(
        described, batch=2, q_len=40, prefixes=1, prefix_len=65, kv_len=(40, 75), target="sm_90a"
    )
    assert report.right and not report.findings


def test_scores():
    cap = lambda s, h, qi, ki: 30 * attn.math.tanh(s / 30)  # noqa: E731
    report = attn.check(spec(SHAPES[0], score=cap), batch=2, q_len=70, kv_len=(70, 150), target="sm_90a")
    assert report.right and not report.findings
