# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prefill, features beside it, and decode, with their bars."""

from measuring.points import Point
from measuring.report import Problem

HEADS = ((64, 8), (32, 8))
DIMS = (128, 64, 256)
LENGTHS = (2048, 4096, 8192, 16384, 32768)
PLAIN = "plain"  # The baseline of the features.
RAGGED = (16384, 12007, 9001, 5003, 14503, 7919)

# Bars of prefill, features and decode; those of decode hold from this many bytes of keys and values on, and
# for operations on a cache from as many moved.
PREFILL_TFLOPS, PREFILL_TFLOPS_TOKENS = 650, 16384
FEATURE_SLOWDOWN, SOFTCAP_SLOWDOWN = 1.10, 1.25
DECODE_SHARE, DECODE_SHARE_BYTES = 0.90, 512e6
DECODE_SMALL_SHARE, DECODE_SMALL_L2S = 0.75, 2


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
    """Return the points; the first is the plain one that the others are compared with."""

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
        (32, 1, 1024),
        (32, 1, 2048),
        (32, 8, 500),
        (32, 1, 4096),
        (32, 1, 8192),
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
    points = [
        Point("decode", f"{q}/8 batch {batch} x {tokens}", Problem(q, 8), (tokens,) * batch, 1)
        for q, batch, tokens in shapes
    ]
    if quick:
        return points
    one_head, single = Problem(8, 1, store="paged<16>"), Problem(32, 8, store="paged<1>")
    return points + [
        Point("decode", "8/1 batch 64 x 16384", one_head, (16384,) * 64, 1),
        Point("decode", "32/8 batch 64 x 4096, pages of 1", single, (4096,) * 64, 1),
    ]


def slowdown_bar(row):
    """Return the bar of a feature. A soft cap must reach its bar in the approximate form, and is measured in the exact
    one."""
    if row["softcap"]:
        return SOFTCAP_SLOWDOWN if row["approximate"] else None
    return FEATURE_SLOWDOWN


def attention_bars(row, session):
    """Return the bars of a row of prefill, features or decode: (text, whether it reached the bar)."""
    found = []
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
