# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""DiffKV's policy against a simulator of one list at a time, and invariants of every step.

CI runs 10^4 random steps of each kind, --full 10^6.
"""

import os

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from attn import kv_policy  # noqa: E402
from attn.kv_policy import HIGH, LOW, PRUNED  # noqa: E402
from attn.kv_policy.diffkv import largest_alphas  # noqa: E402
from policy_simulator import Simulator  # noqa: E402

STEPS, LONGEST, WINDOW = 40, 48, 6
LISTS = (10**6 if os.environ.get("ATTN_FULL") else 10**4) // STEPS
LIKES = ("paper", "release")
NORMS = ("inverse_length", "inverse_position", "uniform")


def random_worth(random, lists, tokens, exact):
    """Return random significance, small for most tokens and large for some; `exact`: in multiples of 2^-12, whose sums
    are exact in any order."""
    worth = torch.rand(lists, tokens, generator=random) ** 4 / 4
    return (worth * 4096).round() / 4096 if exact else worth


def random_policy(like, norm, heads=3):
    overrides = {(0, h): (0.8 + 0.3 * h, 0.2 + 0.1 * h) for h in range(1, heads)}
    return kv_policy.DiffKV(0.8, 0.2, WINDOW, norm, like, overrides=overrides)


def levels(simulator, room):
    names = {"high": HIGH, "low": LOW}
    return [names[simulator.tokens[i][2]] if i in simulator.tokens else PRUNED for i in range(room)]


def begin(random, policy, lists, exact):
    """Return the state after prompts of all lengths, from 0 on."""
    lengths = torch.randint(LONGEST + 1, (lists,), generator=random)
    heads = [(0, i % 3) for i in range(lists)]
    worth = random_worth(random, lists, LONGEST, exact) * 8
    kept = policy.prompt(worth, lengths, heads)
    simulators = [
        Simulator(*policy.alphas(*head), policy.window, policy.norm, policy.like, row[:n])
        for head, row, n in zip(heads, worth.tolist(), lengths.tolist(), strict=True)
    ]
    return kept, simulators


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("like", LIKES)
def test_decisions_are_the_simulator_s(like, norm):
    """Decisions are the simulator's for every token, where sums are exact."""
    random = torch.Generator().manual_seed(1)
    lists = LISTS if norm != "uniform" else LISTS // 10
    policy = random_policy(like, norm)
    kept, simulators = begin(random, policy, lists, exact=True)
    downgraded = pruned = 0
    for _ in range(STEPS):
        worth = random_worth(random, lists, int(kept.lengths.max()) + 1, exact=True)
        changes = policy.step(kept, worth)
        rows = zip(simulators, worth.tolist(), strict=True)
        wanted = [simulator.step(row) for simulator, row in rows]
        assert torch.stack([changes.downgraded, changes.pruned], 1).tolist() == [
            list(pair) for pair in wanted
        ]
        downgraded += int((changes.downgraded >= 0).sum())
        pruned += int((changes.pruned >= 0).sum())
    assert kept.level.tolist() == [levels(simulator, kept.level.shape[1]) for simulator in simulators]
    assert min(downgraded, pruned) > lists / 2  # steps make decisions


@pytest.mark.parametrize("like", LIKES)
def test_decisions_on_real_scores(like):
    """Sums of 32 bits and of 64 bits decide differently only near a threshold."""
    random, lists = torch.Generator().manual_seed(2), LISTS // 4
    policy = random_policy(like, "inverse_length")
    kept, simulators = begin(random, policy, lists, exact=False)
    live = list(range(lists))
    for _ in range(STEPS):
        worth = random_worth(random, lists, int(kept.lengths.max()) + 1, exact=False)
        changes = policy.step(kept, worth)
        found, rows, same = torch.stack([changes.downgraded, changes.pruned], 1).tolist(), worth.tolist(), []
        for i in live:
            if tuple(found[i]) == simulators[i].step(rows[i]):
                same.append(i)
            else:
                assert simulators[i].margin() <= 1e-5
        live = same
    assert len(live) >= 0.99 * lists


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("like", LIKES)
def test_what_no_step_does(like, norm):
    random, lists = torch.Generator().manual_seed(3), 64
    policy = random_policy(like, norm)
    kept, _ = begin(random, policy, lists, exact=False)
    for _ in range(STEPS):
        before, length = kept.level.clone(), kept.lengths.clone()
        changes = policy.step(kept, random_worth(random, lists, int(length.max()) + 1, exact=False))
        after = kept.level[:, : before.shape[1]]
        new = torch.arange(before.shape[1]) >= length[:, None]
        assert not (after > before)[~new].any(), "no token is kept in more bits again"
        assert ((before == HIGH) & (after == LOW)).sum(1).max() <= 1
        assert ((before != PRUNED) & (after == PRUNED)).sum(1).max() <= 1
        place = torch.arange(kept.level.shape[1])
        recent = (place < kept.lengths[:, None]) & (place >= kept.lengths[:, None] - WINDOW)
        assert (kept.level[recent] == HIGH).all()
        for positions in (changes.downgraded, changes.pruned):
            assert ((positions < kept.lengths - WINDOW) | (positions == -1)).all()
    counts = kept.counts()
    assert torch.equal(sum(counts.values()), kept.lengths)


@pytest.mark.parametrize("like", LIKES)
def test_lists_decide_by_themselves(like):
    """A list's decisions are the same among others, in another order and alone."""
    random, lists = torch.Generator().manual_seed(4), 30
    policy = kv_policy.DiffKV(0.8, 0.2, WINDOW, like=like)
    prompt, lengths = (
        random_worth(random, lists, 40, False) * 8,
        torch.randint(41, (lists,), generator=random),
    )
    order = torch.randperm(lists, generator=random)
    kept = [policy.prompt(prompt, lengths), policy.prompt(prompt[order], lengths[order])]
    kept.append(policy.prompt(prompt[7:8], lengths[7:8]))
    for i in range(STEPS):
        worth = random_worth(random, lists, 41 + i, False)
        for each, rows in zip(kept, (worth, worth[order], worth[7:8]), strict=True):
            policy.step(each, rows)
    assert torch.equal(kept[0].level[order], kept[1].level)
    assert torch.equal(kept[0].level[7:8], kept[2].level)


def test_equals_are_taken_from_the_front():
    policy = kv_policy.DiffKV(1.0, 0.5, window=2, like="release")
    kept = policy.prompt(torch.full((1, 6), 6.0))
    assert kept.level.tolist() == [[HIGH] * 6]
    kept.score.zero_()
    taken = []
    for i in range(4):
        changes = policy.step(kept, torch.zeros(1, 7 + i))
        taken.append((int(changes.downgraded), int(changes.pruned)))
    assert taken == [(0, -1), (1, 0), (2, 1), (3, 2)]


def test_the_first_token_and_norms():
    """The norm "uniform" is a token's significance under uniform attention. "inverse_position" compares the first token
    with 1, and "inverse_length" with less."""
    tokens = 50
    rows = torch.tril(torch.ones(tokens, tokens, dtype=torch.float64))
    worth = (rows / rows.sum(1, keepdim=True)).sum(0, keepdim=True)
    for alpha, level in ((0.999, HIGH), (1.001, PRUNED)):
        kept = kv_policy.DiffKV(alpha, alpha, 1, "uniform", "paper").prompt(worth)
        assert set(kept.level[0, :-1].tolist()) == {level}
    sink = torch.full((1, tokens), 0.2)
    sink[0, 0] = 0.9 * tokens
    by_place = kv_policy.DiffKV(1.0, 0.1, 1, "inverse_position").prompt(sink).level[0, 0]
    by_length = kv_policy.DiffKV(1.0, 0.1, 1, "inverse_length").prompt(sink).level[0, 0]
    assert (int(by_place), int(by_length)) == (LOW, HIGH)


def test_alphas_of_zero_keep_everything():
    policy = kv_policy.DiffKV(0, 0, window=1)
    kept = policy.prompt(torch.zeros(2, 9))
    for i in range(5):
        assert (policy.step(kept, torch.zeros(2, 10 + i)).pruned == -1).all()
    assert (kept.counts()["high"] == 14).all()


def test_prompts_may_be_empty():
    policy = kv_policy.DiffKV(1, 0, window=4)
    kept = policy.prompt(torch.zeros(3, 0))
    for i in range(6):
        policy.step(kept, torch.full((3, i + 1), 1 / (i + 1)))
    assert kept.lengths.tolist() == [6] * 3


def test_the_largest_alphas():
    """The share of LOW is chosen first, then the share of pruned tokens; each is as large as the loss allows."""
    asked = []

    def bears(high, low):
        asked.append((high, low))
        return 1.0 + 0.1 * high + low <= 1.25

    high, low = largest_alphas(bears, most=8, steps=10)
    assert 2.5 - 8 / 2**10 <= high <= 2.5 and low <= 0.25 - 0.1 * high + 1e-9
    assert bears(high, low) and all(second == 0 for first, second in asked if first > high)
    assert largest_alphas(lambda high, low: True, most=3.0, steps=4) == (3.0, 3.0)
