# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures what a model with streaming heads still retrieves."""

from __future__ import annotations

import torch
from torch import nn

from ..errors import SpecError, expected
from .choice import RETRIEVAL, HeadChoice
from .distill import attend_full
from .models import Decoder
from .passkeys import Texts
from .two_outputs import attend_both, mix


def recall(model: nn.Module, texts: Texts, choice: HeadChoice | None = None) -> float:
    """Return the share of the answers' tokens that the model predicts, each after the correct earlier ones. Streaming
    heads of the choice see only the first and last tokens. Runs in PyTorch, for models of any dtype. Raises SpecError."""
    decoder = Decoder(model)
    if choice is not None and choice.classes.shape != (len(decoder.layers), decoder.kv_heads):
        legal = f"{len(decoder.layers)} layers of {decoder.kv_heads} KV heads, as the model has"
        raise expected(SpecError, "choice", legal, f"{choice.layers} layers of {choice.kv_heads}")

    def attend(layer, q, k, v, scale, window):
        if choice is None:
            return attend_full(q, k, v, scale, window)
        full, _, streaming, _ = attend_both(
            q, k, v, sink=choice.sink, recent=choice.recent, window=window, scale=scale
        )
        retrieve = torch.from_numpy(choice.classes[layer] == RETRIEVAL)
        return mix(full, streaming, retrieve.to(q.device, torch.float32))

    answers, rows = texts.answers[:, 1:], texts.answers[:, 1:].any(0).nonzero()[:, 0]
    with decoder.at_rest(), torch.no_grad():
        said = decoder.logits(texts.tokens[:, :-1], attend, rows).argmax(-1).cpu()
    return (said == texts.tokens[:, 1:][:, rows])[answers[:, rows]].float().mean().item()
