# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A compiled kernel on a device: plan a batch, run it, look inside.

`run` is on the path of every layer of every step, so it only finds addresses and compares signatures with those
accepted before (memory/views.py). It allocates nothing if `out` is given, never waits, and copies nothing if the
batch's rows are in the user's order.

One class, whose signatures and docstrings are half of the file: users see everything that a kernel can do in one place.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar, overload

from .. import _attn
from ..compiler.artifacts import load_native
from ..compiler.requests import Asks, source_of
from ..errors import CompileError, PlanError, TensorError, closest, expected
from ..forks import cached_property
from ..memory import devices
from ..memory.devices import failed
from ..memory.tensors import written
from ..memory.views import NOTHING, check, is_traced, needs_gradient, refuse_tangents, strides_of, view_of
from .code import Code
from .device_plan import DevicePlan, DevicePlanner
from .launches import Asked, beside_pools, clock, form_of
from .plan import Plan
from .report import KernelReport, make_report

T = TypeVar("T")


def _count(operand: object) -> int:
    return len(operand) if type(operand) is tuple else -1


_DIMENSION = re.compile(r" for dimension (\d)")


class Kernel(Code):
    """A compiled attention on a device; `attn.compile` returns it. May be used from several threads."""

    def described_by(self, spec: object) -> Kernel:
        """Return this kernel with the sizes of a description of the same form; the kernel itself if no size differs.
        Both share the code, and the positions of layers' heads."""
        if not hasattr(spec, "ends"):
            return self
        text, (plain, _) = spec.mlir(), source_of(spec)
        if plain == self._plain:
            self.text = text  # The text includes the requests.
            return self
        return self._resized(text, plain, tuple(spec.ends(self.manifest["ends"])))

    def _resized(self, text: str, plain: str, ends: tuple[int, ...]) -> Kernel:
        twin = object.__new__(Kernel)
        twin.__dict__.update(self.__dict__)
        twin.text, twin._plain, twin.ends = text, plain, ends
        for kept in ("_gradient_kernels", "_kept_plans"):  # These depend on the sizes.
            twin.__dict__.pop(kept, None)
        return twin

    def __copy__(self) -> Kernel:
        return self

    def __deepcopy__(self, memo: object) -> Kernel:
        """Return the kernel itself, which never changes."""
        return self

    def report(
        self, *tensors: object, plan: Plan | None = None, repeat: int = 5, **named: object
    ) -> KernelReport:
        """Return what the kernel needs of a GPU: registers, shared memory, spills (needs ptxas), tiles. With a plan
        also the predicted time; with the tensors of a run also the measured one, the least of `repeat` runs, in
        seconds."""
        if plan is None and tensors and isinstance(tensors[-1], Plan):
            *tensors, plan = tensors
        run = functools.partial(self.run, *tensors, plan, **named) if tensors else None
        return make_report(self, plan, run, repeat)

    def _backward(self, tables: tuple[str, ...], batch: Mapping[str, object]) -> Kernel | str:
        """Return the kernel of its gradients for such a batch, including those of `tables`; or the reason that there is
        none."""
        from .backward import order_of

        ordered = True if self.numerics is not None else order_of(None, self._sees, batch)
        asks = Asks(backward=tables, ordered=ordered)
        if (known := self._gradient_kernels.get(asks)) is not None:
            return known
        request = self._request._replace(text=self._plain, asks=asks)
        try:
            native, number, entry = load_native(request, self._native.device)
            found: Kernel | str = Kernel(native, request=request, key=number, about=entry.about)
        except CompileError as error:
            found = str(error)
        return self._gradient_kernels.setdefault(asks, found)

    @cached_property
    def _gradient_kernels(self) -> dict[Asks, Kernel | str]:
        return {}

    @cached_property
    def _kept_plans(self) -> dict[tuple, Plan]:
        """Plans by their batches, for runs that bring no plan (backward.py)."""
        return {}

    # --- Planning --------------------------------------------------------------------------------------------

    def plan(
        self,
        batch: object,
        *,
        strategy: str = "flatten",
        blocks: int = 0,
        limits: Mapping[str, int] | None = None,
        stream: object = None,
    ) -> Plan:
        """Plan a batch, and copy plan and tables to the device.

        batch        PagedCache.batch(...); or the tensors of the run by name ("q", "kv.k", "kv.lengths", …). Tables are read; of
                     data only dtype and shape are read (a tuple of these is enough)
        strategy     how shared tokens are read: flatten, by-query, by-node, by-node-chunk; auto: flatten or by-query, whichever
                     is predicted to be quicker
        blocks       blocks of the launch; 0: as many as fill the device
        limits       headroom for later batches: rows, groups, instances_per_row, shared_instances, shared_rows,
                     tokens_per_row; and in their tables: instances of an operand, pages of an instance

        Raises PlanError, which names the table, the index and the legal values.
        """
        self._check_alive()
        if not isinstance(strategy, str) or strategy not in (
            "auto",
            "flatten",
            "by-query",
            "by-node",
            "by-node-chunk",
        ):
            legal = "auto, flatten, by-query, by-node or by-node-chunk"
            raise expected(
                PlanError, "strategy", legal, strategy, nearest=closest(strategy, legal.split(", "))
            )
        if limits is not None and not isinstance(limits, Mapping):
            raise expected(PlanError, "limits", "numbers by name", limits)
        prepared = self._prepare(batch)
        try:
            native = self._native.plan(
                prepared.native,
                strategy=strategy,
                blocks=blocks,
                limits=dict(limits) if limits else None,
                stream=self._stream(stream),
            )
        except _attn.Failure as failure:
            raise failed(failure, PlanError) from None
        except (TypeError, OverflowError):
            numbers = dict(blocks=blocks, **(limits or {}))
            name = next(
                (name for name, value in numbers.items() if type(value) is not int or value >= 1 << 31),
                "blocks",
            )
            raise expected(PlanError, name, "a whole number of 31 bits", numbers[name]) from None
        return Plan(self, batch, prepared, native)

    def device_planner(
        self, batch: object, *, tokens: int = 0, stream: object = None, **options: int
    ) -> DevicePlanner:
        """Return a planner that makes plans on the device, for kernels of Spec(device_plan=True). `batch`: the largest
        batch; `tokens`: the most tokens of an instance (0: as many as its tables have entries for). `options`: those of
        `plan`."""
        return DevicePlanner(self.plan(batch, strategy="by-query", stream=stream, **options), tokens, stream)

    # --- Running ---------------------------------------------------------------------------------------------

    @overload
    def run(
        self,
        q: T,
        *operands: object,
        plan: Plan | DevicePlan | None = ...,
        out: object = ...,
        lse: object = ...,
        return_lse: Literal[False] = ...,
        significance: None = ...,
        output_scales: None = ...,
        classes: Sequence[int] | None = ...,
        rows: Literal["user", "batch"] = ...,
        stream: object = ...,
        **tensors: object,
    ) -> T: ...

    @overload
    def run(
        self,
        q: T,
        *operands: object,
        plan: Plan | DevicePlan | None = ...,
        out: object = ...,
        lse: object = ...,
        return_lse: Literal[True],
        significance: None = ...,
        output_scales: None = ...,
        classes: Sequence[int] | None = ...,
        rows: Literal["user", "batch"] = ...,
        stream: object = ...,
        **tensors: object,
    ) -> tuple[T, T]: ...

    @overload
    def run(
        self,
        q: Any,
        *operands: object,
        plan: Plan | DevicePlan | None = ...,
        out: object = ...,
        lse: object = ...,
        return_lse: bool = ...,
        significance: object = ...,
        output_scales: object = ...,
        classes: Sequence[int] | None = ...,
        rows: Literal["user", "batch"] = ...,
        stream: object = ...,
        **tensors: object,
    ) -> Any: ...

    def run(
        self,
        q: Any,
        *operands: Any,
        plan: Any = None,
        out: Any = None,
        lse: Any = None,
        return_lse: bool = False,
        significance: Any = None,
        output_scales: Any = None,
        classes: Sequence[int] | None = None,
        rows: str = "user",
        stream: object = None,
        **tensors: object,
    ) -> Any:
        """Compute attention of one layer.

        q           [rows, q_heads, head_dim] on the kernel's device: features are contiguous, rows and heads multiples of 16 bytes
                    apart
        operands    of each KV operand (keys, values), with the shapes that were planned; if quantized (keys, values, k_meta,
                    v_meta), or these tensors by name; or one PagedCache.layer(i)
        plan        the last positional argument, or by name
        out, lse    tensors for the results: [rows, q_heads, value_dim] of q's dtype, or float8_e4m3fn under
                    Spec(output="fp8_e4m3"), and float32 [rows, q_heads]
        return_lse  returns (out, lse); lse is the natural logarithm of the softmax's denominator, -inf if a row sees nothing
        significance    a tensor for the significance, if the description asks for it, or of several operands a tuple; by default
                    it is made here. It is the last result: float32, in the shape of each operand's keys without features, zero
                    for tokens that no row that counts sees
        output_scales   a tensor for the scales of the output, float32 [rows, q_heads], under Spec(output_scales="head"); by default it
                    is made here. It is the last result: an output is its code times its row's and head's scale
        classes     of this layer's KV heads, if heads have classes; by default those of the plan
        rows        "user": rows are in the batch's order of requests; "batch": in the plan's own order
                    (PagedCache.batch(...).user_row), which saves copying q and out if the orders differ
        stream      a torch.cuda.Stream or a CUstream as int; by default PyTorch's current one
        tensors     other tensors of the description, by name: sink_logits, biases, and a gate, [rows, q_heads, value_dim] or
                    [rows, q_heads] of q's dtype, and output_scale, float32 [1]

        With two attentions in the description it returns (out, lse, first_out, first_lse). When autograd records,
        gradients pass through packed and dense operands; `out` and `lse` are then made here. Neither waits nor, if
        `out` is given, allocates (the first run of a plan may). In a CUDA graph's capture the plan has to be fixed
        (Plan.fix). Raises before anything is launched: TensorError, also for results that overlap inputs; PlanError,
        also if pages of the plan now belong to others; DeviceError.
        """
        if plan is None and operands:
            plan = operands[-1]
            operands = operands[:-1]
        if is_traced(q):
            from .torch_run import run_plan

            self._refuse_significance("in compiled code, which does not support it")
            return run_plan(
                self,
                q,
                operands,
                plan,
                out=out,
                lse=lse,
                return_lse=return_lse,
                output_scales=output_scales,
                classes=classes,
                tensors=tensors,
            )
        asked = None
        bound = plan
        if type(plan) is DevicePlan and plan.planner.kernel is self:
            bound = plan._bind()
        if (
            type(bound) is Plan
            and bound.kernel is self
            and stream is None
            and significance is None
            and (bound._order is None or rows == "batch")
            and (given := self._given(q, operands, bound, tensors, out, lse, output_scales, classes))
            is not None
        ):
            options = return_lse, rows, classes, [_count(each) for each in operands], list(tensors)
            if (found := bound._launches.run(given, options)) is not None:
                if out is not None or lse is not None or output_scales is not None:
                    written(out, lse, output_scales)
                return found
            asked = Asked(bound._launches, given, options)
        refuse_tangents(q, operands, tensors)
        if needs_gradient(q, operands, tensors):
            from . import torch_run_gradients

            self._refuse_significance("where a gradient is required; nearest: torch.no_grad()")

            named = dict(
                out=out,
                lse=lse,
                output_scales=output_scales,
                classes=classes,
                rows=rows,
                stream=stream,
                **tensors,
            )
            return torch_run_gradients.run(self, q, operands, plan, return_lse=return_lse, **named)
        keep: list = [
            plan
        ]  # It may be the caller's only reference, and keeps the tables that the launch reads.
        if type(plan) is DevicePlan and plan.planner.kernel is self:
            plan = plan._bind()
        if type(plan) is not Plan or plan.kernel is not self or self._generation != devices.generation:
            raise self._refused(plan)
        launch_on = 0 if self.device == "host" else self._stream(stream)
        if not isinstance(rows, str) or rows not in ("user", "batch"):
            raise expected(TensorError, "rows", "'user' or 'batch'", rows, nearest="user")
        if plan._order is not None and rows == "user":
            named = dict(significance=significance, classes=classes, stream=stream, **tensors)
            return self._run_reordered(q, operands, plan, out, lse, output_scales, return_lse, named)
        views = [view_of("q", q, launch_on, keep)]
        if len(operands) == 1 and (of_layer := getattr(operands[0], "_views", None)) is not None:
            views += of_layer(plan)
        else:
            self._view_operands(operands, views, launch_on, keep)
        if tensors or self.extras:
            self._view_extras(tensors, views, launch_on, keep)
        several = isinstance(significance, (tuple, list))
        given_results = [out, lse, output_scales, *(significance if several else (significance,))]
        if out is None:
            out = plan._empty("o", q)
        views.append(view_of("out", out, launch_on, keep))
        if self._has_lse:
            if lse is None:
                lse = plan._empty("lse", q) if return_lse or self._first else plan._spare_lse(q)
            views.append(view_of("lse", lse, launch_on, keep))
        elif lse is not None or return_lse:
            raise TensorError("lse: this description returns none; write Spec(return_lse=True)")
        if self._has_scales:
            if output_scales is None:
                output_scales = plan._empty("output_scales", q)
            views.append(view_of("output_scales", output_scales, launch_on, keep))
        elif output_scales is not None:
            raise TensorError(
                "output_scales: this description returns none; write Spec(output='fp8_e4m3', output_scales='head')"
            )
        first = [plan._empty(name, q) for name in self._first]
        views += [
            view_of(name, tensor, launch_on, keep) for name, tensor in zip(self._first, first, strict=True)
        ]
        if self._weighed or significance is not None:
            significance = self._view_significance(significance, plan, q, views, launch_on, keep)
        if self._has_classes:
            views.append(plan._view_classes(classes))
        elif classes is not None:
            self._check_unread_classes(classes)
        signatures = tuple([signature for _, signature in views])
        nbytes, strides = plan._accepted.get(signatures) or self._accept(plan, signatures)
        addresses = [views[place][0] for place in self._order]
        try:
            plan._native.run(addresses, nbytes, launch_on, strides)
        except _attn.Failure as failure:
            raise self._run_failed(failure) from None
        if any(each is not None for each in given_results):
            written(*given_results)
        if asked is not None and not first and significance is None:
            results = self._results_of(out, lse, output_scales, return_lse)
            asked.add(lambda: self._launch_again(plan, asked.tensors, results, nbytes, strides))
        if first:
            return out, lse, *first
        if self._has_scales:
            return (out, lse, output_scales) if return_lse else (out, output_scales)
        if not self._weighed:
            return (out, lse) if return_lse else out
        worth = significance if len(significance) > 1 else significance[0]
        return (out, lse, worth) if return_lse else (out, worth)

    def _given(
        self,
        q: Any,
        operands: tuple,
        plan: Plan,
        tensors: dict,
        out: Any,
        lse: Any,
        output_scales: Any,
        classes: Any,
    ) -> tuple | None:
        """Return all arguments of a run, in the order of `_order`, with views instead of other than tensors; None if
        operands are given by name."""
        given = [q]
        if len(operands) == 1 and (of_layer := getattr(operands[0], "_views", None)) is not None:
            given += of_layer(plan)
        else:
            for operand in operands:
                if type(operand) is not tuple:
                    return None
                given += operand
        given += [tensors.get(name) for name in self.extras]
        given.append(out)
        if self._has_lse:
            given.append(lse)
        elif lse is not None:
            return None
        if self._has_scales:
            given.append(output_scales)
        elif output_scales is not None:
            return None
        if self._has_classes:
            given.append(plan._view_classes(classes))
        return tuple(given)

    def _results_of(self, out: Any, lse: Any, output_scales: Any, return_lse: bool) -> list[tuple[Any, bool]]:
        """Return the results in the order of `_order`, each with whether `run` returns it."""
        results = [(out, True)]
        if self._has_lse:
            results.append((lse, return_lse))
        if self._has_scales:
            results.append((output_scales, True))
        return results

    def _launch_again(
        self,
        plan: Plan,
        given: tuple,
        results: list[tuple[Any, bool]],
        nbytes: tuple[int, ...],
        strides: tuple | None,
    ) -> _attn.Launch | None:
        """Return the launch that repeats `run` on arguments like `given`, in which None stands for a result that `run`
        made. `results`: see `_results_of`."""
        first = len(given) - self._has_classes - len(results)  # The index of the first result.
        place_of = list(range(len(given)))
        absent = [i for i in range(first, first + len(results)) if given[i] is None]
        made = [results[i - first][0] for i in absent if results[i - first][1]]
        kept = [results[i - first][0] for i in absent if not results[i - first][1]]
        for place, i in enumerate(sorted(absent, key=lambda i: not results[i - first][1]), len(given)):
            place_of[i] = place
        likes = [form_of(each) for each in made]
        if any(like is None for like in likes):
            return None
        places = tuple(place_of[i] for i, (_, is_wanted) in enumerate(results, first) if is_wanted)
        return _attn.Launch(
            owner=plan,
            plan=plan._native,
            clock=clock,
            places=[place_of[place] for place in self._order],
            nbytes=nbytes,
            strides=strides or (None,) * len(nbytes),
            likes=likes,
            device=results[0][0].device,
            kept=[
                beside_pools(lambda each=each: each.new_empty_strided(each.shape, each.stride()))
                for each in kept
            ],
            results=places if len(places) > 1 else places[0],
        )

    def launch(
        self,
        addresses: Sequence[int],
        nbytes: Sequence[int],
        plan: Plan,
        stream: int = 0,
        strides: Sequence[Sequence[int] | None] | None = None,
    ) -> None:
        """Launch with an address and a number of bytes for each of `slots`, and strides in bytes for tensors that are
        not dense; `run` ends with this. The caller guarantees the memory at each address."""
        bound = plan._bind() if type(plan) is DevicePlan and plan.planner.kernel is self else plan
        if type(bound) is not Plan or bound.kernel is not self or self._generation != devices.generation:
            raise self._refused(bound)
        try:
            bound._native.run(addresses, nbytes, stream, strides)
        except _attn.Failure as failure:
            raise self._run_failed(failure) from None

    def _accept(self, plan: Plan, signatures: tuple) -> tuple[tuple[int, ...], tuple | None]:
        """Check signatures; return the bytes of each binding's tensor, in the order of `slots`, and strides if some are
        not dense. The result is kept."""
        nbytes = tuple(
            check(binding, signatures[place], plan._sizes, self.device)
            for binding, place in zip(self._bindings, self._order, strict=True)
        )
        for binding, place in self._unread:
            if signatures[place] != NOTHING[1]:
                check(binding, signatures[place], plan._sizes, self.device)
        lie = tuple(
            strides_of(binding, signatures[place])
            for binding, place in zip(self._bindings, self._order, strict=True)
        )
        accepted = nbytes, lie if any(lie) else None
        if not any(signature[5] for signature in signatures):  # Gradients may be turned on between two calls.
            plan._accepted[signatures] = accepted
        return accepted

    def _view_operands(self, operands: Sequence, views: list, stream: int, keep: list) -> None:
        if len(operands) != len(self._operands):
            names = ", ".join(self._operands)
            raise TensorError(
                f"operands: expected (keys, values) for each of {names}, or one PagedCache.layer(i), got "
                f"{len(operands)} between q and plan"
            )
        for name, operand in zip(self._operands, operands, strict=True):
            for part, tensor in self._of_operand(name, operand):
                views.append(view_of(part, tensor, stream, keep))

    def _view_significance(
        self, given: object, plan: Plan, q: object, views: list, stream: int, keep: list
    ) -> tuple:
        """Append views of the tensors for each operand's significance; return the tensors."""
        names = self._weighed
        if not names:
            raise TensorError("significance: this description gives none; write Spec(significance='max')")
        if given is None:
            given = tuple(plan._empty(name, q) for name in names)
        elif len(names) == 1 and not isinstance(given, (tuple, list)):
            given = (given,)
        if len(given) != len(names):
            raise expected(TensorError, "significance", f"a tensor for each of {', '.join(names)}", given)
        views += [view_of(name, tensor, stream, keep) for name, tensor in zip(names, given, strict=True)]
        return tuple(given)

    def _refuse_significance(self, where: str) -> None:
        if self._weighed:
            raise TensorError(f"significance: expected a description without it {where}")

    def _view_extras(self, tensors: dict, views: list, stream: int, keep: list) -> None:
        for name in self.extras:
            if name not in tensors:
                raise TensorError(f"{name}: the description takes this tensor; give it as {name}=...")
            views.append(view_of(name, tensors[name], stream, keep))
        for name in tensors:
            if name not in self.extras:
                nearest = closest(name, self.extras)
                legal = f"one of {', '.join(self.extras)}" if self.extras else "no further tensor"
                raise expected(TensorError, "argument", legal, name, nearest=nearest)

    def _run_reordered(self, q, operands, plan, out, lse, output_scales, return_lse, named) -> object:
        """Run with the user's rows gathered into the batch's order, and scatter the results back."""
        results = {"o": out, "lse": lse, "output_scales": output_scales}
        keep: list = []
        for binding in self._bindings:
            if results.get(binding.name) is not None:
                address, signature = view_of(binding.name, results[binding.name], 0, keep)
                nbytes = check(binding, signature, plan._sizes, self.device)
                gate = named.get("gate") if self._has_gate else None
                self._refuse_overlaps(binding.name, address, nbytes, q, operands, plan, keep, gate)
        if self._has_gate and "gate" in named:
            named["gate"] = plan._order.gather(named["gate"])
        if output_scales is not None and not self._has_scales:
            named["output_scales"] = output_scales  # `run` refuses it.
        want_lse = return_lse or lse is not None
        results = self.run(
            plan._order.gather(q), *operands, plan=plan, rows="batch", return_lse=want_lse, **named
        )
        worth = ()
        if self._weighed:
            results, worth = results[:-1], results[-1:]
        elif self._has_scales:
            results, worth = results[:-1], (plan._order.scatter(results[-1], output_scales),)
        elif not want_lse:
            results = (results,)
        o, of_rows = results if want_lse else (*results, None)
        out = plan._order.scatter(o, out)
        lse = plan._order.scatter(of_rows, lse) if want_lse else None
        results = (out, lse, *worth) if return_lse else (out, *worth)
        return results if len(results) > 1 else out

    def _refuse_overlaps(self, name, address, nbytes, q, operands, plan, keep, gate=None) -> None:
        """Raise a TensorError for results that overlap inputs, as a run in the batch's own order does
        (PlannedBatch.cc)."""
        views = [view_of("q", q, 0, keep)]
        if len(operands) == 1 and (of_layer := getattr(operands[0], "_views", None)) is not None:
            views += of_layer(plan)
        else:
            self._view_operands(operands, views, 0, keep)
        names = ["q", *self._own]
        if gate is not None:
            names.append("gate")
            views.append(view_of("gate", gate, 0, keep))
        for other, (begin, signature) in zip(names, views, strict=True):
            if signature == NOTHING[1]:
                continue
            size = check(self._tensors[other], signature, plan._sizes, self.device)
            if nbytes and size and begin < address + nbytes and address < begin + size:
                shown = {"o": "out"}.get(name, f"'{name}'")
                raise TensorError(
                    f"{shown}: overlaps '{other}', which results in the user's order would be written over"
                )

    def _run_failed(self, failure: _attn.Failure) -> Exception:
        """Return the runtime's error about a plan or a tensor in the user's words: `out` for 'o', axis names for their
        numbers."""
        said = failed(failure, PlanError if failure.message.startswith("plan: ") else TensorError)
        text, binding = str(said), self._tensors.get(str(said).partition(":")[0])
        if (place := _DIMENSION.search(text)) and binding and (axes := binding.axes()):
            text = f"{text[: place.start()]} bytes along {axes[int(place[1])]}{text[place.end() :]}"
        return type(said)(text.replace("'o': ", "out: ", 1) if text.startswith("'o': ") else text)

    def _refused(self, plan: object) -> Exception:
        """Return the error of a plan that does not fit this kernel."""
        self._check_alive()
        if not isinstance(plan, Plan):
            return expected(PlanError, "plan", "an attn.Plan, as the last argument or plan=...", plan)
        return PlanError(
            f"plan: made by {plan.kernel!r}, which is not this one; make it with this kernel's plan(), or call that "
            "kernel's run()"
        )
