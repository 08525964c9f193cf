# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prepared launches: a call of a known form launches at once, and skips the work of the first such call.

The extension finds them (python/src/Launches.cpp) by the memory layout of PyTorch's tensors and by options. This module
adds them after a call that did all the work. With a PyTorch without `__dlpack_c_exchange_api__` nothing is added, and
every call does all the work.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _attn
from ..describe.forest import Forest
from ..describe.visibility import Visibility

if TYPE_CHECKING:
    from torch import Tensor

clock = itertools.count()
"""Numbers the uses of plans: the least recently used ones are dropped first."""


class Asked(NamedTuple):
    """The key of a launch, and the launches that it belongs to."""

    launches: _attn.Launches
    tensors: tuple
    options: tuple

    def add(self, make: Callable[[], Any]) -> None:
        """Add the result of `make`: a Launch, a function that is called with the tensors instead, or None."""
        if _are_read(self.tensors[0]):
            self.launches.add(self.tensors, self.options, make)


def may_keep(tensor: Any) -> bool:
    """Whether later launches may read tensors that are made now on this tensor's device. Not while a graph is captured:
    its memory holds nothing until it is replayed."""
    return not (tensor.is_cuda and sys.modules["torch"].cuda.is_current_stream_capturing())


def beside_pools(make: Callable[[], Tensor]) -> Tensor:
    """Return the tensor of `make`, in memory that later launches may keep. It is made in another thread, because this one
    may allocate from the pool of a CUDA graph, as PyTorch does before it records a compiled function."""
    from concurrent.futures import ThreadPoolExecutor  # with a new launch, not with the package

    torch = sys.modules["torch"]
    with ThreadPoolExecutor(1) as other:
        tensor = other.submit(make).result()
    if tensor.is_cuda:
        stream = torch.cuda.current_stream(tensor.device)
        stream.wait_stream(torch.cuda.default_stream(tensor.device))
        tensor.record_stream(stream)
    return tensor


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
    """Return a small tensor on the CPU, from which torch.empty_like makes one with the strides of `tensor`; None if it
    cannot. Its elements overlap, and its dimensions have the same order in memory; PyTorch keeps the order and no
    more."""
    torch = sys.modules["torch"]
    shape, strides = tensor.shape, tensor.stride()
    order = sorted(range(len(shape)), key=lambda axis: (strides[axis], shape[axis]))
    steps = [order.index(axis) + 1 for axis in range(len(shape))]
    room = 1 + sum(step * max(extent - 1, 0) for step, extent in zip(steps, shape, strict=True))
    like = torch.empty(room, dtype=tensor.dtype, device="cpu").as_strided(shape, steps)
    made = torch.empty_like(like, device="meta").stride()
    lies = all(extent == 1 or one == other for extent, one, other in zip(shape, strides, made, strict=True))
    return like if lies else None
