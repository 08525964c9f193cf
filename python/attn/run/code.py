# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled code on a device: what it is, the tensors that it takes, and the batches that fit it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import numpy

from .. import _attn
from ..compiler.requests import Request
from ..describe.visibility import Visibility, manifest_visibility
from ..errors import CompileError, DeviceError, PlanError, TensorError, closest, expected, given
from ..forks import cached_property
from ..memory import devices
from ..memory.devices import device_name, failed, stream_number
from ..memory.tables import BatchForm, int32_array
from ..memory.views import View, tensors_of
from .prepared import Prepared

_LEVELS = ("problem", "online", "tile", "machine", "ptx", "cubin", "manifest")


class Code:
    """A Kernel without planning and running: the part that plans, reports and caches use."""

    def __init__(self, native: _attn.Kernel, *, request: Request, key: str, about: dict):
        self._native = native
        self._request = request
        self.text = request.text
        """The description as MLIR."""
        self._plain = request.text
        """The description without the requests beside it, as the compiler reads it."""
        self.ends: tuple[int, ...] = ()
        """Sizes of windows and sinks, in the manifest's order; empty: as in the text."""
        self.key = key
        """The key in caches: a hash of the description, target and schedule with the compiler's identity."""
        self.about = about
        """Facts about its compilation: seconds by stage, remarks."""
        self.device = device_name(native.device)
        """The device that it runs on: "host", "cuda:0"."""
        self._generation = devices.generation
        arguments = self.manifest["arguments"]
        self._tensors = tensors_of(self.manifest)
        self._bindings = tuple(self._tensors[name] for name in native.slots)
        self._operands = [argument["name"] for argument in arguments if argument["role"] == "kv"]
        self.extras = tuple(
            a["name"] for a in arguments if a["role"] in ("sink", "gate", "output_scale", "tensor")
        )
        """Names of the tensors that a run takes beside q and the operands: sinks, a gate, a scale of outputs, biases."""
        self._has_gate = any(argument["role"] == "gate" for argument in arguments)
        # A run checks all tensors of the description, and binds those that kernels read. `_order`: for each
        # binding the index of its tensor in (q, operands' tensors, extras, o, lse, ordinal_heads). `_unread`:
        # the tensors that no kernel reads.
        self._parts = {
            operand: [
                name
                for name, binding in self._tensors.items()
                if name.startswith(f"{operand}.") and not binding.written
            ]
            for operand in self._operands
        }
        """The tensors of each operand: keys, values, and their metadata if they are quantized."""
        self._own = [name for parts in self._parts.values() for name in parts]
        results = [result["name"] for result in self.manifest["results"]]
        last = [name for name in (*results, "ordinal_heads") if name in native.slots]
        order = ["q", *self._own, *self.extras, *last]
        self._order = [order.index(binding.name) for binding in self._bindings]
        self._unread = [
            (self._tensors[name], place) for place, name in enumerate(order) if name not in native.slots
        ]
        self._has_lse = "lse" in native.slots
        self._has_scales = "output_scales" in native.slots
        """Whether the scales of its output are a result."""
        self._first = tuple(name for name in results if name.startswith("first_"))
        """Results of the first operand alone, in a description with two attentions."""
        self._weighed = tuple(name for name in results if name.endswith(".significance"))
        """Names of the results with the significance of each operand's tokens."""
        self._has_classes = "ordinal_heads" in native.slots
        self._takes_classes = any(argument["role"] == "classes" for argument in arguments)
        # If heads of all classes have lengths of their own, the class of each head decides the plan.
        read = {operand["argument"] for operand in self.manifest["operands"]}
        self._plans_by_head = self._has_classes and any(
            argument.get("ragged") and "head_class" not in argument
            for argument in arguments
            if argument["name"] in read
        )
        self._heads: dict[tuple[int, ...], _attn.Memory] = {}

    # --- Facts
    # -----------------------------------------------------------------------------------------------

    @property
    def entry(self) -> str:
        """The function's name."""
        return self._native.entry

    @property
    def target(self) -> str:
        """The chip that it was compiled for."""
        return self._request.target

    @property
    def schedule(self) -> str:
        """The schedule that was chosen: mma or wgmma."""
        return self.manifest["schedule"]

    @property
    def numerics(self) -> str | None:
        """ "row" if a row has the same bits in every plan and kernel of the description (Spec.numerics); else None."""
        return "row" if self.manifest.get("numerics") else None

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the tensors that a run binds, in the order of `launch`."""
        return self._native.slots

    @cached_property
    def manifest(self) -> dict:
        """Everything that planning and launching need to know of the code (attn_rt/artifact/Artifact.h)."""
        return json.loads(self._native.manifest)

    @cached_property
    def _form(self) -> BatchForm:
        """The tensors of its batches."""
        return BatchForm(self._tensors, self.manifest)

    @cached_property
    def _sees(self) -> tuple[Visibility, ...]:
        """The visibility of each operand, with the sizes that the code was compiled with."""
        ends = self.manifest["ends"]
        return tuple(
            manifest_visibility(operand["visibility"], ends) for operand in self.manifest["operands"]
        )

    def emit(self, level: str) -> str | bytes:
        """Return the code at a level: problem, online, tile, machine, ptx, cubin (bytes; needs ptxas) or manifest.
        Raises CompileError."""
        if not isinstance(level, str) or level not in _LEVELS:
            raise expected(CompileError, "level", ", ".join(_LEVELS), level, nearest=closest(level, _LEVELS))
        request = self._request
        try:
            out = _attn.emit(
                self._plain,
                level,
                entry=request.entry,
                target=request.target,
                schedule=request.schedule,
                asks=request.asks,
            )
        except _attn.Failure as failure:
            raise failed(failure, CompileError) from None
        return out if level == "cubin" else out.decode()

    def __repr__(self) -> str:
        return (
            f"<attn.Kernel {self.entry} for {self.target} ({self.schedule}) on {self.device}, key {self.key}>"
        )

    # --- For plans -------------------------------------------------------------------------------------------

    def _prepare(self, batch: object) -> Prepared:
        try:
            if (prepare := getattr(batch, "_prepare_for", None)) is not None:
                return prepare(self)
            if not isinstance(batch, Mapping):
                raise expected(PlanError, "batch", "PagedCache.batch(...) or tensors by name", batch)
            tensors, sizes, classes = self._form.describe(batch)
            native = self._native.batch(tensors, ends=self.ends)
        except _attn.Failure as failure:
            raise failed(failure, PlanError) from None
        return Prepared(native, sizes | {"rows": native.rows}, classes)

    def _of_operand(self, name: str, operand: object) -> Iterator[tuple[str, object]]:
        """Yield the tensors of a KV operand with their names. They are given in order, or by the part of the name after
        the dot. Raises TensorError."""
        parts = self._parts[name]
        if type(operand) is tuple and len(operand) == len(parts):
            return zip(parts, operand, strict=True)
        names = [part.partition(".")[2] for part in parts]
        if isinstance(operand, Mapping):
            for given_name in operand:
                if given_name not in names:
                    nearest = closest(given_name, names)
                    raise expected(
                        TensorError, name, f"one of {', '.join(names)}", given_name, nearest=nearest
                    )
            for part, short in zip(parts, names, strict=True):
                if short not in operand:
                    raise TensorError(f"{part}: expected beside {', '.join(operand) or 'nothing'}, got none")
            return zip(parts, (operand[short] for short in names), strict=True)
        if isinstance(operand, (tuple, list)) and len(operand) == len(parts):
            return zip(parts, operand, strict=True)
        if len(parts) == 2:
            raise TensorError(f"{name}: expected (keys, values) or PagedCache.layer(i), got {given(operand)}")
        found = f"{len(operand)} tensors" if isinstance(operand, (tuple, list)) else given(operand)
        legal = f"({', '.join(names)}), these by name, or PagedCache.layer(i)"
        raise TensorError(f"{name}: expected {legal}, got {found}")

    def _check_unread_classes(self, classes: Sequence[int]) -> None:
        """Check classes that no kernel reads, because all classes see alike."""
        if not self._takes_classes:
            raise TensorError("classes: the heads of this description have no classes")
        heads, found = self.manifest["kv_heads"], int32_array("classes", classes)
        if found.shape != (heads,):
            raise TensorError(f"classes: expected {heads}, one per KV head, got {list(found.shape)}")

    def _ordinal_heads(self, classes: tuple[int, ...]) -> View:
        """Return the KV head of each of the plan's ordinals, i32 [kv_heads], on the device."""
        if classes not in self._heads:
            try:
                order = numpy.array(self._native.ordinal_heads(classes), dtype=numpy.int32)
                memory = self._native.device.allocate(order.nbytes, "ordinal_heads")
                memory.copy_in(order)
            except _attn.Failure as failure:
                raise failed(failure, TensorError) from None
            self._heads[classes] = memory
        return self._heads[classes].address, ("i32", (len(classes),), (1,), self.device, True, False)

    def _stream(self, stream: object) -> int:
        return stream_number(self.device, stream)

    def _check_alive(self) -> None:
        if self._generation != devices.generation:
            raise DeviceError(
                f"kernel: {self.entry} was loaded before this process was forked; compile it here again, which takes it "
                "from the cache"
            )
