# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A causal model's head along edges: log-probabilities of targets instead of logits, some rows at a time.

Logits of all rows that have edges would be the largest tensor of a step: rows times a vocabulary of 150,000, again in
float32 and again in backward. Here only those of one chunk exist at a time, and backward computes them again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from ..errors import SpecError, expected
from .edges import check_targets, edge_values
from .packing import Packed

CHUNK = 4096


@contextlib.contextmanager
def edge_head(
    model: nn.Module,
    packed: Packed,
    *,
    temperature: float = 1.0,
    entropy: bool = False,
    chunk: int | None = CHUNK,
) -> Iterator[None]:
    """Make the `logits` of a causal model of Transformers [1, edges, 1] in this context: the log-probability of each
    edge's target; with `entropy` [1, edges, 2]. Its head must be given the rows `packed.sources`, as by logits_to_keep.

    chunk  rows whose logits exist at a time, also in backward, which computes them again; None: all, which are kept

    It works inside the model's own call, when wrappers have gathered the head's weights. Raises SpecError, for a model
    without a head; TensorError, for targets outside of its vocabulary.
    """
    if chunk is not None and (isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1):
        raise expected(SpecError, "chunk", "a number of rows from 1 on, or None", chunk)
    inner = next((m for m in model.modules() if isinstance(m, PreTrainedModel)), None)
    head = None if inner is None else inner.get_output_embeddings()
    if head is None:
        raise expected(
            SpecError, "model", "a causal model of Transformers, with a head", type(model).__name__
        )
    check_targets(packed, inner.config.vocab_size, temperature)
    own, logits_of = head.__dict__.get("forward"), head.forward

    def along_edges(rows: Tensor) -> Tensor:
        return _in_chunks(logits_of, rows[0], packed, temperature, entropy, chunk or max(len(rows[0]), 1))[
            None
        ]

    head.forward = along_edges
    try:
        yield
    finally:
        if own is None:
            del head.forward
        else:
            head.forward = own


def _in_chunks(
    logits_of: Callable[[Tensor], Tensor],
    rows: Tensor,
    packed: Packed,
    temperature: float,
    entropy: bool,
    chunk: int,
) -> Tensor:
    """Compute [edges, 1 or 2] of rows [sources, features], chunk by chunk."""
    index = torch.from_numpy(packed.edge_source_index).to(rows.device)
    targets = torch.from_numpy(packed.edge_target).to(rows.device)
    order = index.argsort(stable=True)
    first = torch.arange(0, len(rows) + chunk, chunk, device=rows.device)
    bounds = torch.searchsorted(index[order], first).tolist()

    def of_chunk(part: Tensor, of_rows: Tensor, wanted: Tensor) -> Tensor:
        return torch.stack(edge_values(logits_of(part), of_rows, wanted, temperature, entropy), 1)

    found = []
    for number, part in enumerate(rows.split(chunk)):
        edges = order[bounds[number] : bounds[number + 1]]
        arguments = part, index[edges] - number * chunk, targets[edges]
        if len(rows) > chunk and torch.is_grad_enabled():
            found.append(checkpoint(of_chunk, *arguments, use_reentrant=False))
        else:
            found.append(of_chunk(*arguments))
    return torch.cat(found)[order.argsort()]
