# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients by kernels: the launches that the compiler derives from a description when it is asked for gradients.

A run takes the arguments and results of the forward pass, and the gradients of the results. It gives the gradients of
queries, keys and values. For each row and head, in the order of the rows, it gives the terms of which the gradients of
sink logits and of tables are sums.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor

from .. import _attn
from ..describe.visibility import Visibility
from ..errors import PlanError, TensorError
from ..forks import make_guard
from ..memory import devices
from ..memory.dtypes import torch_dtype
from .launches import beside_pools, clock, form_of, may_keep
from .reference import gradient_of

_ALIGNMENT = 16  # In bytes: kernels copy so much at a time.
# If a row sees fewer tokens than this on average, gradients in two launches are quicker than fused ones, alone and
# when power limits the clock. To begin and end sums costs the same for each row and head; two more products cost in
# proportion to the tokens seen (an H100, docs/rationale/backward.md).
_FEW = 500
_LOOKED_AT = 1024  # The number of positions that are averaged, about.
_MOST_PLANS = 8  # The number of plans that a kernel keeps; then the least recently used one is dropped.
_captured: list[Any] = []  # Plans pinned by captured graphs; never freed.
# Each tensor is twice as large as the one before. None is freed: graphs may read it.
_kept_zeros: dict[tuple, list[Tensor]] = {}
_guard = make_guard()


def order_of(
    ordered: bool | None, sees: Sequence[Visibility], tables: Mapping[str, numpy.ndarray]
) -> bool | str | None:
    """Return the order to ask the compiler for (Asks.ordered). `ordered`: what the caller asks for; None: gradients are the
    same bits in every run if PyTorch is deterministic. In two launches they are that, too: these are asked for when
    rows see so few tokens that they are quicker, unless the caller asks for no order. `sees`: the visibility of each
    operand."""
    if ordered is False:
        return False
    if _seen(sees, tables) < _FEW:
        return "apart"
    return ordered or torch.are_deterministic_algorithms_enabled() or None


def _seen(sees: Sequence[Visibility], tables: Mapping[str, numpy.ndarray]) -> float:
    """Return about how many tokens a row sees on average; infinity if the tables do not say. A row that sees its
    operands causally sees tokens up to its position. A row that sees all tokens of an operand sees as many as there
    are."""
    whole = [see.is_everything() for see in sees]
    if any(whole) and not any(
        "causal" in see.kinds() for see, all_of_it in zip(sees, whole, strict=True) if not all_of_it
    ):
        names = {name.rpartition(".")[0] for name in tables if name.endswith((".lengths", ".start"))}
        return sum(_mean_length(name, tables) for name in names) if names else math.inf
    positions = tables.get("q_pos")
    if positions is None or not positions.size:
        return math.inf
    odd = (
        positions.size // _LOOKED_AT | 1
    )  # An even step, which sequences of 2^n rows share, would find the same position in each.
    return float(positions[::odd].mean()) + 1


def _mean_length(name: str, tables: Mapping[str, numpy.ndarray]) -> float:
    """Return how many tokens of an operand a row sees on average if it sees all tokens of its instances. Without the
    rows of instances, each counts once."""
    lengths, starts = tables.get(f"{name}.lengths"), tables.get("q_start")
    if lengths is None:
        lengths = numpy.diff(tables[f"{name}.start"])
    bounds = tables.get(f"{name}.rows")
    if bounds is None and starts is not None and starts.size == len(lengths) + 1:
        bounds = numpy.stack([starts[:-1], starts[1:]], axis=1)
    if bounds is None or starts is None or not starts[-1] or lengths.ndim > 1:
        return float(lengths.mean()) if lengths.size else 0.0
    return float(lengths @ (bounds[:, 1] - bounds[:, 0]).astype(numpy.int64)) / float(starts[-1])


def tables_of(data: Mapping[str, Tensor], wanted: Collection[str]) -> tuple[str, ...]:
    """Return the tables that a kernel of gradients is asked for (Asks.backward): those of `wanted` that are tables of a
    score function or sink logits. `data`: all tensors by name."""
    return tuple(sorted(set(wanted) - _floats(data)))


def missing_kernels(kernel: Any, data: Mapping[str, Tensor]) -> str:
    """Say why kernels do not give gradients; "" if they do. `kernel`: the kernel of gradients, or the reason that there
    is none."""
    if isinstance(kernel, str):
        return f"no kernel gives the gradients of this description ({kernel})"
    dtype = data["q"].dtype
    if dtype not in (torch.bfloat16, torch.float16):
        return f"kernels give gradients in bfloat16 and float16, not in {dtype}"
    return ""


def check_place(kernel: Any, data: Mapping[str, Tensor]) -> None:
    """Raise a TensorError for tensors on a GPU without kernels of their gradients; the reference runs on CPU tensors
    only."""
    place = next((tensor.device for tensor in data.values() if tensor.device.type != "cpu"), None)
    why = missing_kernels(kernel, data) if place is not None else ""
    if why:
        raise TensorError(
            f"gradients on {place}: {why}; use CPU tensors, which the float64 reference differentiates, or call it under "
            "torch.no_grad()"
        )


def _floats(data: Mapping[str, Tensor]) -> set[str]:
    return {"q", *(name for name in data if name.endswith((".k", ".v")))}


def kernel_gradients(
    kernel: Any,
    tables: Mapping[str, numpy.ndarray],
    data: Mapping[str, Tensor],
    results: tuple[Tensor, Tensor],
    gradients: tuple[Tensor | None, Tensor | None],
    wanted: Collection[str],
) -> dict[str, Tensor] | None:
    """Compute gradients by a kernel, by the names of `data`; None if there is no kernel (missing_kernels). `results`:
    out [rows, q_heads, value_dim] and lse [rows, q_heads] of the forward run; `gradients`: the gradients of these.
    Tables that no score reads are left out."""
    if missing_kernels(kernel, data):
        return None
    return found_gradients(launch(kernel, tables, data, results, gradients), data, results, wanted)


class Launched(NamedTuple):
    """A run of a kernel of gradients."""

    kernel: Any
    plan: Any
    read: dict[str, Tensor]
    """The tensors by the kernel's names."""
    made: dict[str, Tensor]


def launch(
    kernel: Any,
    tables: Mapping[str, numpy.ndarray],
    data: Mapping[str, Tensor],
    results: tuple[Tensor, Tensor],
    gradients: tuple[Tensor | None, Tensor | None],
    plan: Any = None,
) -> Launched:
    """Launch the kernel of gradients. Arguments as of `kernel_gradients`, which has a kernel. `plan`: of these shapes
    and tables; by default one that the kernel keeps."""
    out, lse = results
    d_out, d_lse = gradients
    stream = devices.stream_number(kernel.device, None)
    beside = {
        "o": out,
        "lse": lse,
        "do": torch.zeros_like(out) if d_out is None else d_out.to(out.dtype),
        "dlse": _zeros(lse, stream) if d_lse is None else d_lse.to(lse.dtype),
    }
    read = {name: _readable(tensor) for name, tensor in (data | beside).items() if name in kernel._tensors}
    if plan is None:
        plan = kept_plan(kernel, read, tables, stream)
    made = {
        binding.name: torch.empty(
            plan._shapes[binding.name], dtype=torch_dtype(torch, binding.dtype), device=out.device
        )
        for binding in kernel._bindings
        if binding.written
    }
    bound = [(read | made)[name] for name in kernel.slots]
    _launch(
        kernel, [tensor.data_ptr() for tensor in bound], [tensor.nbytes for tensor in bound], plan, stream
    )
    return Launched(kernel, plan, read, made)


def _zeros(like: Tensor, stream: int) -> Tensor:
    """Return dense zeros, which no one writes to; the zeros of one stream share memory."""
    if not may_keep(like):
        return torch.zeros_like(like)
    kept = _kept_zeros.setdefault((like.device, like.dtype, stream), [])
    if not kept or kept[-1].numel() < like.numel():
        room = max(like.numel(), 2 * kept[-1].numel() if kept else 0)
        kept.append(beside_pools(lambda: torch.zeros(room, dtype=like.dtype, device=like.device)))
    return kept[-1][: like.numel()].view(like.shape)


def prepared(
    launched: Launched, given: Mapping[str, Tensor | None], gradients: Mapping[str, Tensor | None]
) -> _attn.Launch | None:
    """Prepare to repeat the launch with other tensors that lie as `given` do. `gradients`: its results, in the order of
    `given`; None for one that was not wanted. Returns None if the call did more than to launch."""
    kernel, plan, read, made = launched
    names, kept = list(made), []
    results = {gradient_of(name): gradient for name, gradient in gradients.items() if gradient is not None}
    for name, gradient in results.items():
        if name not in made or not _are_same(gradient, made[name]):
            return None
    likes = [form_of(results.get(name, made[name])) for name in names]
    places = []
    for name in kernel.slots:
        if name in made:
            places.append(len(given) + names.index(name))
        elif given.get(name) is None and name == "dlse":
            places.append(len(given) + len(names) + len(kept))
            kept.append(read[name])
        elif given.get(name) is not None and _are_same(given[name], read[name]):
            places.append(list(given).index(name))
        else:
            return None
    if any(like is None for like in likes):
        return None
    return _attn.Launch(
        owner=plan,
        plan=plan._native,
        clock=clock,
        places=places,
        nbytes=[(read | made)[name].nbytes for name in kernel.slots],
        strides=(None,) * len(places),
        likes=likes,
        device=next(iter(made.values())).device,
        kept=kept,
        results=tuple(
            None if gradient is None else len(given) + names.index(gradient_of(name))
            for name, gradient in gradients.items()
        ),
    )


def _are_same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are the same memory, and `other` is all of it."""
    return (one.data_ptr(), one.dtype, one.nbytes) == (other.data_ptr(), other.dtype, other.nbytes)


def found_gradients(
    launched: Launched, data: Mapping[str, Tensor], results: tuple[Tensor, Tensor], wanted: Collection[str]
) -> dict[str, Tensor]:
    """Return the gradients of `kernel_gradients` from the tensors that the kernel has made."""
    made, (_, lse) = launched.made, results
    found = {name: made[gradient_of(name)] for name in _floats(data)}
    if "sink_logits" in wanted:
        weights = (data["sink_logits"].float() - lse).exp()
        delta = made["delta"].transpose(0, 1).reshape(lse.shape)  # KV heads came first.
        found["sink_logits"] = -torch.where(lse == -torch.inf, 0, weights * delta).sum(0)
    for name in tables_of(data, wanted):
        if f"{name}.places0" in made:
            found[name] = _of_table(name, made, data[name])
    return found


def _of_table(name: str, made: Mapping[str, Tensor], table: Tensor) -> Tensor:
    """Add up the terms of rows and heads at the indices of a table that each of its reads found. Accumulating by index
    keeps the order of the terms, on GPUs too, where PyTorch sorts."""
    total = torch.zeros(table.numel(), dtype=torch.float32, device=table.device)
    for read in itertools.count():
        places = made.get(f"{name}.places{read}")
        if places is None:
            return total.view(table.shape)
        sums = made.get(f"{name}.rows{read}")
        if sums is None:  # A head finds the same index in every row.
            sums, places = made[f"{name}.heads{read}"].sum(0), places[:1]
        if places.numel():
            total.index_put_((places.flatten().long(),), sums.flatten(), accumulate=True)


def kept_plan(
    kernel: Any, given: Mapping[str, Tensor], tables: Mapping[str, numpy.ndarray], stream: int
) -> Any:
    """Return the plan of an equal earlier run, or a new one, for tensors and tables of these shapes and numbers."""
    described = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in given.items()}
    numbers = tuple((name, table.shape, table.tobytes()) for name, table in tables.items())
    key = (tuple(described.items()), numbers, stream, devices.generation)
    with _guard:
        plan = kernel._kept_plans.get(key)
    if plan is None:
        made = kernel.plan(described | dict(tables), stream=stream)
        with _guard:
            kept = kernel._kept_plans
            plan = kept.setdefault(key, made)
            plan.used = next(clock)
            while len(kept) > _MOST_PLANS:
                kept.pop(min(kept, key=lambda other: kept[other].used))
    plan.used = next(clock)
    return plan


def _launch(kernel: Any, addresses: list[int], nbytes: list[int], plan: Any, stream: int) -> None:
    """Launch. A stream that is being captured takes fixed plans only, and its graph reads the plan for as long as it
    lives."""
    try:
        kernel.launch(addresses, nbytes, plan, stream)
    except PlanError:
        if any(plan is other for other in _captured):
            raise
        plan.fix()
        _captured.append(plan)
        kernel.launch(addresses, nbytes, plan, stream)


def _readable(tensor: Tensor) -> Tensor:
    """Return a dense copy or the tensor itself, at an address where a kernel's copies may begin."""
    tensor = tensor.detach().resolve_neg().contiguous()
    return tensor if tensor.data_ptr() % _ALIGNMENT == 0 else tensor.clone()
