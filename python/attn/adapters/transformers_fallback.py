# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of Transformers' models that attn does not serve: they run in PyTorch, or are refused by name.

`set_fallback` says which. Masks reach attention as objects (span_mask.py), and become real masks if a model computes
with them. Models with attention of their own never call attn; they are recognized when they are made.
"""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable

import torch
import transformers
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel

from ..errors import TensorError
from ..forks import make_guard
from .latent_layers import watch_latents
from .transformers_config import takes_paged

NAME = "attn"
PAGED_NAME = f"paged|{NAME}"  # Continuous batching uses this name.
ROW_NAME = "attn_row"  # With numerics="row".
OWN_NAMES = (NAME, ROW_NAME)
FLASH_NAME = "attn_flash"  # Transformers takes it for a flash implementation.
PAGED_FLASH_NAME = f"paged|{FLASH_NAME}"
PAGED_NAMES = PAGED_NAME, f"paged|{ROW_NAME}", PAGED_FLASH_NAME
NAMES = (*OWN_NAMES, FLASH_NAME, *PAGED_NAMES)


class FallbackWarning(UserWarning):
    """A computation ran in PyTorch because attn does not serve it. Issued once for each model and cause."""


_falls_back = True
_warned: set[tuple[str, str]] = set()
_guard = make_guard()


def set_fallback(allowed: bool) -> bool:
    """Set what happens when a model asks for attention that attn does not serve.

    True (the default): it runs in PyTorch (SDPA, or plain operations if SDPA has no soft cap or sinks), and a
    FallbackWarning names the model and the cause, once for each. False: TensorError, which names both. Returns the
    previous setting. Applies to the process; models with attention of their own are recognized when they are made.
    """
    global _falls_back
    before, _falls_back = _falls_back, bool(allowed)
    return before


def refuse_in_pytorch(model: str, cause: str, numerics: str | None) -> None:
    """Raise a TensorError for a call that attn does not serve, if PyTorch's results would not do."""
    if numerics is not None:
        raise TensorError(
            f'{model}: {cause}, which attn does not serve, and numerics="{numerics}" has no fallback; load the model with '
            f'attn_implementation="{NAME}", or another'
        )


@torch._dynamo.assume_constant_result
def unserved(model: str, cause: str, detail: str = "") -> None:
    """Warn, or raise a TensorError. Compiled code does it when it is traced."""
    told = f"{model}: {cause}{detail}, which attn does not serve"
    if not _falls_back:
        raise TensorError(
            f"{told}; take another attn_implementation, or allow PyTorch's with attn.transformers.set_fallback(True)"
        )
    with _guard:
        if (model, cause) in _warned:
            return
        _warned.add((model, cause))
    warnings.warn(
        f"attn: {told}: it runs in PyTorch (attn.transformers.set_fallback(False) refuses instead)",
        FallbackWarning,
        stacklevel=2,
    )


# --- Attention in PyTorch ------------------------------------------------------------------------------------


def attend_in_pytorch(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    dropout: float,
    scale: float,
    causal: bool,
    softcap: float,
    sinks: Tensor | None,
    bias: Tensor | None = None,
) -> Tensor:
    """Compute `attention_forward` without attn. `mask`: bool or added, [batch, 1 or q_heads, rows, tokens]; `causal`
    applies without a mask; `bias`: added, of a similar shape. `sinks`: [q_heads], or [batch, q_heads, rows, 1]."""
    group = query.shape[1] // key.shape[1]
    if group > 1:
        key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    rows, tokens = query.shape[2], key.shape[2]
    if mask is None and causal:  # The rows are the last ones.
        mask = torch.ones(rows, tokens, dtype=torch.bool, device=query.device).tril(tokens - rows)
    if bias is not None:
        if mask is None:
            mask = bias
        elif mask.dtype == torch.bool:
            mask = torch.where(mask, bias, torch.finfo(bias.dtype).min)
        else:
            mask = mask + bias
    if not softcap and sinks is None:
        if mask is not None and mask.dtype != torch.bool:
            mask = mask.to(query.dtype)
        out = nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=dropout, scale=scale
        )
        return out.transpose(1, 2).contiguous()
    scores = (query @ key.transpose(2, 3)).float() * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    if sinks is not None:
        of_heads = sinks.float() if sinks.dim() == 4 else sinks.float().reshape(1, -1, 1, 1)
        of_heads = of_heads.expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, of_heads], -1)
    weights = torch.softmax(scores, -1).nan_to_num(0.0)[..., :tokens].to(query.dtype)
    return (nn.functional.dropout(weights, dropout) @ value).transpose(1, 2).contiguous()


# --- Models with attention of their own ----------------------------------------------------------------------


def own_attention(model: type[nn.Module]) -> str | None:
    """Say why a model's attention never calls a registered implementation; None if it does. Only the file that the
    model is written in shows it: Transformers checks in the same way whether an implementation can be set."""
    home = sys.modules.get(model.__module__)
    try:
        source = inspect.getsource(home)
    except (OSError, TypeError):  # For example, a model that was written in a notebook.
        return None
    for of_module in vars(home).values():
        table = isinstance(of_module, dict) and "eager" in of_module and NAME not in of_module
        if table and all(isinstance(layer, type) for layer in of_module.values()):
            return "has a class of attention for each implementation that it knows"
    if '_attn_implementation in ("eager", "sdpa")' in source:
        return "selects tokens in a mask that it makes for eager attention and SDPA only"
    layers = (
        layer
        for layer in vars(home).values()
        if isinstance(layer, type) and layer.__module__ == home.__name__ and "Attention" in layer.__name__
    )
    if "ALL_ATTENTION_FUNCTIONS" not in source and any(issubclass(layer, nn.Module) for layer in layers):
        return "has attention of its own that calls no attn_implementation"
    return None


def _checked(ask: Callable) -> Callable:
    """Wrap PreTrainedModel.get_correct_attn_implementation, which replaces SDPA by eager attention for a model without
    SDPA: do the same for attn."""

    def get_correct_attn_implementation(
        self: PreTrainedModel, requested_attention: str | None, is_init_check: bool = False
    ) -> str:
        if requested_attention == NAME:
            watch_latents(type(self), NAME)
        if requested_attention in NAMES and (cause := own_attention(type(self))):
            if requested_attention in PAGED_NAMES:
                raise TensorError(
                    f"generate_batch: {type(self).__name__}: {cause}, which attn does not serve"
                )
            refuse_in_pytorch(type(self).__name__, cause, "row" if requested_attention == ROW_NAME else None)
            unserved(type(self).__name__, cause)
            requested_attention = None
        return ask(self, requested_attention, is_init_check)

    get_correct_attn_implementation.attn_asks = ask
    return get_correct_attn_implementation


def _checked_batching(begin: Callable) -> Callable:
    """Wrap GenerationMixin.init_continuous_batching, which `generate_batch` calls. A Transformers that takes no unknown
    implementation would refuse attn without a way out, or switch to FlashAttention if that is installed."""

    @functools.wraps(begin)
    def init_continuous_batching(self: GenerationMixin, *args: object, **kwargs: object) -> object:
        found = self.config.get_text_config(decoder=True)._attn_implementation
        if found in (*OWN_NAMES, *(f"paged|{name}" for name in OWN_NAMES)) and not takes_paged(PAGED_NAME):
            raise TensorError(
                f"generate_batch: Transformers {transformers.__version__} attends by eager attention, SDPA and "
                f'FlashAttention alone, and the model has attn_implementation="{found}"; take "attn_flash", '
                "attn.transformers.Engine, or Transformers 5.12"
            )
        return begin(self, *args, **kwargs)

    init_continuous_batching.attn_begins = begin
    return init_continuous_batching


def watch_models() -> None:
    """Watch for models with attention of their own from now on, which fall back or are refused when they are made, and
    for batches in which Transformers would not call attn."""
    ask = PreTrainedModel.get_correct_attn_implementation
    if not hasattr(ask, "attn_asks"):
        PreTrainedModel.get_correct_attn_implementation = _checked(ask)
    begin = getattr(GenerationMixin, "init_continuous_batching", None)
    if begin is not None and not hasattr(begin, "attn_begins"):
        GenerationMixin.init_continuous_batching = _checked_batching(begin)
