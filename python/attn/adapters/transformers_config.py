# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The models and formats that attn's caches take behind Transformers' interface, and the differences between its
versions. Nothing here reads a version's number: each fact is found in the installed Transformers.

    CACHE          the name of the argument for a cache: `past_key_values` before 5.24, `cache` since
    kept_columns   how many columns `crop` of a cache keeps: 5.12 counts what stays, later versions what goes
    takes_paged    whether continuous batching takes an implementation by the name "paged|attn": no longer since 5.19
"""

from __future__ import annotations

import functools
import inspect
from types import SimpleNamespace
from typing import Any

from torch import nn
from transformers.cache_utils import DynamicLayer
from transformers.masking_utils import create_masks_for_generate

from ..errors import PlanError, closest, expected
from ..memory.formats import part_names

_NAMES = ("cache", "past_key_values")


def cache_name(function: Any) -> str | None:
    """Return the argument of a function that takes a cache; None if there is none."""
    taken = inspect.signature(function).parameters
    return next((name for name in _NAMES if name in taken), None)


CACHE: str = cache_name(create_masks_for_generate) or _NAMES[0]
"""The name in Transformers' own code, and in messages."""

_CROPS_BY_REMOVAL = "tokens_to_remove" in inspect.signature(DynamicLayer.crop).parameters


def cache_argument(model: nn.Module, cache: object) -> dict[str, object]:
    """Return the argument with which `model` is called with a cache. Models from elsewhere may have the older name."""
    return {cache_name(model.forward) or CACHE: cache}


def kept_columns(given: int, length: int) -> int:
    """Return how many of the `length` columns of a cache `crop(given)` keeps: all but `-given` if it is negative, the
    first `given` if it is positive. `crop(0)` keeps none if Transformers counts what stays, and all if it counts what
    goes."""
    if given < 0 or (given == 0 and _CROPS_BY_REMOVAL):
        return max(length + given, 0)
    return min(given, length)


@functools.lru_cache(maxsize=1)
def takes_paged(name: str) -> bool:
    """Whether `generate_batch` uses the implementation of this name, "paged|…", as its manager of batches says."""
    try:
        from transformers.generation.continuous_batching.continuous_api import ContinuousBatchingManager
    except ImportError:
        return True  # Transformers says itself that it has no continuous batching.
    switch = getattr(ContinuousBatchingManager, "switch_to_cb_friendly_attn", None)
    if switch is None:
        return True
    asked = SimpleNamespace(config=SimpleNamespace(_attn_implementation=name), _supports_flash_attn=False)
    try:
        switch(SimpleNamespace(_original_attn_impl=None), asked)
    except ValueError:
        return False
    return True


def check_formats(given: dict, cache: str = "PagedCache") -> dict:
    """Check the storage formats of the cache of that name, and return them. PlanError for formats that a model's cache
    cannot have."""
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
    """Raise a PlanError for models whose layers are not all alike, or have sliding windows if the cache of that name
    takes none."""
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
