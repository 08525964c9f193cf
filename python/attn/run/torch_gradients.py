# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.attend where autograd records: forward by the kernel, backward by kernels or the reference.

What forward was given is saved by autograd; description and tables are kept as they were then.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..compiler.requests import Asks, source_of
from ..describe.score import trace
from ..describe.spec import Spec
from ..errors import CompileError, TensorError, expected, given
from ..forks import make_guard
from ..memory.tables import int32_array
from ..memory.views import refuse_transformed
from .arrange import Arrangement
from .backward import (
    check_place,
    kernel_gradients,
    ordered_by_default,
    tables_of,
)
from .described_calls import Options, describe_call, read_tensors
from .direct import attend_now
from .kernels import compile_asked
from .reference import FLOATS, Problem, check_cpu, rounded

_MOST_CALLS = 64
_known: OrderedDict[tuple, Differentiable] = OrderedDict()
_guard = make_guard()


@dataclass(frozen=True)
class Differentiable:
    """A call of attend: what is attended, as the reference reads it, and how the caller's tensors become its."""

    problem: Problem
    arrangement: Arrangement
    swapped: bool
    """Whether the caller's tensors are [batch, heads, seq, dim]; the reference's never are."""
    names: tuple[str, ...]
    """Of the tensors beside q, k and v."""
    spec: Spec
    """The description of the problem."""
    asked: Problem
    """That with the significance of tokens, where it is asked for."""
    ordered: bool | None
    """Whether gradients are the same bits in every run; None: where all of PyTorch's are, or where that is quicker."""
    kernels: dict[tuple, Any] = field(default_factory=dict, compare=False)
    """Of gradients, by what is asked of them, or why there is none."""

    @staticmethod
    def of(
        q: Tensor, k: Tensor, v: Tensor, extras: Mapping[str, Tensor], options: Mapping[str, Any]
    ) -> Differentiable:
        """Checks everything, unless a call like it was checked before. `options`: those arguments of attend that are no
        tensors, and its tables."""
        for name, tensor in (("q", q), ("k", k), ("v", v), *extras.items()):
            if tensor.dtype not in FLOATS:
                raise TensorError(f"{name}: expected floats of 16, 32 or 64 bits, got {tensor.dtype}")
        for name, tensor in (("k", k), ("v", v)):
            if tensor.dtype != q.dtype:
                raise TensorError(f"{name}: expected the dtype of q, {q.dtype}, got {tensor.dtype}")
        is_swapped = options["layout"] == "bhsd" and q.ndim == k.ndim == v.ndim == 4
        dtype = numpy.float16 if q.dtype == torch.float16 else numpy.uint16
        views = [
            _as_if_dense(_in_order(tensor, is_swapped).shape, numpy.dtype(dtype)) for tensor in (q, k, v)
        ]
        views += [_as_if_dense(tensor.shape, numpy.dtype(numpy.float32)) for tensor in extras.values()]
        described = Options(
            *(options[name] for name in ("causal", "window", "sink", "see", "softcap", "score", "scale")),
            layout="bshd" if is_swapped else options["layout"],
            return_lse=True,
            names=tuple(extras),
            significance=options["significance"],
            significance_rows=options["significance_rows"],
            allow_empty_rows=options["allow_empty_rows"],
        )
        if described.score is not None:
            described = described._replace(score=trace(described.score, read_tensors(described, views)))
        tables = tuple(
            None if options[name] is None else int32_array(name, options[name])
            for name in ("kv_lengths", "cu_seqlens", "cu_seqlens_k")
        )
        key = (
            described,
            tuple(view[1][:2] for view in views),
            tuple(None if table is None else (table.shape, table.tobytes()) for table in tables),
            options["forest"],
            is_swapped,
            options.get("ordered"),
        )
        try:
            found = _known.get(key)
        except TypeError:  # describe_call says of which argument
            found, key = None, ()
        if found is None:
            found = Differentiable._made(described, views, tables, extras, options, is_swapped)
            if key:
                with _guard:
                    _known[key] = found
                    while len(_known) > _MOST_CALLS:
                        _known.popitem(last=False)
        return found

    @staticmethod
    def _made(
        described: Options,
        views: list,
        given: tuple,
        extras: Mapping[str, Tensor],
        options: Mapping[str, Any],
        is_swapped: bool,
    ) -> Differentiable:
        copies = tuple(None if table is None else table.copy() for table in given)
        made, spec = describe_call(described, views, copies, options["forest"])
        text, asks = source_of(spec)
        tables = {name: table for name, table in made.operands.items() if isinstance(table, numpy.ndarray)}
        problem, asked = Problem(text, tables), Problem(text, tables, asks)
        return Differentiable(problem, made, is_swapped, tuple(extras), spec, asked, options.get("ordered"))

    def results(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Of the reference: out of q's dtype; lse and, if asked for, significance in float32, of float64 in that."""
        shape, worth = self.arrangement.shape, self.arrangement.operands["kv.k"][1][:-1]
        q, found = tensors[0], self.asked.results(self._data(tensors))
        out, *numbers = (
            _in_order(each.reshape(wanted), self.swapped)
            for each, wanted in zip(found, (shape, shape[:-1], worth), strict=False)
        )
        precise = torch.float64 if q.dtype == torch.float64 else torch.float32
        return out.to(q.dtype), *(each.to(precise) for each in numbers)

    def gradients(
        self,
        tensors: tuple[Tensor, ...],
        results: tuple[Tensor, Tensor],
        gradients: tuple[Tensor | None, Tensor | None],
        *,
        needed: tuple[bool, ...] | None = None,
        reference: bool = False,
    ) -> list[Tensor]:
        """By q, k, v and the rest, of which all are `needed` where that is not said. `results`: of forward, `gradients`:
        of these. By kernels where there are some, unless the reference is asked for."""
        if self.arrangement.operands["q"][1][0] == 0:
            return [torch.zeros_like(tensor) for tensor in tensors]
        (out, lse), (d_out, d_lse) = (
            tuple(
                None if given is None else _in_order(given, self.swapped).flatten(0, given.ndim - depth)
                for given, depth in zip(pair, (3, 2), strict=True)
            )
            for pair in (results, gradients)
        )
        data, found = self._data(tensors), None
        if not reference:
            asked = (True,) * len(tensors) if needed is None else needed
            wanted = [name for name, need in zip(data, asked, strict=True) if need]
            kernel = self._kernel(data, wanted)
            check_place(kernel, data)
            pair = (d_out, d_lse)
            found = kernel_gradients(kernel, self.problem.tables, data, (out, lse), pair, wanted)
        if found is None:
            found = self.problem.gradients(data, d_out, d_lse)
        gradients = []
        for name, tensor in zip(("q", "kv.k", "kv.v", *self.names), tensors, strict=True):
            if name not in found:  # a table that the score does not read
                gradients.append(torch.zeros_like(tensor))
            elif name in ("q", "kv.k", "kv.v"):
                like = _in_order(tensor, self.swapped)
                gradients.append(_in_order(rounded(found[name], like), self.swapped))
            else:
                gradients.append(rounded(found[name], tensor))
        return gradients

    def check_place(self, tensors: tuple[Tensor, ...], needed: Sequence[bool] | None = None) -> None:
        """TensorError where gradients are required on a GPU that no kernel gives; by default of tensors that require one."""
        if any(tensor.device.type != "cpu" for tensor in tensors):
            data = self._data(tensors)
            asked = [tensor.requires_grad for tensor in tensors] if needed is None else needed
            wanted = [name for name, need in zip(data, asked, strict=True) if need]
            check_place(self._kernel(data, wanted), data)

    def _kernel(self, data: Mapping[str, Tensor], wanted: Collection[str]) -> Any:
        device = str(data["q"].device)
        key = tuple(wanted), device, torch.are_deterministic_algorithms_enabled()
        if (found := self.kernels.get(key)) is not None:
            return found
        spec = self.spec
        known = {name for name, _ in spec.tensors} | ({"sink_logits"} if spec.sink_logits else set())
        read = tuple(name for name in tables_of(data, wanted) if name in known)
        ordered = self.ordered
        if ordered is None:
            ordered = ordered_by_default([store.see for store in spec.operands], self.problem.tables)
        found = _backward_kernel(self.problem.text, device, Asks(backward=read, ordered=ordered))
        return self.kernels.setdefault(key, found)

    def _data(self, tensors: tuple[Tensor, ...]) -> dict[str, Tensor]:
        data = {
            name: _in_order(tensor, self.swapped).reshape(self.arrangement.operands[name][1])
            for name, tensor in zip(("q", "kv.k", "kv.v"), tensors[:3], strict=True)
        }
        return data | dict(zip(self.names, tensors[3:], strict=True))


_without_kernels: dict[tuple[str, str, Asks], str] = {}


def _backward_kernel(text: str, device: str, asks: Asks) -> Any:
    """The kernel of the gradients that are asked of a description, or why there is none."""
    key = text, device, asks
    if key in _without_kernels:
        return _without_kernels[key]
    try:
        return compile_asked(text, asks, device)
    except CompileError as error:
        return _without_kernels.setdefault(key, str(error))


def _in_order(tensor: Tensor, swapped: bool) -> Tensor:
    return tensor.transpose(1, 2) if swapped else tensor


def _as_if_dense(shape: torch.Size, dtype: numpy.dtype) -> tuple:
    """The view of a NumPy array of this shape: only what it says of itself is read."""
    strides, step = [], dtype.itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return 0, (dtype, tuple(shape), tuple(reversed(strides)), None, True, False)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, forward: Callable, call: Differentiable, reference: bool, *tensors: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.call, ctx.reference = call, reference
        results = forward(*tensors)
        ctx.save_for_backward(*tensors, *results)
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    @once_differentiable
    def backward(ctx, d_out: Tensor | None, d_lse: Tensor | None) -> tuple:
        if d_out is None and d_lse is None:
            return (None,) * len(ctx.needs_input_grad)
        *tensors, out, lse = ctx.saved_tensors
        wanted = ctx.needs_input_grad[3:]
        found = ctx.call.gradients(
            tuple(tensors), (out, lse), (d_out, d_lse), needed=wanted, reference=ctx.reference
        )
        return (
            None,
            None,
            None,
            *(gradient if needed else None for gradient, needed in zip(found, wanted, strict=True)),
        )


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    sink_logits: Any,
    tensors: Mapping[str, Any] | None,
    return_lse: bool,
    out: Any,
    reference: bool,
    ordered: bool | None = None,
    **options: Any,
) -> Any:
    """`attn.attend` where a gradient is required, or results of the reference are asked for."""
    options = {"significance": None, "significance_rows": None} | options
    if out is not None:
        why = "of the reference" if reference else "where a gradient is required"
        raise TensorError(f"out: expected None {why}, got {given(out)}")
    extras = _extras(sink_logits, tensors)
    for name, tensor in {"q": q, "k": k, "v": v, **extras}.items():
        refuse_transformed(name, tensor)
    for name, tensor in (("q", q), ("k", k), ("v", v), *extras.items()):
        if not isinstance(tensor, Tensor):
            raise expected(TensorError, name, "a tensor of PyTorch", tensor)
    if reference:
        check_cpu(q=q, k=k, v=v, **extras)
    call = Differentiable.of(q, k, v, extras, options | {"ordered": ordered})
    call.check_place((q, k, v, *extras.values()))

    worth: list[Tensor] = []

    def forward(*given: Tensor) -> tuple[Tensor, Tensor]:
        if reference:
            results = call.results(given)
        else:
            q, k, v, *others = given
            named = dict(zip(extras, others, strict=True))
            named = {"sink_logits": named.pop("sink_logits", None)} | {"tensors": named or None}
            results = attend_now(q, k, v, **options, **named, return_lse=True, out=None)
        worth[:] = results[2:]  # no gradient passes to it, nor from it
        return results[:2]

    found, lse = _Attend.apply(forward, call, reference, q, k, v, *extras.values())
    results = (found, lse, *worth) if return_lse else (found, *worth)
    return results if len(results) > 1 else found


def _extras(sink_logits: Any, tensors: Mapping[str, Any] | None) -> dict[str, Any]:
    """Sinks and what the score function reads; arrays of NumPy have no gradients, but may stand beside."""
    if tensors is not None and not isinstance(tensors, Mapping):
        raise expected(TensorError, "tensors", "a dict of names and tensors", tensors)
    extras = {} if sink_logits is None else {"sink_logits": sink_logits}
    extras |= tensors or {}
    return {
        name: torch.from_numpy(tensor) if isinstance(tensor, numpy.ndarray) else tensor
        for name, tensor in extras.items()
    }
