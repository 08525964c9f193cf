# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The price of a numerics contract: the part `row` of `bench gpu`.

Kernels under `attn.numerics = "row"` and those of the default mode read the same tensors, alternating, alone and back
to back. Each point also compares bits under the contract: of rows in this launch, in one prefill, in a chunk of their
own, and one at a time, from pages and from dense tensors.
"""

from dataclasses import dataclass

from measuring.described import Described
from measuring.report import Problem

SIDES = DEFAULT, ROW = "default", "row"
BARS = {"decode": 1.03, "prefill": 1.05, "training": 1.05, "chunk": 1.05, "window": 1.10}
WINDOW = 1024


@dataclass(frozen=True)
class RowPoint(Described):
    """`rows`: of each sequence; None: as many as it has tokens."""

    kind: str
    lengths: tuple
    rows: int | None
    q_heads: int = 32
    kv_heads: int = 8
    dim: int = 128
    device: str = "cuda"

    part = "row"

    @property
    def name(self):
        rows = f", {self.rows} rows" if self.rows and self.rows > 1 else ""
        sizes = f"{len(self.lengths)} x {self.lengths[0]}{rows}"
        return f"{self.kind} {sizes}, {self.q_heads}/{self.kv_heads} of {self.dim}"

    def plain(self):
        from measuring.points import Point

        see = f"window({WINDOW})" if self.kind == "window" else "causal"
        store = "packed" if self.kind == "training" else "paged<16>"
        heads = self.q_heads, self.kv_heads, self.dim, self.dim
        return Point(self.part, self.name, Problem(*heads, see=see, store=store), self.lengths, self.rows)

    def seconds(self):
        """Estimate the seconds of a measurement."""
        return 12


def row_points(quick):
    decode = ((8192,) * 16, (4096,) * 64, (65_536,), (1024,) * 256)
    points = [
        *(RowPoint("decode", lengths, 1) for lengths in decode),
        *(RowPoint("decode", lengths, 1, 32, 32) for lengths in decode[:2]),
        *(RowPoint("decode", lengths, 1, 12, 12, 64) for lengths in decode[:2]),
        RowPoint("prefill", (8192,), None),
        RowPoint("prefill", (4096,) * 4, None),
        RowPoint("chunk", (34_816,), 2048),
        RowPoint("window", (34_816,), 2048),
        RowPoint("training", (8192,) * 2, None),
    ]
    return points[::4] if quick else points


def under_contract(text):
    """Return the text of a description with the contract "row"."""
    head, _, body = text.rpartition(") {\n")
    return head + ') attributes {attn.numerics = "row"} {\n' + body


def sides(torch, point):
    """Return the run of each side, by name, after a comparison of bits."""
    from measuring.report import import_attn
    from measuring.tensors import Tensors, difference

    attn = import_attn()
    tensors = Tensors(torch, point.plain(), "cpu" if point.device == "host" else point.device)
    text = point.plain().problem.text()
    found = {}
    for name, each in ((DEFAULT, text), (ROW, under_contract(text))):
        kernel = attn.compile(each, device=point.device)
        plan = kernel.plan(tensors.batch())
        out = torch.empty_like(tensors.q)

        def run(kernel=kernel, plan=plan, out=out):
            kernel.run(tensors.q, tensors.operands(), plan, out=out)

        run()
        found[name] = run, out
    if (far := difference(found[ROW][1], found[DEFAULT][1])) > 3e-2:
        raise RuntimeError(f"{point.key}: the results of both sides differ by {far:.3g}")
    compared = compare_bits(torch, attn, point, tensors, found[ROW][1])
    return {name: run for name, (run, _) in found.items()}, compared


def compare_bits(torch, attn, point, tensors, out):
    """Compare rows of the first sequence under the contract; returns the number of comparisons. RuntimeError."""
    plain, tokens, compared = point.plain(), point.lengths[0], 0
    rows = tensors.rows[0]
    q, k, v = tensors.q[:rows], tensors.k[:tokens], tensors.v[:tokens]
    for store in ("dense", "paged<16>", "paged<64>"):
        problem = Problem(
            point.q_heads, point.kv_heads, point.dim, point.dim, see=plain.problem.see, store=store
        )
        kernel = attn.compile(under_contract(problem.text()), device=point.device)
        first = tokens - rows
        middle = first + rows // 2
        spans = {
            (first, tokens),
            (max(first, tokens - 300), tokens),
            (tokens - 1, tokens),
            (middle, middle + 1),
        }
        for begin, end in sorted(spans):
            part = RowPoint(
                point.kind, (end,), end - begin, point.q_heads, point.kv_heads, point.dim, point.device
            )
            given = part_tensors(torch, part, problem, q[begin - first : end - first], k[:end], v[:end])
            found = kernel.run(given.q, given.operands(), kernel.plan(given.batch()))
            if not torch.equal(found, out[begin - first : end - first]):
                where = f"rows {begin} to {end} from {store}"
                raise RuntimeError(f"{point.key}: {where} have other bits than in the launch of the point")
            compared += end - begin
    return compared


def part_tensors(torch, part, problem, q, k, v):
    """Return the tensors of rows of one sequence that see these keys and values."""
    from measuring.points import Point
    from measuring.tensors import Tensors

    point = Point(part.part, part.name, problem, part.lengths, part.rows)
    made = Tensors(torch, point, q.device, numbers=(k, v))
    made.q = q
    return made


def measure_row(point, bench):
    """Measure a point; returns its row of the file."""
    timer = bench.contest.timer
    runs, compared = sides(bench.contest.torch, point)
    alone, declined = timer.alone(runs), {}
    sustained = timer.sustained(runs, alone, runs.get, declined)
    return {
        "key": point.key,
        "part": point.part,
        "name": point.name,
        "kind": point.kind,
        "attn": {"run_ms": alone[ROW]},
        "alone_ms": alone,
        "sustained_ms": sustained,
        "ratio": alone[ROW] / alone[DEFAULT],
        "sustained_ratio": sustained[ROW] / sustained[DEFAULT],
        "rows_compared": compared,
        "peers_ms": {},
        "declined": {name: str(error) for name, error in declined.items()},
    }


def row_line(row):
    """Format a row as text."""
    alone, sustained = row["alone_ms"], row["sustained_ms"]
    text = f"  {row['name']:<40}{alone[ROW]:>9.4f} ms, default {alone[DEFAULT]:.4f}  x{row['ratio']:.3f}"
    text += f"   sustained {sustained[ROW]:.4f}, {sustained[DEFAULT]:.4f}  x{row['sustained_ratio']:.3f}"
    return text + f"   {row['rows_compared']} rows equal"


def row_bars(row):
    bar = BARS[row["kind"]]
    worse = max(row["ratio"], row["sustained_ratio"])
    return [(f"{row['kind']}: at most {bar} times the default", worse <= bar)]
