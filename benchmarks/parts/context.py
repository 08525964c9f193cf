# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A context of millions of tokens on one GPU: the part `context` of `bench gpu`.

A Llama with random weights decodes after a context of 4-bit keys and values. Half of its KV heads keep everything and
half a sink and recent tokens, in one cache and one launch a layer. The content of pages is random: the figures are
memory and time. Before that, one layer's output is compared with float32 over the stored tokens. Queries are so large
that a few tokens have all the weight: a read from a wrong slot is seen.
"""

from dataclasses import dataclass

from measuring.described import Described
from parts.duo import Cached, Llama

STEPS, WARM_UP = 8, 2
SHARP = 30  # Standard deviation of the compared queries.
CHUNK = 1 << 17  # Tokens of the reference at a time.
FILLED = 1 << 12  # Tokens of an append.
# For a token in half of 8 heads of 32 layers: keys and values of four bits, and two float16 for each of them.
TOKEN_BYTES = 32 * 4 * (128 + 8)


@dataclass(frozen=True)
class ContextPoint(Described):
    """Llama-3-8B's shape, unless said otherwise; half of the KV heads keep everything."""

    context: int
    key_format: str = "int4"
    value_format: str = "int4"
    kv_heads: int = 8
    inner: int = 14336
    layers: int = 32
    hidden: int = 4096
    q_heads: int = 32
    vocabulary: int = 128256
    device: str = "cuda"

    part = "context"

    @property
    def name(self):
        return f"{self.context} tokens, {self.key_format} keys and {self.value_format} values, half of the heads streaming"

    @property
    def dim(self):
        return self.hidden // self.q_heads

    @property
    def classes(self):
        kept = self.kv_heads // 2
        return [0] * kept + [1] * (self.kv_heads - kept)

    def seconds(self):
        """Estimate the seconds of a measurement."""
        return 40


def context_points(quick):
    points = [ContextPoint(context) for context in (400_000, 3_300_000)]
    return points[:1] if quick else points


class Context(Cached):
    """A sequence after that many tokens."""

    def __init__(self, torch, point):
        super().__init__(torch, point, "duo", point.context + STEPS + WARM_UP, FILLED)
        self.place = "cpu" if point.device == "host" else point.device

    def store(self):
        return {"key": self.point.key_format, "value": self.point.value_format}

    def fill(self, tokens):
        for layer in range(self.point.layers):
            for head_class in range(2):
                for tensor in self.tensors(layer, head_class).values():
                    if tensor.is_floating_point():  # Scales and zero points: numbers of both signs.
                        tensor[..., 0::2] = 0.05
                        tensor[..., 1::2] = -0.375
                    else:
                        tensor.random_()
        for first in range(0, tokens, FILLED):
            self.cache.append([self.node], [min(FILLED, tokens - first)]).skip()
        self.length += tokens

    def tensors(self, layer, head_class):
        return self.cache.layer(layer).tensors(head_class)

    def bytes(self):
        """Return the bytes of all layers' stores, and the bytes per token of heads that keep everything."""
        stores = [
            [sum(t.numel() * t.element_size() for t in self.tensors(layer, c).values()) for c in range(2)]
            for layer in range(self.point.layers)
        ]
        tokens = 16 * (-(-(self.point.context + STEPS + WARM_UP) // 16) + 1)
        return sum(map(sum, stores)), sum(each[0] for each in stores) / tokens

    def plan_again(self):
        """Plan the last token's row."""
        return self.kernel.plan(self.cache.batch([(self.node, 1)], classes=self.classes))

    def error(self):
        """Return the largest difference from float32 of the first layer's first and last head that keep everything,
        over the largest output."""
        torch, point = self.torch, self.point
        q = SHARP * torch.randn(1, point.q_heads, point.dim, device=self.place, dtype=torch.bfloat16)
        found = self.kernel.run(q, self.cache.layer(0), self.plan_again())[0].float()
        stored, group, errors = self.cache.layer(0).stored(self.node, 0), point.q_heads // point.kv_heads, []
        for head in (0, self.classes.count(0) - 1):
            mine = slice(head * group, (head + 1) * group)
            keys, values = (self.numbers(stored, part, head) for part in ("k", "v"))
            rows = q[0, mine].float() * point.dim**-0.5
            weights = torch.cat([rows @ each.to(self.place).T for each in keys.split(CHUNK)], -1).softmax(-1)
            parts = zip(weights.split(CHUNK, -1), values.split(CHUNK), strict=True)
            expected = sum(of_tokens @ each.to(self.place) for of_tokens, each in parts)
            errors.append(float((found[mine] - expected).abs().max() / expected.abs().max()))
        return max(errors)

    def numbers(self, stored, part, head):
        """Dequantize a head's keys or values: float32 [tokens, dim] in CPU memory."""
        from measuring.report import import_attn

        codes, meta = (stored[name][:, head : head + 1].cpu().contiguous() for name in (part, f"{part}_meta"))
        return import_attn().dequantize(
            codes, meta, getattr(self.point, {"k": "key_format", "v": "value_format"}[part])
        )[:, 0]


def measure_context(point, bench):
    """Measure a point; returns its row of the file."""
    torch = bench.contest.torch
    with torch.no_grad():
        context = Context(torch, point)
        context.fill(point.context)
        error = context.error()
        if not error < 2e-2:
            raise RuntimeError(f"{point.key}: an output differs from float32 by {error} of the largest")
        model = Llama(torch, point)
        token = torch.zeros(1, dtype=torch.int64, device=model.place)
        step_ms = timed(torch, lambda: decode(torch, model, token, context))
        layer = attention(torch, point, context)
        attention_ms = point.layers * bench.contest.timer.alone({"layer": layer})["layer"]
    stored, per_token = context.bytes()
    return {
        "key": point.key,
        "part": point.part,
        "name": point.name,
        "tokens": point.context,
        "attn": {"run_ms": step_ms},
        "attention_ms": attention_ms,
        "cache_bytes": stored,
        "token_bytes": per_token,
        "error": error,
        "peers_ms": {},
        "declined": {},
    }


def decode(torch, model, token, context):
    """Decode a token of a model; returns logits, which are finite."""
    positions = torch.tensor([context.length], device=model.place)
    return model(token, positions, context.attend(1))


def attention(torch, point, context):
    """Return a launch of one layer's attention."""
    plan = context.plan_again()
    q = torch.randn(1, point.q_heads, point.dim, device=context.place, dtype=torch.bfloat16)
    return lambda: context.kernel.run(q, context.cache.layer(0), plan)


def timed(torch, step):
    """Return milliseconds of a step among consecutive ones."""
    cuda, start, end = torch.cuda, *(torch.cuda.Event(enable_timing=True) for _ in range(2))
    for number in range(WARM_UP + STEPS):
        if number == WARM_UP:
            start.record()
        logits = step()
    end.record()
    cuda.synchronize()
    if not logits.isfinite().all():
        raise RuntimeError("logits that are not finite")
    return start.elapsed_time(end) / STEPS


def context_line(row):
    """Format a row as text."""
    floor = row["token_bytes"] * row["tokens"]
    return (
        f"  {row['name']}: {row['attn']['run_ms']:.2f} ms a token, of which attention {row['attention_ms']:.2f} "
        f"({floor / row['attention_ms'] / 1e9:.2f} TB/s); {row['cache_bytes'] / 1e9:.1f} GB, "
        f"{row['token_bytes'] / 1e3:.1f} KB a token; error {row['error']:.4f}"
    )


def context_bars(row):
    return [(f"{TOKEN_BYTES} bytes a token at most", row["token_bytes"] <= TOKEN_BYTES)]
