# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products and sums of PyTorch whose rows do not depend on each other.

Libraries choose a kernel by the shape of a product, and kernels add up in different orders: a row then has other bits
beside other rows. Here a product or a sum runs in blocks of a fixed number of rows, of which the last is filled with
zeros. The library sees one shape for all batches, so that it always chooses the same kernel. Whether this kernel treats
all rows of a block alike is an assumption, which `place_matters` tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ..describe import checks

aten = torch.ops.aten

ROWS_OF_CPU, ROWS_OF_GPU = 32, 256


class row_ops(TorchDispatchMode):
    """Within a `with` block, PyTorch's products, means, sums and softmaxes over the last dimension give a row the same bits,
    whatever other rows there are. Serves forward passes in eager mode and in CUDA graphs captured in the block; code of
    torch.compile is not changed.

    rows  of a block; by default 32 on a CPU, 256 on a GPU. Few rows cost as much as a block

    Elementwise operations are left as they are. On a CPU those of exp, sigmoid and their like may depend on where a row
    lies, unless the number of features is a multiple of 16. Raises SpecError.
    """

    def __init__(self, rows: int | None = None):
        super().__init__()
        self.rows = None if rows is None else checks.integer("rows", rows, 1, 1 << 20)

    def rows_on(self, device: torch.device) -> int:
        """Return the rows of a block on a device."""
        return self.rows or (ROWS_OF_CPU if device.type == "cpu" else ROWS_OF_GPU)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func in _COMPOSED:
            with self:
                return func.decompose(*args, **kwargs)
        serve = _SERVED.get(func)
        return func(*args, **kwargs) if serve is None else serve(self, func, *args, **kwargs)

    def blocks(self, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Apply a function of [rows, ...] to blocks of rows; returns the results of all rows."""
        size, count = self.rows_on(x.device), x.shape[0]
        x = x.contiguous()
        parts = [function(x[first : first + size]) for first in range(0, count - count % size, size)]
        if count % size or not count:
            last = x.new_zeros(size, *x.shape[1:])
            last[: count % size] = x[count - count % size :]
            parts.append(function(last)[: count % size])
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def _mm(mode: row_ops, func: Any, a: Tensor, b: Tensor) -> Tensor:
    return mode.blocks(lambda rows: torch.mm(rows, b), a)


def _addmm(mode: row_ops, func: Any, bias: Tensor, a: Tensor, b: Tensor, *, beta=1, alpha=1) -> Tensor:
    if bias.dim() == 2 and bias.shape[0] != 1:  # A row of its own for each row.
        product = mode.blocks(lambda rows: torch.mm(rows, b), a)
        return torch.add(bias * beta if beta != 1 else bias, product, alpha=alpha)
    return mode.blocks(lambda rows: torch.addmm(bias, rows, b, beta=beta, alpha=alpha), a)


def _bmm(mode: row_ops, func: Any, a: Tensor, b: Tensor) -> Tensor:
    if a.shape[2] == 1 or not a.shape[0]:  # Nothing is added up, as in tables of rotary embeddings.
        return func(a, b)
    return torch.stack(
        [mode.blocks(lambda rows, w=w: torch.mm(rows, w), x) for x, w in zip(a, b, strict=True)]
    )


def _reduced(
    mode: row_ops, func: Any, x: Tensor, dim: Any = None, keepdim: bool = False, **options: Any
) -> Tensor:
    dims = [dim] if isinstance(dim, int) else list(dim or ())
    if x.dim() < 2 or [each % x.dim() for each in dims] != [x.dim() - 1]:
        return func(x, dim, keepdim, **options)
    found = mode.blocks(lambda rows: func(rows, [1], True, **options), x.reshape(-1, x.shape[-1]))
    return found.view(*x.shape[:-1], 1) if keepdim else found.view(x.shape[:-1])


def _softmax(mode: row_ops, func: Any, x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    if x.dim() < 2 or dim % x.dim() != x.dim() - 1:
        return func(x, dim, half_to_float)
    found = mode.blocks(lambda rows: func(rows, 1, half_to_float), x.reshape(-1, x.shape[-1]))
    return found.view(x.shape)


_COMPOSED = {aten.linear.default, aten.matmul.default}
_SERVED: dict[Any, Callable] = {
    aten.mm.default: _mm,
    aten.addmm.default: _addmm,
    aten.bmm.default: _bmm,
    aten.mean.dim: _reduced,
    aten.sum.dim_IntList: _reduced,
    aten._softmax.default: _softmax,
    aten._log_softmax.default: _softmax,
}


def place_matters(weight: Tensor, mode: row_ops | None = None, seed: int = 0) -> bool:
    """Whether a row's product with a weight [out features, in features] has other bits at another place of a block, or
    beside other rows: then `row_ops` does not help with this product. `mode`: by default row_ops()."""
    mode = row_ops() if mode is None else mode
    size = mode.rows_on(weight.device)
    generator = torch.Generator().manual_seed(seed)
    like = {"dtype": weight.dtype, "device": weight.device}
    x = torch.randn(2 * size, weight.shape[1], generator=generator).to(**like) / math.sqrt(weight.shape[1])
    places = torch.randperm(len(x), generator=generator).to(weight.device)
    with torch.no_grad(), mode:
        return not torch.equal((x @ weight.T)[places], x[places] @ weight.T)
