# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Heads of 512 features, as Gemma 4's global layers have them: the part `wide` of `bench gpu`.

A prompt's figure is its TFLOP/s as a share of those of heads of 256, which run in the same process. Decoding reads pages; its
figure is bytes of keys and values per second, as a share of what copies reach.
"""

from dataclasses import dataclass

from measuring.described import Described
from measuring.points import Point
from measuring.report import Problem

DIM, NARROW = 512, 256
RATE, SHARE = 0.75, 0.90  # Bars: of the TFLOP/s of heads of 256; of copying.
PEERS = ("cudnn", "flash", "flex")


@dataclass(frozen=True)
class WidePoint(Described):
    tokens: int
    batch: int = 1
    rows: int | None = None  # Rows of each sequence; None: as many as tokens.
    see: str = "causal"
    heads: tuple = (16, 4)
    store: str = "dense"

    part = "wide"

    @property
    def name(self):
        q_heads, kv_heads = self.heads
        kind = "decode" if self.rows else self.see
        return f"{q_heads}/{kv_heads} {kind}, {self.batch} x {self.tokens}"

    def of_dim(self, dim):
        problem = Problem(*self.heads, dim, dim, "bf16", self.store, self.see)
        return Point(self.part, f"d{dim} {self.name}", problem, (self.tokens,) * self.batch, self.rows)

    def seconds(self):
        """Estimate the seconds of a measurement."""
        return 20 if self.rows is None else 12


def wide_points(quick):
    pages = {"rows": 1, "store": "paged<64>"}
    points = [
        WidePoint(8192),
        WidePoint(8192, see="all"),
        WidePoint(8192, heads=(32, 8)),
        WidePoint(2048, batch=8),
        WidePoint(8192, 16, **pages),
        WidePoint(4096, 64, **pages),
        WidePoint(65536, **pages),
    ]
    return [points[0], points[4]] if quick else points


def measure_wide(point, bench):
    """Measure a point; returns its row of the file."""
    wide = point.of_dim(DIM)
    measured = bench.contest(wide, PEERS if point.rows is None else ())
    alone, sustained = dict(measured.alone), measured.sustained
    ms = alone.pop("attn")
    row = {
        "key": point.key,
        "part": point.part,
        "name": point.name,
        "rows": wide.row_count,
        "attn": {"run_ms": ms, **measured.about},
        "tflops": wide.flops() / ms / 1e9,
        "sustained_ms": sustained,
        "peers_ms": alone,
        "ratio_to_best_peer": min(alone.values()) / ms if alone else None,
        "judge": measured.judge,
        "difference": measured.difference,
        "declined": measured.declined,
    }
    if point.rows is not None:
        copies = bench.results.session["copy_bytes_per_second"]
        return row | {
            "kv_bytes": wide.kv_bytes(),
            "copy_share": wide.kv_bytes() / ms * 1e3 / copies,
            "sustained_copy_share": wide.kv_bytes() / sustained["attn"] * 1e3 / copies,
        }
    half = point.of_dim(NARROW)
    narrow, times = bench.contest(half, ()), wide.flops() / half.flops()
    return row | {
        "of_narrow": times * narrow.alone["attn"] / ms,
        "sustained_of_narrow": times * narrow.sustained["attn"] / sustained["attn"],
    }


def wide_line(row):
    """Format a row as text."""
    text = f"  {row['name']:<26}{row['attn']['run_ms']:>9.4f} ms{row['tflops']:>6.0f} TFLOP/s"
    if "copy_share" in row:
        return text + f"{row['copy_share']:>6.2f} of copying, sustained {row['sustained_copy_share']:.2f}"
    text += f"{row['of_narrow']:>6.2f} of d{NARROW}'s, sustained {row['sustained_of_narrow']:.2f}"
    return text + "".join(
        f"  {name} x{ms / row['attn']['run_ms']:.2f}" for name, ms in row["peers_ms"].items()
    )


def wide_bars(row):
    """Return the bars of a point."""
    if "copy_share" in row:
        return [(f"{SHARE:.2f} of copying", row["copy_share"] >= SHARE)]
    found = [(f"{RATE:.2f} of the rate of heads of {NARROW}", row["of_narrow"] >= RATE)]
    if row["peers_ms"]:
        found.append(("as fast as the best peer", row["ratio_to_best_peer"] >= 1))
    return found
