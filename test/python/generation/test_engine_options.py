# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Requests of an engine with their own options: how tokens are drawn, what ends an answer, and log-probabilities. Each
token is compared with what the model's own logits give, whichever requests share the steps."""

import os

import pytest
from attn.generation.sampling import Sampling, draw
from attn.generation.token_choices import Kind
from decoding import Work, attn, build, paged, torch
from spelling import Speller
from test_engine import NEW, PAGES, alone, engine_of, prompts_of

DRAWN = {"do_sample": True, "temperature": 2.0, "seed": 11}


def logits_of(model, output):
    """Return the model's own logits for each token of an answer, over no pages."""
    whole = torch.tensor([output.prompt_token_ids + output.token_ids[:-1]])
    with torch.no_grad():
        logits = model(whole, attention_mask=torch.ones_like(whole)).logits[0]
    return logits[len(output.prompt_token_ids) - 1 :]


def is_drawn(model, output, **options):
    """Whether the tokens of an answer are those that its seed draws from the model's own logits."""
    sampling = Sampling(options.pop("do_sample"), **options)
    count = len(output.token_ids)
    numbers = torch.tensor([sampling.numbers(index) for index in range(count)]).T
    weights = torch.tensor([sampling.weights()] * count, dtype=torch.float64).T
    return output.token_ids == draw(logits_of(model, output), numbers, weights, True).tolist()


def run(engine, requests):
    """Serve (prompt, options) together. Return the last output of each."""
    names = [engine.add_request(prompt, **options) for prompt, options in requests]
    found = {}
    while engine.has_unfinished_requests():
        found |= {output.request_id: output for output in engine.step()}
    return [found[name] for name in names]


def kinds(engine):
    return set(engine._choices.recorded)


# --- Draws ---------------------------------------------------------------------------------------------------


def test_each_request_draws_in_its_own_way():
    """The likeliest tokens beside drawn ones; each request gets the tokens of its seed."""
    model, prompts = build(), prompts_of((21, 5, 1, 12, 8))
    options = [
        {},
        {"do_sample": True, "seed": 5},
        {"do_sample": True, "temperature": 3.0, "top_k": 9, "seed": 6},
        {"do_sample": True, "temperature": 2.0, "top_p": 0.8, "seed": 2**64 - 1},
        {"do_sample": True, "temperature": 4.0, "min_p": 0.05, "seed": 0},
    ]
    engine = engine_of(model)
    found = run(
        engine,
        [(prompt, {"max_new_tokens": 12} | each) for prompt, each in zip(prompts, options, strict=True)],
    )
    assert found[0].token_ids == alone(model, prompts[0], 12)
    for prompt, output, each in zip(prompts[1:], found[1:], options[1:], strict=True):
        assert is_drawn(model, output, **each) and output.token_ids != alone(model, prompt, 12)
    assert kinds(engine) >= {Kind(True, True), Kind(True, False)}


def test_a_seed_gives_the_same_tokens_in_any_batch():
    """Alone, beside others, behind kept pages, and in a pool so small that requests are sent back."""
    model, prompts = build(), prompts_of((10, 11, 9))
    options = {"max_new_tokens": 12, **DRAWN}
    (first,) = engine_of(model).generate(prompts[:1], **options)
    assert is_drawn(model, first, **DRAWN)
    small = engine_of(model, pages=9, rows=33)
    found = run(small, [(prompt, options) for prompt in (prompts[1], prompts[2], prompts[0])])
    assert small.sent_back > 0 and found[2].token_ids == first.token_ids
    assert all(is_drawn(model, output, **DRAWN) for output in found)
    kept = engine_of(model, prefix_cache=True)
    for cached in (0, 8):
        (again,) = kept.generate(prompts[:1], **options)
        assert again.token_ids == first.token_ids and again.cached_tokens == cached
    (other,) = kept.generate(prompts[:1], **(options | {"seed": 12}))
    assert other.token_ids != first.token_ids


def test_the_engines_choice_holds_for_requests_that_say_nothing():
    model, prompts = build(), prompts_of((6, 6))
    engine = engine_of(model, do_sample=True, temperature=3.0, top_k=20, min_p=0.01)
    default, own, likeliest = run(
        engine,
        [
            (prompts[0], {"max_new_tokens": NEW, "seed": 4}),
            (prompts[0], {"max_new_tokens": NEW, "seed": 4, "temperature": 2.0, "top_k": 0, "min_p": 0.0}),
            (prompts[1], {"max_new_tokens": NEW, "do_sample": False}),
        ],
    )
    assert is_drawn(model, default, do_sample=True, temperature=3.0, top_k=20, min_p=0.01, seed=4)
    assert is_drawn(model, own, do_sample=True, temperature=2.0, seed=4)
    assert likeliest.token_ids == alone(model, prompts[1])


def test_steps_of_the_likeliest_tokens_sort_nothing(monkeypatch):
    """Kinds of steps, by their requests, and the operations that they pay for."""
    model, prompts = build(), prompts_of((4, 4))
    engine, seen = engine_of(model), {}
    choose = engine._choices._choose

    def watched(kind):
        with Work() as work:
            choose(kind)
        seen.setdefault(kind, []).append(work)

    monkeypatch.setattr(engine._choices, "_choose", watched)
    for options in (
        {},
        {"do_sample": True},
        {"do_sample": True, "top_k": 5},
        {"logprobs": 3},
        {"do_sample": True, "top_p": 0.5, "logprobs": 0},
        {"min_new_tokens": 2, "eos_token_id": 5},
    ):
        engine.generate(prompts, max_new_tokens=NEW, **options)
    assert set(seen) == {
        Kind(),
        Kind(True),
        Kind(True, True),
        Kind(logprobs=True),
        Kind(True, True, True),
    }
    for kind, works in seen.items():
        assert not [work.waits for work in works if work.waits]
        assert len(works) > 2 and all(work.names == works[0].names for work in works)
        assert kind.sorts == any("sort" in name for name in works[0].names)
        assert kind.logprobs == any("topk" in name for name in works[0].names)
        assert kind.own == ("scatter" in works[0].names)
    assert len(seen[Kind()][0].names) < 6


def test_steps_that_fail_draw_the_same_again(monkeypatch):
    model, prompts = build(), prompts_of()
    engine = engine_of(model, tokenizer=Speller())
    options = {"max_new_tokens": NEW, "logprobs": 2, **DRAWN}
    expected = engine.generate(prompts, **options)
    names = [engine.add_request(prompt, **options) for prompt in prompts]
    found, pieces = {}, dict.fromkeys(names, "")

    def step():
        for output in engine.step():
            found[output.request_id] = output
            pieces[output.request_id] += output.new_text

    for failing in (0, 3, 6, 7):
        for _ in range(failing):
            step()
        with monkeypatch.context() as patch:
            patch.setattr(engine._choices, "run", lambda kind: pytest.fail("no"))
            with pytest.raises(pytest.fail.Exception):
                engine.step()
        assert engine.cache.pages.free_pages() == PAGES
    while engine.has_unfinished_requests():
        step()
    for name, output in zip(names, expected, strict=True):
        assert found[name].token_ids == output.token_ids and is_drawn(model, found[name], **DRAWN)
        assert pieces[name] == found[name].text == output.text
        assert [list(each) for each in found[name].logprobs] == [list(each) for each in output.logprobs]


# --- Ends of answers -----------------------------------------------------------------------------------------


def test_tokens_that_end_an_answer():
    """Tokens of stop_token_ids end an answer beside those of eos_token_id, and are named."""
    model, prompts = build("Qwen3"), prompts_of((11,))
    engine = engine_of(model, tokenizer=Speller())
    free = alone(model, prompts[0], 12)
    ends = {"eos_token_id": free[5], "stop_token_ids": [free[3], free[5]]}
    options = {"max_new_tokens": 12}
    (output,) = engine.generate(prompts, **options, stop_token_ids=free[3])
    last = free.index(free[3])
    assert output.token_ids == free[: last + 1]
    assert (output.finish_reason, output.stop_reason) == ("stop", free[3])
    assert output.text == Speller().decode(free[:last], True, False), "without the token that ended it"
    (output,) = engine.generate(prompts, **options, stop_token_ids=free[3], include_stop_str_in_output=True)
    assert output.text == Speller().decode(free[: last + 1], True, False)
    (output,) = engine.generate(prompts, **options, **ends)
    named = output.token_ids[-1] != free[5]
    assert output.stop_reason == (free[3] if named else None)


def test_no_answer_ends_before_its_least():
    """Until then other tokens are chosen in place of those that end it; requests beside it keep theirs."""
    model, prompts = build("Qwen3"), prompts_of((11, 6))
    free = [alone(model, prompt, 12) for prompt in prompts]
    ends = {free[0][0], free[0][4], free[1][2]}
    engine = engine_of(model)
    late, early = run(
        engine,
        [
            (prompts[0], {"max_new_tokens": 12, "min_new_tokens": 6, "eos_token_id": ends}),
            (prompts[1], {"max_new_tokens": 12, "eos_token_id": ends}),
        ],
    )
    first = next(place for place, token in enumerate(free[1]) if token in ends)
    assert early.token_ids == free[1][: first + 1]
    logits = logits_of(model, late)
    logits[:6, list(ends)] = -torch.inf
    assert late.token_ids == logits.argmax(1).tolist() and not ends & set(late.token_ids[:6])
    drawn = {"do_sample": True, "top_k": len(ends) + 1, "seed": 3}
    (output,) = engine.generate(
        prompts[:1], max_new_tokens=8, min_new_tokens=8, stop_token_ids=ends, eos_token_id=(), **drawn
    )
    assert len(output.token_ids) == 8 and not ends & set(output.token_ids)


def text_of(model, prompt, new):
    return Speller().decode(alone(model, prompt, new), True, False)


@pytest.mark.parametrize("include", [False, True])
def test_stop_strings(include):
    """A string that begins in the middle of a token ends the answer; its tokens stay, its text goes."""
    model, prompts = build(), prompts_of((9, 12))
    engine = engine_of(model, tokenizer=Speller(), pages=20, rows=33)
    free = [alone(model, prompt, 20) for prompt in prompts]
    texts = [text_of(model, prompt, 20) for prompt in prompts]
    stop = texts[0][5:8]
    place = texts[0].index(stop)
    options = {"max_new_tokens": 20, "stop": [stop, "never"], "include_stop_str_in_output": include}
    found = run(engine, [(prompts[0], options), (prompts[1], {"max_new_tokens": 20})])
    assert found[0].text == texts[0][: place + (len(stop) if include else 0)]
    assert (found[0].finish_reason, found[0].stop_reason) == ("stop", stop)
    assert found[0].token_ids == free[0][: len(found[0].token_ids)]
    count = len(found[0].token_ids)
    assert stop in Speller().decode(free[0][:count], True, False)
    assert stop not in Speller().decode(free[0][: count - 1], True, False)
    assert found[1].token_ids == free[1] and found[1].text == texts[1]
    assert engine.cache.pages.free_pages() == 20
    late = options | {"min_new_tokens": count + 1, "eos_token_id": ()}
    (output,) = engine.generate(prompts[:1], **late)
    assert output.text == texts[0] and output.finish_reason == "length"


def test_stop_strings_of_requests_that_are_sent_back():
    """Draws, kept prefixes, small pools, an abort and stop strings together: tokens are those of each request alone."""
    model, prompts = build(), prompts_of((10, 11, 9, 10))
    prompts[3] = prompts[0]
    options = [{"do_sample": True, "temperature": 2.0, "seed": seed} for seed in range(3)]
    options.append(options[0])
    free = [
        engine_of(model, tokenizer=Speller()).generate([prompt], max_new_tokens=14, **each)[0]
        for prompt, each in zip(prompts, options, strict=True)
    ]
    stops = [output.text[6:8] for output in free]
    engine = engine_of(model, pages=9, rows=33, tokenizer=Speller(), prefix_cache=True)
    names = [
        engine.add_request(prompt, max_new_tokens=14, stop=stop, **each)
        for prompt, stop, each in zip(prompts, stops, options, strict=True)
    ]
    gone = engine.add_request(prompts[1], max_new_tokens=14)
    found, pieces, steps = {}, {}, 0
    while engine.has_unfinished_requests():
        for output in engine.step():
            found[output.request_id] = output
            pieces[output.request_id] = pieces.get(output.request_id, "") + output.new_text
        steps += 1
        if steps == 9:
            engine.abort_request(gone)
    assert engine.sent_back > 0 and gone not in names
    for name, stop, whole in zip(names, stops, free, strict=True):
        output = found[name]
        assert output.text == whole.text[: whole.text.index(stop)] == pieces[name]
        assert output.token_ids == whole.token_ids[: len(output.token_ids)]
        assert output.stop_reason == stop
    engine.reset_prefix_cache()
    assert engine.cache.pages.free_pages() == 9


# --- Log-probabilities ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 5])
def test_log_probabilities(count):
    """Those of the model's own logits, whatever the temperature; of the chosen token, and of the likeliest in order."""
    model, prompts = build(dtype=torch.float16), prompts_of((12, 5, 7))
    engine = engine_of(model, max_logprobs=5)
    drawn, likeliest, none = run(
        engine,
        [
            (prompts[0], {"max_new_tokens": NEW, "logprobs": count, "top_k": 30, **DRAWN}),
            (prompts[1], {"max_new_tokens": NEW, "logprobs": count}),
            (prompts[2], {"max_new_tokens": NEW}),
        ],
    )
    assert none.logprobs is None and none.token_ids == alone(model, prompts[2])
    assert likeliest.token_ids == alone(model, prompts[1])
    beyond = 0
    for output in (drawn, likeliest):
        expected = logits_of(model, output).float().log_softmax(1)
        assert len(output.logprobs) == NEW
        for found, wanted, token in zip(output.logprobs, expected, output.token_ids, strict=True):
            best = list(found)[:count]
            values = torch.tensor([found[each] for each in best])
            torch.testing.assert_close(values, wanted.topk(count).values, atol=0.02, rtol=0)
            assert all(abs(found[each] - float(wanted[each])) < 0.02 for each in (*best, token))
            assert set(found) == {*best, token} and list(found)[count:] == [token] * (token not in best)
            beyond += token not in best
    assert beyond > 0, "a token was drawn that is not among the likeliest"


def test_log_probabilities_of_requests_that_are_sent_back():
    """One for each token, found once."""
    model, prompts = build(dtype=torch.float16), prompts_of((10, 11, 9))
    engine = engine_of(model, pages=9, rows=33)
    found = engine.generate(prompts, max_new_tokens=12, logprobs=2)
    assert engine.sent_back > 0
    for output in found:
        expected = logits_of(model, output).float().log_softmax(1)
        for each, wanted, token in zip(output.logprobs, expected, output.token_ids, strict=True):
            assert abs(each[token] - float(wanted[token])) < 0.02 and len(each) == 2


# --- Refusals ------------------------------------------------------------------------------------------------


def test_options_that_are_refused():
    model = build()
    engine = engine_of(model, max_logprobs=4)
    for options, told in (
        ({"temperature": 0.0}, "temperature: expected more than 0"),
        ({"top_k": -1}, "top_k: expected 0"),
        ({"top_p": 0.0}, "top_p: expected more than 0"),
        ({"min_p": 2.0}, "min_p: expected 0"),
        ({"seed": -1}, "seed: expected a whole number"),
        (
            {"min_new_tokens": 5},
            "min_new_tokens: expected 0 to 4, the most new tokens, got 5; nearest legal: 4",
        ),
        (
            {"min_new_tokens": 1, "stop_token_ids": range(17)},
            "eos_token_id and stop_token_ids: expected at most 16 tokens .* got 17; nearest legal: 16",
        ),
        ({"stop_token_ids": 97}, "stop_token_ids: expected tokens, 0 to 96, got 97"),
        ({"stop": "a"}, r"tokenizer: expected a tokenizer, which stop strings need, got None"),
        ({"logprobs": 5}, r"logprobs: expected None, or 0 to 4 .*max_logprobs=4\), got 5; nearest legal: 4"),
        ({"logprobs": True}, "logprobs: expected None, or 0 to 4"),
        ({"do_sample": 1}, "do_sample: expected True or False, got 1"),
        ({"repetition_penalty": 1.1}, "repetition_penalty=1.1: recorded steps choose .*take model.generate"),
        (
            {"stop_strings": ["a"]},
            "add_request: expected one of .* got 'stop_strings'; nearest legal: 'stop'",
        ),
        ({"top_q": 0.5}, "add_request: expected one of .* got 'top_q'; nearest legal: 'top_k' or 'top_p'"),
    ):
        with pytest.raises(attn.PlanError, match=told):
            engine.add_request([5], max_new_tokens=4, **options)
    assert not engine.has_unfinished_requests() and engine.metrics().waiting == 0
    engine.abort_request(engine.add_request([5], max_new_tokens=4, num_beams=1, repetition_penalty=None))
    with pytest.raises(attn.PlanError, match="max_logprobs: expected"):
        engine_of(model, max_logprobs=-1)
    with pytest.raises(attn.PlanError, match="tokenizer: expected a tokenizer of Transformers"):
        engine_of(model, tokenizer="gpt2")
    model.generation_config.min_p = 0.1
    with pytest.raises(attn.PlanError, match="model.generation_config: min_p=0.1"):
        engine.add_request([5], max_new_tokens=4, do_sample=True)
    engine.add_request([5], max_new_tokens=4, do_sample=True, min_p=0.1)


# --- Formats -------------------------------------------------------------------------------------------------

FULL = bool(os.environ.get("ATTN_FULL"))
FORMATS = [
    {"key": "int8", "value": "int8"},
    {"key": "int8", "value": "int4"},
    {"key": "int4", "value": "int2", "head_dim": 64},
    {"key": "fp8_e4m3", "value": "fp8_e4m3"},
    {"key": "fp8_e5m2", "value": "fp8_e4m3"},
    {"key": "mxfp8", "value": "mxfp4"},
    {"key": "nvfp4", "value": "nvfp4"},
    {"value": "int8"},
    {"key": "int8", "key_group": 16},
]


@pytest.mark.parametrize(
    "formats", FORMATS if FULL else FORMATS[1::3], ids=lambda each: "-".join(map(str, each.values()))
)
def test_formats_of_pages(formats):
    """Tokens are those of `generate` over the same formats, also behind kept pages."""
    formats = dict(formats)
    model, prompts = build(head_dim=formats.pop("head_dim", 32)), prompts_of((21, 6))
    engine = engine_of(model, cache=paged(model, PAGES, **formats), rows=32, prefix_cache=True)
    for cached in (0, 20):
        found = engine.generate(prompts, max_new_tokens=NEW)
        assert found[0].cached_tokens == cached
        for prompt, output in zip(prompts, found, strict=True):
            assert output.token_ids == alone(model, prompt, past_key_values=paged(model, **formats))


def test_caches_that_compress_themselves():
    model = build()
    policy = attn.kv_policy.DiffKV(alpha_high=0.1, alpha_low=0.05)
    cache = attn.transformers.DiffKVCache(model.config, policy, pages=64)
    with pytest.raises(
        attn.PlanError, match="cache: attn.transformers.DiffKVCache keeps other tokens of each KV"
    ):
        engine_of(model, cache=cache)
