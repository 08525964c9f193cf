# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Outputs of an engine as they come, for a caller who streams a request, and what an engine counts."""

import gc

import pytest
from decoding import attn, build
from spelling import Speller
from test_engine import NEW, PAGES, alone, engine_of, prompts_of


def test_new_tokens_and_text():
    """The new tokens and texts of all outputs are the answer."""
    model, prompts = build(), prompts_of()
    engine = engine_of(model, tokenizer=Speller())
    names = [engine.add_request(prompt, max_new_tokens=NEW) for prompt in prompts]
    tokens, texts, last = {name: [] for name in names}, dict.fromkeys(names, ""), {}
    while engine.has_unfinished_requests():
        for output in engine.step():
            assert len(output.new_token_ids) == 1
            tokens[output.request_id] += output.new_token_ids
            texts[output.request_id] += output.new_text
            assert texts[output.request_id] == output.text
            last[output.request_id] = output
    for name, prompt in zip(names, prompts, strict=True):
        expected = alone(model, prompt)
        assert tokens[name] == last[name].token_ids == expected
        assert texts[name] == Speller().decode(expected, True, False)


def test_a_stream():
    """A stream has its request's outputs; those of other requests wait for the next step."""
    model, prompts = build(), prompts_of((9, 6))
    engine = engine_of(model)
    other = engine.add_request(prompts[1], max_new_tokens=3)
    stream = engine.stream(prompts[0], max_new_tokens=NEW)
    pieces = [output.new_token_ids for output in stream]
    assert sum(pieces, []) == alone(model, prompts[0]) and len(pieces) == NEW
    assert next(stream, None) is None
    assert engine.has_unfinished_requests(), "nobody has seen the other request's tokens"
    (output,) = engine.step()
    assert output.request_id == other and output.finished
    assert output.new_token_ids == output.token_ids == alone(model, prompts[1], 3)
    assert not engine.has_unfinished_requests() and engine.step() == []


def test_streams_beside_each_other():
    model, prompts = build(), prompts_of((9, 6, 12))
    engine = engine_of(model)
    streams = [engine.stream(prompt, max_new_tokens=NEW) for prompt in prompts]
    found = [[] for _ in streams]
    while any(len(each) < NEW for each in found):
        for stream, tokens in zip(streams, found, strict=True):
            if (output := next(stream, None)) is not None:
                tokens += output.new_token_ids
    assert found == [alone(model, prompt) for prompt in prompts]
    assert engine.step() == [] and engine.cache.pages.free_pages() == PAGES


def test_a_stream_that_is_left():
    """A stream that is closed or dropped aborts its request; one whose request is aborted ends."""
    model, prompts = build(), prompts_of((9, 6))
    engine = engine_of(model)
    stream = engine.stream(prompts[0], max_new_tokens=NEW)
    next(stream)
    stream.close()
    assert list(stream) == [] and not engine.has_unfinished_requests()
    stream = engine.stream(prompts[0], max_new_tokens=NEW)
    del stream
    gc.collect()
    stream = engine.stream(prompts[1], max_new_tokens=NEW)
    next(stream)
    engine.abort_request(stream.request_id)
    assert list(stream) == [] and engine.metrics().aborted == 3
    engine.step()
    assert not engine.has_unfinished_requests() and engine.cache.pages.free_pages() == PAGES
    with pytest.raises(attn.PlanError, match="max_new_tokens"):
        engine.stream(prompts[0], max_new_tokens=0)


def test_generate_keeps_the_outputs_of_others():
    model, prompts = build(), prompts_of((9, 6))
    engine = engine_of(model)
    other = engine.add_request(prompts[1], max_new_tokens=2, request_id="other")
    (output,) = engine.generate(prompts[:1], max_new_tokens=NEW)
    assert output.new_token_ids == output.token_ids == alone(model, prompts[0])
    with pytest.raises(attn.PlanError, match="request_id: expected a string"):
        engine.add_request(prompts[1], max_new_tokens=2, request_id="other")
    (told,) = engine.step()
    assert told.request_id == other and told.token_ids == alone(model, prompts[1], 2)
    assert engine.add_request(prompts[1], max_new_tokens=2, request_id="other") == other


def test_a_text_that_cannot_be_decoded():
    """The step fails, no output is lost, and the token counts once."""

    class Fails(Speller):
        fails = 0

        def decode(self, *given, **options):
            self.fails -= 1
            if not self.fails:
                raise ValueError("no")
            return super().decode(*given, **options)

    model, prompts = build(), prompts_of((9, 6, 12))
    for failing in range(1, 24, 3):
        tokenizer = Fails()
        engine = engine_of(model, tokenizer=tokenizer)
        names = [engine.add_request(prompt, max_new_tokens=NEW) for prompt in prompts]
        tokenizer.fails, failures, told = failing, 0, {name: [] for name in names}
        while engine.has_unfinished_requests():
            try:
                outputs = engine.step()
            except ValueError:
                failures += 1
                continue
            for output in outputs:
                told[output.request_id] += output.new_token_ids
        assert failures == 1
        assert [told[name] for name in names] == [alone(model, prompt) for prompt in prompts]


def test_what_an_engine_counts():
    model, prompts = build(), prompts_of((10, 11, 9))
    engine = engine_of(model, sequences=2, rows=33, prefix_cache=True)
    names = [engine.add_request(prompt, max_new_tokens=NEW) for prompt in prompts]
    before = engine.metrics()
    assert (before.waiting, before.running, before.steps, before.new_tokens) == (3, 0, 0, 0)
    assert (before.pages, before.free_pages, before.kept_pages) == (PAGES, PAGES, 0)
    engine.step()
    engine.step()
    during = engine.metrics()
    assert (during.waiting, during.running, during.steps, during.new_tokens) == (1, 2, 2, 2)
    assert during.free_pages < PAGES and during.prompt_tokens == 21
    engine.abort_request(names[2])
    while engine.has_unfinished_requests():
        engine.step()
    after = engine.metrics()
    assert (after.waiting, after.running, after.finished, after.aborted) == (0, 0, 2, 1)
    assert after.new_tokens == 2 * NEW and after.rows == 21 + 2 * (NEW - 1)
    assert after.steps == NEW and after.free_pages + after.kept_pages == PAGES
    engine.generate(prompts[:1], max_new_tokens=2)
    assert engine.metrics().cached_tokens == 8 and engine.metrics().prompt_tokens == 31
    small = engine_of(model, pages=9, rows=33)
    small.generate(prompts, max_new_tokens=12)
    assert small.metrics().sent_back == small.sent_back > 0
    assert small.metrics().rows > 30 + 3 * 11, "tokens that were read again count again"


def test_times_of_a_request():
    """In the order of events, on one clock; a request that waits for another one is admitted behind it."""
    model, prompts = build(), prompts_of((10, 11))
    engine = engine_of(model, sequences=1)
    first, second = engine.generate(prompts, max_new_tokens=3)
    for output in (first, second):
        times = output.times
        assert times.arrival <= times.admitted <= times.first_token <= times.finished
    assert second.times.admitted > first.times.first_token
    stream = engine.stream(prompts[0], max_new_tokens=3)
    output = next(stream)
    assert output.times.finished is None and output.times.first_token is not None
    assert next(stream).times.first_token == output.times.first_token
