# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model of Transformers that decodes: the part `transformers` of `bench gpu`.

Llama-3.1-8B's shape with random weights goes through `model.generate` itself, with attn and with PyTorch's SDPA, over
the same cache: the figure is the time from a token to the next, including the host. The cache is dynamic, static, or
static with a forward that generate compiles and records (graphed); attn's own PagedCache is measured beside them.
Recorded is attn.transformers.Decoder over the same static cache, with attn and with SDPA inside: whole steps in one
graph, of a model whose projections are merged; recorded paged is the same over a PagedCache, with attn alone. The floor
is the time to read weights, keys and values once at this GPU's copy rate.
"""

import gc
import statistics
import time
from dataclasses import dataclass

from measuring.described import Described

SIDES = ("attn", "sdpa")
TOKENS, WARM_UP, ROUNDS = 24, 8, 3
EAGER_ROUNDS = 8  # Steps with work of the host: rounds of them differ by 3 %.
RECORDED = ("recorded", "recorded paged")
PAGED = ("paged", "recorded paged")
CACHES = ("dynamic", "static", "graphed", "paged", *RECORDED)
REPLAYED, FEWER = 72, 8  # Tokens of two generations, whose difference is steps that are all replayed.
COMPILED = {
    "mode": "max-autotune-no-cudagraphs"
}  # Products with few rows are compiled, too, if that is faster.
FLOOR_SHARE = 1.25  # Times the floor, at most, for steps that are graphs.


@dataclass(frozen=True)
class Shape:
    """Llama-3.1-8B's sizes, unless said otherwise."""

    layers: int = 32
    hidden: int = 4096
    inner: int = 14336
    q_heads: int = 32
    kv_heads: int = 8
    vocabulary: int = 128256

    @property
    def dim(self):
        return self.hidden // self.q_heads


@dataclass(frozen=True)
class ModelPoint(Described):
    cache: str
    batch: int
    tokens: int
    shape: Shape = Shape()
    device: str = "cuda"

    part = "transformers"

    @property
    def name(self):
        return f"{self.cache}, {self.batch} x {self.tokens}"

    def kv_bytes(self):
        shape = self.shape
        return 2 * 2 * shape.layers * self.batch * self.tokens * shape.kv_heads * shape.dim

    def seconds(self):
        """Estimate the seconds of a measurement."""
        return {"graphed": 160, "recorded": 300, "recorded paged": 160, "dynamic": 35}.get(self.cache, 25)

    def sides(self):
        return SIDES[:1] if self.cache in PAGED else SIDES

    def turns(self):
        """Return the sides of each round. They alternate in being first: the second one finds the host warm."""
        rounds = EAGER_ROUNDS if self.cache == "dynamic" else ROUNDS
        return [self.sides()[:: 1 if number % 2 == 0 else -1] for number in range(rounds)]


def model_points(quick):
    sizes = ((16, 4096), (1, 8192))
    points = [ModelPoint(cache, *size) for cache in CACHES for size in sizes]
    return points[:2] if quick else points


class Steps:
    """A streamer of generate that only reads the clock: the time of each step after the first."""

    def __init__(self):
        self.at = []

    def put(self, tokens):
        self.at.append(time.perf_counter())

    def end(self):
        pass

    def milliseconds(self):
        # The prompt comes first, then the token that follows it.
        return [1e3 * (b - a) for a, b in zip(self.at[1:], self.at[2:], strict=False)]


class Model:
    """The model on a device, and caches with random keys in them."""

    def __init__(self, torch, shape, device, merged=False):
        import attn.transformers
        import transformers
        from transformers.initialization import no_init_weights

        self.torch, self.library, self.attn = torch, transformers, attn.transformers
        self.config = transformers.LlamaConfig(
            hidden_size=shape.hidden,
            intermediate_size=shape.inner,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.q_heads,
            num_key_value_heads=shape.kv_heads,
            vocab_size=shape.vocabulary,
            max_position_embeddings=131072,
            eos_token_id=None,
            pad_token_id=0,
            dtype=torch.bfloat16,
        )
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        try:
            with torch.device(device), torch.no_grad(), no_init_weights():
                self.model = transformers.LlamaForCausalLM(self.config).eval()
                for weight in self.model.parameters():
                    weight.normal_(0, 0.02) if weight.dim() > 1 else weight.fill_(1)
        finally:
            torch.set_default_dtype(before)
        self.shape, self.device = shape, device
        if merged:
            self.attn.merge_projections(self.model)

    def weight_bytes(self):
        """Return the bytes of all weights that a token reads; of the embedding it reads one row."""
        skipped = self.model.get_input_embeddings().weight
        return sum(w.numel() * w.element_size() for w in self.model.parameters() if w is not skipped)

    def make_cache(self, point, ids):
        torch, room = self.torch, point.tokens + 2 * TOKENS
        if point.cache == "paged":
            cache = self.attn.PagedCache(self.config, pages=point.batch * (room // 16 + 2))
            self.model.set_attn_implementation("attn")
            with torch.no_grad():
                for first in range(0, point.tokens, 512):
                    shown = ids[:, : min(first + 512, point.tokens)]
                    self.model(
                        shown[:, first:],
                        attention_mask=torch.ones_like(shown),
                        past_key_values=cache,
                        logits_to_keep=1,
                    )
            return cache
        if point.cache == "dynamic":
            cache = self.library.DynamicCache(config=self.config)
        else:
            cache = self.library.StaticCache(config=self.config, max_cache_len=room)
        for layer in range(self.shape.layers):
            size = point.batch, self.shape.kv_heads, point.tokens, self.shape.dim
            cache.update(
                *(torch.randn(size, device=self.device, dtype=torch.bfloat16) for _ in range(2)), layer
            )
        return cache

    def rewind(self, cache, point):
        """Restore a cache to its state before tokens were generated. A static cache keeps its addresses, which graphs
        hold."""
        if point.cache == "dynamic":
            cache.crop(point.tokens)
            return cache
        for layer in cache.layers:
            layer.cumulative_length.fill_(point.tokens)
        return cache

    def make_decoder(self, side, point):
        """Make a decoder with random keys in its cache, which both sides read after the same prompt."""
        self.model.set_attn_implementation(side)
        options = COMPILED if self.device == "cuda" else None
        room, cache = point.tokens + REPLAYED, None
        if point.cache in PAGED:
            cache = self.attn.PagedCache(self.config, pages=point.batch * -(-room // 16))
        decoder = self.attn.Decoder(
            self.model, sequences=point.batch, tokens=room, cache=cache, compile=options
        )
        size = point.batch, self.shape.kv_heads, point.tokens, self.shape.dim
        random = self.torch.Generator(self.device).manual_seed(0)
        like = {"device": self.device, "dtype": self.torch.bfloat16, "generator": random}
        decoder.fill(
            (self.torch.randn(size, **like), self.torch.randn(size, **like)) for _ in range(self.shape.layers)
        )
        return decoder

    def replay(self, side, decoder, ids):
        """Return milliseconds of a step, all of which are replayed, by the host's clock."""
        torch = self.torch
        self.model.set_attn_implementation(side)
        seconds = []
        for tokens in (FEWER, FEWER, REPLAYED):  # The first one compiles and records.
            if self.device == "cuda":
                torch.cuda.synchronize()
            begin = time.perf_counter()
            decoder.generate(ids, max_new_tokens=tokens, held=ids.shape[1] - 1)
            if self.device == "cuda":
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begin)
        return 1e3 * (seconds[2] - seconds[1]) / (REPLAYED - FEWER)

    def generate(self, side, point, cache, ids):
        """Return milliseconds of each step."""
        self.model.set_attn_implementation(side)
        steps = Steps()
        with self.torch.no_grad():
            self.model.generate(
                ids,
                attention_mask=self.torch.ones_like(ids),
                past_key_values=cache,
                max_new_tokens=TOKENS,
                do_sample=False,
                disable_compile=point.cache != "graphed",
                streamer=steps,
            )
        return steps.milliseconds()


_models = {}  # The last one: it takes seconds to make, and much of a GPU.


def model_of(torch, *key):
    """Return a Model; the last one is kept."""
    if key not in _models:
        _models.clear()
        _models[key] = Model(torch, *key)
    return _models[key]


def measure_model(point, bench):
    """Measure a point; returns its row of the file. Sides alternate; the median step of each side's best round counts,
    since other work of the host only adds time."""
    torch = bench.contest.torch
    model = model_of(torch, point.shape, point.device, point.cache in RECORDED)
    ids = torch.randint(
        1, min(1000, point.shape.vocabulary), (point.batch, point.tokens + 1), device=point.device
    )
    if point.cache in RECORDED:
        return _row(point, bench, model, *_recorded(model, point, ids))
    times, declined, cache = {side: [] for side in point.sides()}, {}, None
    for turn in point.turns():
        for side in turn:
            if side in declined:
                continue
            if cache is None or point.cache == "paged":
                cache = None
                gc.collect()
                torch.cuda.empty_cache()
                cache = model.make_cache(point, ids)
            try:
                steps = model.generate(side, point, cache, ids)
            except RuntimeError as error:
                if side == "attn":
                    raise
                declined[side] = str(error).partition("\n")[0]
                continue
            times[side].append(statistics.median(steps[WARM_UP:]))
            if point.cache != "paged":
                model.rewind(cache, point)
    torch._dynamo.reset()
    del cache
    return _row(point, bench, model, times, declined)


def _recorded(model, point, ids):
    """Return milliseconds of a step of each side in each round, and the declined sides."""
    times, declined, decoders = {side: [] for side in point.sides()}, {}, {}
    for turn in point.turns():
        for side in turn:
            if side in declined:
                continue
            try:
                if side not in decoders:
                    decoders[side] = model.make_decoder(side, point)
                times[side].append(model.replay(side, decoders[side], ids))
            except RuntimeError as error:
                if side == "attn":
                    raise
                declined[side] = str(error).partition("\n")[0]
    decoders.clear()
    model.torch._dynamo.reset()
    return times, declined


def _row(point, bench, model, times, declined):
    best = {side: min(found) for side, found in times.items() if found}
    floor = (model.weight_bytes() + point.kv_bytes()) / bench.results.session["copy_bytes_per_second"]
    return {
        "key": point.key,
        "part": point.part,
        "name": point.name,
        "cache": point.cache,
        "batch": point.batch,
        "tokens": point.tokens,
        "transformers": model.library.__version__,
        "times_of": best,
        "rounds": times,
        "floor_ms": 1e3 * floor,
        "peers_ms": {},
        "declined": declined,
    }


def model_line(row):
    """Format a row as text."""
    times = row["times_of"]
    text = f"  {row['name']:<26}{times['attn']:>8.2f} ms a token ({times['attn'] / row['floor_ms']:.2f} of the floor)"
    if "sdpa" in times:
        text += f"   sdpa {times['sdpa']:.2f}  x{times['sdpa'] / times['attn']:.2f}"
    return text


def model_bars(row):
    times = row["times_of"]
    found = []
    if "sdpa" in times:
        found.append(("as fast as SDPA", times["attn"] <= times["sdpa"]))
    if row["cache"] in ("graphed", *RECORDED):
        found.append((f"within {FLOOR_SHARE} of the floor", times["attn"] <= FLOOR_SHARE * row["floor_ms"]))
    return found
