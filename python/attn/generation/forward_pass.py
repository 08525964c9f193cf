# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model's forward pass in recorded steps: compiled, and with masks that are planned on the device."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import FunctionType

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.masking_utils import create_masks_for_generate

from ..adapters.span_mask import SpanMask
from ..adapters.transformers_config import CACHE, cache_name
from ..adapters.transformers_fallback import OWN_NAMES
from .decoder_checks import not_planned

_numbers = itertools.count(1)


def compiled_forward(model: nn.Module, options: dict | None) -> Callable:
    """Return the model, compiled with these options of torch.compile; None compiles nothing.

    Each call compiles code of its own. torch.compile counts compilations by code object, and from the eighth on runs
    the code uncompiled, without an error; all decoders of a process would share that count."""
    if options is None:
        return model

    def call(**inputs):
        return model(**inputs)

    name = f"decoding_step_{next(_numbers)}"
    own = FunctionType(call.__code__.replace(co_name=name), call.__globals__, name, None, call.__closure__)
    return torch.compile(own, **{"dynamic": False} | options)


def step_masks(
    model: nn.Module, like: Tensor, mask: Tensor, cache: Cache, position: Tensor
) -> Tensor | dict[str, Tensor]:
    """Return the masks of a step of one row for each of `like [sequences, 1, 0]`. PlanError if attn would have to plan
    it on the host."""
    make_masks = getattr(model, "create_masks_for_generate", create_masks_for_generate)
    masks = make_masks(
        config=model.config,
        inputs_embeds=like,
        attention_mask=mask,
        position_ids=position,
        **{cache_name(make_masks) or CACHE: cache},
    )
    if model.config.get_text_config(decoder=True)._attn_implementation in OWN_NAMES:
        for each in masks.values() if isinstance(masks, dict) else (masks,):
            if not isinstance(each, SpanMask) or not each.handle:
                raise not_planned(type(model).__name__)
    return masks
