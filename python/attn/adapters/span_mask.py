# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The mask that models of Transformers get from attn: a few numbers for each sequence. Only attention implemented by
attn may look into the tensor; for any other computation it becomes the real mask."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from ..describe.visibility import causal, read_visibility
from . import torch_spans
from .planned_steps import PlannedStep
from .rows import spans as of_batch
from .rows.padded_calls import PaddedCall, Visible
from .rows.visible_rows import is_window, shows_ahead
from .transformers_fallback import unserved


@torch._dynamo.assume_constant_result
def ends_at_rows(see: str) -> bool:
    """Whether rows see nothing after their own positions."""
    return not shows_ahead(read_visibility(see))


@torch._dynamo.assume_constant_result
def is_causal_or_window(see: str) -> bool:
    """Whether rows see tokens up to their own, all or a number of them, as caches in pages and head gates need it."""
    visibility = read_visibility(see)
    return visibility == causal() or is_window(visibility)


_ATEN = torch.ops.aten
_SAME = (_ATEN.detach.default, _ATEN.alias.default)


class SpanMask(torch.Tensor):
    """A mask of the shape [batch, 1, rows, tokens] that has no elements. `spans`, `positions` and `see` are those of
    `torch.ops.attn.attend_spans`, in CPU memory. `dense()` is the mask that eager attention adds."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(
        cls,
        spans: Tensor | None,
        positions: Tensor | None,
        see: str,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device,
        model: str,
        step: PlannedStep | None = None,
    ) -> SpanMask:
        return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=device)

    def __init__(self, spans, positions, see, shape, dtype, device, model, step=None):
        self._spans, self.positions, self.see, self.model = spans, positions, see, model
        # A step that was planned on the device has no spans, but tensors, and the name of their planner.
        self.handle = "" if step is None else step.handle
        if step is not None:
            self.lengths, self.plan, self.start = step.lengths, step.plan, step.start
        self.calls: dict[tuple, PaddedCall] = {}
        """Calls of layers that attend through it, by the form of their tensors."""
        self.end = 0
        """The `end` of Visible; with it `spans` may be None, which are then made on demand."""
        self.last: tuple | None = None
        """The last call, and the form of its tensors (layer_calls.py)."""
        self.layers: object = None
        """The known layers from step to step (layer_calls.py)."""
        self._dense: Tensor | None = None

    def dense(self) -> Tensor:
        """Return the mask with elements: 0 for keys that a row sees, the least number of the dtype for others."""
        if self._dense is None:
            batch, _, rows, tokens = self.shape
            seen = torch_spans.seen(self.host_spans(), self.positions, batch, self.see, rows, tokens).to(
                self.device
            )
            mask = torch.where(seen, 0.0, torch.finfo(self.dtype).min).to(self.dtype)
            if torch._guards.detect_fake_mode(mask) is not None:
                return mask
            self._dense = mask
        return self._dense

    @property
    def step(self) -> PlannedStep:
        return PlannedStep(self.handle, self.lengths, self.plan, self.start)

    @property
    def spans(self) -> Tensor | None:
        if self._spans is None and self.end:
            batch, _, rows, tokens = self.shape
            made = of_batch.make_spans(None, self.end - rows, 0, batch, rows, tokens, True)
            self._spans = torch.from_numpy(made)
        return self._spans

    def host_spans(self) -> Tensor:
        """Return the spans; for a step that was planned on the device by waiting for it."""
        return self.step.spans() if self.handle else self.spans

    @property
    def visible(self) -> Visible:
        return Visible(*of_batch.settled(self.host_spans(), self.positions), self.see, self.end)

    def on(self, device: torch.device) -> SpanMask:
        step = self.step if self.handle else None
        place = torch.device(device)
        return SpanMask(self.spans, self.positions, self.see, self.shape, self.dtype, place, self.model, step)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        mask = args[0] if args else None
        if isinstance(mask, SpanMask) and _keeps(function, mask, args, kwargs):
            return mask.on(kwargs.get("device") or mask.device)

        def real(value):
            if not isinstance(value, SpanMask):
                return value
            unserved(value.model, "attention of its own that computes with its mask", f" ({function})")
            return value.dense()

        return function(*tree_map(real, args), **tree_map(real, kwargs))

    def __repr__(self, **kwargs) -> str:
        return f"<attn's mask {list(self.shape)} of {self.model}: {self.see}>"

    def __tensor_flatten__(self):
        if self.handle:
            inner = ["lengths"] if self.step.in_pages else ["lengths", "plan", "start"]
        else:
            inner = ["spans"] if self.positions is None else ["spans", "positions"]
        return inner, (self.see, self.dtype, self.device, self.model, self.handle)

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        see, dtype, device, model, handle = context
        step = (
            PlannedStep(handle, inner["lengths"], inner.get("plan"), inner.get("start")) if handle else None
        )
        return SpanMask(inner.get("spans"), inner.get("positions"), see, size, dtype, device, model, step)


def _keeps(function: object, mask: SpanMask, args: tuple, kwargs: dict) -> bool:
    """Whether a function of PyTorch keeps a mask what it is: models cut masks to the length that they have, and move
    them to a layer's device."""
    if function in _SAME:
        return True
    if function is _ATEN._to_copy.default:
        return kwargs.get("dtype") in (None, mask.dtype) and kwargs.get("layout") in (None, torch.strided)
    if function is _ATEN.slice.Tensor:
        axis, first, last, step = (*args[1:], *(0, None, None, 1)[len(args) - 1 :])
        return not first and step == 1 and (last is None or last >= mask.shape[axis])
    return False
