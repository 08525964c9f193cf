# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Generation in recorded steps, which run one by one on the CPU: the tokens of model.generate, for any padding, ends of
sequences and capacity; and refusals by name."""

import os

import pytest
from decoding import (
    COLUMNS,
    NEW,
    PADDING,
    attn,
    build,
    decoder_of,
    model_zoo,
    prompt,
    reference,
    torch,
    transformers,
    watch_steps,
)

FULL = bool(os.environ.get("ATTN_FULL"))
layer_calls, planned_steps = attn.adapters.layer_calls, attn.adapters.planned_steps


# --- Tokens --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("implementation", ["attn", "sdpa"])
@pytest.mark.parametrize("padding", [PADDING, (0, 0), (0,)] if FULL else [PADDING, (0,)])
@pytest.mark.parametrize("name", ["Llama", "Qwen3", "Mistral", "Gemma2"])
def test_tokens_of_generate(name, padding, implementation):
    """With and without padding, one sequence and several; windows of Mistral and Gemma 2 are shorter than the prompt."""
    kind = getattr(transformers, f"{name}ForCausalLM")
    if implementation == "sdpa" and not kind._supports_sdpa:
        pytest.skip(f"Transformers {transformers.__version__} attends to no {name} by SDPA")
    model, inputs = build(name, implementation), prompt(padding)
    decoder = decoder_of(model, inputs)
    found = decoder.generate(**inputs, max_new_tokens=NEW)
    assert found.dtype == torch.int64 and torch.equal(found, reference(model, inputs))
    assert decoder.length == COLUMNS + NEW - 1  # the whole capacity


def test_eager_attention():
    model, inputs = build(implementation="eager"), prompt()
    assert torch.equal(
        decoder_of(model, inputs).generate(**inputs, max_new_tokens=NEW), reference(model, inputs)
    )


@pytest.mark.parametrize("implementation", ["attn", "sdpa"])
def test_sequences_end_at_different_steps(implementation):
    """A sequence gets padding after its end, and all columns after the last end are cut."""
    model, inputs = build("Qwen3", implementation), prompt()
    free = reference(model, inputs)[:, COLUMNS:]
    decoder = decoder_of(model, inputs)
    lengths = set()
    for ends in (
        [int(free[0, 3])],
        [int(free[0, 2]), int(free[1, 5]), int(free[2, 7])],
        [int(t) for t in free[:, 0]],
    ):
        expected = reference(model, inputs, eos_token_id=ends, pad_token_id=96)
        found = decoder.generate(**inputs, max_new_tokens=NEW, eos_token_id=ends, pad_token_id=96)
        assert torch.equal(found, expected)
        assert decoder.length == expected.shape[1] - 1
        lengths.add(expected.shape[1] - COLUMNS)
    assert 1 in lengths and len(lengths) == 3
    model.generation_config.eos_token_id = int(free[1, 4])
    assert torch.equal(decoder.generate(**inputs, max_new_tokens=NEW), reference(model, inputs))
    assert decoder.generate(**inputs, max_new_tokens=NEW, eos_token_id=()).shape[1] == COLUMNS + NEW


def test_one_decoder_serves_prompts_one_after_the_other():
    """One decoder serves prompts of other lengths and paddings: no state of an earlier prompt is left, and plans are
    reused."""
    model = build()
    decoder = attn.transformers.Decoder(model, sequences=3, tokens=60)
    for columns, padding, new in (
        (40, (0, 39, 3), 21),
        (5, (4, 0, 2), 3),
        (COLUMNS, PADDING, NEW),
        (7, (0, 0, 0), 1),
    ):
        inputs = prompt(padding, columns, seed=columns)
        assert torch.equal(decoder.generate(**inputs, max_new_tokens=new), reference(model, inputs, new))


def test_a_prompt_without_a_mask_hides_what_pads():
    model, inputs = build(), prompt()
    ids = inputs["input_ids"]
    decoder = decoder_of(model, inputs)
    assert torch.equal(decoder.generate(ids, max_new_tokens=NEW), reference(model, inputs))
    assert torch.equal(decoder.generate(ids.int(), max_new_tokens=NEW), reference(model, inputs))


@pytest.mark.parametrize("implementation", ["attn", "sdpa"])
def test_a_conversation_reads_what_is_new(implementation, monkeypatch):
    model, inputs = build(implementation=implementation), prompt()
    decoder = attn.transformers.Decoder(model, sequences=3, tokens=80)
    first = decoder.generate(**inputs, max_new_tokens=NEW)
    more = torch.cat([first, prompt((0, 0, 0), 6, seed=9)["input_ids"]], 1)
    shown = torch.cat([inputs["attention_mask"], torch.ones(3, NEW + 6, dtype=torch.int64)], 1)
    expected, read, reads = (
        reference(model, {"input_ids": more, "attention_mask": shown}, 5),
        decoder._read,
        [],
    )
    monkeypatch.setattr(decoder, "_read", lambda ids, mask: (reads.append(ids.shape[1]), read(ids, mask))[1])
    found = decoder.generate(more, shown, max_new_tokens=5, held=decoder.length)
    assert torch.equal(found, expected) and reads == [7]  # the last token was chosen, and not read


@pytest.mark.parametrize("implementation", ["attn", "sdpa"])
def test_keys_from_elsewhere(implementation):
    """A decoder that has read nothing continues after the keys of another cache, several times."""
    model, inputs = build("Mistral", implementation), prompt((0, 0))
    cache = transformers.DynamicCache()
    with torch.no_grad():
        model(inputs["input_ids"][:, :-1], past_key_values=cache)
    decoder = decoder_of(model, inputs)
    decoder.fill((layer.keys, layer.values) for layer in cache.layers)
    for _ in range(2):
        found = decoder.generate(**inputs, max_new_tokens=NEW, held=COLUMNS - 1)
        assert torch.equal(found, reference(model, inputs))
    keys, values = cache.layers[0].keys, cache.layers[0].values
    with pytest.raises(attn.TensorError, match="layers: expected those of all 2 layers, got 1"):
        decoder.fill([(keys, values)])
    assert decoder.length == 0
    with pytest.raises(attn.TensorError, match=r"values of layer 1: expected \[2, kv_heads, 20, dim\]"):
        decoder.fill([(keys, values), (keys, values[:, :, 1:])])
    with pytest.raises(attn.TensorError, match="keys of layer 2"):
        decoder.fill([(keys, values)] * 3)
    with pytest.raises(attn.PlanError, match="at most 32 columns"):
        decoder.fill([(keys.repeat(1, 1, 2, 1), values.repeat(1, 1, 2, 1))])


@pytest.mark.parametrize("implementation", ["attn", "sdpa"])
def test_compiled_steps(implementation):
    """The forward pass is one graph of PyTorch's, compiled once for all steps and prompts of a decoder."""
    torch.compiler.reset()
    model, inputs = build("Mistral", implementation), prompt()
    decoder = decoder_of(model, inputs, compile={"backend": "aot_eager", "fullgraph": True})
    assert torch.equal(decoder.generate(**inputs, max_new_tokens=NEW), reference(model, inputs))
    other = prompt((0, 7, 20), seed=3)
    with torch.compiler.set_stance("fail_on_recompile"):
        found = decoder.generate(**other, max_new_tokens=NEW)
    assert torch.equal(found, reference(model, other))


def test_many_decoders_compile_each():
    """PyTorch silently stops compiling one code after a number of decoders; each decoder here still compiles."""
    torch.compiler.reset()
    model, inputs = build(implementation="sdpa"), prompt((0,), 4)
    for _ in range(torch._dynamo.config.recompile_limit + 2):
        decoder = decoder_of(model, inputs, 2, compile={"backend": "eager"})
        decoder.generate(**inputs, max_new_tokens=2)
        with torch.compiler.set_stance("fail_on_recompile"):
            decoder.generate(**inputs, max_new_tokens=2)


def test_samples():
    model, inputs = build(implementation="sdpa"), prompt()  # in float32, where no two logits are equal
    decoder = decoder_of(model, inputs)
    draws = {"max_new_tokens": NEW, "do_sample": True}
    torch.manual_seed(4)
    first, second = (decoder.generate(**inputs, **draws, temperature=2.0) for _ in range(2))
    torch.manual_seed(4)
    assert torch.equal(first, decoder.generate(**inputs, **draws, temperature=2.0))
    assert not torch.equal(first, second)
    plain = reference(model, inputs)
    assert torch.equal(decoder.generate(**inputs, **draws, top_k=1), plain)
    assert torch.equal(decoder.generate(**inputs, **draws, top_p=1e-6, temperature=0.7), plain)


# --- Steps ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", [False, True])
@pytest.mark.parametrize("implementation", ["attn", "sdpa"])
@pytest.mark.parametrize("name", ["Llama", "Qwen3", "Mistral"])
def test_steps_are_the_same_work_and_wait_for_nothing(name, implementation, sample, monkeypatch):
    """Steps meet the needs of a graph: the same operations, no waits, and writes to the same tensors for every prompt."""
    model, inputs = build(name, implementation), prompt()
    decoder = decoder_of(model, inputs)
    monkeypatch.setattr(
        planned_steps, "_raise_late", lambda model: pytest.fail("asks about an event"), raising=True
    )
    steps, places = watch_steps(decoder)
    options = {"max_new_tokens": NEW, "eos_token_id": 95, "do_sample": sample, "top_k": 40 * sample}
    options["top_p"] = 0.9 if sample else 1.0
    decoder.generate(**inputs, **options)
    decoder.generate(**prompt((0, 0, 3), seed=5), **options)
    steps = steps[1:]  # the first step makes all buffers
    assert len(steps) > 6 and not [work.waits for work in steps if work.waits]
    first = steps[0].names
    assert len(first) > 20 and all(work.names == first for work in steps)
    assert all(each == places[0] for each in places)


def test_layers_attend_under_plans_of_the_device(monkeypatch):
    model, inputs, served = build("Qwen3"), prompt(), []
    attend = planned_steps.attend_step
    monkeypatch.setattr(
        layer_calls,
        "attend_step",
        lambda q, k, v, step: (served.append(step), attend(q, k, v, step))[1],
    )
    decoder_of(model, inputs).generate(**inputs, max_new_tokens=NEW)
    assert len(served) == (NEW - 1) * 2
    assert (served[-1].spans()[:, :2] == torch.tensor([[pad, COLUMNS + NEW - 1] for pad in PADDING])).all()


# --- Refusals ------------------------------------------------------------------------------------------------


def test_room():
    model, inputs = build(), prompt()
    decoder = decoder_of(model, inputs, room=9)
    with pytest.raises(
        attn.PlanError, match=r"max_new_tokens: expected 1 to 10 after 21 .* got 11; nearest legal: 10"
    ):
        decoder.generate(**inputs, max_new_tokens=11)
    assert decoder.generate(**inputs, max_new_tokens=10).shape[1] == COLUMNS + 10
    with pytest.raises(attn.PlanError, match="got 0; nearest legal: 1"):
        decoder.generate(**inputs, max_new_tokens=0)
    with pytest.raises(attn.PlanError, match="input_ids: expected at most 30 columns"):
        decoder.generate(**prompt((0, 0, 0), 31), max_new_tokens=1)
    with pytest.raises(attn.PlanError, match="tokens: expected a whole number from 1"):
        attn.transformers.Decoder(model, sequences=1, tokens=0)


def test_prompts():
    decoder = decoder_of(build(), prompt())
    ids, mask = prompt().values()
    with pytest.raises(attn.TensorError, match=r"input_ids: expected \[3, columns\].* got .*\[2, 21\]"):
        decoder.generate(ids[:2], max_new_tokens=1)
    with pytest.raises(attn.TensorError, match="input_ids: expected a tensor of int64 or int32"):
        decoder.generate(ids.float(), max_new_tokens=1)
    with pytest.raises(attn.TensorError, match="attention_mask: expected .* as input_ids"):
        decoder.generate(ids, mask[:, 1:], max_new_tokens=1)
    with pytest.raises(
        attn.TensorError, match=r"attention_mask\[0\]: .* got some at column 20; pad on the left"
    ):
        decoder.generate(ids, mask.clone().index_fill_(1, torch.tensor([20]), 0), max_new_tokens=1)
    with pytest.raises(attn.TensorError, match=r"attention_mask\[1\]: .* got some at column 7"):
        decoder.generate(
            ids, mask.index_put((torch.tensor([1]), torch.tensor([7])), torch.tensor(0)), max_new_tokens=1
        )
    with pytest.raises(attn.TensorError, match=r"attention_mask\[2\]: expected a token"):
        decoder.generate(ids, mask * torch.tensor([[1], [1], [0]]), max_new_tokens=1)
    with pytest.raises(attn.PlanError, match="held: expected 0 to 0: the cache holds 0 .* nearest legal: 0"):
        decoder.generate(ids, mask, max_new_tokens=1, held=5)
    decoder.generate(ids, mask, max_new_tokens=1)
    with pytest.raises(
        attn.PlanError, match=r"attention_mask: expected padding .* \[5, 0, 11\], got .*\[0, 0, 0\]"
    ):
        decoder.generate(ids, torch.ones_like(mask), max_new_tokens=1, held=5)


def test_options_of_generate():
    model, inputs = build(), prompt()
    decoder = decoder_of(model, inputs)
    for name, value in {
        "num_beams": 4,
        "assistant_model": model,
        "past_key_values": transformers.DynamicCache(),
    }.items():
        with pytest.raises(attn.PlanError, match=f"^{name}="):
            decoder.generate(**inputs, max_new_tokens=2, **{name: value})
    model.generation_config.repetition_penalty = 1.3
    with pytest.raises(attn.PlanError, match="model.generation_config: repetition_penalty=1.3"):
        decoder.generate(**inputs, max_new_tokens=2)


@pytest.mark.parametrize(
    "name,changes,told",
    [
        ("T5", {}, "t5 is an encoder with a decoder; Decoder"),
        ("Qwen3Next", {}, "layers of linear_attention"),
        ("Mamba2", {}, "model: |layers of"),
        (
            "Llama",
            {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
            "'dynamic'",
        ),
    ],
)
def test_models(name, changes, told):
    ending = "ForConditionalGeneration" if name == "T5" else "ForCausalLM"
    model = model_zoo.build(getattr(transformers, name + ending), "eager", torch.float32, 0, **changes)
    with pytest.raises(attn.PlanError, match=told):
        attn.transformers.Decoder(model, sequences=1, tokens=8)


def test_what_is_no_model():
    with pytest.raises(
        attn.PlanError, match="model: expected a model of Transformers that generates, got 'Linear'"
    ):
        attn.transformers.Decoder(torch.nn.Linear(2, 2), sequences=1, tokens=8)
    model = build(implementation="sdpa")
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(
        attn.PlanError, match="attn_implementation: expected one of attn, attn_row, sdpa, eager"
    ):
        attn.transformers.Decoder(model, sequences=1, tokens=8)


def test_layers_that_are_planned_on_the_host():
    """Layers that plan on the host, with the sinks of GPT-OSS or tensors that fall back, are refused before recording."""
    model, inputs = build("GptOss"), prompt()
    with pytest.raises(attn.PlanError, match="layers of GptOssForCausalLM are not planned on the device"):
        decoder_of(model, inputs).generate(**inputs, max_new_tokens=NEW)
    attn.transformers.set_fallback(True)
    model = build(dtype=torch.float32)
    with (
        pytest.warns(attn.transformers.FallbackWarning),
        pytest.raises(attn.PlanError, match="layers of Llama"),
    ):
        decoder_of(model, inputs).generate(**inputs, max_new_tokens=NEW)


def test_gates_that_come_later():
    """Gates that are set after recording are noticed and refused: the recorded steps are not run."""
    model, inputs = build(), prompt()
    decoder = decoder_of(model, inputs)
    decoder.generate(**inputs, max_new_tokens=NEW)
    step = decoder._step
    decoder.generate(**inputs, max_new_tokens=NEW)
    assert decoder._step is step
    gates = attn.heads.Gates([[0.9, 0.1], [0.0, 0.2]], sink=4, recent=16)
    attn.transformers.apply_head_gates(model, gates.select(threshold=0.5))
    with pytest.raises(attn.PlanError, match="layers of LlamaForCausalLM are not planned on the device"):
        decoder.generate(**inputs, max_new_tokens=NEW)
    assert decoder._step is not step and decoder.length == 0


@pytest.mark.parametrize(
    "given,told",
    [
        ({"mode": "reduce-overhead"}, "got 'reduce-overhead'"),
        ({"mode": "max-autotune"}, "nearest legal: 'max-autotune-no-cudagraphs'"),
        ({"options": {"triton.cudagraphs": True}}, "nearest legal: False"),
        ("yes", "compile: expected True, False"),
    ],
)
def test_compilers_that_record_by_themselves(given, told):
    with pytest.raises(attn.PlanError, match=told):
        attn.transformers.Decoder(build(implementation="sdpa"), sequences=1, tokens=8, compile=given)
