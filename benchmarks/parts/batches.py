# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Many sequences and many heads, and chunks of long prompts: the parts `batches` and `chunks` of `bench gpu`.

Batches of 1 to 32 sequences of 512 to 8K tokens (and one of 16K and 32K), 8 to 128 heads in groups of 1 to 16, heads of
64, 96, 128, 192 (values of 128) and 256 features.

A chunk is the last rows of one sequence, which see all tokens before them, as engines read a long prompt. Tasks are few and
long, so their division among blocks matters: an uneven one leaves blocks without work, and cut tasks read memory at
different times (runtime/src/plan/Balance.cpp).
"""

import math

from measuring.points import Point
from measuring.report import Problem

# Bars: alone every point is as fast as the best peer; sustained none is below the least, and the mean is as
# fast.
SUSTAINED_LEAST = 0.97

# (batch, tokens, query heads, KV heads), causal, by head size: the first are the quick ones.
QUICK = (
    (4, 4096, 32, 32),
    (8, 4096, 32, 32),
    (1, 4096, 128, 128),
    (4, 2048, 32, 32),
    (1, 4096, 32, 32),
    (1, 16384, 32, 32),
    (4, 4096, 32, 8),
    (1, 32768, 64, 8),
)
LONG_TO_SHORT = ((1, 8192), (2, 8192), (4, 4096), (8, 2048), (16, 1024), (32, 512))
CAUSAL = {
    (128, 128): (
        *QUICK,
        *((b, n, q, kv) for q, kv in ((32, 32), (32, 8)) for b, n in LONG_TO_SHORT if (b, n) != (4, 4096)),
        *((b, n, q, kv) for q, kv in ((8, 8), (64, 8), (128, 8)) for b, n in ((4, 2048), (16, 1024))),
        *((16, 1024, 16, 16), (32, 8192, 8, 8), (8, 1024, 128, 128), (32, 512, 128, 128)),
        *((1, 512, 128, 128), (1, 1024, 32, 8), (2, 1024, 16, 16)),
    ),
    (64, 64): ((4, 4096, 32, 32), (32, 512, 32, 32), (4, 4096, 64, 8), (32, 512, 64, 8), (1, 8192, 8, 8)),
    (96, 96): ((4, 4096, 32, 32), (16, 1024, 32, 32), (2, 8192, 32, 8)),
    (192, 128): ((4, 4096, 128, 128), (1, 8192, 128, 128), (32, 512, 128, 128), (8, 2048, 16, 16)),
    (256, 256): ((4, 4096, 16, 16), (32, 512, 16, 16), (2, 8192, 8, 8), (8, 2048, 32, 8), (1, 4096, 128, 8)),
}
FULL = {
    (128, 128): (
        (4, 4096, 32, 32),
        (32, 512, 32, 32),
        (4, 4096, 32, 8),
        (2, 4096, 128, 128),
        (8, 1024, 128, 8),
    ),
    (64, 64): ((8, 2048, 16, 16),),
    (96, 96): ((8, 2048, 32, 8),),
    (192, 128): ((8, 1024, 128, 128),),
    (256, 256): ((4, 2048, 16, 16),),
}

# (rows, tokens, query heads, KV heads); the first are the quick ones.
CHUNKS = (
    (1536, 100_000, 16, 4),
    (2048, 60_000, 24, 8),
    (1536, 320_000, 16, 4),
    (2048, 200_000, 16, 4),
    (1536, 200_000, 32, 8),
    (512, 200_000, 32, 8),
    (1024, 100_000, 32, 8),
    (1536, 100_000, 8, 8),
    (1536, 100_000, 32, 32),
    (3000, 65_000, 16, 4),
    (1700, 131_072, 16, 2),
    (8192, 131_072, 8, 2),
    (700, 131_072, 64, 8),
    (1280, 64_000, 40, 8),
    (1920, 131_072, 32, 32),
    (4096, 131_072, 32, 32),
    (3500, 131_072, 16, 4),
    (1536, 16_384, 16, 4),
)
QUICK_CHUNKS = 2


def batch_points(quick):
    some = [*((128, "causal", shape) for shape in QUICK), (192, "causal", (4, 4096, 128, 128))]
    points = []
    for see, shapes in (("causal", CAUSAL), ("all", FULL)):
        for (dim, value_dim), of_dim in shapes.items():
            for batch, tokens, q_heads, kv_heads in of_dim:
                if quick and (dim, see, (batch, tokens, q_heads, kv_heads)) not in some:
                    continue
                problem = Problem(q_heads, kv_heads, dim, value_dim, "bf16", "dense", see)
                dims = f"d{dim}" if dim == value_dim else f"d{dim}/{value_dim}"
                name = f"{batch} x {tokens} {q_heads}/{kv_heads} {dims} {'full' if see == 'all' else see}"
                points.append(Point("batches", name, problem, (tokens,) * batch))
    return points


def chunk_points(quick):
    return [
        Point(
            "chunks",
            f"{rows} behind {tokens} {q}/{kv}",
            Problem(q, kv, 128, 128, "bf16", "dense", "causal"),
            (tokens,),
            rows,
        )
        for rows, tokens, q, kv in CHUNKS[: QUICK_CHUNKS if quick else None]
    ]


def batch_bars(row):
    """Return the bars of a point."""
    if not row["peers_ms"]:
        return []
    found = [("as fast as the best peer", row["ratio_to_best_peer"] >= 1)]
    if row["sustained_ratio"] is not None:
        at_least = row["sustained_ratio"] >= SUSTAINED_LEAST
        found.append((f"{SUSTAINED_LEAST:.2f} of the best peer's speed, sustained", at_least))
    return found


def mean_ratio(rows, name):
    """Return the geometric mean, if any row has it."""
    ratios = [row[name] for row in rows if row.get(name) is not None]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


def mean_bars(rows):
    """Return the bars of all points together."""
    mean = mean_ratio([row for row in rows if row["part"] == "batches"], "sustained_ratio")
    return [] if mean is None else [("batches: sustained as fast as the best peers in the mean", mean >= 1)]
