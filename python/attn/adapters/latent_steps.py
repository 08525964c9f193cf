# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model's forward pass over pages of latents: writes new lines into pages, and attends to all lines there."""

from __future__ import annotations

from torch import Tensor, nn

from ..errors import TensorError
from ..memory.views import needs_gradient
from .latent_layers import LatentCall
from .layer_calls import layer_name, other_layer, read_sinks
from .paged_steps import Asked, begin_step, run_step
from .planned_pages import attend_paged_step, fits_pages
from .planned_steps import LayerKind
from .span_mask import SpanMask, is_causal_or_window
from .transformers_causes import unserved_cause
from .transformers_config import CACHE


def attend_latents(
    call: LatentCall,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    dropout: float,
    scale: float,
    softcap: float,
    sinks: Tensor | None,
) -> Tensor | None:
    """Write a layer's new latents into its pages, and compute attention over all tokens there in latent form.

    query   [batch, heads, rows, dim]
    key     [batch, heads, rows, dim], the new ones; only the rotated features are read
    value   [batch, heads, rows, value_dim], the new ones, which are not read

    Returns [batch, rows, heads, value_dim], or None if the rows have nothing before them: they attend to `key` and `value`,
    as without a cache. Raises TensorError for calls that attn does not serve."""
    layer = call.layer
    assert layer is not None
    see = mask.see if isinstance(mask, SpanMask) else ""
    gates = module.__dict__.get("attn_head_gates")
    cause = unserved_cause(query, key, value, None, dropout, scale, see or "all", softcap, sinks, gates)
    if cause is None and (
        not isinstance(mask, SpanMask) or mask.positions is not None or not is_causal_or_window(see)
    ):
        cause = "a mask that is more than causal with padding"
    if cause is None and gates is not None:
        cause = "head gates over latents"
    if cause is None and needs_gradient(query, key, value, sinks):
        cause = "a backward pass over a cache in pages (use torch.no_grad())"
    if cause is not None:
        raise TensorError(f"{CACHE}: {layer_name(module)}: {cause}, which attn does not serve from pages")
    lines, value_dim = call.lines(key), value.shape[3]
    asked = Asked(query.shape[1], query.dtype, scale, see, softcap, sinks is not None, None)
    if mask.handle:
        return _attend_planned(call, module, asked, mask.handle, query, lines, value_dim, sinks)
    batch, heads, rows, _ = query.shape
    step = begin_step(layer, lines, lines[..., : lines.shape[3] - call.rotated], mask.host_spans())
    if step.change is not None:
        step.change.write(layer.index, step.take(lines).contiguous())
    if call.expands:
        step.planned.setdefault(asked, None)
        return None
    if step.change is None:
        return query.new_zeros(batch, rows, heads, value_dim)
    absorbed = call.absorb(step.take(query), value_dim).contiguous()
    out = run_step(layer, step, asked, absorbed, sinks)
    return step.put(call.expand(out, value_dim).contiguous(), batch)


def _attend_planned(
    call: LatentCall,
    module: nn.Module,
    asked: Asked,
    handle: str,
    query: Tensor,
    lines: Tensor,
    value_dim: int,
    sinks: Tensor | None,
) -> Tensor:
    """Write new lines, and compute attention of all rows in latent form, in a step that was planned on the device.
    TensorError if the layer differs from the plan."""
    batch, heads, rows, _ = query.shape
    dims = lines.shape[3], lines.shape[3] - call.rotated
    kind = LayerKind(heads, 1, *dims, asked.dtype, asked.scale, asked.softcap)
    if not fits_pages(handle, kind, asked.see, asked.sinks):
        raise other_layer(module)
    of_rows, new = (tensor.transpose(1, 2).flatten(0, 1).contiguous() for tensor in (query, lines))
    absorbed = call.absorb(of_rows, value_dim).contiguous()
    out = attend_paged_step(absorbed, new, None, read_sinks(sinks), handle, module.layer_idx)
    return call.expand(out, value_dim).contiguous().view(batch, rows, heads, value_dim)
