# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A cache in two precisions on a device: every step against the policy by position and dense tensors."""

import os

import attn
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from attn.cache.mixed import MixedCache  # noqa: E402
from attn.kv_policy import H2O, Decision, DiffKV, Ruled, SnapKV, Streaming  # noqa: E402
from attn.memory.devices import get_device  # noqa: E402
from mixed_model import Watched, levels_of  # noqa: E402

FULL = bool(os.environ.get("ATTN_FULL"))
# Sink, recent tokens and the policy that streaming heads stand beside: every second case, and all of them
# with --full.
STREAMING = [
    (3, 5, "paper"),
    (3, 5, "release"),
    (0, 9, "release"),
    (0, 9, "paper"),
    (2, 1, "paper"),
    (2, 1, "release"),
]
SIZES = dict(layers=2, requests=2, q_heads=4, kv_heads=2, head_dim=64)


def cache_of(policy, **changes):
    sizes = SIZES | dict(pages=400, tokens=90, page_tokens=(8, 16), device="host") | changes
    return MixedCache(policy=policy, **sizes)


def policy_of(like, **changes):
    given = dict(window=6, like=like) | changes
    return DiffKV(1.4, 0.9, **given)


def error(found, wanted):
    return float((found.float() - wanted).abs().max() / wanted.abs().max().clamp(min=0.1))


def check_steps(watched, steps, tolerance=3e-2):
    cache = watched.cache
    for _ in range(steps):
        for out, wanted, _ in watched.step():
            assert error(out, wanted) <= tolerance
        assert int(cache.missed) == 0
        for layer in range(cache.layers):
            tokens = len(watched.k[layer])
            assert torch.equal(levels_of(cache, layer, tokens), watched.kept[layer].level[:, :tokens])


@pytest.mark.parametrize("like,pages", [("paper", (8, 16)), *([("release", (6, 48))] if FULL else [])])
def test_steps_from_nothing(like, pages):
    cache = cache_of(policy_of(like), checked=True, page_tokens=pages)
    cache.active.fill_(1)
    watched = Watched(cache, (64, 64))
    check_steps(watched, 40)
    kept = torch.cat([levels_of(cache, layer, 40) for layer in range(2)])
    assert kept.unique().tolist() == [0, 1, 2]


@pytest.mark.parametrize("like", ["paper", "release"])
def test_steps_behind_prompts(like):
    cache = cache_of(policy_of(like, group="sum"), value_dim=128)
    watched = Watched(cache, (64, 128), seed=3)
    watched.prompts(50)
    check_steps(watched, 20)


def test_scores_are_those_of_the_policy():
    cache = cache_of(policy_of("release"))
    watched = Watched(cache, (64, 64))
    watched.prompts(30)
    check_steps(watched, 5)
    for layer in range(cache.layers):
        kept = watched.kept[layer]
        table = cache.pool.table[layer]
        for row in range(cache.used):
            page, place = table[row, 0].long(), torch.arange(8)
            positions = cache.position[page, place].long()
            torch.testing.assert_close(cache.score[page, place], kept.score[row, positions])


def test_heads_with_limits_of_their_own():
    overrides = {(0, 0): (0.0, 0.0), (1, 1): (4.0, 3.0)}
    cache = cache_of(policy_of("paper", overrides=overrides))
    watched = Watched(cache, (64, 64))
    cache.active.fill_(1)
    check_steps(watched, 25)
    assert (levels_of(cache, 0, 25)[::2] == 2).all()


@pytest.mark.parametrize("sink,recent,like", STREAMING if FULL else STREAMING[5:6])
def test_heads_that_stream(sink, recent, like):
    """Streaming heads beside heads of DiffKV keep their tokens, with and without a prompt."""
    policy = Streaming(policy_of(like), heads=[(0, 1), (1, 0)], sink=sink, recent=recent)
    for prompt in (0, 30):
        cache = cache_of(policy, checked=True)
        watched = Watched(cache, (64, 64), seed=prompt)
        if prompt:
            watched.prompts(prompt)
        cache.active.fill_(1)
        check_steps(watched, 25)
        # A streaming head keeps sinks and recent tokens for the next row, which itself is one of the recent
        # ones.
        streams = levels_of(cache, 0, prompt + 25)[1::2]
        assert (streams == 2).sum(1).tolist() == [sink + recent - 1] * 2
        assert (streams[:, :sink] == 2).all() and (streams != 1).all()
        assert (levels_of(cache, 0, prompt + 25)[::2] == 1).any()


@pytest.mark.parametrize("requests,kv_heads", [(1, 1), (3, 1), (1, 3), (3, 2)] if FULL else [(1, 3), (3, 2)])
def test_any_number_of_lists(requests, kv_heads):
    """Tables are allocated for a multiple of four lists; lists after those of requests stay empty."""
    sizes = dict(requests=requests, kv_heads=kv_heads, q_heads=2 * kv_heads)
    for policy, named in ((policy_of("release"), {}), (None, {"high": {}})):
        cache = cache_of(policy, checked=True, **sizes, **named)
        watched = Watched(cache, (64, 64))
        watched.prompts(30)
        if policy is not None:
            check_steps(watched, 12)
        else:
            for _ in range(6):
                assert all(error(out, wanted) <= 3e-2 for out, wanted, _ in watched.step())
        assert not cache.counts[:, :, cache.used :].any() and int(cache.missed) == 0


def test_one_precision():
    cache = cache_of(None, high={})
    watched = Watched(cache, (64, 64))
    watched.prompts(20)
    for _ in range(20):
        for out, wanted, _ in watched.step():
            assert error(out, wanted) <= 1e-2
    assert (levels_of(cache, 1, 40) == 2).all() and cache.page_bytes == 8 * 2 * 64 * 2


def test_where_pages_run_out_nothing_changes():
    cache = cache_of(policy_of("paper", window=64), pages=20)
    cache.active.fill_(1)
    watched = Watched(cache, (64, 64))
    for _ in range(8):
        watched.step()
    assert int(cache.missed) == 0 and cache.pool.free_pages() == 4
    before = [each.clone() for each in (*cache.counts, cache.seen, cache.score[:-1], cache.position[:-1])]
    cache.begin()
    q = torch.zeros(2, 4, 64, dtype=torch.bfloat16)
    for layer in range(2):
        cache.attend(layer, q, q[:, :2].contiguous(), q[:, :2].contiguous())
    cache.end()
    assert int(cache.missed) == 1
    after = (*cache.counts, cache.seen, cache.score[:-1], cache.position[:-1])
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    cache.release(1)
    cache.begin()
    assert int(cache.missed) == 1 and cache.seen[:, :2].tolist() == [[9, 9]] * 2
    assert not cache.seen[:, 2:].any()


def test_prompts_that_find_no_pages():
    cache = cache_of(policy_of("paper"), pages=12)
    levels = torch.full((2, 2, 40), 2, dtype=torch.int8)
    with pytest.raises(attn.OutOfPages, match="expected 20 free ones, got 12 of 12"):
        cache.admit(0, levels, torch.ones(2, 2, 40))
    assert not cache.active.any() and not cache.seen.any() and cache.pool.free_pages() == 12


def test_requests_come_and_go():
    """Rows of requests that are not active are zeros, and a slot serves one request after the other."""
    cache = cache_of(policy_of("paper"))
    watched = Watched(cache, (64, 64))
    watched.prompt(1, 33)
    q = torch.randn(2, 4, 64).to(torch.bfloat16)
    for _ in range(3):
        cache.begin()
        outs = [cache.attend(layer, q, q[:, :2].contiguous(), q[:, :2].contiguous()) for layer in range(2)]
        cache.end()
        assert all((out[0] == 0).all() and (out[1] != 0).any() for out in outs)
    assert cache.seen.tolist() == [[0, 0, 36, 36]] * 2
    cache.release(1)
    cache.begin()
    assert cache.pool.free_pages() == 400
    watched.prompt(1, 5)
    assert cache.seen.tolist() == [[0, 0, 5, 5]] * 2


def test_a_step_allocates_and_copies_nothing():
    cache = cache_of(policy_of("paper"))
    cache.active.fill_(1)
    watched = Watched(cache, (64, 64))
    watched.step()
    device = get_device("host")
    works = []
    for _ in range(2):
        device.work(reset=True)
        watched.step()
        works.append(device.work())
    assert works[0]["allocations"] == works[0]["copies"] == 0
    assert all(works[0][what] == works[1][what] for what in ("launches", "shapes"))


class Tiers(Ruled):
    """At most a number of HIGH and of LOW tokens, beside the first tokens; heads differ."""

    window, group = 5, "mean"

    def limits(self, layer, head):
        return 12.0 + head, 9.0 + layer

    def rank(self, score, rows, position, seen):
        return attn.math.where(position < 3, 1e30, score / rows)

    def decide(self, leaving, least, lowest, state):
        over = state.high > state.limits[0]
        return Decision(least_demoted=over, lowest_gone=over & (state.low >= state.limits[1]))


class Leaving(Tiers):
    """Every way in which a token leaves: by its position, and by its significance relative to other tokens."""

    def rank(self, score, rows, position, seen):
        return attn.math.exp2(-score) * attn.math.abs(position - seen // 2) + rows % 3

    def decide(self, leaving, least, lowest, state):
        odd = state.seen % 4
        return Decision(
            leaving_demoted=leaving.exists & (odd == 0),
            leaving_gone=leaving.below(1.5) & (odd == 1),
            least_demoted=odd <= 2,
            least_gone=~(leaving.rank < least.rank),
            lowest_gone=state.low > 6,
        )


class NoNumbers(Tiers):
    """NaN ranks count as infinite, and so do the ranks of missing candidates."""

    def rank(self, score, rows, position, seen):
        return (position % 3 - 1) / (position % 3 - 1) * score

    def decide(self, leaving, least, lowest, state):
        return Decision(
            least_demoted=(lowest.rank > 1e30) & (state.high > 8),
            least_gone=(lowest.rank <= 1e30) & (state.high > 8),
        )


class NoNumberAtAll(Tiers):
    """All ranks are NaN, and the budget is kept."""

    def rank(self, score, rows, position, seen):
        return (position - position) / (position - position)

    def decide(self, leaving, least, lowest, state):
        return Decision(least_gone=state.high > 8)


POLICIES = [Tiers(), Leaving(), NoNumbers(), NoNumberAtAll(), H2O(14, 6), SnapKV(12, 4)]


@pytest.mark.parametrize("prompt", [0, 30] if FULL else [30])
@pytest.mark.parametrize("policy", POLICIES if FULL else POLICIES[::3], ids=lambda p: type(p).__name__)
def test_policies_of_two_functions(policy, prompt):
    cache = cache_of(policy, checked=True)
    watched = Watched(cache, (64, 64), seed=prompt)
    if prompt:
        watched.prompts(prompt)
    cache.active.fill_(1)
    check_steps(watched, 40)
    levels = levels_of(cache, 1, prompt + 40)
    if isinstance(policy, H2O):
        assert (levels == 2).sum(1).tolist() == [14] * 4
    if type(policy) is NoNumberAtAll and not prompt:
        assert (levels == 2).sum(1).tolist() == [8] * 4
    if type(policy) is Tiers and not prompt:
        assert [(levels == 2).sum(1).tolist(), (levels == 1).sum(1).tolist()] == [[12, 13] * 2, [10] * 4]


@pytest.mark.parametrize(
    "function,words",
    [
        (lambda self, score, rows, position, seen: score if score > 0 else 0, "rank: a traced value is neither true nor false"),
        (lambda self, score, rows, position, seen: rows > 3 and score, "rank: a traced value is neither true nor false"),
        (lambda self, *_: None, "rank: result 0: expected a number or a traced value, got None"),
    ],
)  # fmt: skip
def test_functions_without_meaning(function, words):
    with pytest.raises(attn.SpecError, match=words):
        cache_of(type("Mine", (Tiers,), {"rank": function})())
    with pytest.raises(attn.SpecError, match=r"decide: expected an attn.kv_policy.Decision\(...\), got"):
        cache_of(type("Mine", (Tiers,), {"decide": lambda self, *_: (True, False)})())


def test_refusals():
    uniform = policy_of("paper", norm="uniform")
    for policy in (uniform, Streaming(uniform, heads=[(0, 0)]), "paper"):
        with pytest.raises(attn.PlanError, match="policy: expected one that a kernel decides by"):
            cache_of(policy)
    for name, value, words in (
        ("window", 0, "Mine.window: expected a number of tokens from 1 on, got 0"),
        ("window", 4.0, "Mine.window: expected a number of tokens from 0 on, got 4.0"),
        ("window", "4", "Mine.window: expected a number of tokens from 0 on, got '4'"),
        ("rows", -3, "Mine.rows: expected a number of rows from 1 on, or None for all, got -3"),
        ("group", "median", "Mine.group: expected 'max', 'mean' or 'sum', got 'median'"),
        ("limits", lambda *_: 3.0, r"Mine.limits\(0, 0\): expected two numbers of float32, got 3.0"),
        (
            "limits",
            lambda *_: (1, 2, 3),
            r"Mine.limits\(0, 0\): expected two numbers of float32, got tuple \(1, 2, 3\)",
        ),
        ("limits", lambda *_: (1, float("nan")), r"Mine.limits\(0, 0\): expected two numbers of float32"),
        ("limits", lambda *_: (10**400, 1), r"Mine.limits\(0, 0\): expected two numbers of float32"),
    ):
        mine = type("Mine", (Tiers,), {name: value})()
        with pytest.raises(attn.PlanError, match=words):
            cache_of(mine)
        if (name, value) != ("window", 0):
            with pytest.raises(attn.PlanError, match=words):
                mine.prompt(torch.rand(2, 3), heads=[(0, 0), (0, 1)])
    with pytest.raises(
        attn.PlanError, match=r"policy: expected \(layer, head\) of \d+ layers of 2 KV heads, got .*9"
    ):
        cache_of(Streaming(H2O(8, 4), heads=[(0, 1), (9, 0)]))
    cache = cache_of(None, high={})
    with pytest.raises(attn.TensorError, match=r"k: expected \[tokens, 2, features\]"):
        cache.write([torch.zeros(2, 3, dtype=torch.int32)], torch.zeros(3, 4, 64), torch.zeros(3, 4, 64))
