"""attn in Hugging Face Transformers: importing this module registers the attention implementation "attn".

    import attn.transformers
    model = AutoModelForCausalLM.from_pretrained(..., dtype=torch.bfloat16, attn_implementation="attn")
    model.generate(**inputs)                                              # dynamic and static caches
    model.generate(**inputs, past_key_values=attn.transformers.PagedCache(model.config, pages=4096))
    attn.transformers.apply_head_gates(model, "full_attention_heads.tsv", share=0.5, sink=64, recent=256)

What a model asks of its attention becomes a description: causal or not, sliding windows, soft caps, learned sinks,
grouped heads. No mask is built: of padding only where each sequence begins and ends is kept. What has no description
is refused, with the name of what the model asked for.
(Source: transformers' AttentionInterface and AttentionMaskInterface.)
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import torch
import transformers.masking_utils as masking
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from . import torch_ops
from .errors import SpecError, TensorError, expected
from .head_gates import RETRIEVAL, HeadGates, head_gates, read_head_gates
from .transformers_cache import PagedCache, attend_pages

__all__ = ["PagedCache", "apply_head_gates", "attention_forward", "attention_mask"]

NAME = "attn"


def attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    is_causal: bool | None = None,
    s_aux: Tensor | None = None,
    **kwargs: object,
) -> tuple[Tensor, None]:
    """What a model's layer calls: `query [batch, q_heads, rows, dim]` over `key, value [batch, kv_heads, tokens, dim]`.
    Gives `[batch, rows, q_heads, value_dim]`, and no weights: they are never in memory."""
    if dropout:
        raise TensorError(
            f"dropout: attn has none, got {dropout}; call model.eval(), or set attention_dropout to 0"
        )
    if query.dtype not in (torch.bfloat16, torch.float16):
        raise TensorError(
            f"query: expected bfloat16 or float16, got {query.dtype}; load the model with dtype=torch.bfloat16"
        )
    torch_ops.refuse_gradients(query=query, key=key, value=value)
    if attention_mask is not None and not is_spans(attention_mask):
        raise TensorError(
            f"attention_mask: expected a mask of padding [batch, tokens], got one for each row and token, of shape "
            f'{list(attention_mask.shape)}; attn_implementation="eager" takes those'
        )
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    if attention_mask is None:
        zero = torch.zeros((), dtype=torch.int64)
        behind = torch.tensor(key.shape[2] - query.shape[2] if causal else 0)
        attention_mask = torch_ops.spans(
            None, behind, zero, query.shape[0], query.shape[2], key.shape[2], bool(causal)
        )
    gates = getattr(module, "attn_head_gates", None)
    scale = scaling if scaling is not None else query.shape[3] ** -0.5
    if (layer := getattr(key, "attn_layer", None)) is not None:
        out = attend_pages(
            layer,
            query,
            key,
            value,
            attention_mask,
            scale=scale,
            causal=bool(causal),
            window=sliding_window or 0,
            softcap=softcap or 0.0,
            sinks=s_aux,
            gates=gates,
        )
    else:
        out = torch_ops.attend_spans(
            query,
            key,
            value,
            attention_mask,
            scale,
            bool(causal),
            sliding_window or 0,
            softcap or 0.0,
            s_aux,
            list(gates.classes) if gates else None,
            [gates.sink, gates.recent] if gates else None,
        )
    return out, None


def attention_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int | Tensor = 0,
    mask_function: Callable = masking.causal_mask_function,
    attention_mask: Tensor | None = None,
    use_vmap: bool = False,
    allow_is_causal_skip: bool = True,
    **kwargs: object,
) -> Tensor:
    """In place of a mask: the span of keys of each sequence (`attn::spans`). TensorError where the model overlays
    something on its mask that is neither padding nor a causal window."""
    # Compiled code cannot look into a function. There a joined one is a sliding window: with packed sequences, the
    # only other one, nothing may be skipped, more than one row is at hand, and no cache.
    alone = not use_vmap and (allow_is_causal_skip or isinstance(q_offset, Tensor) or q_length == 1)
    causal = is_causal(mask_function, joins_window=torch.compiler.is_compiling() and alone)
    return torch_ops.spans(
        attention_mask, _tensor(q_offset), _tensor(kv_offset), batch_size, q_length, kv_length, causal
    )


def is_spans(mask: Tensor) -> bool:
    return mask.dtype == torch.int32 and mask.dim() == 4 and tuple(mask.shape[1:]) == (1, 1, 4)


def _tensor(number: int | Tensor) -> Tensor:
    return number if isinstance(number, Tensor) else torch.tensor(number)


def is_causal(mask_function: Callable, joins_window: bool = False) -> bool:
    """Whether a mask function of Transformers is causal or shows all. The window of a sliding one comes to
    `attention_forward` as a number. `joins_window`: of functions that were joined it is known that they are one."""
    if mask_function is masking.causal_mask_function:
        return True
    if mask_function is masking.bidirectional_mask_function:
        return False
    if joins_window and mask_function.__qualname__ == "and_masks.<locals>.and_mask":
        return True
    parts = _parts(mask_function)
    if (
        len(parts) == 2
        and parts[1] is masking.causal_mask_function
        and _made_by(parts[0]) == "sliding_window_overlay"
    ):
        return True
    names = " & ".join(_made_by(part) for part in parts)
    raise TensorError(
        f"attention_mask: expected a causal mask, a sliding window or none, with padding, got {names}; "
        'attn_implementation="eager" or "sdpa" takes others'
    )


def _parts(mask_function: Callable) -> tuple[Callable, ...]:
    """The functions that and_masks joined."""
    if _made_by(mask_function) != "and_masks":
        return (mask_function,)
    (joined,) = (cell.cell_contents for cell in mask_function.__closure__)
    return joined


def _made_by(function: Callable) -> str:
    return getattr(function, "__qualname__", "a callable").partition(".<locals>")[0]


# --- DuoAttention --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LayerGates:
    """Of one layer: the class of each KV head (0 retrieval, 1 streaming), and what streaming heads see."""

    classes: tuple[int, ...]
    sink: int
    recent: int


def apply_head_gates(
    model: nn.Module,
    gates: HeadGates | str | os.PathLike | object | None,
    *,
    share: float | None = None,
    threshold: float | None = None,
    sink: int = 64,
    recent: int = 256,
) -> None:
    """Lets a model's heads differ: those with large gates see everything, the others the first `sink` and the `recent`
    last tokens.

    gates      a gate per layer and KV head: a HeadGates, a file as DuoAttention publishes it, numbers [layers,
               kv_heads]; None lets all heads see everything again
    share      of all heads that retrieve, 0 to 1; or
    threshold  above which a gate makes its head retrieve

    The model has to use attn_implementation="attn". One kernel serves all layers. Errors: SpecError.
    (Source: arXiv 2410.10819.)
    """
    layers = [m for m in model.modules() if hasattr(m, "layer_idx") and hasattr(m, "num_key_value_groups")]
    if not layers:
        raise SpecError(
            "model: expected a decoder of Transformers with grouped attention, found no such layer"
        )
    if gates is None:
        for layer in layers:
            layer.attn_head_gates = None
        return
    implementation = layers[0].config._attn_implementation
    if implementation != NAME:
        raise SpecError(
            f'model: expected attn_implementation="{NAME}", got {implementation!r}; call '
            f'model.set_attn_implementation("{NAME}")'
        )
    if (share is None) == (threshold is None):
        raise SpecError("share, threshold: expected one of the two, as in share=0.5")
    for name, size in (("sink", sink), ("recent", recent)):
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < 2**31:
            raise expected(SpecError, name, "a number of tokens", size)
    if isinstance(gates, (str, os.PathLike)):
        gates = read_head_gates(gates)
    elif not isinstance(gates, HeadGates):
        gates = head_gates(gates)
    kv_heads = layers[0].config.num_key_value_heads
    if (gates.layers, gates.kv_heads) != (len(layers), kv_heads):
        legal = f"{len(layers)} layers of {kv_heads} KV heads, as the model has"
        raise expected(SpecError, "gates", legal, f"{gates.layers} layers of {gates.kv_heads}")
    classes = gates.by_share(share) if share is not None else gates.above(threshold)
    for layer in layers:
        own = tuple(classes[layer.layer_idx].tolist())
        all_retrieve = all(of_head == RETRIEVAL for of_head in own)
        layer.attn_head_gates = None if all_retrieve else LayerGates(own, sink, recent)


AttentionInterface.register(NAME, attention_forward)
AttentionMaskInterface.register(NAME, attention_mask)
