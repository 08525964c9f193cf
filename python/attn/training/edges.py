# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Log-probabilities and losses along the edges of a packed micro-batch: each a row that predicts, a target, a
trajectory."""

from __future__ import annotations

import numpy
import torch
from torch import Tensor

from ..errors import TensorError, expected
from .packing import Packed


def edge_logprobs(
    logits: Tensor, packed: Packed, *, temperature: float = 1.0, entropy: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Compute the log-probability of each edge's target: float32 [edges], or float64 for logits of float64.

    logits       of every row, [rows, vocabulary], or of the rows that have edges, [len(packed.sources), vocabulary]; a batch
                 dimension of one may precede
    temperature  divides the logits
    entropy      True: also returns the entropy of each edge's row, [edges]

    Raises TensorError, also for targets outside of the vocabulary.
    """
    flat = logits[0] if logits.ndim == 3 and len(logits) == 1 else logits
    sources = packed.sources
    if flat.ndim != 2 or len(flat) not in (len(packed.tokens), len(sources)):
        raise TensorError(
            f"logits: expected [{len(packed.tokens)}, vocabulary] of all rows or [{len(sources)}, vocabulary] of those with "
            f"edges, got {list(logits.shape)}"
        )
    check_targets(packed, flat.shape[1], temperature)
    if len(flat) != len(sources):
        flat = flat[_index(sources, flat)]
    of_rows, targets = (_index(numbers, flat) for numbers in (packed.edge_source_index, packed.edge_target))
    found = edge_values(flat, of_rows, targets, temperature, entropy)
    return found if entropy else found[0]


def check_targets(packed: Packed, vocabulary: int, temperature: float) -> None:
    """Raise a TensorError for targets outside of a vocabulary, and for a temperature that is not positive."""
    if not temperature > 0:
        raise expected(TensorError, "temperature", "a number above 0", temperature)
    largest = int(packed.edge_target.max(initial=0))
    if largest >= vocabulary:
        edge = int(packed.edge_target.argmax())
        number = packed.trajectories[packed.edge_trajectory[edge]]
        where = f"trajectory {number}, token {packed.edge_position[edge]}"
        raise expected(TensorError, where, f"a label in [0, {vocabulary}), as logits have", largest)


def edge_values(
    logits: Tensor, of_rows: Tensor, targets: Tensor, temperature: float, entropy: bool
) -> tuple[Tensor, ...]:
    """Compute (log-probabilities,) or (log-probabilities, entropies) of edges, [edges], from the index of each edge's
    row of logits [rows, vocabulary], and its target."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    if temperature != 1.0:
        logits = logits / temperature
    normalizers = logits.logsumexp(1)
    found = logits[of_rows, targets] - normalizers[of_rows]
    if not entropy:
        return (found,)
    entropies = normalizers - (logits.softmax(1) * logits).sum(1)
    return found, entropies[of_rows]


def edge_loss(
    logits: Tensor, packed: Packed, weights: Tensor | None = None, *, temperature: float = 1.0
) -> Tensor:
    """Compute the sum of each edge's weight times minus the log-probability of its target: a scalar.

    logits   as of `edge_logprobs`
    weights  one for each trajectory here, [trajectories], or for each edge, [edges], such as advantages. None: the mean
             over all edges

    It equals the loss over copies, in which each trajectory has tokens of its own. Raises TensorError.
    """
    found = edge_logprobs(logits, packed, temperature=temperature)
    if weights is None:
        return -found.mean()
    return -(edge_weights(weights, packed).to(found) * found).sum()


def edge_weights(weights: Tensor, packed: Packed) -> Tensor:
    """Return weights for each edge, from weights of trajectories, [trajectories], or of edges, [edges]. TensorError for
    others."""
    edges, here = len(packed.edge_source), len(packed.trajectories)
    if weights.shape == (here,):
        return weights[_index(packed.edge_trajectory, weights)]
    if weights.shape != (edges,):
        raise TensorError(
            f"weights: expected [{here}], one for each trajectory, or [{edges}], one for each edge, got {list(weights.shape)}"
        )
    return weights


def trajectory_sums(values: Tensor, packed: Packed) -> Tensor:
    """Sum values of edges, [edges], over each trajectory: [trajectories]. TensorError."""
    if values.shape != (len(packed.edge_source),):
        raise TensorError(f"values: expected [{len(packed.edge_source)}], got {list(values.shape)}")
    sums = values.new_zeros(len(packed.trajectories))
    return sums.index_add(0, _index(packed.edge_trajectory, values), values)


def _index(numbers: numpy.ndarray, like: Tensor) -> Tensor:
    return torch.from_numpy(numbers).to(like.device, non_blocking=True)
