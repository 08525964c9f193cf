# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the benchmarks of engines make of answers and times, without an engine."""

import random
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the models are PyTorch's")
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks/engines"))
import common  # noqa: E402


def test_answers_are_compared_up_to_their_first_difference():
    theirs = [[1, 2, 3, 4], [5, 6, 7, 8]], [[0.5, 0.4, 0.3, 0.2], [0.9, 0.001, 0.9, 0.9]]
    ours = [[1, 2, 3, 4], [5, 9, 7, 8]], None
    row = common.compared(theirs, ours)
    assert (row["answers"], row["equal_answers"], row["tokens"], row["equal_until"]) == (2, 1, 8, 5)
    assert row["gaps"] == [0.001] and row["smallest_gap"] == 0.001


def test_decoding_is_timed_when_all_sequences_decode():
    prompts = [(1.0, 1, 1), (2.0, 3, 2)]  # Seconds, tokens of all answers, and answers that have begun.
    steps = [(2.0 + 0.5 * at, 3 + 2 * at, 2) for at in range(1, 9)]
    rate, count = common.decoding_rate(prompts + steps, 2)
    assert rate == pytest.approx(4.0) and count == 6
    assert common.decoding_rate(prompts, 2) == (None, 0)
    rest = [(6.0 + 0.25 * at, 19 + at, 2) for at in range(1, 5)]  # One of them has ended.
    assert common.decoding_rate(prompts + steps + rest, 1, begun=2) == (4.0, 3)


def test_random_prompts_are_the_same_in_each_engine():
    prompts = common.random_prompts("tiny", 3, 5)
    assert prompts == common.random_prompts("tiny", 3, 5) and [len(each) for each in prompts] == [5] * 3
    assert min(map(min, prompts)) >= 3 and max(map(max, prompts)) < 512 and prompts[0] != prompts[1]


def test_weights_have_a_real_scale():
    model = torch.nn.Sequential(torch.nn.Linear(1024, 512, bias=False), torch.nn.LayerNorm(512, bias=False))
    common.fill(model)
    matrix, factors = model.parameters()
    first = matrix.detach().clone()
    assert first.std().item() == pytest.approx(0.04, rel=0.02) and torch.equal(factors, torch.ones(512))
    common.fill(model)
    assert torch.equal(first, matrix)
    model.register_parameter("made", torch.nn.Parameter(torch.zeros(8, 8)))
    common.fill(model, derived=("made",))
    assert torch.equal(first, matrix) and not model.made.any()


def test_the_last_two_prompts_begin_alike():
    *_, one, other = common.prompts_of(random.Random(0), "tiny", [4, 9, 8], common=5)
    assert one[:5] == other[:5] and one[5:8] != other[5:8] and max(one) < 512


def test_speeds_are_compared_in_the_same_mode():
    def row(backend, mode, prefill, decode):
        rates = dict(prefill={"2x8": prefill}, decode={"2x4": decode})
        return dict(part="speed", backend=backend, mode=mode) | rates

    theirs, ours = row("own", "eager", 100.0, 10.0), row("attn", "eager", 110.0, 15.0)
    eager = {"eager prefill 2x8": pytest.approx(1.1), "eager decode 2x4": 1.5}
    assert common.speed_ratios([theirs, ours, row("attn", "graphs", 900.0, 900.0)], "own") == eager
    both = [theirs, ours, row("attn", "graphs", 100.0, 60.0), row("own", "graphs", 100.0, 30.0)]
    graphs = {"graphs prefill 2x8": pytest.approx(1.0), "graphs decode 2x4": 2.0}
    assert common.speed_ratios(both, "own") == eager | graphs
    assert common.speed_ratios([ours, row("own", "eager", 100.0, None)], "own") == {
        "eager prefill 2x8": pytest.approx(1.1)
    }


class Answers:
    """An engine whose answers are tokens that its backend says."""

    seconds_to_start, cached_tokens = 1.0, 64
    closed = 0

    def __init__(self, folder, backend, mode, *, sequences, tokens, cache_bytes):
        self.token = 3 if backend == "wrong" or Answers.zero else 2

    zero = False

    def answered(self, prompts, answer):
        return [[self.token] * answer] * len(prompts), [[0.25] * answer] * len(prompts)

    def close(self):
        Answers.closed += 1


def test_the_control_differs_or_says_so(tmp_path):
    def without():
        Answers.zero = True
        return lambda: setattr(Answers, "zero", False)

    side = common.Side(Answers, "own", "mine", without, (), ())
    own, ours, control = common.tokens_part(side, tmp_path, ["eager"], [])
    assert (own["backend"], ours["backend"], control["backend"]) == ("own", "attn", "control")
    assert ours["equal_answers"] == ours["answers"] and control["differs"] and not Answers.zero
    assert Answers.closed == 3
    blind = common.Side(Answers, "own", "mine", lambda: lambda: None, (), ())
    assert not list(common.tokens_part(blind, tmp_path, ["eager"], []))[-1]["differs"]
