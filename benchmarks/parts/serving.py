# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Requests that come and go, by a model of Transformers: the part `serving` of `bench gpu`.

Llama-3.1-8B's shape with random weights answers prompts of different lengths, more of them than are served at once, so
that prompts are read beside others that decode: by attn.transformers.Engine, by Transformers' own continuous batching
with attn in its graphs ("paged|attn"), and by that with SDPA. torch.compile compiles nothing. The figure is generated
tokens a second, of the best of several times, after one that captures. All requests are there at the beginning, and
none ends early.
"""

import contextlib
import time
from dataclasses import dataclass

from measuring.described import Described
from parts.transformers import Shape, model_of

ROUNDS = 2
OPTIONS = {"use_cuda_graph": True, "use_async_batching": True}
INTERVALS = {"q_padding_interval_size": 64, "kv_padding_interval_size": 16384}


@dataclass(frozen=True)
class ServingPoint(Described):
    requests: int
    sequences: int
    shortest: int
    longest: int
    answer: int
    rows: int = 512
    shape: Shape = Shape()
    device: str = "cuda"

    part = "serving"

    @property
    def name(self):
        return f"{self.requests} requests of {self.shortest} to {self.longest}, {self.answer} more, {self.sequences} at once"

    def seconds(self):
        """Estimate the seconds of a measurement."""
        return 60

    def prompts(self, torch):
        generator = torch.Generator().manual_seed(0)
        between = self.shortest, self.longest + 1
        lengths = torch.randint(*between, (self.requests,), generator=generator).tolist()
        ids = 3, min(1000, self.shape.vocabulary)
        return [torch.randint(*ids, (length,), generator=generator).tolist() for length in lengths]

    def pages(self):
        """Return the number of pages of 16 tokens for as many of the longest requests as are served at once."""
        return self.sequences * -(-(self.longest + self.answer) // 16)


def serving_points(quick):
    points = [ServingPoint(16, 8, 64, 512, 32), ServingPoint(64, 32, 128, 1024, 96)]
    return points[:1] if quick else points


@contextlib.contextmanager
def by_engine(model, point):
    """Return a function that answers prompts: the tokens of each."""
    model.model.set_attn_implementation("attn")
    cache = model.attn.PagedCache(model.config, pages=point.pages())
    sizes = {"sequences": point.sequences, "tokens": point.longest + point.answer, "rows": point.rows}
    engine = model.attn.Engine(model.model, cache=cache, compile=False, **sizes)
    yield lambda prompts: [
        each.token_ids for each in engine.generate(prompts, max_new_tokens=point.answer, eos_token_id=())
    ]


@contextlib.contextmanager
def by_manager(model, point, side):
    """Return the same by Transformers, with as much memory."""
    generation = model.library.generation
    model.model.set_attn_implementation(side)
    options = (
        (OPTIONS | INTERVALS) if side == "attn" and point.device == "cuda" else {"use_cuda_graph": False}
    )
    config = generation.ContinuousBatchingConfig(
        num_blocks=point.pages(),
        block_size=16,
        max_batch_tokens=point.rows,
        max_requests_per_batch=point.sequences,
        allow_block_sharing=False,
        **options,
    )
    wanted = model.library.GenerationConfig(
        max_new_tokens=point.answer, do_sample=False, eos_token_id=-1, pad_token_id=0
    )
    manager = model.model.continuous_batching_context_manager(
        generation_config=wanted, continuous_batching_config=config
    )
    with manager as made:

        def answer(prompts):
            names, found = made.add_requests(inputs=prompts, max_new_tokens=point.answer), {}
            while len(found) < len(names):
                result = made.get_result(timeout=1)
                if result is not None and result.is_finished():
                    found[result.request_id] = result.generated_tokens
                elif result is None and not made.is_running():
                    raise RuntimeError(f"continuous batching ended: {made.fatal_error}")
            return [found[name] for name in names]

        yield answer
    model.model.set_attn_implementation("attn")


SIDES = {
    "engine": by_engine,
    "generate_batch": lambda model, point: by_manager(model, point, "attn"),
    "generate_batch sdpa": lambda model, point: by_manager(model, point, "sdpa"),
}


def measure_serving(point, bench):
    """Measure a point; returns its row of the file."""
    torch = bench.contest.torch
    model, prompts = model_of(torch, point.shape, point.device, False), point.prompts(torch)
    rounds, declined = {}, {}
    for side, made in SIDES.items():
        try:
            with torch.no_grad(), made(model, point) as answer:
                seconds = []
                for _ in range(ROUNDS + 1):
                    begin = time.perf_counter()
                    found = answer(prompts)
                    seconds.append(time.perf_counter() - begin)
                    assert [len(tokens) for tokens in found] == [point.answer] * len(prompts)
                rounds[side] = seconds[1:]
        except RuntimeError as error:
            if side == "engine":
                raise
            declined[side] = str(error).partition("\n")[0]
    tokens = point.requests * point.answer
    return {
        "key": point.key,
        "part": point.part,
        "name": point.name,
        "transformers": model.library.__version__,
        "prompt_tokens": sum(map(len, prompts)),
        "new_tokens": tokens,
        "rounds": rounds,
        "tokens_per_second": {side: tokens / min(seconds) for side, seconds in rounds.items()},
        "peers_ms": {},
        "declined": declined,
    }


def serving_line(row):
    """Format a row as text."""
    told = "   ".join(f"{side} {rate:.0f}" for side, rate in row["tokens_per_second"].items())
    return f"  {row['name']:<52} {told} tokens/s"


def serving_bars(row):
    rates = row["tokens_per_second"]
    others = [rate for side, rate in rates.items() if side != "engine"]
    return [("as many as continuous batching of Transformers", rates["engine"] >= max(others, default=0))]
