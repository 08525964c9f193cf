# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Requests that come and go on a GPU, by two graphs: the likeliest tokens, to the bit those of the same steps without
graphs. The host waits for results of the step before, and for nothing else."""

import pytest
from decoding_gpu import attn, build, chosen_rightly, paged, torch

PAGES, LENGTHS, NEW = 200, (150, 39, 7, 301, 1, 64, 200, 33), 48


def engine_of(model, pages=PAGES, **options):
    options = {
        "cache": paged(model, pages),
        "sequences": 4,
        "tokens": 400,
        "rows": 64,
        "compile": False,
    } | options
    engine = attn.transformers.Engine(model, **options)
    if engine.cache.is_latent:
        return engine
    for layer in range(2):
        engine.cache.pages.layer(layer).k.zero_()
        engine.cache.pages.layer(layer).v.zero_()
    return engine


def prompts_of(lengths=LENGTHS, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, 990, (count,), generator=generator) for count in lengths]


def rightly(model, outputs, within=0.2):
    for output in outputs:
        prompt = torch.tensor([output.prompt_token_ids], device="cuda")
        found = torch.tensor([output.prompt_token_ids + output.token_ids], device="cuda")
        given = {"input_ids": prompt, "attention_mask": torch.ones_like(prompt)}
        if not chosen_rightly(model, found, given, within):
            return False
    return True


def tokens(outputs):
    return [output.token_ids for output in outputs]


@pytest.mark.parametrize("name", ["Llama", "Qwen3", "Mistral", "Gemma2", "GptOss"])
def test_the_likeliest_tokens(name):
    """Each call gives the same tokens, by the graphs of the call before."""
    model = build("attn", name)
    engine = engine_of(model)
    found = [engine.generate(prompts_of(), max_new_tokens=NEW) for _ in range(3)]
    assert all(steps.recorded for steps in engine._steps)
    assert rightly(model, found[0], within=0.5 if name == "GptOss" else 0.2)
    assert tokens(found[0]) == tokens(found[1]) == tokens(found[2])
    assert engine.cache.pages.free_pages() == PAGES


@pytest.mark.parametrize("name", ["Llama", "Gemma2"])
def test_replays_are_the_steps_that_run_as_they_are(name, monkeypatch):
    """Replays have the bits of steps without graphs, through arrivals, ends, and requests that are sent back."""
    model = build("attn", name)
    replayed = engine_of(model, pages=40)
    found = [replayed.generate(prompts_of(), max_new_tokens=NEW) for _ in range(2)]
    sent_back = replayed.sent_back
    monkeypatch.setattr("attn.generation.recorded_steps._RUNS_AS_IT_IS", 10_000)
    launched = engine_of(model, pages=40)
    for each in found:
        assert tokens(launched.generate(prompts_of(), max_new_tokens=NEW)) == tokens(each)
    assert launched.sent_back == sent_back > 0
    assert all(steps.recorded for steps in replayed._steps) and not launched._steps[0].recorded
    for layer in range(2):
        a, b = replayed.cache.pages.layer(layer), launched.cache.pages.layer(layer)
        assert torch.equal(a.k, b.k) and torch.equal(a.v, b.v)


LATENT = dict(
    num_key_value_heads=8,
    kv_lora_rank=512,
    qk_rope_head_dim=64,
    head_dim=64,
    qk_nope_head_dim=64,
    qk_head_dim=128,
    v_head_dim=64,
    q_lora_rank=None,
    first_k_dense_replace=2,
)


@pytest.mark.parametrize("key", [None, "fp8_e4m3", "fp8_ds_mla"])
def test_latents(key, monkeypatch):
    """Replays over latents (MLA) have the bits of steps without graphs, in 16 bits and in 8."""
    model = build("attn", "DeepseekV3", **LATENT)
    form = {"latent": True, "key": key} if key else {"latent": True}

    def latent_engine():
        return engine_of(model, cache=paged(model, PAGES, **form))

    replayed = latent_engine()
    found = [replayed.generate(prompts_of(), max_new_tokens=NEW) for _ in range(2)]
    assert all(steps.recorded for steps in replayed._steps)
    assert tokens(found[0]) == tokens(found[1])
    if key is None:
        assert rightly(model, found[0])
    monkeypatch.setattr("attn.generation.recorded_steps._RUNS_AS_IT_IS", 10_000)
    launched = latent_engine()
    assert tokens(launched.generate(prompts_of(), max_new_tokens=NEW)) == tokens(found[0])
    assert not launched._steps[0].recorded


def test_steps_wait_for_results_alone():
    """Any other wait would be an error, and nothing is allocated on the device."""
    model = build("attn")
    engine = engine_of(model)
    expected = tokens(engine.generate(prompts_of(), max_new_tokens=NEW, eos_token_id=999))
    for prompt in prompts_of():
        engine.add_request(prompt, max_new_tokens=NEW, eos_token_id=999)
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    torch.cuda.set_sync_debug_mode("error")
    found = {}
    try:
        while engine.has_unfinished_requests():
            found |= {output.request_id: output for output in engine.step()}
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before
    assert [found[name].token_ids for name in sorted(found, key=int)] == expected


OPTIONS = (
    {},
    {"do_sample": True, "seed": 5, "temperature": 2.0},
    {"do_sample": True, "seed": 6, "temperature": 3.0, "top_k": 50, "top_p": 0.9},
    {"logprobs": 3},
)


def serve(engine, options):
    """Serve all prompts, with these options in turn. Return their last outputs."""
    names = [
        engine.add_request(prompt, max_new_tokens=NEW, eos_token_id=(), **options[number % len(options)])
        for number, prompt in enumerate(prompts_of())
    ]
    found = {}
    while engine.has_unfinished_requests():
        found |= {output.request_id: output for output in engine.step()}
    return [found[name] for name in names]


def test_requests_with_options_of_their_own(monkeypatch):
    """Choices of each kind are recorded, and replays have the tokens of steps without graphs. The likeliest tokens are
    those of steps in which all are. Nothing waits for the GPU but the results."""
    model = build("attn")
    engine = engine_of(model)
    plain = serve(engine, ({},))
    found = []
    for _ in range(4):
        found.append(serve(engine, OPTIONS))
        for options in OPTIONS:
            serve(engine, (options,))
    assert len(engine._choices.recorded) > 4 and sum(engine._choices.recorded.values()) > 4
    assert all(tokens(each) == tokens(found[0]) for each in found)
    assert tokens(found[0])[::4] == tokens(plain)[::4] and tokens(found[0])[3::4] == tokens(plain)[3::4]
    assert rightly(model, found[0][::4])
    for output in found[0][3::4]:
        for each, token in zip(output.logprobs, output.token_ids, strict=True):
            assert len(each) == 3 and each[token] == max(each.values())
    torch.cuda.set_sync_debug_mode("error")
    try:
        again = serve(engine, OPTIONS)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert tokens(again) == tokens(found[0])
    monkeypatch.setattr("attn.generation.recorded_steps._RUNS_AS_IT_IS", 10_000)
    assert tokens(serve(engine_of(model), OPTIONS)) == tokens(found[0])


def test_the_host_runs_a_step_ahead():
    """The next step is queued while the GPU still runs earlier work."""
    model = build("attn")
    engine = engine_of(model)
    engine.generate(prompts_of(), max_new_tokens=NEW)
    engine.add_request(prompts_of()[1], max_new_tokens=NEW)
    engine.step()
    torch.cuda.synchronize()
    torch.cuda._sleep(2_000_000_000)
    done = torch.cuda.Event()
    done.record()
    launched = engine._launch()
    assert launched is not None and not done.query()
    engine._read(engine._under_way)
    engine._under_way = launched
    while engine.has_unfinished_requests():
        engine.step()


@pytest.mark.parametrize("name", ["Llama", "Gemma2"])
def test_compiled_steps(name):
    """Compiled code rounds in other places."""
    model = build("attn", name)
    engine = engine_of(model, compile=None)
    found = [engine.generate(prompts_of(), max_new_tokens=NEW) for _ in range(2)]
    assert tokens(found[0]) == tokens(found[1]) and all(steps.recorded for steps in engine._steps)
    assert rightly(model, found[0], within=0.5)


def test_requests_end():
    """Requests end after their own tokens, and drawn tokens are the same with the same seed."""
    model = build("attn", "Qwen3")
    engine = engine_of(model)
    free = tokens(engine.generate(prompts_of(), max_new_tokens=NEW))
    ends = {row[5] for row in free}
    found = engine.generate(prompts_of(), max_new_tokens=NEW, eos_token_id=ends)
    for row, each in zip(free, found, strict=True):
        last = next(place for place, token in enumerate(row) if token in ends)
        assert each.token_ids == row[: last + 1] and each.finish_reason == "stop"
    drawn = engine_of(model, do_sample=True, temperature=4.0, top_k=200, top_p=0.99)
    drawn.generate(prompts_of(), max_new_tokens=NEW)
    again = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        again.append(tokens(drawn.generate(prompts_of(), max_new_tokens=NEW)))
    assert again[0] == again[1] != again[2]
