# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The value of a cache that compresses itself for a server: the part `diffkv` of `bench gpu`.

One fixed memory for keys and values serves one set of requests in four ways: in 16 bits, in eight, in four, and in
two precisions as DiffKV's policy decides. All use one code (attn's MixedCache), and a step is a CUDA graph of real
launches (diffkv_serving.py). The figures are the number of requests in the batch, and tokens a second.

Weights of the model's shape are random, and queries, keys and values are made so that attention has a stated sparsity.
So this says nothing of accuracy: that of real models is not measured. Norms, rotations and sampling are left out,
prompts are not computed, and the host's work between graphs is not timed.
"""

import gc
from dataclasses import dataclass

from measuring.described import Described
from parts.diffkv_serving import (
    Load,
    Server,
    Shape,
    Tokens,
    Weights,
    levels_of,
    request_length,
    serve,
)

ALPHAS = (1.0, 0.1)  # The policy's: from the mean weight on HIGH, from a tenth of it on LOW.
WAYS = {
    "bf16": {},
    "K8V8": {"key": "int8", "value": "int8"},
    "K4V4": {"key": "int4", "value": "int4"},
    "DiffKV": {"key": "int8", "value": "int4"},
}
BASE = "bf16"
PAPER_COMPRESSION, PAPER_THROUGHPUT = (2.7, 5.7), (1.9, 5.4)  # Source: arXiv 2412.03131.


@dataclass(frozen=True)
class DiffkvPoint(Described):
    """Llama-3.1-8B, unless said otherwise."""

    memory: float  # Bytes for keys and values.
    shape: Shape = Shape()
    load: Load = Load()
    like: str = "paper"
    steps: int = 192
    warm_up: int = 32
    with_weights: bool = True
    page_tokens: tuple[int, int] = (32, 64)
    window: int = 64
    device: str = "cuda"

    part = "diffkv"

    @property
    def name(self):
        return f"{self.shape.layers} layers, {self.memory / 1e9:g} GB, like the {self.like}, spread {self.load.spread:g}"

    def seconds(self):
        """Estimate the seconds of a measurement."""
        return 50


def diffkv_points(quick):
    points = [
        DiffkvPoint(12e9, load=Load(spread=spread), like=like)
        for spread, like in ((2.0, "paper"), (1.5, "paper"), (2.0, "release"))
    ]
    return points[:1] if quick else points


def make_cache(torch, point, way):
    """Make a cache with the pages that fit into the memory, each as large as if it served either precision."""
    from measuring.report import import_attn

    import_attn()
    from attn.cache.mixed import MixedCache
    from attn.kv_policy import DiffKV

    shape, load = point.shape, point.load
    policy = DiffKV(*ALPHAS, window=point.window, like=point.like) if way == "DiffKV" else None
    pages = int(point.memory // page_bytes(point, way))
    # A few more than expected: every slot is a row of the step, with a request or without.
    slots = -(-1.04 * pages / pages_of_request(torch, point, policy) // 8) * 8
    return MixedCache(
        layers=shape.layers,
        requests=int(slots),
        q_heads=shape.q_heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.dim,
        pages=pages,
        tokens=load.most_tokens,
        policy=policy,
        page_tokens=point.page_tokens,
        high=WAYS[way],
        device=point.device,
    )


def pages_of_request(torch, point, policy, sampled=32):
    """Return the average pages of a request, including those that a step reserves."""
    tokens, taken = Tokens(torch, point.shape, point.load, 8, "cpu"), 0
    for number in range(sampled):
        length, _ = request_length(torch, point.load, number, done=(number * 0.618) % 1)
        levels = levels_of(torch, tokens.prompt(length, number)[0], policy)
        for level, page in zip((2, 1), point.page_tokens, strict=True):
            if level == 2 or policy is not None:
                taken += float(((levels == level).sum(1) + page).div(page, rounding_mode="floor").sum())
    return taken * point.shape.layers / sampled


def page_bytes(point, way):
    """Return the bytes of a page, as MixedCache has them, before there is one."""
    import attn

    stores = [(WAYS[way], point.page_tokens[0])]
    if way == "DiffKV":
        stores.append(({"key": "int4", "value": "int2"}, point.page_tokens[1]))
    dim = point.shape.dim
    sizes = [
        attn.Unified(page_size=page, **formats).description(1, dim, dim).page_bytes
        for formats, page in stores
    ]
    beside = 8 * max(point.page_tokens) if way == "DiffKV" else 0
    return max(sizes) + beside


def runner(torch, server, device):
    """Return a function that runs so many steps; it returns their seconds."""
    if device == "host":

        def run(steps):
            for _ in range(steps):
                server.launches()
            return 1e-3 * steps  # The host device's time says nothing.

        return run
    from attn.cache.capture import record_graph, run_aside

    run_aside(torch, server.launches)
    server.tokens.step.zero_()
    graph, _ = record_graph(torch, server.launches)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def run(steps):
        start.record()
        for _ in range(steps):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / 1e3

    return run


def serve_way(torch, point, way):
    """Serve with one storage format in the point's memory."""
    device = "cpu" if point.device == "host" else point.device
    cache = make_cache(torch, point, way)
    weights = Weights(torch, point.shape, cache.requests, device) if point.with_weights else None
    tokens = Tokens(torch, point.shape, point.load, cache.requests, device)
    server = Server(torch, point.shape, point.load, cache, weights, tokens)
    found = serve(server, runner(torch, server, point.device), point.load, point.steps, point.warm_up)
    return found | {"slots": cache.requests, "pages": cache.pool.pages, "page_bytes": cache.page_bytes}


def measure_diffkv(point, bench):
    """Measure a point; returns its row of the file."""
    torch = bench.contest.torch
    ways = {}
    for way in WAYS:
        ways[way] = serve_way(torch, point, way)
        gc.collect()
        if point.device != "host":
            torch.cuda.empty_cache()
    base = ways[BASE]
    for found in ways.values():
        found["batch_ratio"] = found["batch"] / base["batch"]
        found["throughput_ratio"] = found["tokens_per_second"] / base["tokens_per_second"]
    return {
        "key": point.key,
        "part": point.part,
        "name": point.name,
        "memory": point.memory,
        "alphas": ALPHAS,
        "spread": point.load.spread,
        "weights": point.with_weights,
        "ways": ways,
        "attn": {"run_ms": ways["DiffKV"]["step_ms"]},
        "peers_ms": {},
        "declined": {},
    }


def diffkv_line(row):
    """Format a row as text: a line for each way."""
    lines = [
        f"  {row['name']}: synthetic attention, log weights of deviation {row['spread']:g}, alphas "
        f"{row['alphas'][0]:g} and {row['alphas'][1]:g}; accuracy on real models not measured"
    ]
    for way, found in row["ways"].items():
        lines.append(
            f"    {way:<8}{found['batch']:>7.1f} requests {found['step_ms']:>8.2f} ms "
            f"{found['tokens_per_second']:>9.0f} tokens/s {found['compression']:>6.2f}x smaller "
            f"{found['batch_ratio']:>6.2f}x the batch {found['throughput_ratio']:>6.2f}x the tokens"
            + (f", {found['preempted']} preempted" if found["preempted"] else "")
        )
    return "\n".join(lines)


def diffkv_bars(row):
    """Return the lower ends of the paper's results as bars."""
    found = row["ways"]["DiffKV"]
    return [
        (f"{PAPER_COMPRESSION[0]} times smaller", found["compression"] >= PAPER_COMPRESSION[0]),
        (f"{PAPER_THROUGHPUT[0]} times the tokens", found["throughput_ratio"] >= PAPER_THROUGHPUT[0]),
    ]
