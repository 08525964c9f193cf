# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times of what several ranks do together: each side between two barriers, and the slowest rank counts."""

import statistics
import time

import torch
import torch.distributed as dist


class RankTimer:
    """Milliseconds of functions that every rank of a group calls, or one rank alone while the others wait."""

    def __init__(self, device):
        self.device, self.rank, self.ranks = device, dist.get_rank(), dist.get_world_size()

    def wait(self):
        """Wait for the device and for all ranks."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        dist.barrier()

    def __call__(self, function, *, runs=1, repeats=3, alone=False):
        """Return the median over repeats of the time of one of `runs` runs back to back. `alone`: on rank 0 only."""
        called = not alone or self.rank == 0

        def warm():
            function()  # Compiles, plans and allocates.
            function()

        self.together(warm, called)
        return statistics.median(self._pass(function, runs, called) for _ in range(repeats))

    def together(self, function, called=True):
        """Return what a function returns on this rank, or None where it is not called. An error on one rank is raised on
        all, so that none waits for it."""
        found, error = None, ""
        try:
            found = function() if called else None
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}".splitlines()[0][:300]
        errors = [None] * self.ranks
        dist.all_gather_object(errors, error)
        if wrong := next((f"rank {rank}: {each}" for rank, each in enumerate(errors) if each), ""):
            raise RuntimeError(wrong)
        return found

    def _pass(self, function, runs, called):
        self.wait()
        begin = time.perf_counter()
        if self.device.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
        for _ in range(runs if called else 0):
            function()
        if self.device.type == "cuda":
            end.record()
            torch.cuda.synchronize()
            milliseconds = start.elapsed_time(end)
        else:
            milliseconds = 1e3 * (time.perf_counter() - begin)
        return self.most(milliseconds / runs if called else 0.0)

    def most(self, value):
        """Return the largest of the ranks' values."""
        found = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.all_reduce(found, op=dist.ReduceOp.MAX)
        return float(found)


def recorded(function, runs):
    """Return a function that replays `runs` runs of another, recorded as a CUDA graph."""
    for _ in range(2):
        function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(runs):
            function()

    def replay():
        graph.replay()

    replay.reads = function  # The graph reads what the function keeps.
    return replay


def overlap(function):
    """Run a function under PyTorch's profiler; returns ms of transfers between ranks, the part of them beside which a
    kernel of attention ran, and the kernels' begins, lengths and names in the order of time."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        function()
        torch.cuda.synchronize()
    kernels = sorted(
        (event.time_range.start, event.time_range.end, event.name)
        for event in profiler.events()
        if event.device_type == torch.autograd.DeviceType.CUDA
    )
    transfers = [(a, b) for a, b, name in kernels if "nccl" in name.lower()]
    computed = [(a, b) for a, b, name in kernels if "attention" in name]
    beside = sum(max(min(b, end) - max(a, begin), 0) for a, b in transfers for begin, end in computed)
    first = kernels[0][0] if kernels else 0
    timeline = [[round(a - first, 1), round(b - a, 1), name[:60]] for a, b, name in kernels]
    return {
        "transfers_ms": sum(b - a for a, b in transfers) / 1e3,
        "beside_attention_ms": beside / 1e3,
        "timeline_us": timeline[:80],
    }
