# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps of decoding over a PagedCache, captured once or made anew: the part `graphs` of `bench gpu`.

The attention of all layers of a model, without its other parts: new tokens are appended, the step is planned, each
layer writes its keys and values and attends. Eagerly the host plans and launches everything; a replay rewrites the
tables and launches one graph. There are two figures: the time of a step, from the first to the last of many without
waiting in between; and the host's time for a step, with the driver's part, launching, apart. The eager steps are also
those of a program without Python (step_time.cpp), which has a process of its own.
"""

import gc
import json
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from measuring.described import Described
from measuring.report import program

SIDES, EMBEDDED = ("replay", "eager"), "eager, C++"
STEPS, WARM_UP, ROUNDS = 40, 5, 3
UPDATE_US = 60  # For a step on the host, without the driver's launches, at most.


@dataclass(frozen=True)
class GraphPoint(Described):
    """Llama-3.1-8B's attention, unless said otherwise."""

    sequences: int
    tokens: int
    layers: int = 32
    q_heads: int = 32
    kv_heads: int = 8
    dim: int = 128
    device: str = "cuda"

    part = "graphs"

    @property
    def name(self):
        return f"{self.layers} layers, {self.sequences} x {self.tokens}"

    def seconds(self):
        """Estimate the seconds of a measurement."""
        return 15


def graph_points(quick):
    sizes = ((1, 8192), (16, 4096), (64, 2048), (256, 1024))
    return [GraphPoint(*size) for size in (sizes[1:2] if quick else sizes)]


class Decoding:
    """A cache of sequences with random tokens, and both ways to run a step of them."""

    def __init__(self, torch, point):
        import attn

        self.torch, self.point = torch, point
        room = point.tokens + 2 * ROUNDS * (STEPS + WARM_UP) + 16
        spec = attn.Spec(
            q_heads=point.q_heads,
            kv_heads=point.kv_heads,
            head_dim=point.dim,
            dtype="bfloat16",
            kv=[attn.Paged(page_size=16)],
            see=attn.causal(),
            return_lse=False,
            device_plan=True,
        )
        self.kernel = attn.compile(spec, device=point.device)
        shape = dict(layers=point.layers, kv_heads=point.kv_heads, head_dim=point.dim, device=point.device)
        self.cache = attn.PagedCache(pages=point.sequences * (room // 16 + 1), **shape)
        for layer in range(point.layers):
            for part in (self.cache.layer(layer).k, self.cache.layer(layer).v):
                part.normal_()
        self.nodes = [self.cache.add() for _ in range(point.sequences)]
        self.cache.append(self.nodes, point.tokens).skip()
        self.steps = self.cache.steps(
            self.kernel, sequences=point.sequences, rows=point.sequences, tokens=room
        )
        place = "cpu" if point.device == "host" else point.device

        def tensors(heads):
            size = point.layers, point.sequences, heads, point.dim
            return torch.randn(size, device=place, dtype=torch.bfloat16)

        self.q, self.k, self.v = tensors(point.q_heads), tensors(point.kv_heads), tensors(point.kv_heads)
        self.out = torch.empty_like(self.q)
        self.captured = self.steps.capture(self.launches)
        self.batch = self.plan = None

    def launches(self):
        plan = self.steps.plan()
        for layer in range(self.point.layers):
            self.steps.write(layer, self.k[layer], self.v[layer])
            self.kernel.run(self.q[layer], self.cache.layer(layer), plan, out=self.out[layer])

    def synchronize(self):
        if self.point.device != "host":
            self.torch.cuda.synchronize()

    def replay(self):
        """Return the host's seconds for the tables, and for the launch."""
        begin = time.perf_counter()
        self.steps.append(self.nodes)
        self.steps.update(self.nodes)
        updated = time.perf_counter()
        self.captured.replay()
        return updated - begin, time.perf_counter() - updated

    def eager(self):
        """Return the host's seconds for batch and plan, and for all launches."""
        begin = time.perf_counter()
        change = self.cache.append(self.nodes)
        if self.plan is None:
            self.batch = self.cache.batch(self.nodes)
            self.plan = self.kernel.plan(self.batch)
        else:
            self.batch.update()
            self.plan.update()
        updated = time.perf_counter()
        for layer in range(self.point.layers):
            change.write(layer, self.k[layer], self.v[layer])
            self.kernel.run(self.q[layer], self.cache.layer(layer), self.plan, out=self.out[layer])
        return updated - begin, time.perf_counter() - updated

    def results(self, side):
        """Return the results of a step over the present tokens, the same for both sides."""
        getattr(self, side)()
        self.synchronize()
        return self.out.float().clone()


def launch_microseconds(torch, device, count=200):
    """Return the time that the driver and PyTorch take to start a kernel that does next to nothing."""
    small = torch.zeros(1, device="cpu" if device == "host" else device)
    for _ in range(count):
        small.zero_()
    begin = time.perf_counter()
    for _ in range(count):
        small.zero_()
    return 1e6 * (time.perf_counter() - begin) / count


KERNELS = Path(__file__).parents[1] / "kernels" / "step.mlir"


def without_python(point):
    """Return the program's figures for the same steps; None if its kernels have other heads, or it is not built."""
    where = program("attn-step-time")
    if (point.q_heads, point.kv_heads, point.dim) != (32, 8, 128) or not Path(where).exists():
        return None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "step.attn"
        host = point.device == "host"
        options = ["--host-code"] if host else []
        command = [
            program("attn-opt"),
            KERNELS,
            "--emit=artifact",
            "--target=sm_90a,sm_80",
            *options,
            "-o",
            file,
        ]
        subprocess.run(command, check=True, capture_output=True)
        command = [where, file, point.sequences, point.tokens, point.layers, *(["host"] if host else [])]
        told = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if told.returncode:
        raise RuntimeError(f"{point.key}: {told.stderr.strip()}")
    return json.loads(told.stdout)


def measure_graph(point, bench):
    """Measure a point; returns its row of the file. Sides alternate, and the best round of each counts."""
    torch = bench.contest.torch
    decoding = Decoding(torch, point)
    times = {side: [] for side in SIDES}
    host = {side: [] for side in SIDES}
    for _ in range(ROUNDS):
        for side in SIDES:
            step = getattr(decoding, side)
            for _ in range(WARM_UP):
                step()
            decoding.synchronize()
            begin = time.perf_counter()
            spent = [step() for _ in range(STEPS)]
            decoding.synchronize()
            times[side].append(1e3 * (time.perf_counter() - begin) / STEPS)
            host[side].append([1e6 * statistics.median(part) for part in zip(*spent, strict=True)])
    best = {side: min(found, key=sum) for side, found in host.items()}
    step_ms = {side: min(found) for side, found in times.items()}
    launch_us, table_bytes = launch_microseconds(torch, point.device), decoding.steps.nbytes
    del decoding, step
    gc.collect()  # Frees a cycle with its launches; the program has a cache of the same size.
    if point.device != "host":
        torch.cuda.empty_cache()
    if found := without_python(point):
        step_ms[EMBEDDED] = found["step_ms"]
        best[EMBEDDED] = found["update_us"], found["launches_us"]
    return {
        "key": point.key,
        "part": point.part,
        "name": point.name,
        "layers": point.layers,
        "sequences": point.sequences,
        "tokens": point.tokens,
        "step_ms": step_ms,
        "rounds": times,
        "update_us": {side: found[0] for side, found in best.items()},
        "launches_us": {side: found[1] for side, found in best.items()},
        "launch_us": launch_us,
        "table_bytes": table_bytes,
        "peers_ms": {},
        "declined": {},
    }


def graph_line(row):
    """Format a row as text."""
    step, update, launches = row["step_ms"], row["update_us"], row["launches_us"]
    text = f"  {row['name']:<26}{step['replay']:>9.3f} ms a step, host {update['replay']:.0f} us + {launches['replay']:.0f}"
    text += f"   eager {step['eager']:.3f}, host {update['eager']:.0f} + {launches['eager']:.0f}"
    if EMBEDDED in step:
        text += f"   C++ {step[EMBEDDED]:.3f}, host {update[EMBEDDED]:.0f} + {launches[EMBEDDED]:.0f}"
    return text + f"  x{step['eager'] / step['replay']:.2f}   (a launch: {row['launch_us']:.1f} us)"


def graph_bars(row):
    found = [("a replayed step as fast as an eager one", row["step_ms"]["replay"] <= row["step_ms"]["eager"])]
    if row["layers"] == 32:
        found.append(
            (f"{UPDATE_US} us of the host beside the launch", row["update_us"]["replay"] <= UPDATE_US)
        )
    if EMBEDDED in row["step_ms"]:
        found.append(
            ("a step without Python as fast as with", row["step_ms"][EMBEDDED] <= row["step_ms"]["eager"])
        )
    return found
