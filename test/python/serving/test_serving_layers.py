# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers as engines describe them."""

import pytest

pytest.importorskip("torch")

import attn  # noqa: E402
from attn.serving import Layer  # noqa: E402

LAYER = dict(q_heads=4, kv_heads=2, head_dim=16, dtype="float16", page_size=16)


def test_a_layer_is_a_description():
    layer = Layer(**LAYER, scale=0.5, window=7, sinks=True)
    wanted = attn.Spec(
        q_heads=4,
        kv_heads=2,
        head_dim=16,
        dtype="float16",
        kv=[attn.Paged(page_size=16)],
        see=attn.window(7),
        sink_logits=True,
        scale=0.5,
        return_lse=False,
    )
    assert layer.spec() == wanted
    assert Layer(**LAYER) == Layer(**LAYER) and hash(Layer(**LAYER)) == hash(Layer(**LAYER))


def test_kernels_of_windows_are_shared():
    assert Layer(**LAYER, window=7).spec().form() == Layer(**LAYER, window=9).spec().form()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(head_dim=600), "head_dim: expected a multiple of 8 from 8 to 256, or of 32 up to 576, got 600"),
        (dict(dtype="float32"), "dtype: expected 'bfloat16' or 'float16', got 'float32'"),
        (
            dict(page_size=24),
            "page_size.*: expected 1 to 8 or a multiple of 16 up to 2048, got 24; nearest legal: 16 or 32",
        ),
        (dict(q_heads=3), "q_heads: expected a multiple of kv_heads, 2, got 3; nearest legal: 2 or 4"),
        (
            dict(format="fp8"),
            "format: expected None, fp8_e4m3, .* or nvfp4, got 'fp8'; nearest legal: fp8_e4m3",
        ),
        (
            dict(format="fp8_e4m3", head_dim=24),
            "expected a dim of whole 16 bytes.*got 24; nearest legal: 16 or 32",
        ),
    ],
)
def test_refusals_name_the_nearest(changes, message):
    with pytest.raises(attn.SpecError, match=message):
        Layer(**LAYER | changes)


# --- Latents

LATENT = dict(q_heads=4, kv_heads=1, head_dim=80, value_dim=64, dtype="float16", page_size=16, scale=0.1)


def test_a_layer_over_latents_is_a_description():
    assert Layer(**LATENT).store() == attn.Paged(page_size=16, value=attn.first(64))
    quantized = Layer(**LATENT, format="fp8_e4m3")
    store = attn.Paged(page_size=16, key="fp8_e4m3", key_scales="tensor", value=attn.first(64))
    assert quantized.store() == store
    assert (Layer(**LATENT).token_bytes, quantized.token_bytes, quantized.page_bytes) == (160, 80, 1280)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (dict(kv_heads=2), r"kv_heads: expected 1 beside value_dim, got 2; nearest legal: 1"),
        (dict(format="int8"), r"format: expected None or 'fp8_e4m3' beside value_dim, got 'int8'"),
        (dict(format="fp8_e5m2"), r"format: expected None or 'fp8_e4m3' beside value_dim, got 'fp8_e5m2'"),
        (dict(value_dim=60), r"features: expected a multiple of 8"),
        (dict(value_dim=88), r"value"),
    ],
)
def test_other_latents_are_refused(changes, said):
    with pytest.raises(attn.SpecError, match=said):
        Layer(**LATENT | changes)


def test_latents_have_no_pages_of_keys_and_values():
    import torch

    with pytest.raises(
        attn.SpecError, match=r"value_dim: expected None: steps take \(lines,\) of latents, got 64"
    ):
        Layer(**LATENT).pages(torch.zeros(2, 1, 16, 80, dtype=torch.float16))
