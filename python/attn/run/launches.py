# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Launches that were prepared: what a call like one before does in place of all that its first one did.

The extension finds them (python/src/Launches.cpp) by how tensors of PyTorch lie and by options. What is here adds them,
behind a call that went the long way. Of a PyTorch without `__dlpack_c_exchange_api__` nothing
is added, and every call goes that way.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from .. import _attn
from ..describe.forest import Forest
from ..describe.visibility import Visibility

clock = itertools.count()
"""Numbers the uses of plans: those that were used longest ago make room first."""


class Asked(NamedTuple):
    """What a launch is found by, and among which."""

    launches: _attn.Launches
    tensors: tuple
    options: tuple

    def add(self, make: Callable[[], Any]) -> None:
        """Adds what `make` gives: a Launch, who is called with the tensors in place of one, or None."""
        if _are_read(self.tensors[0]):
            self.launches.add(self.tensors, self.options, make)


def may_keep(tensor: Any) -> bool:
    """Whether tensors that are made now beside this one may be read by later launches. Not while a graph is captured, whose
    memory holds nothing until it is replayed."""
    return not (tensor.is_cuda and sys.modules["torch"].cuda.is_current_stream_capturing())


def _are_read(tensor: Any) -> bool:
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(tensor, torch.Tensor) or not may_keep(tensor):
        return False
    return _attn.read_tensors(
        tensor=torch.Tensor,
        parameter=torch.nn.Parameter,
        empty_like=torch.empty_like,
        is_grad_enabled=torch.is_grad_enabled,
        forward_mode=vars(torch.autograd.forward_ad),
        values=(str, Visibility),
        constants=(Forest,),
    )


def form_of(tensor: Any) -> Any | None:
    """A tensor of hardly any memory, of which torch.empty_like makes one that lies as this one does; None where that is not
    so. Dimensions lie in its order, one element over the other; PyTorch keeps the order and no more."""
    torch = sys.modules["torch"]
    shape, strides = tensor.shape, tensor.stride()
    order = sorted(range(len(shape)), key=lambda axis: (strides[axis], shape[axis]))
    steps = [order.index(axis) + 1 for axis in range(len(shape))]
    room = 1 + sum(step * max(extent - 1, 0) for step, extent in zip(steps, shape, strict=True))
    like = torch.empty(room, dtype=tensor.dtype, device=tensor.device).as_strided(shape, steps)
    made = torch.empty_like(like, device="meta").stride()
    lies = all(extent == 1 or one == other for extent, one, other in zip(shape, strides, made, strict=True))
    return like if lies else None
