# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plans that the GPU makes: the part `planning` of `bench gpu`.

The time to plan a step from lengths and tables in device memory, with launches recorded one after the other. The time
of attention with such a plan, beside the host's plan of the same step, alternating. And the host's time for a plan of
its own, each replacing the one before, beside FlashInfer's plan of the same step.
"""

import statistics
import time
from dataclasses import dataclass

from measuring import flashinfer_peer, peers
from measuring.described import Described
from measuring.timing import replay_time

LIMIT_US, SLOWER = 10, 1.02  # For planning; for attention, times as long.
RECORDED = 50  # Plans in a graph.
HOST_PLANS = 40


@dataclass(frozen=True)
class PlanningPoint(Described):
    """A decoding step."""

    shape: str
    lengths: tuple
    q_heads: int = 32
    kv_heads: int = 8
    dim: int = 128
    page: int = 16
    device: str = "cuda"

    part = "planning"

    @property
    def name(self):
        return self.shape

    def seconds(self):
        """Estimate the seconds of a measurement."""
        return 8


def planning_points(quick):
    ragged = tuple(64 + 8128 * (i * 101 % 256) // 255 for i in range(256))
    points = [
        PlanningPoint("256 sequences of 64 to 8192", ragged),
        PlanningPoint("256 x 1024", (1024,) * 256),
        PlanningPoint("64 x 4096", (4096,) * 64),
        PlanningPoint("16 x 8192", (8192,) * 16),
        PlanningPoint("1 x 65536", (65536,)),
        PlanningPoint(
            "256 sequences of 1 to 600", tuple(1 + 599 * (i * 101 % 256) // 255 for i in range(256))
        ),
        PlanningPoint("1024 x 300", (300,) * 1024),
    ]
    return points[:1] if quick else points


class Step:
    """A step's tensors, and attention with both plans."""

    def __init__(self, torch, point):
        from measuring.points import Point
        from measuring.report import Problem, import_attn
        from measuring.tensors import Tensors

        attn = import_attn()
        self.torch, device = torch, "cpu" if point.device == "host" else point.device
        problem = Problem(point.q_heads, point.kv_heads, point.dim, point.dim, store=f"paged<{point.page}>")
        tensors = Tensors(torch, Point(point.part, point.name, problem, point.lengths, 1), device)
        spec = attn.Spec(
            q_heads=point.q_heads,
            kv_heads=point.kv_heads,
            head_dim=point.dim,
            dtype="bfloat16",
            see=attn.causal(),
            kv=[attn.Paged(page_size=point.page)],
            device_plan=True,
        )
        kernel = attn.compile(spec, device=point.device)
        batch = tensors.batch()
        self.planner = kernel.device_planner(batch)
        int32 = dict(dtype=torch.int32, device=device)
        self.tables = {
            "q_start": torch.tensor(batch["q_start"], **int32),
            "kv.lengths": torch.tensor(batch["kv.lengths"], **int32),
            "kv.block_table": tensors.table.clamp(min=0).to(torch.int32).contiguous(),
        }
        host = kernel.plan(batch)
        self.tasks, self.tensors = host.stats["tasks"], tensors
        self.plan_on_host = lambda: kernel.plan(batch)
        self.outs = {name: torch.empty_like(tensors.q) for name in ("device", "host")}
        made = self.plan()
        if made.fault:
            raise RuntimeError(f"{point.key}: {made.fault}")
        run = kernel.run
        self.runs = {
            name: lambda name=name, plan=plan: run(tensors.q, tensors.pages, plan, out=self.outs[name])
            for name, plan in (("device", made), ("host", host))
        }
        for each in self.runs.values():
            each()
        torch.testing.assert_close(self.outs["device"], self.outs["host"], rtol=2e-2, atol=2e-2)

    def plan(self):
        return self.planner.plan(self.tables)


def plan_time(torch, step, repeats=20):
    """Return milliseconds of a plan among those of a graph."""
    return replay_time(torch, step.plan, RECORDED, repeats)


def host_us(plan):
    """Return the host's time for a plan, the median: the plan before is dropped, and nothing is waited for."""
    times, made = [], plan()
    for _ in range(HOST_PLANS):
        begin = time.perf_counter()
        made = plan()
        times.append(time.perf_counter() - begin)
    del made
    return statistics.median(times) * 1e6


def flashinfer_us(torch, tensors):
    """Return the host's time for FlashInfer's plan of the step, which copies tables to the GPU and waits for none."""
    library = peers.installed("flashinfer")
    return host_us(flashinfer_peer.decode_planner(library, torch, tensors, tensors.pages)[1])


def measure_planning(point, bench):
    """Measure a point; returns its row of the file."""
    torch = bench.contest.torch
    step = Step(torch, point)
    times = bench.contest.timer.alone(step.runs)
    theirs, declined = {}, {}
    try:
        theirs["flashinfer"] = flashinfer_us(torch, step.tensors)
    except RuntimeError as error:
        declined["flashinfer"] = str(error)
    return {
        "key": point.key,
        "part": point.part,
        "name": point.name,
        "sequences": len(point.lengths),
        "tasks": step.tasks,
        "plan_ms": plan_time(torch, step),
        "attn": {"run_ms": times["device"]},
        "host_plan_ms": times["host"],
        "host_plan_us": host_us(step.plan_on_host),
        "peers_plan_us": theirs,
        "peers_ms": {},
        "declined": declined,
    }


def planning_line(row):
    """Format a row as text."""
    ours, host = row["attn"]["run_ms"], row["host_plan_ms"]
    others = "".join(f", {us:.0f} by {name}'s" for name, us in row.get("peers_plan_us", {}).items())
    return (
        f"  {row['name']:<36}{row['plan_ms'] * 1e3:>8.1f} us a plan of {row['tasks']} tasks, {row['host_plan_us']:.0f} by the host{others}   attention {ours:.4f} ms "
        f"under it, {host:.4f} under the host's (x{ours / host:.3f})"
    )


def planning_bars(row):
    return [
        (f"{LIMIT_US} us a plan", row["plan_ms"] * 1e3 <= LIMIT_US),
        ("attention 2 % slower at most", row["attn"]["run_ms"] <= SLOWER * row["host_plan_ms"]),
    ]
