# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What attn says of SGLang's options, pools and layers, without SGLang."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from attn import SpecError  # noqa: E402
from attn.sglang.limits import (  # noqa: E402
    layer_of,
    reads_latents,
    refused_layer,
    refused_options,
    refused_pool,
)

SERVED = dict(
    tp_q_head_num=4,
    tp_k_head_num=2,
    qk_head_dim=64,
    v_head_dim=64,
    scaling=0.125,
    logit_cap=0.0,
    logit_capping_method="tanh",
    sliding_window_size=-1,
    is_cross_attention=False,
    attn_type="decoder",
    use_irope=False,
    xai_temperature_len=-1,
    pos_encoding_mode="NONE",
)


def layer(**changes):
    return SimpleNamespace(**SERVED | changes)


@pytest.mark.parametrize(("size", "window"), [(-1, None), (None, None), (1, 2), (127, 128)])
def test_a_window_has_one_token_more_than_sglang_says(size, window):
    found = layer_of(layer(sliding_window_size=size, logit_cap=30.0), 16, torch.float16, None)
    assert found.window == window and found.softcap == 30.0 and found.scale == 0.125 and found.page_size == 16


def test_layers_of_decoders_are_served():
    assert refused_layer(layer()) == []
    assert refused_layer(layer(attn_type=SimpleNamespace(value="decoder"), logit_cap=5.0)) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (dict(is_cross_attention=True), "attention to an encoder"),
        (
            dict(attn_type="encoder_only"),
            "attention type: expected 'decoder', got 'encoder_only': attn serves no encoder",
        ),
        (dict(attn_type=SimpleNamespace(value="decoder_bidirectional")), "got 'decoder_bidirectional'"),
        (dict(v_head_dim=32), "values: expected the keys' 64 features, got 32"),
        (dict(use_irope=True), "use_irope"),
        (dict(xai_temperature_len=8192), "xai_temperature_len"),
        (dict(pos_encoding_mode="ROPE"), "pos_encoding_mode: expected 'NONE', got 'ROPE'"),
        (dict(logit_cap=5.0, logit_capping_method="abs"), "logit_capping_method: expected 'tanh', got 'abs'"),
    ],
)
def test_other_layers_are_refused_with_the_reason(changes, reason):
    [found] = refused_layer(layer(**changes))
    assert reason in found


def test_heads_too_wide_are_refused_with_the_nearest_legal():
    with pytest.raises(
        SpecError,
        match="head_dim: expected a multiple of 8 from 8 to 256, or of 32 up to 576, got 100; nearest legal: 96",
    ):
        layer_of(layer(qk_head_dim=100), 16, torch.float16, None)


def test_options_that_are_off_are_served():
    given = dict(
        speculative_algorithm=None, enable_mis=False, dcp_size=1, attn_cp_size=1, kv_cache_dtype="auto"
    )
    assert refused_options(SimpleNamespace(**given), False) == []
    assert refused_options(SimpleNamespace(kv_cache_dtype="fp8_e5m2"), False) == []


@pytest.mark.parametrize("word", ["NGRAM", "ngram"])
def test_drafts_of_one_algorithm_are_verified(word):
    assert refused_options(SimpleNamespace(speculative_algorithm=word), False) == []
    [found] = refused_options(SimpleNamespace(speculative_algorithm="EAGLE"), False)
    assert (
        found
        == "speculative_algorithm: expected none or NGRAM, got 'EAGLE': attn was not run with its drafts"
    )


def test_all_reasons_are_given():
    given = dict(speculative_algorithm="EAGLE3", dcp_size=2, kv_cache_dtype="fp8")
    found = refused_options(SimpleNamespace(**given), True)
    assert [reason.split(":")[0] for reason in found] == [
        "an encoder beside the decoder",
        "speculative_algorithm",
        "dcp_size",
        "kv_cache_dtype",
    ]
    assert "nearest legal: 'fp8_e4m3' or 'fp8_e5m2'" in found[-1] and "got 'EAGLE3'" in found[1]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (
            ("DSATokenToKVPool", "", False, torch.float16),
            "pool: expected MHATokenToKVPool, SWAKVPool or MLATokenToKVPool, got DSATokenToKVPool",
        ),
        (
            ("MLATokenToKVPool", "", False, torch.float8_e5m2),
            "dtype of the pool: expected one of torch.float16, torch.float8_e4m3fn, got torch.float8_e5m2",
        ),
        (("MHATokenToKVPool", "hnd", False, torch.float16), "layout of the pool: expected 'nhd', got 'hnd'"),
        (("MHATokenToKVPool", "nhd", True, torch.float16), "got blocks with scales"),
        (
            ("MHATokenToKVPool", "nhd", False, torch.bfloat16),
            "dtype of the pool: expected one of torch.float16, ",
        ),
    ],
)
def test_other_pools_are_refused_with_the_reason(given, reason):
    [found] = refused_pool(*given, torch.float16)
    assert reason in found


@pytest.mark.parametrize("dtype", [torch.float16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_pools_of_the_models_dtype_or_of_8_bits_are_served(dtype):
    assert refused_pool("MHATokenToKVPool", "nhd", False, dtype, torch.float16) == []


def test_latents_are_served():
    assert refused_options(SimpleNamespace(), False) == []
    for dtype in (torch.float16, torch.float8_e4m3fn):
        assert refused_pool("MLATokenToKVPool", "", False, dtype, torch.float16) == []
    latent = layer(tp_k_head_num=1, qk_head_dim=576, v_head_dim=512)
    assert reads_latents(latent, 512, 576) and refused_layer(latent, True) == []
    found = layer_of(latent, 64, torch.bfloat16, None, True)
    assert (found.head_dim, found.value_dim, found.kv_heads, found.scale) == (576, 512, 1, 0.125)
    expanded = layer(tp_k_head_num=4, qk_head_dim=192, v_head_dim=128)
    assert not reads_latents(expanded, 512, 576)


def test_drafts_beside_deterministic_inference_are_refused():
    asked = SimpleNamespace(speculative_algorithm="NGRAM", enable_deterministic_inference=True)
    (reason,) = refused_options(asked, False)
    assert reason.startswith(
        "speculative_algorithm: expected none beside enable_deterministic_inference, got 'NGRAM'"
    )
    assert not refused_options(SimpleNamespace(enable_deterministic_inference=True), False)
    assert not refused_options(SimpleNamespace(speculative_algorithm="NGRAM"), False)
