# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Full and streaming attention of one launch: the part `outputs` of `bench gpu`.

To find heads, every layer needs outputs of all heads with full attention, and with a sink and recent tokens; a launch
of the first alone is timed beside. Both read the same tensors, of one causal sequence. The sizes of sink and recent
tokens are those with which DuoAttention's published gates were found.
"""

from dataclasses import dataclass

from measuring.described import Described

SINK, RECENT = 128, 256
SHORT, LONG, SHORT_LIMIT, LONG_LIMIT = 4096, 16384, 1.15, 1.05  # From so many tokens, times as long at most.


@dataclass(frozen=True)
class OutputsPoint(Described):
    tokens: int
    q_heads: int = 32
    kv_heads: int = 8
    dim: int = 128
    device: str = "cuda"

    part = "outputs"

    @property
    def name(self):
        return f"{self.tokens} tokens, {self.q_heads}/{self.kv_heads} heads of {self.dim}"

    def seconds(self):
        """Estimate the seconds of a measurement."""
        return 3


def outputs_points(quick):
    points = [
        OutputsPoint(tokens, kv_heads=kv_heads)
        for kv_heads in (8, 32)
        for tokens in (SHORT, 8192, LONG, 32768)
    ]
    return points[:1] if quick else points


def outputs_runs(torch, point):
    """Return launches of planned kernels: of both outputs, and of the full one."""
    from measuring.report import import_attn

    attn = import_attn()
    from attn.heads.two_output_kernels import Streaming, TwoOutputRuns

    place = "cpu" if point.device == "host" else point.device
    q, k, v = (
        torch.randn(1, point.tokens, heads, point.dim, device=place, dtype=torch.bfloat16)
        for heads in (point.q_heads, point.kv_heads, point.kv_heads)
    )
    scale = point.dim**-0.5
    by_head = [x.transpose(1, 2) for x in (q, k, v)]
    both = TwoOutputRuns(*by_head, scale, Streaming(SINK, RECENT, 0)).prepare(*by_head)
    spec = attn.Spec(
        q_heads=point.q_heads,
        kv_heads=point.kv_heads,
        head_dim=point.dim,
        dtype="bfloat16",
        scale=scale,
        see=attn.causal(),
        kv=[attn.Dense()],
    )
    kernel, ends = attn.compile(spec, device=point.device), [0, point.tokens]
    plan = kernel.plan({"q": q[0], "kv.k": k, "kv.v": v, "q_start": ends, "kv.lengths": ends[1:]})
    return {"both": both, "full": lambda: kernel.run(q[0], (k, v), plan, return_lse=True)}


def measure_outputs(point, bench):
    """Measure a point; returns its row of the file."""
    torch = bench.contest.torch
    runs = outputs_runs(torch, point)
    both, full = runs["both"]()[0], runs["full"]()[0]
    torch.testing.assert_close(both, full, rtol=2e-2, atol=2e-2)
    times = bench.contest.timer.alone(runs)
    return {
        "key": point.key,
        "part": point.part,
        "name": point.name,
        "tokens": point.tokens,
        "attn": {"run_ms": times["both"]},
        "full_ms": times["full"],
        "longer": times["both"] / times["full"],
        "peers_ms": {},
        "declined": {},
    }


def outputs_line(row):
    """Format a row as text."""
    return (
        f"  {row['name']:<36}{row['attn']['run_ms']:>9.4f} ms both, {row['full_ms']:.4f} the full one alone  "
        f"x{row['longer']:.3f}"
    )


def outputs_limit(row):
    """Return how many times as long it may take; None without a limit."""
    if row["tokens"] <= SHORT:
        return SHORT_LIMIT
    return LONG_LIMIT if row["tokens"] >= LONG else None


def outputs_bars(row):
    limit = outputs_limit(row)
    return [] if limit is None else [(f"{limit} times as long at most", row["longer"] <= limit)]
