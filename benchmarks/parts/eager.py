# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of small problems, one after the other, as models make them: the part `eager` of `bench gpu`.

Starting a call takes longer than its kernels. Each side, `attn.attend` and its peers on the same tensors, has two
times, for calls that repeat the one before: the host's time from one call to the next, while the queue has capacity for
all, and the time of a call back to back. Calls are forward alone, forward that autograd records, and forward with the
gradients of q, k and v. An autograd function that does nothing is timed beside: gradients cannot be asked for by less.
"""

import statistics
import time
from dataclasses import dataclass

from measuring.described import Described
from parts.backward import invite, ways

OURS, EMPTY = "attn", "empty"  # And the function that does nothing.
CALLS = ("forward", "recorded", "both")
HOST_US = {"forward": 15, "both": 60}  # At most, for one sequence of 16 x 197.
WARM, QUEUED, ROUNDS, SECONDS = 20, 50, 15, 0.3


@dataclass(frozen=True)
class EagerPoint(Described):
    batch: int
    rows: int
    tokens: int
    q_heads: int
    kv_heads: int
    dim: int
    causal: bool = False
    device: str = "cuda"

    part = "eager"
    peers = ("cudnn", "flash", "flash4")

    @property
    def name(self):
        shape = f"{self.batch} x {self.rows}" + (f" on {self.tokens}" if self.tokens != self.rows else "")
        return f"{shape}, {self.q_heads}/{self.kv_heads} d{self.dim} {'causal' if self.causal else 'full'}"

    def seconds(self):
        return 12


def eager_points(quick):
    points = [
        EagerPoint(16, 197, 197, 12, 12, 64),
        EagerPoint(1, 1000, 1000, 8, 1, 128, causal=True),
        EagerPoint(8, 1024, 77, 16, 16, 64),
        EagerPoint(8, 2048, 2048, 12, 12, 64, causal=True),
        EagerPoint(16, 1024, 1024, 16, 16, 64),
        EagerPoint(32, 512, 512, 32, 8, 128, causal=True),
    ]
    return points[:1] if quick else points


def empty_function(torch):
    """Return an attention that computes nothing, with as many tensors as a real one."""

    class Empty(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v):
            ctx.save_for_backward(q, k, v)
            return torch.empty_like(q)

        @staticmethod
        def backward(ctx, grad):
            return tuple(torch.empty_like(tensor) for tensor in ctx.saved_tensors)

    return Empty.apply


def calls_of(torch, attention, given, d_out):
    """Return the three calls, by name."""

    def forward():
        with torch.no_grad():
            return attention(*given)

    return {
        "forward": forward,
        "recorded": lambda: attention(*given),
        "both": lambda: torch.autograd.grad(attention(*given), given, d_out),
    }


def host_us(call, synchronize):
    """Return the host's time from one call to the next: the median of rounds."""
    rounds = []
    for _ in range(ROUNDS):
        synchronize()
        began = time.perf_counter()
        for _ in range(QUEUED):
            call()
        rounds.append((time.perf_counter() - began) / QUEUED)
    synchronize()
    return 1e6 * statistics.median(rounds)


def back_to_back_us(call, synchronize):
    synchronize()
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < SECONDS:
        for _ in range(QUEUED):
            call()
        count += QUEUED
    synchronize()
    return 1e6 * (time.perf_counter() - began) / count


def measure_eager(point, bench):
    """Measure a point; returns its row of the file."""
    torch = bench.contest.torch
    import attn

    place = "cpu" if point.device == "host" else point.device
    synchronize = torch.cuda.synchronize if place == "cuda" else lambda: None
    torch.manual_seed(1)
    sizes = ((point.rows, point.q_heads), (point.tokens, point.kv_heads), (point.tokens, point.kv_heads))
    made = [torch.randn(point.batch, *size, point.dim, device=place, dtype=torch.bfloat16) for size in sizes]
    d_out, given = torch.randn_like(made[0]), [tensor.requires_grad_() for tensor in made]
    sides, declined = {}, {}

    def calls(attention):
        return calls_of(torch, attention, given, d_out)

    sides[OURS] = calls(lambda q, k, v: attn.attend(q, k, v, causal=point.causal))
    for name in point.peers:
        found = {}
        invite(found, declined, lambda attention: calls(attention)["both"], ways(torch, name, point.causal))
        for label, attention in ways(torch, name, point.causal):
            if label in found:
                sides[label] = calls(attention)
    sides[EMPTY] = calls(empty_function(torch))
    host, back_to_back = ({kind: {} for kind in CALLS} for _ in range(2))
    for kind in CALLS:
        for of_side in sides.values():
            for _ in range(WARM):
                of_side[kind]()
        for side, of_side in sides.items():
            host[kind][side] = host_us(of_side[kind], synchronize)
        for side, of_side in sides.items():
            back_to_back[kind][side] = back_to_back_us(of_side[kind], synchronize)
    peers = [side for side in sides if side not in (OURS, EMPTY)]
    row = {"key": point.key, "part": point.part, "name": point.name, "declined": declined}
    row |= {"host_us": host, "back_to_back_us": back_to_back, "attn": {}, "peers_ms": {}}
    row["ratio_to_best_peer"] = {
        kind: min(back_to_back[kind][side] for side in peers) / back_to_back[kind][OURS] if peers else None
        for kind in CALLS
    }
    return row


def eager_line(row):
    """Format a row as text."""
    text = f"  {row['name']:<36}"
    for kind in CALLS:
        host, took = row["host_us"][kind], row["back_to_back_us"][kind]
        text += f"  {kind} {host[OURS]:.0f}, {took[OURS]:.0f}"
        if row["ratio_to_best_peer"][kind]:
            text += f" x{row['ratio_to_best_peer'][kind]:.2f}"
    return text + f"  (empty {row['host_us']['both'][EMPTY]:.0f})"


def eager_bars(row):
    found = [
        (f"{limit} us of the host at most, {kind}", row["host_us"][kind][OURS] <= limit)
        for kind, limit in HOST_US.items()
    ]
    for kind, ratio in row["ratio_to_best_peer"].items():
        if kind != "recorded" and ratio is not None:
            found.append((f"{kind} back to back as fast as the best peer", ratio >= 1))
    return found
