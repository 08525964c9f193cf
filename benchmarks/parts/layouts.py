# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors in the layouts of engines: the part `layouts` of `bench gpu`.

One kernel and one plan read the same numbers from pools of every layout, and from parts of a fused projection,
alternating. The figure is how much longer that takes than from tensors of their own, tokens before heads.
"""

import math
from dataclasses import dataclass

from measuring.described import Described
from measuring.report import Problem

PAGES = "tokens first"  # [pages, page, heads, dim], keys and values apart: the baseline.
OWN = "tensors of their own"
SLOWER = 1.01  # Times as long, at most.


@dataclass(frozen=True)
class LayoutPoint(Described):
    """`rows`: of each sequence; None: as many as it has tokens."""

    kind: str
    lengths: tuple
    rows: int | None
    store: str = "paged<16>"
    q_heads: int = 32
    kv_heads: int = 8
    dim: int = 128
    device: str = "cuda"

    part = "layouts"

    @property
    def name(self):
        store = "packed" if self.store == "packed" else f"pages of {self.store[6:-1]}"
        return f"{self.kind}, {len(self.lengths)} x {self.lengths[0]}, {store}"

    def plain(self):
        from measuring.points import Point

        see = "all" if self.rows == 1 else "causal"
        problem = Problem(self.q_heads, self.kv_heads, self.dim, self.dim, see=see, store=self.store)
        return Point(self.part, self.name, problem, self.lengths, self.rows)

    def seconds(self):
        """Estimate the seconds of a measurement."""
        return 8


def layout_points(quick):
    points = [
        LayoutPoint("decode", (8192,) * 16, 1),
        LayoutPoint("decode", (8192,) * 16, 1, "paged<64>"),
        LayoutPoint("decode", (1024,) * 128, 1),
        LayoutPoint("prefill", (4096,) * 4, None),
        LayoutPoint("prefill", (4096,) * 4, None, "paged<64>"),
        LayoutPoint("prefill", (4096,) * 4, None, "packed"),
    ]
    return points[::3] if quick else points


def pools(torch, k, v):
    """Return keys and values [pages, page, heads, dim] by layout, each in memory of its own, and none a copy of others."""
    pages, page, heads, dim = k.shape

    def filled(shape, keys, values):
        pool = k.new_empty(shape)
        parts = keys(pool), values(pool)
        parts[0].copy_(k)
        parts[1].copy_(v)
        return parts

    return {
        PAGES: (k, v),
        "heads first": filled(
            (2, pages, heads, page, dim), lambda p: p[0].transpose(1, 2), lambda p: p[1].transpose(1, 2)
        ),
        "keys beside values": filled((pages, 2, page, heads, dim), lambda p: p[:, 0], lambda p: p[:, 1]),
        "halves of rows": filled(
            (pages, heads, page, 2 * dim),
            lambda p: p[..., :dim].transpose(1, 2),
            lambda p: p[..., dim:].transpose(1, 2),
        ),
        "two layers a page": filled(
            (pages, 2, 2, page, heads, dim), lambda p: p[:, 1, 0], lambda p: p[:, 1, 1]
        ),
    }


def fused(torch, q, k, v):
    """Return parts of one projection [tokens, heads of all, dim]."""
    whole = torch.cat([q, k, v], dim=1)
    return whole.split([q.shape[1], k.shape[1], v.shape[1]], dim=1)


def sides(torch, point):
    """Return runs by layout, and their results; all have the first one's bits."""
    from measuring.report import import_attn
    from measuring.tensors import Tensors

    attn = import_attn()
    tensors = Tensors(torch, point.plain(), "cpu" if point.device == "host" else point.device)
    kernel = attn.compile(point.plain().problem.text(), device=point.device)
    plan = kernel.plan(tensors.batch())
    given = {}
    if point.store == "packed":
        q, *kv = fused(torch, tensors.q, tensors.k, tensors.v)
        given = {OWN: (tensors.q, tensors.operands()), "parts of a projection": (q, tuple(kv))}
    else:
        given = {name: (tensors.q, pool) for name, pool in pools(torch, *tensors.pages).items()}
    found = {}
    for name, (q, operands) in given.items():
        out = torch.empty_like(tensors.q)
        run = lambda q=q, operands=operands, out=out: kernel.run(q, operands, plan, out=out)  # noqa: E731
        run()
        found[name] = run, out
    first = next(iter(found.values()))[1]
    for name, (_, out) in found.items():
        if not torch.equal(out, first):
            raise RuntimeError(f"{point.key}: {name}: other bits than {next(iter(found))}")
    return {name: run for name, (run, _) in found.items()}


def measure_layouts(point, bench):
    """Measure a point; returns its row of the file."""
    times = bench.contest.timer.alone(sides(bench.contest.torch, point))
    base = next(iter(times))
    ours = times[base]
    return {
        "key": point.key,
        "part": point.part,
        "name": point.name,
        "attn": {"run_ms": ours},
        "layouts_ms": {name: ms for name, ms in times.items() if name != base},
        "slower": max((ms / ours for ms in times.values()), default=math.nan),
        "peers_ms": {},
        "declined": {},
    }


def layouts_line(row):
    """Format a row as text."""
    text = f"  {row['name']:<36}{row['attn']['run_ms']:>9.4f} ms"
    return text + "".join(
        f"  {name} x{ms / row['attn']['run_ms']:.3f}" for name, ms in row["layouts_ms"].items()
    )


def layouts_bars(row):
    return [("no layout 1 % slower", row["slower"] <= SLOWER)]
