# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gates by distillation: as many heads as possible stream while hidden states stay the same.

The teacher is the unchanged model. In the student each head's output is gate * full + (1 - gate) * streaming, and only
gates are trained, in float32, on the mean squared difference of the last hidden states plus the mean of the gates.

    blend      full output                     gates are clamped to 0 to 1
    release    the teacher's, of each layer    before each step, so that the last one may leave some outside
    paper      the student's own               after each step

Both use one schedule: a fifth of the steps up from a tenth of the rate, a fifth down to it. (Source: arXiv 2410.10819,
section 2.2; its release for details that the paper leaves open. The paper writes sums where the release has means.)
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ..errors import CheckError, SpecError, expected
from .files import replace_file
from .models import Decoder, texts_of
from .two_outputs import attend_both, attend_streaming, mix


@dataclass(frozen=True)
class Progress:
    """A finished step. Its text is a line: `progress=print` shows it."""

    step: int
    """The number of finished steps, or of texts read."""
    steps: int
    """The number of all steps."""
    loss: float
    """The loss that is minimised; for methods without training the distance alone."""
    distance: float
    """Mean squared difference of hidden states."""
    sparsity: float
    """The share of gates below 0.5."""
    seconds_left: float
    """Estimated from the steps since the start, or since resuming."""

    def __str__(self) -> str:
        minutes, seconds = divmod(round(self.seconds_left), 60)
        left = f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
        return (
            f"step {self.step} of {self.steps}: loss {self.loss:.4g}, distance {self.distance:.4g}, "
            f"sparsity {self.sparsity:.2f}, {left} left"
        )


@dataclass(frozen=True)
class Settings:
    """Everything that decides the gates, beside model and data."""

    blend: str
    sink: int
    recent: int
    steps: int
    rate: float
    regularization: float
    initial: float


def attend_full(q: Tensor, k: Tensor, v: Tensor, scale: float, window: int) -> Tensor:
    """Compute the model's own attention."""
    if window and window < q.shape[2]:
        return attend_streaming(q, k, v, scale, 0, window)
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=True)


def blended(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gates: Tensor,
    *,
    settings: Settings,
    scale: float,
    window: int,
    full: Tensor | None,
) -> Tensor:
    """Compute a layer of the student, with the teacher's output `full`, or with its own."""
    sink, recent = settings.sink, settings.recent
    if full is None:
        full, _, streaming, _ = attend_both(q, k, v, sink=sink, recent=recent, window=window, scale=scale)
    elif window and window < q.shape[2]:
        streaming = attend_both(q, k, v, sink=sink, recent=recent, window=window, scale=scale)[2]
    else:
        streaming = attend_streaming(q, k, v, scale, sink, recent)
    return mix(full, streaming, gates.clamp(0, 1))


def distill(
    decoder: Decoder,
    data: Callable,
    settings: Settings,
    *,
    checkpoint: str | os.PathLike | None,
    every: int,
    progress: Callable[[Progress], object] | None,
) -> Tensor:
    """Train the gates; returns float32 [layers, kv_heads]. CheckError, SpecError."""
    run = _Run(decoder, data, settings)
    path = None if checkpoint is None else Path(checkpoint)
    if path is not None and path.exists():
        run.load(path)
    begun, first = time.monotonic(), run.step
    while run.step < settings.steps:
        distance, loss = run.train()
        done = run.step == settings.steps
        if path is not None and (done or run.step % every == 0):
            run.save(path)
        if progress is not None:
            left = (time.monotonic() - begun) / (run.step - first) * (settings.steps - run.step)
            sparsity = float((run.gates < 0.5).float().mean())
            progress(Progress(run.step, settings.steps, loss, distance, sparsity, left))
    return run.gates.detach().cpu()


class _Run:
    """Gates in training. A step depends only on them, the optimiser's state and the step's number."""

    def __init__(self, decoder: Decoder, data: Callable, settings: Settings):
        self.decoder, self.data, self.settings = decoder, data, settings
        shape = len(decoder.layers), decoder.kv_heads
        self.gates = torch.full(
            shape, settings.initial, dtype=torch.float32, device=decoder.device, requires_grad=True
        )
        self.adam = torch.optim.AdamW([self.gates], lr=settings.rate, weight_decay=0)
        self.step = 0

    def train(self) -> tuple[float, float]:
        """Train one step; returns the distance and the loss. CheckError if the loss is not finite."""
        settings, gates = self.settings, self.gates
        if settings.blend == "release":
            gates.data.clamp_(0, 1)
        tokens, counted = texts_of(self.data, self.step)
        counted = counted.to(self.decoder.device)
        outputs: dict[int, Tensor] = {}

        def teach(layer, q, k, v, scale, window):
            out = attend_full(q, k, v, scale, window)
            if settings.blend == "release":
                outputs[layer] = out
            return out

        def learn(layer, q, k, v, scale, window):
            return blended(
                *(q, k, v, gates[layer]),
                **dict(settings=settings, scale=scale, window=window, full=outputs.get(layer)),
            )

        with torch.no_grad():
            wanted = self.decoder.hidden(tokens, teach)[counted].float()
        found = self.decoder.hidden(tokens, learn)[counted].float()
        distance = (found - wanted).square().mean()
        loss = distance + settings.regularization * gates.abs().mean()
        if not math.isfinite(loss.item()):
            raise CheckError(
                f"step {self.step}: the loss is {loss.item()}, of a distance of {distance.item()}; gates are those of the "
                "step before"
            )
        gates.grad = self._gradient(loss, found.numel())
        self.adam.param_groups[0]["lr"] = settings.rate * _share_of_rate(self.step, settings.steps)
        self.adam.step()
        if settings.blend == "paper":
            gates.data.clamp_(0, 1)
        self.step += 1
        return distance.item(), loss.item()

    def _gradient(self, loss: Tensor, count: int) -> Tensor:
        """Return the loss's gradient by the gates. The mean over `count` features makes gradients of hidden states too
        small for float16, so there a power of two near `count` multiplies the loss, or a smaller one if gradients
        overflow. CheckError if they are not finite without it."""
        half = self.decoder.dtype == torch.float16
        scale = 2.0 ** math.floor(math.log2(count)) if half else 1.0
        while True:
            (found,) = torch.autograd.grad(loss * scale, self.gates, retain_graph=half)
            if found.isfinite().all():
                return found / scale
            if scale <= 1:
                raise CheckError(
                    f"step {self.step}: gradients of the gates are not finite; gates are those of the step before"
                )
            scale = max(scale / 16, 1.0)

    # --- Checkpoints -----------------------------------------------------------------------------------------

    def _facts(self) -> dict[str, Any]:
        """Return the facts that a checkpoint must agree with. The first step's texts stand for the data."""
        tokens, _ = texts_of(self.data, 0)
        texts = hashlib.sha256(tokens.cpu().to(torch.int64).numpy().tobytes()).hexdigest()
        return {"gates": list(self.gates.shape), "texts": texts, **vars(self.settings)}

    def save(self, path: Path) -> None:
        """Replace the file atomically: a kill at any time leaves the old or the new one."""
        state = self.adam.state[self.gates]
        memory = io.BytesIO()
        torch.save(
            {
                "facts": json.dumps(self._facts()),
                "step": self.step,
                "gates": self.gates.detach().cpu(),
                "adam": {name: value.cpu() for name, value in state.items()},
            },
            memory,
        )
        replace_file(path, memory.getvalue())

    def load(self, path: Path) -> None:
        """Continue from a checkpoint. SpecError if the file is not a checkpoint, or a checkpoint of another run."""
        try:
            saved = torch.load(path, map_location=self.decoder.device, weights_only=True)
            facts = json.loads(saved["facts"])
        except Exception as error:
            raise SpecError(f"{path}: expected a checkpoint of attn.heads.identify: {error}") from None
        for name, value in self._facts().items():
            if facts.get(name) != value:
                raise expected(SpecError, f"{path}: {name}", f"{value}, as is asked for", facts.get(name))
        self.step = saved["step"]
        self.gates.data.copy_(saved["gates"])
        self.adam.state[self.gates] = saved["adam"] | {"step": saved["adam"]["step"].cpu()}


def _share_of_rate(step: int, steps: int) -> float:
    ramp = max(steps // 5, 1)
    return min(1.0, max((step + 1) / ramp, 0.1), max((steps - step) / ramp, 0.1))
