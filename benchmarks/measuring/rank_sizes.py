# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sizes of the points of `bench distributed`."""

HEADS, KV_HEADS, DIM = 32, 8, 128


class Sizes:
    """Numbers of tokens: a few on the host device. `large`: four times as many, too, and gradients of twice and eight
    times as many."""

    def __init__(self, host, ranks, large):
        scale = 512 if host else 1
        self.prefill, self.training = ([131072 // scale], [65536 // scale])
        self.documents, self.prompts = 131072 // scale, [32768 // scale]
        self.long, self.batches = [(1 << 20) // (4096 if host else 1)], [(4, 64) if host else (64, 32768)]
        if large:
            self.prefill.append(4 * self.prefill[0])
            self.training += [2 * self.training[0], 8 * self.training[0]]
            self.prompts.append(4 * self.prompts[0])
            self.long.append(4 * self.long[0])
            self.batches.append((4 * self.batches[0][0], self.batches[0][1]))
        self.small = (2, 64) if host else (4, 8192)
        self.ordered = 800 if host else 16384
        self.bytes = 1 << (12 if host else 28)
        self.chunk = 32 if host else 4096
        self.heads = (max(ranks, 4), max(ranks, 2)) if host else (HEADS, KV_HEADS)
        self.dim = 64 if host else DIM
