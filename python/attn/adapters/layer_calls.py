# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a call of a model's layer looks like: to calls that are kept, to steps that are planned, and to messages."""

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
from .mask_functions import ALL, CAUSAL
from .padded_calls import PaddedCall, Visible
from .planned_pages import attend_paged_step, fits_pages
from .planned_steps import LayerKind, attend_step, fits, learn
from .span_mask import SpanMask, ends_at_rows, is_causal_or_window
from .torch_spans import spans

try:
    from torch._C._dynamo.guards import TensorGuards
except ImportError:  # it is PyTorch's own
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
    """What the layers to come most likely are like, for `attend_again`: one without sinks and gates. The first layer of a
    mask is remembered for the next step's, too."""
    index = query.device.index if query.is_cuda else None
    if mask.last is None and mask.end:
        steps = _local.__dict__.setdefault("steps", {})
        if len(steps) >= _MOST_STEPS:  # they hold plans
            steps.clear()
        same = _look(query), _look_of_tokens(key), _look_of_tokens(value), options
        layers = _Layers(same, _config_of(module), index, call, mask.end)
        steps[mask.see] = mask.layers = layers
    mask.last = _is_like(query, key, value), options, index, call


def _is_like(*tensors: Tensor) -> Callable[..., bool]:
    """Whether others look like these: types, devices, sizes, strides, what autocast and autograd would do. PyTorch's compiled
    code asks so before it runs, in one call that reads no attribute; without it each attribute is read."""
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
    """Those that attend through masks of one kind: what their tensors are like but for tokens, whose they are, their call, up to where they
    saw last, and how many came in this step, and, where it is a step of generation, in the one before."""

    same: tuple
    config: weakref.ref | None
    index: int | None
    call: PaddedCall
    end: int
    came: int = 1
    expected: int = 0

    def plan_ahead(self) -> None:
        """Behind a step's last layer the host is ahead of a GPU, and in front of the first one of the next the GPU waits for
        it. Where that step is another one, its plan is made as if this had not been."""
        with contextlib.suppress(PlanError):  # whoever asks for that step hears of it
            self.call = self.call.later(self.end + 1, self.call.tokens + 1) or self.call


_MOST_STEPS = 16  # kinds of masks in a thread
_local = threading.local()


def _look_of_tokens(tensor: Tensor) -> tuple:
    """Of keys and values, all but how many tokens there are."""
    batch, heads, _, dim = tensor.shape
    return batch, heads, dim, tensor.dtype, tensor.device


def _config_of(module: nn.Module) -> weakref.ref | None:
    """A module's configuration, by which steps are planned that only the device knows (learn_layer). One is the same only where
    the reference is: references are equal where configurations are, as those of two models may be."""
    config = getattr(module, "config", None)
    return None if config is None else weakref.ref(config)


def _a_step_later(
    mask: SpanMask, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, options: tuple
) -> PaddedCall | None:
    """The call of a mask's first layer, where it is that of the step before but for tokens behind those that were there. What
    was found out about that one then holds, and its plan only grows."""
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
    """A layer's call that is like the one before it but for addresses; None where it is not. It asks for everything that decides
    about a layer, and for each thing once: between two launches of a model's step this is all that Python does."""
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
) -> bool:
    """Whether a plan made on the device is for such a layer. Compiled code asks when it is traced."""
    kind = LayerKind(q_heads, kv_heads, dim, value_dim, dtype, scale, softcap)
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
    eager: bool,
) -> Tensor | None:
    """A layer's call in a step that was planned on the device: `[batch, rows, q_heads, value_dim]`. None where the layer is not
    what was planned for and may be planned on the host; TensorError in compiled code, and over pages."""
    in_pages = mask.plan is None
    if gates is None and _step_fits(
        *(mask.handle, in_pages, query.shape[1], key.shape[1], query.shape[3], value.shape[3]),
        *(query.dtype, scale, softcap, mask.see, sinks is not None),
    ):
        if in_pages:
            attend = attend_paged_step if eager else torch.ops.attn.attend_paged_step
            # Made contiguous here, where compiled code joins it with what it does to them anyway. A row of each sequence,
            # or rows of all sequences behind one another: which is whose, tables say.
            rows = [tensor.transpose(1, 2).flatten(0, 1).contiguous() for tensor in (query, key, value)]
            out = attend(*rows, read_sinks(sinks), mask.handle, module.layer_idx)
            return out.view(query.shape[0], query.shape[2], *out.shape[1:])
        if eager:
            return attend_step(query, key, value, mask.step)
        return torch.ops.attn.attend_step(query, key, value, mask.plan, mask.start, mask.lengths, mask.handle)
    if in_pages or torch.compiler.is_compiling():
        raise TensorError(
            f"attention_mask: {layer_name(module)} differs from the layers that the model's prompt went through, of "
            "which the plan of this step is"
        )
    return None


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
    if config is None or mask.positions is not None or not is_causal_or_window(mask.see):
        return
    kind = None
    if sinks is None and gates is None:
        shape = query.shape[1], key.shape[1], query.shape[3], value.shape[3]
        kind = LayerKind(*shape, query.dtype, scale, softcap or 0.0)
    learn(config, mask.see, kind)


def spans_of(query: Tensor, key: Tensor, causal: bool) -> Tensor:
    """Of layers without a mask, whose rows are the last ones."""
    zero, behind = torch.zeros((), dtype=torch.int64), key.shape[2] - query.shape[2] if causal else 0
    return spans(None, torch.tensor(behind), zero, query.shape[0], query.shape[2], key.shape[2], causal)


def see_without_mask(causal: bool, window: int, rows: int) -> str:
    """What rows see by a layer's parameters; "" where those do not say it."""
    if window:
        return f"window({window})" if causal or rows == 1 else ""
    return CAUSAL if causal else ALL


def visible_of(mask: SpanMask | None, query: Tensor, key: Tensor, see: str) -> Visible:
    """What rows see by the mask, or without one."""
    if mask is not None:
        return mask.visible
    return Visible(spans_of(query, key, ends_at_rows(see)), None, see)


def read_sinks(logits: Tensor | None) -> Tensor | None:
    """A logit for each head, as kernels read them."""
    return None if logits is None else logits.float().contiguous()


def layer_name(module: nn.Module) -> str:
    return type(module).__name__
