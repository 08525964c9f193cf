# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trees: gradients with the same bits beside any neighbours, and the cost of depth in plans and arithmetic. After a
shared prompt, gradients are as near to exact ones for many responses as for one, and no farther than those of PyTorch's
attention over copies.

--full takes a tree of depth 16 with 512 leaves, CI a smaller one.
"""

import os

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import attn  # noqa: E402
import numpy  # noqa: E402
import replicated  # noqa: E402
from gradient_tensors import error  # noqa: E402

FULL = bool(os.environ.get("ATTN_FULL"))


def tree(branching, depth, tokens):
    """Return a tree with `depth` levels of nodes of `tokens` tokens below a root; the first `branching` levels branch
    in two."""
    parent = []

    def add(above, level):
        parent.append(above)
        here = len(parent) - 1
        for _ in range((2 if level < branching else 1) if level < depth else 0):
            add(here, level + 1)

    add(-1, 0)
    return attn.Forest(numpy.arange(len(parent) + 1) * tokens, parent)


def leaves_of(forest):
    return forest.nodes - len(set(forest.parent.tolist()) - {-1})


def tensors(tokens, heads=(2, 1), dim=32, dtype=torch.bfloat16, seed=0):
    random = torch.Generator().manual_seed(seed)
    shapes = [(tokens, count, dim) for count in (heads[0], heads[1], heads[1], heads[0])]
    return [torch.randn(shape, generator=random).to(dtype) for shape in shapes]


def gradients(forest, q, k, v, d_out, ordered=None):
    given = [tensor.clone().requires_grad_() for tensor in (q, k, v)]
    out = attn.attend(*given, causal=True, forest=forest, ordered=ordered)
    return [out.detach(), *torch.autograd.grad(out, given, d_out)]


def test_forward_and_backward_are_right():
    """Outputs and gradients match attention of every row over its path, in float64."""
    forest = tree(9, 16, 2) if FULL else tree(4, 16, 3)
    assert leaves_of(forest) == (512 if FULL else 16)
    q, k, v, d_out = tensors(forest.tokens)
    exact = [tensor.double().requires_grad_() for tensor in (q, k, v)]
    wanted = replicated.attend_forest(forest, *exact, scale=float(numpy.float32(32**-0.5)))[0]
    expected = [wanted, *torch.autograd.grad(wanted, exact, d_out.double())]
    for one, other in zip(gradients(forest, q, k, v, d_out), expected, strict=True):
        assert (one.double() - other).norm() <= 8e-3 * other.norm()


def test_neighbours_change_no_bit():
    """A tree in 20 forests, with other trees before and after it, keeps its bits."""
    own = tree(3, 5, 19)
    mine = tensors(own.tokens, seed=1)
    alone = gradients(own, *mine, ordered=True)
    random = numpy.random.default_rng(3)
    for seed in range(20):
        others = [replicated.random_forest(random, 3, most=30) for _ in range(2)]
        parts = [others[0], own, others[1]]
        starts, parents, at = [0], [], 0
        for part in parts:
            parents += [above + len(starts) - 1 if above >= 0 else -1 for above in part.parent.tolist()]
            starts += (part.node_start[1:] + at).tolist()
            at += part.tokens
        beside = [tensors(part.tokens, seed=10 + seed) for part in parts]
        beside[1] = mine
        joined = [torch.cat(each) for each in zip(*beside, strict=True)]
        found = gradients(attn.Forest(starts, parents), *joined, ordered=True)
        first = others[0].tokens
        for one, other in zip(alone, found, strict=True):
            assert torch.equal(one, other[first : first + own.tokens]), seed


def cut_into(monkeypatch):
    """Return a list that gets, for each later plan, the number of cut tasks of tokens and the number of their parts."""
    found, plan = [], attn.Kernel.plan

    def watched(*given, **named):
        made = plan(*given, **named)
        found.extend(
            tuple(int(word.replace(",", "")) for word in line.split() if word[0].isdigit())[2:]
            for line in made.explain().splitlines()
            if line.startswith("tokens")
        )
        return made

    monkeypatch.setattr(attn.Kernel, "plan", watched)
    return found


# Query heads of one KV head: so many that a tree of a few hundred tokens is cut as a tree of 100,000 tokens
# is with other heads.
CUT_HEADS = (64, 1)


@pytest.mark.parametrize(
    ("dim", "ordered", "own"),
    [
        (64, False, tree(2, 3, 40)),
        (128, False, tree(2, 3, 40)),
        pytest.param(96, True, tree(0, 1, 515), marks=pytest.mark.skipif(not FULL, reason="--full")),
        (64, True, tree(1, 2, 210)),
    ],
)
def test_cut_tasks_are_right(monkeypatch, dim, ordered, own):
    """A forest of a tree, an empty node and a sequence matches attention of every row over its path, in float64."""
    starts = [*own.node_start.tolist(), own.tokens, own.tokens + 77]
    forest = attn.Forest(starts, [*own.parent.tolist(), 0, -1])
    q, k, v, d_out = tensors(forest.tokens, CUT_HEADS, dim)
    cut = cut_into(monkeypatch)
    found = gradients(forest, q, k, v, d_out, ordered)
    assert len(cut) == 1 and cut[0][1] >= 2 * cut[0][0] > 0
    exact = [tensor.double().requires_grad_() for tensor in (q, k, v)]
    wanted = replicated.attend_forest(forest, *exact, scale=float(numpy.float32(dim**-0.5)))[0]
    expected = [wanted, *torch.autograd.grad(wanted, exact, d_out.double())]
    for one, other in zip(found, expected, strict=True):
        assert (one.double() - other).norm() <= 8e-3 * other.norm()


def test_nan_of_a_cut_task_stays_with_its_tokens(monkeypatch):
    """NaN in the gradient of one leaf's output leaves the gradients of tokens that the leaf does not see unchanged."""
    forest = tree(2, 3, 40)
    q, k, v, d_out = tensors(forest.tokens, CUT_HEADS, 64)
    cut = cut_into(monkeypatch)
    clean = gradients(forest, q, k, v, d_out, ordered=False)
    d_out[-1] = float("nan")
    found = gradients(forest, q, k, v, d_out, ordered=False)
    assert cut and cut[0][0] > 0
    seen = torch.zeros(forest.tokens, dtype=torch.bool)
    node = forest.nodes - 1
    while node >= 0:
        seen[int(forest.node_start[node]) : int(forest.node_start[node + 1])] = True
        node = int(forest.parent[node])
    for one, other in zip(found[2:], clean[2:], strict=True):
        assert one[seen].isnan().all() and not one[~seen].isnan().any()
        assert (one[~seen].double() - other[~seen].double()).norm() <= 1e-3 * other[~seen].double().norm()


def test_neighbours_change_no_bit_of_cut_tasks(monkeypatch):
    own, other = tree(1, 2, 210), tree(1, 1, 31)
    mine, beside = tensors(own.tokens, CUT_HEADS, 64, seed=1), tensors(other.tokens, CUT_HEADS, 64, seed=2)
    cut = cut_into(monkeypatch)
    alone = gradients(own, *mine, ordered=True)
    parents = [
        *other.parent.tolist(),
        *(above + other.nodes if above >= 0 else -1 for above in own.parent.tolist()),
    ]
    joined = attn.Forest([*other.node_start.tolist(), *(own.node_start[1:] + other.tokens).tolist()], parents)
    found = gradients(joined, *(torch.cat(each) for each in zip(beside, mine, strict=True)), ordered=True)
    assert len(cut) == 2 and cut[0][0] == cut[1][0] > 0
    for one, another in zip(alone, found, strict=True):
        assert torch.equal(one, another[other.tokens :])


def test_room_grows_for_more_parts():
    """The batch grows only in its parts: a prompt cut into windows replaces a long one."""
    spec = spec_of(*CUT_HEADS, 64)
    text = attn.compile(spec, device="host").text
    kernel = attn.compile(
        text.replace(" {\n", " attributes {attn.backward, attn.ordered = false} {\n", 1), device="host"
    )

    def batch(prompt, response):
        forest = attn.Forest(numpy.cumsum([0, prompt, *[response] * 4]), [-1] + [0] * 4)
        floats = {"o": (forest.tokens, 64, 64), "do": (forest.tokens, 64, 64)}
        numbers = {"lse": (forest.tokens, 64), "dlse": (forest.tokens, 64)}
        given = {name: (torch.bfloat16, shape) for name, shape in floats.items()}
        return (
            batch_of(forest, spec) | given | {name: (torch.float32, shape) for name, shape in numbers.items()}
        )

    plan = kernel.plan(batch(8192, 2048), strategy="by-query")
    plan.update(batch(2048, 3584))
    [line] = [line for line in plan.explain().splitlines() if line.startswith("tokens")]
    assert int(line.split()[-2].replace(",", "")) > 4 * 132  # parts, which need the workspace of list ends


def spec_of(q_heads=32, kv_heads=8, dim=128):
    kv = [attn.Packed()]
    return attn.Spec(
        q_heads=q_heads, kv_heads=kv_heads, head_dim=dim, dtype="bfloat16", kv=kv, see=attn.causal()
    )


def batch_of(forest, spec):
    heads = {"q": spec.q_heads, "kv.k": spec.kv_heads, "kv.v": spec.kv_heads}
    data = {name: (torch.bfloat16, (forest.tokens, count, spec.head_dim)) for name, count in heads.items()}
    return data | forest.tables()


def useful(plan):
    """Return the share of a plan's arithmetic that is neither masked nor padding."""
    (line,) = (line for line in plan.explain().splitlines() if line.startswith("flops"))
    done, needed = (float(word.rstrip(",")) for word in line.split() if word[0].isdigit())
    return needed / done


def test_depth_wastes_no_arithmetic():
    """A tree of depth 16 with 512 leaves, against a prompt with 512 responses of as many tokens."""
    spec = spec_of()
    kernel, deep = attn.compile(spec, device="host"), tree(9, 16, 128)
    size = deep.tokens // 513
    flat = attn.Forest(numpy.arange(514) * size, [-1] + [0] * 512)
    assert leaves_of(deep) == leaves_of(flat) == 512
    shares = [useful(kernel.plan(batch_of(each, spec), strategy="by-query")) for each in (deep, flat)]
    assert shares[0] >= 0.9 * shares[1] > 0.8


def test_plans_of_deep_trees_reserve_no_partials(monkeypatch):
    """Partials would be one for each row and node above it."""
    asked = []
    plan = attn.Kernel.plan
    monkeypatch.setattr(
        attn.Kernel, "plan", lambda *given, **named: asked.append(named) or plan(*given, **named)
    )
    for forest, strategy in ((tree(2, 9, 5), "by-query"), (tree(1, 1, 40), None)):
        asked.clear()
        q, k, v, _ = tensors(forest.tokens, dim=64)
        attn.attend(q, k, v, causal=True, forest=forest)
        assert all(each.get("strategy") == strategy for each in asked)
    assert tree(2, 9, 5).shared_rows > 2 * tree(2, 9, 5).tokens


# Sizes of a prompt and its responses.
Q_HEADS, KV_HEADS, DIM, PROMPT, RESPONSE = 4, 2, 64, 96, 4
WORSE = 1.1  # times the other error, at most


class Shared:
    """Responses after a prompt whose own rows have no part in the loss, as in reinforcement learning."""

    def __init__(self, responses, seed):
        random = torch.Generator().manual_seed(seed)
        rows = PROMPT + responses * RESPONSE
        self.responses = responses
        self.forest = attn.Forest(
            node_start=[0, *range(PROMPT, rows + 1, RESPONSE)], parent=[-1] + [0] * responses
        )
        self.given = [
            torch.randn(rows, heads, DIM, generator=random).bfloat16()
            for heads in (Q_HEADS, KV_HEADS, KV_HEADS)
        ]
        self.d_out = torch.randn(rows, Q_HEADS, DIM, generator=random).bfloat16()
        self.d_out[:PROMPT] = 0

    def _leaves(self, dtype):
        return [tensor.detach().to(dtype).requires_grad_() for tensor in self.given]

    def exact(self):
        leaves = self._leaves(torch.float64)
        scale = torch.tensor(DIM**-0.5, dtype=torch.float32).item()
        out, _ = replicated.attend_forest(self.forest, *leaves, scale=scale)
        return torch.autograd.grad(out, leaves, self.d_out.double())

    def packed(self, ordered):
        leaves = self._leaves(torch.bfloat16)
        out = attn.attend(*leaves, causal=True, forest=self.forest, ordered=ordered)
        return torch.autograd.grad(out, leaves, self.d_out)

    def copies(self):
        """Return PyTorch's gradients: autograd adds those of a prompt's copies."""
        leaves = q, k, v = self._leaves(torch.bfloat16)

        def of_each(tensor):
            answers = tensor[PROMPT:].unflatten(0, (self.responses, RESPONSE))
            copied = tensor[:PROMPT].expand(self.responses, *tensor[:PROMPT].shape)
            return torch.cat([copied, answers], 1).transpose(1, 2)

        rows = torch.arange(PROMPT, PROMPT + RESPONSE)[:, None]
        out = torch.nn.functional.scaled_dot_product_attention(
            of_each(q)[:, :, PROMPT:],
            *(of_each(tensor).repeat_interleave(Q_HEADS // KV_HEADS, 1) for tensor in (k, v)),
            attn_mask=torch.arange(PROMPT + RESPONSE) <= rows,
        )
        d_out = self.d_out[PROMPT:].unflatten(0, (self.responses, RESPONSE)).transpose(1, 2)
        return torch.autograd.grad(out, leaves, d_out)


def errors(found, wanted):
    """Return the errors by name: queries, and the prompt's keys and values."""
    return {
        "dq": error(found[0][PROMPT:], wanted[0][PROMPT:]),
        "dk": error(found[1][:PROMPT], wanted[1][:PROMPT]),
        "dv": error(found[2][:PROMPT], wanted[2][:PROMPT]),
    }


@pytest.mark.parametrize("ordered", [True, False])
def test_a_prompt_of_many_responses_is_as_near_as_that_of_one(ordered):
    """Gradient terms of many responses add up in float32, and only the sum is rounded."""
    one, *more = (
        errors(shared.packed(ordered), shared.exact())
        for shared in (Shared(responses, seed=responses) for responses in (1, 8, 64))
    )
    for many in more:
        for name in ("dk", "dv"):
            assert many[name] <= WORSE * one[name], name


@pytest.mark.parametrize("ordered", [True, False])
def test_errors_are_no_larger_than_those_of_copies(ordered):
    shared = Shared(16, seed=0)
    wanted = shared.exact()
    ours, theirs = (errors(found, wanted) for found in (shared.packed(ordered), shared.copies()))
    for name, each in ours.items():
        assert each <= WORSE * theirs[name], name
