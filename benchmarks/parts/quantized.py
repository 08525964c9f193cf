# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decoding over quantized keys and values: the part `quantized` of `bench gpu`.

A format against attn's bf16 on the same tokens, and against FlashInfer's decoding of e4m3, in one process and
alternating. The figure is the speed-up, beside the ratio of bytes, including metadata. A format is measured with 512
MiB of its own bytes, so that bandwidth limits both sides, and with 512 MiB of bf16. Beyond that: groups of 1 to 16
query heads, batches of 1 to 256, ragged lengths, pages of 16 to 256, pages that any head may take.
"""

from dataclasses import dataclass, replace

from measuring.report import Problem

MANY_BYTES = 512 << 20
# The share of the ratio of bytes, for a format without a bar of its own.
SHARE = 0.9


@dataclass(frozen=True)
class Coding:
    """The format of keys or values: the type of an element, and the elements that share metadata."""

    code: str
    per: str
    by: str | None = None
    """The type of the scales of blocks."""

    def type(self):
        return f"!attn.quantized<{self.code}, per = {self.per}{f', scale = {self.by}' if self.by else ''}>"

    @property
    def bits(self):
        return int(self.code[1:]) if self.code.startswith("i") else int(self.code[1])

    @property
    def has_tensor_scale(self):
        return self.by == "f8E4M3FN"

    @property
    def group(self):
        """Return the features that share a scale and a zero point; None for floats."""
        return int(self.per) if self.code.startswith("i") else None

    def line_bytes(self, dim):
        """Return the bytes of each line's metadata; scales of blocks come in fours."""
        if self.by:
            return -(-dim // int(self.per) // 4) * 4
        return 4 * dim // self.group if self.group else 4 if self.per == "token" else 0

    def row_bytes(self, dim):
        return dim * self.bits // 8 + self.line_bytes(dim)


@dataclass(frozen=True)
class Format:
    """`bar`: times as fast as bf16 from MANY_BYTES of its own on; `small_bar`: from so many bytes of bf16 on."""

    name: str
    key: Coding
    value: Coding
    bar: float | None = None
    small_bar: float | None = None


def floats(per, bar):
    coding = Coding("f8E4M3FN", per)
    return Format(f"e4m3 per {per}", coding, coding, bar)


def integers(key, value, bar=None, small_bar=None, group=128):
    name = f"K{key}V{value}" + (f" per {group}" if group != 128 else "")
    return Format(name, Coding(f"i{key}", str(group)), Coding(f"i{value}", str(group)), bar, small_bar)


def blocks(name, code, per, by):
    coding = Coding(code, str(per), by)
    return Format(name, coding, coding)


FORMATS = {
    format.name: format
    for format in (
        floats("tensor", 1.8),
        floats("head", 1.8),
        floats("token", 1.74),
        integers(8, 8, 1.74, 1.7),
        integers(8, 4, 2.3, 2.1),
        integers(4, 4),
        integers(4, 4, group=32),
        integers(4, 2, 4.4, 3.5),
        blocks("mxfp8", "f8E4M3FN", 32, "f8E8M0FNU"),
        blocks("mxfp4", "f4E2M1FN", 32, "f8E8M0FNU"),
        blocks("nvfp4", "f4E2M1FN", 16, "f8E4M3FN"),
    )
}
MAIN = ("e4m3 per head", "K8V8", "K8V4", "K4V2")  # These are measured in every shape.


@dataclass(frozen=True)
class QuantizedPoint:
    format: Format
    shape: str  # The unusual property.
    q_heads: int
    lengths: tuple
    page: int = 16
    kv_heads: int = 8
    dim: int = 128
    unified: bool = False  # Pages that any head may take; those of bf16 are unchanged.

    part = "quantized"
    rows = 1  # Rows of each sequence.

    @property
    def name(self):
        return f"{self.format.name}, {self.shape}"

    @property
    def key(self):
        return f"{self.part}: {self.name}"

    @property
    def problem(self):
        coded = {"key": self.format.key.type(), "value": self.format.value.type()}
        store = {"store": f"unified<{self.page}>"} if self.unified else {}
        return replace(self.plain().problem, **coded, **store)

    def plain(self):
        """Return the same point in 16 bits."""
        from measuring.points import Point

        sizes = self.q_heads, self.kv_heads, self.dim, self.dim
        return Point(self.part, self.name, Problem(*sizes, store=f"paged<{self.page}>"), self.lengths, 1)

    def problems(self):
        return {self.problem, self.plain().problem}

    def kv_bytes(self):
        """Return the bytes of keys and values, including metadata."""
        rows = self.format.key.row_bytes(self.dim) + self.format.value.row_bytes(self.dim)
        return sum(self.lengths) * self.kv_heads * rows

    def plain_bytes(self):
        return 4 * sum(self.lengths) * self.kv_heads * self.dim

    def seconds(self):
        """Estimate the seconds of a measurement: compiling twice, making tensors, runs of three sides."""
        return 5 + 3 * self.plain_bytes() / 1e9


def tokens_for(format, kv_heads=8, dim=128):
    """Return the number of tokens with MANY_BYTES of quantized values and metadata."""
    return -(-MANY_BYTES // (kv_heads * (format.key.row_bytes(dim) + format.value.row_bytes(dim))))


def ragged(tokens, batch):
    """Return lengths from a quarter to seven quarters of their mean, in no order, no two alike."""
    mean = -(-tokens // batch)
    return tuple(mean // 4 + 3 * mean * (i * 7 % batch) // (2 * (batch - 1)) + 1 for i in range(batch))


def shapes_of(format):
    """Return points from MANY_BYTES of the format's own on, by what is unusual in their shapes."""
    tokens = tokens_for(format)

    def point(shape, lengths, q_heads=32, page=16, unified=False):
        return QuantizedPoint(format, shape, q_heads, lengths, page, unified=unified)

    def batch(count):
        """Return equal lengths, in whole pages."""
        return (-(-tokens // (16 * count)) * 16,) * count

    eight_thousand = (8192,) * -(-tokens // 8192)
    found = {
        "usual": point(f"{len(eight_thousand)} x 8192", eight_thousand),
        **{f"group {n}": point(f"{8 * n}/8 heads", eight_thousand, 8 * n) for n in (1, 8, 16)},
        **{f"batch {n}": point(f"{n} x {batch(n)[0]}", batch(n)) for n in (1, 4, 256)},
        "ragged": point("32 ragged", ragged(tokens, 32)),
        **{f"page {n}": point(f"pages of {n}", eight_thousand, page=n) for n in (64, 256)},
    }
    if format.key.group:
        found["unified"] = point("unified pages of 32", eight_thousand, page=32, unified=True)
    return found


def quantized_points(quick):
    points = []
    for format in FORMATS.values():
        shapes = shapes_of(format)
        if quick:
            points += [shapes["usual"]] if format.name in MAIN else []
            continue
        points.append(QuantizedPoint(format, "16 x 8192", 32, (8192,) * 16))
        points += shapes.values() if format.name in MAIN else [shapes["usual"]]
    return points


BASELINE, PEER = "attn, bf16", "flashinfer, fp8"


def measure_quantized(point, bench):
    """Measure a point; returns its row of the file."""
    measured = bench.contest(point, (BASELINE, PEER))
    if BASELINE in measured.declined:
        raise RuntimeError(f"{point.key}: {BASELINE}: {measured.declined[BASELINE]}")
    peers = dict(measured.alone)
    ours, plain = peers.pop("attn"), peers.pop(BASELINE, None)
    rate = point.kv_bytes() / ours * 1e3
    copying = bench.results.session["copy_bytes_per_second"]
    row = {
        "key": point.key,
        "part": point.part,
        "name": point.name,
        "format": point.format.name,
        "heads": [point.q_heads, point.kv_heads],
        "dim": point.dim,
        "store": point.problem.store,
        "lengths": list(point.lengths),
        "kv_bytes": point.kv_bytes(),
        "byte_ratio": point.plain_bytes() / point.kv_bytes(),
        "attn": {"run_ms": ours, **measured.about},
        "bytes_per_second": rate,
        "copy_share": rate / copying,
        "bf16_ms": plain,
        "bf16_copy_share": point.plain_bytes() / plain * 1e3 / copying if plain else None,
        "over_bf16": plain / ours if plain else None,
        "bar": bar_of(point),
        "peers_ms": peers,
        "judge": measured.judge,
        "difference": measured.difference,
        "declined": measured.declined,
    }
    if peers:
        row["ratio_to_best_peer"] = min(peers.values()) / ours
    return row


def bar_of(point):
    """Return the format's bar there, times as fast as bf16; None if it has none."""
    if point.kv_bytes() >= MANY_BYTES:
        return point.format.bar or SHARE * point.plain_bytes() / point.kv_bytes()
    return point.format.small_bar


def quantized_line(row):
    """Format a row as text."""
    text = f"  {row['name']:<34}{row['attn']['run_ms']:>9.4f} ms{row['bytes_per_second'] / 1e9:>7.0f} GB/s"
    if row["over_bf16"]:
        share = row["over_bf16"] / row["byte_ratio"]
        text += f"  x{row['over_bf16']:.2f} of bf16, bytes x{row['byte_ratio']:.2f} ({share:.2f})"
    for name, milliseconds in row["peers_ms"].items():
        text += f"  {name} {milliseconds:.4f}"
    return text


def quantized_bars(row):
    found = []
    if row["bar"] and row["over_bf16"]:
        found.append((f"{row['bar']:.2f} times as fast as bf16", row["over_bf16"] >= row["bar"]))
    if row["peers_ms"]:
        found.append(("faster than FlashInfer's fp8", row["ratio_to_best_peer"] > 1))
    return found
