# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What rows see by each term: kernels against the definition, and attend's `window_size` against flash-attn's."""

import attn
import numpy
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import seen  # noqa: E402


@pytest.mark.parametrize(
    "see",
    [
        attn.window(7, 3),
        attn.window(0, 70),
        attn.window(100, 2**31 - 1) & attn.chunk(256),
        attn.sink(5) | attn.window(20, 20),
        attn.chunk(40),
        attn.causal() & attn.chunk(64),
        attn.causal() & (attn.sink(8) | attn.chunk(16)),
    ],
    ids=str,
)
def test_forward_backward_and_plans_of_the_device(see):
    seen.check_everywhere(see)


def shown(rows, tokens, left, right):
    """flash-attn's rule, of rows that are the last of the tokens."""
    distance = numpy.arange(tokens)[None] - (numpy.arange(rows)[:, None] + tokens - rows)
    return (distance >= -left if left >= 0 else True) & (distance <= right if right >= 0 else True)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sides", [(3, 5), (0, 0), (7, 0), (0, 4), (-1, 4), (6, -1), (-1, -1), (200, 200)])
def test_window_size(sides, causal):
    rows, tokens = 9, 40
    q, k, v = (torch.randn(2, n, 4, 32).bfloat16() for n in (rows, tokens, tokens))
    mask = numpy.broadcast_to(shown(rows, tokens, sides[0], 0 if causal else sides[1]), (rows, tokens))
    s = torch.einsum("bqhd,bkhd->bhqk", q.double(), k.double()) / 32**0.5
    weights = torch.softmax(s.masked_fill(~torch.from_numpy(mask.copy()), -torch.inf), -1)
    wanted = torch.einsum("bhqk,bkhd->bqhd", weights, v.double())
    out = attn.attend(q, k, v, causal=causal, window_size=sides)
    assert (out.double() - wanted).abs().max() <= 1e-2 * wanted.abs().max()
    compiled = torch.compile(
        lambda *given: attn.attend(*given, causal=causal, window_size=sides), backend="eager"
    )
    assert torch.equal(compiled(q, k, v), out)


def test_another_size_compiles_nothing():
    kernels = [
        attn.compile(
            attn.Spec(q_heads=2, kv_heads=1, head_dim=32, dtype="float16", kv=[attn.Dense(see=see)]),
            device="host",
        )
        for see in (attn.chunk(8) | attn.window(3, 4), attn.chunk(9) | attn.window(5, 7))
    ]
    assert kernels[0].manifest["kernels"] == kernels[1].manifest["kernels"]
    assert list(kernels[0].ends) == [8, 3, 4] and list(kernels[1].ends) == [9, 5, 7]
