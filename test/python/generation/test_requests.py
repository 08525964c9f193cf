# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Legal requests: tokens in lists and tensors, and sizes that fit, with the largest legal one in the refusal of others."""

import numpy
import pytest
from decoding import attn, torch

requests = attn.generation.requests


@pytest.mark.parametrize(
    "given",
    [
        [5, 6],
        (5, 6),
        torch.tensor([5, 6]),
        torch.tensor([[5, 6]], dtype=torch.int32),
        numpy.array([5, 6]),
        iter([numpy.int64(5), 6]),
    ],
)
def test_tokens(given):
    found = requests.prompt_ids(given, 7)
    assert found == [5, 6] and all(type(token) is int for token in found)


@pytest.mark.parametrize(
    "given,told",
    [
        ("text", "input_ids: expected token ids, in a list or a tensor, got 'text'"),
        (5, "input_ids: expected token ids"),
        ([], "input_ids: expected one token or more"),
        ([5, 7], r"input_ids\[1\]: expected a token, 0 to 6, got 7"),
        ([True], r"input_ids\[0\]: expected a token"),
        ([1.0], r"input_ids\[0\]: expected a token"),
        (torch.tensor([1.0]), "input_ids: expected integers"),
        (torch.tensor([[1], [2]]), r"input_ids: expected the tokens of one prompt, got list \[2, 1\]"),
    ],
)
def test_what_are_no_tokens(given, told):
    with pytest.raises(attn.TensorError, match=told):
        requests.prompt_ids(given, 7)


def test_sizes():
    """Sequences have a capacity of 16 tokens, and pools of 4 and 3 pages; the last token is not cached."""
    requests.check_fits(10, 7, 16, 4, 4)
    requests.check_fits(10, 3, 16, 3, 4)
    for given, kind, told in (
        (
            (17, 1, 16, 9, 4),
            attn.PlanError,
            "input_ids: expected at most 16 tokens, as the engine was made for, got 17",
        ),
        (
            (13, 1, 16, 3, 4),
            attn.OutOfPages,
            "input_ids: expected at most 12 tokens, in a pool of 3 pages, got 13",
        ),
        (
            (10, 8, 16, 4, 4),
            attn.PlanError,
            "max_new_tokens: expected 1 to 7 after 10 tokens, .* nearest legal: 7",
        ),
        ((10, 0, 16, 4, 4), attn.PlanError, "max_new_tokens: .* got 0; nearest legal: 1"),
        ((10, True, 16, 4, 4), attn.PlanError, "max_new_tokens: .* got True"),
        (
            (10, 4, 16, 3, 4),
            attn.OutOfPages,
            "max_new_tokens: expected 1 to 3 .* in a pool of 3 pages of 4, got 4",
        ),
    ):
        with pytest.raises(attn.PlanError, match=told) as raised:
            requests.check_fits(*given)
        assert type(raised.value) is kind
