# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn's formats of keys and values, as an engine asks for them.

vLLM 0.32 has a closed list of words for kv_cache_dtype. So a format's name is an option of the engine beside it,
`additional_config={"attn_kv_cache_dtype": "int8_int4"}`, which vLLM keeps for its plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import closest, expected
from ..serving import Layer
from ..serving.formats import PACKED

if TYPE_CHECKING:
    from vllm.config import VllmConfig

OPTION = "attn_kv_cache_dtype"
"""The option's name in additional_config."""

NEAREST = {
    "int8_per_token_head": "int8",
    "int4_per_token_head": "int4",
    "turboquant_k8v4": "int8_int4",
    "turboquant_4bit_nc": "int4",
    "nvfp4": "nvfp4",
    "nvfp4_4over6": "nvfp4",
}
"""attn's format for words of kv_cache_dtype that attn does not serve."""

_latest: list[str | None] = [None]


def asked(config: VllmConfig | None, option: str = OPTION) -> Any:
    """Return an option of an engine's configuration: by default the format; None for that of kv_cache_dtype."""
    options = getattr(config, "additional_config", None)
    return options.get(option) if isinstance(options, dict) else None


def refusals(format: object, cache: Any) -> list[str]:
    """Return why a format is refused beside vLLM's configuration of its cache, or None."""
    found = []
    if format not in PACKED:
        found.append(
            str(
                expected(
                    ValueError, OPTION, f"one of {', '.join(PACKED)}", format, nearest=closest(format, PACKED)
                )
            )
        )
    if cache is not None and cache.cache_dtype != "auto":
        found.append(f"kv_cache_dtype: expected auto beside {OPTION}={format}, got {cache.cache_dtype}")
    if cache is not None and cache.kv_cache_dtype_skip_layers:
        found.append(
            f"kv_cache_dtype_skip_layers: expected none beside {OPTION}={format}: it is the format of all layers"
        )
    return found


def remember(format: str | None) -> None:
    """Keep the format of the engine whose layers are made. vLLM asks a backend for the bytes of a token without a
    configuration, after it has made them."""
    _latest[0] = format


def customized(spec: Any, config: VllmConfig | None) -> Any:
    """Return vLLM's spec of a layer's cache, with the bytes of a token in the format that is asked for."""
    from dataclasses import replace

    format = _latest[0] if config is None else asked(config)
    if format not in PACKED or spec.state_content_bytes is not None:
        return spec
    heads = spec.num_kv_heads
    layer = Layer(
        q_heads=heads, kv_heads=heads, head_dim=spec.head_size, dtype=spec.dtype, page_size=16, format=format
    )
    return replace(spec, state_content_bytes=layer.token_bytes)


def check_spec(spec: Any, layer: Layer) -> None:
    """Refuse a cache whose pages attn's kernels cannot read. ValueError."""
    block = layer.page_size * layer.token_bytes
    if spec.state_content_size_bytes != layer.token_bytes:
        raise ValueError(
            f"attn's backend: expected {layer.token_bytes} bytes a token and head for {OPTION}={layer.format}, got "
            f"{spec.state_content_size_bytes}"
        )
    padded = spec.page_size_padded
    if padded is not None and padded % block:
        raise ValueError(
            f"attn's backend: expected pages a multiple of {block} bytes apart for {OPTION}={layer.format}, got {padded}: layers "
            "of this model have heads of several sizes"
        )
