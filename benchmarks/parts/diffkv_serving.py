# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Requests that share a fixed memory for keys and values, for `bench gpu diffkv`.

Requests arrive at random, wait until there are pages for their prompt, generate, and leave. A step is one CUDA graph of
real launches: in every layer the products with the weights of the model's shape, append, plan, attention with
significance and the policy's decision, and around the layers the page manager, requantization and moves. Queries, keys
and values are synthetic. A key is a direction times a number drawn for its token, so that the logarithms of a row's
weights are normal with a stated deviation: few tokens have most of the weight. Prompts are written, not computed, and
not timed.
"""

import math
from dataclasses import dataclass

VOCABULARY = 128256
CHUNK = 8  # Steps that are launched before the host reads their results.
RESERVE = 0.02  # The share of all pages that admission leaves free.


@dataclass(frozen=True)
class Shape:
    """Llama-3.1-8B, unless said otherwise."""

    layers: int = 32
    q_heads: int = 32
    kv_heads: int = 8
    dim: int = 128
    hidden: int = 4096
    inner: int = 14336
    vocabulary: int = VOCABULARY

    @property
    def plain_bytes(self):
        """Return the bytes of a token in 16 bits."""
        return self.layers * self.kv_heads * self.dim * 2 * 2


@dataclass(frozen=True)
class Load:
    """Requests: `rate` a second on average, prompts and answers uniform between two numbers of tokens; `spread` is the
    deviation of the logarithms of a row's weights."""

    rate: float = 200.0
    prompt: tuple[int, int] = (512, 1024)
    answer: tuple[int, int] = (128, 384)
    spread: float = 1.5
    seed: int = 7

    @property
    def mean_tokens(self):
        """Return the tokens of a request that is halfway."""
        return (sum(self.prompt) + sum(self.answer) / 2) / 2

    @property
    def most_tokens(self):
        return self.prompt[1] + self.answer[1]


class Weights:
    """The products of a step. Every layer multiplies with the same random weights, which no cache of a GPU holds: as
    many bytes are read as in a model."""

    def __init__(self, torch, shape, rows, device):
        def random(*sizes):
            return torch.randn(sizes, device=device, dtype=torch.bfloat16) * sizes[0] ** -0.5

        heads = (shape.q_heads + 2 * shape.kv_heads) * shape.dim
        self.torch, self.x = torch, random(rows, shape.hidden)
        self.qkv = random(shape.hidden, heads)
        self.o = random(shape.q_heads * shape.dim, shape.hidden)
        self.up = random(shape.hidden, 2 * shape.inner)
        self.down = random(shape.inner, shape.hidden)
        self.head = random(shape.hidden, shape.vocabulary)

    def before(self):
        return self.x @ self.qkv

    def after(self, out):
        inner = (out.flatten(1) @ self.o) @ self.up
        return (
            self.torch.nn.functional.glu(inner, 1) @ self.down
        )  # Instead of SwiGLU: PyTorch has it as one kernel.

    def logits(self):
        return (self.x @ self.head).argmax(1)


class Tokens:
    """Keys with scores of a chosen distribution, drawn for `period` steps and for every list of a layer; values are
    noise. The layers of a model see the same."""

    def __init__(self, torch, shape, load, requests, device, period=64):
        random = torch.Generator().manual_seed(load.seed)
        self.torch, self.shape, self.load, self.device = torch, shape, load, device
        unit = torch.randn(shape.kv_heads, shape.dim, generator=random)
        self.unit = (unit / unit.norm(dim=1, keepdim=True)).to(device)
        # A score is q k / sqrt(dim): for keys c * unit and queries of norm sqrt(dim) along it, it is c.
        group = shape.q_heads // shape.kv_heads
        noise = torch.randn(requests, shape.q_heads, shape.dim, generator=random).to(device)
        along = self.unit.repeat_interleave(group, 0)
        noise -= (noise * along).sum(2, keepdim=True) * along
        self.q = (along * math.sqrt(shape.dim) + 0.1 * noise).to(torch.bfloat16).contiguous()
        self.draws = (torch.randn(period, requests, shape.kv_heads, generator=random) * load.spread).to(
            device
        )
        self.step = torch.zeros(1, dtype=torch.int64, device=device)
        self.k = torch.zeros(requests, shape.kv_heads, shape.dim, dtype=torch.bfloat16, device=device)
        values = torch.randn(requests, shape.kv_heads, shape.dim, generator=random)
        self.v = values.to(device, torch.bfloat16)

    def next(self):
        """Make the new keys of a step."""
        draws = self.draws.index_select(0, self.step % len(self.draws))[0]
        self.torch.mul(draws[:, :, None], self.unit, out=self._wide())
        self.k.copy_(self._wide())
        self.step += 1

    def _wide(self):
        if not hasattr(self, "_keys"):
            self._keys = self.k.float()
        return self._keys

    def prompt(self, tokens, seed):
        """Return (the significance of tokens to all rows that see them, float32 [kv_heads, tokens], keys, values
        [tokens, ...])."""
        torch = self.torch
        random = torch.Generator(device=self.device).manual_seed(seed)
        made = dict(generator=random, device=self.device)
        draws = torch.randn(self.shape.kv_heads, tokens, **made) * self.load.spread
        weights = draws.double().exp()
        # Row i gives token t its weight over the sum of the first i: summed over rows from t on.
        rows = weights.cumsum(1).reciprocal()
        worth = weights * rows.flip(1).cumsum(1).flip(1)
        keys = (draws.T[:, :, None] * self.unit).to(torch.bfloat16)
        values = torch.randn(tokens, self.shape.kv_heads, self.shape.dim, **made).to(torch.bfloat16)
        return worth.float(), keys, values


def request_length(torch, load, number, done):
    """Return the tokens of a request at admission, `done` of its answer among them, and those that it still generates."""
    random = torch.Generator().manual_seed(1000 + number)
    prompt, answer = (
        int(torch.randint(low, high + 1, (1,), generator=random)) for low, high in (load.prompt, load.answer)
    )
    made = min(int(done * answer), answer - 1)
    return prompt + made, answer - made


def levels_of(torch, worth, policy):
    """Return how a prompt's tokens are kept in each list."""
    return torch.full_like(worth, 2, dtype=torch.int8) if policy is None else policy.prompt(worth).level


class Server:
    """A cache of `memory` bytes, and its requests. `slots`: at most so many at once."""

    def __init__(self, torch, shape, load, cache, weights, tokens):
        self.torch, self.shape, self.load, self.cache = torch, shape, load, cache
        self.weights, self.tokens = weights, tokens
        self.left = {}  # Remaining steps of requests in slots, in the order of admission.
        self.preempted = 0
        self.kept = []  # Stored bytes of prompts over those in 16 bits.

    def launches(self):
        """Launch a step of all requests."""
        self.cache.begin()
        self.tokens.next()
        for layer in range(self.shape.layers):
            if self.weights:
                self.weights.before()
            out = self.cache.attend(layer, self.tokens.q, self.tokens.k, self.tokens.v)
            if self.weights:
                self.weights.after(out)
        self.cache.end()
        if self.weights:
            self.weights.logits()

    def admit(self, number, done=0):
        """Put a request into a free slot, `done` tokens of its answer with the prompt. False if there are no pages or
        slots."""
        free = next((i for i in range(self.cache.requests) if i not in self.left), None)
        if free is None:
            return False
        length, left = request_length(self.torch, self.load, number, done)
        worth, keys, values = self.tokens.prompt(length, number)
        levels = levels_of(self.torch, worth, self.cache.policy).expand(self.shape.layers, *worth.shape)
        if not self._has_room(levels):
            return False
        scores = worth.expand(self.shape.layers, *worth.shape)
        slots = self.cache.admit(free, levels, scores)
        for layer in range(self.shape.layers):
            self.cache.write([each[layer] for each in slots], keys, values)
        self.left[free] = left
        return True

    def _has_room(self, levels):
        pool = self.cache.pool
        pages = 0
        for level, page in zip((2, 1), pool.page_tokens, strict=True):
            pages += int((((levels[0] == level).sum(1) + page) // page).sum()) * self.shape.layers
        # Pages that all requests take until the host reads results again: at most one at each end.
        ends = len(self.cache.counts)
        growth = ends * self.shape.layers * self.shape.kv_heads * (len(self.left) + 1)
        growth *= CHUNK / min(pool.page_tokens)
        return pages + growth + RESERVE * pool.pages <= pool.free_pages()

    def finish(self, steps):
        """Release requests that have generated all tokens."""
        for slot in list(self.left):
            self.left[slot] -= steps
            if self.left[slot] <= 0:
                del self.left[slot]
                self.cache.release(slot)

    def preempt(self):
        """Release the youngest request unfinished, when pages run out."""
        slot = list(self.left)[-1]
        del self.left[slot]
        self.cache.release(slot)
        self.preempted += 1

    def held_bytes(self):
        """Return the bytes of the kept tokens, and of all tokens seen in 16 bits."""
        counts = [int(count.sum()) for count in self.cache.counts]
        sizes = [each.token_bytes for each in self.cache.precisions]
        stored = sum(count * size for count, size in zip(counts, sizes, strict=True))
        return stored, int(self.cache.seen.sum()) * self.shape.dim * 4


def serve(server, run, load, steps, warm_up):
    """Serve until `steps` steps are timed, and report. `run(n)`: runs n steps, returns their seconds."""
    random = server.torch.Generator().manual_seed(load.seed)

    def exponential():
        return float(server.torch.empty(1).exponential_(load.rate, generator=random))

    number, waiting, clock, next_at = 0, 0, 0.0, exponential()
    while server.admit(number, done=(number * 0.618) % 1):  # It is as if requests had been served for long.
        number += 1
    timed = seconds = produced = batch = 0
    sums = [0, 0]
    while timed < steps:
        while next_at <= clock:
            waiting, next_at = waiting + 1, next_at + exponential()
        while waiting and server.admit(number):
            number, waiting = number + 1, waiting - 1
        missed = int(server.cache.missed)
        spent = run(CHUNK)
        fewer = int(server.cache.missed) - missed
        clock += spent
        if clock and warm_up <= 0:
            timed, seconds = timed + CHUNK, seconds + spent
            produced += len(server.left) * (CHUNK - fewer)
            batch += len(server.left) * CHUNK
            sums = [a + b for a, b in zip(sums, server.held_bytes(), strict=True)]
        warm_up -= CHUNK
        server.finish(CHUNK - fewer)
        if fewer:
            server.preempt()
    return {
        "batch": batch / timed,
        "step_ms": 1e3 * seconds / timed,
        "tokens_per_second": produced / seconds,
        "compression": sums[1] / max(sums[0], 1),
        "preempted": server.preempted,
        "admitted": number,
        "waiting": waiting,
    }
