# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `bench gpu` measures: the points, the work they hold, and the bars they must reach.

Work is *visited* work: the pairs of a query row and a token that the mask lets through, whatever a kernel does
to find them. A feature that skips less than it could is then as slow here as it is for its user.
"""

from dataclasses import dataclass

from gpu_backward import backward_bars, backward_points
from gpu_batches import batch_bars, batch_points
from gpu_cache import cache_points
from gpu_chunks import chunk_points
from gpu_comparisons import comparison_bars
from gpu_context import context_bars, context_points
from gpu_deep import deep_bars, deep_points
from gpu_diffkv import diffkv_bars, diffkv_points
from gpu_duo import duo_bars, duo_points
from gpu_graphs import graph_bars, graph_points
from gpu_layouts import layout_points, layouts_bars
from gpu_outputs import outputs_bars, outputs_points
from gpu_pages import pages_bars, pages_points
from gpu_planning import planning_bars, planning_points
from gpu_python import python_bars, python_points
from gpu_quantized import quantized_bars, quantized_points
from gpu_serving import serving_bars, serving_points
from gpu_shared_backward import shared_backward_bars, shared_backward_points
from gpu_sharing import COMPARISONS
from gpu_significance import significance_bars, significance_points
from gpu_transformers import model_bars, model_points
from report import Problem

HEADS = ((64, 8), (32, 8))
DIMS = (128, 64, 256)
LENGTHS = (2048, 4096, 8192, 16384, 32768)
PLAIN = "plain"  # the feature that is none
RAGGED = (16384, 12007, 9001, 5003, 14503, 7919)

# Bars of prefill, features and decode; those of decode hold from this many bytes of keys and values on, and
# for operations on a cache from as many moved.
PREFILL_TFLOPS, PREFILL_TFLOPS_TOKENS = 650, 16384
FEATURE_SLOWDOWN, SOFTCAP_SLOWDOWN = 1.10, 1.25
DECODE_SHARE, DECODE_SHARE_BYTES = 0.90, 512e6
DECODE_SMALL_SHARE, DECODE_SMALL_L2S = 0.75, 2


class Region:
    """Tokens that a row sees, as a function of its position: what attn.kv calls a visibility."""

    def __init__(self, intervals):
        self.intervals = intervals  # position -> [(begin, end)], sorted, disjoint

    def __and__(self, other):
        def both(position):
            pairs = [
                (max(a, c), min(b, d))
                for a, b in self.intervals(position)
                for c, d in other.intervals(position)
            ]
            return sorted((a, b) for a, b in pairs if a < b)

        return Region(both)

    def __or__(self, other):
        def either(position):
            merged = []
            for begin, end in sorted(self.intervals(position) + other.intervals(position)):
                if merged and begin <= merged[-1][1]:
                    merged[-1] = (merged[-1][0], max(merged[-1][1], end))
                else:
                    merged.append((begin, end))
            return merged

        return Region(either)

    def count(self, position, tokens):
        return sum(max(0, min(b, tokens) - max(a, 0)) for a, b in self.intervals(position))


def region(see):
    """The region that a visibility's text names."""
    names = {
        "all": Region(lambda q: [(0, 1 << 60)]),
        "causal": Region(lambda q: [(0, q + 1)]),
        "window": lambda w: Region(lambda q: [(q - w + 1, q + 1)]),
        "recent": lambda w: Region(lambda q: [(q - w + 1, q + 1)]),
        "sink": lambda n: Region(lambda q: [(0, n)]),
    }
    return eval(see, {"__builtins__": {}}, names)  # texts of this file


def visible_pairs(see, rows, tokens):
    """Pairs of a row and a token that it sees; the rows are the last of their tokens."""
    if see == "all":
        return rows * tokens
    if see == "causal":
        return rows * tokens - rows * (rows - 1) // 2
    seen = region(see)
    return sum(seen.count(q, tokens) for q in range(tokens - rows, tokens))


@dataclass(frozen=True)
class Point:
    part: str
    name: str
    problem: Problem
    lengths: tuple  # tokens of each sequence
    rows: int | None = None  # of each sequence; None: as many as tokens

    @property
    def key(self):
        return f"{self.part}: {self.name}"

    @property
    def row_count(self):
        return sum(self.lengths) if self.rows is None else self.rows * len(self.lengths)

    def flops(self):
        """Two dots of every visible pair and head."""
        pairs = sum(visible_pairs(self.problem.see, self.rows or n, n) for n in self.lengths)
        return 2 * pairs * self.problem.q_heads * (self.problem.dim + self.problem.value_dim)

    def kv_bytes(self):
        return 2 * sum(self.lengths) * self.problem.kv_heads * (self.problem.dim + self.problem.value_dim)

    def query_bytes(self):
        return 2 * self.row_count * self.problem.q_heads * self.problem.dim

    def dims(self, folder):
        """Options of attn-run, for a test. Ragged rows and tokens come from one column, so that they agree."""
        options = [f"--dim=batch={len(self.lengths)}"]
        if len(set(self.lengths)) == 1:
            tokens = str(self.lengths[0])
        else:
            (folder / "lengths.csv").write_text("tokens\n" + "".join(f"{n}\n" for n in self.lengths))
            tokens = f"@{folder / 'lengths.csv'}:tokens"
        rows = tokens if self.rows is None else self.rows
        return [*options, f"--dim=q_len={rows}", f"--dim=kv_len={tokens}"]


def prefill_points(quick):
    points = []
    for dim in DIMS:
        for q_heads, kv_heads in HEADS:
            for see in ("causal", "all"):
                for tokens in LENGTHS:
                    if quick and (tokens not in (4096, 16384) or q_heads != 64):
                        continue
                    problem = Problem(q_heads, kv_heads, dim, dim, "bf16", "dense", see)
                    name = f"d{dim} {q_heads}/{kv_heads} {'causal' if see == 'causal' else 'full'} {tokens}"
                    points.append(Point("prefill", name, problem, (tokens,)))
    return points


def feature_points(quick, tokens=16384, window=4096, ragged=RAGGED):
    """The first is the plain one that the others are compared with."""

    def point(name, store="dense", see="causal", lengths=(tokens,), **more):
        return Point("features", name, Problem(32, 8, 128, 128, "bf16", store, see, **more), lengths)

    points = [
        point(PLAIN),
        point(f"sink and recent {window}", see=f"causal & (sink(64) | recent({window}))"),
        point("sink logits", sinks=True),
        point(f"window {window}", see=f"window({window})"),
        point("pages of 16", store="paged<16>"),
        point("pages of 64", store="paged<64>"),
        point("packed ragged", store="packed", lengths=ragged),
        point("softcap 30", softcap=True),
        point("softcap 30 by tanh.approx", softcap=True, approximate=True),
    ]
    return points[:4] + points[-2:] if quick else points


def decode_points(quick):
    shapes = [
        (32, 1, 4096),
        (32, 1, 16384),
        (32, 1, 32768),
        (32, 4, 16384),
        (32, 1, 131072),
        (32, 16, 8192),
        (32, 64, 4096),
        (32, 16, 32768),
        (32, 64, 16384),
        (32, 16, 131072),
        (64, 1, 32768),
        (64, 8, 16384),
        (64, 64, 4096),
        (64, 64, 16384),
    ]
    if quick:
        shapes = [(32, 1, 32768), (32, 16, 8192), (64, 8, 16384)]
    return [
        Point("decode", f"{q}/8 batch {batch} x {tokens}", Problem(q, 8), (tokens,) * batch, 1)
        for q, batch, tokens in shapes
    ]


PARTS = {
    "prefill": prefill_points,
    "batches": batch_points,
    "chunks": chunk_points,
    "features": feature_points,
    "decode": decode_points,
    "backward": backward_points,
    "shared-backward": shared_backward_points,
    "tree-backward": deep_points,
    "quantized": quantized_points,
    "significance": significance_points,
    **COMPARISONS,
    "cache": cache_points,
    "graphs": graph_points,
    "pages": pages_points,
    "diffkv": diffkv_points,
    "layouts": layout_points,
    "duo": duo_points,
    "context": context_points,
    "outputs": outputs_points,
    "planning": planning_points,
    "python": python_points,
    "transformers": model_points,
    "serving": serving_points,
}


OWN_BARS = {
    **{part: comparison_bars for part in COMPARISONS},
    "backward": backward_bars,
    "shared-backward": shared_backward_bars,
    "tree-backward": deep_bars,
    "python": python_bars,
    "quantized": quantized_bars,
    "significance": significance_bars,
    "graphs": graph_bars,
    "pages": pages_bars,
    "diffkv": diffkv_bars,
    "layouts": layouts_bars,
    "duo": duo_bars,
    "context": context_bars,
    "outputs": outputs_bars,
    "planning": planning_bars,
    "transformers": model_bars,
    "serving": serving_bars,
    "batches": batch_bars,
    "chunks": batch_bars,
}


def slowdown_bar(row):
    """Of a feature; a soft cap must reach its bar in the approximate form, and is measured in the exact one."""
    if row["softcap"]:
        return SOFTCAP_SLOWDOWN if row["approximate"] else None
    return FEATURE_SLOWDOWN


def bars(row, session):
    """What a measured row must reach: (text, whether it did)."""
    found = []
    if row["part"] in OWN_BARS:
        return OWN_BARS[row["part"]](row)
    if row["part"] == "prefill":
        if row["peers_ms"]:
            found.append(("as fast as the best peer", row["ratio_to_best_peer"] >= 1))
        if row["dim"] == 128 and row["see"] == "causal" and row["lengths"][0] >= PREFILL_TFLOPS_TOKENS:
            found.append((f"{PREFILL_TFLOPS} TFLOP/s", row["tflops"] >= PREFILL_TFLOPS))
    elif row["part"] == "features":
        bar = slowdown_bar(row)
        if bar and row["slowdown"] is not None:
            found.append((f"{bar:.2f} of plain per visited FLOP", row["slowdown"] <= bar))
    else:
        if row["kv_bytes"] >= DECODE_SHARE_BYTES:
            found.append((f"{DECODE_SHARE:.2f} of copying", row["copy_share"] >= DECODE_SHARE))
        elif row["kv_bytes"] >= DECODE_SMALL_L2S * session["l2_bytes"]:
            found.append((f"{DECODE_SMALL_SHARE:.2f} of copying", row["copy_share"] >= DECODE_SMALL_SHARE))
    return found
