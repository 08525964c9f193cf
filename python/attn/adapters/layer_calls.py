# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a call of a model's layer looks like: to calls that are kept, to steps that are planned, and to messages."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..memory.devices import raw_stream
from .head_gates import LayerGates
from .padded_calls import Visible
from .planned_steps import LayerKind, fits, learn
from .span_mask import SpanMask
from .torch_spans import spans


def signature_of(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sinks: Tensor | None,
    scale: float,
    softcap: float | None,
    gates: LayerGates | None,
) -> tuple:
    """All that decides how a layer's tensors are attended to, beside the mask and but for their addresses."""
    device = query.device
    return (
        *(query.shape, query.stride(), query.dtype, device),
        *(key.shape, key.stride(), key.dtype, key.device),
        *(value.shape, value.stride(), value.dtype, value.device),
        None if sinks is None else (sinks.shape, sinks.device),
        *(scale, softcap, gates),
        raw_stream(device.index) if device.type == "cuda" else 0,
    )


@torch._dynamo.assume_constant_result
def step_fits(
    handle: str,
    q_heads: int,
    kv_heads: int,
    dim: int,
    value_dim: int,
    dtype: torch.dtype,
    scale: float,
    softcap: float,
    causal: bool,
    window: int,
) -> bool:
    """Whether a plan made on the device is for such a layer. Compiled code asks when it is traced."""
    kind = LayerKind(q_heads, kv_heads, dim, value_dim, dtype, scale, softcap)
    return fits(handle, kind, (causal, window))


def learn_layer(
    module: nn.Module,
    mask: SpanMask,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    softcap: float | None,
    sinks: Tensor | None,
    gates: LayerGates | None,
) -> None:
    """Remembers what steps of this model will have to plan for."""
    config = getattr(module, "config", None)
    if config is None or mask.shift or mask.positions is not None:
        return
    kind = None
    if sinks is None and gates is None:
        shape = query.shape[1], key.shape[1], query.shape[3], value.shape[3]
        kind = LayerKind(*shape, query.dtype, scale, softcap or 0.0)
    learn(config, (mask.causal, mask.window), kind)


def spans_of(query: Tensor, key: Tensor, causal: bool) -> Tensor:
    """Of layers without a mask, whose rows are the last ones."""
    zero, behind = torch.zeros((), dtype=torch.int64), key.shape[2] - query.shape[2] if causal else 0
    return spans(None, torch.tensor(behind), zero, query.shape[0], query.shape[2], key.shape[2], causal)


def visible_of(mask: SpanMask | None, query: Tensor, key: Tensor, causal: bool, window: int) -> Visible:
    """What rows see by the mask, or without one."""
    if mask is not None:
        return mask.visible
    return Visible(spans_of(query, key, causal), None, causal, window, 0)


def read_sinks(logits: Tensor | None) -> Tensor | None:
    """A logit for each head, as kernels read them."""
    return None if logits is None else logits.float().contiguous()


def layer_name(module: nn.Module) -> str:
    return type(module).__name__
