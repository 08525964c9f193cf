# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A deep tree on a GPU: the part `tree-backward` of `bench gpu`.

Forward and backward over a tree whose leaves are many nodes below its root, against a prompt of the size of a node with
as many responses. Both have as many tokens, and a row sees about as many: the figure is the cost of sharing in many
levels. Both do not fit into memory together, so they run one after the other, and the ratio is that of their TFLOP/s.
"""

from dataclasses import dataclass

from measuring.described import Described
from parts.backward import PRODUCTS, whole_side

WORTH = 0.9  # The least share of the TFLOP/s of one level.


@dataclass(frozen=True)
class DeepPoint(Described):
    levels: int = 16
    branching: int = 9  # The first so many levels have two children, the others one.
    tokens: int = 128  # Tokens of a node.
    q_heads: int = 32
    kv_heads: int = 8
    dim: int = 128
    device: str = "cuda"

    part = "tree-backward"

    @property
    def name(self):
        return f"depth {self.levels}, {2**self.branching} leaves of {self.tokens}"

    def parents(self):
        parent = []

        def add(above, level):
            parent.append(above)
            here = len(parent) - 1
            for _ in range((2 if level < self.branching else 1) if level < self.levels else 0):
                add(here, level + 1)

        add(-1, 0)
        return parent

    def deep(self):
        """Return the offsets of nodes, and their parents."""
        parent = self.parents()
        return list(range(0, self.tokens * len(parent) + 1, self.tokens)), parent

    def flat(self):
        """Return the same for a prompt and responses, all of one size, with nearly as many tokens."""
        leaves = 2**self.branching
        size = self.tokens * len(self.parents()) // (leaves + 1)
        return [size * node for node in range(leaves + 2)], [-1] + [0] * leaves

    def pairs(self, nodes=None):
        """Return the number of pairs: each row sees the tokens above its node, and in it those up to itself."""
        starts, parents = nodes or self.deep()
        above, pairs = [], 0
        for node, parent in enumerate(parents):
            above.append(0 if parent < 0 else above[parent] + starts[parent + 1] - starts[parent])
            size = starts[node + 1] - starts[node]
            pairs += size * above[node] + size * (size + 1) // 2
        return pairs

    def flops(self, nodes=None):
        return 2 * (2 + PRODUCTS) * self.pairs(nodes) * self.q_heads * self.dim

    def seconds(self):
        return 20 + 40 * self.flops() / 300e12


def deep_points(quick):
    return [DeepPoint(8, 6)] if quick else [DeepPoint(8, 6), DeepPoint()]


def measure_deep(point, bench):
    """Measure a tree and one level; returns the row of the file."""
    torch, timer = bench.contest.torch, bench.contest.timer
    import attn

    alone, sustained, host = {}, {}, {}
    place = "cpu" if point.device == "host" else point.device
    for name, nodes in (("attn", point.deep()), ("one level", point.flat())):
        torch.manual_seed(1)
        sizes = [
            (nodes[0][-1], heads, point.dim) for heads in (point.q_heads, point.kv_heads, point.kv_heads)
        ]
        given = [torch.randn(size, device=place, dtype=torch.bfloat16).requires_grad_() for size in sizes]
        d_out = torch.randn(sizes[0], device=place, dtype=torch.bfloat16)
        forest = attn.Forest(*nodes)
        attend = lambda q, k, v, forest=forest: attn.attend(q, k, v, forest=forest, causal=True)  # noqa: E731
        side = {name: whole_side(torch, attend, given, d_out)}
        alone |= timer.alone(side)
        host[name] = 1e6 * timer.host[name]
        sustained |= timer.sustained(side, alone, side.__getitem__, {})
        del given, d_out, attend, side
        if point.device != "host":
            torch.cuda.empty_cache()
    flops, of_flat = point.flops(), point.flops(point.flat())
    rates = {"attn": flops / alone["attn"] / 1e9, "one level": of_flat / alone["one level"] / 1e9}
    return {
        "key": point.key,
        "part": point.part,
        "name": point.name,
        "heads": [point.q_heads, point.kv_heads],
        "dim": point.dim,
        "visited_flops": flops,
        "attn": {"run_ms": alone["attn"]},
        "tflops": rates["attn"],
        # A time for the tree's work, as for all peers.
        "peers_ms": {"one level": flops / rates["one level"] / 1e9},
        "host_us": host,
        "sustained_ms": {"attn": sustained["attn"], "one level": sustained["one level"] * flops / of_flat},
        "sustained_tflops": flops / sustained["attn"] / 1e9,
        "sustained_ratio": sustained["one level"] * flops / of_flat / sustained["attn"],
        "ratio_to_best_peer": rates["attn"] / rates["one level"],
        "declined": {},
        "peak_bytes": torch.cuda.max_memory_allocated() if point.device != "host" else None,
    }


def deep_bars(row):
    return [(f"{WORTH} of the TFLOP/s of one level", row["ratio_to_best_peer"] >= WORTH)]
