# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients by kernels: the launches that the compiler derives from a description that is marked so.

A run of them takes what forward was given and gave, and the gradients of its results; it gives those of queries, keys and
values, and for each row and head what the gradient of a sink logit is summed of.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy
import torch
from torch import Tensor

from ..memory.devices import stream_number
from ..memory.dtypes import torch_dtype

_ALIGNMENT = 16  # of what kernels copy at a time


def marked(text: str) -> str:
    """The text of a description, as that of its gradients."""
    return re.sub(r"(-> [^\n]*?) \{\n", r"\1 attributes {attn.backward} {\n", text, count=1)


def differentiates(kernel: Any) -> bool:
    """Whether a kernel is one of gradients."""
    return any(result["name"] == "dq" for result in kernel.manifest["results"])


def kernel_gradients(
    kernel: Any,
    tables: Mapping[str, numpy.ndarray],
    data: Mapping[str, Tensor],
    results: tuple[Tensor, Tensor],
    gradients: tuple[Tensor | None, Tensor | None],
    wanted: Collection[str],
) -> dict[str, Tensor] | None:
    """By the names of `data`, by a kernel of gradients; None where that does not give what is wanted, as of tables that a
    score function reads. `results`: out [rows, q_heads, value_dim] and lse of the forward run, `gradients`: of these."""
    floats = {"q", *(name for name in data if name.endswith((".k", ".v")))}
    dtype = data["q"].dtype
    if dtype not in (torch.bfloat16, torch.float16) or set(wanted) - floats - {"sink_logits"}:
        return None
    out, lse = results
    d_out, d_lse = gradients
    beside = {
        "o": out,
        "lse": lse,
        "do": torch.zeros_like(out) if d_out is None else d_out.to(out.dtype),
        "dlse": torch.zeros_like(lse) if d_lse is None else d_lse.to(lse.dtype),
    }
    given = {name: _readable(tensor) for name, tensor in (data | beside).items() if name in kernel._tensors}
    described = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in given.items()}
    stream = stream_number(kernel.device, None)
    plan = kernel.plan(described | dict(tables), stream=stream)
    made = {
        binding.name: torch.empty(
            plan._shapes[binding.name], dtype=torch_dtype(torch, binding.dtype), device=out.device
        )
        for binding in kernel._bindings
        if binding.written
    }
    bound = [(given | made)[name] for name in kernel.slots]
    kernel.launch([tensor.data_ptr() for tensor in bound], [tensor.nbytes for tensor in bound], plan, stream)
    found = {"q": made["dq"]}
    for name in floats - {"q"}:
        operand, _, part = name.rpartition(".")
        found[name] = made[f"{operand}.d{part}"]
    if "sink_logits" in wanted:
        weights = (data["sink_logits"].float() - beside["lse"]).exp()
        found["sink_logits"] = -torch.where(lse == -torch.inf, 0, weights * made["delta"]).sum(0)
    return found


def _readable(tensor: Tensor) -> Tensor:
    """Densely, and where a kernel's copies may begin."""
    tensor = tensor.detach().contiguous()
    return tensor if tensor.data_ptr() % _ALIGNMENT == 0 else tensor.clone()
