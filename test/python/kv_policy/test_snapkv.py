# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""SnapKV's set of tokens."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from attn import kv_policy  # noqa: E402
from attn.kv_policy import HIGH, PRUNED  # noqa: E402


def kept_set(worth, budget, window, kernel):
    """Return SnapKV's set: neighbours share their maximum, and the largest tokens stay, the earlier of equal ones."""
    before = list(worth[: max(len(worth) - window, 0)])
    side = kernel // 2
    votes = [max(before[max(i - side, 0) : i + side + 1]) for i in range(len(before))]
    order = sorted(range(len(votes)), key=lambda i: (-votes[i], i))
    return set(order[: budget - window]) | set(range(len(before), len(worth)))


@pytest.mark.parametrize("budget,window,kernel", [(12, 4, 3), (4, 4, 1), (30, 8, 7), (100, 5, 5)])
def test_the_set(budget, window, kernel):
    random = torch.Generator().manual_seed(0)
    policy = kv_policy.SnapKV(budget, window, kernel)
    assert policy.rows == window
    worth = torch.randint(20, (40, 60), generator=random) / 8
    lengths = torch.randint(61, (40,), generator=random)
    kept = policy.prompt(worth, lengths)
    for i, n in enumerate(lengths.tolist()):
        found = {t for t, level in enumerate(kept.level[i].tolist()) if level == HIGH}
        assert found == kept_set(worth[i, :n].tolist(), budget, window, kernel)
        assert len(found) == min(n, budget)


def test_what_is_generated_stays():
    policy = kv_policy.SnapKV(6, 2)
    kept = policy.prompt(torch.rand(3, 20))
    before = kept.level.clone()
    for i in range(10):
        changes = policy.step(kept, torch.rand(3, 21 + i))
        assert (changes.downgraded == -1).all() and (changes.pruned == -1).all()
    assert torch.equal(kept.level[:, :20], before) and (kept.level[:, 20:30] == HIGH).all()
    assert (kept.counts()["pruned"] == 14).all() and PRUNED in before
