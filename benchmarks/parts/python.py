# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention described in Python, against FlexAttention: the part `python` of `bench gpu`.

Both sides get the same tensors, mask and score function in a process of their own, with two figures: the time from
`import` to the first result, which is the cost of trying an idea, and a run after that. attn starts twice, with an
empty cache of compiled kernels and with the one that its first start has left. FlexAttention always starts with empty
caches.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from measuring.described import Described
from measuring.report import BUILD

SCRIPT = Path(__file__).parents[1] / "first_result.py"
TOKENS = 8192
NAMES = ("causal", "window and sink", "softcap", "alibi")
DIFFERENCE = 0.03  # The most between two results in bf16.


@dataclass(frozen=True)
class PythonPoint(Described):
    name: str
    tokens: int = TOKENS
    device: str = "cuda"

    part = "python"

    def seconds(self):
        """Estimate the seconds of a measurement."""
        return 60


def python_points(quick):
    points = [PythonPoint(name) for name in NAMES]
    return points[1:3] if quick else points


def start(side, point, caches, result):
    """Run one side in a process of its own, all caches of compilers below a folder."""
    env = dict(
        os.environ, ATTN_CACHE_DIR=str(caches / "attn"), TORCHINDUCTOR_CACHE_DIR=str(caches / "inductor")
    )
    env |= {"TRITON_CACHE_DIR": str(caches / "triton")}
    env["PYTHONPATH"] = os.pathsep.join([str(BUILD / "python"), env.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    command = [sys.executable, str(SCRIPT), side, point.name, f"--tokens={point.tokens}"]
    command += [f"--device={point.device}", f"--save={result}"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise RuntimeError(f"{point.key}: {side}: {lines[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def measure_python(point, bench):
    """Measure a point; returns its row of the file. `bench.start` is `start`."""
    import torch

    results = {side: bench.folder / f"{side}.pt" for side in ("attn", "flex")}
    caches = bench.folder / point.name.replace(" ", "-")
    cold = bench.start("attn", point, caches, results["attn"])
    warm = bench.start("attn", point, caches, results["attn"])
    row = {
        "key": point.key,
        "part": point.part,
        "name": point.name,
        "tokens": point.tokens,
        "first_seconds": {"attn": cold["first_seconds"], "attn, cached": warm["first_seconds"]},
        "run_ms": {"attn": warm.get("run_ms")},
        "declined": {},
    }
    try:
        flex = bench.start("flex", point, caches, results["flex"])
    except RuntimeError as error:
        row["declined"]["flex"] = str(error)
        return row
    row["first_seconds"]["flex"] = flex["first_seconds"]
    row["run_ms"]["flex"] = flex.get("run_ms")
    row["difference"] = (torch.load(results["attn"]) - torch.load(results["flex"])).abs().max().item()
    if not row["difference"] <= DIFFERENCE:
        raise RuntimeError(f"{point.key}: the results of the two sides differ by {row['difference']:.3g}")
    return row


def python_line(row):
    """Format a row as text."""
    first, run = row["first_seconds"], row["run_ms"]
    text = f"  {row['name']:<20}first result {first['attn']:>7.2f} s, cached {first['attn, cached']:.2f} s"
    text += f"{run['attn']:>9.3f} ms" if run["attn"] else ""
    if "flex" in first:
        text += f"   flex {first['flex']:.2f} s"
        text += f" {run['flex']:.3f} ms  x{run['flex'] / run['attn']:.2f}" if run["flex"] else ""
    return text


def python_bars(row):
    """Return the bars: faster than FlexAttention, and sooner."""
    if "flex" not in row["first_seconds"]:
        return []
    sooner = row["first_seconds"]["attn"] < row["first_seconds"]["flex"]
    found = [("a first result before FlexAttention's", sooner)]
    if row["run_ms"]["flex"]:
        found.append(("as fast as FlexAttention", row["run_ms"]["attn"] <= row["run_ms"]["flex"]))
    return found
