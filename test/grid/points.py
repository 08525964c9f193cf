# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The grid of shapes that every build must get right, and pairwise samples of it.

A sample is pairwise when every pair of values of two different axes occurs in some point. Most mistakes of
kernels need no more than two things to meet (a page size and a head count, a length and a mask), and less than
a hundred points then say nearly what the millions of the whole grid would. --full takes many such samples.
"""

import itertools
import random
from dataclasses import dataclass

from attnlab import Problem

DUO = "causal heads {retrieval: see all, streaming: see sink(4) | recent(64)}"
APART = DUO + " apart"  # each class has a store of its own

AXES = {
    "batch": (1, 2, 5, 17),
    "length": (1, 15, 16, 17, 97, 512, 2048, 8192),
    "rows": (1, 3, 37),
    "store": ("paged<1>", "paged<8>", "paged<16>", "paged<64>", "dense", "packed", "paged<16>, ragged"),
    "heads": ((32, 8), (28, 4), (32, 32), (8, 1), (40, 8)),
    "dims": ((64, 64), (80, 80), (128, 128), (192, 128), (256, 256)),
    "dtype": ("f16", "bf16"),
    "see": ("causal", "all", "window(100)", "causal and (sink(4) | recent(64))", DUO, APART),
    "softcap": (False, True),
    "strides": ("dense", "heads-first", "interleaved", "halves", "padded"),
}

CI_POINTS, FULL_POINTS = 80, 600
# Most FLOPs of one point.
CI_FLOPS, FULL_FLOPS = 0.7e9, 8e9


@dataclass(frozen=True)
class Point:
    batch: int
    length: int
    rows: int
    store: str
    heads: tuple
    dims: tuple
    dtype: str
    see: str
    softcap: bool
    strides: str

    @property
    def problem(self):
        return Problem(*self.heads, *self.dims, self.dtype, self.store, self.see, self.softcap)

    def lengths(self):
        """Lengths of sequences, or of heads of sequences where they have their own, none above `length`. A batch of
        several has the longest, the empty and odd ones."""
        ragged = (self.length, max(self.length - 1, 0), 0, self.length // 2 + 1, 1, self.length * 3 // 4)
        return [ragged[i % len(ragged)] for i in range(self.batch * self.lists)]

    @property
    def lists(self):
        """Lengths of a sequence."""
        return self.heads[1] if "ragged" in self.store else 1

    def flops(self):
        """Tensor-core work of the tiles: rows are padded to 16, masked tokens may be skipped but count here."""
        packed = self.rows * self.problem.group
        padded = -(-packed // 16) * 16
        return 2 * sum(self.dims) * padded * self.heads[1] * sum(self.lengths()) // self.lists

    @property
    def name(self):
        return "-".join(
            [
                f"b{self.batch}",
                f"l{self.length}",
                f"r{self.rows}",
                self.store.replace("<", "").replace(">", "").replace(", ", "_"),
                "h{}_{}".format(*self.heads),
                "d{}_{}".format(*self.dims),
                self.dtype,
                {DUO: "duo", APART: "apart"}.get(self.see)
                or self.see.split("(")[0].strip().replace(" ", "_"),
                "softcap" if self.softcap else "plain",
                self.strides,
            ]
        )


def pairs_of(values):
    return {(i, values[i], j, values[j]) for i in range(len(values)) for j in range(i + 1, len(values))}


def pairwise(seed, flops):
    """A greedy sample in which every pair occurs that points of at most so many flops can hold."""
    rng = random.Random(seed)
    axes = list(AXES.values())
    wanted = set()
    for i, j in itertools.combinations(range(len(axes)), 2):
        wanted |= {(i, a, j, b) for a in axes[i] for b in axes[j]}
    sample, unreachable = [], set()
    while wanted - unreachable:
        left = sorted(wanted - unreachable, key=repr)
        i, a, j, b = left[rng.randrange(len(left))]
        best, gain = None, 0
        for _ in range(60):
            values = [rng.choice(axis) for axis in axes]
            values[i], values[j] = a, b
            point = Point(*values)
            new = len(pairs_of(values) & wanted)
            if new > gain and point.flops() <= flops:
                best, gain = point, new
        if best is None:
            unreachable.add((i, a, j, b))
            continue
        sample.append(best)
        wanted -= pairs_of([getattr(best, axis) for axis in AXES])
    return sample, unreachable


def sample(count, flops):
    """Pairwise samples of different seeds, one after the other: so many points, each of at most so many flops."""
    points = {}
    for seed in itertools.count():
        for point in pairwise(seed, flops)[0]:
            points[point] = None
            if len(points) == count:
                return list(points)


if __name__ == "__main__":
    ci = sample(CI_POINTS, CI_FLOPS)
    print(f"{len(ci)} points, {sum(point.flops() for point in ci) / 1e9:.1f} GFLOP")
    print("pairs that only --full reaches:", sorted(pairwise(0, CI_FLOPS)[1], key=repr) or "none")
