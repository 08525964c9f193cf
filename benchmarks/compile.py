# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures problem text -> PTX, one cubin, an artifact: time and peak memory of every example on every target.

Each step runs in a process of its own, as a user would run it; the table shows the fastest of N runs, since slower runs
measure the machine. Peak memory is the process's largest resident set. An artifact, with PTX and a cubin for each
kernel, is what Python compiles to load it on a GPU: its time is that of the first in a process, from text to bytes.
attn-opt's cubin is one file with all kernels.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measuring.report import BUILD, ROOT, TARGETS, program, ptxas, write_report

BAR_SECONDS = 0.15
BAR_CUBIN_SECONDS = 0.30
BAR_MEBIBYTES = 150

ARTIFACT = """
import sys, time
from attn import _attn
text = open(sys.argv[1]).read()
begin = time.perf_counter()
made = _attn.compile(text, target=sys.argv[2], forms=["ptx", "cubin"])
print(time.perf_counter() - begin, len(made.artifact))
"""


def measure(command, repeat):
    """Return the fastest wall time in seconds and the peak resident set in MiB over `repeat` runs."""
    fastest, peak = float("inf"), 0.0
    for _ in range(repeat):
        start = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        errors = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, command))}\n{errors.decode(errors='replace')}")
        fastest, peak = min(fastest, seconds), max(peak, usage.ru_maxrss / 1024)
    return fastest, peak


def measure_artifact(example, target, repeat):
    """Return the fastest seconds in its own process over `repeat` runs."""
    command = [sys.executable, "-c", ARTIFACT, str(example), target]
    environment = dict(os.environ, PYTHONPATH=str(BUILD / "python"))
    seconds = []
    for _ in range(repeat):
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        seconds.append(float(done.stdout.split()[0]))
    return min(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5, help="runs of each step (5)")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    args = parser.parse_args()

    rows = []
    print(
        f"{'example':<20}{'target':<10}{'to PTX':>9}{'peak':>9}{'to cubin':>9}{'artifact':>10}{'regs':>6}{'spills':>8}{'stack':>7}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for example in sorted((ROOT / "examples").glob("*/*.mlir")):
            for target in TARGETS:
                ptx, cubin = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
                command = [program("attn-opt"), example, f"--target={target}"]
                seconds, peak = measure([*command, "--emit=ptx", "-o", ptx], args.repeat)
                cubin_seconds, _ = measure([*command, "--emit=cubin", "-o", cubin], args.repeat)
                artifact_seconds = measure_artifact(example, target, args.repeat)
                kernels = ptxas(ptx, target)
                row = {
                    "example": example.stem,
                    "target": target,
                    "ptx_seconds": seconds,
                    "peak_mib": peak,
                    "cubin_seconds": cubin_seconds,
                    "artifact_seconds": artifact_seconds,
                    "registers": max(k.registers for k in kernels),
                    "spill_bytes": sum(k.spill_stores + k.spill_loads for k in kernels),
                    "stack_bytes": sum(k.stack for k in kernels),
                }
                rows.append(row)
                print(
                    f"{row['example']:<20}{target:<10}{seconds:>7.3f} s{peak:>5.0f} MiB{cubin_seconds:>7.3f} s"
                    f"{row['artifact_seconds']:>8.3f} s"
                    f"{row['registers']:>6}{row['spill_bytes']:>8}{row['stack_bytes']:>7}",
                    flush=True,
                )
    slow = [r for r in rows if r["ptx_seconds"] > BAR_SECONDS or r["peak_mib"] > BAR_MEBIBYTES]
    print(
        f"\nbars: {BAR_SECONDS} s and {BAR_MEBIBYTES} MiB to PTX: {len(rows) - len(slow)} of {len(rows)} within"
    )
    for what, key in (("one cubin", "cubin_seconds"), ("an artifact with cubins", "artifact_seconds")):
        within = sum(r[key] <= BAR_CUBIN_SECONDS for r in rows)
        print(
            f"{BAR_CUBIN_SECONDS} s to {what}, of all kernels of a problem: {within} of {len(rows)}, slowest "
            f"{max(r[key] for r in rows):.3f} s"
        )
    write_report(args.json, "compile", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
