# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plans that are made on the device: a kernel makes them from lengths and query starts in device memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import _attn
from ..errors import PlanError, TensorError, Uncopied, expected
from ..memory.devices import failed
from ..memory.views import Binding, check, view_of
from .plan import Plan

_HOST_BLOCKS = 4


def blocks_on(device: object) -> int:
    """Return the option `blocks` of adapters, whose steps have the same launches for any batch: few on the host device,
    which runs blocks one after the other, those without work as well; 0 on a GPU, as many as fill it."""
    return _HOST_BLOCKS if str(device) in ("host", "cpu") else 0


class DevicePlanner(Uncopied):
    """Makes plans on the device; `Kernel.device_planner` returns it.

    It serves batches no larger than the one it was made with, in rows, sequences and width of block tables. Each
    sequence has an instance of each operand, and none is shared. The way that the first batch's rows are spread over
    sequences chooses the kernel. With numerics="row" results have the same bits as with plans of the host. Launches
    depend on memory only: planning and runs may be captured together."""

    _instead = "it owns memory of its device; make another with Kernel.device_planner, from the same batch"

    def __init__(self, plan: Plan, tokens: int, stream: object):
        self.kernel: Any = plan.kernel
        """The Kernel that made it."""
        self._plan = plan
        try:
            plan._native.on_device(tokens, self.kernel._stream(stream))
        except _attn.Failure as failure:
            raise failed(failure, PlanError) from None
        self._bound: object = None
        """What tells the plan apart that the runs of `_plan` read now."""
        sizes = plan._native.tables
        shapes = plan._prepared.native.tables
        self.nbytes: int = sizes["plan"]
        """Bytes of a plan in device memory."""
        self._bindings = {
            name: Binding(
                name, "i32", (-(-size // 4),) if name == "plan" else shapes[name][1], name == "plan"
            )
            for name, size in sizes.items()
        }

    @property
    def tables(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the int32 tensors that plans are made of, by name."""
        return {name: tuple(each.dims) for name, each in self._bindings.items() if name != "plan"}  # type: ignore[misc]

    def plan(
        self,
        tables: Mapping[str, object] | None = None,
        *,
        out: object = None,
        check: bool = False,
        stream: object = None,
    ) -> DevicePlan:
        """Launch the kernel that makes the plan of a step.

        tables    int32 tensors on the device, by name; those that are left out are the largest batch's
        out       an int32 tensor of `nbytes` bytes, which holds the plan. Without it the planner's own memory holds the plan,
                  until the next plan
        check     True: the call waits for the device, and raises PlanError for a fault; not while a stream is captured

        Rows are the last tokens of their sequences; a sequence may have none, and rows of no sequence are not written.
        Neither allocates nor waits. TensorError for a tensor of another form than planned for. Wrong contents make an
        empty plan: `DevicePlan.fault` says what is wrong."""
        given = {} if tables is None else dict(tables)
        for name in given:
            if name not in self._bindings or name == "plan":
                raise expected(TensorError, "table", f"one of {', '.join(self.tables)}", name)
        launch_on = 0 if self.kernel.device == "host" else self.kernel._stream(stream)
        made = DevicePlan(self, given | ({"plan": out} if out is not None else {}), launch_on)
        made._make(launch_on)
        if check and (fault := made.fault):
            raise PlanError(fault)
        return made

    def __repr__(self) -> str:
        return (
            f"<attn.DevicePlanner of {self.kernel.entry}: {self._plan.rows} rows, {self.nbytes} bytes a plan>"
        )


class DevicePlan(Uncopied):
    """A plan in device memory, which `Kernel.run` takes like any other. It keeps the tables that it was made of: runs
    read the block tables, too."""

    _instead = "it owns memory of its device; make another with DevicePlanner.plan, from the same tables"

    def __init__(self, planner: DevicePlanner, tensors: dict[str, object], stream: int):
        self.planner = planner
        self._mark = object()
        self._keep: list = [tensors]
        self._addresses: list[int] = []
        self._nbytes: list[int] = []
        for name, binding in planner._bindings.items():
            address, size = 0, 0
            if name in tensors:
                address, signature = view_of(name, tensors[name], stream, self._keep)
                size = check(binding, signature, {}, planner.kernel.device)
            self._addresses.append(address)
            self._nbytes.append(size)

    def _bind(self) -> Plan:
        """Let runs of the planner's plan use this one from now on."""
        planner = self.planner
        plan = planner._plan
        if planner._bound is not self._mark:
            planner._bound = None
            try:
                plan._native.bind(self._addresses, self._nbytes)
            except _attn.Failure as failure:
                raise failed(failure, PlanError) from None
            planner._bound = self._mark
        return plan

    def _make(self, stream: int) -> None:
        try:
            self._bind()._native.make(stream)
        except _attn.Failure as failure:
            raise failed(failure, PlanError) from None

    def remake(self, *, stream: object = None) -> None:
        """Launch the kernel again: the tables, at their addresses, hold another step. Checks no tensor, and neither allocates
        nor waits."""
        self._make(0 if self.planner.kernel.device == "host" else self.planner.kernel._stream(stream))

    @property
    def fault(self) -> str:
        """The error in the tables, and its sequence; "" if there is none. With a fault the plan is empty:
        runs write nothing. Waits for the device."""
        try:
            return self._bind()._native.fault(self.planner.kernel._stream(None))
        except _attn.Failure as failure:
            raise failed(failure, PlanError) from None
