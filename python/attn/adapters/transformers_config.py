# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which models and formats attn's caches take behind Transformers' interface."""

from __future__ import annotations

from ..errors import PlanError, closest, expected
from ..memory.formats import part_names


def check_formats(given: dict, cache: str = "PagedCache") -> dict:
    """How keys and values are stored, as the cache of that name is told. PlanError for what a model's cannot be."""
    known = [name for part in ("key", "value") for name in part_names(part)]
    for name in given:
        if name not in known:
            legal = f"one of {', '.join(known)}"
            raise expected(PlanError, cache, legal, name, nearest=closest(name, known))
    for part in ("key", "value"):
        if given.get(f"{part}_scales") in ("head", "tensor"):
            hint = "Scales of heads and tensors are found before there are keys: a model's cache takes those of tokens"
            raise expected(
                PlanError, f"{part}_scales", "'token', or None", given[f"{part}_scales"], hint=hint
            )
    return given


def check_config(config: object, cache: str = "PagedCache", *, windows: bool = True) -> None:
    """PlanError for models whose layers are not all alike, or have sliding windows where the cache of that name takes none."""
    name = getattr(config, "model_type", type(config).__name__)
    if getattr(config, "is_encoder_decoder", False):
        raise PlanError(f"config: {name} is an encoder with a decoder; {cache} is for decoders alone")
    kinds = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or ()
    others = [
        kind
        for kind in dict.fromkeys(kinds)
        if kind not in ("full_attention", "attention", *(["sliding_attention"] if windows else []))
    ]
    if others:
        raise PlanError(
            f"config: {name} has layers of {', '.join(map(str, others))}; {cache} takes full "
            f"{'and sliding ' if windows else ''}attention only: take a dynamic or static cache"
        )
    if getattr(config, "num_kv_shared_layers", 0):
        raise PlanError(f"config: layers of {name} share keys and values; take a dynamic or static cache")
