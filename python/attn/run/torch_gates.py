# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The gate of an output in PyTorch: where autograd records, in compiled code, and for the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import TensorError, expected, given
from ..memory.views import refuse_transformed


def check_gate(q: Tensor, v: Tensor, gate: Any, out: Any, traced: bool) -> None:
    """Raise a TensorError for a gate that does not fit the output of `attend`. `traced`: whether q is (is_traced)."""
    if not isinstance(gate, Tensor):
        raise expected(TensorError, "gate", "a tensor of PyTorch", gate)
    if not traced:
        refuse_transformed("gate", gate)
    if out is not None:
        raise TensorError(f"out: expected None beside gate where PyTorch multiplies by it, got {given(out)}")
    shape = (*q.shape[:-1], v.shape[-1])
    if tuple(gate.shape) not in (shape, shape[:-1]):
        legal = f"{list(shape)}, the shape of the output, or {list(shape[:-1])}, a number for each head"
        raise TensorError(f"gate: expected {legal}, got {list(gate.shape)}")
    if gate.dtype != q.dtype:
        raise TensorError(
            f"gate: expected the dtype of q, {q.dtype}, got {gate.dtype}; nearest: gate.to(q.dtype)"
        )
    if gate.device != q.device:
        raise TensorError(f"gate: expected memory of {q.device}, where q is, got {gate.device}")


def gated(results: Any, gate: Tensor, return_lse: bool) -> Any:
    """Multiply the output of `attend` by the sigmoid of a gate, in float32 at least."""
    out = results[0] if return_lse else results
    precise = torch.promote_types(out.dtype, torch.float32)
    factors = torch.sigmoid(gate.to(precise))
    if gate.dim() < out.dim():
        factors = factors.unsqueeze(-1)
    out = (out.to(precise) * factors).to(out.dtype)
    return (out, *results[1:]) if return_lse else out


class _Bits(torch.autograd.Function):
    """Take the bits of another computation of the output; gradients pass to this one."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, compute: Callable[[], Tensor]) -> Tensor:
        return compute()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


def with_bits_of(results: Any, compute: Callable[[], Tensor], return_lse: bool) -> Any:
    """Return results with the bits of the output that `compute` returns."""
    out = _Bits.apply(results[0] if return_lse else results, compute)
    return (out, *results[1:]) if return_lse else out


def detached(given: Any) -> Any:
    """Detach tensors of PyTorch, alone or in a dict; other objects stay as they are."""
    if isinstance(given, dict):
        return {name: detached(each) for name, each in given.items()}
    return given.detach() if isinstance(given, Tensor) else given
