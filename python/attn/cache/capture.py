# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Launches that are captured once, and replayed over any step in the tables."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import DeviceError, PlanError, Uncopied
from ..memory.devices import get_device


@contextlib.contextmanager
def _no_garbage() -> Iterator[None]:
    """Stop Python's garbage collection meanwhile. It might destroy an older graph, which the driver does not permit
    while another graph is captured, and which ends the capture."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def run_aside(torch: Any, launches: Callable[[], object]) -> object:
    """Run launches on a stream of their own, in the order of the current one, and return their result. Resources that
    are made once must not be made while a graph is captured, nor on the stream that all callers share."""
    current, side = torch.cuda.current_stream(), torch.cuda.Stream()
    side.wait_stream(current)
    with torch.cuda.stream(side):
        result = launches()
    current.wait_stream(side)
    return result


def record_graph(torch: Any, launches: Callable[[], object]) -> tuple[Any, object]:
    """Capture launches that have run before as a CUDA graph on the current device. Returns the graph and the result;
    nothing runs."""
    graph = torch.cuda.CUDAGraph()
    with _no_garbage(), torch.cuda.graph(graph):
        result = launches()
    return graph, result


class Capture(Uncopied):
    """Captured launches of a step; `CacheSteps.capture` returns it. Tensors that launches read and write must outlive
    it; it keeps the tables itself."""

    _instead = "it holds a recorded graph; make another with CacheSteps.capture"

    def __init__(self, steps: Any, launches: Callable[[], object]):
        self.steps = steps
        """The CacheSteps that made it."""
        self._launches = launches
        self._graph: Any = None
        self._work: dict[str, int] = {}
        if steps.cache.device == "host":
            launches()  # This run makes everything that is made once.
            self.result, self._work = self._watch()
            """The result of the function."""
        else:
            self.result = self._record(steps.cache.device)

    def replay(self) -> Any:
        """Run the step in the tables. Returns the function's result at its capture, on the host its new result. Waits
        for nothing. PlanError if a function on the host launches other kernels than before, or allocates or copies on
        the device, which a graph could not do again; and if a node with rows of the step has got or lost tokens since
        `update`, or was pruned."""
        self.steps._check_current()
        if self._graph is not None:
            self._graph.replay()
        else:
            self.result, work = self._watch()
            self._compare(work)
        self.steps.ran()
        return self.result

    def _record(self, device: str) -> object:
        torch = sys.modules.get("torch")
        if torch is None:
            raise DeviceError("capture: graphs are PyTorch's; import torch first, or use device='host'")
        with torch.cuda.device(device):
            run_aside(torch, self._launches)
            self._graph, result = record_graph(torch, self._launches)
            return result

    def _watch(self) -> tuple[object, dict[str, int]]:
        device = get_device("host")
        device.work(reset=True)
        result = self._launches()
        return result, device.work()

    def _compare(self, work: dict[str, int]) -> None:
        for what in ("allocations", "copies"):
            if work[what]:
                raise PlanError(
                    f"replay: {work[what]} {what} on the device; a step may change the contents of tensors alone"
                )
        for what in ("launches", "shapes"):
            if work[what] != self._work[what]:
                raise PlanError(
                    f"replay: {work['launches']} launches, other ones than the {self._work['launches']} that were captured; "
                    "a step may change the contents of tensors alone"
                )
