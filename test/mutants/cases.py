# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels to mutate, and the runs that reach all of their code.

Runs are small and few. Together the runs of a case go through several tasks per block, tasks of several
segments, of one tile and of none, tiles with a tail, rows that do not fill a tile, and results that are parts
to be merged.
"""

import json
from dataclasses import dataclass, replace

from attnlab import Problem

# Trees of (parent, tokens, rows). Read by node, shared tokens give parts to merge; read by query, rows have a
# segment for each node above them.
DECODE_TREE = ((-1, 150, 0), (0, 150, 1), (0, 160, 3), (-1, 104, 4), (-1, 5, 1))
PREFILL_TREE = ((-1, 150, 0), (0, 100, 60), (0, 70, 40), (-1, 50, 50))


@dataclass(frozen=True)
class Case:
    name: str
    problem: Problem
    schedule: str
    runs: tuple[str, ...]
    tree: tuple = PREFILL_TREE
    backward: bool = False
    token_bytes: int = 0  # of keys and values, per head; 0: those of 16 bits
    every: int = 6  # CI takes one of this many mutants, and one of twice as many for gradients
    ordered: str = ' = "apart"'  # gradients with separate launches for rows and tokens

    def text(self):
        text = self.problem.text()
        mark = f"attn.backward, attn.ordered{self.ordered}"
        return text.replace(" {\n", f" attributes {{{mark}}} {{\n", 1) if self.backward else text

    def tree_json(self):
        problem = self.problem
        nodes = [{"parent": parent, "tokens": tokens, "rows": rows} for parent, tokens, rows in self.tree]
        return json.dumps(
            {
                "q_heads": problem.q_heads,
                "kv_heads": problem.kv_heads,
                "dim": problem.dim,
                "bytes_per_token_per_head": self.token_bytes or 4 * problem.dim,
                "layers": 1,
                "steps": [{"nodes": nodes, "repeat": 1}],
            }
        )


def codes(kind, per=64):
    return f"!attn.quantized<{kind}, per = {per}>"


def small(store="paged<16>", see="causal", heads=(4, 1)):
    return Problem(*heads, 64, 64, store=store, see=see)


BY_NODE, BY_QUERY = "workload=TREE strategy=by-node blocks=2", "workload=TREE strategy=by-query blocks=1"
PREFILL_RUNS = ("batch=2 q_len=70 kv_len=70..400 blocks=1", BY_NODE, BY_QUERY)
# Short sequences of heads up to 64 have a separate kernel, whose one warpgroup of consumers has no ping-pong.
LONG_TREE = ((-1, 1150, 0), (0, 100, 60), (0, 70, 40), (-1, 50, 50))
LONG_RUNS = ("batch=2 q_len=70 kv_len=1025..1200 blocks=1", BY_NODE, BY_QUERY)
# If every row sees every token, sequences may be empty, and their tasks have no segments. A backward pass is
# planned by query. Its block of tokens walks the rows that see them: with long sequences, rings of rows wrap
# around; with rows and tokens that see nothing, loops have no iteration.
GRADIENT_RUNS = (
    "batch=2 q_len=70..150 kv_len=150..300 blocks=1",
    "batch=3 q_len=33 kv_len=0 blocks=1",
    BY_QUERY,
)
EMPTY_RUNS = (
    "batch=2 q_len=70 kv_len=70..400 blocks=1",
    "batch=3 q_len=33 kv_len=0 blocks=1",
    BY_NODE,
    BY_QUERY,
)

# A list of lengths has one sequence after the other, and one head after the other for ragged stores. A
# quantized store has a kernel for up to 8 rows, of 4 query heads each here, one for up to 16 and one for
# more.
CODES = replace(small(see="all"), key=codes("i8"), value=codes("i4"))
SMALL_FLOATS = replace(small(see="all"), key=codes("f8E4M3FN", "token"), value=codes("f8E4M3FN", "token"))
CODE_BYTES, SMALL_FLOAT_BYTES = 64 + 32 + 2 * 4, 64 + 64 + 2 * 4
# Two regions with formats of their own, in which each head has its own lists (examples/12_diffkv).
DIFFKV = replace(
    small("paged<16>, ragged", see="all", heads=(8, 2)),
    draft_store="paged<32>, ragged",
    key=codes("i8"),
    value=codes("i4"),
    draft_key=codes("i4"),
    draft_value=codes("i2"),
)
EIGHT_TREE = (
    (-1, 150, 0),
    (0, 160, 1),
    (0, 70, 0),
    (2, 5, 1),
    (-1, 104, 0),
    (4, 60, 0),
    (5, 70, 1),
    (-1, 5, 1),
)
SIXTEEN_TREE = ((-1, 104, 0), (0, 60, 0), (1, 70, 3), (-1, 150, 0), (3, 50, 4), (-1, 5, 3))
EIGHT_RUNS = (
    "batch=3 q_len=1 kv_len=100..300 blocks=1",
    "batch=4 q_len=2 kv_len=[0,37,0,150] blocks=1",
    "batch=3 q_len=1 kv_len=0 blocks=1",
    "batch=3 q_len=2 kv_len=[0,600,90] blocks=4",
    BY_NODE,
    BY_QUERY,
)
SIXTEEN_RUNS = (
    "batch=3 q_len=3 kv_len=100..300 blocks=1",
    "batch=4 q_len=4 kv_len=[0,37,0,150] blocks=1",
    "batch=3 q_len=3 kv_len=0 blocks=1",
    "batch=3 q_len=4 kv_len=[0,600,90] blocks=4",
    BY_NODE,
    BY_QUERY,
)


def diffkv_runs(rows):
    return (
        f"batch=3 q_len={rows} kv_len=20..200 drafts=3 draft_len=0..300 blocks=1",
        f"batch=3 q_len={rows} kv_len=[0,40,0,0,150,9] drafts=3 draft_len=[0,0,70,0,20,300] blocks=1",
        f"batch=3 q_len={rows} kv_len=[40,30] drafts=1 draft_len=[130,0] blocks=1",
        f"batch=2 q_len={rows} kv_len=0 drafts=2 draft_len=0 blocks=1",
        f"batch=2 q_len={rows} kv_len=[0,900,90,0] drafts=2 draft_len=[0,1500,9,40] blocks=4",
    )


CASES = (
    Case(
        "decode, mma",
        small(see="all"),
        "mma",
        (
            "batch=3 q_len=1 kv_len=100..300 blocks=1",
            "batch=2 q_len=4 kv_len=4..90",
            "batch=2 q_len=3 kv_len=0 blocks=1",
            "workload=TREE strategy=by-node",
            BY_QUERY,
        ),
        DECODE_TREE,
    ),
    Case(
        "decode, mma, scales of outputs",
        Problem(4, 1, 80, 80, see="all", output_scales=True),
        "mma",
        (
            "batch=3 q_len=1 kv_len=100..300 blocks=1",
            "batch=2 q_len=4 kv_len=4..90",
            "batch=2 q_len=3 kv_len=0 blocks=1",
            "workload=TREE strategy=by-node",
            BY_QUERY,
        ),
        DECODE_TREE,
    ),
    Case("prefill, mma", small(see="all"), "mma", EMPTY_RUNS),
    Case("decode, codes, up to 8 rows", CODES, "mma", EIGHT_RUNS, EIGHT_TREE, token_bytes=CODE_BYTES),
    Case("decode, codes, up to 16 rows", CODES, "mma", SIXTEEN_RUNS, SIXTEEN_TREE, token_bytes=CODE_BYTES),
    Case(
        "prefill, codes",
        CODES,
        "mma",
        (*EMPTY_RUNS, "batch=4 q_len=33 kv_len=[150,0,37,0] blocks=1"),
        token_bytes=CODE_BYTES,
        every=4,
    ),
    Case(
        "decode, small floats, up to 8 rows",
        SMALL_FLOATS,
        "mma",
        EIGHT_RUNS,
        EIGHT_TREE,
        token_bytes=SMALL_FLOAT_BYTES,
    ),
    Case(
        "decode, small floats, up to 16 rows",
        SMALL_FLOATS,
        "mma",
        SIXTEEN_RUNS,
        SIXTEEN_TREE,
        token_bytes=SMALL_FLOAT_BYTES,
    ),
    Case("decode, diffkv, up to 8 rows", DIFFKV, "mma", diffkv_runs(2)),
    Case("decode, diffkv, up to 16 rows", DIFFKV, "mma", diffkv_runs(3)),
    Case("prefill, wgmma, boxes of pages", small(), "wgmma", LONG_RUNS, LONG_TREE),
    Case("prefill, wgmma, boxes of a dense store, short", small(store="dense"), "wgmma", PREFILL_RUNS),
    Case(  # heads without ping-pong of consumers; tasks of few rows before some of many
        "prefill, wgmma, heads of 128",
        Problem(4, 1, 128, 128, store="dense", see="causal"),
        "wgmma",
        (*PREFILL_RUNS, "workload=TREE strategy=by-node blocks=1"),
        ((-1, 700, 0), (0, 300, 3), (0, 170, 60), (0, 500, 40), (-1, 300, 5)),
    ),
    Case("prefill, wgmma, gathered pages", small(store="paged<1>", see="all"), "wgmma", EMPTY_RUNS),
    Case(
        "prefill, wgmma, gathered queries",
        small(see="all", heads=(7, 1)),
        "wgmma",
        ("batch=2 q_len=40 kv_len=70..400 blocks=1", "batch=3 q_len=33 kv_len=0 blocks=1", BY_NODE, BY_QUERY),
        ((-1, 150, 0), (0, 100, 30), (0, 70, 20), (-1, 50, 30)),
    ),
    Case("gradients, mma", small("packed", see="all"), "mma", GRADIENT_RUNS, backward=True),
    Case(
        "gradients, wgmma, in order",
        small("packed"),
        "wgmma",
        (
            GRADIENT_RUNS[0],
            BY_QUERY,
            "batch=1 q_len=70 kv_len=700 blocks=1",
        ),  # rings of keys wrap around within a segment
        backward=True,
    ),
    Case(
        "gradients, wgmma, fused",
        small("packed"),
        "wgmma",
        (GRADIENT_RUNS[0], BY_QUERY),
        backward=True,
        ordered=" = false",
    ),
    # A window has short tiles, of which each warpgroup has half of the features.
    Case(
        "gradients, wgmma, fused, short tiles",
        small("packed", see="window(90)"),
        "wgmma",
        (GRADIENT_RUNS[0], BY_QUERY),
        backward=True,
        ordered=" = false",
    ),
)
