# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pages of many lists, managed on the device: the part `pages` of `bench gpu`.

A step of generation, as in DiffKV: each list gets a token at either end, and takes a page if it lacks one; with the
compaction of a token that goes from each list; and with two requests that exchange their lists. A replay of one CUDA
graph is timed, back to back.

A CPU's time for the step is beside it (page_time.cpp): tokens of lists are copied out, as many threads as DiffKV's
paper gives its manager do the bookkeeping by prefix sums, and the changed entries of the table are copied in.
"""

import json
import subprocess
from dataclasses import dataclass

from measuring.described import Described
from measuring.report import program
from measuring.timing import replay_time

THREADS = 16  # Threads of the CPU's manager.
LIMIT_US = 20  # For a step of 128 sequences, 32 layers, 8 heads.


@dataclass(frozen=True)
class PagesPoint(Described):
    """Llama-3.1-8B's layers and heads, unless said otherwise."""

    requests: int
    kind: str  # "step", "compaction", "change"
    lists: int = 256
    columns: int = 64
    page_tokens: tuple[int, int] = (32, 64)
    device: str = "cuda"

    part = "pages"

    @property
    def name(self):
        return f"{self.kind}, {self.requests} x {self.lists} lists"

    def seconds(self):
        """Estimate the seconds of a measurement."""
        return 5

    def floor_bytes(self):
        """Return the bytes that every step reads and writes: pages and tokens of each list; pages that change."""
        return self.requests * self.lists * 2 * 3 * 4


def pages_points(quick):
    points = [
        PagesPoint(requests, kind) for kind in ("step", "compaction", "change") for requests in (16, 128)
    ]
    return points[1:2] if quick else points


class Managed:
    """A pool whose requests hold some tokens, and the point's step over it."""

    def __init__(self, torch, point):
        import attn

        self.torch, self.point = torch, point
        pages = point.requests * point.lists * 8
        sizes = dict(requests=point.requests, lists=point.lists, columns=point.columns)
        self.pool = attn.PagePool(pages=pages, page_tokens=point.page_tokens, device=point.device, **sizes)
        rows = torch.Generator().manual_seed(1)
        tokens = torch.randint(1, 129, self.pool.tokens.shape, generator=rows, dtype=torch.int32)
        self.pool.tokens.copy_(tokens)
        self.pool.manage()
        self.pool.require_done()
        self.keep = torch.ones(
            point.requests, point.lists, 256, dtype=torch.int8, device=self.pool.tokens.device
        )
        self.keep[:, :, 3] = 0
        if point.kind == "compaction":
            self.pool.compact(self.keep, moves=1)  # Compiles.
            self.pool.manage()

    def launches(self):
        """Run the work of a captured step."""
        tokens = self.pool.tokens
        if self.point.kind == "change":
            tokens[0], tokens[-1] = tokens[-1].clone(), tokens[0].clone()
        elif self.point.kind == "compaction":
            self.pool.compact(self.keep, moves=1)
            tokens[:, :, 0] += 1
        else:
            tokens += 1
            tokens %= 200  # Lists wrap around.
        self.pool.manage()


def measure_pages(point, bench):
    """Measure a point; returns its row of the file."""
    torch = bench.contest.torch
    managed = Managed(torch, point)
    milliseconds = graph_time(torch, managed)
    managed.pool.require_done()
    cpu = on_cpu(point) if point.kind == "step" else {}
    return {
        "key": point.key,
        "part": point.part,
        "name": point.name,
        "floor_bytes": point.floor_bytes(),
        "attn": {"run_ms": milliseconds},
        "lists": point.requests * point.lists,
        "cpu": cpu,
        "peers_ms": {},
        "declined": {},
    }


def on_cpu(point):
    """Return the program's figures for the same step; {} if it is not built."""
    try:
        where = program("attn-page-time")
    except FileNotFoundError:
        return {}
    lists = point.requests * point.lists
    sizes = (lists, point.columns, *point.page_tokens, lists * 16, THREADS)
    host = ["host"] if point.device == "host" else []
    told = subprocess.run([str(part) for part in (where, *sizes, *host)], capture_output=True, text=True)
    if told.returncode:
        raise RuntimeError(f"{point.key}: {told.stderr.strip()}")
    return json.loads(told.stdout) | {"threads": THREADS}


def graph_time(torch, managed, repeats=200):
    """Return milliseconds of a replay."""
    return replay_time(torch, managed.launches, 1, repeats)


def pages_line(row):
    """Format a row as text."""
    return (
        f"  {row['name']:<36}{row['attn']['run_ms'] * 1e3:>9.1f} us {row['lists']:>7} lists "
        f"{row['floor_bytes'] / 1e6:.2f} MB at least{_beside(row)}"
    )


def _beside(row):
    if not (cpu := row.get("cpu")):
        return ""
    times = cpu["step_us"] / (1e3 * row["attn"]["run_ms"])
    return (
        f"; {cpu['threads']} threads of a CPU {cpu['step_us']:.0f} us, {cpu['books_us']:.0f} without copies: "
        f"{times:.0f}x"
    )


def pages_bars(row):
    if row["lists"] < 128 * 256:
        return []
    return [(f"{LIMIT_US} us", row["attn"]["run_ms"] * 1e3 <= LIMIT_US)]
