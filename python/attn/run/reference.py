# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The float64 reference on tensors of PyTorch: the results of an attention, and its gradients.

It reads the same description and the same tables as kernels do, and walks every pair of a row and a token that it sees.
It takes any sizes, and its time grows with the pairs. Tests compare kernels with it, and it computes gradients that no
kernel computes.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from .. import _attn
from ..compiler.requests import Asks
from ..errors import TensorError
from ..memory.devices import failed
from ..memory.dtypes import DTYPES
from ..memory.tensors import as_numpy

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Problem:
    """A description as text, the tables of a batch, and the requests beside the text."""

    text: str
    tables: Mapping[str, numpy.ndarray]
    asks: Asks = Asks()

    def results(self, data: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Compute out [rows, q_heads, value_dim], lse [rows, q_heads] and, if requested, the significance of each
        operand's tokens; float64. `data` by the text's names: q, kv.k, ..."""
        found = self._evaluate(functools.partial(_attn.reference, asks=self.asks), data)
        weighed = (name.rpartition(".")[0] for name in data if name.endswith(".k"))
        names = ("o", "lse", *(f"{operand}.significance" for operand in weighed))
        return tuple(found[name] for name in names if name in found)

    def gradients(
        self, data: Mapping[str, Tensor], d_out: Tensor | None, d_lse: Tensor | None
    ) -> dict[str, Tensor]:
        """Compute the gradients of sum(out * d_out) + sum(lse * d_lse) by each of `data`, under its name; float64."""
        rows, heads, value_dim = len(data["q"]), data["q"].shape[1], self._value_dim(data)
        given = {"do": torch.zeros(rows, heads, value_dim) if d_out is None else d_out}
        if d_lse is not None:
            given["dlse"] = d_lse
        found = self._evaluate(_attn.reference_gradients, {**data, **given})
        return {name: found[gradient_of(name)] for name in data if gradient_of(name) in found}

    def _value_dim(self, data: Mapping[str, Tensor]) -> int:
        return next(tensor.shape[-1] for name, tensor in data.items() if name.endswith(".v"))

    def _evaluate(self, evaluate, data: Mapping[str, Tensor]) -> dict[str, Tensor]:
        given = {name: ("i32", table.shape, table) for name, table in self.tables.items()}
        given |= {name: _described(name, tensor) for name, tensor in data.items()}
        try:
            found = evaluate(self.text, given)
        except _attn.Failure as failure:
            raise failed(failure, TensorError) from None
        return {name: _tensor(*described) for name, described in found.items()}


def gradient_of(name: str) -> str:
    """Return the gradient's name: "kv.dk" for "kv.k"."""
    operand, point, part = name.rpartition(".")
    return f"{operand}{point}d{part}"


def _described(name: str, tensor: Tensor) -> tuple:
    """Return a tensor as the extension takes it: dtype, shape and memory. No float is rounded: 32 bits become 64."""
    if tensor.dtype not in FLOATS:
        raise TensorError(f"{name}: expected floats of 16, 32 or 64 bits, got {tensor.dtype}")
    short = {torch.bfloat16: "bf16", torch.float16: "f16"}.get(tensor.dtype, "f64")
    array = as_numpy(name, tensor.double() if short == "f64" else tensor)
    return short, tuple(array.shape), array


def _tensor(dtype: str, shape: tuple[int, ...], data: bytes) -> Tensor:
    return torch.from_numpy(numpy.frombuffer(data, DTYPES[dtype][0]).reshape(shape).copy())


def check_cpu(**tensors: Tensor | None) -> None:
    """Raise a TensorError for a tensor that is not on the CPU."""
    for name, tensor in tensors.items():
        if tensor is not None and tensor.device.type != "cpu":
            raise TensorError(
                f"{name}: the reference reads CPU memory, got a tensor on {tensor.device}; nearest: {name}.cpu()"
            )


def rounded(values: Tensor, like: Tensor) -> Tensor:
    """Return a gradient in the shape and dtype of its tensor."""
    return values.reshape(like.shape).to(like.dtype)
