# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Many sequences and many heads: the part `batches` of `bench gpu`.

Batches of 1 to 32 sequences of 512 to 8K tokens (and one of 16K and 32K), 8 to 128 heads in groups of 1 to 16, heads of
64, 96, 128, 192 (values of 128) and 256 features.
"""

import math

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


def batch_points(quick):
    from measuring.points import Point

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
