# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The significance of tokens, in steps of decoding and in prompts: the part `significance` of `bench gpu`.

A description that returns the significance of every token beside its output, against the same without it, over the same
pages and alternating; in prompts to the last rows alone, as DiffKV's policy needs it. Both are recorded: the cost is
the GPU's time and not Python's. The weights of the first and the last sequence are compared with float32.
"""

import re
import statistics
from dataclasses import dataclass, replace

from measuring.report import Problem
from measuring.timing import recorded
from parts.quantized import FORMATS, MANY_BYTES, QuantizedPoint, tokens_for

PLAIN = "bf16"
LIMITS = {PLAIN: 1.08, "K8V4": 1.08, "K4V2": 1.2}  # Times as long at most, from MANY_BYTES stored on.
PROMPT_ROWS, PROMPT_LIMIT, LONG_PROMPT = (
    64,
    1.03,
    16384,
)  # Rows that count of a prompt; times as long, from so many tokens on.
# Relative to a weight, or to LEAST if it is less; quantized keys are compared after rounding to bf16.
ERROR, CODED_ERROR, LEAST = 1e-2, 2e-2, 1e-4
PROFILED = 20  # Steps whose launches are profiled.


@dataclass(frozen=True)
class SignificancePoint:
    format: str
    batch: int
    tokens: int  # Tokens of each sequence.
    q_heads: int = 32

    part = "significance"
    counted = 1  # Rows of a sequence.

    @property
    def name(self):
        of_heads = "" if self.q_heads == 32 else f", {self.q_heads}/8 heads"
        return f"{self.format}, {self.batch} x {self.tokens}{of_heads}"

    @property
    def key(self):
        return f"{self.part}: {self.name}"

    @property
    def step(self):
        """Return the same step without significance."""
        plain = self.format == PLAIN
        format = FORMATS["K8V8" if plain else self.format]  # Any format has the same numbers in 16 bits.
        coded = QuantizedPoint(format, self.name, self.q_heads, (self.tokens,) * self.batch)
        return coded.plain() if plain else coded

    @property
    def weighed(self):
        return replace(self.step.problem, significance="max")

    def problems(self):
        return {self.step.problem, self.weighed}

    def kv_bytes(self):
        return self.step.kv_bytes()

    def seconds(self):
        """Estimate the seconds of a measurement."""
        return 5 + 3 * self.batch * self.tokens / 250_000


@dataclass(frozen=True)
class PromptPoint(SignificancePoint):
    """Prompts, whose last rows count."""

    store: str = "paged<16>"

    counted = PROMPT_ROWS

    @property
    def name(self):
        return f"prompt, {super().name}, {self.store}"

    @property
    def step(self):
        from measuring.points import Point

        problem = Problem(self.q_heads, store=self.store)
        return Point(self.part, self.name, problem, (self.tokens,) * self.batch)

    @property
    def weighed(self):
        return replace(super().weighed, significance_rows=self.counted)


def significance_points(quick):
    points = []
    for format in LIMITS:
        tokens = MANY_BYTES // (8 * 512) if format == PLAIN else tokens_for(FORMATS[format])
        points.append(SignificancePoint(format, -(-tokens // 8192), 8192))
        if not quick:
            points += [SignificancePoint(format, 1, -(-tokens // 16) * 16)]
            points += [SignificancePoint(format, -(-tokens // 1024), 1024)]
            points += [SignificancePoint(format, -(-tokens // 8192), 8192, q_heads) for q_heads in (8, 64)]
            points += [SignificancePoint(format, 16, 8192)]
    prompts = [PromptPoint(PLAIN, 1, LONG_PROMPT), PromptPoint(PLAIN, 1, LONG_PROMPT, store="dense")]
    prompts += [PromptPoint(PLAIN, 4, LONG_PROMPT // 4), PromptPoint(PLAIN, 1, 4 * LONG_PROMPT)]
    points += prompts[: 1 if quick else None]
    return list(dict.fromkeys(points))


def significance_runs(torch, point, tensors):
    """Return launches of planned kernels by name, and the weights that they write [batch, kv_heads, pages, page]."""
    from measuring.report import import_attn

    attn, runs, found = import_attn(), {}, None
    device = "host" if tensors.device == "cpu" else tensors.device
    for name, problem in (("with", point.weighed), ("without", point.step.problem)):
        kernel = attn.compile(problem.text(), device=device)
        plan = kernel.plan(tensors.batch())
        plan.fix()
        results = {"out": tensors.q.new_empty(len(tensors.q), problem.q_heads, problem.value_dim)}
        if problem.significance:
            _, found = kernel.run(tensors.q, tensors.operands(), plan, **results)
            results["significance"] = found
        runs[name] = lambda kernel=kernel, plan=plan, results=results: kernel.run(
            tensors.q, tensors.operands(), plan, **results
        )
    return runs, found


def significance_error(torch, point, tensors, found):
    """Return the largest relative error over the tokens of the first and the last sequence."""
    problem, worst = point.weighed, 0.0
    for sequence in {0, point.batch - 1}:
        first, last = sequence * point.tokens, tensors.starts(tensors.rows)[sequence + 1]
        keys = tensors.k[first : first + point.tokens].float()
        weights = 0
        for row in range(point.counted):  # One by one: a prompt's weights are gigabytes.
            q = tensors.q[last - 1 - row].float().view(problem.kv_heads, problem.group, -1)
            seen = keys[: point.tokens - row]
            new = (torch.einsum("hgd,thd->hgt", q, seen) * problem.dim**-0.5).softmax(-1)
            weights = weights + torch.nn.functional.pad(new, (0, row))
        weights = weights.amax(1)
        by_head = found[sequence].T if problem.store == "dense" else found[sequence].flatten(1)
        error = (by_head[:, : point.tokens] - weights).abs() / weights.clamp(min=LEAST)
        worst = max(worst, float(error.nan_to_num(nan=float("inf")).max()))
    return worst


def check_weights(torch, point, tensors, found):
    """Return the largest error; RuntimeError if it is too large."""
    error = significance_error(torch, point, tensors, found)
    limit = ERROR if point.format == PLAIN else CODED_ERROR
    if not error <= limit:
        raise RuntimeError(
            f"{point.key}: a weight differs from float32 by {error:.3g}, expected at most {limit}"
        )
    return error


def launches_of_steps(events):
    """Return when the launches of a step begin and end, in us after the first one's beginning: medians of steps. They
    overlap, so the cost of one is how much later the step ends."""
    steps = []
    for event in sorted(events, key=lambda event: event.time_range.start):
        if found := re.search(r"_(rows|merge|weigh|significance)\d*(?:_kv)?$", event.name):
            if found[1] == "rows":
                steps.append({})
            if steps:
                steps[-1][found[1]] = event.time_range
    spans = {}
    for step in steps:
        for name, span in step.items():
            began = step["rows"].start
            spans.setdefault(name, []).append((span.start - began, span.end - began))
    return {
        name: [statistics.median(ends) for ends in zip(*found, strict=True)] for name, found in spans.items()
    }


def profiled(torch, run):
    """Return the launches; {} if the profiler must not see kernels."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(PROFILED):
            run()
        torch.cuda.synchronize()
    return launches_of_steps(profile.events())


def measure_significance(point, bench):
    """Measure a point; returns its row of the file."""
    from measuring.codes import CodedTensors
    from measuring.tensors import Tensors

    torch = bench.contest.torch
    with torch.no_grad():
        kind = Tensors if point.format == PLAIN else CodedTensors
        tensors = kind(torch, point.step, bench.contest.device)
        runs, found = significance_runs(torch, point, tensors)
        runs["with"]()
        check_weights(torch, point, tensors, found)
        timer = bench.contest.timer
        alone = timer.alone({name: recorded(torch, run) for name, run in runs.items()})
        sustained = timer.sustained(runs, alone, lambda name: runs[name], {})
        error = check_weights(torch, point, tensors, found)  # The error after the last of all these steps.
        on_gpu = tensors.device != "cpu"
        launches = {name: profiled(torch, run) for name, run in runs.items() if on_gpu}
    return {
        "key": point.key,
        "part": point.part,
        "name": point.name,
        "format": point.format,
        "kv_bytes": point.kv_bytes(),
        "prompt": point.tokens if isinstance(point, PromptPoint) else 0,
        "error": error,
        "attn": {"run_ms": alone["with"]},
        "without_ms": alone["without"],
        "longer": alone["with"] / alone["without"],
        "sustained_ms": sustained,
        "sustained_longer": sustained["with"] / sustained["without"],
        "launches_us": launches,
        "peers_ms": {},
        "declined": {},
    }


def significance_line(row):
    """Format a row as text, with when launches of a step end."""
    ends = {
        name: ", ".join(f"{launch} {end:.1f}" for launch, (_, end) in found.items())
        for name, found in row.get("launches_us", {}).items()
    }
    return (
        f"  {row['name']:<30}{row['attn']['run_ms']:>9.4f} ms, {row['without_ms']:.4f} without  x{row['longer']:.3f}"
        f"   sustained x{row['sustained_longer']:.3f}"
    ) + "".join(f"\n      {name:<8} ends, us: {found}" for name, found in ends.items())


def significance_limit(row):
    """Return how many times as long it may take; None without a limit."""
    if prompt := row.get("prompt"):
        return PROMPT_LIMIT if prompt >= LONG_PROMPT else None
    return LIMITS[row["format"]] if row["kv_bytes"] >= MANY_BYTES else None


def significance_bars(row):
    limit = significance_limit(row)
    return [] if limit is None else [(f"{limit} times as long at most", row["longer"] <= limit)]
