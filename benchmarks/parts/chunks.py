# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chunks of long prompts: the part `chunks` of `bench gpu`.

The last rows of one sequence, which see all tokens before them, as engines read a long prompt. Tasks are few and long,
so their division among blocks matters: an uneven one leaves blocks without work, and cut tasks read memory at different
times (runtime/src/plan/Balance.cpp).
"""

from measuring.report import Problem

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
QUICK = 2


def chunk_points(quick):
    from measuring.points import Point

    return [
        Point(
            "chunks",
            f"{rows} behind {tokens} {q}/{kv}",
            Problem(q, kv, 128, 128, "bf16", "dense", "causal"),
            (tokens,),
            rows,
        )
        for rows, tokens, q, kv in CHUNKS[: QUICK if quick else None]
    ]
