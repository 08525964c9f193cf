# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The points that `bench gpu` compares attn's own kernels at, in trees, shared and heads.

trees   DeFT's workloads (arXiv 2404.00242, Tables 5, 6 and 16) with Llama-3-8B's heads, one layer: reading a node
        once for all rows below it (flatten) against every row its path (by-query). Steps are sampled at equal
        distances, each standing for as many as lie around it
shared  DualKV's forward pass: a prompt once, seen by N responses, against N sequences of prompt and response
heads   DuoAttention (arXiv 2410.10819, Figures 9 to 11): some heads see everything, the others sink and recent
        tokens, against all heads seeing everything; decoding, and a chunk of prefill
"""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from measuring.comparisons import Comparison, Run
from measuring.report import Problem, program

# The bars: of trees by name, of shared at its largest point, of decoding at the longest context of a model.
TREE_BARS = {"256 speculated tokens": 3.59, "few-shot, 50 branches": 1.70}
SHARED_BAR = 5.3
HEADS_BARS = {"MHA": 2.18, "GQA": 1.50}

LLAMA3 = ("--q-heads=32", "--kv-heads=8", "--dim=128", "--layers=32")


@dataclass(frozen=True)
class TreePoint(Comparison):
    workload: tuple = ()  # Options of attn-workload.
    data: str = ""  # The published file, used if ATTN_DATA_DIR has it.
    samples: int = 3
    drafts: bool = False  # New nodes in a store of their own.

    def problem(self):
        return Problem(draft_store="paged<1>" if self.drafts else "")

    def problems(self):
        return {self.problem()}

    def write_workload(self, folder):
        kind, *options = self.workload
        file = Path(os.environ.get("ATTN_DATA_DIR", "/nonexistent")) / self.data
        if self.data and file.exists():
            options = [option for option in options if option.startswith("--context")] + [str(file)]
        out = folder / "workload.json"
        command = [program("attn-workload"), kind, *options, *LLAMA3, f"--scale={self.scale}", "-o", str(out)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        return out

    def contenders(self, folder):
        file = self.write_workload(folder)
        steps = json.loads(file.read_text())["steps"]
        repeats = [step.get("repeat", 1) for step in steps]
        count = min(self.samples, len(steps))

        def runs(*options):
            sampled = []
            for i in range(count):
                begin, end = len(steps) * i // count, len(steps) * (i + 1) // count
                step = (begin + end) // 2
                rows, tokens = (
                    sum(node[what] for node in steps[step]["nodes"]) for what in ("rows", "tokens")
                )
                given = (f"--workload={file}", f"--step={step}", *options)
                sampled.append(Run(self.problem(), given, rows, tokens, sum(repeats[begin:end])))
            return sampled

        return {
            "flatten": runs("--strategy=flatten"),
            "flatten, mma": runs("--strategy=flatten", "--schedule=mma"),
            "by-query": runs("--strategy=by-query", "--schedule=mma"),
        }

    def seconds(self):
        """Estimate the seconds of a measurement."""
        return 3 * self.samples * 2.5


@dataclass(frozen=True)
class SharedPoint(Comparison):
    sequences: int = 16
    prompt: int = 32768
    response: int = 2048

    def sizes(self):
        return self.sequences, self.prompt // self.scale, self.response // self.scale

    def problems(self):
        return {Problem(store="packed")}

    def pairs(self):
        """Return pairs of a row and a token that it sees: shared, and replicated."""
        n, p, r = self.sizes()
        inner = p * (p + 1) // 2 + n * (r * p + r * (r + 1) // 2)
        return inner, n * (p + r) * (p + r + 1) // 2

    def ceiling(self):
        shared, replicated = self.pairs()
        return replicated / shared

    def contenders(self, folder):
        n, p, r = self.sizes()
        (problem,) = self.problems()
        nodes = [(-1, p, p), *[(0, r, r)] * n]
        forest = {
            "q_heads": problem.q_heads,
            "kv_heads": problem.kv_heads,
            "dim": problem.dim,
            "bytes_per_token_per_head": 4 * problem.dim,
            "layers": 1,
            "steps": [
                {"nodes": [dict(zip(("parent", "tokens", "rows"), node, strict=True)) for node in nodes]}
            ],
        }
        file = folder / "workload.json"
        file.write_text(json.dumps(forest))
        replicated = (f"--dim=batch={n}", f"--dim=q_len={p + r}", f"--dim=kv_len={p + r}")
        return {
            "shared": [Run(problem, (f"--workload={file}",), p + n * r, p + n * r)],
            "replicated": [Run(problem, replicated, n * (p + r), n * (p + r))],
        }

    def peer_point(self):
        from measuring.points import Point

        n, p, r = self.sizes()
        return Point(self.part, self.name, Problem(store="dense"), (p + r,) * n)

    def seconds(self):
        return (
            10
            + sum(12 * run.result_bytes() / 1e9 for run in self.shape_runs())
            + 60 * self.pairs()[1] * 16384 / 6e14
        )

    def shape_runs(self):
        n, p, r = self.sizes()
        (problem,) = self.problems()
        return [Run(problem, (), p + n * r, p + n * r), Run(problem, (), n * (p + r), n * (p + r))]


@dataclass(frozen=True)
class HeadsPoint(Comparison):
    kv_heads: int = 8
    retrieval: int = 4
    tokens: int = 32768
    rows: int = 1
    sink: int = 128
    recent: int = 256

    def full(self):
        return Problem(32, self.kv_heads)

    def classes(self):
        streaming = f"streaming: see sink({self.sink}) | recent({self.recent})"
        return Problem(32, self.kv_heads, see=f"causal heads {{retrieval: see all, {streaming}}}")

    def problems(self):
        return {self.full(), self.classes()}

    def ceiling(self):
        return self.kv_heads / self.retrieval

    def contenders(self, folder):
        tokens, rows = self.tokens // self.scale, max(1, self.rows // self.scale)
        sizes = ("--dim=batch=1", f"--dim=q_len={rows}", f"--dim=kv_len={tokens}")
        classes = (*sizes, f"--dim=retrieval={self.retrieval}")
        return {
            "classes": [Run(self.classes(), classes, rows, tokens)],
            "full": [Run(self.full(), sizes, rows, tokens)],
        }

    def seconds(self):
        return 6 + 6 * Run(self.full(), (), self.rows, self.tokens).bytes() / 1e9


def tree_points(quick):
    def point(name, *workload, **more):
        return TreePoint(name, "trees", "by-query", TREE_BARS.get(name), workload=workload, **more)

    points = [point(f"few-shot, {n} branches", "few-shot", f"--branches={n}") for n in (20, 30, 50)]
    points += [
        point("sorting", "reasoning", data="deft/sorting128ToT.trees.json"),
        point("merging", "reasoning", "--seed=2", data="deft/docmergeToT.trees.json"),
    ]
    points += [
        point(
            f"{n} speculated tokens",
            *("tokens", "--context=1000", f"--tokens={n - 1}"),
            data=f"deft/APPS_tree_size{n}.json",
            drafts=True,
        )
        for n in (32, 64, 128, 256)
    ]
    if quick:
        points = [
            point("few-shot, 50 branches", "few-shot", "--branches=50", samples=1),
            point(
                "256 speculated tokens",
                *("tokens", "--context=1000", "--tokens=255"),
                data="deft/APPS_tree_size256.json",
                drafts=True,
                samples=1,
            ),
        ]
    return points


def shared_points(quick):
    shapes = [(4, 8192), (8, 8192), (16, 8192), (16, 32768)]
    return [
        SharedPoint(
            f"{n} responses of 2K behind {p // 1024}K",
            "shared",
            "replicated",
            SHARED_BAR if (n, p) == (16, 32768) else None,
            sequences=n,
            prompt=p,
        )
        for n, p in (shapes[2:3] if quick else shapes)
    ]


def heads_points(quick):
    models = {"MHA": (32, 8, (32768, 131072, 262144)), "GQA": (8, 4, (32768, 131072, 524288, 1048576))}
    points = []
    for model, (kv_heads, retrieval, lengths) in models.items():
        share = f"{model} {100 * retrieval // kv_heads}%"
        for tokens in lengths[1:2] if quick else lengths:
            bar = HEADS_BARS[model] if tokens == lengths[1 if quick else -1] else None
            name = f"{share}, decode behind {tokens // 1024}K"
            points.append(HeadsPoint(name, "heads", "full", bar, 1, kv_heads, retrieval, tokens))
        if not quick:
            name = f"{share}, chunk of 4K behind 124K"
            points.append(HeadsPoint(name, "heads", "full", None, 1, kv_heads, retrieval, 131072, 4096))
    return points


COMPARISONS = {"trees": tree_points, "shared": shared_points, "heads": heads_points}
