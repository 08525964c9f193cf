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
    refuse_forward_mode()
    planned = living_plan(plan)
    kernel = planned.kernel
    rest = iter(operands)
    given = [[next(rest) for _ in parts] for parts in kernel._parts.values()]
    named = dict(zip(kernel.extras, tensors, strict=True))
    returns_lse = "lse" in kernel.slots
    out = kernel.run(q, *given, planned, return_lse=returns_lse, classes=classes or None, **named)
    return out if returns_lse else (out, q.new_empty(0, dtype=torch.float32))


@run.register_fake
def _(q, operands, plan, tensors, classes):
    kernel = living_plan(plan).kernel
    shape = (q.shape[0], kernel.manifest["q_heads"])
    lse = q.new_empty(shape if "lse" in kernel.slots else 0, dtype=torch.float32)
    dtype = torch_dtype(torch, kernel._tensors["o"].dtype)
    return q.new_empty(*shape, kernel.manifest["value_dim"], dtype=dtype), lse


refuse_later(run)
refuse_vmap(run)


def run_plan(
    kernel: Code,
    q: Tensor,
    operands: tuple,
    plan: Plan,
    *,
    out: Tensor | None,
    lse: Tensor | None,
    return_lse: bool,
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
    result, of_rows = torch.ops.attn.run(q, given, plan.handle, extras, list(classes or ()))
    result = result if out is None else out.copy_(result)
    of_rows = of_rows if lse is None else lse.copy_(of_rows)
    return (result, of_rows) if return_lse else result
