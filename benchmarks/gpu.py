# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention and its cache on a GPU, against what PyTorch offers and against itself, in one run on one machine.

  prefill   bf16, batch 1, dense: attn against cuDNN, FlashAttention and FlexAttention; TFLOP/s of visited work
  batches   many sequences and heads, five head sizes: attn against cuDNN, FlashAttention and FlashInfer
  chunks    the last rows of long prompts: attn against FlashInfer
  features  sinks, windows, pages, ragged lengths, a soft cap: time per visited FLOP, against plain causal
  decode    paged, one row per sequence: bytes of keys and values per second, against copying and the same peers
  mla       decoding over latents: bytes per second against copying, TFLOP/s, against FlashInfer's MLA
  wide      heads of 512 features: TFLOP/s against heads of 256, decode against copying
  backward  gradients of dense attention: attn against cuDNN, FlashAttention and FlashAttention-4; TFLOP/s
  eager     calls of small problems one after the other: us of the host, and back to back, beside the same peers
  shared-backward  forward and backward behind a shared prompt, against prompts replicated
  tree-backward  forward and backward over a tree of depth 16 with 512 leaves, against one level
  quantized decode over codes of 8, 4 and 2 bits and e4m3: times as fast as bf16 on the same tokens, FlashInfer's e4m3
  significance  what tokens are worth, of steps of decoding: times as long as without, in 16, 8, 4 and 2 bits
  trees     reasoning, few-shot and speculation: a node read once for all rows below it, against every row its path
  shared    prefill behind a shared prompt, against prompts replicated
  heads     a share of heads that see everything, against all heads
  cache     append, move and gather of rows in all layers: bytes per second, against copying
  append    new tokens prepared and written, a launch a layer: against copying, and against PyTorch's operations
  graphs    steps of a paged cache in all layers, captured once: ms a step and us of the host, against eager ones
  pages     who holds which page, for all lists of a batch: us of a captured step, against threads of a CPU
  diffkv    a fixed memory for keys and values in two precisions: batch and tokens per second, against one precision
  layouts   tensors as engines lay them: ms of decode and prefill, against tensors of their own
  row       the price of a numerics contract: ms of decode, prefill, chunks and training, against the default
  planning  plans that the GPU makes: us of a plan, and attention under it, against the host's
  duo       Llamas some of whose heads stream: time and memory of long prompts and of decoding, against all heads
  context   millions of tokens of four bits, half of the heads streaming: ms a token, and memory
  outputs   full and streaming attention of one launch, as finding heads asks for it: against full attention alone
  python    described in Python: time to the first result and of a run, against FlexAttention
  transformers  Llama-3.1-8B's shape in generate: ms a token over each kind of cache, against SDPA
  serving       requests that come and go: attn.transformers.Engine against Transformers' continuous batching

Times are medians over repeats with the L2 cache flushed before each. In prefill, batches, chunks, features, decode and quantized,
attn runs in this process and on the tensors that its peers read, all sides take turns, and runs back to back are timed as
well: sustained, where the power limit rules. Data sheets are not consulted: what this GPU copies and multiplies is
measured first. A run may be cut into parts, by name or by --budget, with one --json
FILE: it keeps the rows of earlier parts, and --resume measures what is still missing.
"""

import argparse
import datetime
import importlib.metadata
import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from catalogue import PARTS
from contest import Contest
from measure import Bench, Clock, measure_all, missing, verdict
from measuring.report import BUILD, Problem, commit, import_attn, program
from measuring.results import Results, refuse
from measuring.timing import Timer, measured_peaks


def torch_with_gpu():
    try:
        import torch
    except ImportError:
        refuse(
            "this Python has no PyTorch", "run benchmarks/gpu.py with a Python that has; nothing was measured"
        )
    if not torch.cuda.is_available():
        refuse(
            "PyTorch finds no CUDA GPU on this machine; nothing was measured",
            "./dev bench host counts what the same kernels move, on any machine",
        )
    return torch


def driver_version():
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return (
            subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.split("\n")[0].strip()
        )
    except OSError:
        return "unknown"


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_package():
    try:
        import_attn()
    except ImportError as error:
        refuse(
            f"this Python ({platform.python_version()}) cannot import attn from {BUILD / 'python'}: {error}",
            "build the target `python` for it: configure with -DPython_EXECUTABLE=... (nothing was measured)",
        )


def attn_version():
    """Return the producer that manifests name."""
    command = [program("attn-opt"), "-", "--emit=manifest", "-o", "-"]
    result = subprocess.run(command, capture_output=True, text=True, input=Problem().text())
    return json.loads(result.stdout)["producer"]


def arguments(argv):
    parser = argparse.ArgumentParser(
        prog="bench gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (all)")
    parser.add_argument("--quick", action="store_true", help="a few points of each part")
    parser.add_argument("--repeat", type=int, default=20, metavar="N", help="timed runs at most (20)")
    parser.add_argument(
        "--budget", type=float, metavar="SECONDS", help="skip, and name, what would take longer"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to keep the numbers")
    parser.add_argument("--resume", action="store_true", help="skip what FILE has from this commit and GPU")
    args = parser.parse_args(argv)
    for part in args.parts:
        if part not in PARTS:
            parser.error(f"there is no part '{part}'; there are {', '.join(PARTS)}")
    if args.repeat < 1:
        parser.error(f"--repeat expects at least 1, got {args.repeat}")
    if args.budget is not None and not args.budget > 0:
        parser.error(f"--budget expects a positive number of seconds, got {args.budget:g}")
    if args.resume and not args.json:
        parser.error("--resume needs the --json FILE that it resumes")
    if args.json and not args.json.parent.is_dir():
        parser.error(f"--json: there is no folder {args.json.parent}")
    return args


def main(argv=None):
    args = arguments(argv)
    clock = Clock(args.budget)
    torch = torch_with_gpu()
    check_package()
    timer = Timer(torch, args.repeat)
    bandwidth, matrix = measured_peaks(torch, timer)
    session = {
        "id": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "device": torch.cuda.get_device_name(0),
        "driver": driver_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "flashinfer": version("flashinfer-python"),
        "flash_attn_4": version("flash-attn-4"),
        "attn": attn_version(),
        "l2_bytes": timer.l2_bytes,
        "copy_bytes_per_second": bandwidth,
        "matrix_flops_per_second": matrix,
    }
    results = Results(args.json, session)
    print(
        f"{session['device']}, driver {session['driver']}, PyTorch {session['torch']}: "
        f"copies {bandwidth / 1e12:.2f} TB/s, multiplies bf16 at {matrix / 1e12:.0f} TFLOP/s"
    )
    points = [point for part in args.parts or PARTS for point in PARTS[part](args.quick)]
    if args.resume:
        points = missing(points, results)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(results, Contest(torch, timer), args.repeat, Path(folder))
        skipped, failed = measure_all(points, bench, clock, results)
    verdict(results.rows.values(), {**results.sessions, session["id"]: session})
    for key in skipped:
        print(f"skipped for the budget: {key}")
    if args.json:
        print(f"numbers: {args.json}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
