# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Latent attention: the part `mla` of `bench gpu`.

Decoding over pages of 576 features, of which the first 512 are the values: one latent head, 128 query heads or 16 (a
share of eight GPUs), 1 or 2 rows a sequence. FlashInfer's wrapper for MLA reads copies of the same numbers, latents
and rotated features apart. The figures are bytes of latents per second, beside copying, and TFLOP/s. Latents in e4m3 with a
scale of the tensor are timed beside the same numbers in bf16.
"""

from dataclasses import dataclass

from measuring.described import Described

LATENT, ROTATED = 512, 64
PAGE, SMALL_PAGE = 64, 16  # Tokens: of FlashMLA's pages, and of vLLM's by default.
SCALE = (128 + 64) ** -0.5  # The expanded form has 128 features without a position, and 64 rotated ones.
BF16 = "bf16"
DIFFERENCE = 0.03  # The most from the definition in bf16, as a share of the largest number of a row and head.
SHARE, TFLOPS, TFLOPS_AT = 0.85, 600, (128, 128, 8192)  # Bars: of copying with 16 heads; at one point.
OVER_BF16 = 1.6  # Bar of latents in e4m3 with 16 heads.


@dataclass(frozen=True)
class LatentPoint(Described):
    batch: int
    tokens: int
    q_heads: int
    rows: int = 1
    e4m3: bool = False
    page: int = PAGE
    device: str = "cuda"

    part = "mla"

    @property
    def name(self):
        rows = f", {self.rows} rows each" if self.rows > 1 else ""
        pages = f", pages of {self.page}" if self.page != PAGE else ""
        e4m3 = ", e4m3" if self.e4m3 else ""
        return f"{self.q_heads} heads, {self.batch} x {self.tokens}{rows}{pages}{e4m3}"

    def latent_bytes(self):
        return self.batch * self.tokens * (LATENT + ROTATED) * (1 if self.e4m3 else 2)

    def flops(self):
        pairs = self.batch * (self.rows * self.tokens - self.rows * (self.rows - 1) // 2)
        return 2 * pairs * self.q_heads * (2 * LATENT + ROTATED)

    def seconds(self):
        """Estimate the seconds of a measurement."""
        return 6


def latent_points(quick):
    shapes = ((128, 4096), (128, 8192), (32, 8192), (1, 65536))
    points = [LatentPoint(batch, tokens, heads) for heads in (128, 16) for batch, tokens in shapes]
    points.append(LatentPoint(128, 8192, 128, rows=2))
    points += [LatentPoint(128, 8192, heads, page=SMALL_PAGE) for heads in (128, 16)]
    points += [
        LatentPoint(batch, tokens, heads, e4m3=True) for heads in (16, 128) for batch, tokens in shapes
    ]
    return [points[1], points[5], points[12]] if quick else points


class Latents:
    """Random queries and pages of a point, in an order of their own."""

    def __init__(self, torch, point):
        self.torch, self.point = torch, point
        device = "cpu" if point.device == "host" else point.device
        random = torch.Generator(device).manual_seed(0)

        def normal(*shape):
            return torch.randn(*shape, generator=random, device=device, dtype=torch.float32).bfloat16()

        each = -(-point.tokens // point.page)
        self.q = normal(point.batch * point.rows, point.q_heads, LATENT + ROTATED)
        self.pages, self.codes = normal(point.batch * each, point.page, 1, LATENT + ROTATED), None
        if point.e4m3:
            self.codes = self.pages.to(torch.float8_e4m3fn)
            self.pages = self.codes.bfloat16()
        order = torch.randperm(point.batch * each, generator=torch.Generator().manual_seed(1))
        self.table = order.to(torch.int32).reshape(point.batch, each)

    def definition(self, sequence):
        """Compute the rows of one sequence in float64: [rows, heads, 512]."""
        torch, point = self.torch, self.point
        latents = self.pages[self.table[sequence].long().to(self.q.device)].reshape(-1, LATENT + ROTATED)
        latents = latents[: point.tokens].double()
        rows = self.q[sequence * point.rows : (sequence + 1) * point.rows].double()
        scores = torch.einsum("rhd,td->rht", rows, latents) * SCALE
        ends = torch.arange(point.tokens - point.rows, point.tokens, device=self.q.device)
        hidden = torch.arange(point.tokens, device=self.q.device)[None] > ends[:, None]
        weights = scores.masked_fill(hidden[:, None], float("-inf")).softmax(-1)
        return torch.einsum("rht,td->rhd", weights, latents[:, :LATENT])


def attn_side(torch, given, codes=None):
    """Return attn's run over bf16 or over codes, a function that returns a run to record, its output, and facts about it."""
    from measuring.report import import_attn

    attn, point = import_attn(), given.point
    format = {} if codes is None else {"key": "fp8_e4m3", "key_scales": "tensor"}
    store = attn.Paged(page_size=point.page, value=attn.first(LATENT), **format)
    operands = (given.pages,) if codes is None else (codes, given.q.new_ones(1, dtype=torch.float32))
    sizes = dict(q_heads=point.q_heads, kv_heads=1, head_dim=LATENT + ROTATED, dtype="bfloat16")
    spec = attn.Spec(**sizes, kv=[store], see=attn.causal(), scale=SCALE)
    kernel = attn.compile(spec, device=point.device)
    batch = {
        "q": given.q,
        **dict(zip(("kv.k_pages", "kv.k_scales"), operands, strict=False)),
        "q_start": torch.arange(0, len(given.q) + 1, point.rows, dtype=torch.int32).numpy(),
        "kv.lengths": torch.full((point.batch,), point.tokens, dtype=torch.int32).numpy(),
        "kv.block_table": given.table.numpy(),
    }
    plan = kernel.plan(batch)
    out = given.q.new_empty(len(given.q), point.q_heads, LATENT)
    stats = plan.stats
    name = kernel.manifest["kernels"][stats["kernel"]]["name"]
    about = {"kernel": name, "blocks": stats["blocks"], "cuts": stats["cuts"], "balance": stats["balance"]}

    def run_of(plan):
        return lambda: kernel.run(given.q, operands, plan, out=out)

    def record():
        fixed = kernel.plan(batch)
        fixed.fix()
        return run_of(fixed)

    return run_of(plan), record, out, about


def flashinfer_side(torch, given):
    """Return FlashInfer's run and its output."""
    from flashinfer.mla import BatchMLAPagedAttentionWrapper

    point, each = given.point, given.table.shape[1]
    wrapper = BatchMLAPagedAttentionWrapper(torch.empty(128 << 20, dtype=torch.uint8, device=given.q.device))
    on_device = {"device": given.q.device, "dtype": torch.int32}
    wrapper.plan(
        torch.arange(0, len(given.q) + 1, point.rows, **on_device),
        torch.arange(0, point.batch * each + 1, each, **on_device),
        given.table.flatten().to(given.q.device),
        torch.full((point.batch,), point.tokens, **on_device),
        point.q_heads,
        LATENT,
        ROTATED,
        point.page,
        True,
        SCALE,
        given.q.dtype,
        given.q.dtype,
    )
    queries = [part.contiguous() for part in given.q.split([LATENT, ROTATED], dim=-1)]
    pages = [part.contiguous() for part in given.pages[:, :, 0].split([LATENT, ROTATED], dim=-1)]
    out = given.q.new_empty(len(given.q), point.q_heads, LATENT)
    return lambda: wrapper.run(*queries, *pages, out=out), out


def distance(out, given):
    """Return the largest difference of the first and the last sequence from the definition, relative to the largest
    number of a row and head."""
    found = 0.0
    for sequence in {0, given.point.batch - 1}:
        expected = given.definition(sequence)
        rows = out[sequence * given.point.rows : (sequence + 1) * given.point.rows].double()
        found = max(
            found, float(((rows - expected).abs().amax(-1) / expected.abs().amax(-1).clamp_min(1e-30)).max())
        )
    return found


def measure_latent(point, bench):
    """Measure a point; returns its row of the file."""
    torch, timer = bench.contest.torch, bench.contest.timer
    given, declined = Latents(torch, point), {}
    run, record, out, about = attn_side(torch, given, given.codes)
    run()
    found = distance(out, given)
    if not found <= DIFFERENCE:
        raise RuntimeError(f"{point.key}: {found:.3f} from the definition")
    runs, records = {"attn": run}, {"attn": record}
    if point.e4m3:
        runs[BF16], records[BF16], *_ = attn_side(torch, given)
    else:
        try:
            peer, theirs = flashinfer_side(torch, given)
            peer()
            if not distance(theirs, given) <= DIFFERENCE:
                raise RuntimeError("a wrong result")
            runs["flashinfer"] = peer
        except Exception as error:  # Not installed, or no kernel for this GPU.
            text = str(error).splitlines()[0] if str(error) else ""
            declined["flashinfer"] = f"{type(error).__name__}: {text}"
    alone = timer.alone(runs)
    sustained = timer.sustained(
        runs, alone, lambda name: records[name]() if name in records else runs[name], declined
    )
    declined = {name: str(error) for name, error in declined.items()}
    ours, seconds = alone["attn"], alone["attn"] / 1e3
    peers = {name: ms for name, ms in alone.items() if name not in records}
    bf16 = {"bf16_ms": alone[BF16], "over_bf16": alone[BF16] / ours} if point.e4m3 else {}
    return bf16 | {
        "key": point.key,
        "part": point.part,
        "name": point.name,
        "q_heads": point.q_heads,
        "shape": [point.q_heads, point.batch, point.tokens],
        "rows": point.rows,
        "attn": {"run_ms": ours, **about},
        "difference": found,
        "tflops": point.flops() / seconds / 1e12,
        "bytes_per_second": point.latent_bytes() / seconds,
        "copy_share": point.latent_bytes() / seconds / bench.results.session["copy_bytes_per_second"],
        "sustained_ms": sustained,
        "peers_ms": peers,
        "ratio_to_best_peer": min(peers.values()) / ours if peers else None,
        "declined": declined,
    }


def latent_line(row):
    """Format a row as text."""
    text = f"  {row['name']:<32}{row['attn']['run_ms']:>9.4f} ms{row['tflops']:>7.0f} TFLOP/s"
    text += f"{row['bytes_per_second'] / 1e9:>7.0f} GB/s{row['copy_share']:>6.2f} of copy"
    if "over_bf16" in row:
        text += f"  x{row['over_bf16']:.2f} of bf16"
    return text + "".join(
        f"  {name} x{ms / row['attn']['run_ms']:.3f}" for name, ms in row["peers_ms"].items()
    )


def latent_bars(row):
    """Return the bars of a point."""
    found = []
    if row["peers_ms"]:
        found.append(("as fast as FlashInfer", row["ratio_to_best_peer"] >= 1))
    if "over_bf16" in row:
        if row["q_heads"] != 16:
            return found
        found.append((f"{OVER_BF16} times as fast as bf16", row["over_bf16"] >= OVER_BF16))
    elif row["q_heads"] == 16 and row["rows"] == 1:
        found.append((f"{SHARE:.2f} of copying", row["copy_share"] >= SHARE))
    if tuple(row["shape"]) == TFLOPS_AT and row["rows"] == 1:
        found.append((f"{TFLOPS} TFLOP/s", row["tflops"] >= TFLOPS))
    return found
