# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model with streaming heads: the part `duo` of `bench gpu`.

All layers of a Llama with random weights read a long prompt in chunks, and then decode, over an attn.PagedCache that
keeps everything, and over one whose streaming heads keep a sink and recent tokens, as in DuoAttention: in each layer
the paper's share of heads. The figures are time and the most memory that PyTorch had allocated, including weights and
activations. Shapes, shares and prompts are the paper's; the prompt's chunks have the same size on both sides.
"""

import gc
import time
from dataclasses import dataclass

from measuring.described import Described
from measuring.timing import recorded

SINK, RECENT = 64, 256
SIDES = ("full", "duo")
STEPS, WARM_UP = 16, 4
FILLED = 16  # Tokens at a time, before a decoding step.
# Results of the paper: times less memory of decode and of prefill, times as fast at both.
BARS = {"MHA": (2.55, 2.38, 2.18, 1.73), "GQA": (1.67, 1.53, 1.50, 1.63)}


@dataclass(frozen=True)
class DuoPoint(Described):
    """`share`: of the KV heads that keep everything; `prompt` is read in chunks, `context` precedes a decoding step."""

    kind: str
    model: str
    share: float
    prompt: int
    context: int
    kv_heads: int
    inner: int
    layers: int = 32
    hidden: int = 4096
    q_heads: int = 32
    vocabulary: int = 32000
    chunk: int = 2048
    device: str = "cuda"

    part = "duo"

    @property
    def name(self):
        return f"{self.model}, {self.share:.0%} of heads keep all"

    @property
    def dim(self):
        return self.hidden // self.q_heads

    @property
    def classes(self):
        kept = round(self.share * self.kv_heads)
        return [0] * kept + [1] * (self.kv_heads - kept)

    def seconds(self):
        """Estimate the seconds of a measurement."""
        return 30 if self.kind == "MHA" else 110


def duo_points(quick):
    points = [
        DuoPoint("MHA", "Llama-2-7B", 0.25, 100_000, 131_072, 32, 11008),
        DuoPoint("GQA", "Llama-3-8B", 0.5, 320_000, 524_288, 8, 14336, vocabulary=128256),
    ]
    return points[:1] if quick else points


class Llama:
    """Weights of a decoder, and its forward pass over a paged cache."""

    def __init__(self, torch, point):
        self.torch, self.point = torch, point
        self.place = "cpu" if point.device == "host" else point.device
        width = (point.q_heads + 2 * point.kv_heads) * point.dim
        shapes = {
            "qkv": (width, point.hidden),
            "out": (point.hidden, point.q_heads * point.dim),
            "up": (2 * point.inner, point.hidden),
            "down": (point.hidden, point.inner),
        }
        self.layers = [
            {name: self.weights(*shape) for name, shape in shapes.items()} for _ in range(point.layers)
        ]
        self.embedding, self.head = (self.weights(point.vocabulary, point.hidden) for _ in range(2))
        half = torch.arange(0, point.dim, 2, device=self.place).float() / point.dim
        self.frequencies = 1 / 500_000**half

    def weights(self, *shape):
        tensor = self.torch.empty(shape, dtype=self.torch.bfloat16, device=self.place)
        return tensor.normal_(std=0.02)

    def angles(self, positions):
        """Return cosines and sines [tokens, 1, dim / 2]."""
        angles = positions[:, None].float() * self.frequencies
        return [part.bfloat16()[:, None] for part in (angles.cos(), angles.sin())]

    @staticmethod
    def turn(x, cos, sin):
        """Apply rotary positions, in place: x [tokens, heads, dim]."""
        first, second = x.chunk(2, dim=-1)
        turned = (first * cos).addcmul_(second, sin, value=-1)
        second.mul_(cos).addcmul_(first, sin)
        first.copy_(turned)

    def __call__(self, tokens, positions, attend):
        """Return logits of the last token. `attend`: a function of a layer's q, k and v [tokens, heads, dim] that
        returns the output."""
        functional, point = self.torch.nn.functional, self.point
        cos, sin = self.angles(positions)
        x = functional.embedding(tokens, self.embedding)
        for number, layer in enumerate(self.layers):
            heads = (functional.rms_norm(x, (point.hidden,)) @ layer["qkv"].T).unflatten(-1, (-1, point.dim))
            self.turn(heads[:, : point.q_heads + point.kv_heads], cos, sin)
            q, k, v = heads.split([point.q_heads, point.kv_heads, point.kv_heads], dim=1)
            out = attend(number, q, k, v).flatten(1)
            del heads, q, k, v
            x = x + out @ layer["out"].T
            del out
            gate, up = (functional.rms_norm(x, (point.hidden,)) @ layer["up"].T).chunk(2, dim=-1)
            gate = functional.silu(gate, inplace=True).mul_(up)
            del up
            x = x + gate @ layer["down"].T
            del gate
        return functional.rms_norm(x[-1:], (point.hidden,)) @ self.head.T


class Cached:
    """A sequence in a cache for `tokens` tokens, of which at most `chunk` come at once."""

    def __init__(self, torch, point, side, tokens, chunk):
        from measuring.report import import_attn

        attn = import_attn()
        from attn.cache.state import CacheClass

        self.torch, self.point = torch, point
        self.classes = point.classes if side == "duo" else None
        pages = -(-tokens // 16) + 1
        shape = dict(
            q_heads=point.q_heads,
            kv_heads=point.kv_heads,
            head_dim=point.dim,
            dtype="bfloat16",
            return_lse=False,
        )
        kept = {"pages": pages}
        if self.classes:
            few = -(-SINK // 16) + -(-RECENT // 16) + -(-chunk // 16) + 2
            streaming = dict(sink=SINK, recent=RECENT)
            kept = {
                "classes": [
                    CacheClass(name="retrieval", pages=pages, heads=self.classes.count(0)),
                    CacheClass(name="streaming", pages=few, heads=self.classes.count(1), **streaming),
                ]
            }
            spec = attn.Spec(
                **shape,
                see=attn.causal(),
                heads=attn.heads(
                    retrieval=attn.all_tokens(), streaming=attn.sink(SINK) | attn.recent(RECENT)
                ),
                kv=[
                    attn.Paged(name="all", head_class="retrieval", **self.store()),
                    attn.Paged(name="few", head_class="streaming", **self.store()),
                ],
            )
        else:
            spec = attn.Spec(**shape, see=attn.causal(), kv=[attn.Paged()])
        self.kernel = attn.compile(spec, device=point.device)
        self.cache = attn.PagedCache(
            layers=point.layers,
            kv_heads=point.kv_heads,
            head_dim=point.dim,
            dtype="bfloat16",
            device=point.device,
            **self.store(),
            **kept,
        )
        self.node, self.length = self.cache.add(), 0

    def store(self):
        """Return the storage formats of keys and values, as of attn.Paged."""
        return {}

    def fill(self, tokens):
        """Fill the cache with numbers that stand for this many tokens."""
        for layer in range(self.point.layers):
            held = self.cache.layer(layer)
            for head_class in range(2 if self.classes else 1):
                held.keys(head_class).normal_()
                held.values(head_class).normal_()
        for first in range(0, tokens, FILLED):
            self.cache.append([self.node], [min(FILLED, tokens - first)]).skip()
        self.length += tokens

    def attend(self, count):
        """Append `count` tokens; returns the function that attends in a layer."""
        change, plan, named = self.grow(count)

        def layer(number, q, k, v):
            change.write(number, k.contiguous(), v.contiguous(), **named)
            return self.kernel.run(q, self.cache.layer(number), plan)

        return layer

    def attend_recorded(self):
        """Return the same for one token, for launches that are recorded: it is written to its slot directly."""
        change, plan, _ = self.grow(1)
        plan.fix()
        places = [int(change.slots(head_class)[0]) for head_class in range(2 if self.classes else 1)]
        change.skip()
        kept = self.classes.count(0) if self.classes else None  # They come first.

        def layer(number, q, k, v):
            held = self.cache.layer(number)
            for head_class, place in enumerate(places):
                mine = slice(kept) if head_class == 0 else slice(kept, None)
                held.keys(head_class).flatten(0, 1)[place].copy_(k[0, mine])
                held.values(head_class).flatten(0, 1)[place].copy_(v[0, mine])
            return self.kernel.run(q, held, plan)

        return layer

    def grow(self, count):
        """Append `count` tokens, and plan their rows."""
        change = self.cache.append([self.node], [count])
        named = {"classes": self.classes} if self.classes else {}
        plan = self.kernel.plan(self.cache.batch([(self.node, count)], **named))
        self.length += count
        return change, plan, named


class Phases:
    """Both phases of one side: seconds, and bytes at the peak."""

    def __init__(self, torch, point, model, side, others):
        """`others`: bytes on the device that are not the model's."""
        self.torch, self.point, self.model, self.side = torch, point, model, side
        self.others = others
        generator = torch.Generator().manual_seed(0)
        tokens = torch.randint(point.vocabulary, (point.prompt,), generator=generator)
        self.tokens = tokens.to(model.place)

    def clear(self):
        gc.collect()
        if self.model.place != "cpu":
            self.torch.cuda.empty_cache()
            self.torch.cuda.synchronize()
            self.torch.cuda.reset_peak_memory_stats()

    def now(self):
        if self.model.place != "cpu":
            self.torch.cuda.synchronize()
        return time.perf_counter()

    def peak(self):
        return self.torch.cuda.max_memory_allocated() - self.others if self.model.place != "cpu" else 0

    def prefill(self):
        """Return seconds of the prompt, its chunks one after the other, and the last logits. A dropped chunk runs
        everything once before."""
        chunk = self.point.chunk
        self.read(self.tokens[:chunk], Cached(self.torch, self.point, self.side, chunk, chunk))
        self.clear()
        cached = Cached(self.torch, self.point, self.side, self.point.prompt, chunk)
        begin = self.now()
        logits = self.read(self.tokens, cached)
        return {"seconds": self.now() - begin, "peak_bytes": self.peak()}, logits

    def read(self, tokens, cached):
        """Return the last logits."""
        logits = None
        for chunk in tokens.split(self.point.chunk):
            positions = self.torch.arange(cached.length, cached.length + len(chunk), device=self.model.place)
            logits = self.model(chunk, positions, cached.attend(len(chunk)))
        return logits

    def decode(self):
        """Return seconds of a token after the context, of a recorded step: otherwise the host would be measured."""
        self.clear()
        room = self.point.context + WARM_UP + STEPS
        cached = Cached(self.torch, self.point, self.side, room, FILLED)
        cached.fill(self.point.context)
        token = self.tokens[:1]
        step = self.record(token, cached)
        for number in range(WARM_UP + STEPS):
            if number == WARM_UP:
                begin = self.now()
            step()
        return {"seconds": (self.now() - begin) / STEPS, "peak_bytes": self.peak()}

    def record(self, token, cached):
        """Return a function that runs the next step repeatedly."""
        torch = self.torch
        positions = torch.tensor([cached.length], device=self.model.place)
        attend = cached.attend_recorded()
        step = lambda: self.model(token, positions, attend)  # noqa: E731
        if self.model.place == "cpu":
            return step
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            step()
        side.synchronize()
        return recorded(torch, step)


def measure_duo(point, bench):
    """Measure a point; returns its row of the file."""
    torch = bench.contest.torch
    with torch.no_grad():
        others = torch.cuda.memory_allocated() if point.device == "cuda" else 0
        model = Llama(torch, point)
        found = {"prefill": {}, "decode": {}}
        for side in SIDES:
            phases = Phases(torch, point, model, side, others)
            found["prefill"][side], logits = phases.prefill()
            if not logits.isfinite().all():
                raise RuntimeError(f"{point.key}: {side}: logits that are not finite")
            found["decode"][side] = phases.decode()
            phases.clear()
    times = {
        f"{phase}_{what}": sides["full"][of] / max(sides["duo"][of], 1e-9)
        for phase, sides in found.items()
        for what, of in (("memory", "peak_bytes"), ("speed", "seconds"))
    }
    return {
        "key": point.key,
        "part": point.part,
        "name": point.name,
        "kind": point.kind,
        "prompt": point.prompt,
        "context": point.context,
        "chunk": point.chunk,
        "phases": found,
        "less_keys_and_values": 1 / point.share,
        **times,
        "attn": {"run_ms": 1e3 * found["decode"]["duo"]["seconds"]},
        "peers_ms": {},
        "declined": {},
    }


def duo_line(row):
    """Format a row as text."""

    def text(phase, seconds, unit):
        sides = row["phases"][phase]
        parts = [
            f"{sides[side]['seconds'] * seconds:.2f} {unit} {sides[side]['peak_bytes'] / 1e9:.1f} GB"
            for side in SIDES
        ]
        return f"{parts[0]} against {parts[1]} (x{row[phase + '_speed']:.2f}, x{row[phase + '_memory']:.2f})"

    return (
        f"  {row['name']}: {row['prompt']} tokens in chunks of {row['chunk']}: {text('prefill', 1, 's')}; "
        f"a token behind {row['context']}: {text('decode', 1e3, 'ms')}"
    )


def duo_bars(row):
    names = ("decode_memory", "prefill_memory", "decode_speed", "prefill_speed")
    return [
        (f"{name.replace('_', ' ')} x{bar}", row[name] >= bar)
        for name, bar in zip(names, BARS[row["kind"]], strict=True)
    ]
