# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model's forward pass in steps that are recorded: compiled, and under masks that are planned on the device."""

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
from ..adapters.transformers_fallback import NAME
from .decoder_checks import not_planned

_numbers = itertools.count(1)


def compiled_forward(model: nn.Module, options: dict | None) -> Callable:
    """The model, under these options of torch.compile; None compiles nothing.

    It is called in code of its own: torch.compile counts what it compiled by the code that was compiled, and from the eighth
    time on runs it as it is without an error. All decoders of a process would share that number."""
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
    """What layers are told they see in a step of one row for each of `like [sequences, 1, 0]`. PlanError where attn would have to
    plan it on the host."""
    make_masks = getattr(model, "create_masks_for_generate", create_masks_for_generate)
    masks = make_masks(
        config=model.config,
        inputs_embeds=like,
        attention_mask=mask,
        position_ids=position,
        **{cache_name(make_masks) or CACHE: cache},
    )
    if model.config.get_text_config(decoder=True)._attn_implementation == NAME:
        for each in masks.values() if isinstance(masks, dict) else (masks,):
            if not isinstance(each, SpanMask) or not each.handle:
                raise not_planned(type(model).__name__)
    return masks
