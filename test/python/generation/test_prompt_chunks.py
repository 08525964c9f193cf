# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""New tokens of prompts whose sequences hold different numbers of tokens: their columns and positions."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="Transformers is not installed")

from attn.generation.prompt_chunks import chunk_behind  # noqa: E402

IDS = torch.tensor([[0, 11, 12, 13, 14], [0, 0, 0, 21, 22], [31, 32, 33, 34, 35]])
MASK = torch.tensor([[0, 1, 1, 1, 1], [0, 0, 0, 1, 1], [1, 1, 1, 1, 1]]).bool()


def test_what_is_new_begins_in_one_column():
    chunk = chunk_behind(IDS, MASK, [3, 0, 2])
    shown = [[True, False, False], [True, True, False], [True, True, True]]
    assert [row[keep].tolist() for row, keep in zip(chunk.ids, torch.tensor(shown), strict=True)] == [
        [14],
        [21, 22],
        [33, 34, 35],
    ]
    assert chunk.mask.tolist() == [
        [held > 2, held > 1, held > 0, *row] for held, row in zip([3, 0, 2], shown, strict=True)
    ]
    assert chunk.places.tolist() == [[3, 0, 0], [0, 1, 0], [2, 3, 4]]
    assert chunk.last.tolist() == [0, 1, 2]


def test_nothing_is_held():
    chunk = chunk_behind(IDS[2:], MASK[2:], [0])
    assert torch.equal(chunk.ids, IDS[2:]) and chunk.mask.all() and chunk.mask.shape == (1, 5)
    assert chunk.places.tolist() == [[0, 1, 2, 3, 4]] and chunk.last.tolist() == [4]
