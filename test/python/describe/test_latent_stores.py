# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Descriptions of stores whose values are a part of their keys (latent attention), and what is refused."""

import attn
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from attn import Dense, Paged, causal, first  # noqa: E402
from attn.memory.formats import describe_store  # noqa: E402

DIMS = {"head_dim": 576, "dtype": "bfloat16"}


def spec(store=None, *, features=512, **changes):
    store = store or Paged(page_size=16, value=first(features))
    given = dict(q_heads=16, kv_heads=1, see=causal(), kv=[store]) | DIMS
    return attn.Spec(**(given | changes))


def test_the_description_is_text():
    described = spec()
    assert described.value_dim == 512 and described == spec(value_dim=512)
    assert "!attn.kv<paged<16>, heads = 1, dim = 576, key = bf16, value = first<512>>" in described.mlir()
    assert "value=attn.first(512)" in repr(described)
    assert spec(Dense(value=first(64)), head_dim=80).mlir() != spec(Dense(), head_dim=80).mlir()


@pytest.mark.parametrize("scales", [None, "tensor", "head", "token"])
def test_latents_in_8_bits(scales):
    described = spec(Paged(key="fp8_e4m3", key_scales=scales, value=first(512)))
    key = f"!attn.quantized<f8E4M3FN, per = {scales or 'token'}>"
    assert f"dim = 576, key = {key}, value = first<512>>" in described.mlir()
    found = described.operands[0].description(1, 576, 512)
    assert found.latent and found.token_bytes == 576 + 4 * (scales in (None, "token"))
    assert [name for name, *_ in found.tensors] == ["k_pages", "k_scales"] and found.value == found.key
    assert described == spec(Paged(key="fp8", key_scales=scales, value=first(512))) or "fp8" in repr(
        described
    )


def test_latents_as_engines_store_them():
    described = spec(Paged(key="fp8_ds_mla", value=first(512)))
    key = "!attn.quantized<f8E4M3FN, per = 128, rest = 64>"
    assert f"dim = 576, key = {key}, value = first<512>>" in described.mlir()
    found = described.operands[0].description(1, 576, 512)
    assert found.latent and found.token_bytes == 656 and not found.heads_first
    assert [(name, dtype, dims[-1]) for name, dtype, dims in found.tensors] == [("k_pages", "u8", 656)]
    assert found.strided == {"k_pages"} and found.value == found.key
    assert "fp8_ds_mla" in repr(described)
    refused = "value: expected the first 512 features of keys in f8e4m3fn per 128 rest 64, got values apart"
    with pytest.raises(attn._attn.Failure, match=refused):
        describe_store("packed", 0, False, 1, 576, 576, found.key.text(), "bf16")
    assert described == spec(Paged(key="fp8_ds_mla", key_group=128, value=first(512)))


@pytest.mark.parametrize(
    "make,message",
    [
        (
            lambda: Paged(key="fp8_ds_mla", value=first(256)),
            r"Paged\(key\): expected None or 'fp8_e4m3' where values are the first 256 .* has values of 512",
        ),
        (
            lambda: Paged(key="fp8_ds_mla"),
            r"Paged\(value\): expected attn\.first\(512\) beside key='fp8_ds_mla', whose lines hold both, got None",
        ),
        (
            lambda: Paged(value="fp8_ds_mla"),
            r"Paged\(value\): expected attn\.first\(512\) beside key='fp8_ds_mla'",
        ),
        (
            lambda: Paged(key="fp8_ds_mla", key_scales="token", value=first(512)),
            r"Paged\(key_scales\): expected None beside 'fp8_ds_mla'",
        ),
        (
            lambda: Paged(key="fp8_ds_mla", key_group=64, value=first(512)),
            r"Paged\(key_group\): expected None or 128 beside 'fp8_ds_mla', got 64; nearest legal: 128",
        ),
        (
            lambda: spec(Paged(key="fp8_ds_mla", value=first(512)), dtype="float16"),
            r"dtype: expected 'bfloat16' beside key='fp8_ds_mla', .* got 'float16'",
        ),
        (
            lambda: spec(Paged(key="fp8_ds_mla", value=first(512)), head_dim=512),
            r"expected rows of 576 features, 512 of .* and a rest of 64, got 512; nearest legal: 576",
        ),
        (lambda: first(500), r"features: expected .* 128 up to 512, got 500; nearest legal: 384 or 512"),
        (lambda: first(1024), "got 1024; nearest legal: 512"),
        (lambda: spec(head_dim=320), r"kv\[0\]\.value: .* n up to 320, .* got 512; nearest legal: 256"),
        (lambda: spec(value_dim=256), r"kv\[0\]\.value: expected attn\.first\(256\), as .* got 512"),
        (
            lambda: Paged(value=first(64), key="int8"),
            r"Paged\(key\): expected None, 'fp8_e4m3' or 'fp8_ds_mla' where values are a part of keys, got 'int8'",
        ),
        (
            lambda: Dense(value=first(512), key="mxfp8"),
            "expected None, 'fp8_e4m3' or 'fp8_ds_mla' .* got 'mxfp8'",
        ),
        (
            lambda: Dense(value=first(512), key="fp8_e5m2"),
            "expected None, 'fp8_e4m3' or 'fp8_ds_mla' .* got 'fp8_e5m2'",
        ),
        (
            lambda: Paged(value=first(384), key="fp8"),
            "where values are the first 384 features .* of 512, got 'fp8'",
        ),
        (
            lambda: Paged(value=first(40), key="fp8"),
            "'fp8_e4m3' has values of a multiple of 16 up to 256, or of 512",
        ),
        (
            lambda: Paged(value=first(64), key="fp8", value_scales="head"),
            r"\(value_scales\): expected None where",
        ),
        (
            lambda: Paged(value=first(64), key="fp8", key_scales="line"),
            "expected 'tensor', 'head' or 'token', got 'line'",
        ),
        (lambda: Paged(value=first(64), value_group=32), r"Paged\(value_group\): expected None where values"),
        (lambda: attn.Unified(value=first(64)), "expected values apart from keys in unified pages"),
        (lambda: spec(head_dim=592), r"head_dim: expected .* 32 up to 576, got 592; nearest legal: 576"),
        (lambda: spec(Dense(), value_dim=320), "got 320; nearest legal: 256 or 384"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(attn.SpecError, match=message):
        make()


def test_gradients_and_significance_are_refused():
    with pytest.raises(attn.CompileError, match="no significance: expected keys and values apart"):
        attn.compile(spec(significance="sum"), device="host")
