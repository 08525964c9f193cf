# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_bits: compares the log-probabilities of an engine with those of a trainer, to the bit."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .. import transformers as _registers  # noqa: F401  (the names of implementations)
from ..adapters.transformers_fallback import OWN_NAMES, ROW_NAME
from ..describe import checks
from ..errors import PlanError, TensorError, closest, expected
from ..generation.requests import prompt_ids
from .blocks import place_matters, row_ops
from .rollout import Answer, Rollout, recompute, rows_of
from .taps import Point, tapped

_LAYOUTS = ("padded", "packed")


@dataclass(frozen=True)
class Parting:
    """The first operation of a forward pass whose results differ."""

    module: str
    """Its name in the model, as "model.layers.0.self_attn"."""
    operation: str
    """What differs: "attention", "Linear", "LlamaRMSNorm", or what comes before a module."""
    is_attention: bool
    request: int
    """The number of the answer, counted over all rounds."""
    position: int
    """The first position in the request whose row differs."""
    rows: int
    """The number of rows of the request that differ."""
    largest: float
    """The largest difference of two elements."""

    def __str__(self) -> str:
        return (
            f"{self.module}: {self.operation}: {self.rows} rows of answer {self.request} differ, the first at position "
            f"{self.position}, by {self.largest:.2e} at most"
        )


@dataclass(frozen=True)
class BitsReport:
    """The result of `check_bits`."""

    answers: int
    tokens: int
    """The number of generated tokens."""
    cached_tokens: int
    """Tokens of prompts that the engine found in its cache of prefixes."""
    differing_tokens: int
    """Generated tokens whose own log-probability differs."""
    numbers: int
    """Compared log-probabilities: of all words, for each generated token."""
    differing: int
    largest: float
    """The largest difference of two log-probabilities."""
    first: Parting | None
    """The first operation whose results differ; None if nothing differs."""

    @property
    def equal(self) -> bool:
        """Whether all log-probabilities are the same bits."""
        return not self.differing and not self.differing_tokens

    def __str__(self) -> str:
        told = (
            f"{self.answers} answers, {self.tokens} tokens ({self.cached_tokens} of prompts from the cache)\n"
            f"{self.numbers} log-probabilities compared, {self.differing} differ"
        )
        if not self.equal:
            told += f", by {self.largest:.2e} at most\n{self.differing_tokens} tokens' own differ"
        return told if self.first is None else f"{told}\nfirst: {self.first}"


def check_bits(
    model: nn.Module,
    prompts: Sequence[Any],
    *,
    max_new_tokens: int = 16,
    sequences: int = 4,
    rows: int = 24,
    page_size: int = 16,
    prefix_cache: bool = True,
    rounds: int = 2,
    layout: str = "padded",
    batch: int = 4,
    row_ops: bool | int = True,
    key: str | None = None,
    value: str | None = None,
    **sampling: Any,
) -> BitsReport:
    """Answer prompts with `attn.transformers.Engine`, recompute the answers as a trainer does, and compare
    log-probabilities with ==. If some differ, both run again, and the first operation that parts is named.

    model       of Transformers, with attn_implementation="attn_row"; with "attn" the check shows what that costs
    prompts     lists of tokens, or tensors
    max_new_tokens, sequences, rows, page_size, prefix_cache, key, value    of the engine and of its cache. Prompts longer
                than `rows` are read in chunks; a new prompt comes in each step, beside requests that decode
    rounds      all prompts come so many times; from the second on the cache of prefixes has them
    layout      of the trainer's forward pass: "padded" on the right, or "packed"; `batch`: its number of sequences
    row_ops     True: PyTorch's products and sums run in blocks of rows (attn.bits.row_ops), as a number in blocks of so
                many. False: as they are
    sampling    do_sample, temperature, top_k, top_p, min_p, as of Engine

    Neither side is compiled. Engines with drafts are not served. Raises PlanError and TensorError.
    """
    implementation = getattr(getattr(model, "config", None), "_attn_implementation", None)
    if implementation not in OWN_NAMES:
        raise expected(
            PlanError, "model", f'attn_implementation="{ROW_NAME}"', implementation, nearest=repr(ROW_NAME)
        )
    if layout not in _LAYOUTS:
        raise expected(PlanError, "layout", "'padded' or 'packed'", layout, nearest=closest(layout, _LAYOUTS))
    if not isinstance(prompts, Sequence) or not len(prompts):
        raise expected(TensorError, "prompts", "one or more prompts", prompts)
    config = model.config.get_text_config(decoder=True)
    given = [prompt_ids(prompt, config.vocab_size) for prompt in prompts]
    checks.integer("batch", batch, 1, 1 << 20)
    checks.integer("rounds", rounds, 1, 1 << 20)
    rollout = Rollout(max_new_tokens, sequences, rows, page_size, prefix_cache, rounds, sampling, key, value)
    with torch.no_grad(), _operations(row_ops):
        answers = rollout.run(model, given)
        compared = _compare(model, answers, layout, batch)
        index = next((i for i, found in enumerate(compared) if found[1] or found[2]), None)
        first = None if index is None else _find_first(model, rollout, given, answers, index, layout, batch)
    return BitsReport(
        answers=len(answers),
        tokens=sum(len(answer.told) for answer in answers.values()),
        cached_tokens=sum(answer.cached for answer in answers.values()),
        differing_tokens=sum(found[1] for found in compared),
        numbers=sum(found[0] for found in compared),
        differing=sum(found[2] for found in compared),
        largest=max(found[3] for found in compared),
        first=first,
    )


def _operations(asked: bool | int) -> contextlib.AbstractContextManager:
    if asked is False:
        return contextlib.nullcontext()
    return row_ops(None if asked is True else asked)


def _compare(
    model: nn.Module, answers: dict[str, Answer], layout: str, batch: int
) -> list[tuple[int, int, int, float]]:
    """Return of each answer: the compared log-probabilities, tokens and log-probabilities that differ, and the largest
    difference."""
    found, each = [], list(answers.values())
    for first in range(0, len(each), batch):
        part = each[first : first + batch]
        for answer, logits in zip(part, recompute(model, _read(part), layout), strict=True):
            ours = torch.stack([answer.logits[at] for at in _chosen(answer)])
            theirs = logits[answer.prompt - 1 :]
            a, b = (side.float().log_softmax(1) for side in (ours, theirs))
            differ, difference = a != b, (a - b).abs()
            tokens = torch.tensor(answer.tokens[answer.prompt :], device=b.device)[:, None]
            told = torch.tensor(answer.told, device=b.device) != b.gather(1, tokens)[:, 0]
            largest = float(difference.nan_to_num(0.0, 0.0).max())
            found.append((a.numel(), int(told.sum()), int(differ.sum()), largest))
    return found


def _read(answers: Sequence[Answer]) -> list[list[int]]:
    """Return the tokens that are read: the last one has no successor."""
    return [answer.tokens[:-1] for answer in answers]


def _chosen(answer: Answer) -> range:
    return range(answer.prompt - 1, len(answer.tokens) - 1)


def _find_first(
    model: nn.Module,
    rollout: Rollout,
    prompts: list[list[int]],
    answers: dict[str, Answer],
    index: int,
    layout: str,
    batch: int,
) -> Parting:
    """Run both sides again, with taps, and return the first operation of an answer that differs."""
    name = list(answers)[index]
    with tapped(model) as taps:
        engine = rollout.run(model, prompts, taps, name)[name].points
    begin = index - index % batch
    part = _read(list(answers.values())[begin : begin + batch])
    with tapped(model) as taps:
        recompute(model, part, layout)
        trainer = rows_of(taps, index - begin, [len(tokens) for tokens in part], layout)
    modules = dict(model.named_modules())
    before: Point | None = None
    for point, rows in trainer.items():
        found = _differing(engine.get(point, {}), rows)
        if found:
            largest = max(difference for _, difference in found)
            operation, attention = _named(point, before, modules)
            if isinstance(modules.get(point.module), nn.Linear) and point.part == "output":
                operation += _why(modules[point.module], rollout)
            return Parting(point.module, operation, attention, index, found[0][0], len(found), largest)
        before = point
    return Parting(
        "the logits", "what follows the last module", False, index, answers[name].prompt - 1, 0, 0.0
    )


def _differing(engine: dict[int, Tensor], trainer: Tensor) -> list[tuple[int, float]]:
    found = []
    for position, row in sorted(engine.items()):
        if position < len(trainer) and not torch.equal(row, trainer[position]):
            found.append((position, float((row.float() - trainer[position].float()).abs().max())))
    return found


def _named(point: Point, before: Point | None, modules: dict[str, nn.Module]) -> tuple[str, bool]:
    """Return the name of the operation that made a tensor, and whether it is attention."""
    if point.part == "attention":
        return "attention", True
    if point.part == "output":
        return type(modules[point.module]).__name__, False
    where = "" if before is None else f" behind {before.module}"
    if point.part == "input":
        return f"operations of PyTorch{where} and before this module", False
    return f"the {point.part}, rotated or normed by operations of PyTorch{where}", False


def _why(module: nn.Linear, rollout: Rollout) -> str:
    mode = torch.utils._python_dispatch._get_current_dispatch_mode()
    if not isinstance(mode, row_ops):
        return ", a product whose bits depend on the number of rows (row_ops=False)"
    if place_matters(module.weight, mode):
        return ", a product of a library whose bits depend on a row's place in a block"
    return ""
