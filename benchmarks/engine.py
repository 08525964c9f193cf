# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention as a serving engine asks for it: steps that vLLM recorded, over pages, beside FlashInfer.

The trace (benchmarks/traces) has what vLLM told its attention in 1,000 steps: requests that arrive over time, chunks of prompts beside
decoding, prefixes that requests share. Keys and values are random, of an 8B model's heads. Rows that decode come first, as FlashInfer
needs them. An engine runs each step

  device   by attn.serving.DevicePlans: a kernel plans, and a CUDA graph of the step's number of rows runs the layers
  host     by attn.serving.Plans: a plan of the host, and kernels that are launched one by one; with prefixes read once in `shared`
  FORMAT   the same, over attn's pages of fewer bits, with --formats
  flashinfer  by its wrappers for decoding and for prompts, planned for each step, as vLLM does with it

First all steps of `device` are compared: with launches that are no graph, to the bit, and with plans of the host. Then every n-th step
is timed: 32 layers of each side, back to back, the median of five rounds. `plan_us` is the host's time before the layers.

On the CPU, the host device, steps of a few rows are compared and nothing is timed."""

import argparse
import functools
import itertools
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from measuring.report import BUILD, ROOT, header, save

if str(BUILD / "python") not in sys.path:
    sys.path.insert(0, str(BUILD / "python"))

import numpy
import torch
from attn.serving import DevicePlans, Layer, Plans
from attn.serving.formats import PACKED

TRACE = ROOT / "benchmarks/traces/vllm-0.32.0.npz"
SIZES = (1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 128, 256, 512)  # Rows of an engine's graphs.
LAYERS, SAID_LAYERS = 4, 32  # Pools that layers alternate between, and layers of the step that is timed.
ROUNDS = 5
AHEAD = 12_000_000  # Cycles of a GPU, 6 ms, in which the host starts the layers of a step.
WORKSPACE_BYTES = 512 << 20


@dataclass(frozen=True)
class Step:
    """The tables of a step, on the host."""

    rows: numpy.ndarray
    lengths: numpy.ndarray
    table: numpy.ndarray

    @property
    def starts(self):
        return numpy.concatenate([[0], numpy.cumsum(self.rows)])

    @property
    def decoding(self):
        """The number of sequences with one row, which come first."""
        return int((self.rows == 1).sum())


class Trace:
    """Steps of an engine, in which rows that decode come first."""

    def __init__(self, path):
        kept = numpy.load(path)
        self.page, self.pages, self.vllm = int(kept["page_size"]), int(kept["blocks"]), str(kept["vllm"])
        lists = numpy.split(kept["lists"], numpy.cumsum(kept["of_list"])[:-1])
        ends = numpy.cumsum(kept["of_step"])
        self.sequences, self.columns = int(kept["of_step"].max()), max(map(len, lists))
        self.steps = []
        for first, end in itertools.pairwise([0, *ends]):
            order = first + numpy.argsort(kept["rows"][first:end] != 1, kind="stable")
            table = numpy.zeros((end - first, self.columns), numpy.int32)
            for row, number in enumerate(kept["pages"][order]):
                table[row, : len(lists[number])] = lists[number]
            self.steps.append(
                Step(kept["rows"][order].astype(int), kept["lengths"][order].astype(int), table)
            )
        used = max(int(each.max()) for each in lists) + 1
        self.pages = min(self.pages, used)


class Sides:
    """The tensors of some layers, and the sides that compute them."""

    def __init__(self, trace, heads, dim, device, formats=()):
        self.trace, self.device = trace, device
        q_heads, kv_heads = heads
        described = dict(q_heads=q_heads, kv_heads=kv_heads, head_dim=dim, page_size=trace.page)
        dtype = torch.bfloat16 if device == "cuda" else torch.float16
        self.kernels = {
            on_device: Layer(dtype=dtype, device_plan=on_device, **described).compile(device)
            for on_device in (True, False)
        }
        like = dict(dtype=dtype, device=device)
        pool = trace.pages, trace.page, kv_heads, dim
        self.pools = [tuple(torch.randn(pool, **like) for _ in "kv") for _ in range(LAYERS)]
        self.q = torch.randn(LAYERS, max(SIZES), q_heads, dim, **like)
        self.out = torch.zeros_like(self.q)
        self.columns = -(-trace.columns // 8) * 8
        self.device_plans, self.plain = (self._device_plans() for _ in range(2))
        self.graphs = {}
        self.host_plans = {
            "host": Plans(),
            "shared": Plans(shared_pages=4),
            **{name: Plans() for name in formats},
        }
        self.of_side = {name: (self.kernels[False], self.pools) for name in ("host", "shared")}
        self.of_side["device"] = self.kernels[True], self.pools
        for name in formats:
            layer = Layer(dtype=dtype, format=name, **described)
            self.of_side[name] = layer.compile(device), [self._packed(layer, *pools) for pools in self.pools]

    def _packed(self, layer, k, v):
        """Return a pool's keys and values in pages of fewer bits."""
        pool = self.trace.pages, layer.kv_heads, layer.page_size, layer.token_bytes
        pages = layer.pages(torch.zeros(pool, dtype=torch.uint8, device=self.device))
        slots = torch.arange(k.shape[0] * k.shape[1], device=self.device)
        pages.write(k.flatten(0, 1), v.flatten(0, 1), slots)
        return pages

    def _device_plans(self):
        return DevicePlans(self.trace.sequences, self.columns, self.device, SIZES)

    def tables(self, step):
        """The tables as an engine has them on its device."""
        return [
            torch.tensor(each, dtype=torch.int32, device=self.device)
            for each in (step.starts, step.lengths, step.table)
        ]

    def layers(self, step, side, out, count=LAYERS):
        kernel, pools = self.of_side[side]
        for layer in range(count):
            at = layer % LAYERS
            step.run(kernel, self.q[at], pools[at], out=out[at])

    def plan_on_device(self, step, tables, plans=None):
        """Plan a step whose rows an engine has padded to the size of a graph."""
        plans, used = plans or self.device_plans, int(step.rows.sum())
        rows = next(size for size in SIZES if size >= used)
        return plans.step(*tables, rows=rows, longest=1 if step.rows.max() == 1 else None)

    def graph(self, made):
        """Return the recorded layers of a size, recorded when it is first asked for."""
        key = made.size, made.spread
        if key not in self.graphs:
            self.graphs[key] = recorded(lambda: self.layers(made, "device", self.out))
        return self.graphs[key]

    def on_host(self, step, name):
        made = self.host_plans[name].step(step.starts, step.lengths, step.table)
        kernel, pools = self.of_side[name]
        made.plan(kernel, self.q[0][: made.rows], pools[0])
        return made


def recorded(launches):
    """Return a graph of launches, which run once before."""
    launches()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launches()
    return graph


def compare(sides, steps):
    """Yield a row: whether graphs have the bits of launches, and how far plans of the host are from both."""
    same, apart, worst = 0, 0.0, 0.0
    for step in steps:
        used = int(step.rows.sum())
        tables = sides.tables(step)
        made = sides.plan_on_device(step, tables)
        if sides.device == "cuda":
            sides.graph(made).replay()
        else:
            sides.layers(made, "device", sides.out)
        found = sides.out[:, :used].clone()
        wanted = torch.zeros_like(sides.out)
        sides.layers(sides.plan_on_device(step, tables, sides.plain), "device", wanted)
        same += bool(torch.equal(found, wanted[:, :used]))
        sides.layers(sides.on_host(step, "shared"), "shared", wanted)
        errors = (found.float() - wanted[:, :used].float()).abs()
        apart, worst = max(apart, errors.max().item()), max(worst, errors.mean().item())
    yield {"part": "compare", "steps": len(steps), "same_bits": same, "largest": apart, "mean": worst}


class FlashInfer:
    """Its wrappers for decoding and for prompts."""

    def __init__(self, flashinfer, sides, heads, dim):
        self.sides, self.heads, self.dim = sides, heads, dim
        space = [torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device="cuda") for _ in range(2)]
        self.decode = flashinfer.BatchDecodeWithPagedKVCacheWrapper(space[0], "NHD", use_tensor_cores=True)
        self.prefill = flashinfer.BatchPrefillWithPagedKVCacheWrapper(space[1], "NHD")

    def plan(self, step):
        """Plan a step; returns a function that runs a layer."""
        page, count = self.sides.trace.page, step.decoding
        pages = -(-step.lengths // page)
        flat = numpy.concatenate([row[:n] for row, n in zip(step.table, pages, strict=True)]).astype(
            numpy.int32
        )
        last = step.lengths - (pages - 1) * page
        starts, indptr = step.starts, numpy.concatenate([[0], numpy.cumsum(pages)])
        kinds = dict(q_data_type=self.sides.q.dtype, kv_data_type=self.sides.q.dtype)

        def table(values):
            return torch.tensor(values, dtype=torch.int32)

        if count:
            self.decode.plan(
                table(indptr[: count + 1]),
                table(flat[: indptr[count]]).cuda(),
                table(last[:count]),
                *self.heads,
                self.dim,
                page,
                **kinds,
            )
        if count < len(step.rows):
            self.prefill.plan(
                table(starts[count:] - count),
                table(indptr[count:] - indptr[count]),
                table(flat[indptr[count] :]).cuda(),
                table(last[count:]),
                *self.heads,
                self.dim,
                page,
                causal=True,
                **kinds,
            )
        rows = int(starts[-1])

        def layer(at, out):
            q, pools = self.sides.q[at], self.sides.pools[at]
            if count:
                self.decode.run(q[:count], pools, out=out[at][:count])
            if count < rows:
                self.prefill.run(q[count:rows], pools, out=out[at][count:rows])

        return layer

    @staticmethod
    def layers(layer, out):
        for at in range(SAID_LAYERS):
            layer(at % LAYERS, out)


def timed(launches):
    """Milliseconds of launches, back to back: the GPU waits until the host has started them all."""
    launches()
    found = []
    for _ in range(ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(AHEAD)
        begin.record()
        launches()
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end))
    return statistics.median(found)


def us_of(call):
    """Microseconds of the host for a call that was made once before, and what it returns."""
    call()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    made = call()
    return 1e6 * (time.perf_counter() - begin), made


def measure(sides, steps, flashinfer):
    """Yield a row for each step that is timed, in ms of 32 layers, and us of the host before them."""
    for number, step in steps:
        tables, used = sides.tables(step), int(step.rows.sum())
        torch.cuda.synchronize()
        row = {
            "part": "step",
            "step": number,
            "rows": used,
            "sequences": len(step.rows),
            "decoding": step.decoding,
        }
        row |= {"tokens": int(step.lengths.sum()), "ms": {}, "plan_us": {}}

        sides.layers(sides.plan_on_device(step, tables), "device", sides.out)  # The planner of a new size.
        for name in ("device", *sides.host_plans):
            plan = functools.partial(sides.on_host, step, name)
            if name == "device":
                plan = functools.partial(sides.plan_on_device, step, tables)
            row["plan_us"][name], made = us_of(plan)
            row["ms"][name] = timed(functools.partial(sides.layers, made, name, sides.out, SAID_LAYERS))
        sides.layers(sides.on_host(step, "host"), "host", sides.out)  # Which FlashInfer's are compared with.
        row["planning_ms"] = timed(functools.partial(sides.plan_on_device, step, tables))
        if flashinfer is not None:
            theirs = torch.zeros_like(sides.out)
            row["plan_us"]["flashinfer"], layer = us_of(functools.partial(flashinfer.plan, step))
            row["ms"]["flashinfer"] = timed(functools.partial(flashinfer.layers, layer, theirs))
            apart = (theirs[:, :used].float() - sides.out[:, :used].float()).abs()
            row["apart"] = apart.max().item()
        yield row


def summaries(rows):
    """Yield sums over all steps, over those of decoding and over those with prompts, and medians of the host."""
    decoding = [row for row in rows if row["decoding"] == row["sequences"]]
    prompts = [row for row in rows if row["decoding"] < row["sequences"]]
    for of, chosen in (("all", rows), ("decoding", decoding), ("prompts", prompts)):
        if chosen:
            yield summary(of, chosen)


def summary(of, rows):
    names = rows[0]["ms"]
    sums = {name: sum(row["ms"][name] for row in rows) for name in names}
    best = sums.get("flashinfer")
    return {
        "part": "sum",
        "of": of,
        "steps": len(rows),
        "ms": sums,
        "of_flashinfer": {name: ms / best for name, ms in sums.items()} if best else None,
        "planning_ms": sum(row["planning_ms"] for row in rows),
        "plan_us": {name: statistics.median(row["plan_us"][name] for row in rows) for name in names},
    }


def imported_flashinfer():
    """FlashInfer, or None and why not."""
    try:
        import flashinfer
    except Exception as error:  # Its imports fail in many ways where parts of CUDA are absent.
        return None, f"{type(error).__name__}: {error}"
    return flashinfer, flashinfer.__version__


def line(row):
    if row["part"] == "compare":
        return (
            f"{row['steps']} steps: {row['same_bits']} with the bits of launches that are no graph; from plans of the host "
            f"{row['largest']:.4f} at most"
        )
    times = ", ".join(
        f"{name} {ms:.3f} ms, plan {row['plan_us'][name]:.0f} us" for name, ms in row["ms"].items()
    )
    if row["part"] == "sum":
        return f"{row['of']}, {row['steps']} steps: {times}; of flashinfer {row['of_flashinfer']}; planning {row['planning_ms']:.2f} ms"
    return f"step {row['step']:4}, {row['rows']:3} rows of {row['sequences']:2} sequences, {row['tokens']:6} tokens: {times}"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument(
        "--formats", nargs="+", choices=PACKED, default=[], help="of keys and values, to time as well"
    )
    parser.add_argument("--every", type=int, default=10, help="time every n-th step (10)")
    parser.add_argument("--steps", type=int, help="compare so many steps; by default all, on a CPU 3")
    asked = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    heads, dim = ((32, 8), 128) if device == "cuda" else ((4, 2), 32)
    trace = Trace(asked.trace)
    sides = Sides(trace, heads, dim, device, asked.formats)
    report = {
        **header("engine", torch.cuda.get_device_name() if device == "cuda" else None),
        "trace": {"vllm": trace.vllm, "steps": len(trace.steps), "page": trace.page, "pages": trace.pages},
        "heads": heads,
        "dim": dim,
        "versions": {"torch": torch.__version__},
        "rows": [],
    }

    def note(row):
        report["rows"].append(row)
        print(line(row), flush=True)
        if asked.json:
            save(asked.json, report)

    count = asked.steps or (len(trace.steps) if device == "cuda" else 3)
    chosen = trace.steps if device == "cuda" else sorted(trace.steps, key=lambda step: step.lengths.sum())
    for row in compare(sides, chosen[:count]):
        note(row)
    if device == "cpu":
        print("nothing is timed: PyTorch sees no GPU")
        return
    library, said = imported_flashinfer()
    report["versions"]["flashinfer"] = said
    peer = None if library is None else FlashInfer(library, sides, heads, dim)
    rows = []
    for row in measure(sides, list(enumerate(trace.steps))[:: asked.every], peer):
        rows.append(row)
        note(row)
    for row in summaries(rows):
        note(row)


if __name__ == "__main__":
    main()
