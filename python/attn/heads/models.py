# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Replaces the attention of Transformers' models for a while, to observe it."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from ..errors import SpecError, expected

NAME = "attn_heads"

Attend = Callable[[int, Tensor, Tensor, Tensor, float, int], Tensor]
"""A function of the layer's number, q [batch, q_heads, tokens, dim], k and v [batch, kv_heads, tokens, dim], the scale
and the window (0: none); it returns the output [batch, q_heads, tokens, value_dim]."""


def attention_layers(model: object) -> list[nn.Module]:
    """Return the attention of each layer of a decoder, in order. SpecError if there is none."""
    modules = model.modules() if isinstance(model, nn.Module) else ()
    layers = [m for m in modules if hasattr(m, "layer_idx") and hasattr(m, "num_key_value_groups")]
    if not layers:
        raise SpecError(
            "model: expected a decoder of Transformers with grouped attention, found no such layer"
        )
    return layers


class Decoder:
    """A model without its head, which computes hidden states with a given attention."""

    def __init__(self, model: nn.Module):
        from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

        layers = attention_layers(model)
        if not isinstance(model, PreTrainedModel):
            raise expected(SpecError, "model", "a model of Transformers", type(model).__name__)
        config = layers[0].config
        if any(layer.config is not config for layer in layers) or config is not model.config:
            raise SpecError(f"model: {type(model).__name__} has several decoders; give the one to look into")
        kinds = {name for name in getattr(config, "layer_types", None) or ()}
        strange = kinds - {"full_attention", "sliding_attention"}
        if strange:
            raise SpecError(f"model: layers of {', '.join(sorted(strange))}, whose heads cannot stream")
        if (ranks := getattr(model, "_tp_size", None) or 1) > 1:
            raise SpecError(
                f"model: expected all heads in one process, got {type(model).__name__} divided by tensor parallelism over "
                f"{ranks} ranks"
            )
        self.model, self.layers, self.config = model, layers, config
        self.kv_heads: int = config.num_key_value_heads
        weight = next(model.parameters())
        self.device, self.dtype = weight.device, weight.dtype
        AttentionInterface.register(NAME, _forward)
        AttentionMaskInterface.register(NAME, lambda *args, **kwargs: None)

    @contextlib.contextmanager
    def at_rest(self) -> Iterator[None]:
        """Disable gradients of its weights and dropout, and replace its attention; restore all at the end."""
        before, training = self.config._attn_implementation, self.model.training
        wanting = [p for p in self.model.parameters() if p.requires_grad]
        self.model.eval()
        for parameter in wanting:
            parameter.requires_grad_(False)
        self.config._attn_implementation = NAME
        try:
            yield
        finally:
            self.config._attn_implementation = before
            self.model.train(training)
            for parameter in wanting:
                parameter.requires_grad_(True)

    def hidden(self, tokens: Tensor, attend: Attend) -> Tensor:
        """Return the last layer's hidden states after the norm, [batch, tokens, width], of int64 [batch, tokens]."""
        return self._through(self.model.base_model, tokens, attend).last_hidden_state

    def logits(self, tokens: Tensor, attend: Attend, rows: Tensor) -> Tensor:
        """Return the logits of the whole model at rows int64 [count], [batch, count, vocabulary]. Models that cannot
        leave out the other rows compute them, too."""
        rows = rows.to(self.device)
        if "logits_to_keep" in inspect.signature(self.model.forward).parameters:
            return self._through(self.model, tokens, attend, logits_to_keep=rows).logits
        return self._through(self.model, tokens, attend).logits[:, rows]

    def _through(self, model: nn.Module, tokens: Tensor, attend: Attend, **options: Tensor):
        for layer in self.layers:
            layer.attn_attends = attend
        try:
            return model(input_ids=tokens.to(self.device), use_cache=False, **options)
        finally:
            for layer in self.layers:
                del layer.attn_attends


def _forward(
    module, query, key, value, attention_mask, dropout=0.0, scaling=None, sliding_window=None, **kwargs
):
    """Compute a layer's attention of one text, without padding, in one pass."""
    for name in ("softcap", "s_aux"):
        if kwargs.get(name) is not None:
            raise SpecError(f"model: {type(module).__name__} has {name}, with which heads are not identified")
    scale = query.shape[3] ** -0.5 if scaling is None else scaling
    out = module.attn_attends(module.layer_idx, query, key, value, scale, sliding_window or 0)
    return out.to(query.dtype).transpose(1, 2), None


def texts_of(data: object, step: int) -> tuple[Tensor, Tensor]:
    """Return the tokens of a step and the mask of those that count, from `data`. SpecError for anything else."""
    if not callable(data):
        raise expected(SpecError, "data", "a function of a step's number, as Passkeys is", data)
    found = data(step)
    if not isinstance(found, tuple) or len(found) < 2:
        raise expected(SpecError, f"data({step})", "tokens and which of them count", found)
    tokens, counted = found[:2]
    if tokens.ndim != 2 or tokens.is_floating_point() or counted.dtype != torch.bool:
        raise expected(
            SpecError, f"data({step})", "integers and bool [batch, tokens]", (tokens.dtype, counted.dtype)
        )
    if tokens.shape != counted.shape or not counted.any():
        legal = f"which tokens of {list(tokens.shape)} count, one or more"
        raise expected(SpecError, f"data({step})", legal, list(counted.shape))
    return tokens, counted
