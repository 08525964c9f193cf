# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Launches that were prepared: what a call like one before does in place of all that its first one did.

The extension finds them (python/src/Launches.cpp) by how tensors of PyTorch lie and by options. What is here adds them,
behind a call that went the long way. Where PyTorch does not let its tensors be read without Python (before 2.10), nothing
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
        constants=(str, Visibility, Forest),
    )


def without_memory(tensor: Any) -> Any | None:
    """What torch.empty_like makes another one of that lies as this one does; None where that is not so."""
    torch = sys.modules["torch"]
    like = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    like.untyped_storage().resize_(0)
    return like if torch.empty_like(like).stride() == tensor.stride() else None
