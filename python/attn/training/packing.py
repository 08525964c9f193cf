# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Micro-batches of trees: each a forest of tokens under a budget, and the edges along which a loss is taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy

from ..describe.forest import Forest
from ..errors import PlanError, TensorError, expected
from ..forks import cached_property
from .tries import Node, Tree, Trie, trajectories

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Packed:
    """A micro-batch in which every token that trajectories share is one row; `pack` returns it.

    An edge is a term of a loss: the row that predicts, the token that it should predict, and the trajectory. A prompt's
    last row has as many edges as there are responses. Edges are ordered by trajectory, and within it by position.
    """

    tokens: numpy.ndarray
    """Token ids, int64 [rows], in the forest's depth-first order."""
    forest: Forest
    trajectories: numpy.ndarray
    """The index of each trajectory among those of all trees given to `pack`: int64 [trajectories]."""
    lengths: numpy.ndarray
    """Tokens of each trajectory, including shared ones: int64 [trajectories]."""
    nodes: numpy.ndarray
    """The node at the end of each trajectory: int64 [trajectories]."""
    edge_source: numpy.ndarray
    """The row that predicts: int64 [edges]."""
    edge_target: numpy.ndarray
    """The token id that it should predict: int64 [edges]."""
    edge_trajectory: numpy.ndarray
    """The index of the edge's trajectory in this micro-batch, from 0: int64 [edges]."""
    edge_position: numpy.ndarray
    """The position of the target in its trajectory: int64 [edges]."""

    @cached_property
    def sources(self) -> numpy.ndarray:
        """The rows that have edges, each once, rising: int64. Only these need logits."""
        return numpy.unique(self.edge_source)

    @cached_property
    def edge_source_index(self) -> numpy.ndarray:
        """The index of each edge's row in `sources`: int64 [edges]."""
        return numpy.searchsorted(self.sources, self.edge_source)

    @cached_property
    def edge_counts(self) -> numpy.ndarray:
        """The number of edges of each trajectory: int64 [trajectories]."""
        return numpy.bincount(self.edge_trajectory, minlength=len(self.trajectories))

    def input_ids(self, device: torch.device | str | None = None) -> Tensor:
        """Return int64 [1, rows], as models of Transformers take them: one tensor for each device, the same one in each
        call."""
        import torch

        device = torch.device("cpu" if device is None else device)
        made = self.__dict__.setdefault("_input_ids", {})
        if device not in made:
            made[device] = torch.from_numpy(self.tokens)[None].to(device)
        return made[device]

    def rows(self, trajectory: int) -> numpy.ndarray:
        """Return the row of each token of a trajectory here: int64 [its length]."""
        start = self.forest.node_start
        path = self.forest.path(int(self.nodes[trajectory]))
        return numpy.concatenate([numpy.arange(start[node], start[node + 1]) for node in path])

    def unpack(self, values: Tensor) -> list[Tensor]:
        """Split values of rows, [rows, ...] or [1, rows, ...], into those of each trajectory: [its length, ...], with
        the shared ones in each. TensorError for another number of rows."""
        import torch

        flat = values[0] if values.ndim > 1 and len(values) == 1 != len(self.tokens) else values
        if len(flat) != len(self.tokens):
            raise TensorError(
                f"values: expected [{len(self.tokens)}, ...], a row for each token, got {list(values.shape)}"
            )
        numbers = (torch.from_numpy(self.rows(i)) for i in range(len(self.trajectories)))
        return [flat[rows.to(flat.device)] for rows in numbers]

    def split(self, values: Tensor) -> list[Tensor]:
        """Split values of edges, [edges, ...], into those of each trajectory. TensorError."""
        if len(values) != len(self.edge_source):
            raise TensorError(f"values: expected [{len(self.edge_source)}, ...], got {list(values.shape)}")
        return list(values.split(self.edge_counts.tolist()))

    def __repr__(self) -> str:
        return (
            f"<attn.training.Packed of {len(self.trajectories)} trajectories with {int(self.lengths.sum())} tokens in "
            f"{len(self.tokens)} rows, {len(self.edge_source)} edges>"
        )


def pack(trees: Sequence[Tree], *, budget: int | None = None, vocabulary: int | None = None) -> list[Packed]:
    """Pack whole trees into micro-batches of at most `budget` rows each.

    trees       prompt groups (`group`, `groups`) or any trees of token ids. None is cut; a common prefix, also of different
                trees in one micro-batch, is held once
    budget      the most rows of a micro-batch; None: all in one
    vocabulary  the number of token ids of the model, for a check

    Each tree goes to the first micro-batch with room for its new tokens. Trajectories are numbered over all trees, by
    tree and leaf. PlanError for a budget smaller than a tree, with the budget that fits.
    """
    if isinstance(trees, Tree) or len(trees) == 0:
        raise expected(PlanError, "trees", "a list of at least one attn.training.Tree", trees)
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int) or budget < 1):
        raise expected(PlanError, "budget", "a number of rows from 1 on, or None", budget)
    walked = [trajectories(f"trees[{number}]", tree, vocabulary) for number, tree in enumerate(trees)]
    if budget is not None:
        sizes = [_rows_of(found) for found in walked]
        largest = max(range(len(sizes)), key=sizes.__getitem__)
        if sizes[largest] > budget:
            fits = sum(size <= budget for size in sizes)
            raise PlanError(
                f"budget: expected at least the {sizes[largest]} rows of trees[{largest}], as no tree is cut, got {budget}, "
                f"in which {fits} of {len(sizes)} trees fit; nearest legal: {sizes[largest]}"
            )
    open_batches: list[_Batch] = []
    first = 0
    for found in walked:
        batch = next((b for b in open_batches if b.take(found, first, budget)), None)
        if batch is None:
            open_batches.append(_Batch())
            open_batches[-1].take(found, first, None)
        first += len(found)
    return [batch.packed() for batch in open_batches]


def _rows_of(found: list) -> int:
    trie = Trie()
    for trajectory in found:
        trie.insert(trajectory.tokens)
    return trie.tokens


class _Batch:
    """A micro-batch in the making."""

    def __init__(self):
        self.trie = Trie()
        self.members: list[tuple[int, object, Node]] = []

    def take(self, found: list, first: int, budget: int | None) -> bool:
        """Add the trajectories of a tree if they fit; returns whether they do."""
        if budget is not None and self.trie.tokens >= budget and not self.trie.begins(found[0].tokens):
            return False
        inserted = []
        for trajectory in found:
            inserted.append(self.trie.insert(trajectory.tokens))
            if budget is not None and self.trie.tokens > budget:
                for end in inserted:
                    self.trie.remove(end)
                return False
        self.members += [
            (first + i, trajectory, end)
            for i, (trajectory, end) in enumerate(zip(found, inserted, strict=True))
        ]
        return True

    def packed(self) -> Packed:
        numbers, tokens, parent = {}, [], []
        for node, above in self.trie.depth_first():
            numbers[node] = len(parent)
            tokens.append(node.tokens)
            parent.append(above)
        lengths = numpy.array([len(part) for part in tokens])
        forest = Forest(numpy.cumsum([0, *lengths]), parent)
        edges = [
            _edges(forest, numbers[end], trajectory, number)
            for number, (_, trajectory, end) in enumerate(self.members)
        ]
        source, target, of, position = (numpy.concatenate(column) for column in zip(*edges, strict=True))
        return Packed(
            tokens=numpy.concatenate(tokens),
            forest=forest,
            trajectories=numpy.array([number for number, _, _ in self.members], numpy.int64),
            lengths=numpy.array([len(trajectory.tokens) for _, trajectory, _ in self.members], numpy.int64),
            nodes=numpy.array([numbers[end] for _, _, end in self.members], numpy.int64),
            edge_source=source,
            edge_target=target,
            edge_trajectory=of,
            edge_position=position,
        )


def _edges(forest: Forest, node: int, trajectory, number: int) -> tuple[numpy.ndarray, ...]:
    """Return sources, targets, the trajectory's index, and positions of its targets."""
    path = forest.path(node)
    starts = forest.node_start[path].astype(numpy.int64)
    # The end of each node in the trajectory.
    ends = numpy.cumsum(forest.node_start[numpy.add(path, 1)] - starts)
    targets = numpy.flatnonzero(trajectory.trained)
    before = targets - 1
    at = numpy.searchsorted(ends, before, side="right")
    offsets = before - numpy.concatenate([[0], ends])[at]
    return starts[at] + offsets, trajectory.tokens[targets], numpy.full(len(targets), number), targets
