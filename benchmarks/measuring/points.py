# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Points of `bench gpu`: an attention, its sizes, and the work it holds.

Work is *visited* work: the pairs of a query row and a token that the mask lets through, whatever a kernel does
to find them. A feature that skips less than it could is then as slow here as it is for its user.
"""

from dataclasses import dataclass

from measuring.report import Problem


class Region:
    """Tokens that a row sees, as a function of its position; attn.kv calls it a visibility."""

    def __init__(self, intervals):
        self.intervals = intervals  # Position -> [(begin, end)], sorted, disjoint.

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
    """Return the region of a visibility's text."""
    names = {
        "all": Region(lambda q: [(0, 1 << 60)]),
        "causal": Region(lambda q: [(0, q + 1)]),
        "window": lambda w: Region(lambda q: [(q - w + 1, q + 1)]),
        "recent": lambda w: Region(lambda q: [(q - w + 1, q + 1)]),
        "sink": lambda n: Region(lambda q: [(0, n)]),
    }
    return eval(see, {"__builtins__": {}}, names)  # The texts are from this file.


def visible_pairs(see, rows, tokens):
    """Return the number of pairs of a row and a token that it sees; the rows are the last of their tokens."""
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
    lengths: tuple  # Tokens of each sequence.
    rows: int | None = None  # Rows of each sequence; None: as many as tokens.

    @property
    def key(self):
        return f"{self.part}: {self.name}"

    @property
    def row_count(self):
        return sum(self.lengths) if self.rows is None else self.rows * len(self.lengths)

    def flops(self):
        """Return the FLOPs: two products of every visible pair and head."""
        pairs = sum(visible_pairs(self.problem.see, self.rows or n, n) for n in self.lengths)
        return 2 * pairs * self.problem.q_heads * (self.problem.dim + self.problem.value_dim)

    def kv_bytes(self):
        return 2 * sum(self.lengths) * self.problem.kv_heads * (self.problem.dim + self.problem.value_dim)

    def query_bytes(self):
        return 2 * self.row_count * self.problem.q_heads * self.problem.dim

    def dims(self, folder):
        """Return options of attn-run, for a test. Ragged rows and tokens come from one column, so that they agree."""
        options = [f"--dim=batch={len(self.lengths)}"]
        if len(set(self.lengths)) == 1:
            tokens = str(self.lengths[0])
        else:
            (folder / "lengths.csv").write_text("tokens\n" + "".join(f"{n}\n" for n in self.lengths))
            tokens = f"@{folder / 'lengths.csv'}:tokens"
        rows = tokens if self.rows is None else self.rows
        return [*options, f"--dim=q_len={rows}", f"--dim=kv_len={tokens}"]
