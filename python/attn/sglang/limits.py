# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What attn refuses in SGLang, with the reason. Options are refused before a model is loaded; layers and pools, when the
backend is made from a loaded model, before it answers."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import closest, given
from ..serving import Layer

FORMATS = {torch.float8_e4m3fn: "fp8_e4m3", torch.float8_e5m2: "fp8_e5m2"}
"""attn's formats by the dtype of a pool; any other is the model's."""

CACHE_DTYPES = ("auto", "fp8_e4m3", "fp8_e5m2", "bf16", "bfloat16", "fp16", "float16")
"""SGLang's kv_cache_dtype that attn reads, 16 bits as the model's alone."""

ATTN_TYPES = ("decoder",)

DRAFTS = "NGRAM"
"""The algorithm of speculation that attn verifies drafts of."""

_OFF = {
    "dllm_algorithm": "rows of a diffusion model see blocks both ways",
    "enable_mis": "items of a prompt that do not see each other have no kernel here",
    "enable_torch_compile": "attn's calls are not compiled",
    "enable_pdmux": "attn was not run with two streams of steps",
    "enable_two_batch_overlap": "attn was not run with two batches at a time",
    "enable_unified_memory": "attn reads pools of one kind",
    "enable_page_major_kv_layout": "attn reads a pool of each layer",
    "enable_hisparse": "attn reads all pages of a request from one pool",
    "prefill_only_disable_kv_cache": "attn reads keys and values from pools",
}
"""Options that have to be off, and why."""

_ONE = ("dcp_size", "attn_cp_size")
"""Options whose value has to be 1: contexts in parts."""


def refused_options(options: Any, is_encoder_decoder: bool) -> list[str]:
    """Return why SGLang's options are refused, with the nearest legal values. `options` has them as attributes."""
    found = []
    if is_encoder_decoder:
        found.append("an encoder beside the decoder: attn serves decoders alone here")
    algorithm = getattr(options, "speculative_algorithm", None)
    if algorithm and str(algorithm).upper() != DRAFTS:
        found.append(
            f"speculative_algorithm: expected none or {DRAFTS}, got {given(algorithm)}: attn was not run with its drafts"
        )
    elif algorithm and getattr(options, "enable_deterministic_inference", False):
        found.append(
            f"speculative_algorithm: expected none beside enable_deterministic_inference, got {given(algorithm)}: tokens of "
            "drafts lie apart from their sequence, and their rows have other bits"
        )
    for name, why in _OFF.items():
        value = getattr(options, name, None)
        if value:
            found.append(f"{name}: expected none, got {given(value)}: {why}")
    for name in _ONE:
        size = getattr(options, name, 1)
        if size != 1:
            found.append(f"{name}: expected 1, got {given(size)}: attn merges no parts of a context")
    dtype = getattr(options, "kv_cache_dtype", "auto")
    if dtype not in CACHE_DTYPES:
        nearest = closest(dtype, CACHE_DTYPES)
        hint = f"; nearest legal: {nearest}" if nearest else ""
        found.append(f"kv_cache_dtype: expected one of {', '.join(CACHE_DTYPES)}, got {given(dtype)}{hint}")
    return found


LATENT_POOL = "MLATokenToKVPool"
"""SGLang's pool of latents (MLA): a line is a key, and its first features are the value."""


def refused_pool(
    kind: str, layout: str, quantized: bool, dtype: torch.dtype, model: torch.dtype
) -> list[str]:
    """Return why a pool is refused: its class, the order of its axes, its dtype beside the model's."""
    if kind not in ("MHATokenToKVPool", "SWAKVPool", LATENT_POOL):
        return [f"pool: expected MHATokenToKVPool, SWAKVPool or {LATENT_POOL}, got {kind}"]
    found = []
    if layout != "nhd" and kind != LATENT_POOL:  # Lines of latents have one head.
        found.append(f"layout of the pool: expected 'nhd', got {given(layout)}")
    formats = [torch.float8_e4m3fn] if kind == LATENT_POOL else [*FORMATS]
    if quantized or (dtype != model and dtype not in formats):
        legal = ", ".join(map(str, (model, *formats)))
        found.append(
            f"dtype of the pool: expected one of {legal}, got {'blocks with scales' if quantized else dtype}"
        )
    return found


def reads_latents(layer: Any, value_dim: int, dim: int) -> bool:
    """Whether a layer reads lines of `dim` features whose first `value_dim` are the value. Models with MLA also have layers
    over keys and values that are expanded from latents, which SGLang's other backends read prompts with."""
    return (layer.tp_k_head_num, layer.qk_head_dim, layer.v_head_dim) == (1, dim, value_dim)


def refused_layer(layer: Any, latent: bool = False) -> list[str]:
    """Return why a layer, which has the attributes of SGLang's RadixAttention, is refused. `latent`: it reads latents."""
    found = []
    kind = str(getattr(layer.attn_type, "value", layer.attn_type))  # SGLang has a class of such words.
    if layer.is_cross_attention:
        found.append("attention to an encoder: attn serves decoders alone here")
    elif kind not in ATTN_TYPES:
        found.append(f"attention type: expected 'decoder', got '{kind}': attn serves no encoder here")
    if layer.v_head_dim != layer.qk_head_dim and not latent:
        found.append(f"values: expected the keys' {layer.qk_head_dim} features, got {layer.v_head_dim}")
    if layer.use_irope:
        found.append("use_irope: attn was not run with chunks that positions of their own begin")
    if layer.xai_temperature_len > 0:
        found.append("xai_temperature_len: attn has no temperature by position here")
    if layer.pos_encoding_mode != "NONE":
        found.append(f"pos_encoding_mode: expected 'NONE', got {given(layer.pos_encoding_mode)}")
    if layer.logit_cap and layer.logit_capping_method != "tanh":
        found.append(f"logit_capping_method: expected 'tanh', got {given(layer.logit_capping_method)}")
    return found


def layer_of(
    layer: Any, page_size: int, dtype: torch.dtype, format: str | None, latent: bool = False
) -> Layer:
    """Return attn's description of a layer that has the attributes of SGLang's RadixAttention. SpecError.

    SGLang's window is the number of tokens that a row sees before its own; -1 is all."""
    before = layer.sliding_window_size
    return Layer(
        q_heads=layer.tp_q_head_num,
        kv_heads=layer.tp_k_head_num,
        head_dim=layer.qk_head_dim,
        dtype=dtype,
        page_size=page_size,
        scale=float(layer.scaling),
        window=None if before is None or before < 0 else before + 1,
        softcap=float(layer.logit_cap or 0.0),
        format=format,
        value_dim=layer.v_head_dim if latent else None,
    )
