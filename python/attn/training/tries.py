# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trees of token ids as a batch gives them, and the trie that holds each common prefix once."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy

from ..errors import PlanError, expected


@dataclass(frozen=True)
class Tree:
    """Tokens, and their continuations. Each leaf ends a trajectory, which begins at the root.

    tokens    token ids: integers [n], as a list, an array or a tensor of PyTorch
    children  trees that continue them; empty at a leaf
    trained   whether these tokens are targets of the loss: True, False, or a bool for each token [n]. The first token of
              a root has no row that predicts it, and is not a target
    """

    tokens: Sequence[int] | Any
    children: Sequence[Tree] = ()
    trained: bool | Sequence[bool] | Any = True


def group(prompt: Sequence[int] | Any, responses: Sequence[Sequence[int] | Any]) -> Tree:
    """Return a tree of a prompt, which is not a target, and its responses, which are. PlanError without a prompt or
    responses."""
    if len(prompt) == 0:
        raise PlanError(
            "prompt: expected at least one token, got responses without a prompt, of which no row predicts the first token"
        )
    if len(responses) == 0:
        raise PlanError("responses: expected at least one, got none")
    return Tree(prompt, [Tree(response) for response in responses], trained=False)


def groups(
    prompts: Sequence[Any], responses: Sequence[Any], ids: Sequence[Hashable], size: int | None = None
) -> list[Tree]:
    """Return the groups of a batch with a row for each response, in the order of their first rows.

    prompts    token ids of each row's prompt, without padding: the same in all rows of a group
    responses  token ids of each row's response, without padding
    ids        a key of each row's group, such as its prompt's number. Rows of a group follow each other
    size       responses that each group must have; None: any number

    Response i of the batch is trajectory i of the result of `pack`. PlanError for rows that a shuffle has moved out of
    their groups.
    """
    if not len(prompts) == len(responses) == len(ids):
        raise PlanError(
            f"prompts, responses, ids: expected as many of each, got {len(prompts)}, {len(responses)} and {len(ids)}"
        )
    keys = [key.item() if hasattr(key, "item") else key for key in ids]
    first: dict[Hashable, int] = {}
    found: list[Tree] = []
    for row, key in enumerate(keys):
        if key not in first:
            first[key] = row
        elif keys[row - 1] != key:
            apart = next(at for at in range(first[key], row) if keys[at] != key)
            raise PlanError(
                f"ids: expected rows of group {key!r} one after the other, got others from row {apart} on and it again at "
                f"row {row}: a shuffle cut the group; shuffle groups, not rows"
            )
    for key, start in first.items():
        rows = range(start, start + keys.count(key))
        if size is not None and len(rows) != size:
            hint = f"Rows {rows.start} to {rows.stop - 1} are here; batches have to end where groups do"
            raise expected(PlanError, f"group {key!r}", f"{size} responses", len(rows), hint=hint)
        prompt = token_ids("prompts", prompts[start])
        for row in rows[1:]:
            if not numpy.array_equal(prompt, token_ids("prompts", prompts[row])):
                raise PlanError(
                    f"prompts[{row}]: expected the prompt of row {start}, as both are of group {key!r}, got another: a "
                    "shuffle cut the group, or ids are of something else"
                )
        found.append(group(prompt, [responses[row] for row in rows]))
    return found


def token_ids(name: str, given: Any, vocabulary: int | None = None) -> numpy.ndarray:
    """Return int64 [n]. PlanError for values that are not integers, not flat, or outside of the vocabulary."""
    if hasattr(given, "detach"):
        given = given.detach().cpu().numpy()
    found = numpy.asarray(given)
    if found.size == 0:
        found = found.astype(numpy.int64)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise PlanError(f"{name}: expected integers [n], got {found.dtype} {list(found.shape)}")
    found = found.astype(numpy.int64)
    outside = (found < 0) | (found >= vocabulary) if vocabulary is not None else found < 0
    if outside.any():
        at = int(outside.argmax())
        legal = f"labels in [0, {vocabulary})" if vocabulary is not None else "token ids from 0 on"
        hint = "What is no target has trained=False" if found[at] < 0 else ""
        raise expected(PlanError, f"{name}, token {at}", legal, int(found[at]), hint=hint)
    return found


@dataclass(frozen=True)
class Trajectory:
    """A path from a root to a leaf: token ids int64 [n], and a mask of targets, bool [n]."""

    tokens: numpy.ndarray
    trained: numpy.ndarray


def trajectories(name: str, tree: Tree, vocabulary: int | None = None) -> list[Trajectory]:
    """Return the trajectories of a tree, in the order of its leaves. A subtree is walked once, however deep."""
    found = []
    pending: list[tuple[str, Tree, tuple[numpy.ndarray, ...], tuple[numpy.ndarray, ...]]] = [
        (name, tree, (), ())
    ]
    while pending:
        at, tree, tokens, trained = pending.pop()
        if not isinstance(tree, Tree):
            raise expected(PlanError, at, "an attn.training.Tree", tree)
        if not isinstance(tree.children, Sequence):
            raise expected(PlanError, f"{at}.children", "a list of attn.training.Tree", tree.children)
        own = token_ids(at, tree.tokens, vocabulary)
        tokens, trained = (*tokens, own), (*trained, _targets(at, tree.trained, len(own)))
        if len(tree.children) == 0:
            found.append(Trajectory(numpy.concatenate(tokens), numpy.concatenate(trained)))
            if len(found[-1].tokens) == 0:
                raise PlanError(f"{at}: expected a trajectory of at least one token, got an empty one")
            found[-1].trained[0] = False
        for number in reversed(range(len(tree.children))):
            pending.append((f"{at}.children[{number}]", tree.children[number], tokens, trained))
    return found


def _targets(name: str, given: Any, tokens: int) -> numpy.ndarray:
    if isinstance(given, (bool, numpy.bool_)):
        return numpy.full(tokens, bool(given))
    if hasattr(given, "detach"):
        given = given.detach().cpu().numpy()
    found = numpy.asarray(given)
    if found.shape != (tokens,):
        raise PlanError(
            f"{name}.trained: expected a bool for each of {tokens} tokens, got {list(found.shape)}"
        )
    return found.astype(bool)


@dataclass(eq=False)
class Node:
    """A node of a trie: tokens, the node above, and the nodes below by their first token."""

    tokens: numpy.ndarray
    above: Node | None
    below: dict[int, Node] = field(default_factory=dict)
    ends: int = 0
    """The number of trajectories that end here."""


class Trie:
    """Trajectories, with each common prefix held once, in whichever tree it is."""

    def __init__(self):
        self.root = Node(numpy.empty(0, numpy.int64), None)
        self.tokens = 0

    def begins(self, tokens: numpy.ndarray) -> bool:
        """Whether some trajectory begins with the same token."""
        return int(tokens[0]) in self.root.below

    def insert(self, tokens: numpy.ndarray) -> Node:
        """Insert a trajectory; return the node at its end."""
        node, at = self.root, 0
        while at < len(tokens):
            next_node = node.below.get(int(tokens[at]))
            if next_node is None:
                rest = Node(tokens[at:], node)
                node.below[int(tokens[at])] = rest
                node = rest
                self.tokens += len(tokens) - at
                break
            common = _common(next_node.tokens, tokens[at:])
            if common < len(next_node.tokens):
                next_node = _split(next_node, common)
            node, at = next_node, at + common
        node.ends += 1
        return node

    def remove(self, node: Node) -> None:
        """Undo the insertion of a trajectory that ends there."""
        node.ends -= 1
        while (
            node.above is not None and node.ends == 0 and not node.below
        ):  # Also a node that a later insertion split off above.
            del node.above.below[int(node.tokens[0])]
            self.tokens -= len(node.tokens)
            node = node.above

    def depth_first(self) -> Iterator[tuple[Node, int]]:
        """Yield each node and the number of the node above it, -1 for roots. Numbers follow this order. Nodes in a
        line, without a trajectory's end between them, become one."""
        pending, number = [(node, -1) for node in reversed(self.root.below.values())], 0
        while pending:
            node, above = pending.pop()
            while node.ends == 0 and len(node.below) == 1:
                (only,) = node.below.values()
                only.tokens, only.above = numpy.concatenate([node.tokens, only.tokens]), node.above
                node = only
            yield node, above
            pending += [(below, number) for below in reversed(node.below.values())]
            number += 1


def _common(one: numpy.ndarray, other: numpy.ndarray) -> int:
    """Return the number of tokens that both have in common at the beginning."""
    least = min(len(one), len(other))
    differs = one[:least] != other[:least]
    return int(differs.argmax()) if differs.any() else least


def _split(node: Node, at: int) -> Node:
    """Cut a node in two and return the upper one; trajectories that end at the node still end at the lower one."""
    upper = Node(node.tokens[:at], node.above)
    node.above.below[int(node.tokens[0])] = upper
    node.tokens, node.above = node.tokens[at:], upper
    upper.below[int(node.tokens[0])] = node
    return upper
