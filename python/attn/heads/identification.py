# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the heads of a model that retrieve."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any, Literal

from torch import nn

from ..compiler.progress import steps_shown
from ..errors import SpecError, closest, expected
from .choice import tokens_of
from .distill import Progress, Settings, distill
from .gates import Gates
from .models import Decoder, texts_of
from .scores import ablate, weigh

METHODS = ("distill", "ablation", "attention")
BLENDS = ("release", "paper")


def identify(
    model: nn.Module,
    data: Callable[[int], tuple],
    *,
    method: str = "distill",
    blend: str = "release",
    sink: int = 64,
    recent: int = 256,
    steps: int | None = None,
    rate: float = 0.02,
    regularization: float = 0.05,
    initial: float = 1.0,
    checkpoint: str | os.PathLike | None = None,
    every: int = 50,
    progress: Callable[[Progress], object] | Literal[False] | None = None,
) -> Gates:
    """Find a gate for each KV head, near 1 if it retrieves.

    model           a decoder of Transformers with grouped attention (Llama, Mistral, Qwen3, …), of any dtype, on any
                    device; it is not changed
    data            a function of a step's number that returns tokens int64 [batch, length] and a bool mask of the tokens that
                    count, equal ones for an equal number: `Passkeys`, or a function of yours
    method          distill: trains gates (DuoAttention). ablation: how far hidden states move if only this head streams, as
                    a share of the farthest. attention: the share of its attention that a head would not see if it streamed.
                    The last two do not train, and rank heads: select by sparsity
    blend           for distill, the output that a half-open gate passes: release (the teacher's full output) or paper (the
                    student's own)
    sink, recent    first and last tokens that a streaming head sees
    steps           of training, 2000 by default; of the other methods batches of texts, 8
    rate, regularization, initial   of distill: the learning rate, the weight of the mean gate, and where gates start
    checkpoint      of distill: a file that is replaced at once after `every` steps; where it exists, training goes on from
                    it, with the same bits as if it had never stopped
    progress        is called after each step with a `Progress`. None: a line on standard error where that is a terminal,
                    nothing elsewhere. False: nothing

    Equal arguments give equal gates, bit by bit, on one machine with one number of threads. Raises SpecError;
    CheckError, which names the step, if the loss is not finite.
    """
    for name, given, legal in (("method", method, METHODS), ("blend", blend, BLENDS)):
        if given not in legal:
            raise expected(
                SpecError, name, f"one of {', '.join(legal)}", given, nearest=closest(given, legal)
            )
    if method != "distill" and checkpoint is not None:
        raise SpecError(f"checkpoint: of method distill alone, and {method} does not train")
    sink, recent = tokens_of("sink", sink), tokens_of("recent", recent, 1)
    steps = tokens_steps(steps, 2000 if method == "distill" else 8)
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise expected(SpecError, "every", "a number of steps from 1 on", every)
    for name, number in (("rate", rate), ("regularization", regularization), ("initial", initial)):
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 <= number < 1e6:
            raise expected(SpecError, name, "a number from 0 on", number)
    decoder = Decoder(model)
    tokens, _ = texts_of(data, 0)
    if tokens.shape[1] <= sink + recent:
        legal = f"texts longer than the {sink + recent} tokens that a streaming head sees"
        raise expected(SpecError, "data(0)", legal, tokens.shape[1])
    with contextlib.ExitStack() as stack:
        stack.enter_context(decoder.at_rest())
        if progress is None:
            progress = stack.enter_context(steps_shown("identify"))
        if method == "distill":
            settings = Settings(
                blend, sink, recent, steps, float(rate), float(regularization), float(initial)
            )
            values = distill(
                decoder, data, settings, checkpoint=checkpoint, every=every, progress=progress or None
            )
        else:
            score = ablate if method == "ablation" else weigh
            values = score(decoder, data, sink, recent, steps, progress or None)
    found: dict[str, Any] = {"supervision": method, "num_steps": steps}
    if method == "distill":
        found |= {"blend": blend, "lr": rate, "reg_weight": regularization, "initial_value": initial}
    return Gates(values.numpy(), sink=sink, recent=recent, settings=found)


def tokens_steps(steps: object, default: int) -> int:
    """Return `steps`, or the default. SpecError if it is not a number of steps."""
    if steps is None:
        return default
    if isinstance(steps, bool) or not isinstance(steps, int) or not 1 <= steps < 2**31:
        raise expected(SpecError, "steps", "a whole number from 1 on", steps, nearest=1)
    return steps
