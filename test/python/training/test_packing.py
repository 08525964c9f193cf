# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.training.pack: each common beginning once, trees whole, under a budget; edges, and the way back to trajectories."""

import attn
import numpy
import pytest
from attn.training import Tree, group, groups, pack


def random_tree(random, depth, vocabulary=5):
    """Return a tree of few different token ids, so that siblings begin alike, with runs of 0 to 5 tokens."""
    children = (
        [random_tree(random, depth - 1, vocabulary) for _ in range(random.integers(0, 4))] if depth else []
    )
    tokens = random.integers(0, vocabulary, random.integers(1, 6))
    return Tree(tokens, children, trained=random.integers(0, 2, len(tokens)).astype(bool))


def trajectories(tree, tokens=(), trained=()):
    """Return (token ids, targets) of each leaf, in order."""
    tokens, trained = [*tokens, *map(int, tree.tokens)], [*trained, *map(bool, tree.trained)]
    if not tree.children:
        yield tokens, [False, *trained[1:]]
    for child in tree.children:
        yield from trajectories(child, tokens, trained)


def distinct(found):
    """Return the number of different beginnings of trajectories."""
    return len({tuple(tokens[: n + 1]) for tokens, _ in found for n in range(len(tokens))})


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("room", [None, 0, 10])
def test_random_trees(seed, room):
    random = numpy.random.default_rng(seed)
    trees = [random_tree(random, int(random.integers(0, 5))) for _ in range(int(random.integers(1, 7)))]
    by_tree = [list(trajectories(tree)) for tree in trees]
    every = [found for of_tree in by_tree for found in of_tree]
    budget = None if room is None else max(map(distinct, by_tree)) + room
    batches = pack(trees, budget=budget, vocabulary=5)
    assert sorted(int(n) for packed in batches for n in packed.trajectories) == list(range(len(every)))
    first = numpy.cumsum([0, *map(len, by_tree)])
    for packed in batches:
        here = [every[n] for n in packed.trajectories]
        assert len(packed.tokens) == packed.forest.tokens == distinct(here)
        assert budget is None or len(packed.tokens) <= budget
        whole = {int(numpy.searchsorted(first, n, side="right")) for n in packed.trajectories}
        assert len(here) == sum(len(by_tree[tree - 1]) for tree in whole), "a tree was cut"
        check_edges(packed, here)
        # Nodes are as long as possible: each ends a trajectory or branches.
        below = numpy.bincount(packed.forest.parent[packed.forest.parent >= 0], minlength=packed.forest.nodes)
        assert all(below[n] != 1 or n in packed.nodes for n in range(packed.forest.nodes))


def check_edges(packed, here):
    edges = []
    for number, (tokens, trained) in enumerate(here):
        rows = packed.rows(number)
        assert packed.tokens[rows].tolist() == tokens and packed.lengths[number] == len(tokens)
        assert packed.forest.positions[rows].tolist() == list(range(len(tokens)))
        edges += [(rows[at - 1], tokens[at], number, at) for at in numpy.flatnonzero(trained)]
    columns = packed.edge_source, packed.edge_target, packed.edge_trajectory, packed.edge_position
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == edges
    assert packed.sources.tolist() == sorted({source for source, *_ in edges})


def test_a_prompts_last_token_has_as_many_targets_as_responses():
    (packed,) = pack([group([1, 2, 3], [[4, 5], [6], [7, 8, 9]])])
    assert packed.forest == attn.Forest([0, 3, 5, 6, 9], [-1, 0, 0, 0])
    assert packed.edge_target[packed.edge_source == 2].tolist() == [4, 6, 7]
    assert packed.edge_counts.tolist() == [2, 1, 3] and packed.edge_position.tolist() == [3, 4, 3, 3, 4, 5]
    assert "3 trajectories with 15 tokens in 9 rows, 6 edges" in repr(packed)


def test_responses_that_are_equal_or_continue_each_other():
    (packed,) = pack([group([1], [[2, 3], [2, 3], [2], [], [2, 3, 4]])])
    assert packed.tokens.tolist() == [1, 2, 3, 4] and packed.lengths.tolist() == [3, 3, 2, 1, 4]
    assert packed.edge_counts.tolist() == [2, 2, 1, 0, 3]


def test_trees_of_one_batch_share_their_beginning():
    system = [7] * 50
    trees = [group([*system, user], [[1, 2], [3]]) for user in range(3)]
    (packed,) = pack(trees)
    assert len(packed.tokens) == 50 + 3 * (1 + 3) and packed.forest.nodes == 1 + 3 * 3
    assert [len(batch.tokens) for batch in pack(trees, budget=54)] == [54, 54, 54]
    assert [len(batch.tokens) for batch in pack(trees, budget=58)] == [58, 54]


def test_rows_of_a_batch_are_groups():
    prompts, ids = [[1, 2], [1, 2], [3], [3]], [9, 9, 4, 4]
    found = groups(prompts, [[5], [6], [7], [8]], ids, size=2)
    (packed,) = pack(found)
    assert packed.edge_target.tolist() == [5, 6, 7, 8] and packed.trajectories.tolist() == [0, 1, 2, 3]


def test_tensors_and_arrays():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    of_lists = pack([group([1, 2], [[3], [4]])])[0]
    of_tensors = pack(
        [group(torch.tensor([1, 2]), [torch.tensor([3], dtype=torch.int32), numpy.array([4])])]
    )[0]
    assert (of_lists.tokens == of_tensors.tokens).all()
    ids = groups([torch.tensor([1])] * 2, [[2], [3]], torch.tensor([5, 5]))
    assert len(ids) == 1
    masked = Tree(torch.tensor([1, 2, 3]), trained=torch.tensor([True, False, True]))
    assert pack([masked])[0].edge_target.tolist() == [3]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: group([], [[1]]), "at least one token, got responses without a prompt"),
        (lambda: group([1], []), "responses: expected at least one, got none"),
        (
            lambda: groups([[1]] * 3, [[2]] * 3, ["a", "b", "a"]),
            "rows of group 'a' one after the other, got others from row 1 on and it again at row 2: a shuffle cut",
        ),
        (lambda: groups([[1], [2]], [[2]] * 2, [0, 0]), r"prompts\[1\]: expected the prompt of row 0"),
        (lambda: groups([[1]] * 3, [[2]] * 3, [0, 0, 1], size=2), "group 1: expected 2 responses, got 1"),
        (lambda: groups([[1]], [[2], [3]], [0]), "as many of each, got 1, 2 and 1"),
        (lambda: pack([]), "trees: expected a list of at least one"),
        (lambda: pack(Tree([1])), "trees: expected a list of at least one"),
        (lambda: pack([[1, 2]]), r"trees\[0\]: expected an attn.training.Tree, got list \[1, 2\]"),
        (lambda: pack([Tree([1], Tree([2]))]), r"trees\[0\].children: expected a list of attn.training.Tree"),
        (lambda: pack([Tree([])]), "a trajectory of at least one token"),
        (lambda: pack([Tree([1.5])]), r"trees\[0\]: expected integers \[n\], got float64"),
        (lambda: pack([Tree([[1]])]), r"expected integers \[n\], got int64 \[1, 1\]"),
        (
            lambda: pack([Tree([1, -100])]),
            "token 1: expected token ids from 0 on, got -100. What is no target",
        ),
        (
            lambda: pack([Tree([1], [Tree([2]), Tree([3, 97])])], vocabulary=97),
            r"trees\[0\].children\[1\], token 1: expected labels in \[0, 97\), got 97",
        ),
        (lambda: pack([Tree([1, 2], trained=[True])]), r"a bool for each of 2 tokens, got \[1\]"),
        (lambda: pack([Tree([1])], budget=0), "budget: expected a number of rows from 1 on"),
        (lambda: pack([Tree([1])], budget=True), "budget: expected a number of rows from 1 on"),
        (
            lambda: pack([Tree([1]), group([1, 2], [[3, 4], [5]])], budget=4),
            r"at least the 5 rows of trees\[1\], as no tree is cut, got 4, in which 1 of 2 trees fit; nearest legal: 5",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(attn.PlanError, match=message):
        call()
