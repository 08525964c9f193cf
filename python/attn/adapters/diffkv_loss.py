# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The loss of a model over a cache of two precisions, by which policies are calibrated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..cache.policy import Policy
from ..errors import SpecError, TensorError, expected
from .diffkv_cache import DiffKVCache
from .transformers_config import cache_argument

PAGE = 16


class Loss:
    """The loss of a policy: the mean negative log likelihood, in nats, of the last `answers` tokens of each text, which
    come one at a time after a prompt. `model`, `data`, `answers`: as of DiffKV.calibrate."""

    def __init__(self, model: Any, data: Tensor | Sequence[Tensor], answers: int):
        self.config = getattr(model, "config", None)
        implementation = getattr(self.config, "_attn_implementation", None)
        if implementation != "attn":
            legal = "a decoder of Transformers with attn_implementation='attn'"
            found = type(model).__name__ if self.config is None else implementation
            raise expected(SpecError, "model", legal, found, nearest="attn")
        self.model = model
        self.texts = [data] if isinstance(data, Tensor) else list(data)
        if not self.texts:
            raise SpecError("data: expected token ids, int64 [texts, tokens], or several such, got none")
        for i, ids in enumerate(self.texts):
            if not isinstance(ids, Tensor) or ids.dtype != torch.int64 or ids.ndim != 2 or not ids.numel():
                given = list(ids.shape) if isinstance(ids, Tensor) else ids
                raise expected(TensorError, f"data[{i}]", "token ids, int64 [texts, tokens]", given)
        shortest = min(ids.shape[1] for ids in self.texts)
        if isinstance(answers, bool) or not isinstance(answers, int) or not 1 <= answers < shortest:
            legal = f"from 1 to {shortest - 1}, beside a prompt of a token of the shortest text"
            nearest = min(max(answers, 1), shortest - 1) if isinstance(answers, int) else 1
            raise expected(SpecError, "answers", legal, answers, nearest=nearest)
        self.answers = answers

    def __call__(self, policy: Policy, **formats: object) -> float:
        """Compute the loss of a policy. `formats`: high and low, as of DiffKVCache."""
        was_training = self.model.training
        self.model.eval()
        try:
            with torch.no_grad():
                lost = [self._of_texts(ids, policy, formats) for ids in self.texts]
        finally:
            self.model.train(was_training)
        return float(torch.cat(lost).mean())

    def _of_texts(self, ids: Tensor, policy: Policy, formats: dict) -> Tensor:
        """Return the negative log likelihoods, [texts * answers]."""
        config = self.config.get_text_config(decoder=True)
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        pages = (
            config.num_hidden_layers * heads * ids.shape[0] * (-(-ids.shape[1] // PAGE) + 2)
        )  # One page more for each precision.
        cache = DiffKVCache(self.config, policy, pages=pages, page_size=PAGE, **formats)
        first = ids.shape[1] - self.answers
        named = cache_argument(self.model, cache)
        logits = [self.model(ids[:, :first], **named).logits[:, -1]]
        for column in range(first, ids.shape[1] - 1):
            logits.append(self.model(ids[:, column : column + 1], **named).logits[:, -1])
        found = torch.stack(logits, 1).float().log_softmax(-1)
        return -found.gather(2, ids[:, first:, None]).flatten()
