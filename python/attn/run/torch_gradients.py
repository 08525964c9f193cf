# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.attend when autograd records: the kernel computes the forward pass, kernels or the reference the backward pass.

Autograd saves the arguments of the forward pass; description and tables are kept as they were then.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from torch import Tensor

from .. import _attn
from ..compiler.requests import Asks, source_of
from ..describe.score import trace
from ..describe.spec import Spec
from ..errors import CompileError, TensorError, expected, given
from ..forks import make_guard
from ..memory import devices
from ..memory.tables import int32_array
from ..memory.views import refuse_transformed
from .arrange import Arrangement
from .backward import (
    Launched,
    check_place,
    found_gradients,
    launch,
    missing_kernels,
    order_of,
    prepared,
    tables_of,
)
from .described_calls import Options, describe_call, read_tensors
from .direct import attend_now
from .kernels import compile_asked
from .launches import Asked
from .reference import FLOATS, Problem, check_cpu, rounded
from .torch_rules import differentiable_once

_MOST_CALLS = 64
_TABLES = ("kv_lengths", "cu_seqlens", "cu_seqlens_k")
_known: OrderedDict[tuple, Differentiable] = OrderedDict()
_guard = make_guard()


@dataclass(frozen=True)
class Differentiable:
    """A call of attend: the problem as the reference reads it, and the mapping from the caller's tensors to the
    reference's."""

    problem: Problem
    arrangement: Arrangement
    swapped: bool
    """Whether the caller's tensors are [batch, heads, seq, dim]; the reference's never are."""
    names: tuple[str, ...]
    """Names of the tensors beside q, k and v."""
    spec: Spec
    """The description of the problem."""
    asked: Problem
    """The problem with the significance of tokens, if requested."""
    ordered: bool | None
    """Whether gradients are the same bits in every run; None: if PyTorch is deterministic, or if that is quicker."""
    kernels: dict[tuple, Any] = field(default_factory=dict, compare=False)
    """Kernels of gradients by the request, or the reason that there is none."""
    launches: _attn.Launches = field(default_factory=_attn.Launches, compare=False)
    """Launches of both passes."""

    @staticmethod
    def of(
        q: Tensor, k: Tensor, v: Tensor, extras: Mapping[str, Tensor], options: Mapping[str, Any]
    ) -> Differentiable:
        """Check everything, unless an equal call was checked before. `options`: the arguments of attend that are not
        tensors, and its tables. Raises TensorError or SpecError."""
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
            numerics=options["numerics"],
        )
        if described.score is not None:
            described = described._replace(score=trace(described.score, read_tensors(described, views)))
        tables = tuple(
            None if options[name] is None else int32_array(name, options[name]) for name in _TABLES
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
        except TypeError:  # describe_call names the argument.
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
        """Compute the reference's results: out of q's dtype; lse and, if requested, significance in float32, in float64
        for float64 tensors."""
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
        launched: list[Launched] | None = None,
    ) -> list[Tensor]:
        """Compute gradients by q, k, v and the rest. `needed`: which of them, by default all; `results`: of the forward
        pass; `gradients`: of these. Kernels compute them if they can, unless `reference` is set; `launched` then gets
        the run."""
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
            if not missing_kernels(kernel, data):
                ran = launch(kernel, self.problem.tables, data, (out, lse), (d_out, d_lse))
                found = found_gradients(ran, data, (out, lse), wanted)
                if launched is not None:
                    launched.append(ran)
        if found is None:
            found = self.problem.gradients(data, d_out, d_lse)
        gradients = []
        for name, tensor in zip(("q", "kv.k", "kv.v", *self.names), tensors, strict=True):
            if name not in found:  # A table that the score does not read.
                gradients.append(torch.zeros_like(tensor))
            elif name in ("q", "kv.k", "kv.v"):
                like = _in_order(tensor, self.swapped)
                gradients.append(_in_order(rounded(found[name], like), self.swapped))
            else:
                gradients.append(rounded(found[name], tensor))
        return gradients

    def backward(
        self,
        saved: tuple[Tensor, ...],
        gradients: tuple[Tensor | None, Tensor | None],
        needed: tuple[bool, ...],
    ) -> tuple[Tensor | None, ...]:
        """Compute `gradients` from the tensors and results that the forward pass has saved; None for those that are not
        needed. Uses a prepared launch if there is one for tensors of this layout, or for dense ones."""
        options = torch.are_deterministic_algorithms_enabled(), *needed
        if (found := self.launches.run(saved + gradients, options)) is not None:
            return found
        given = tuple(None if each is None else self._dense(each) for each in saved + gradients)
        if (found := self.launches.run(given, options)) is not None:
            return found
        count, launched = len(needed), []
        made = self.gradients(
            given[:count], given[count : count + 2], given[count + 2 :], needed=needed, launched=launched
        )
        found = tuple(each if need else None for each, need in zip(made, needed, strict=True))
        if launched:
            names = ("q", "kv.k", "kv.v", *self.names)
            named = dict(zip((*names, "o", "lse", "do", "dlse"), given, strict=True))
            by_name = dict(zip(names, found, strict=True))
            Asked(self.launches, given, options).add(lambda: prepared(launched[0], named, by_name))
        return found

    def _dense(self, tensor: Tensor) -> Tensor:
        """Return a tensor in the order in memory that kernels of gradients read."""
        swapped = self.swapped and tensor.ndim > 2
        return _in_order(_in_order(tensor, swapped).contiguous(), swapped)

    def check_place(self, tensors: tuple[Tensor, ...], needed: Sequence[bool] | None = None) -> None:
        """Raise a TensorError if required gradients on a GPU have no kernel; by default those of tensors that require
        one."""
        if any(tensor.device.type != "cpu" for tensor in tensors):
            data = self._data(tensors)
            asked = [tensor.requires_grad for tensor in tensors] if needed is None else needed
            wanted = [name for name, need in zip(data, asked, strict=True) if need]
            check_place(self._kernel(data, wanted), data)

    def _kernel(self, data: Mapping[str, Tensor], wanted: Collection[str]) -> Any:
        device = str(data["q"].device)
        key = tuple(wanted), device, torch.are_deterministic_algorithms_enabled(), devices.generation
        if (found := self.kernels.get(key)) is not None:
            return found
        spec = self.spec
        known = {name for name, _ in spec.tensors} | ({"sink_logits"} if spec.sink_logits else set())
        read = tuple(name for name in tables_of(data, wanted) if name in known)
        ordered: bool | str | None = self.ordered
        if spec.numerics is None:  # else bits must not depend on lengths
            ordered = order_of(ordered, [store.see for store in spec.operands], self.problem.tables)
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
    """Return the kernel of the requested gradients of a description, or the reason that there is none."""
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
    """Return the view of a dense NumPy array of this shape; only its description is read, not its memory."""
    strides, step = [], dtype.itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return 0, (dtype, tuple(shape), tuple(reversed(strides)), None, True, False)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx, recorded: _Recorded, *tensors: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        results = recorded.forward(tensors)
        ctx.recorded = recorded
        ctx.save_for_backward(*tensors, *results)
        ctx.set_materialize_grads(False)
        return results if recorded.return_lse else results[0]

    @staticmethod
    @differentiable_once
    def backward(ctx, saved: tuple, d_out: Tensor | None, d_lse: Tensor | None = None) -> tuple:
        needed = ctx.needs_input_grad[1:]
        if d_out is None and d_lse is None:
            return (None,) * (1 + len(needed))
        return None, *ctx.recorded.backward(saved, (d_out, d_lse), needed)


# Function.apply calls this outside of torch.func, after a check for tensors that outlived its transforms;
# those are refused.
_apply = super(torch.autograd.Function, _Attend).apply


class _Recorded:
    """A call as autograd records it, for all calls that differ only in the numbers in their tensors."""

    def __init__(
        self, call: Differentiable, options: dict, names: tuple[str, ...], reference: bool, return_lse: bool
    ):
        self.call, self.options, self.names = call, options, names
        self.reference, self.return_lse = reference, return_lse
        self.worth: list[Tensor] = []
        """Significance: no gradient passes to it, nor from it."""

    def __call__(self, *tensors: Tensor | None) -> Any:
        """Compute the results from q, k, v and the rest; None stands for absent sink logits."""
        if tensors[-1] is None:
            tensors = tensors[:-1]
        apply = _Attend.apply if torch._C._are_functorch_transforms_active() else _apply
        results = apply(self, *tensors)
        if not self.worth:
            return results
        return (*results, *self.worth) if self.return_lse else (results, *self.worth)

    def forward(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        if self.reference:
            results = self.call.results(tensors)
        else:
            launches = self.call.launches
            if (found := launches.run(tensors, ())) is not None:
                return found
            extras = dict(zip(self.names, tensors[3:], strict=True))
            results = attend_now(
                *tensors[:3],
                **self.options,
                sink_logits=extras.pop("sink_logits", None),
                tensors=extras or None,
                return_lse=True,
                out=None,
                asked=Asked(launches, tensors, ()),
            )
        self.worth[:] = results[2:]
        return results[:2]

    def backward(self, saved: tuple[Tensor, ...], gradients: tuple, needed: tuple[bool, ...]) -> tuple:
        if not self.reference:
            return self.call.backward(saved, gradients, needed)
        tensors, results = saved[:-2], saved[-2:]
        found = self.call.gradients(tensors, results, gradients, needed=needed, reference=True)
        return tuple(each if need else None for each, need in zip(found, needed, strict=True))

    def again(self) -> _Recorded | None:
        """Return a copy for later calls, with tables of its own: the caller's may change until then."""
        if self.reference or self.worth:
            return None
        options = {
            name: int32_array(name, value).copy() if name in _TABLES and value is not None else value
            for name, value in self.options.items()
        }
        return _Recorded(self.call, options, self.names, False, self.return_lse)


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
    asked: Asked | None = None,
    **options: Any,
) -> Any:
    """Compute `attn.attend` with gradients, or by the reference. `asked`: receives the record for later calls of this
    form."""
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

    recorded = _Recorded(call, options, tuple(extras), reference, return_lse)
    results = recorded(q, k, v, *extras.values())
    if asked is not None:
        asked.add(recorded.again)
    return results


def _extras(sink_logits: Any, tensors: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return sinks and the tensors that the score function reads. Arrays of NumPy are allowed, without gradients."""
    if tensors is not None and not isinstance(tensors, Mapping):
        raise expected(TensorError, "tensors", "a dict of names and tensors", tensors)
    extras = {} if sink_logits is None else {"sink_logits": sink_logits}
    extras |= tensors or {}
    return {
        name: torch.from_numpy(tensor) if isinstance(tensor, numpy.ndarray) else tensor
        for name, tensor in extras.items()
    }
