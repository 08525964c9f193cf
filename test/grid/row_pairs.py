# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random pairs of calls that compute the same rows: each sequence alone, and among others in any batch.

    python test/grid/row_pairs.py --pairs 100000 --seed 3

A launch draws its store, its sequences and their order, chunks, pages, blocks, strategy, who plans, and the order in which
the host device runs threads. A pair is the rows of one sequence in a launch, and the same rows of the sequence alone;
outputs and LSEs are compared as bytes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

import attn
import numpy
from attn import _attn

Q_HEADS, KV_HEADS, DIM = 2, 1, 32
LENGTHS = (1, 17, 64, 65, 130, 200, 257, 4098, 8300)
LONG = 300  # A longer sequence has rows near the ends of parts alone.
ENDS = (4095, 4096, 4097, 4098, 8192, 8193, 8256, 8300)
PAGES = (1, 8, 16, 32, 64)
STRATEGIES = ("flatten", "by-query", "by-node", "auto")
BLOCKS = (0, 1, 3, 30)
LAUNCHES = 60  # With one cache; then another one is filled.
VISIBLE = {
    "causal": attn.causal(),
    "window": attn.window(70),
    "sinks": attn.causal() & (attn.sink(5) | attn.recent(90)),
}


@dataclass(frozen=True)
class Part:
    """Rows of a sequence in a launch: the last `rows` of its first `end` tokens."""

    sequence: int
    end: int
    rows: int


class Pages:
    """A cache that holds sequences, filled in chunks that take turns."""

    def __init__(self, pairs: Pairs):
        random, self.pairs, self.size = pairs.random, pairs, int(pairs.random.choice(PAGES))
        # Caches of pages of one token with long sequences are slow to fill.
        has_long = self.size > 1 and random.random() < 0.3
        ends = [pairs.end(long=has_long and i < 2) for i in range(20)]
        pages = sum(-(-end // self.size) for _, end in ends)
        sizes = dict(layers=1, kv_heads=KV_HEADS, head_dim=DIM, dtype="float16")
        self.cache = attn.PagedCache(pages=pages, page_size=self.size, device=pairs.device, **sizes)
        self.nodes = [self.cache.add() for _ in ends]
        self.ends, held = ends, [0] * len(ends)
        while waiting := [i for i, (_, end) in enumerate(ends) if held[i] < end]:
            i = int(random.choice(waiting))
            sequence, end = ends[i]
            count = min(end - held[i], int(random.choice([1, 7, 16, 100, 2048])))
            rows = slice(held[i], held[i] + count)
            change = self.cache.append(self.nodes[i], count)
            change.write(0, pairs.k[sequence][rows], pairs.v[sequence][rows])
            held[i] += count
        self.kernels = [pairs.kernel(self.size, planned) for planned in (False, True)]
        self.steps = []
        for rows in (24, 480):
            sequences = int(random.integers(8, 12))
            tokens = max(end for _, end in ends) + int(random.integers(0, 100))
            blocks = int(random.choice(BLOCKS))
            self.steps.append(
                self.cache.steps(
                    self.kernels[1], sequences=sequences, rows=rows, tokens=tokens, blocks=blocks
                )
            )

    def parts(self) -> tuple[list[int], list[Part]]:
        """Return nodes in random order, and rows of each."""
        random = self.pairs.random
        chosen = random.permutation(len(self.nodes))[: int(random.integers(1, 9))]
        parts = [Part(*self.ends[i], self.pairs.rows(*self.ends[i])) for i in chosen]
        return [self.nodes[i] for i in chosen], parts

    def run_plan(self) -> tuple[list[Part], numpy.ndarray, numpy.ndarray, str]:
        """Run a plan of the host."""
        nodes, parts = self.parts()
        random, kernel = self.pairs.random, self.kernels[0]
        batch = self.cache.batch([(node, part.rows) for node, part in zip(nodes, parts, strict=True)])
        options = dict(strategy=str(random.choice(STRATEGIES)), blocks=int(random.choice(BLOCKS)))
        q = self.pairs.queries(parts)
        out, lse = kernel.run(q, self.cache.layer(0), kernel.plan(batch, **options), return_lse=True)
        return parts, out, lse, f"pages of {self.size}, {options}"

    def run_steps(self) -> tuple[list[Part], numpy.ndarray, numpy.ndarray, str]:
        """Run a plan of the device, which the next launch makes again in the same memory."""
        nodes, parts = self.parts()
        count = sum(part.rows for part in parts)
        steps = next(steps for steps in self.steps if count <= steps.rows)
        steps.update([(node, part.rows) for node, part in zip(nodes, parts, strict=True)])
        q, out = (numpy.zeros((steps.rows, Q_HEADS, DIM), numpy.float16) for _ in range(2))
        q[:count] = self.pairs.queries(parts)
        lse = numpy.zeros((steps.rows, Q_HEADS), numpy.float32)
        self.kernels[1].run(q, self.cache.layer(0), steps.plan(), out=out, lse=lse)
        assert steps.fault == "", steps.fault
        return parts, out[:count], lse[:count], f"pages of {self.size}, steps of {steps.rows} rows"


@dataclass
class Pairs:
    """The sequences, and the bits of their rows alone."""

    see: str = "causal"
    numerics: str | None = "row"
    seed: int = 0
    schedule: str = "auto"
    counts: Counter = field(default_factory=Counter)
    differing: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        random = numpy.random.default_rng(1000)
        self.q, self.k, self.v = (
            [(random.standard_normal((length, heads, DIM)) * 1.5).astype(numpy.float16) for length in LENGTHS]
            for heads in (Q_HEADS, KV_HEADS, KV_HEADS)
        )
        self.random = numpy.random.default_rng(self.seed)
        self.alone: dict[tuple[int, int], tuple[bytes, bytes]] = {}
        self.options = dict(see=VISIBLE[self.see], return_lse=True, numerics=self.numerics)
        self.device, self.pages, self.left = None, None, 0

    def end(self, long: bool) -> tuple[int, int]:
        """Draw a sequence, and how many of its tokens there are."""
        found = [i for i, length in enumerate(LENGTHS) if (length > LONG) == long]
        sequence = int(self.random.choice(found))
        if long:
            return sequence, int(self.random.choice([end for end in ENDS if end <= LENGTHS[sequence]]))
        return sequence, int(self.random.integers(1, LENGTHS[sequence] + 1))

    def rows(self, sequence: int, end: int) -> int:
        most = 3 if LENGTHS[sequence] > LONG or self.random.random() < 0.7 else 60
        return int(self.random.integers(1, 1 + min(end, most)))

    def queries(self, parts: list[Part]) -> numpy.ndarray:
        return numpy.concatenate([self.q[part.sequence][part.end - part.rows : part.end] for part in parts])

    def kernel(self, page: int, planned: bool) -> attn.Kernel:
        sizes = dict(q_heads=Q_HEADS, kv_heads=KV_HEADS, head_dim=DIM, dtype="float16")
        spec = attn.Spec(
            **sizes,
            kv=[attn.Paged(page_size=page)],
            see=VISIBLE[self.see],
            device_plan=planned,
            numerics=self.numerics,
        )
        return attn.compile(spec, device=self.device, schedule=self.schedule)

    def of_alone(self, sequence: int, position: int) -> tuple[bytes, bytes]:
        """Return output and LSE of a row of a sequence that is computed alone: of a short one in one call, of a long one
        row by row."""
        if (sequence, position) not in self.alone:
            length = LENGTHS[sequence]
            first, end = (0, length) if length <= LONG else (position, position + 1)
            q, k, v = self.q[sequence][first:end], self.k[sequence][:end], self.v[sequence][:end]
            out, lse = attn.attend(q[None], k[None], v[None], **self.options)
            for i in range(end - first):
                self.alone[sequence, first + i] = out[0, i].tobytes(), lse[0, i].tobytes()
        return self.alone[sequence, position]

    def launch(self) -> None:
        """Run one random launch, and compare all of its pairs."""
        if self.left == 0:
            self.left = LAUNCHES
            shuffled = {
                "seed": int(self.random.integers(1 << 30)),
                "shuffle": bool(self.random.random() < 0.5),
            }
            self.device = _attn.Device.host(**shuffled)
            self.pages = Pages(self)
            self.counts["devices"] += 1
        self.left -= 1
        store = str(self.random.choice(["dense", "heads first", "packed", *["pages"] * 4, *["steps"] * 4]))
        if store == "pages":
            parts, out, lse, said = self.pages.run_plan()
        elif store == "steps":
            parts, out, lse, said = self.pages.run_steps()
        else:
            parts, out, lse, said = self.run_tensors(store)
        first = 0
        for part in parts:
            wrong = [
                position
                for i, position in enumerate(range(part.end - part.rows, part.end), first)
                if (out[i].tobytes(), lse[i].tobytes()) != self.of_alone(part.sequence, position)
            ]
            first += part.rows
            self.counts["pairs"] += 1
            self.counts["rows"] += part.rows
            self.counts[store] += 1
            if wrong:
                self.differing.append(f"{store}: {part} of {parts}: rows at {wrong}; {said}")
        self.counts["launches"] += 1

    def run_tensors(self, store: str) -> tuple[list[Part], numpy.ndarray, numpy.ndarray, str]:
        """Run attn.attend on dense tensors, or on packed ones."""
        ends = [self.end(long=self.random.random() < 0.02) for _ in range(int(self.random.integers(1, 9)))]
        parts = [Part(*each, self.rows(*each)) for each in ends]
        if store == "packed":
            k, v = (
                numpy.concatenate([x[part.sequence][: part.end] for part in parts]) for x in (self.k, self.v)
            )
            starts, starts_k = (
                numpy.cumsum([0, *(getattr(part, name) for part in parts)]).astype(numpy.int32)
                for name in ("rows", "end")
            )
            tables = dict(cu_seqlens=starts, cu_seqlens_k=starts_k)
            return parts, *attn.attend(self.queries(parts), k, v, **tables, **self.options), ""
        rows = min(part.rows for part in parts)
        parts = [Part(part.sequence, part.end, rows) for part in parts]
        longest = max(part.end for part in parts) + int(self.random.integers(0, 40))
        k, v = (numpy.zeros((len(parts), longest, KV_HEADS, DIM), numpy.float16) for _ in range(2))
        for i, part in enumerate(parts):
            k[i, : part.end], v[i, : part.end] = (x[part.sequence][: part.end] for x in (self.k, self.v))
        q = self.queries(parts).reshape(len(parts), rows, Q_HEADS, DIM)
        lengths = numpy.array([part.end for part in parts], numpy.int32)
        if store == "heads first":
            q, k, v = (numpy.ascontiguousarray(x.swapaxes(1, 2)) for x in (q, k, v))
            out, lse = attn.attend(q, k, v, kv_lengths=lengths, layout="bhsd", **self.options)
            out, lse = out.swapaxes(1, 2), lse.swapaxes(1, 2)
        else:
            out, lse = attn.attend(q, k, v, kv_lengths=lengths, **self.options)
        return parts, out.reshape(-1, Q_HEADS, DIM), lse.reshape(-1, Q_HEADS), ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--see", choices=[*VISIBLE], default="causal")
    parser.add_argument("--numerics", choices=["row", "none"], default="row")
    options = parser.parse_args()
    pairs = Pairs(options.see, None if options.numerics == "none" else "row", options.seed)
    start = time.monotonic()
    while pairs.counts["pairs"] < options.pairs and time.monotonic() - start < options.seconds:
        pairs.launch()
    seconds = time.monotonic() - start
    differ = f"{len(pairs.differing)} pairs differ"
    print(
        f"{dict(pairs.counts)}\n{differ}; {seconds:.0f} s, {pairs.counts['pairs'] / seconds:.0f} pairs a second"
    )
    for each in pairs.differing[:10]:
        print(" ", each)
    return 1 if pairs.differing else 0


if __name__ == "__main__":
    sys.exit(main())
