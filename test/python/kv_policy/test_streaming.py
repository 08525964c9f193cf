# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Streaming heads beside heads of another policy."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from attn import kv_policy  # noqa: E402
from attn.kv_policy import HIGH, PRUNED  # noqa: E402


@pytest.mark.parametrize("sink,recent", [(3, 5), (0, 1), (4, 100)])
def test_what_streams(sink, recent):
    """A streaming head keeps the tokens that the next row sees, besides the row itself; all other lists are unchanged."""
    random = torch.Generator().manual_seed(0)
    heads = [(layer, head) for layer in range(2) for head in range(3)]
    plain = kv_policy.DiffKV(1.5, 0.5, 4, like="release")
    mixed = kv_policy.Streaming(plain, [(0, 1), (1, 2)], sink, recent)
    assert (mixed.rows, mixed.window, mixed.group) == (64, 4, "max")
    assert mixed.sees(0, 1) == (sink, recent) and mixed.sees(0, 0) is None
    worth, lengths = torch.rand(6, 30, generator=random), torch.tensor([30, 30, 2, 17, 30, 9])
    kept, without = mixed.prompt(worth, lengths, heads), plain.prompt(worth, lengths, heads)
    streams, others = [1, 5], [0, 2, 3, 4]
    for step in range(40):
        for index in streams:
            n = int(kept.lengths[index])
            stays = [i for i in range(n) if i < sink or i >= n - (recent - 1)]
            assert (kept.level[index] == HIGH).nonzero()[:, 0].tolist() == stays
        assert torch.equal(kept.level[others], without.level[others])
        before, row = kept.level[streams].clone(), torch.rand(6, 31 + step, generator=random) / 20
        changes, wanted = mixed.step(kept, row), plain.step(without, row)
        assert torch.equal(changes.pruned[others], wanted.pruned[others])
        assert torch.equal(changes.downgraded[others], wanted.downgraded[others])
        assert (changes.downgraded[streams] == -1).all()
        for i, index in enumerate(streams):
            gone = int(changes.pruned[index])
            assert gone == -1 or (gone == kept.lengths[index] - 1 and recent == 1) or before[i, gone] == HIGH
            assert gone == -1 or kept.level[index, gone] == PRUNED
