# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernel.run when autograd records: the kernel computes the forward pass, kernels or the reference the backward pass.

Autograd saves the arguments of the forward pass, and tables are copied, so that a plan may serve another batch before
the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import TensorError, expected
from ..memory.formats import parse_format
from ..memory.tables import int32_array
from ..memory.views import refuse_transformed
from .backward import check_place, kernel_gradients, tables_of
from .reference import Problem, rounded
from .torch_rules import differentiable_once


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, forward: Callable, kernel: Any, problem: Problem, names: tuple[str, ...], *tensors: Tensor
    ) -> tuple:
        ctx.kernel, ctx.problem, ctx.names = kernel, problem, names
        results = forward(*tensors)
        ctx.save_for_backward(*tensors, *results)
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    @differentiable_once
    def backward(ctx, saved: tuple, d_out: Tensor | None, d_lse: Tensor | None = None) -> tuple:
        if d_out is None and d_lse is None:
            return (None,) * len(ctx.needs_input_grad)
        wanted = ctx.needs_input_grad[4:]
        data, results = dict(zip(ctx.names, saved, strict=False)), saved[len(ctx.names) :]
        problem, found = ctx.problem, None
        if len(results) == 2:  # Kernels need the LSE.
            asked = [name for name, needed in zip(data, wanted, strict=True) if needed]
            backward = ctx.kernel._backward(tables_of(data, asked), problem.tables)
            found = kernel_gradients(backward, problem.tables, data, results, (d_out, d_lse), asked)
        if found is None:
            found = problem.gradients(data, d_out, d_lse)
        gradients = [
            (rounded(found[name], tensor) if name in found else torch.zeros_like(tensor)) if needed else None
            for (name, tensor), needed in zip(data.items(), wanted, strict=True)
        ]
        return None, None, None, None, *gradients


def run(kernel: Any, q: Tensor, operands: tuple, plan: Any, *, return_lse: bool, **named: Any) -> Any:
    """Compute `Kernel.run` with gradients. `named`: its other arguments."""
    if kernel._first:
        raise TensorError(
            "q: a description with two attentions is run as it stands, under torch.no_grad(); attn.heads.attend_both has gradients"
        )
    for name in ("out", "lse", "output_scales", "classes"):
        if named.pop(name) is not None:
            raise TensorError(f"{name}: expected None where a gradient is required")
    rest = {name: named.pop(name) for name in ("rows", "stream")}
    problem = _problem_of(kernel, plan)
    if len(operands) != len(kernel._parts):
        raise TensorError(
            f"operands: expected (keys, values) for each of {', '.join(kernel._parts)}, got {len(operands)}"
        )
    data: dict[str, Any] = {"q": q}
    for name, operand in zip(kernel._parts, operands, strict=True):
        data |= dict(kernel._of_operand(name, operand))
    data |= named
    for name, tensor in data.items():
        if not isinstance(tensor, Tensor):
            raise expected(TensorError, name, "a tensor of PyTorch", tensor)
        refuse_transformed(name, tensor)
    has_lse = "lse" in kernel.slots
    wanted = [name for name, tensor in data.items() if tensor.requires_grad]
    if any(tensor.device.type != "cpu" for tensor in data.values()):
        why = "it returns no LSE"
        check_place(kernel._backward(tables_of(data, wanted), problem.tables) if has_lse else why, data)

    def forward(*given: Tensor) -> tuple:
        beside = dict(zip(data, given, strict=True))
        parts = [tuple(beside[name] for name in names) for names in kernel._parts.values()]
        others = {name: beside[name] for name in named}
        found = kernel.run(beside["q"], *parts, plan, return_lse=has_lse, **others, **rest)
        return found if has_lse else (found,)

    if return_lse and not has_lse:
        raise TensorError("lse: this description returns none; write Spec(return_lse=True)")
    found = _Run.apply(forward, kernel, problem, tuple(data), *data.values())
    return tuple(found) if return_lse else found[0]


def _problem_of(kernel: Any, plan: Any) -> Problem:
    """Return a planned kernel as the reference reads it, with tables of its own. TensorError for a description without
    gradients."""
    if kernel._has_scales:
        raise TensorError(
            "output_scales: outputs in float8_e4m3fn have no gradients; nearest: torch.no_grad(), or a description with "
            "output=None"
        )
    for argument in kernel.manifest["arguments"]:
        if argument["role"] == "classes":
            raise TensorError("classes: head classes have no gradients")
        if argument["role"] == "gate":
            raise TensorError(
                "gate: a description with a gate has no gradients; describe it without, and multiply the output by "
                "torch.sigmoid(gate), as attn.attend(gate=...) does"
            )
        if argument["role"] == "output_scale":
            raise TensorError(
                "output_scale: outputs in float8_e4m3fn have no gradients; nearest: torch.no_grad(), or a description with "
                "output=None"
            )
        if argument["role"] != "kv":
            continue
        if argument["store"] == "paged":
            raise TensorError(f"{argument['name']}: a paged store has no gradients; train on Packed or Dense")
        for part in ("key", "value"):
            if argument[f"{part}_format"] not in ("bf16", "f16"):
                raise TensorError(
                    f"{argument['name']}: {part}s in a quantized format ({parse_format(argument[f'{part}_format']).said(part)}) have no gradients"
                )
    batch = getattr(plan, "batch", None)
    if not isinstance(batch, Mapping):
        raise expected(
            TensorError, "plan", "one of tensors by name where a gradient is required", batch or plan
        )
    data = {"q", *kernel._own, *kernel.extras}
    tables = {name: int32_array(name, table).copy() for name, table in batch.items() if name not in data}
    return Problem(kernel._plain, tables)
