# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Two ways to compute the same attention with attn's own kernels: the parts `trees`, `shared` and `heads` of `bench
gpu`.

A point has contenders, each a list of runs that stand for a number of steps; the figure is the sum of their times.
sharing.py has the points.
"""

from dataclasses import dataclass

from measuring.report import Problem


@dataclass(frozen=True)
class Run:
    """One attn-run."""

    problem: Problem
    options: tuple
    rows: int
    tokens: int
    weight: float = 1

    def bytes(self):
        problem = self.problem
        features = problem.dim + problem.value_dim
        return 2 * features * (self.tokens * problem.kv_heads + self.rows * problem.q_heads)

    def result_bytes(self):
        return 2 * self.rows * self.problem.q_heads * self.problem.value_dim


@dataclass(frozen=True)
class Comparison:
    """`contenders` makes {name: runs}; the ratio is the time of `baseline` over the best of the others."""

    name: str
    part: str
    baseline: str
    bar: float | None = None
    scale: int = 1  # Tokens are divided by it, for a CPU.

    @property
    def key(self):
        return f"{self.part}: {self.name}"

    def ceiling(self):
        """Return the ratio that the work allows, if it is known."""
        return None

    def peer_point(self):
        """Return the point for PyTorch, or None."""
        return None


def compare(point, bench):
    """Measure a point; returns its row of the file."""
    runs, sums, predicted = {}, {}, {}
    for label, contender in point.contenders(bench.folder).items():
        reports = [
            bench.run_problem(r.problem.text(), r.options, r.result_bytes(), point.key) for r in contender
        ]
        weights = [r.weight for r in contender]
        sums[label] = sum(w * r["run_ms"] for w, r in zip(weights, reports, strict=True))
        guesses = [r["predicted_ms"] for r in reports]
        predicted[label] = (
            None if None in guesses else sum(w * g for w, g in zip(weights, guesses, strict=True))
        )
        runs[label] = [{"weight": w, **r} for w, r in zip(weights, reports, strict=True)]
    peer = point.peer_point()
    others = bench.contest(peer, ("cudnn", "flash"), ours=False) if peer else None
    times, declined = (others.alone, others.declined) if others else ({}, {})
    best = min((label for label in sums if label != point.baseline), key=sums.get)
    row = {
        "key": point.key,
        "part": point.part,
        "name": point.name,
        "baseline": point.baseline,
        "best": best,
        "bar": point.bar,
        "ceiling": point.ceiling(),
        "times_ms": sums,
        "predicted_ms": predicted,
        "ratio": sums[point.baseline] / sums[best],
        "runs": runs,
        "peers_ms": times,
        "declined": declined,
    }
    if times:
        row["ratio_to_best_peer"] = min(times.values()) / sums[best]
    return row


def comparison_line(row):
    """Format times, in brackets the model's, and the best one's speed-up over the baseline."""
    text = f"  {row['name']:<34}"
    for label, milliseconds in row["times_ms"].items():
        guess = row["predicted_ms"][label]
        text += f"{label} {milliseconds:.3f}" + (f" ({guess:.3f})" if guess else "") + "  "
    text += f"x{row['ratio']:.2f}"
    text += f" of at most {row['ceiling']:.2f}" if row["ceiling"] else ""
    for name, milliseconds in sorted(row["peers_ms"].items(), key=lambda item: item[1]):
        text += f"  {name} {milliseconds:.3f}"
    return text


def comparison_bars(row):
    return (
        [(f"{row['bar']:.2f} times as fast as {row['baseline']}", row["ratio"] >= row["bar"])]
        if row["bar"]
        else []
    )
