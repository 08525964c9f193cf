# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Forests: nodes, rows and positions, and refusals."""

import attn
import numpy
import pytest

#     0 - 1 - 2
#       \ 3       4 - 5
FOREST = dict(node_start=[0, 4, 6, 6, 9, 10, 12], parent=[-1, 0, 1, 0, -1, 4])


def test_rows_that_see_a_node_are_one_range():
    forest = attn.Forest(**FOREST)
    assert forest.rows.tolist() == [[0, 9], [4, 6], [6, 6], [6, 9], [9, 12], [10, 12]]
    assert forest.pos0.tolist() == [0, 4, 6, 4, 0, 1]
    assert forest.positions.tolist() == [0, 1, 2, 3, 4, 5, 4, 5, 6, 0, 1, 2]
    assert forest.path(2) == [0, 1, 2] and forest.path(-1) == [4, 5]
    assert (forest.nodes, forest.tokens) == (6, 12)
    assert repr(forest) == "<attn.Forest of 6 nodes in 2 trees, 12 tokens>"


def test_rows_are_those_of_all_nodes_below():
    """Rows of a node are those of all nodes below it: random forests, against the definition."""
    from replicated import random_forest

    random = numpy.random.default_rng(3)
    for depth in [0, 1, 2, 5, 9, 16] * 5:
        forest = random_forest(random, depth)
        below = [[n for n in range(forest.nodes) if node in forest.path(n)] for node in range(forest.nodes)]
        for node, nodes in enumerate(below):
            rows = [r for n in nodes for r in range(*forest.node_start[n : n + 2])]
            first, last = forest.rows[node].tolist()
            assert rows == list(range(first, last))


def test_equal_forests_are_equal():
    forest = attn.Forest(**FOREST)
    assert forest == attn.Forest(**FOREST) == attn.Forest.from_table(forest.table)
    assert hash(forest) == hash(attn.Forest(**FOREST))
    assert forest != attn.Forest(**FOREST, pos0=[5, 9, 11, 9, 0, 1])
    with pytest.raises(ValueError, match="read-only"):
        forest.rows[0] = 1


def test_a_forest_may_be_empty():
    assert attn.Forest([0], []).tokens == 0


def test_gaps_are_legal():
    assert attn.Forest([0, 2, 3], [-1, 0], [7, 20]).positions.tolist() == [7, 8, 20]


@pytest.mark.parametrize(
    "given,message",
    [
        (dict(node_start=[]), r"node_start: expected offsets that rise from 0, .* got .*\[\]"),
        (dict(node_start=[1, 2]), "node_start: expected offsets that rise from 0"),
        (dict(node_start=[0, 3, 2]), "node_start: expected offsets that rise from 0"),
        (dict(node_start=[0.5, 2]), "node_start: expected integers"),
        (dict(parent=[-1, 0]), r"parent: expected 6 numbers, one for each node, got \[2\]"),
        (
            dict(parent=[-1, 0, 3, 0, -1, 4]),
            r"parent\[2\]: expected -1 or a node in front of it, up to 1, got 3",
        ),
        (
            dict(parent=[-1, 0, 2, 0, -1, 4]),
            r"parent\[2\]: expected -1 or a node in front of it, up to 1, got 2",
        ),
        (dict(parent=[0, 0, 1, 0, -1, 4]), r"parent\[0\]: expected -1, as no node is in front of it, got 0"),
        (
            dict(parent=[-1, -2, 1, 0, -1, 4]),
            r"parent\[1\]: expected -1 or a node in front of it, up to 0, got -2",
        ),
        (
            dict(parent=[-1, 0, 1, 0, -1, 1]),
            r"parent\[5\]: expected depth-first order, in which nodes below 1 follow it directly, got 1, "
            r"after whose nodes node 3 begins another branch",
        ),
        (dict(pos0=[0, 4]), r"pos0: expected 6 numbers, one for each node, got \[2\]"),
        (dict(pos0=[0, 3, 6, 4, 0, 1]), r"pos0\[1\]: expected at least 4, where node 0 ends, got 3"),
        (dict(pos0=[0, 4, 6, 4, -1, 1]), r"pos0\[4\]: expected at least 0, got -1"),
        (dict(pos0=[0, 4, 6, 4, 2**31 - 1, 2**31 - 1]), "node 4: expected positions below 2"),
    ],
)
def test_refusals(given, message):
    with pytest.raises(attn.PlanError, match=message):
        attn.Forest(**(FOREST | given))
