"""Measures points one after the other: attn, then its peers, as long as there is time."""

import subprocess
import time

from gpu_cache import CachePoint, cache_line, measure_cache
from gpu_comparisons import Comparison, compare, comparison_line
from gpu_points import PLAIN, bars
from gpu_python import PythonPoint, measure_python, python_line, start
from report import attn_run

RUN_SECONDS = 300  # the longest that one attn-run may take


class Clock:
    """Time left, and a guess of what a point will take that learns from those before."""

    def __init__(self, budget, now=time.monotonic):
        self.now, self.start, self.budget = now, now(), budget
        self.guessed = self.took = 0.0

    @staticmethod
    def work(point):
        """Seconds where nothing is known yet: starting attn-run and compiling for it and a peer; making, copying
        and comparing tensors; computing it about 40 times."""
        if isinstance(point, (Comparison, CachePoint, PythonPoint)):
            return point.seconds()
        gigabytes = (point.kv_bytes() + 4 * point.query_bytes()) / 1e9
        return 5 + 3 * gigabytes + 40 * point.flops() / 400e12

    def guess(self, point):
        return self.work(point) * (max(self.took / self.guessed, 0.5) if self.guessed else 1)

    def fits(self, point):
        return self.budget is None or self.now() - self.start + self.guess(point) <= self.budget

    def measure(self, point, function):
        before = self.now()
        result = function(point)
        self.guessed += self.work(point)
        self.took += self.now() - before
        return result


class Bench:
    def __init__(self, results, peers, repeats, folder, run=attn_run, start=start):
        self.results, self.peers, self.run, self.start = results, peers, run, start
        self.repeats, self.folder = repeats, folder
        self.plain = None  # seconds per visited FLOP of the plain one

    def run_problem(self, text, options, result_bytes, key):
        """attn-run copies and compares results after each repeat: where they are large, few must do."""
        repeats = max(3, min(self.repeats, int(1.5e9 / result_bytes)))
        file = self.folder / "problem.mlir"
        file.write_text(text)
        status, report, errors = self.run(
            file, "--device=cuda", f"--repeat={repeats}", *options, timeout=RUN_SECONDS
        )
        if status != 0:
            raise RuntimeError(f"{key}: attn-run ended with {status}: {errors.strip() or report}")
        kept = ("run_ms", "predicted_ms", "bytes_floor", "schedule", "kernel", "blocks", "repeat")
        return {name: report[name] for name in kept if name in report}

    def attn(self, point):
        options = point.dims(self.folder)
        return self.run_problem(point.problem.text(), options, point.query_bytes(), point.key)

    def __call__(self, point):
        if isinstance(point, Comparison):
            return compare(point, self)
        if isinstance(point, CachePoint):
            return measure_cache(point, self)
        if isinstance(point, PythonPoint):
            return measure_python(point, self)
        ours = self.attn(point)
        seconds = ours["run_ms"] / 1e3
        problem = point.problem
        times, declined = ({}, {}) if point.part == "features" else self.peers(point)
        row = {
            "key": point.key,
            "part": point.part,
            "name": point.name,
            "heads": [problem.q_heads, problem.kv_heads],
            "dim": problem.dim,
            "see": problem.see,
            "store": problem.store,
            "softcap": problem.softcap,
            "approximate": problem.approximate,
            "sinks": problem.sinks,
            "lengths": list(point.lengths),
            "rows": point.row_count,
            "visited_flops": point.flops(),
            "kv_bytes": point.kv_bytes(),
            "attn": ours,
            "tflops": point.flops() / seconds / 1e12,
            "bytes_per_second": point.kv_bytes() / seconds,
            "copy_share": point.kv_bytes() / seconds / self.results.session["copy_bytes_per_second"],
            "peers_ms": times,
            "declined": declined,
        }
        if times:
            row["ratio_to_best_peer"] = min(times.values()) / ours["run_ms"]
        if point.part == "features":
            per_flop = seconds / point.flops()
            if point.name == PLAIN:
                self.plain = per_flop
            row["slowdown"] = per_flop / self.plain if self.plain else None
        return row


def line(row):
    """A row for people."""
    if "times_ms" in row:
        return comparison_line(row)
    if row["part"] == "cache":
        return cache_line(row)
    if row["part"] == "python":
        return python_line(row)
    ours = row["attn"]
    predicted = f"{ours['predicted_ms']:9.3f}" if ours["predicted_ms"] else f"{'-':>9}"
    how = ours["kernel"].rpartition("_")[2] if row["part"] == "decode" else ours["schedule"]
    text = f"  {row['name']:<26}{how:>7}{ours['run_ms']:>9.3f} ms {predicted}"
    if row["part"] == "decode":
        text += f"{row['bytes_per_second'] / 1e9:>7.0f} GB/s{row['copy_share']:>6.2f} "
    else:
        text += f"{row['tflops']:>6.0f} TFLOP/s "
    if row["part"] == "features" and row["slowdown"]:
        text += f"{row['slowdown']:>6.3f} of plain"
    for name, milliseconds in sorted(row["peers_ms"].items(), key=lambda item: item[1]):
        text += f"  {name} {milliseconds:.3f}"
    if row["peers_ms"]:
        text += f"  x{row['ratio_to_best_peer']:.2f}"
    return text


def heading(point):
    """What the lines of a part say."""
    if isinstance(point, Comparison):
        return "ms of attn, in brackets as its cost model says, and of peers; x: the last over the best"
    if isinstance(point, CachePoint):
        return "ms, bytes read and written per second, and as a share of what the GPU copies"
    if isinstance(point, PythonPoint):
        return "from import to the first result, ms of a run, and FlexAttention's; x: its time over attn's"
    return "attn, predicted by its cost model, and peers in ms; x: the best peer's time over attn's"


def missing(points, results):
    """The points that the file has not. Features are ratios within one run: the plain one is measured again."""
    left = [point for point in points if not results.has(point.key)]
    features = [point for point in left if point.part == "features"]
    plain = [point for point in points if point.part == "features" and point.name == PLAIN]
    if features and not set(plain) <= set(left):
        left[left.index(features[0]) : left.index(features[0])] = plain
    return left


def measure_all(points, bench, clock, results):
    """Measures what fits; returns the keys of the points left out, and the reasons of those that failed."""
    skipped, failed, told, part = [], {}, set(), None
    for point in points:
        if not clock.fits(point):
            skipped.append(point.key)
            continue
        if point.part != part:
            part = point.part
            print(f"{part}: {heading(point)}")
        try:
            row = results.add(clock.measure(point, bench))
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            failed[point.key] = str(error)
            print(f"  {point.name:<26} failed: {error}", flush=True)
            continue
        print(line(row), flush=True)
        for name, why in row["declined"].items():
            if (name, why) not in told:
                told.add((name, why))
                print(f"    {name} declined: {why}")
    return skipped, failed


def verdict(rows, sessions):
    """The bars, over all rows of the file."""
    met, missed = 0, []
    for row in rows:
        for text, good in bars(row, sessions[row["session"]]):
            met += good
            if not good:
                missed.append(f"{row['key']}: {text}")
    print(f"bars: {met} of {met + len(missed)} met")
    for text in missed:
        print(f"  missed: {text}")
