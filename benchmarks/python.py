# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The costs of Python: compiling (cold, from disk, from memory), a run without its kernel, tables of a step, an import.

A run is measured on a batch without rows, so that a call does everything but the kernel: addresses, checks, binding,
and an empty launch. An empty operator of torch.library on the same tensors is measured beside it, in the same run. Each
cold or disk compilation is a process of its own with a cache directory of its own.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from pathlib import Path

from measuring.report import BUILD, write_report

BARS = {
    "compile cold": 0.35,
    "compile from disk": 5e-3,
    "compile from memory": 20e-6,
    "run": 15e-6,
    "import attn": 0.2,
    "step over a cache": 60e-6,
}
PACKAGE = BUILD / "python"

SPECS = """
import attn
decode = attn.Spec(name="decode", q_heads=32, kv_heads=8, head_dim=128, dtype="bfloat16", kv=[attn.Paged()],
                   see=attn.causal())
prefill = attn.Spec(name="prefill", q_heads=32, kv_heads=8, head_dim=128, dtype="bfloat16", kv=[attn.Packed()],
                    see=attn.causal())
softcap = attn.Spec(name="softcap", q_heads=16, kv_heads=8, head_dim=128, dtype="bfloat16", kv=[attn.Dense()],
                    see=attn.window(1024), score=lambda s, h, qi, ki: attn.math.tanh(s / 30.0) * 30.0)
"""

COMPILE = (
    SPECS
    + """
import json, sys, time
from attn.compiler import artifacts
from attn.memory import devices
from attn.run import kernels
spec = globals()[sys.argv[1]]
devices.get_device("host")
begin = time.perf_counter()
attn.compile(spec, device="host")
seconds = time.perf_counter() - begin
again = []
for _ in range(20):
    kernels.clear_kernels()
    begin = time.perf_counter()
    attn.compile(spec, device="host")
    again.append(time.perf_counter() - begin)
print(json.dumps([seconds, min(again), artifacts.counts.compiled, artifacts.counts.from_disk]))
"""
)


def child(code, *arguments, **environment):
    environment = dict(os.environ, PYTHONPATH=str(PACKAGE), **environment)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # An installed package is compiled to bytecode.
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return done.stdout


def compile_rows(repeat):
    """Return times of compiling. Cold: the first compilation of a process with an empty directory. Disk: the first of a
    process that finds the kernel there, and again with nothing in memory."""
    for name in ("decode", "prefill", "softcap"):
        cold, disk, again = [], [], []
        for _ in range(repeat):
            with tempfile.TemporaryDirectory() as folder:
                seconds, _, compiled, _ = json.loads(child(COMPILE, name, ATTN_CACHE_DIR=folder))
                assert compiled == 1
                cold.append(seconds)
                seconds, warm, compiled, _ = json.loads(child(COMPILE, name, ATTN_CACHE_DIR=folder))
                assert compiled == 0
                disk.append(seconds)
                again.append(warm)
        yield row("compile cold", name, cold)
        yield row("compile from disk", f"{name}, first of a process", disk)
        yield row("compile from disk", f"{name}, later", again)


def row(what, case, samples, bar=None):
    return {
        "what": what,
        "case": case,
        "seconds": min(samples),
        "median": statistics.median(samples),
        "bar": bar if bar is not None else BARS.get(what),
    }


def per_call(function, number=5000, repeat=9):
    return [seconds / number for seconds in timeit.repeat(function, number=number, repeat=repeat)]


def import_rows(repeat):
    def wall(code):
        begin = time.perf_counter()
        child(code)
        return time.perf_counter() - begin

    bare = min(wall("pass") for _ in range(repeat))
    yield row("import attn", "", [wall("import attn") - bare for _ in range(repeat)])
    yield row(
        "import attn.compile", "with NumPy", [wall("from attn import compile") - bare for _ in range(repeat)]
    )
    yield row("import NumPy", "", [wall("import numpy") - bare for _ in range(repeat)])


def memory_and_run_rows():
    """Return times in this process."""
    sys.path.insert(0, str(PACKAGE))
    import attn
    import numpy
    import torch

    specs = {}
    exec(SPECS, specs)
    for name in ("decode", "prefill", "softcap"):
        attn.compile(specs[name], device="host")
        yield row(
            "compile from memory", name, per_call(lambda name=name: attn.compile(specs[name], device="host"))
        )

    kernel = attn.compile(specs["decode"], device="host")
    k, v = (torch.zeros(64, 16, 8, 128, dtype=torch.bfloat16) for _ in range(2))
    q = torch.zeros(0, 32, 128, dtype=torch.bfloat16)
    tables = {"kv.lengths": numpy.zeros(0, numpy.int32), "kv.block_table": numpy.zeros((0, 1), numpy.int32)}
    plan = kernel.plan({"q": q, "q_start": [0], "kv.k_pages": k, "kv.v_pages": v} | tables)
    out, lse = torch.empty_like(q), torch.empty(0, 32)

    @torch.library.custom_op("attn_bench::empty", mutates_args=("out", "lse"))
    def empty(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, lse: torch.Tensor
    ) -> None:
        pass

    library = torch.library.Library("attn_bench", "FRAGMENT")
    library.define("bare(Tensor q, Tensor k, Tensor v, Tensor(a!) out, Tensor(b!) lse) -> ()")
    library.impl("bare", lambda q, k, v, out, lse: None, "CPU")

    custom = per_call(lambda: empty(q, k, v, out, lse))
    bare = per_call(lambda: torch.ops.attn_bench.bare(q, k, v, out, lse))
    ours = per_call(lambda: kernel.run(q, (k, v), plan, out=out, lse=lse))
    yield row("empty operator", "torch.library.custom_op", custom)
    yield row("empty operator", "torch.library.Library", bare)
    found = row("run", "five tensors of PyTorch", ours)
    yield found | {"of an empty custom_op": min(ours) / min(custom)}
    allocating = per_call(lambda: kernel.run(q, (k, v), plan))
    yield row("run", "out and lse left to attn", allocating)
    arrays = [t.view(torch.uint16).numpy() for t in (q, k, v, out)]
    of_numpy = lse.numpy()
    yield row(
        "run",
        "five arrays of NumPy",
        per_call(lambda: kernel.run(arrays[0], (arrays[1], arrays[2]), plan, out=arrays[3], lse=of_numpy)),
    )


def step_rows():
    """Return the host's times for a step of decoding whose launches were captured: appending a token to each sequence,
    and the tables. It is the CPU time of one step, over 250."""
    import attn

    for sequences, tokens in ((1, 8192), (16, 4096), (64, 2048), (256, 1024)):
        store = attn.Paged(page_size=16)
        spec = attn.Spec(
            q_heads=1,
            kv_heads=1,
            head_dim=16,
            dtype="bfloat16",
            kv=[store],
            see=attn.causal(),
            device_plan=True,
        )
        kernel = attn.compile(spec, device="host")
        room = tokens + 256
        cache = attn.PagedCache(
            layers=8, pages=sequences * room // 16, kv_heads=1, head_dim=16, device="host"
        )
        nodes = [cache.add() for _ in range(sequences)]
        cache.append(nodes, tokens).skip()
        steps = cache.steps(kernel, sequences=sequences, rows=sequences, tokens=room)
        samples = []
        for _ in range(250):
            begin = time.thread_time()
            steps.append(nodes)
            steps.update(nodes)
            samples.append(time.thread_time() - begin)
            steps.ran()
        yield row("step over a cache", f"{sequences} x {tokens}, in the median", [statistics.median(samples)])


ON_DRIVER = (
    SPECS
    + """
import ctypes, json, numpy, random, sys, time, timeit, torch
from attn import _attn
from attn.memory import devices, views
devices._devices["cuda:0"] = _attn.Device.cuda(0, library=sys.argv[1])
view_torch = views._view_torch
def view_on_gpu(tensor):
    address, (dtype, shape, strides, _, written, gradient) = view_torch(tensor)
    return address, (dtype, shape, strides, gpu, written, gradient)
gpu = torch.device("cuda:0")
views._viewers[torch.Tensor] = view_on_gpu
kernel = attn.compile(decode, device="cuda:0")
"""
)
RUN_ON_DRIVER = (
    ON_DRIVER
    + """
q, k, v = (torch.zeros(8, 32, 128, dtype=torch.bfloat16), *torch.zeros(2, 64, 16, 8, 128, dtype=torch.bfloat16))
tables = {"kv.lengths": [100] * 8, "kv.block_table": [[*range(7)]] * 8}
plan = kernel.plan({"q": q, "kv.k_pages": k, "kv.v_pages": v} | tables)
out, lse = torch.empty_like(q), torch.empty(8, 32)
run = lambda: kernel.run(q, (k, v), plan, out=out, lse=lse)
print(json.dumps([seconds / 1000 for seconds in timeit.repeat(run, number=1000, repeat=20)]))
"""
)
PLAN_ON_DRIVER = (
    ON_DRIVER
    + """
draw = random.Random(1)
batches = {"16 x 8192": [8192] * 16, "256 x 1024": [1024] * 256,
           "256 x 1 to 600": [draw.randint(1, 600) for _ in range(256)], "1024 x 300": [300] * 1024}
found = {}
for name, lengths in batches.items():
    pages = [-(-length // 16) for length in lengths]
    table = numpy.zeros((len(lengths), max(pages)), numpy.int32)
    for row, first, count in zip(table, numpy.cumsum([0, *pages]), pages):
        row[:count] = range(first, first + count)
    store = torch.empty(sum(pages), 16, 8, 128, dtype=torch.bfloat16)
    batch = {"q": torch.empty(len(lengths), 32, 128, dtype=torch.bfloat16), "kv.k_pages": store, "kv.v_pages": store,
             "kv.lengths": torch.tensor(lengths, dtype=torch.int32), "kv.block_table": torch.from_numpy(table)}
    found[name] = []
    for _ in range(200):
        begin = time.thread_time()
        plan = kernel.plan(batch)
        found[name].append(time.thread_time() - begin)
        del plan
print(json.dumps(found))
"""
)


METADATA_ON_DRIVER = (
    ON_DRIVER
    + """
from attn.serving import DevicePlans, Layer, Plans
sequences, tokens, pages, layers = 256, 1000, 80, 32
table = torch.zeros(sequences, 256, dtype=torch.int32)
table[:, :pages] = torch.arange(sequences * pages, dtype=torch.int32).view(sequences, pages)
starts = torch.arange(sequences + 1, dtype=torch.int32)
found = {}
for name, format, on_device in (("host", None, False), ("host, int8_int4", "int8_int4", False), ("device", None, True)):
    layer = Layer(q_heads=8, kv_heads=8, head_dim=32, dtype="float16", page_size=16, format=format, device_plan=on_device)
    kernel = attn.compile(layer.spec(), device="cuda:0")
    q = torch.zeros(sequences, 8, 32, dtype=torch.float16)
    kind = torch.uint8 if format else torch.float16
    elements = layer.token_bytes if format else 2 * layer.head_dim
    store = layer.pages(torch.zeros(sequences * pages, 8, 16, elements, dtype=kind))
    plans = DevicePlans(sequences, None, "cpu", [sequences]) if on_device else Plans(shared_pages=4)
    found[name], out = [], torch.empty_like(q)
    for number in range(200):
        lengths = torch.full((sequences,), tokens + number, dtype=torch.int32)
        begin = time.thread_time()
        if on_device:
            step = plans.step(starts, lengths, table, rows=sequences, longest=1)
        else:
            step = plans.step(starts, lengths, table)
            for _ in range(layers):
                step.plan(kernel, q, store)
        found[name].append(time.thread_time() - begin)
        if on_device and number == 0:
            step.run(kernel, q, store, out=out)
print(json.dumps(found))
"""
)


def driver_rows():
    """Return times with the tests' driver, whose kernels and memory take no time: a whole run for a GPU, including
    launches; the CPU time of planning a step of decoding on the host, for a new plan; and that of a step's metadata in a
    serving engine, tables and plans of all layers."""
    library = BUILD / "test" / "runtime" / "fake" / "libfakecuda.so"
    if not library.exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(FAKE_CUDA_MEMORY=str(1 << 30), ATTN_CACHE_DIR=folder)
        found = child(RUN_ON_DRIVER, str(library), **environment)
        yield row("run", "PyTorch, two kernels, idle driver", json.loads(found))
        for case, samples in json.loads(child(PLAN_ON_DRIVER, str(library), **environment)).items():
            yield row("plan", f"{case}, idle driver", samples)
        for case, samples in json.loads(child(METADATA_ON_DRIVER, str(library), **environment)).items():
            yield row("step of an engine", f"256 x 1K, 32 layers, {case}", [statistics.median(samples)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5, help="processes for each compilation and import (5)")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    args = parser.parse_args()
    rows, late = [], []
    os.environ.setdefault("ATTN_CACHE_DIR", tempfile.mkdtemp())
    for found in (
        f
        for part in (
            import_rows(args.repeat),
            compile_rows(args.repeat),
            memory_and_run_rows(),
            step_rows(),
            driver_rows(),
        )
        for f in part
    ):
        rows.append(found)
        unit, scale = ("ms", 1e3) if found["seconds"] >= 1e-3 else ("us", 1e6)
        bar = f"bar {found['bar'] * scale:g}" if found["bar"] is not None else ""
        ratio = found.get("of an empty custom_op")
        note = f"  {ratio:.2f} of an empty custom_op" if ratio else ""
        print(
            f"{found['what']:<22}{found['case']:<38}{found['seconds'] * scale:>9.2f} {unit}  {bar}{note}",
            flush=True,
        )
        if found["bar"] is not None and found["seconds"] > found["bar"]:
            late.append(f"{found['what']}, {found['case']}")
    print(f"\nbars missed: {'; '.join(late) if late else 'none'}")
    write_report(args.json, "python", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
