# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times of what several ranks do together: each side between two barriers, and the slowest rank counts."""

import statistics
import time

import torch
import torch.distributed as dist

COPIED = 4.3e9  # Bytes a millisecond that an H200 copies, read and written.
LAUNCHES, EXCHANGE = (
    6.6e-3,
    6.4e-3,
)  # ms of a step's kernels, and of exchanging its results (docs/scaling.md).


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
        """Return the median over repeats of the time of one of `runs` runs back to back; runs of more than a second are
        timed once. `alone`: on rank 0 only."""
        called = not alone or self.rank == 0
        self.together(function, called)  # Compiles, plans and allocates.
        first = self._pass(function, runs, called)
        if runs * first > 1000:
            return first
        return statistics.median(self._pass(function, runs, called) for _ in range(repeats))

    def replayed(self, function, runs):
        """Return the time of one of `runs` runs that a graph replays; on the host device, that start one after the other."""
        if self.device.type == "cpu":
            return self(function, runs=runs)
        return self(recorded(function, runs), runs=3) / runs

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
    kernel of attention ran, how long each rank took, and the kernels' begins, lengths and names in the order of time."""
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
    lengths = [None] * dist.get_world_size()
    dist.all_gather_object(lengths, (kernels[-1][1] - first) / 1e3 if kernels else 0.0)
    timeline = [[round(a - first, 1), round(b - a, 1), name[:60]] for a, b, name in kernels]
    return {
        "transfers_ms": sum(b - a for a, b in transfers) / 1e3,
        "beside_attention_ms": beside / 1e3,
        "ranks_ms": [round(each, 3) for each in lengths],
        "timeline_us": timeline[:80],
    }


def context_parallel_time(timer, timed, tensors, gradients, backend):
    """Time PyTorch's context_parallel on tensors [batch, seq, heads, dim] of the whole batch: q, k, v and the output's
    gradient. `timed` makes the function to call. Its ring takes as many heads of keys as of queries in some versions; keys
    and values are then repeated, and the row says so."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.experimental import context_parallel
    from torch.nn import functional
    from torch.nn.attention import SDPBackend, sdpa_kernel

    mesh = init_device_mesh("cuda", (timer.ranks,))
    chosen = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}[backend]
    problems = []
    for repeated in (False, True):
        whole = [each.transpose(1, 2).contiguous() for each in tensors]
        if repeated:
            group = whole[0].shape[1] // whole[1].shape[1]
            whole[1:3] = [each.repeat_interleave(group, dim=1) for each in whole[1:3]]
        try:
            with context_parallel(mesh, buffers=whole, buffer_seq_dims=[2] * 4), sdpa_kernel(chosen):

                def attend(q, k, v, gqa=not repeated):
                    return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=gqa)

                *qkv, d_out = (each.clone() for each in whole)
                milliseconds = timer(timed(attend, qkv, d_out, gradients))
            return {"ms": milliseconds, "repeated_keys": repeated}
        except Exception as error:
            problems.append(f"{type(error).__name__}: {error}".splitlines()[0][:120])
    raise RuntimeError("; ".join(problems))


def predicted_ms(rows, ranks, sizes, part, side, alone, facts):
    """Return the milliseconds that the model of docs/scaling.md makes of one GPU's time, `alone`, and of the links that
    `rows` measured; None for a side that it does not describe."""
    found = {row["side"]: row for row in rows if row["part"] == "links" and "ms" in row}
    if "all-gather" not in found or "all-gather, small" not in found:
        return None
    rate, start = found["all-gather"]["gb_per_s"] * 1e6, found["all-gather, small"]["ms"]
    heads, kv_heads = sizes.heads
    if part == "decode":
        sent = (ranks - 1) * facts["sequences"] * heads * (2 * sizes.dim + 4)
        exchanges = side.startswith("by tokens") and not side.endswith("all-gather")
        share = alone / ranks + LAUNCHES * (1 - 1 / ranks)
        return share + (EXCHANGE if exchanges else start) + sent / rate
    if not side.startswith("all_gather") or part not in ("prefill", "training"):
        return None
    keys = facts["tokens"] * 4 * kv_heads * sizes.dim
    passed = (ranks - 1) / ranks * keys / rate + start + 2 * keys / COPIED
    return alone / ranks + passed * (3 if facts["gradients"] else 1)
