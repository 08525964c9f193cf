# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Choices over given logits: rows with parameters of their own in one table, tokens that a row may not choose yet,
log-probabilities of all logits, and the slots that chosen tokens go to."""

import pytest
from attn.generation.requests import Request
from attn.generation.sampling import Sampling
from attn.generation.step_table import BANNED, StepTable
from attn.generation.token_choices import Kind, TokenChoices
from decoding import torch

ROWS, VOCABULARY = 4, 30


def request(answer=0, most=9, **options):
    """A request that has so many tokens of its answer."""
    ends = frozenset(options.pop("ends", ()))
    return Request("a", list(range(3 + answer)), 3, most, ends, **options)


def choices_of(seed=0, most=4, dtype=torch.bfloat16):
    logits = torch.randn(ROWS, VOCABULARY, generator=torch.Generator().manual_seed(seed)).to(dtype)
    last = torch.full((ROWS + 1,), -1)
    table = StepTable(ROWS, 8, torch.device("cpu"))
    return TokenChoices(table, last, logits, most), table, last


def choose(made, table, requests, slots=(2, 0, 3, 1)):
    host = table.begin()
    host["slots"][:] = [*slots[: len(requests)], *[ROWS] * (ROWS - len(requests))]
    kind = made.tell(host, requests)
    table.send(kind.own)
    made.run(kind)
    return kind, made.send(kind)()


def test_the_likeliest_tokens_go_to_their_slots():
    made, table, last = choices_of()
    kind, chosen = choose(made, table, [request(), request(2), request(ends=[5])])
    best = made.logits.argmax(1).tolist()
    assert kind == Kind() and chosen.tokens[:3] == best[:3]
    assert (chosen.logprobs, chosen.likeliest) == (None, None)
    assert [last[slot].item() for slot in (2, 0, 3)] == best[:3] and last[1] == -1, (
        "an unused row has no slot"
    )


@pytest.mark.parametrize("answer,least,banned", [(0, 0, False), (0, 1, True), (3, 4, True), (4, 4, False)])
def test_tokens_that_may_not_be_chosen_yet(answer, least, banned):
    """A token ends an answer of `least` tokens or more; other rows may choose it."""
    made, table, _ = choices_of()
    order = made.logits.float().argsort(1, descending=True).tolist()
    ends = order[0][:2] + order[1][:2] + order[2][:1]
    rows = [request(answer, ends=ends, least=least), request(9, ends=ends, least=2), request()]
    for _ in range(2):
        kind, chosen = choose(made, table, rows)
        first = next(token for token in order[0] if token not in ends) if banned else order[0][0]
        assert kind == Kind(own=banned) and chosen.tokens[:3] == [first, order[1][0], order[2][0]]
    pending = request(answer, ends=ends, least=least)
    pending.pending = 1  # It has one more, which the host has not read.
    assert choose(made, table, [pending])[0] == Kind(own=answer + 1 < least)


def test_as_many_tokens_as_can_be_forbidden():
    made, table, _ = choices_of()
    order = made.logits.float().argsort(1, descending=True).tolist()
    for count in (1, BANNED - 1, BANNED):
        rows = [request(ends=order[row][:count], least=1) for row in range(ROWS)]
        _, chosen = choose(made, table, rows)
        assert chosen.tokens == [order[row][count] for row in range(ROWS)]
    drawn = {"sampling": Sampling(True, temperature=50.0, seed=3)}
    for index in range(40):
        rows = [request(index, 99, ends=order[row][:BANNED], least=60, **drawn) for row in range(ROWS)]
        _, chosen = choose(made, table, rows)
        assert all(token not in order[row][:BANNED] for row, token in enumerate(chosen.tokens))


def test_kinds_of_choices():
    """By the requests of a step; those of earlier steps leave nothing behind."""
    made, table, _ = choices_of()
    best = made.logits.argmax(1).tolist()
    sorts, draws = Sampling(True, 9.0, 5, seed=1), Sampling(True, 9.0, seed=1)
    for rows, kind in (
        ([request()] * 4, Kind()),
        ([request(sampling=sorts)] * 4, Kind(True, True)),
        ([request(), request(sampling=draws)], Kind(True)),
        ([request(logprobs=0)], Kind(logprobs=True)),
        ([request(sampling=Sampling(False, 9.0, 5)), request()], Kind()),
        ([request(sampling=draws), request(logprobs=1)], Kind(True, False, True)),
        ([request(ends=best, least=1), request(sampling=sorts)], Kind(True, True)),
        ([request(), request(), request(), request(sampling=draws)], Kind(True)),
    ):
        found, chosen = choose(made, table, rows)
        assert found == kind
        for row, each in enumerate(rows):
            if not each.sampling.sample and not each.least:
                assert chosen.tokens[row] == best[row]


def test_log_probabilities_are_those_of_all_logits():
    """Whatever is forbidden, and however a token is drawn."""
    made, table, _ = choices_of()
    shares = made.logits.float().log_softmax(1)
    best = made.logits.argmax(1).tolist()
    rows = [
        request(logprobs=2, ends=[best[0]], least=1),
        request(logprobs=4, sampling=Sampling(True, 40.0, seed=4)),
        request(logprobs=0),
        request(),
    ]
    _, chosen = choose(made, table, rows)
    found = [chosen.logprobs_of(row, each.logprobs) for row, each in enumerate(rows)]
    assert best[0] in found[0] and chosen.tokens[0] != best[0]
    assert found[2].keys() == {best[2]} and found[3] is None
    for row, count in ((0, 2), (1, 4), (2, 0)):
        likeliest = shares[row].topk(count)
        assert list(found[row])[:count] == likeliest.indices.tolist()
        assert {*found[row]} == {*likeliest.indices.tolist(), chosen.tokens[row]}
        for token, value in found[row].items():
            assert abs(value - float(shares[row, token])) < 1e-6


def test_more_log_probabilities_than_tokens():
    made, table, _ = choices_of(most=99)
    _, chosen = choose(made, table, [request(logprobs=99)])
    assert len(chosen.logprobs_of(0, 99)) == VOCABULARY


def test_results_of_two_steps_may_wait():
    made, table, _ = choices_of()
    waits, best = [], []
    for seed in range(2):
        made.logits.copy_(torch.randn(ROWS, VOCABULARY, generator=torch.Generator().manual_seed(seed + 5)))
        host = table.begin()
        host["slots"][:] = range(ROWS)
        kind = made.tell(host, [request()] * ROWS)
        table.send(kind.own)
        made.run(kind)
        waits.append(made.send(kind))
        best.append(made.logits.argmax(1).tolist())
    assert [wait().tokens for wait in waits] == best and best[0] != best[1]
