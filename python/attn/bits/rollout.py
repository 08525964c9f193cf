# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The two sides of a comparison: an engine that answers prompts, and a trainer that recomputes the answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..adapters.transformers_cache import PagedCache
from ..generation.engine import Engine
from ..generation.requests import pages_of
from ..generation.scheduler import Share
from .taps import Point, Taps


@dataclass
class Answer:
    """A request, and the engine's numbers for it."""

    tokens: list[int]
    """Of the prompt and the answer."""
    prompt: int
    """The number of tokens of the prompt."""
    cached: int = 0
    """Tokens of the prompt that were not read again."""
    logits: dict[int, Tensor] = field(default_factory=dict)
    """[vocabulary], by the position of the token that they follow."""
    told: list[float] = field(default_factory=list)
    """The engine's log-probability of each token of the answer."""
    points: dict[Point, dict[int, Tensor]] = field(default_factory=dict)
    """Tensors [features] by position, if the request was watched."""


@dataclass(frozen=True)
class Rollout:
    """How an engine answers prompts."""

    max_new_tokens: int
    sequences: int
    rows: int
    page_size: int
    prefix_cache: bool
    rounds: int
    sampling: dict[str, Any]
    key: str | None = None
    value: str | None = None

    def run(
        self, model: nn.Module, prompts: Sequence[Sequence[int]], taps: Taps | None = None, watched: str = ""
    ) -> dict[str, Answer]:
        """Answer all prompts, in each round again: then prefixes are in the cache. Prompts come one in a step, beside
        requests that decode. Returns the answers by name, "round.prompt", in the order in which they came. `watched`: the
        request of which `taps` are kept."""
        tokens = max(map(len, prompts)) + self.max_new_tokens
        formats = {"key": self.key, "value": self.value}
        cache = PagedCache(
            model.config,
            pages=(self.sequences + len(prompts)) * (pages_of(tokens, self.page_size) + 1),
            page_size=self.page_size,
            **{name: each for name, each in formats.items() if each is not None},
        )
        engine = Engine(
            model,
            cache=cache,
            sequences=self.sequences,
            tokens=tokens,
            rows=self.rows,
            compile=False,
            prefix_cache=self.prefix_cache,
        )
        answers: dict[str, Answer] = {}

        def watch(shares: Sequence[Share], rows: int) -> None:
            _keep_logits(engine, shares, answers)
            if taps is not None:
                _keep_points(taps, shares, rows, watched, answers)

        engine._watch = watch
        for each in range(self.rounds):
            waiting = [(f"{each}.{i}", list(prompt)) for i, prompt in enumerate(prompts)]
            while waiting or engine.has_unfinished_requests():
                if waiting:
                    name, prompt = waiting.pop(0)
                    answers[name] = Answer(prompt, len(prompt))
                    seed = {"seed": len(answers)} if self.sampling.get("do_sample") else {}
                    engine.add_request(
                        prompt,
                        max_new_tokens=self.max_new_tokens,
                        request_id=name,
                        logprobs=0,
                        eos_token_id=(),
                        **seed,
                        **self.sampling,
                    )
                for output in engine.step():
                    if output.finished:
                        _finish(answers[output.request_id], output)
        return answers


def _finish(answer: Answer, output: Any) -> None:
    answer.tokens = [*answer.tokens[: answer.prompt], *output.token_ids]
    answer.cached = output.cached_tokens
    answer.told = [of_token[token] for of_token, token in zip(output.logprobs, output.token_ids, strict=True)]


def _keep_logits(engine: Engine, shares: Sequence[Share], answers: dict[str, Answer]) -> None:
    chosen = [share for share in shares if share.chooses]
    if not chosen:
        return
    kept = engine._choices.logits[: len(chosen)].clone()
    for share, logits in zip(chosen, kept, strict=True):
        request = share.request
        answers[request.request_id].logits[request.read + share.rows - 1] = logits


def _keep_points(
    taps: Taps, shares: Sequence[Share], rows: int, watched: str, answers: dict[str, Answer]
) -> None:
    first = kept = 0
    for share in shares:
        if share.request.request_id == watched:
            begin = share.request.read
            for point, tensor in taps.latest.items():
                found = answers[watched].points.setdefault(point, {})
                if tensor.shape[1] == rows:
                    for i in range(share.rows):
                        found[begin + i] = tensor[0, first + i].clone()
                elif share.chooses:  # The module follows the choice of rows that have logits.
                    found[begin + share.rows - 1] = tensor[0, kept].clone()
        first, kept = first + share.rows, kept + share.chooses


def recompute(model: nn.Module, sequences: Sequence[Sequence[int]], layout: str) -> list[Tensor]:
    """Return the trainer's logits [tokens, vocabulary] of each sequence, of one forward pass that autograd records.
    `layout`: "padded" on the right, or "packed" one behind the other."""
    device, lengths = model.device, [len(sequence) for sequence in sequences]
    with torch.enable_grad():
        if layout == "packed":
            ids = torch.tensor([[token for sequence in sequences for token in sequence]], device=device)
            places = torch.cat([torch.arange(length) for length in lengths])[None].to(device)
            out = model(input_ids=ids, position_ids=places, use_cache=False)
            return list(out.logits[0].detach().split(lengths))
        longest = max(lengths)
        ids = torch.zeros(len(sequences), longest, dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for i, sequence in enumerate(sequences):
            ids[i, : len(sequence)], mask[i, : len(sequence)] = torch.tensor(sequence), 1
        out = model(input_ids=ids.to(device), attention_mask=mask.to(device), use_cache=False)
        return [logits[:length] for logits, length in zip(out.logits.detach(), lengths, strict=True)]


def rows_of(taps: Taps, index: int, lengths: Sequence[int], layout: str) -> dict[Point, Tensor]:
    """Return the tensors [tokens, features] of a sequence of the trainer's forward pass."""
    first = sum(lengths[:index]) if layout == "packed" else 0
    row = 0 if layout == "packed" else index
    return {
        point: tensor[min(row, len(tensor) - 1), first : first + lengths[index]]
        for point, tensor in taps.latest.items()
    }
