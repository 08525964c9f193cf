# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The form of a call of a model's layer, by which calls are kept, steps planned, and messages written."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..errors import PlanError, TensorError
from ..memory.devices import raw_stream
from .head_gates import LayerGates
from .latent_layers import LatentCall
from .planned_pages import attend_paged_step, dtype_of_pages, fits_pages
from .planned_steps import LayerKind, attend_step, fits, learn
from .rows.mask_functions import ALL, CAUSAL
from .rows.padded_calls import PaddedCall, Visible
from .span_mask import SpanMask, ends_at_rows, is_causal_or_window
from .torch_spans import spans
from .transformers_cache import PagedKeys, layer_of

try:
    from torch._C._dynamo.guards import TensorGuards
except ImportError:  # It is a private name of PyTorch.
    TensorGuards = None


def signature_of(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sinks: Tensor | None,
    scale: float,
    softcap: float | None,
    gates: LayerGates | None,
) -> tuple:
    """Return everything that decides how attention of a layer's tensors is computed, except the mask and addresses."""
    device = query.device
    return (
        *(query.shape, query.stride(), query.dtype, device),
        *(key.shape, key.stride(), key.dtype, key.device),
        *(value.shape, value.stride(), value.dtype, value.device),
        None if sinks is None else (sinks.shape, sinks.device),
        *(scale, softcap, gates),
        raw_stream(device.index) if device.type == "cuda" else 0,
    )


def narrowed(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, call: LatentCall | None
) -> tuple[Tensor, ...] | None:
    """Return float32 queries, keys and values in the 16 bits of a cache that was made for them (PagedCache(dtype=...));
    None if they stay as they are. `call`: over a cache of latents."""
    if query.dtype != torch.float32:
        return None
    layer = layer_of(key)
    if isinstance(mask, SpanMask) and mask.handle and mask.plan is None:
        dtype = _narrow(mask.handle)
    elif call is not None or layer is not None:
        dtype = getattr((layer if call is None else call.layer).cache, "_dtype", None)
    else:
        dtype = None
    if dtype not in (torch.bfloat16, torch.float16):
        return None
    new = key.to(dtype) if layer is None else PagedKeys(key.keys.to(dtype), layer)
    return query.to(dtype), new, value.to(dtype)


@torch._dynamo.assume_constant_result
def _narrow(handle: str) -> torch.dtype:
    return dtype_of_pages(handle)


def _look(tensor: Tensor) -> tuple:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def remember(
    mask: SpanMask,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    options: tuple,
    call: PaddedCall,
) -> None:
    """Remember a layer's call for `attend_again`: later layers most likely repeat it, without sinks and gates. The call
    of a mask's first layer is remembered for the next step, too."""
    index = query.device.index if query.is_cuda else None
    if mask.last is None and mask.end:
        steps = _local.__dict__.setdefault("steps", {})
        if len(steps) >= _MOST_STEPS:  # They hold plans.
            steps.clear()
        same = _look(query), _look_of_tokens(key), _look_of_tokens(value), options
        layers = _Layers(same, _config_of(module), index, call, mask.end)
        steps[mask.see] = mask.layers = layers
    mask.last = _is_like(query, key, value), options, index, call


def _is_like(*tensors: Tensor) -> Callable[..., bool]:
    """Return a function that says whether other tensors have the same types, devices, sizes and strides, and the same
    treatment by autocast and autograd. PyTorch's guard of compiled code does it in one call that reads no attribute;
    without it each attribute is read."""
    if TensorGuards is not None:
        sizes, strides = [list(t.shape) for t in tensors], [list(t.stride()) for t in tensors]
        return TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
    seen = [(type(t), *_look(t)) for t in tensors]

    def check(*others: Tensor) -> bool:
        if torch._C._is_any_autocast_enabled():
            return False
        return [(type(t), *_look(t)) for t in others] == seen

    return check


@dataclass(eq=False)
class _Layers:
    """The layers that attend through masks of one kind: the form of their tensors without the number of tokens, their
    configuration, their call, and the last end that they saw. `came`: how many came in this step; `expected`: how many
    came in the step before, if this is a step of generation."""

    same: tuple
    config: weakref.ref | None
    index: int | None
    call: PaddedCall
    end: int
    came: int = 1
    expected: int = 0

    def plan_ahead(self) -> None:
        """Plan the next step early. After a step's last layer the host is ahead of a GPU; before the next step's first
        layer the GPU waits for the host. If the next step is a different one, its plan is made as if this plan had not
        been."""
        with contextlib.suppress(PlanError):  # The caller of that step gets the error.
            self.call = self.call.later(self.end + 1, self.call.tokens + 1) or self.call


_MOST_STEPS = 16  # Kinds of masks in a thread.
_local = threading.local()


def _look_of_tokens(tensor: Tensor) -> tuple:
    """Return the form of keys or values without the number of tokens."""
    batch, heads, _, dim = tensor.shape
    return batch, heads, dim, tensor.dtype, tensor.device


def _config_of(module: nn.Module) -> weakref.ref | None:
    """Return a reference to a module's configuration, which identifies the model of a planned step (learn_layer).
    Compare it by identity: references are equal if configurations are, as those of two models may be."""
    config = getattr(module, "config", None)
    return None if config is None else weakref.ref(config)


def _a_step_later(
    mask: SpanMask, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, options: tuple
) -> PaddedCall | None:
    """Return the call of a mask's first layer if it continues the step before, with only more tokens at the end; else
    None. The checks of the earlier call then still hold, and its plan only grows."""
    known = _local.__dict__.get("steps", {}).get(mask.see)
    if known is None:
        return None
    index, call = known.index, known.call
    batch, _, rows, _ = query.shape
    tokens = key.shape[2]
    if (
        not call.alive
        or known.config is not _config_of(module)
        or known.same != (_look(query), _look_of_tokens(key), _look_of_tokens(value), options)
        or value.shape[2] != tokens
        or mask.shape != (batch, 1, rows, tokens)
        or not (key.is_contiguous() and value.is_contiguous())
        or (index is not None and raw_stream(index) != call.stream)
    ):
        return None
    later = call.later(mask.end, tokens)
    if later is not None:
        known.expected = known.came if rows == 1 and mask.end == known.end + 1 else 0
        known.call, known.end, known.came, mask.layers = later, mask.end, 1, known
        mask.last = _is_like(query, key, value), options, index, later
    return later


def attend_again(
    mask: SpanMask,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout: float,
    options: tuple,
    sinks: Tensor | None,
) -> Tensor | None:
    """Repeat the call of the layer before, with other addresses; None if the call differs. It checks everything that
    decides a layer's call, and each thing once: between two launches of a model's step this is all that Python does."""
    last = mask.last
    if dropout or sinks is not None or torch.is_grad_enabled() or "attn_head_gates" in module.__dict__:
        return None
    if last is not None:
        is_like, known, index, call = last
        if not is_like(query, key, value) or options != known or not call.alive:
            return None
        if index is not None and raw_stream(index) != call.stream:
            return None
        out, layers = call(query, key, value, None), mask.layers
        if layers is not None:
            layers.came += 1
            if layers.came == layers.expected and layers.call is call:
                layers.plan_ahead()
        return out
    if not mask.end or not type(query) is type(key) is type(value) is Tensor:
        return None
    if torch._C._is_any_autocast_enabled():
        return None
    later = _a_step_later(mask, module, query, key, value, options)
    return None if later is None else later(query, key, value, None)


@torch._dynamo.assume_constant_result
def _step_fits(
    handle: str,
    in_pages: bool,
    q_heads: int,
    kv_heads: int,
    dim: int,
    value_dim: int,
    dtype: torch.dtype,
    scale: float,
    softcap: float,
    see: str,
    sinks: bool,
    numerics: str | None,
) -> bool:
    """Whether a plan made on the device serves such a layer. Compiled code asks when it is traced."""
    kind = LayerKind(q_heads, kv_heads, dim, value_dim, dtype, scale, softcap, numerics)
    return fits_pages(handle, kind, see, sinks) if in_pages else not sinks and fits(handle, kind, see)


def attend_planned(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: SpanMask,
    *,
    scale: float,
    softcap: float,
    sinks: Tensor | None,
    gates: LayerGates | None,
    numerics: str | None,
    eager: bool,
) -> Tensor | None:
    """Compute a layer's attention in a step that was planned on the device: `[batch, rows, q_heads, value_dim]`. None
    if the layer differs from the plan and may be planned on the host; in compiled code, and over pages, a TensorError."""
    in_pages = mask.plan is None
    if gates is None and _step_fits(
        *(mask.handle, in_pages, query.shape[1], key.shape[1], query.shape[3], value.shape[3]),
        *(query.dtype, scale, softcap, mask.see, sinks is not None, numerics),
    ):
        if in_pages:
            attend = attend_paged_step if eager else torch.ops.attn.attend_paged_step
            # Made contiguous here, where compiled code joins it with other work on them. The rows are one of
            # each sequence, or rows of all sequences one after the other; tables assign rows to sequences.
            rows = [tensor.transpose(1, 2).flatten(0, 1).contiguous() for tensor in (query, key, value)]
            out = attend(*rows, read_sinks(sinks), mask.handle, module.layer_idx)
            return out.view(query.shape[0], query.shape[2], *out.shape[1:])
        if eager:
            return attend_step(query, key, value, mask.step)
        return torch.ops.attn.attend_step(query, key, value, mask.plan, mask.start, mask.lengths, mask.handle)
    if in_pages or torch.compiler.is_compiling():
        raise other_layer(module)
    return None


def other_layer(module: nn.Module) -> TensorError:
    """Return the error about a layer that a plan does not serve."""
    return TensorError(
        f"attention_mask: {layer_name(module)} differs from the layers that the model's prompt went through, of "
        "which the plan of this step is"
    )


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
    numerics: str | None,
) -> None:
    """Remember the form of a layer, for later steps of this model that the device plans."""
    config = getattr(module, "config", None)
    if config is None or mask.positions is not None or not is_causal_or_window(mask.see):
        return
    kind = None
    if sinks is None and gates is None:
        shape = query.shape[1], key.shape[1], query.shape[3], value.shape[3]
        kind = LayerKind(*shape, query.dtype, scale, softcap or 0.0, numerics)
    learn(config, mask.see, kind)


def spans_of(query: Tensor, key: Tensor, causal: bool) -> Tensor:
    """Return the spans of layers without a mask, whose rows are the last ones."""
    zero, behind = torch.zeros((), dtype=torch.int64), key.shape[2] - query.shape[2] if causal else 0
    return spans(None, torch.tensor(behind), zero, query.shape[0], query.shape[2], key.shape[2], causal)


def see_without_mask(causal: bool, window: int, rows: int) -> str:
    """Return what rows see by a layer's parameters, as text; "" if these do not say it."""
    if window:
        return f"window({window})" if causal or rows == 1 else ""
    return CAUSAL if causal else ALL


def visible_of(mask: SpanMask | None, query: Tensor, key: Tensor, see: str) -> Visible:
    """Return what rows see by the mask, or without a mask."""
    if mask is not None:
        return mask.visible
    return Visible(spans_of(query, key, ends_at_rows(see)), None, see)


def read_sinks(logits: Tensor | None) -> Tensor | None:
    """Return a logit for each head, float32 and contiguous, as kernels read them."""
    return None if logits is None else logits.float().contiguous()


def layer_name(module: nn.Module) -> str:
    return type(module).__name__
