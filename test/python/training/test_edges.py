# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Log-probabilities and losses along edges, against log_softmax of each trajectory's own rows."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import attn  # noqa: E402
from attn.training import edge_logprobs, edge_loss, edge_weights, group, pack, trajectory_sums  # noqa: E402

VOCABULARY = 11


@pytest.fixture
def packed():
    return pack([group([1, 2, 3], [[4, 5], [4, 6, 7], [8]]), group([9], [[10], [1, 1]])])[0]


def logits_of(packed, dtype=torch.float64):
    random = torch.Generator().manual_seed(0)
    return torch.randn(len(packed.tokens), VOCABULARY, generator=random, dtype=dtype).requires_grad_()


def by_trajectory(logits, packed, temperature=1.0):
    """Return (log-probability, entropy) of each edge, from copies of rows."""
    found, entropies = [], []
    for number, rows in enumerate(packed.unpack(logits)):
        p = (rows / temperature).log_softmax(-1)
        for at in packed.edge_position[packed.edge_trajectory == number]:
            found.append(p[at - 1, packed.tokens[packed.rows(number)][at]])
            entropies.append(-(p[at - 1].exp() * p[at - 1]).sum())
    return torch.stack(found), torch.stack(entropies)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_values_and_gradients(packed, temperature):
    logits = logits_of(packed)
    found = edge_logprobs(logits, packed, temperature=temperature, entropy=True)
    wanted = by_trajectory(logits, packed, temperature)
    weights = torch.randn(len(found[0]), dtype=torch.float64)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)
        grads = [torch.autograd.grad((x * weights).sum(), logits, retain_graph=True)[0] for x in (one, other)]
        torch.testing.assert_close(*grads)


def test_logits_of_all_rows_or_of_those_with_edges(packed):
    logits = logits_of(packed)
    everywhere = edge_logprobs(logits, packed)
    assert len(packed.sources) < len(packed.tokens)
    assert torch.equal(edge_logprobs(logits[packed.sources], packed), everywhere)
    assert torch.equal(edge_logprobs(logits[None], packed), everywhere)
    assert edge_logprobs(logits.bfloat16(), packed).dtype == torch.float32


def test_weights_of_trajectories_and_of_edges(packed):
    logits = logits_of(packed)
    found = edge_logprobs(logits, packed)
    weights = torch.tensor([1.0, -2.0, 0.5, 3.0, -1.0])
    wanted = -sum(w * part.sum() for w, part in zip(weights, packed.split(found), strict=True))
    torch.testing.assert_close(edge_loss(logits, packed, weights), wanted)
    torch.testing.assert_close(edge_loss(logits, packed, edge_weights(weights, packed)), wanted)
    torch.testing.assert_close(edge_loss(logits, packed), -found.mean())
    sums = trajectory_sums(found, packed)
    torch.testing.assert_close(sums, torch.stack([part.sum() for part in packed.split(found)]))


def test_unpack(packed):
    values = torch.arange(len(packed.tokens))
    for given in (values, values[None]):
        assert [part.tolist() for part in packed.unpack(given)] == [packed.rows(n).tolist() for n in range(5)]
    assert packed.unpack(values[:, None].expand(-1, 3))[1].shape == (6, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda p: edge_logprobs(torch.zeros(3, 11), p),
            r"logits: expected \[\d+, vocabulary\] of all rows or",
        ),
        (
            lambda p: edge_logprobs(torch.zeros(len(p.tokens), 10), p),
            r"trajectory 3, token 1: expected a label in \[0, 10\), as logits have, got 10",
        ),
        (
            lambda p: edge_logprobs(torch.zeros(len(p.tokens), 11), p, temperature=0.0),
            "a number above 0, got 0.0",
        ),
        (lambda p: edge_loss(torch.zeros(len(p.tokens), 11), p, torch.ones(2)), r"weights: expected \[5\]"),
        (lambda p: trajectory_sums(torch.zeros(2), p), r"values: expected \[9\], got \[2\]"),
        (lambda p: p.split(torch.zeros(2)), r"values: expected \[9, ...\]"),
        (lambda p: p.unpack(torch.zeros(2)), r"values: expected \[12, ...\]"),
    ],
)
def test_bad_input_is_named(packed, call, message):
    with pytest.raises(attn.TensorError, match=message):
        call(packed)
