# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernel.run as an operator of PyTorch, torch.ops.attn.run: a planned kernel in compiled code."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import TensorError
from ..memory.dtypes import torch_dtype
from .code import Code
from .plan import Plan, living_plan
from .torch_rules import refuse_forward_mode, refuse_gradients, refuse_later, refuse_vmap


@torch.library.custom_op("attn::run", mutates_args=())
def run(
    q: Tensor,
    operands: list[Tensor],
    plan: int,
    tensors: list[Tensor],
    classes: list[int],
) -> tuple[Tensor, Tensor]:
    """Compute `Kernel.run` with `Plan.handle`. `operands`: keys, values and metadata of each; `tensors`: the
    description's other tensors, in its order; `classes` of this layer's KV heads, or []. Returns o [rows, q_heads,
    value_dim] of the description's dtype and lse f32[rows, q_heads] ([0] if the description has none)."""
    if living_plan(plan).kernel._has_scales:
        raise TensorError(
            "output_scales: expected a description without them; nearest: torch.ops.attn.run_with_scales"
        )
    return _run(q, operands, plan, tensors, classes)


@run.register_fake
def _(q, operands, plan, tensors, classes):
    return _empty(q, living_plan(plan).kernel)


@torch.library.custom_op("attn::run_with_scales", mutates_args=())
def run_with_scales(
    q: Tensor,
    operands: list[Tensor],
    plan: int,
    tensors: list[Tensor],
    classes: list[int],
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute `run` for a description with Spec(output_scales="head"). Returns o, lse and the scales, f32[rows, q_heads]."""
    if not living_plan(plan).kernel._has_scales:
        raise TensorError(
            "output_scales: expected a description with output_scales='head'; nearest: torch.ops.attn.run"
        )
    return _run(q, operands, plan, tensors, classes)


@run_with_scales.register_fake
def _(q, operands, plan, tensors, classes):
    kernel = living_plan(plan).kernel
    return *_empty(q, kernel), q.new_empty(q.shape[0], kernel.manifest["q_heads"], dtype=torch.float32)


def _run(q: Tensor, operands: list[Tensor], plan: int, tensors: list[Tensor], classes: list[int]) -> tuple:
    refuse_forward_mode()
    planned = living_plan(plan)
    kernel = planned.kernel
    rest = iter(operands)
    given = [[next(rest) for _ in parts] for parts in kernel._parts.values()]
    named = dict(zip(kernel.extras, tensors, strict=True))
    returns_lse = "lse" in kernel.slots
    found = kernel.run(q, *given, planned, return_lse=returns_lse, classes=classes or None, **named)
    if returns_lse:
        return found
    out, *scales = found if kernel._has_scales else (found,)
    return out, q.new_empty(0, dtype=torch.float32), *scales


def _empty(q: Tensor, kernel: Code) -> tuple[Tensor, Tensor]:
    shape = (q.shape[0], kernel.manifest["q_heads"])
    lse = q.new_empty(shape if "lse" in kernel.slots else 0, dtype=torch.float32)
    dtype = torch_dtype(torch, kernel._tensors["o"].dtype)
    return q.new_empty(*shape, kernel.manifest["value_dim"], dtype=dtype), lse


for operator in (run, run_with_scales):
    refuse_later(operator)
    refuse_vmap(operator)


def run_plan(
    kernel: Code,
    q: Tensor,
    operands: tuple,
    plan: Plan,
    *,
    out: Tensor | None,
    lse: Tensor | None,
    return_lse: bool,
    output_scales: Tensor | None,
    classes: tuple[int, ...] | None,
    tensors: dict[str, Tensor],
) -> object:
    """Compute `Kernel.run` in compiled code and on fake tensors."""
    refuse_gradients(q=q)
    if kernel._first:
        raise TensorError(
            "q: a description with two attentions cannot run in compiled code; call Kernel.run outside"
        )
    if len(operands) == 1 and hasattr(operands[0], "tensors"):
        given = list(operands[0].tensors().values())
    else:
        named = zip(kernel._parts, operands, strict=True)
        given = [tensor for name, operand in named for _, tensor in kernel._of_operand(name, operand)]
    extras = [tensors[name] for name in kernel.extras]
    if not all(isinstance(tensor, Tensor) for tensor in (*given, *extras)):
        raise TensorError("q: a traced or fake tensor needs tensors of PyTorch for all other operands")
    operator = torch.ops.attn.run_with_scales if kernel._has_scales else torch.ops.attn.run
    result, of_rows, *scales = operator(q, given, plan.handle, extras, list(classes or ()))
    result = result if out is None else out.copy_(result)
    of_rows = of_rows if lse is None else lse.copy_(of_rows)
    if output_scales is not None:
        if not scales:
            raise TensorError(
                "output_scales: this description returns none; write Spec(output='fp8_e4m3', output_scales='head')"
            )
        scales = [output_scales.copy_(scales[0])]
    results = (result, of_rows, *scales) if return_lse else (result, *scales)
    return results if len(results) > 1 else result
