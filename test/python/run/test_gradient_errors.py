# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How far gradients behind a shared prompt are from exact ones: as near for many responses as for one, and no farther than
those of PyTorch's attention in bfloat16 over responses that each have a copy of the prompt."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import attn  # noqa: E402
import replicated  # noqa: E402
from gradient_tensors import error  # noqa: E402

Q_HEADS, KV_HEADS, DIM, PROMPT, RESPONSE = 4, 2, 64, 96, 4
WORSE = 1.1  # times the other error, at most


class Shared:
    """Responses behind a prompt whose own rows have no part in the loss, as in reinforcement learning."""

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
        """By PyTorch: autograd adds what copies of a prompt get."""
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
    """By what it is of: queries, and the prompt's keys and values."""
    return {
        "dq": error(found[0][PROMPT:], wanted[0][PROMPT:]),
        "dk": error(found[1][:PROMPT], wanted[1][:PROMPT]),
        "dv": error(found[2][:PROMPT], wanted[2][:PROMPT]),
    }


@pytest.mark.parametrize("ordered", [True, None])
def test_a_prompt_of_many_responses_is_as_near_as_that_of_one(ordered):
    """Their terms meet in float32: what is rounded is the sum."""
    one, *more = (
        errors(shared.packed(ordered), shared.exact())
        for shared in (Shared(responses, seed=responses) for responses in (1, 8, 64))
    )
    for many in more:
        for name in ("dk", "dv"):
            assert many[name] <= WORSE * one[name], name


@pytest.mark.parametrize("ordered", [True, None])
def test_errors_are_no_larger_than_those_of_copies(ordered):
    shared = Shared(16, seed=0)
    wanted = shared.exact()
    ours, theirs = (errors(found, wanted) for found in (shared.packed(ordered), shared.copies()))
    for name, each in ours.items():
        assert each <= WORSE * theirs[name], name
