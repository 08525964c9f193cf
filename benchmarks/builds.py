# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares several builds of attn at the same points: whether a change of the compiler cost speed, or changed a result.

    python benchmarks/builds.py [--json FILE] BEFORE AFTER [BUILD ...]

Each build is a build folder (its `python/attn` is imported) and has a process of its own with equal tensors. The
processes alternate on one GPU, round by round, so that changes of its clocks affect all; a time is the median of all
rounds' runs alone, the L2 cache flushed before each. Results are compared bit by bit.
"""

import argparse
import dataclasses
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

PARTS = ("prefill", "batches", "chunks", "features", "decode", "quantized", "significance", "backward")
RUNS_SECONDS = 0.1  # The time of one side in one round.


# --- The process of a build
# ----------------------------------------------------------------------------------


class Served:
    """The points of a build, made and timed one after the other as requests ask."""

    def __init__(self, torch, device):
        from catalogue import PARTS as MADE
        from measuring.timing import Timer

        self.torch, self.device, self.run = torch, device, None
        self.points = {point.key: point for points in MADE.values() for point in points(False)}
        self.once = Timer(torch, 5).once if device == "cuda" else self.by_clock

    def by_clock(self, function, host):
        """Time work of the host, as Timer.once does."""
        start = time.perf_counter()
        function()
        host.append(time.perf_counter() - start)
        return 1e3 * host[-1]

    def make(self, key):
        self.torch.manual_seed(0)
        point = self.points[key]
        make = {"backward": self.gradients, "significance": self.significance}.get(point.part, self.forward)
        self.run, kernel, results = make(point)
        return {"kernel": kernel, "result": sum(map(self.digest, results))}

    def forward(self, point):
        """Return a function that runs the point, its kernel's name, and its results."""
        from contest import attn_side
        from measuring.codes import CodedTensors
        from measuring.tensors import Tensors
        from parts.quantized import QuantizedPoint

        kind = CodedTensors if isinstance(point, QuantizedPoint) else Tensors
        side, about = attn_side(self.torch, kind(self.torch, point, self.device))
        side.run()
        return side.run, about["kernel"], [side.result()]

    def gradients(self, point):
        """Return the same for gradients, in a fixed order: other bits differ from run to run."""
        from measuring.report import import_attn
        from parts.backward import backward_side, tensors_of

        attn = import_attn()
        point = dataclasses.replace(point, device="host" if self.device == "cpu" else self.device)
        sides = []
        with self.torch.enable_grad():
            given, d_out = tensors_of(self.torch, point, point.batch, point.tokens, point.value_dim)
            for ordered in (True, False):
                attend = partial(attn.attend, causal=point.causal, ordered=ordered)
                sides.append(backward_side(self.torch, attend, given, d_out))
        return sides[1], "gradients", sides[0]()

    def significance(self, point):
        from measuring.codes import CodedTensors
        from measuring.tensors import Tensors
        from parts.significance import PLAIN, significance_runs

        kind = Tensors if point.format == PLAIN else CodedTensors
        tensors = kind(self.torch, point.step, self.device)
        runs, found = significance_runs(self.torch, point, tensors)
        return runs["with"], "significance", [found]

    def digest(self, result):
        """Return a number that no two results are likely to share."""
        bits = result.detach().reshape(-1).view(self.torch.int16)
        weights = self.torch.arange(1 << 16, device=bits.device) * 2654435761 % 1000003
        return sum(
            int((piece.long() * weights[: len(piece)]).sum()) * (i + 1)
            for i, piece in enumerate(bits.split(1 << 16))
        )

    def time(self, runs):
        """Return milliseconds of each of some runs, or of as many as fit into a round."""
        host = []
        first = self.once(self.run, host)
        count = max(1, min(runs, int(1e3 * RUNS_SECONDS / max(first, 1e-3))))
        return [first, *(self.once(self.run, host) for _ in range(count - 1))]

    def drop(self):
        self.run = None
        if self.device == "cuda":
            self.torch.cuda.empty_cache()


def serve(device):
    import torch

    served = Served(torch, device)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            with torch.no_grad():
                answer = {"answer": getattr(served, name)(*arguments)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print("\n" + json.dumps(answer), flush=True)


# --- The comparing process
# -----------------------------------------------------------------------------------


class Build:
    """A build folder and its process."""

    def __init__(self, folder, device):
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", device],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=dict(os.environ, ATTN_BUILD=str(folder)),
        )

    def ask(self, name, *arguments):
        self.process.stdin.write(json.dumps([name, *arguments]) + "\n")
        self.process.stdin.flush()

    def answer(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                said = json.loads(line)
                if "error" in said:
                    raise RuntimeError(f"{self.folder}: {said['error']}")
                return said["answer"]
        raise RuntimeError(f"{self.folder}: its process ended with {self.process.wait()}")

    def call(self, name, *arguments):
        self.ask(name, *arguments)
        return self.answer()


def together(builds, name, *arguments):
    """Send one request to all builds at once: nothing is timed."""
    for build in builds.values():
        build.ask(name, *arguments)
    return {label: build.answer() for label, build in builds.items()}


def measure(key, builds, rounds, runs):
    """Measure a point; returns its row: milliseconds by build, and the speed-up of the last build over each earlier
    one."""
    made = together(builds, "make", key)
    times = {label: [] for label in builds}
    for number in range(rounds):
        order = list(builds) if number % 2 == 0 else list(reversed(builds))
        for label in order:
            times[label] += builds[label].call("time", runs)
    together(builds, "drop")
    milliseconds = {label: statistics.median(each) for label, each in times.items()}
    *before, last = builds
    return {
        "point": key,
        "kernel": made[last]["kernel"],
        "ms": milliseconds,
        "speed": {f"over {label}": milliseconds[label] / milliseconds[last] for label in before},
        "same_results": len({answer["result"] for answer in made.values()}) == 1,
    }


def summary(rows):
    """Yield lines for people: the geometric mean over each earlier build, and the point that lost most."""
    for label in rows[0]["speed"]:
        worst = min(rows, key=lambda row: row["speed"][label])
        mean = math.exp(statistics.fmean(math.log(row["speed"][label]) for row in rows))
        yield f"{label}: {mean:.3f} in the mean of {len(rows)} points, least {worst['speed'][label]:.3f}: {worst['point']}"
    others = [row["point"] for row in rows if not row["same_results"]]
    yield (
        "all results agree to the bit" if not others else f"other bits at {len(others)}: {', '.join(others)}"
    )


def arguments(argv):
    parser = argparse.ArgumentParser(
        prog="builds.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("builds", nargs="+", type=Path, metavar="BUILD", help="build folders, oldest first")
    parser.add_argument("--part", action="append", metavar="PART", help=f"of bench gpu ({', '.join(PARTS)})")
    parser.add_argument("--point", action="append", metavar="KEY", help="a point alone, as rows name it")
    parser.add_argument("--names", metavar="NAMES", help="of the builds, with commas between (folders)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="in which each has its turn (5)")
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="of a side in a round, at most (5)")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="start no point after so many")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="cuda")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to keep the numbers")
    args = parser.parse_args(argv)
    args.names = args.names.split(",") if args.names else [str(folder) for folder in args.builds]
    if len(args.builds) < 2 or len(set(args.names)) != len(args.builds):
        parser.error(
            f"expected at least two builds and a name for each, got {len(args.builds)} and {args.names}"
        )
    for folder in args.builds:
        if not (folder / "python" / "attn").is_dir():
            parser.error(f"{folder} is no build folder: there is no {folder / 'python' / 'attn'}")
    return args


def main(argv=None):
    args = arguments(argv)
    import torch
    from catalogue import PARTS as MADE
    from measuring.report import header, save

    points = [point.key for part in args.part or PARTS for point in MADE[part](False)]
    points = args.point or points
    cuda = args.device == "cuda"
    device = torch.cuda.get_device_name(0) if cuda else platform.processor() or platform.machine()
    builds = {
        name: Build(folder.resolve(), args.device)
        for name, folder in zip(args.names, args.builds, strict=True)
    }
    rows, start = [], time.monotonic()
    for key in points:
        if args.budget is not None and time.monotonic() - start > args.budget:
            print(f"skipped for the budget: {key}")
            continue
        row = measure(key, builds, args.rounds, args.runs)
        rows.append(row)
        speeds = " ".join(f"{name} {speed:.3f}" for name, speed in row["speed"].items())
        milliseconds = " ".join(f"{ms:.4f}" for ms in row["ms"].values())
        print(
            f"  {key:<50} {milliseconds} ms  {speeds}{'' if row['same_results'] else '  other bits'}",
            flush=True,
        )
        if args.json:
            how = {"torch": torch.__version__, "rounds": args.rounds, "runs": args.runs}
            save(args.json, {**header("builds", device), "builds": args.names, **how, "rows": rows})
    for line in summary(rows):
        print(line)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
    else:
        sys.exit(main())
