# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Full and streaming attention in one launch, and their gradients by kernels.

One kernel computes the softmax's state over the tokens that streaming heads see, writes its result, and continues with
the same accumulator over the rest. The rest is an operand of its own in the same memory: it begins after the sink, and
its positions are counted `recent` too high, so that a row sees causally the tokens that are at least `recent` tokens
old. A token is read for both only in a tile whose first rows see it as recent and whose last rows see it as the rest.

Gradients are those of two attentions, full and streaming, each with its own LSE, added up in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy
import torch
from torch import Tensor

from ..describe.printing import f32_text
from ..describe.spec import Spec
from ..describe.stores import Dense
from ..describe.visibility import Visibility, causal, recent, sink, window
from ..errors import TensorError
from ..memory import devices
from ..memory.dtypes import storage_name
from ..memory.views import needs_gradient
from ..run.attention import attend
from ..run.backward import kept_plan, kernel_gradients
from ..run.kernels import compile as compile_kernel
from ..run.torch_rules import differentiable_once

HALVES = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Streaming:
    """The tokens that streaming heads see: first tokens, last ones, and the window of all heads (0: none)."""

    sink: int
    recent: int
    window: int

    def full(self) -> Visibility:
        return window(self.window) if self.window else causal()

    def near(self) -> Visibility:
        return self.full() & (sink(self.sink) | recent(self.recent) if self.sink else recent(self.recent))

    def rest(self, tokens: int) -> int:
        """Return the number of tokens of the operand whose positions are `recent` too high."""
        hides = bool(self.window) and self.window <= self.recent
        return 0 if hides else max(tokens - self.sink, 0)

    def canonical(self) -> Streaming:
        """Return the same form, with sizes 1, 2, 3 for those that are not 0."""
        return Streaming(min(self.sink, 1), 2, 3 if self.window else 0)


@dataclass(frozen=True)
class TwoOutputs:
    """The description of such a kernel, as `attn.compile` takes it."""

    q_heads: int
    kv_heads: int
    dim: int
    value_dim: int
    dtype: str
    scale: float
    sees: Streaming
    rest_window: int
    """The window's size in the rest, where positions are `recent` too high."""

    def form(self) -> TwoOutputs:
        return replace(self, sees=self.sees.canonical(), rest_window=4 if self.rest_window else 0)

    def ends(self, canonical: Sequence[int]) -> list[int]:
        sizes = {1: self.sees.sink, 2: self.sees.recent, 3: self.sees.window, 4: self.rest_window}
        return [sizes[small] for small in canonical]

    def mlir(self) -> str:
        dtype = {"bfloat16": "bf16", "float16": "f16"}[self.dtype]
        near, scale = self.sees.near().mlir(), f32_text(self.scale)
        rest = f"window({self.rest_window})" if self.rest_window else "causal"
        heads = f"heads = {self.kv_heads}, dim = {self.dim}, value_dim = {self.value_dim}"
        return f"""!query = tensor<?x{self.q_heads}x{self.dim}x{dtype}>
!output = tensor<?x{self.q_heads}x{self.value_dim}x{dtype}>
!lse = tensor<?x{self.q_heads}xf32>
!kv = !attn.kv<dense, {heads}, key = {dtype}, value = {dtype}>

func.func @both(%q: !query {{attn.name = "q", attn.dims = ["rows"]}},
                %near: !kv {{attn.name = "near", attn.dims = ["batch", "near_len"]}},
                %rest: !kv {{attn.name = "rest", attn.dims = ["batch", "rest_len"]}}) -> (!output, !lse, !output, !lse) {{
  %o, %lse = attn.attend %q over (%near see {near}), (%rest see {rest}) scale {scale} : !query, !kv, !kv -> !output, !lse
  %n, %near_lse = attn.attend %q over (%near see {near}) scale {scale} : !query, !kv -> !output, !lse
  return %o, %lse, %n, %near_lse : !output, !lse, !output, !lse
}}
"""


def attend_both_by_kernels(
    q: Tensor, k: Tensor, v: Tensor, scale: float, sees: Streaming
) -> tuple[Tensor, ...]:
    """Compute `attend_both` of checked tensors. TensorError for dtypes and heads without a kernel."""
    if q.dtype not in HALVES or k.dtype != q.dtype or v.dtype != q.dtype:
        raise TensorError(
            f"q, k, v: expected bfloat16 or float16, all three, got {q.dtype}, {k.dtype}, {v.dtype}; by='torch' computes "
            "others"
        )
    if sees.window >= q.shape[2]:
        sees = replace(sees, window=0)
    problem = TwoOutputRuns(q, k, v, scale, sees)
    if needs_gradient(q, k, v):
        problem.check_gradients()
    return _Kernels.apply(q, k, v, problem)


def attend_near_by_kernels(q: Tensor, k: Tensor, v: Tensor, scale: float, sink: int, recent: int) -> Tensor:
    """Compute streaming attention alone, with gradients; arguments as in `attend_both`."""
    see = Streaming(sink, recent, 0).near()
    rows = (x.transpose(1, 2) for x in (q, k, v))
    stored = (x if x.is_contiguous() else x.contiguous() for x in rows)
    return attend(*stored, see=see, scale=scale).transpose(1, 2)


class TwoOutputRuns:
    """Tables, kernels and plans for tensors of one shape."""

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, scale: float, sees: Streaming):
        self.batch, q_heads, self.tokens, dim = q.shape
        self.scale, self.sees = scale, sees
        self.described = TwoOutputs(
            *(q_heads, k.shape[1], dim, v.shape[3], storage_name("dtype", q.dtype), scale, sees),
            rest_window=max(sees.window - sees.recent, 1) if sees.window else 0,
        )
        self.device = q.device if q.device.type == "cuda" else "host"
        rows = numpy.arange(self.batch + 1, dtype=numpy.int32) * self.tokens
        positions = numpy.tile(numpy.arange(self.tokens, dtype=numpy.int32), self.batch)
        self.tables = {"q_start": rows, "q_pos": positions}

    def kernel(self) -> Any:
        return compile_kernel(self.described, device=self.device)

    def backward(self, see: Visibility) -> Any:
        """Return the kernel of one attention's gradients; or the reason that there is none."""
        d = self.described
        spec = Spec(
            **dict(q_heads=d.q_heads, kv_heads=d.kv_heads, head_dim=d.dim, value_dim=d.value_dim),
            **dict(dtype=d.dtype, scale=self.scale, kv=[Dense()], see=see),
        )
        return compile_kernel(spec, device=self.device)._backward((), {})

    def check_gradients(self) -> None:
        if isinstance(self.backward(self.sees.full()), str):
            d = self.described
            raise TensorError(
                f"q, k, v: no kernel gives the gradients of heads of {d.dim} and {d.value_dim} features on {self.device}; "
                "by='torch' does"
            )

    def prepare(self, q: Tensor, k: Tensor, v: Tensor) -> Callable[[], tuple[Tensor, ...]]:
        """Return a function that launches: it returns out and lse of all tokens, out and lse of the near ones; rows
        packed."""
        kernel, behind = self.kernel(), self.sees.rest(self.tokens)
        near = tuple(_as_stored(x) for x in (k, v))
        rest = tuple(x[:, x.shape[1] - behind :] if behind else x for x in near)
        given = {"q": _rows(q)} | {
            f"{name}.{part}": x
            for name, parts in (("near", near), ("rest", rest))
            for part, x in zip("kv", parts, strict=True)
        }
        each = numpy.ones(self.batch, dtype=numpy.int32)
        tables = self.tables | {
            "near.lengths": each * self.tokens,
            "near.pos0": each * 0,
            "rest.lengths": each * behind,
            "rest.pos0": each * (self.sees.sink + self.sees.recent),
        }
        plan = kept_plan(kernel, given, tables, devices.stream_number(kernel.device, None))
        return lambda: kernel.run(given["q"], near, rest, plan)

    def gradients(self, see: Visibility, data: Mapping[str, Tensor], results, d_results) -> dict[str, Tensor]:
        each = numpy.ones(self.batch, dtype=numpy.int32)
        tables = self.tables | {"kv.lengths": each * self.tokens, "kv.pos0": each * 0}
        found = kernel_gradients(self.backward(see), tables, data, results, d_results, list(data))
        assert found is not None, "check_gradients has asked"
        return found

    def as_given(self, rows: Tensor) -> Tensor:
        """Return packed rows as [batch, heads, tokens, ...]."""
        return rows.unflatten(0, (self.batch, self.tokens)).transpose(1, 2)


def _rows(x: Tensor) -> Tensor:
    """Return [batch, heads, tokens, ...] as packed rows, with contiguous features."""
    rows = x.detach().transpose(1, 2).flatten(0, 1)
    return rows if rows.ndim < 3 or _readable(rows) else rows.contiguous()


def _as_stored(x: Tensor) -> Tensor:
    """Return [batch, heads, tokens, dim] in the layout of a dense store; copied only if kernels could not read it."""
    stored = x.detach().transpose(1, 2)
    return stored if _readable(stored) else stored.contiguous()


def _readable(x: Tensor) -> bool:
    apart = (stride * x.element_size() % 16 for stride in x.stride()[:-1])
    return x.stride(-1) == 1 and x.data_ptr() % 16 == 0 and not any(apart) and 0 not in x.stride()


class _Kernels(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, problem):
        out, lse, near, near_lse = problem.prepare(q, k, v)()
        ctx.save_for_backward(q, k, v, out, lse, near, near_lse)
        ctx.problem = problem
        ctx.set_materialize_grads(False)
        return tuple(problem.as_given(x) for x in (out, lse, near, near_lse))

    @staticmethod
    @differentiable_once
    def backward(ctx, saved, *gradients):
        q, k, v, *results = saved
        problem = ctx.problem
        data = {"q": _rows(q), "kv.k": _as_stored(k), "kv.v": _as_stored(v)}
        sums: dict[str, Tensor] = {}
        for see, at in ((problem.sees.full(), 0), (problem.sees.near(), 2)):
            given = [None if d is None else _rows(d) for d in gradients[at : at + 2]]
            if given[0] is None and given[1] is None:
                continue
            found = problem.gradients(see, data, tuple(results[at : at + 2]), tuple(given))
            sums = {name: found[name].float() + sums.get(name, 0) for name in data}
        if not sums:
            return None, None, None, None
        stored = [sums[name].transpose(1, 2).to(x.dtype) for name, x in (("kv.k", k), ("kv.v", v))]
        return problem.as_given(sums["q"]).to(q.dtype), *stored, None
