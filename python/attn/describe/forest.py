# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Forests of shared prefixes: packed tokens in which each node is stored, and attended, once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from ..errors import PlanError, expected
from ..forks import cached_property
from ..memory.tables import int32_array

_MOST = 2**31 - 1


class Forest:
    """Trees of tokens, packed node by node in depth-first order: a prompt, then its responses, each with its
    continuations. A token's row attends to the tokens of its node and of the nodes above.

        parent = [-1, 0, 0, -1]             # a prompt with two responses, and a prompt alone
        node_start = [0, 100, 120, 150, 190]

    node_start  the offset of each node's tokens, and the end: [nodes + 1], rising from 0. A node may be empty
    parent      the node that each continues, or -1: [nodes]. Depth-first: the nodes below a node follow it directly, so that
                all rows that see a node's tokens are one range
    pos0        the position of each node's first token, by default after the last one above it: [nodes]. Causal masks,
                windows and score functions use it; more than the default leaves a gap

    Numbers of trees and levels do not matter; its tables have a few numbers for each node. Raises PlanError.
    """

    def __init__(
        self,
        node_start: Sequence[int] | object,
        parent: Sequence[int] | object,
        pos0: Sequence[int] | object | None = None,
    ):
        self.node_start = _kept(_offsets(node_start))
        self.parent = _kept(_numbers("parent", parent, self.nodes))
        self._ends = _check_order(self.parent)
        lengths = numpy.diff(self.node_start)
        starts = None if pos0 is None else _numbers("pos0", pos0, self.nodes)
        self.pos0 = _kept(_positions(self.parent, lengths, starts))
        self.table = numpy.zeros((3, self.nodes + 1), numpy.int32)
        """node_start, parent and pos0 in one: int32 [3, nodes + 1], the latter two with a 0 at the end."""
        self.table[0], self.table[1, :-1], self.table[2, :-1] = self.node_start, self.parent, self.pos0

    @classmethod
    def from_table(cls, table: object) -> Forest:
        """Make a forest from the argument of an operator of PyTorch: int32 [3, nodes + 1], as `table` of a forest."""
        found = int32_array("forest", table)
        if found.ndim != 2 or found.shape[0] != 3 or found.shape[1] == 0:
            raise PlanError(f"forest: expected [3, nodes + 1], got {list(found.shape)}")
        return cls(found[0], found[1, :-1], found[2, :-1])

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self.node_start) - 1

    @property
    def tokens(self) -> int:
        """The number of tokens of all nodes; each token is a query row, too."""
        return int(self.node_start[-1])

    @cached_property
    def rows(self) -> numpy.ndarray:
        """The range of rows that see each node's tokens, its own and those of the nodes below: int32 [nodes, 2]."""
        return _kept(numpy.stack([self.node_start[:-1], self.node_start[self._ends]], axis=1))

    @cached_property
    def positions(self) -> numpy.ndarray:
        """The position of each token, for RoPE: int32 [tokens]."""
        lengths = numpy.diff(self.node_start)
        offsets = numpy.arange(self.tokens, dtype=numpy.int32) - numpy.repeat(self.node_start[:-1], lengths)
        return _kept(offsets + numpy.repeat(self.pos0, lengths))

    @cached_property
    def shared_rows(self) -> int:
        """Rows that see a shared node, counted once for each such node: about depth times tokens."""
        seen = self.rows[:, 1] - self.rows[:, 0]
        return int(seen[seen > numpy.diff(self.node_start)].sum())

    def tables(self, operand: str = "kv") -> dict[str, numpy.ndarray]:
        """Return the tables for `Kernel.plan`, for a description with one packed operand."""
        return {
            "q_start": self.node_start,
            "q_pos": self.positions,
            f"{operand}.start": self.node_start,
            f"{operand}.lengths": numpy.diff(self.node_start),
            f"{operand}.pos0": self.pos0,
            f"{operand}.rows": self.rows,
        }

    def path(self, node: int) -> list[int]:
        """Return the node and those above it, the root first."""
        found = [range(self.nodes)[node]]
        while (above := int(self.parent[found[-1]])) >= 0:
            found.append(above)
        return found[::-1]

    @cached_property
    def _key(self) -> tuple[bytes, bytes, bytes]:
        return self.node_start.tobytes(), self.parent.tobytes(), self.pos0.tobytes()

    def __reduce__(self) -> tuple:
        """Pickle the numbers only: a copy made from them cannot be written to either."""
        return Forest, (self.node_start, self.parent, self.pos0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Forest) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        roots = int((self.parent < 0).sum())
        return f"<attn.Forest of {self.nodes} nodes in {roots} trees, {self.tokens} tokens>"


def check_forest(argument: str, forest: object) -> Forest:
    """Return `forest` itself. PlanError if it is not a forest."""
    if isinstance(forest, Forest):
        return forest
    raise expected(
        PlanError, argument, "an attn.Forest", forest, hint="As in attn.Forest(node_start, parent)"
    )


def _kept(array: numpy.ndarray) -> numpy.ndarray:
    """Return a read-only copy: plans are found by their forests."""
    array = numpy.array(array, dtype=numpy.int32)
    array.flags.writeable = False
    return array


def _offsets(given: object) -> numpy.ndarray:
    starts = int32_array("node_start", given)
    if starts.ndim != 1 or len(starts) == 0 or starts[0] != 0 or (numpy.diff(starts) < 0).any():
        legal = "offsets that rise from 0, one for each node and the end"
        raise expected(PlanError, "node_start", legal, starts.tolist())
    return starts


def _numbers(name: str, given: object, nodes: int) -> numpy.ndarray:
    found = int32_array(name, given)
    if found.shape != (nodes,):
        raise PlanError(f"{name}: expected {nodes} numbers, one for each node, got {list(found.shape)}")
    return found


def _check_order(parent: numpy.ndarray) -> list[int]:
    """Return the first node after each node's descendants. PlanError if nodes are not in depth-first order."""
    ends = [len(parent)] * len(parent)
    open_nodes: list[int] = []  # The path to the node before.
    for node, above in enumerate(parent.tolist()):
        if not -1 <= above < node:
            legal = (
                f"-1 or a node in front of it, up to {node - 1}"
                if node
                else "-1, as no node is in front of it"
            )
            raise expected(PlanError, f"parent[{node}]", legal, above)
        while open_nodes and open_nodes[-1] != above:
            ends[open_nodes.pop()] = node
        if above >= 0 and not open_nodes:
            raise PlanError(
                f"parent[{node}]: expected depth-first order, in which nodes below {above} follow it directly, got "
                f"{above}, after whose nodes node {ends[above]} begins another branch"
            )
        open_nodes.append(node)
    return ends


def _positions(parent: numpy.ndarray, lengths: numpy.ndarray, given: numpy.ndarray | None) -> numpy.ndarray:
    """Return the position of each node's first token. It is not before the end of the nodes above: a row must not be
    before the tokens that it sees."""
    starts, ends = numpy.zeros(len(parent), numpy.int64), [0] * len(parent)
    for node, (above, length) in enumerate(zip(parent.tolist(), lengths.tolist(), strict=True)):
        least = ends[above] if above >= 0 else 0
        starts[node] = least if given is None else given[node]
        if starts[node] < least:
            legal = f"at least {least}" + (f", where node {above} ends" if above >= 0 else "")
            raise expected(PlanError, f"pos0[{node}]", legal, int(starts[node]))
        ends[node] = int(starts[node]) + length
        if ends[node] > _MOST:
            raise PlanError(f"node {node}: expected positions below 2^31, got an end of {ends[node]}")
    return starts
