# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""DuoAttention's choice of heads, attached to the attention layers of a model."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from ..errors import SpecError, expected
from ..heads.choice import RETRIEVAL, HeadChoice
from ..heads.models import attention_layers
from .tensor_parallel import own_heads
from .transformers_fallback import NAME, OWN_NAMES


@dataclass(frozen=True)
class LayerGates:
    """The gates of one layer: the class of each KV head (0 retrieval, 1 streaming), and the tokens that streaming heads
    see."""

    classes: tuple[int, ...]
    sink: int
    recent: int


def apply_head_gates(model: nn.Module, choice: HeadChoice | None) -> None:
    """Let a model's KV heads differ: retrieval heads of the choice (from `attn.heads.Gates.select`) see everything,
    streaming heads the first and the last tokens. None lets all heads see everything again.

    The model must use attn_implementation="attn". One kernel serves all layers. If ranks share a model's heads, each
    rank takes its own heads from the choice. Raises SpecError. (Source: arXiv 2410.10819.)
    """
    layers = attention_layers(model)
    if choice is None:
        for layer in layers:
            layer.attn_head_gates = None
        return
    if not isinstance(choice, HeadChoice):
        hint = "Gates choose: attn.heads.Gates(gates).select(sparsity=0.5)"
        raise expected(SpecError, "choice", "an attn.heads.HeadChoice, or None", choice, hint=hint)
    implementation = layers[0].config._attn_implementation
    if implementation not in OWN_NAMES:
        raise SpecError(
            f'model: expected attn_implementation="{NAME}", got {implementation!r}; call '
            f'model.set_attn_implementation("{NAME}")'
        )
    kv_heads = layers[0].config.num_key_value_heads
    if (choice.layers, choice.kv_heads) != (len(layers), kv_heads):
        legal = f"{len(layers)} layers of {kv_heads} KV heads, as the model has"
        raise expected(SpecError, "choice", legal, f"{choice.layers} layers of {choice.kv_heads}")
    heads = own_heads(model, kv_heads)
    for layer in layers:
        own = tuple(choice.classes[layer.layer_idx][heads.start : heads.stop].tolist())
        all_retrieve = all(of_head == RETRIEVAL for of_head in own)
        layer.attn_head_gates = None if all_retrieve else LayerGates(own, choice.sink, choice.recent)
