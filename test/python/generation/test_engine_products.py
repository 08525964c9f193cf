# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random requests with all options together, over small pools, kept pages, failures and aborts. Each request gets the
tokens and the text that it gets alone."""

import os
import random

import pytest
from decoding import attn, build, torch
from spelling import Speller
from test_engine import engine_of


def random_request(chance, prompts):
    """Return a prompt and options."""
    options = {"max_new_tokens": chance.randrange(1, 12)}
    if chance.random() < 0.6:
        options |= {
            "do_sample": True,
            "seed": chance.randrange(2**64),
            "temperature": chance.choice([1.0, 2.5]),
        }
        if chance.random() < 0.5:
            options |= chance.choice([{"top_k": 12}, {"top_p": 0.8}, {"min_p": 0.02}])
    if chance.random() < 0.5:
        options["logprobs"] = chance.randrange(3)
    if chance.random() < 0.5:
        options["stop"] = [chance.choice("abcdefgh"), "zz"]
    if chance.random() < 0.5:
        options["stop_token_ids"] = chance.sample(range(3, 97), 12)
    if chance.random() < 0.3:
        options["min_new_tokens"] = chance.randrange(options["max_new_tokens"] + 1)
    return chance.choice(prompts), options


@pytest.mark.parametrize("seed", range(3) if os.environ.get("ATTN_FULL") else [1])
def test_random_requests(seed, monkeypatch):
    chance = random.Random(seed)
    model = build(["Llama", "Qwen3", "Gemma2"][seed], dtype=torch.float16)
    head = [chance.randrange(3, 90) for _ in range(9)]
    prompts = [head[: chance.randrange(1, 10)] + [chance.randrange(3, 90)] for _ in range(6)]
    asked = [random_request(chance, prompts) for _ in range(14)]
    one = engine_of(model, tokenizer=Speller(), rows=16)
    alone = [one.generate([prompt], **options)[0] for prompt, options in asked]
    assert len({output.finish_reason for output in alone}) == 2

    engine = engine_of(model, pages=8, rows=16, tokenizer=Speller(), prefix_cache=seed != 1)
    names, gone, told, last, failures = {}, set(), {}, {}, 0
    left = list(range(len(asked)))
    while left or engine.has_unfinished_requests():
        if left and chance.random() < 0.5:
            number = left.pop(0)
            names[engine.add_request(asked[number][0], **asked[number][1])] = number
        if names and chance.random() < 0.03:
            name = chance.choice([*names])
            if name not in last or not last[name].finished:
                gone.add(name)
                if name in engine._unfinished:
                    engine.abort_request(name)
        with monkeypatch.context() as patch:
            failing = chance.random() < 0.06
            if failing:
                patch.setattr(engine._choices, "run", lambda kind: pytest.fail("no"))
            try:
                outputs = engine.step()
            except pytest.fail.Exception:
                failures += 1
                continue
        for output in outputs:
            tokens, text = told.get(output.request_id, ([], ""))
            told[output.request_id] = tokens + output.new_token_ids, text + output.new_text
            assert told[output.request_id] == (output.token_ids, output.text)
            last[output.request_id] = output
    assert failures and (engine.sent_back > 0 or engine.metrics().cached_tokens > 0)
    compared = 0
    for name, number in names.items():
        if name in gone:
            continue
        found, wanted = last[name], alone[number]
        for part in ("token_ids", "text", "finish_reason", "stop_reason"):
            assert getattr(found, part) == getattr(wanted, part), asked[number]
        assert (found.logprobs is None) == (wanted.logprobs is None)
        for one, other in zip(found.logprobs or [], wanted.logprobs or [], strict=True):
            assert one.keys() == other.keys() and all(abs(one[key] - other[key]) < 0.05 for key in one)
        compared += 1
    counts = engine.metrics()
    assert compared > 8 and counts.finished + counts.aborted == len(asked)
    assert counts.finished >= compared and counts.running == counts.waiting == 0
    engine.reset_prefix_cache()
    assert engine.cache.pages.free_pages() == 8 and attn.__version__
