# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The requests with rows in a step, over pages that are only counted: chunks beside decoding, admission, and requests
that free their pages."""

import pytest
from decoding import attn

scheduler, requests = attn.generation.scheduler, attn.generation.requests


class Pages:
    """Counted pages, and the number of tokens of each node."""

    def __init__(self, pages, page_size=4):
        self.pages, self.page_size, self.held, self.made = pages, page_size, {}, 0

    def add(self):
        self.made += 1
        self.held[self.made] = 0
        return self.made

    def prune(self, node):
        del self.held[node]

    def free_pages(self):
        return self.pages - sum(-(-tokens // self.page_size) for tokens in self.held.values())


def request(name, prompt, most=8):
    return requests.Request(name, list(range(prompt)), prompt, most, frozenset())


def run(made, steps):
    """Run steps whose rows are written and, a step later, read. Return the rows of each request in each step."""
    told = []
    for _ in range(steps):
        shares = made.schedule()
        told.append([(share.request.request_id, share.rows, share.chooses) for share in shares])
        for share in shares:
            made.pages.held[share.request.node] += share.rows
        assert made.pages.free_pages() >= 0
        before, made.under_way = made.under_way, made.launched(shares)
        for each in before:
            each.pending -= 1
            each.tokens.append(7)
    return told


def scheduled(pages, *waiting, sequences=3, rows=8, page_size=4):
    made = scheduler.Scheduler(Pages(pages, page_size), sequences, rows)
    made.waiting.extend(waiting)
    made.under_way = []
    return made


def test_prompts_are_read_in_chunks_beside_those_that_decode():
    made = scheduled(40, request("a", 3), request("b", 14), request("c", 2))
    assert run(made, 4) == [
        [("a", 3, True), ("b", 5, False)],
        [("a", 1, True), ("b", 7, False)],
        [("a", 1, True), ("b", 2, True), ("c", 2, True)],
        [("a", 1, True), ("b", 1, True), ("c", 1, True)],
    ]


def test_who_ends_makes_room_for_who_waits():
    """An ended request's slot and pages are free in the very next step, while its last token is still computed."""
    made = scheduled(2, request("a", 4, 1), request("b", 5, 2), request("c", 1, 1), sequences=1)
    told = run(made, 5)
    assert told == [[("a", 4, True)], [("b", 5, True)], [("b", 1, True)], [("c", 1, True)], []]
    assert made.pages.free_pages() == 2 and not made.sent_back


def test_who_waits_is_taken_in_where_all_of_its_prompt_fits():
    """A request is admitted, in order, where all of its prompt fits beside the prompts that others still have to read."""
    made = scheduled(6, request("a", 12), request("b", 12), request("c", 1))
    assert run(made, 2) == [[("a", 8, False)], [("a", 4, True)]]
    assert [each.request_id for each in made.waiting] == ["b", "c"]


def test_the_youngest_goes_back_where_pages_run_out():
    """The youngest request is sent back, and read again with its generated tokens once its last token is known, before
    all that have waited so far."""
    made = scheduled(4, request("a", 3, 13), request("b", 3, 10), request("c", 1, 1), sequences=2)
    both = [("a", 1, True), ("b", 1, True)]
    assert run(made, 6) == [[("a", 3, True), ("b", 3, True)]] + 5 * [both]
    assert run(made, 7) == 7 * [both[:1]] and made.sent_back == 1
    b, c = made.waiting
    assert (len(b.tokens), b.read, b.node, b.slot, b.pending) == (9, 0, None, -1, 0)
    assert run(made, 6) == [[("c", 1, True), ("b", 7, False)], [("b", 2, True)], *3 * [both[1:]], []]
    assert made.sent_back == 1 and len(c.tokens) == 2 and len(b.tokens) == 13


def test_what_is_under_way_is_waited_for():
    """A request that was sent back is not read again before its last token is known."""
    made = scheduled(40, request("a", 3))
    made.launched(made.schedule())
    (a,) = made.running
    made.send_back(a)
    assert made.schedule() == [] and a.pending == 1
    a.pending, a.tokens = 0, [*a.tokens, 5]
    assert [(share.request, share.rows) for share in made.schedule()] == [(a, 4)]


def test_pages_of_somebody_else():
    made = scheduled(4, request("a", 9))
    made.pages.held["other"] = 8
    with pytest.raises(
        attn.OutOfPages, match="request 'a' needs 1 more, 0 are free, and no other request has"
    ):
        run(made, 2)
