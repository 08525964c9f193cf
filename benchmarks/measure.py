# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures points one after the other: attn, then its peers, as long as there is time."""

import subprocess
import time

from catalogue import bars
from contest import PEERS
from measuring.comparisons import compare, comparison_line
from measuring.points import Point
from measuring.report import attn_run
from parts.attention import PLAIN
from parts.backward import backward_line, measure_backward
from parts.batches import mean_bars, mean_ratio
from parts.cache import append_line, cache_line, measure_append, measure_cache
from parts.context import context_line, measure_context
from parts.deep import measure_deep
from parts.diffkv import diffkv_line, measure_diffkv
from parts.duo import duo_line, measure_duo
from parts.eager import eager_line, measure_eager
from parts.graphs import graph_line, measure_graph
from parts.latent import latent_line, measure_latent
from parts.layouts import layouts_line, measure_layouts
from parts.outputs import measure_outputs, outputs_line
from parts.pages import measure_pages, pages_line
from parts.planning import measure_planning, planning_line
from parts.python import measure_python, python_line, start
from parts.quantized import measure_quantized, quantized_line
from parts.row import measure_row, row_line
from parts.serving import measure_serving, serving_line
from parts.shared_backward import measure_shared_backward
from parts.sharing import COMPARISONS
from parts.significance import measure_significance, significance_line
from parts.transformers import measure_model, model_line
from parts.wide import measure_wide, wide_line

RUN_SECONDS = 300  # The longest time of one attn-run.

# For each part that is no contest of forward passes: the function that measures a point, the one that formats
# a row, and the heading of its lines.
GRADIENTS = "ms of attn and of peers, alone and sustained, TFLOP/s of all products; x: the best peer's time over attn's"
COMPARED = "ms of attn, in brackets as its cost model says, and of peers; x: the last over the best"
OWN = {
    **{part: (compare, comparison_line, COMPARED) for part in COMPARISONS},
    "backward": (measure_backward, backward_line, GRADIENTS),
    "shared-backward": (measure_shared_backward, backward_line, GRADIENTS),
    "tree-backward": (measure_deep, backward_line, GRADIENTS),
    "eager": (
        measure_eager,
        eager_line,
        "us of the host from one call to the next, and of a call back to back; x: the best peer's over attn's",
    ),
    "cache": (
        measure_cache,
        cache_line,
        "ms, bytes read and written per second, and as a share of what the GPU copies",
    ),
    "python": (
        measure_python,
        python_line,
        "from import to the first result, ms of a run, and FlexAttention's; x: its time over attn's",
    ),
    "transformers": (
        measure_model,
        model_line,
        "ms from a token to the next in generate, its floor, and SDPA's; x: SDPA's time over attn's",
    ),
    "serving": (
        measure_serving,
        serving_line,
        "generated tokens a second of requests that come and go: attn's engine, and Transformers' continuous batching",
    ),
    "graphs": (
        measure_graph,
        graph_line,
        "ms of a step of all layers, us of the host for tables and plan + for launches; x: eager over replayed",
    ),
    "pages": (measure_pages, pages_line, "us of a captured step of books, lists, and what it must move"),
    "diffkv": (
        measure_diffkv,
        diffkv_line,
        "requests that a memory for keys and values serves at once, ms of a captured step, tokens a second; x: times bf16's",
    ),
    "mla": (
        measure_latent,
        latent_line,
        "ms of latent attention, TFLOP/s, latents per second; x: FlashInfer's time over attn's",
    ),
    "wide": (
        measure_wide,
        wide_line,
        "ms of heads of 512 features, TFLOP/s beside those of heads of 256, bytes beside copying; x: a peer's time over attn's",
    ),
    "row": (
        measure_row,
        row_line,
        "ms under a numerics contract and in the default mode, alone and sustained; x: how many times as long",
    ),
    "layouts": (
        measure_layouts,
        layouts_line,
        "ms from tensors of their own; x: how many times as long from the same numbers in other layouts",
    ),
    "duo": (
        measure_duo,
        duo_line,
        "time and memory of a model whose heads all keep everything against one whose heads stream; x: times less",
    ),
    "context": (
        measure_context,
        context_line,
        "ms of a model's token behind that many tokens, and what its cache takes; no peer has them in that memory",
    ),
    "append": (
        measure_append,
        append_line,
        "ms of a step's tokens in all layers, normalized, rotated and written; x: times as fast as PyTorch's operations",
    ),
    "outputs": (
        measure_outputs,
        outputs_line,
        "ms of a launch that gives full and streaming attention; x: times as long as full attention alone",
    ),
    "planning": (
        measure_planning,
        planning_line,
        "us of a plan that the GPU makes, ms of attention under it and under the host's",
    ),
    "significance": (
        measure_significance,
        significance_line,
        "ms of a step that says what tokens are worth; x: times as long as the same without",
    ),
    "quantized": (
        measure_quantized,
        quantized_line,
        "ms, bytes of codes and metadata per second; x: times as fast as bf16, beside the ratio of bytes",
    ),
}


class Clock:
    """The time left, and an estimate of a point's time from earlier points."""

    def __init__(self, budget, now=time.monotonic):
        self.now, self.start, self.budget = now, now(), budget
        self.guessed = self.took = 0.0

    @staticmethod
    def work(point):
        """Estimate seconds without earlier points: compiling for attn and a peer, sustained runs, making and comparing
        tensors, and about 40 runs."""
        if not isinstance(point, Point):
            return point.seconds()
        gigabytes = (point.kv_bytes() + 4 * point.query_bytes()) / 1e9
        return (4 if point.part == "batches" else 6) + gigabytes + 40 * point.flops() / 400e12

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
    def __init__(
        self,
        results,
        contest,
        repeats,
        folder,
        run=attn_run,
        start=start,
        measures=None,
    ):
        self.results, self.contest, self.run = results, contest, run
        self.start = start
        self.measures = {part: own[0] for part, own in OWN.items()} | (measures or {})
        self.repeats, self.folder = repeats, folder
        self.plain = {}  # Milliseconds per visited FLOP of the plain feature, alone and sustained.

    def run_problem(self, text, options, result_bytes, key):
        """Run attn-run, which copies and compares results after each repeat: with large results there are few repeats."""
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

    def __call__(self, point):
        if point.part in self.measures:
            return self.measures[point.part](point, self)
        problem = point.problem
        measured = self.contest(point, peer_names(point))
        times, sustained = dict(measured.alone), measured.sustained
        ours = {"run_ms": times.pop("attn"), **measured.about}
        seconds = ours["run_ms"] / 1e3
        row = {
            "key": point.key,
            "part": point.part,
            "name": point.name,
            "heads": [problem.q_heads, problem.kv_heads],
            "dim": problem.dim,
            "value_dim": problem.value_dim,
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
            "sustained_ms": sustained,
            "sustained_tflops": point.flops() / sustained["attn"] / 1e9,
            "sustained_ratio": None,
            "judge": measured.judge,
            "difference": measured.difference,
            "declined": measured.declined,
        }
        if times:
            row["ratio_to_best_peer"] = min(times.values()) / ours["run_ms"]
            best = min(ms for name, ms in sustained.items() if name != "attn")
            row["sustained_ratio"] = best / sustained["attn"]
        if point.part == "features":
            now = {"slowdown": ours["run_ms"], "sustained_slowdown": sustained["attn"]}
            if point.name == PLAIN:
                self.plain = {name: ms / point.flops() for name, ms in now.items()}
            for name, ms in now.items():
                row[name] = ms / point.flops() / self.plain[name] if self.plain else None
        return row


def peer_names(point):
    """Return a point's peers. Features are compared with plain causal attention, and FlexAttention compiles for
    seconds."""
    if point.part == "features":
        return ()
    if point.part == "chunks":
        return ("flashinfer",)  # Causal masks of PyTorch's backends begin at the first token.
    left_out = {"flex"} if point.part == "batches" else set()
    if point.rows == 1 or len(point.lengths) > 1:
        left_out.add("flashinfer, single")
    return tuple(name for name in PEERS if name not in left_out)


def line(row):
    """Format a row as text."""
    if row["part"] in OWN:
        return OWN[row["part"]][1](row)
    ours = row["attn"]
    predicted = f"{ours['predicted_ms']:9.3f}" if ours["predicted_ms"] else f"{'-':>9}"
    how = ours["kernel"].rpartition("_")[2] if row["part"] == "decode" else ours["schedule"]
    text = f"  {row['name']:<{36 if row['part'] in ('batches', 'chunks') else 26}}{how:>7}{ours['run_ms']:>9.3f} ms {predicted}"
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
    return text + sustained_text(row)


def sustained_text(row):
    """Format the sustained times: of a feature over plain, otherwise against the best peer."""
    times = row["sustained_ms"]
    text = f"   sustained {times['attn']:.3f}"
    if row["part"] == "features":
        return text + (f" {row['sustained_slowdown']:.3f} of plain" if row["sustained_slowdown"] else "")
    for name, milliseconds in sorted(times.items(), key=lambda item: item[1]):
        text += f"  {name} {milliseconds:.3f}" if name != "attn" else ""
    return text + (f"  x{row['sustained_ratio']:.2f}" if row["sustained_ratio"] else "")


def heading(point):
    """Return the heading of a part's lines."""
    if point.part in OWN:
        return OWN[point.part][2]
    return "attn, predicted by its cost model, and peers in ms, alone and sustained; x: the best peer's time over attn's"


def missing(points, results):
    """Return the points that are missing in the file. Features are ratios within one run: the plain one is measured
    again."""
    left = [point for point in points if not results.has(point.key)]
    features = [point for point in left if point.part == "features"]
    plain = [point for point in points if point.part == "features" and point.name == PLAIN]
    if features and not set(plain) <= set(left):
        left[left.index(features[0]) : left.index(features[0])] = plain
    return left


def measure_all(points, bench, clock, results):
    """Measure what fits; returns the keys of the points left out, and the reasons of those that failed."""
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
    """Print the bars, over all rows of the file."""
    met, missed = 0, []
    rows = list(rows)
    for row in rows:
        for text, good in bars(row, sessions[row["session"]]):
            met += good
            if not good:
                missed.append(f"{row['key']}: {text}")
    for text, good in mean_bars(rows):
        met += good
        missed += [] if good else [text]
    for part in dict.fromkeys(row["part"] for row in rows):
        of_part = [row for row in rows if row["part"] == part and row.get("peers_ms")]
        means = [mean_ratio(of_part, name) for name in ("ratio_to_best_peer", "sustained_ratio")]
        if None not in means:
            print(
                f"{part}: the best peer's time over attn's x{means[0]:.3f} alone, x{means[1]:.3f} sustained, in the mean"
            )
    print(f"bars: {met} of {met + len(missed)} met")
    for text in missed:
        print(f"  missed: {text}")
