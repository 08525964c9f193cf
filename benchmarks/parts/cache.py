# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations on a cache: the parts `cache` and `append` of `bench gpu`.

Llama-3-8B's heads in pages of 16, all 32 layers in one launch, at slots scattered over the pool. The figure is bytes,
each read once and written once, against this GPU's copy rate.

`append`: new tokens of 32 layers, normalized, rotated, quantized and written into an engine's pages, a launch for each
layer. Beside it PyTorch's separate operations, and a copy of as many bytes in each layer; all three are recorded.
"""

from dataclasses import dataclass

from measuring.described import Described
from measuring.report import CacheProblem, import_attn
from measuring.timing import recorded

LAYERS = 32


@dataclass(frozen=True)
class CachePoint:
    name: str
    problem: CacheProblem
    rows: int

    part = "cache"

    @property
    def key(self):
        return f"{self.part}: {self.name}"

    def problems(self):
        return {self.problem}

    def row_bytes(self):
        return 2 * self.problem.heads * (self.problem.dim + self.problem.value_dim)

    def pool_bytes(self):
        """Return the bytes that attn-run generates: twice the slots that are needed, and the rows."""
        lists = 2 if self.problem.op == "move" else 1
        return (2 * lists + 1) * self.rows * LAYERS * self.row_bytes()

    def dims(self):
        return (f"--dim=layers={LAYERS}", f"--dim=rows={self.rows}")

    def seconds(self):
        """Estimate the seconds of a measurement."""
        return 3 + 10 * self.pool_bytes() / 1e9


def cache_points(quick):
    def point(op, rows, why):
        return CachePoint(f"{op} {rows} rows, {why}", CacheProblem(op), rows)

    points = [
        point("append", 64, "a step of 64 sequences"),
        point("append", 4096, "a chunk of prefill"),
        point("move", 192, "64 drafts committed"),
        point("move", 1024, "64 pages copied"),
        point("move", 4096, "a long sequence compacted"),
        point("gather", 4096, "a sequence swapped out"),
    ]
    return points[:2] if quick else points


def measure_cache(point, bench):
    """Measure a point; returns its row of the file."""
    ours = bench.run_problem(point.problem.text(), point.dims(), point.pool_bytes(), point.key)
    seconds = ours["run_ms"] / 1e3
    return {
        "key": point.key,
        "part": point.part,
        "name": point.name,
        "kv_bytes": ours["bytes_floor"],
        "attn": ours,
        "bytes_per_second": ours["bytes_floor"] / seconds,
        "copy_share": ours["bytes_floor"] / seconds / bench.results.session["copy_bytes_per_second"],
        "peers_ms": {},
        "declined": {},
    }


def cache_line(row):
    """Format a row as text."""
    return (
        f"  {row['name']:<44}{row['attn']['run_ms']:>9.4f} ms{row['bytes_per_second'] / 1e9:>7.0f} GB/s"
        f"{row['copy_share']:>6.2f} of copying"
    )


COPY_BAR, TORCH_BAR = (
    0.85,
    2.0,
)  # At least, of the speed of copying, and times as fast as PyTorch's.


@dataclass(frozen=True)
class AppendPoint(Described):
    """Qwen3-8B's heads. `format`: of keys and values, as of attn.serving.Layer."""

    rows: int
    format: str | None = None
    layers: int = LAYERS
    q_heads: int = 32
    kv_heads: int = 8
    dim: int = 128
    device: str = "cuda"

    part = "append"

    @property
    def name(self):
        return f"{self.rows} tokens, {self.format or 'bf16'}, {self.layers} layers"

    def seconds(self):
        """Estimate the seconds of a measurement."""
        return 5

    def token_bytes(self):
        """Return the bytes that a token must move in a layer: its rows, its prepared queries, and its place in pages."""
        rows = 2 * (self.q_heads + 2 * self.kv_heads) * self.dim
        stored = {None: 4 * self.dim, "fp8_e4m3": 2 * self.dim, "int8_int4": 3 * self.dim // 2 + 8}[
            self.format
        ]
        return rows + 2 * self.q_heads * self.dim + self.kv_heads * stored


def append_points(quick):
    points = [AppendPoint(rows, form) for form in (None, "fp8_e4m3", "int8_int4") for rows in (256, 8192)]
    return points[:2] if quick else points


class Appending:
    """Layers of an engine's pages, and the three ways to prepare and write a step's tokens."""

    PAGE, POSITIONS = 16, 16384

    def __init__(self, torch, point):
        attn = import_attn()
        from attn.serving import Layer, Tokens

        self.torch, self.point = torch, point
        place = "cpu" if point.device == "host" else point.device
        generator = torch.Generator(place).manual_seed(0)

        def normal(*sizes):
            return torch.randn(*sizes, device=place, dtype=torch.bfloat16, generator=generator)

        sizes, total = (point.q_heads, point.kv_heads, point.kv_heads), point.q_heads + 2 * point.kv_heads
        fused = [normal(point.rows, total, point.dim) for _ in range(point.layers)]
        self.rows = [each.split(sizes, 1) for each in fused]
        self.out = [torch.empty_like(q, memory_format=torch.contiguous_format) for q, _, _ in self.rows]
        turns = torch.arange(self.POSITIONS)[:, None] / 1e6 ** (torch.arange(0, point.dim, 2) / point.dim)
        self.rope = attn.Rope(turns.cos().to(place), turns.sin().to(place))
        weights = [(1 + 0.1 * normal(point.dim)).contiguous() for _ in range(2)]
        self.norm = attn.Norm(k=weights[0], q=weights[1])
        pages = -(-point.rows // self.PAGE)
        self.slots = torch.randperm(pages, device=place, generator=generator)[:, None] * self.PAGE
        self.slots = (self.slots + torch.arange(self.PAGE, device=place)).flatten()[: point.rows].contiguous()
        self.positions = torch.arange(point.rows, device=place) + 1000
        self.tokens = Tokens(self.slots, self.positions)
        self.layer = Layer(
            q_heads=point.q_heads, kv_heads=point.kv_heads, head_dim=point.dim, dtype=torch.bfloat16,
            page_size=self.PAGE, format=point.format,
        )  # fmt: skip
        self.pools = [self.pool(place, pages) for _ in range(point.layers)]
        self.scale = torch.ones(1, device=place)
        nbytes = point.rows * point.token_bytes() // 2  # A copy reads and writes each.
        self.copied = [torch.zeros(2, nbytes, dtype=torch.uint8, device=place) for _ in range(point.layers)]

    def pool(self, place, pages):
        sizes = pages, self.point.kv_heads, self.PAGE
        if self.layer.is_packed:
            memory = self.torch.zeros(*sizes, self.layer.token_bytes, dtype=self.torch.uint8, device=place)
            return self.layer.pages(memory)
        dtype = self.torch.float8_e4m3fn if self.point.format else self.torch.bfloat16
        sizes = pages, self.PAGE, self.point.kv_heads, self.point.dim
        return tuple(self.torch.zeros(sizes, dtype=dtype, device=place) for _ in "kv")

    def attn(self):
        from attn.serving import write_tokens

        scale = dict(k_scale=self.scale, v_scale=self.scale) if self.point.format == "fp8_e4m3" else {}
        for (q, k, v), out, pool in zip(self.rows, self.out, self.pools, strict=True):
            how = dict(q=q, out=out, rope=self.rope, norm=self.norm)
            if self.layer.is_packed:
                pool.write(k, v, self.tokens, **how)
            else:
                write_tokens(*pool, k, v, self.tokens, **how, **scale)

    def prepared(self, x, weight):
        """Return heads as Transformers prepares them: each operation rounds."""
        torch, half = self.torch, self.point.dim // 2
        x = torch.nn.functional.rms_norm(x, (self.point.dim,), weight, self.norm.epsilon)
        cos, sin = (
            table[self.positions].to(x.dtype).repeat(1, 2)[:, None]
            for table in (self.rope.cos, self.rope.sin)
        )
        return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin

    def separate(self):
        torch, places = self.torch, (self.slots // self.PAGE, self.slots % self.PAGE)
        for (q, k, v), out, pool in zip(self.rows, self.out, self.pools, strict=True):
            out.copy_(self.prepared(q, self.norm.q))
            k = self.prepared(k, self.norm.k)
            if self.layer.is_packed:
                self.quantize(k, 8, pool.named["k_pages"], pool.named["k_meta"], places)
                self.quantize(v, 4, pool.named["v_pages"], pool.named["v_meta"], places)
                continue
            for rows, pages in zip((k, v), pool, strict=True):
                if self.point.format:
                    rows = (rows.float() / self.scale).clamp(-448, 448).to(pages.dtype).view(torch.uint8)
                    pages = pages.view(torch.uint8)
                pages.index_put_(places, rows)

    def quantize(self, rows, bits, codes, meta, places):
        """Write rows in integers with a scale and a zero point each."""
        torch, heads = self.torch, self.point.kv_heads
        numbers = rows.float()
        low, high = numbers.amin(-1, keepdim=True), numbers.amax(-1, keepdim=True)
        scale = ((high - low) / (2**bits - 1)).half().clamp(min=6e-8)
        zero = low.half()
        found = ((numbers - zero.float()) / scale.float()).round().clamp(0, 2**bits - 1).to(torch.uint8)
        if bits == 4:
            found = found[..., ::2] | found[..., 1::2] << 4
        blocks = places[0][:, None] * heads + torch.arange(heads, device=rows.device)
        at = blocks, places[1][:, None].expand_as(blocks)
        codes.index_put_(at, found)
        meta.index_put_(at, torch.stack([scale, zero], -1).flatten(2).unflatten(2, meta.shape[2:]))

    def copy(self):
        for source, target in self.copied:
            target.copy_(source)


def measure_append(point, bench):
    """Measure a point; returns its row of the file."""
    torch = bench.contest.torch
    appending = Appending(torch, point)
    runs = {"attn": appending.attn, "separate": appending.separate, "copy": appending.copy}
    found = []
    for name in ("separate", "attn"):
        runs[name]()
        found.append([out.float() for out in appending.out])
    for separate, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, separate, rtol=3e-2, atol=3e-2)
    if point.device != "host":
        torch.cuda.synchronize()
        runs = {name: recorded(torch, run) for name, run in runs.items()}
    times = bench.contest.timer.alone(runs)
    return {
        "key": point.key,
        "part": point.part,
        "name": point.name,
        "kv_bytes": point.layers * point.rows * point.token_bytes(),
        "attn": {"run_ms": times["attn"]},
        "separate_ms": times["separate"],
        "copy_ms": times["copy"],
        "of_copy": times["copy"] / times["attn"],
        "speedup": times["separate"] / times["attn"],
        "peers_ms": {},
        "declined": {},
    }


def append_line(row):
    """Format a row as text."""
    return (
        f"  {row['name']:<36}{row['attn']['run_ms']:>9.4f} ms{row['of_copy']:>6.2f} of copying"
        f"  PyTorch {row['separate_ms']:.4f} ms  x{row['speedup']:.1f}"
    )


def append_bars(row):
    return [
        (f"{COPY_BAR} of the speed of copying", row["of_copy"] >= COPY_BAR),
        (f"{TORCH_BAR:g} times as fast as PyTorch's operations", row["speedup"] >= TORCH_BAR),
    ]
