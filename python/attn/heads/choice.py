# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A choice of the heads that retrieve, and its savings."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy

from ..describe.classes import heads
from ..describe.spec import Spec
from ..describe.stores import Packed
from ..describe.visibility import all_tokens, causal, recent, sink
from ..errors import SpecError, expected

RETRIEVAL, STREAMING = 0, 1


def tokens_of(name: str, size: object, least: int = 0) -> int:
    """Return `size` if it is a number of tokens (or bytes) from `least` on. SpecError otherwise."""
    if isinstance(size, bool) or not isinstance(size, (int, numpy.integer)) or not least <= size < 2**31:
        unit = "bytes" if name.endswith("bytes") else "tokens"
        raise expected(SpecError, name, f"a number of {unit} from {least} on", size)
    return int(size)


class HeadChoice:
    """A class for each head; `Gates.select` returns it, or make it from classes that were found otherwise.

    classes  int32 [layers, kv_heads], the tensor `classes` of each layer: 0 (retrieval) or 1 (streaming)
    sink     first tokens that a streaming head sees
    recent   last tokens that it sees
    """

    def __init__(self, classes: object, *, sink: int, recent: int):
        try:
            found = numpy.array(classes, numpy.int32)
        except (TypeError, ValueError):
            found = numpy.empty(0, numpy.int32)
        if found.ndim != 2 or not found.size or not numpy.isin(found, (RETRIEVAL, STREAMING)).all():
            raise expected(SpecError, "classes", "0 or 1 for each head [layers, kv_heads]", classes)
        found.flags.writeable = False
        self.classes = found
        self.sink, self.recent = tokens_of("sink", sink), tokens_of("recent", recent)

    @property
    def layers(self) -> int:
        """The number of layers of the model."""
        return self.classes.shape[0]

    @property
    def kv_heads(self) -> int:
        """The number of KV heads of a layer."""
        return self.classes.shape[1]

    @property
    def sparsity(self) -> float:
        """The share of the heads that stream."""
        return float((self.classes == STREAMING).mean())

    def report(
        self, *, q_heads: int, head_dim: int, tokens: int, batch: int = 1, dtype: str = "bfloat16"
    ) -> ChoiceReport:
        """Return the savings of the choice at a step of decoding with `batch` sequences of `tokens` tokens: bytes of
        kept keys and values, and the time of attention in all layers that the planner's cost model predicts for an
        H200. Raises SpecError."""
        tokens, batch = tokens_of("tokens", tokens, 1), tokens_of("batch", batch, 1)
        shape = {"q_heads": q_heads, "kv_heads": self.kv_heads, "head_dim": head_dim, "dtype": dtype}
        described = {
            **{**shape, "kv": [Packed()], "see": causal()},
            "heads": heads(retrieval=all_tokens(), streaming=sink(self.sink) | recent(self.recent)),
        }
        spec = Spec(**described)
        retrieving = (self.classes == RETRIEVAL).sum(1)
        full = self.layers * _decode_seconds(spec, self.kv_heads, tokens, batch)
        seconds = sum(
            count * _decode_seconds(spec, int(heads_of_layer), tokens, batch)
            for heads_of_layer, count in Counter(retrieving.tolist()).items()
        )
        kept = min(tokens, self.sink + self.recent)
        token_bytes = batch * 2 * 2 * head_dim
        all_bytes = token_bytes * self.classes.size * tokens
        own = token_bytes * int(retrieving.sum() * tokens + (self.classes.size - retrieving.sum()) * kept)
        return ChoiceReport(self.sparsity, tokens, batch, all_bytes, own, full, seconds)

    def __repr__(self) -> str:
        count = int((self.classes == RETRIEVAL).sum())
        return (
            f"<attn.heads.HeadChoice: {count} of {self.classes.size} heads retrieve, the others see {self.sink} first and "
            f"{self.recent} last tokens>"
        )


def _decode_seconds(spec: Spec, retrieving: int, tokens: int, batch: int) -> float:
    """Return a layer's predicted time on an H200: a plan needs shapes and tables, and no memory of keys and values."""
    from ..run.kernels import compile

    kernel = compile(spec, device="host")
    dtype = "bfloat16" if spec.dtype == "bfloat16" else "float16"
    line = (dtype, (batch * tokens, spec.kv_heads, spec.head_dim))
    start = numpy.arange(batch + 1, dtype=numpy.int32)
    classes = [RETRIEVAL] * retrieving + [STREAMING] * (spec.kv_heads - retrieving)
    plan = kernel.plan(
        {
            "q": (dtype, (batch, spec.q_heads, spec.head_dim)),
            **{"kv.k": line, "kv.v": line, "kv.start": start * tokens},
            **{"q_start": start, "classes": numpy.array(classes, numpy.int32)},
        }
    )
    return float(plan.stats["seconds"])


@dataclass(frozen=True)
class ChoiceReport:
    """The savings at a step of decoding, in all layers. `HeadChoice.report` returns it; as text it is a table."""

    sparsity: float
    tokens: int
    """Tokens of each sequence."""
    batch: int
    """The number of sequences."""
    full_bytes: int
    """Bytes of keys and values if all heads retrieve."""
    kept_bytes: int
    """Bytes of keys and values that the choice needs."""
    full_seconds: float
    """Predicted time on an H200 if all heads retrieve."""
    seconds: float
    """Predicted time on an H200 with the choice."""

    def __str__(self) -> str:
        return (
            f"{self.batch} sequences of {self.tokens} tokens, {self.sparsity:.0%} of the heads stream\n"
            f"  keys and values    {self.kept_bytes / 1e9:.3f} GB of {self.full_bytes / 1e9:.3f}: "
            f"{self.full_bytes / self.kept_bytes:.2f} times less\n"
            f"  decoding           {1e3 * self.seconds:.3f} ms of {1e3 * self.full_seconds:.3f} in attention, predicted "
            f"on an H200: {self.full_seconds / self.seconds:.2f} times as fast"
        )
