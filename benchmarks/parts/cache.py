# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations on a cache: the part `cache` of `bench gpu`.

Llama-3-8B's heads in pages of 16, all 32 layers in one launch, at slots scattered over the pool. The figure is bytes,
each read once and written once, against this GPU's copy rate.
"""

from dataclasses import dataclass

from measuring.report import CacheProblem

LAYERS = 32


@dataclass(frozen=True)
class CachePoint:
    name: str
    problem: CacheProblem
    rows: int

    part = "cache"

    @property
    def key(self):
        return f"{self.part}: {self.name}"

    def problems(self):
        return {self.problem}

    def row_bytes(self):
        return 2 * self.problem.heads * (self.problem.dim + self.problem.value_dim)

    def pool_bytes(self):
        """Return the bytes that attn-run generates: twice the slots that are needed, and the rows."""
        lists = 2 if self.problem.op == "move" else 1
        return (2 * lists + 1) * self.rows * LAYERS * self.row_bytes()

    def dims(self):
        return (f"--dim=layers={LAYERS}", f"--dim=rows={self.rows}")

    def seconds(self):
        """Estimate the seconds of a measurement."""
        return 3 + 10 * self.pool_bytes() / 1e9


def cache_points(quick):
    def point(op, rows, why):
        return CachePoint(f"{op} {rows} rows, {why}", CacheProblem(op), rows)

    points = [
        point("append", 64, "a step of 64 sequences"),
        point("append", 4096, "a chunk of prefill"),
        point("move", 192, "64 drafts committed"),
        point("move", 1024, "64 pages copied"),
        point("move", 4096, "a long sequence compacted"),
        point("gather", 4096, "a sequence swapped out"),
    ]
    return points[:2] if quick else points


def measure_cache(point, bench):
    """Measure a point; returns its row of the file."""
    ours = bench.run_problem(point.problem.text(), point.dims(), point.pool_bytes(), point.key)
    seconds = ours["run_ms"] / 1e3
    return {
        "key": point.key,
        "part": point.part,
        "name": point.name,
        "kv_bytes": ours["bytes_floor"],
        "attn": ours,
        "bytes_per_second": ours["bytes_floor"] / seconds,
        "copy_share": ours["bytes_floor"] / seconds / bench.results.session["copy_bytes_per_second"],
        "peers_ms": {},
        "declined": {},
    }


def cache_line(row):
    """Format a row as text."""
    return (
        f"  {row['name']:<44}{row['attn']['run_ms']:>9.4f} ms{row['bytes_per_second'] / 1e9:>7.0f} GB/s"
        f"{row['copy_share']:>6.2f} of copying"
    )
