# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The attention of some rows over some tokens on one GPU: a step of attention over several.

The backward pass takes the output and the LSE over all tokens, whoever computed them. The weight of a token follows
from its score and that LSE, so gradients of any part of the tokens need nothing of the others.
"""

from __future__ import annotations

from typing import Any

import numpy
import torch
from torch import Tensor

from ..compiler.requests import Asks, source_of
from ..describe.spec import Spec
from ..errors import CompileError, TensorError, expected
from ..memory import devices
from ..run.backward import found_gradients, launch, order_of
from ..run.kernel import Kernel
from ..run.kernels import compile, compile_asked
from .sequences import Runs, Sequences, expanded


class Kernels:
    """The kernels of a description on a device, forward and backward."""

    def __init__(self, spec: Spec, device: str, ordered: bool | None):
        self.spec, self.device, self.ordered = spec, device, ordered
        self.forward = compile(spec, device=device)
        self._backward: dict[bool | str | None, Kernel] = {}

    def backward(self, tables: dict[str, numpy.ndarray]) -> Kernel:
        """Return the kernel of gradients for such tables. TensorError if there is none."""
        # Sums over the tokens of several ranks have an order in two launches: a rank has all tokens of a row.
        ordered = (
            "apart" if self.ordered else order_of(None, [store.see for store in self.spec.operands], tables)
        )
        if ordered not in self._backward:
            try:
                found = compile_asked(
                    source_of(self.spec)[0], Asks(backward=(), ordered=ordered), self.device
                )
            except CompileError as error:
                raise TensorError(f"q: no kernel gives the gradients of this description ({error})") from None
            self._backward[ordered] = found
        return self._backward[ordered]

    @property
    def largest_tile(self) -> int:
        """The packed rows by which the planner chooses a kernel, at most."""
        infos = self.forward.manifest["kernels"]
        return max(max(info.get("rows", 0), info.get("sequences_up_to", 0)) for info in infos)


class Step:
    """Rows of a whole batch over runs of its tokens, with plans of both passes.

    `keys`: the runs in the order of memory. `whole_tasks`: no task is cut, and the kernel depends on the batch alone,
    so that the bits of a row's result do not depend on the rows beside it."""

    def __init__(
        self,
        kernels: Kernels,
        sequences: Sequences,
        rows: Runs,
        keys: Runs,
        *,
        cut: int = 0,
        whole_tasks: bool = False,
    ):
        self.kernels = kernels
        self.rows = sum(end - begin for begin, end in rows)
        self.keys = sum(end - begin for begin, end in keys)
        self.tables = sequences.tables(rows, keys, cut)
        see = kernels.spec.operands[0].see
        seen = sequences.visible(see, keys)[expanded(rows)] if self.rows and self.keys else numpy.zeros(1)
        self.pairs = int(seen.sum())
        """How many pairs of a row and a token that it sees there are."""
        self._strategy = "by-node" if whole_tasks else "flatten"
        self._spare = self._rows_beside(sequences) if whole_tasks else 0
        self._plans: dict[tuple, Any] = {}

    def _rows_beside(self, sequences: Sequences) -> int:
        """Return how many rows that see nothing stand beside the step's. The most rows that see one instance decide the
        kernel: they are as many as in the whole batch, or more than any kernel is chosen by."""
        longest = int((sequences.last - sequences.first).max(initial=0))
        group = self.kernels.spec.q_heads // self.kernels.spec.kv_heads
        return min(longest, self.kernels.largest_tile // group + 1)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, into: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compute out [rows, q_heads, value_dim] of q's dtype, and lse [rows, q_heads] in float32; `into` this memory."""
        if not self.pairs:
            found = _nothing(q, v)
            for memory, given in zip(into or (), found, strict=False):
                memory.copy_(given)
            return into or found
        kernel, tables = self.kernels.forward, self.tables
        if self._spare:
            q = torch.cat([q, q.new_zeros(self._spare, *q.shape[1:])])
            tables = self._with_spare()
        plan = self._plan(kernel, {"q": q, "kv.k": k, "kv.v": v}, tables, strategy=self._strategy)
        memory = {} if into is None else {"out": into[0], "lse": into[1]}
        out, lse = kernel.run(q, (k, v), plan, return_lse=True, **memory)
        return (out[: self.rows], lse[: self.rows]) if self._spare else (out, lse)

    def _with_spare(self) -> dict[str, numpy.ndarray]:
        end = numpy.array([self.rows + self._spare], numpy.int32)
        return self.tables | {
            "q_start": numpy.concatenate([self.tables["q_start"], end]),
            "q_pos": numpy.concatenate([self.tables["q_pos"], numpy.zeros(self._spare, numpy.int32)]),
        }

    def backward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        results: tuple[Tensor, Tensor],
        gradients: tuple[Tensor, Tensor],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the step's part of the gradients of q, k and v. `results`: out and lse over all tokens; `gradients`:
        of these."""
        if not self.pairs:
            return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        kernel = self.kernels.backward(self.tables)
        data = {"q": q, "kv.k": k, "kv.v": v}
        given = data | {"o": results[0], "lse": results[1], "do": results[0], "dlse": results[1]}
        named = {name: tensor for name, tensor in given.items() if name in kernel._tensors}
        plan = self._plan(kernel, named, self.tables)
        launched = launch(kernel, self.tables, data, results, gradients, plan)
        found = found_gradients(launched, data, results, tuple(data))
        return tuple(found[name].view(tensor.shape).to(tensor.dtype) for name, tensor in data.items())  # type: ignore[return-value]

    def _plan(self, kernel: Kernel, given: dict, tables: dict, **options: Any) -> Any:
        stream = devices.stream_number(kernel.device, None)
        key = kernel, stream, devices.generation
        if (plan := self._plans.get(key)) is None:
            described = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in given.items()}
            plan = self._plans[key] = kernel.plan(described | tables, stream=stream, **options)
        return plan


def _nothing(q: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    out = q.new_zeros(*q.shape[:-1], v.shape[-1])
    return out, q.new_full(q.shape[:-1], -torch.inf, dtype=torch.float32)


# --- Sums -----------------------------------------------------------------------------------------------------


class Added:
    """A sum of tensors, made in float32 in the order in which they are added. The last one is added when the result is asked
    for, and rounded in the same pass over memory."""

    def __init__(self, *parts: Tensor) -> None:
        self._parts = list(parts)

    def add(self, part: Tensor) -> None:
        """Add the next tensor. The sum may change the one before."""
        if len(self._parts) == 2:
            first, second = self._parts
            self._parts = [(first if first.dtype == torch.float32 else first.float()).add_(second)]
        self._parts.append(part)

    def result(self, dtype: torch.dtype) -> Tensor:
        """Return the sum. PyTorch adds the elements of two tensors of 16 bits in float32, too."""
        if len(self._parts) == 1:
            return self._parts[0].to(dtype)
        first, second = self._parts
        return torch.add(first, second, out=torch.empty_like(second, dtype=dtype))


def with_sinks(out: Tensor, lse: Tensor, sinks: Tensor | None) -> tuple[Tensor, Tensor]:
    """Let a logit per head, which carries no value, join the softmax of out [rows, heads, value_dim]."""
    if sinks is None:
        return out, lse
    total = torch.logaddexp(lse, sinks.float())
    weights = torch.where(lse == -torch.inf, 0, (lse - total).exp())
    return (out * weights.unsqueeze(-1)).to(out.dtype), total


def sink_terms(results: tuple[Tensor, Tensor], gradients: tuple[Tensor, Tensor], sinks: Tensor) -> Tensor:
    """Return the terms of which the gradient of sink logits is the sum over rows: float32 [rows, heads]. `results`: with
    the sinks; `gradients`: of these."""
    (out, lse), (d_out, d_lse) = results, gradients
    delta = (d_out.float() * out.float()).sum(-1) - d_lse
    return -delta * (sinks.float() - lse).exp()


def check_plain(name: str, tensor: object) -> Tensor:
    """Return a tensor of PyTorch of 16 bits. TensorError."""
    if not isinstance(tensor, Tensor):
        raise expected(TensorError, name, "a tensor of PyTorch", tensor)
    if tensor.dtype not in (torch.bfloat16, torch.float16):
        raise TensorError(
            f"{name}: expected bfloat16 or float16, got {tensor.dtype}; nearest legal: {name}.bfloat16()"
        )
    return tensor
