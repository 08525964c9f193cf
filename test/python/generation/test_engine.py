# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Requests that come and go, in recorded steps that run one by one on the CPU: each gets the tokens of model.generate,
whichever requests share its steps, and its pages are freed at once; and refusals by name."""

import gc

import pytest
from decoding import Work, attn, build, paged, reference, torch, transformers

PAGES = 40
LENGTHS = (21, 5, 1, 12)
NEW = 7


def engine_of(model, pages=PAGES, **options):
    options = {"cache": paged(model, pages), "sequences": 3, "tokens": 60, "rows": 8} | options
    return attn.transformers.Engine(model, **options)


def prompts_of(lengths=LENGTHS, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, 90, (count,), generator=generator) for count in lengths]


def alone(model, prompt, new=NEW, **options):
    """Return the tokens that generate makes from a prompt."""
    inputs = {"input_ids": prompt[None], "attention_mask": torch.ones_like(prompt)[None]}
    return reference(model, inputs, new, **options)[0, len(prompt) :].tolist()


# --- Tokens --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Llama", "Mistral", "Gemma2", "GptOss"])
def test_tokens_of_generate(name):
    """Prompts longer than a step are read beside others that decode; with windows, soft caps and sinks."""
    model, prompts = build(name), prompts_of()
    engine = engine_of(model)
    found = engine.generate(prompts, max_new_tokens=NEW)
    assert [each.token_ids for each in found] == [alone(model, prompt) for prompt in prompts]
    assert [each.prompt_token_ids for each in found] == [prompt.tolist() for prompt in prompts]
    assert all(each.finished and each.finish_reason == "length" for each in found)
    assert engine.cache.pages.free_pages() == PAGES and not engine.has_unfinished_requests()


def test_pages_of_codes():
    model, prompts = build(), prompts_of((21, 5))
    formats = {"key": "int8", "value": "int4"}
    found = engine_of(model, cache=paged(model, **formats), rows=32).generate(prompts, max_new_tokens=NEW)
    for prompt, each in zip(prompts, found, strict=True):
        cache = paged(model, **formats)
        assert each.token_ids == alone(model, prompt, past_key_values=cache)


def test_requests_that_come_and_go():
    """An output has one token more than the last output of its request; pages of ended requests are freed and reused."""
    model, prompts = build(), prompts_of((7, 9, 6, 8, 10, 5))
    engine = engine_of(model, pages=11, sequences=2, rows=6)
    seen, ended = {}, {}
    for number, prompt in enumerate(prompts[:2]):
        assert engine.add_request(prompt.tolist(), max_new_tokens=4 + number, request_id=f"r{number}")
    later = list(enumerate(prompts))[2:]
    steps = 0
    while engine.has_unfinished_requests() or later:
        if later and steps % 3 == 2:
            number, prompt = later.pop(0)
            engine.add_request(prompt, max_new_tokens=4 + number, request_id=f"r{number}")
        for output in engine.step():
            assert output.token_ids[:-1] == seen.get(output.request_id, []) and output.request_id not in ended
            seen[output.request_id] = output.token_ids
            if output.finished:
                ended[output.request_id] = steps
        steps += 1
        assert steps < 60
    assert seen == {f"r{n}": alone(model, prompt, 4 + n) for n, prompt in enumerate(prompts)}
    assert len(set(ended.values())) > 3 and engine.cache.pages.free_pages() == 11


def test_requests_end():
    """A request ends at one of its end tokens: steps that the host has queued beyond it are dropped, and its pages are
    free at once."""
    model, prompts = build("Qwen3"), prompts_of((11, 6, 9))
    engine = engine_of(model)
    free = [alone(model, prompt) for prompt in prompts]
    ends = [free[0][3], free[1][0], free[2][5]]
    names = [
        engine.add_request(prompt, max_new_tokens=NEW, eos_token_id=end)
        for prompt, end in zip(prompts, ends, strict=True)
    ]
    found = {}
    while engine.has_unfinished_requests():
        found |= {each.request_id: each for each in engine.step()}
        held = {request.node for request in engine._scheduler.running}
        assert set(engine.cache.pages.sequences) == held
    for name, tokens, end in zip(names, free, ends, strict=True):
        assert found[name].token_ids == tokens[: tokens.index(end) + 1]
        assert found[name].finish_reason == "stop"
    model.generation_config.eos_token_id = ends
    (output,) = engine.generate(prompts[:1], max_new_tokens=NEW)
    assert output.finish_reason == "stop" and output.token_ids[-1] in ends
    (output,) = engine.generate(prompts[:1], max_new_tokens=NEW, eos_token_id=())
    assert output.token_ids == free[0]


def test_pages_run_out():
    """The youngest request is sent back and read again later, with its generated tokens; all get their tokens."""
    model, prompts = build(), prompts_of((10, 11, 9))
    engine = engine_of(model, pages=9, rows=33)
    found = engine.generate(prompts, max_new_tokens=12)
    assert engine.sent_back > 0
    assert [each.token_ids for each in found] == [alone(model, prompt, 12) for prompt in prompts]
    assert engine.cache.pages.free_pages() == 9


@pytest.mark.parametrize("after", [0, 1, 2, 5])
def test_aborted_requests(after):
    """A request is aborted while it waits, while it is read, or while it decodes."""
    model, prompts = build(), prompts_of((14, 5))
    engine = engine_of(model)
    gone = engine.add_request(prompts[0], max_new_tokens=NEW)
    other = engine.add_request(prompts[1], max_new_tokens=NEW)
    for _ in range(after):
        engine.step()
    engine.abort_request(gone)
    found = {}
    while engine.has_unfinished_requests():
        outputs = engine.step()
        assert gone not in {each.request_id for each in outputs}
        found |= {each.request_id: each for each in outputs}
    assert found[other].token_ids == alone(model, prompts[1]) and engine.cache.pages.free_pages() == PAGES
    with pytest.raises(attn.PlanError, match="request_id: expected one of an unfinished request"):
        engine.abort_request(gone)


def test_drawn_tokens():
    """Tokens are drawn by PyTorch's generator: the same with the same seed, others with another seed, and the likeliest
    where options leave only that one."""
    model, prompts = build(), prompts_of((6, 6))
    drawn = engine_of(model, do_sample=True, temperature=3.0)
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append([each.token_ids for each in drawn.generate(prompts, max_new_tokens=NEW)])
    assert found[0] == found[1] != found[2]
    (output,) = engine_of(model, do_sample=True, top_k=1).generate(prompts[:1], max_new_tokens=NEW)
    assert output.token_ids == alone(model, prompts[0])


def test_compiled_steps():
    """Both kinds of steps are compiled once each."""
    torch.compiler.reset()
    model, prompts = build("Gemma2"), prompts_of()
    engine = engine_of(model, compile={"backend": "aot_eager", "fullgraph": True})
    assert [each.token_ids for each in engine.generate(prompts, max_new_tokens=NEW)] == [
        alone(model, prompt) for prompt in prompts
    ]
    others = prompts_of((9, 2), seed=5)
    with torch.compiler.set_stance("fail_on_recompile"):
        found = engine.generate(others, max_new_tokens=NEW)
    assert [each.token_ids for each in found] == [alone(model, prompt) for prompt in others]


# --- Steps ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Llama", "Gemma2"])
def test_steps_are_the_same_work_and_wait_for_nothing(name, monkeypatch):
    """Steps of each kind meet the needs of a graph in PyTorch and on the device, for any requests: the same operations
    and no waits."""
    model, device, seen = build(name), attn.memory.devices.get_device("host"), {}
    engine = engine_of(model, rows=9)

    def watched(steps):
        run = steps._next

        def next_step():
            device.work(reset=True)
            with Work() as work:
                run()
            seen.setdefault(steps.rows, []).append((work, device.work()))

        steps._next = next_step

    for steps in engine._steps:
        watched(steps)
    for seed in range(2):
        engine.generate(prompts_of(seed=seed), max_new_tokens=NEW)
    assert sorted(seen) == [3, 9]
    for found in seen.values():
        found = found[1:]  # the first step makes all buffers
        assert len(found) > 6 and not [work.waits for work, _ in found if work.waits]
        assert len(found[0][0].names) > 20 and all(work.names == found[0][0].names for work, _ in found)
        assert all(each["copies"] == each["allocations"] == 0 for _, each in found)
        assert all(each["launches"] == found[0][1]["launches"] for _, each in found)


def test_results_are_read_a_step_later():
    """A step is launched before the host waits for the step before it."""
    model, told = build(), []
    engine = engine_of(model)
    engine.add_request(prompts_of((4,))[0], max_new_tokens=3)
    launch, read = engine._launch, engine._read
    engine._launch = lambda: (told.append("launch"), launch())[1]
    engine._read = lambda before: (told.append("read" if before else "nothing"), read(before))[1]
    counts = []
    while engine.has_unfinished_requests():
        counts.append(len(engine.step()))
    assert counts == [0, 1, 1, 1] and told[:4] == ["launch", "nothing", "launch", "read"]


def test_a_step_that_fails_leaves_nothing(monkeypatch):
    """Requests of a failed step are read again, and get the same tokens."""
    model, prompts = build(), prompts_of()
    engine = engine_of(model)
    names = [engine.add_request(prompt, max_new_tokens=NEW) for prompt in prompts]
    found = {}
    for failing in (0, 3, 6, 7):
        for _ in range(failing):
            found |= {each.request_id: each for each in engine.step()}
        with monkeypatch.context() as patch:
            for steps in engine._steps:
                patch.setattr(steps, "_forward", lambda **inputs: pytest.fail("no"))
            with pytest.raises(pytest.fail.Exception):
                engine.step()
        assert engine.cache.pages.free_pages() == PAGES
    while engine.has_unfinished_requests():
        found |= {each.request_id: each for each in engine.step()}
    assert [found[name].token_ids for name in names] == [alone(model, prompt) for prompt in prompts]


def test_beside_a_decoder():
    """An engine and a decoder share a pool, and neither touches the other's pages."""
    model, prompts = build(), prompts_of((9, 6))
    cache = paged(model, 12)
    decoder = attn.transformers.Decoder(model, sequences=1, tokens=20, cache=cache)
    turn = decoder.generate(prompts[0][None], max_new_tokens=4)
    engine = engine_of(model, cache=cache)
    assert engine.generate(prompts[1:], max_new_tokens=NEW)[0].token_ids == alone(model, prompts[1])
    again = decoder.generate(turn, max_new_tokens=4, held=decoder.length)
    assert again[0, 9:].tolist() == alone(model, prompts[0], 8)
    engine.add_request(prompts_of((30,), seed=1)[0], max_new_tokens=19)  # it would fit alone
    with pytest.raises(
        attn.OutOfPages, match="request '1' needs 1 more, 0 are free, and no other request has any"
    ):
        while engine.has_unfinished_requests():
            engine.step()
    assert engine.has_unfinished_requests() and cache.pages.free_pages() == 8
    cache.reset()
    while engine.has_unfinished_requests():
        (*_, last) = (None, *engine.step())
    assert last.token_ids == alone(model, prompts_of((30,), seed=1)[0], 19)


def test_engines_that_are_gone_keep_no_pages():
    model = build()
    engine = engine_of(model)
    engine.add_request([5] * 20, max_new_tokens=4)
    engine.step()
    pages = engine.cache.pages
    assert pages.free_pages() < PAGES
    del engine
    gc.collect()
    assert pages.free_pages() == PAGES


# --- Refusals ------------------------------------------------------------------------------------------------


def test_requests_that_do_not_fit():
    """A request that does not fit a sequence or the pool is refused, and a refused call adds none of its requests."""
    engine = engine_of(build(), pages=10)
    for given, options, told in (
        ([5] * 61, {"max_new_tokens": 1}, "input_ids: expected at most 60 tokens"),
        (
            [5] * 30,
            {"max_new_tokens": 12},
            "max_new_tokens: expected 1 to 11 after 30 tokens, in a pool of 10 pages",
        ),
        ([95, 96, 97], {"max_new_tokens": 1}, r"input_ids\[2\]: expected a token, 0 to 96"),
        ([5], {"max_new_tokens": 1, "eos_token_id": 97}, "eos_token_id: expected tokens, 0 to 96"),
        ([5], {"max_new_tokens": 1, "request_id": 3}, "request_id: expected a string"),
    ):
        with pytest.raises((attn.PlanError, attn.TensorError), match=told):
            engine.add_request(given, **options)
    with pytest.raises(attn.OutOfPages, match="max_new_tokens: expected 1 to 1"):
        engine.generate([[5], [5] * 40], max_new_tokens=2)
    assert not engine.has_unfinished_requests() and engine.step() == []
    name = engine.add_request([5], max_new_tokens=1, request_id="0")
    assert engine.add_request([5], max_new_tokens=1) == "1"
    with pytest.raises(attn.PlanError, match="request_id: expected a string that no unfinished request has"):
        engine.add_request([5], max_new_tokens=1, request_id=name)


def test_engines():
    model = build()
    for options, told in (
        ({"rows": 2}, "rows: expected 3 or more, a row for each sequence, got 2; nearest legal: 3"),
        ({"sequences": 0}, "sequences: expected"),
        ({"tokens": 1}, "tokens: expected"),
        ({"cache": transformers.DynamicCache()}, "cache: expected an attn.transformers.PagedCache"),
        ({"temperature": 0.0}, "temperature: expected more than 0"),
        ({"compile": {"mode": "reduce-overhead"}}, "compile"),
    ):
        with pytest.raises(attn.PlanError, match=told):
            engine_of(model, **options)
    with pytest.raises(
        attn.PlanError, match="attn_implementation: expected attn or attn_row, over a cache in pages"
    ):
        engine_of(build(implementation="sdpa"))
    model.generation_config.repetition_penalty = 1.1
    with pytest.raises(attn.PlanError, match="model.generation_config: repetition_penalty=1.1"):
        engine_of(model)


def test_layers_that_the_host_plans():
    model = build()
    gates = attn.heads.Gates([[0.9, 0.1], [0.0, 0.2]], sink=4, recent=16)
    attn.transformers.apply_head_gates(model, gates.select(threshold=0.5))
    with pytest.raises(attn.PlanError, match="layers of LlamaForCausalLM are not planned on the device"):
        engine_of(model)
