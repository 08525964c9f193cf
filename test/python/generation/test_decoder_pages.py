# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Generation in recorded steps over caches in pages, which run one by one on the CPU: the tokens of model.generate, in
pages without padding that sequences of one prompt share; and refusals by name."""

import gc
import weakref

import pytest
from decoding import (
    COLUMNS,
    NEW,
    PADDING,
    attn,
    build,
    decoder_of,
    paged,
    prompt,
    reference,
    torch,
    transformers,
    watch_steps,
)

planned_pages, planned_steps = attn.adapters.planned_pages, attn.adapters.planned_steps
PAGES = 64
# Before 5.24 Transformers gives caches keys and values of the heads of DeepSeek, too (test_latents.py has its latents).
LATENT = ("DeepseekV3",) if attn.adapters.transformers_config.CACHE == "past_key_values" else ()


def made(model, inputs, room=NEW - 1, **options):
    return decoder_of(model, inputs, room, **({"cache": paged(model)} | options))


def held(decoder):
    return [decoder.cache.pages.tokens(node) for node in decoder.cache.nodes]


# --- Tokens --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name,padding",
    [("Llama", (0,)), *((name, PADDING) for name in ("Llama", "Mistral", "Gemma2", *LATENT, "GptOss"))],
)
def test_tokens_of_generate(name, padding):
    """Tokens are those of generate without a cache in pages and over one: with windows, soft caps, values shorter than
    keys, and sinks, which steps over static caches do not plan."""
    model, inputs = build(name), prompt(padding)
    form = {"latent": False} if name in LATENT else {}
    decoder = made(model, inputs, cache=paged(model, **form))
    found = decoder.generate(**inputs, max_new_tokens=NEW)
    assert torch.equal(found, reference(model, inputs))
    assert torch.equal(found, reference(model, inputs, past_key_values=paged(model, **form)))
    assert decoder.length == COLUMNS + NEW - 1
    assert held(decoder) == [decoder.length - count for count in padding]  # padding takes no page


@pytest.mark.parametrize("formats", [{"key": "int8", "value": "int4"}, {"value": "fp8_e4m3"}])
def test_pages_of_codes(formats):
    model, inputs = build(), prompt()
    found = made(model, inputs, cache=paged(model, **formats)).generate(**inputs, max_new_tokens=NEW)
    assert torch.equal(found, reference(model, inputs, past_key_values=paged(model, **formats)))
    assert not torch.equal(found, reference(model, inputs))


def test_sequences_end_at_different_steps():
    """Tokens after the last end are not kept."""
    model, inputs = build("Qwen3"), prompt()
    free = reference(model, inputs)[:, COLUMNS:]
    decoder = made(model, inputs)
    lengths = set()
    for ends in (
        [int(free[0, 3])],
        [int(free[0, 2]), int(free[1, 5]), int(free[2, 7])],
        [int(t) for t in free[:, 0]],
    ):
        expected = reference(model, inputs, eos_token_id=ends, pad_token_id=96)
        found = decoder.generate(**inputs, max_new_tokens=NEW, eos_token_id=ends, pad_token_id=96)
        assert torch.equal(found, expected)
        assert held(decoder) == [expected.shape[1] - 1 - count for count in PADDING]
        lengths.add(expected.shape[1])
    assert len(lengths) == 3


def test_what_the_host_runs_ahead_is_taken_back(monkeypatch):
    """Tokens after all ends are removed when the ends are seen some steps later, as on a GPU."""
    model, inputs = build(), prompt()
    ends = [int(t) for t in reference(model, inputs)[:, COLUMNS + 1]]
    decoder = made(model, inputs)
    monkeypatch.setattr(decoder._lookout, "seen", lambda: False)
    found = decoder.generate(**inputs, max_new_tokens=NEW, eos_token_id=ends)
    assert torch.equal(found, reference(model, inputs, eos_token_id=ends))
    assert decoder.length == found.shape[1] - 1 < COLUMNS + NEW - 1
    assert held(decoder) == [decoder.length - count for count in PADDING]
    assert decoder.cache.pages.free_pages() == PAGES - sum(-(-count // 4) for count in held(decoder))


def test_one_decoder_serves_prompts_one_after_the_other():
    """One decoder serves prompts of other lengths and paddings, in the pages of earlier prompts."""
    model = build()
    decoder = attn.transformers.Decoder(model, sequences=3, tokens=60, cache=paged(model, 45))
    step = None
    for columns, padding, new in (
        (40, (0, 39, 3), 21),
        (5, (4, 0, 2), 3),
        (COLUMNS, PADDING, NEW),
        (7, (0, 0, 0), 1),
    ):
        inputs = prompt(padding, columns, seed=columns)
        assert torch.equal(decoder.generate(**inputs, max_new_tokens=new), reference(model, inputs, new))
        assert step in (None, decoder._step)
        step = decoder._step


@pytest.mark.parametrize("back", [0, 3, 12, 30])
def test_a_conversation_reads_what_is_new(back):
    """A conversation continues after all cached columns, or after the first of them, even before the first token of a
    sequence."""
    model, inputs = build("Mistral"), prompt()
    decoder = attn.transformers.Decoder(model, sequences=3, tokens=80, cache=paged(model))
    first = decoder.generate(**inputs, max_new_tokens=NEW)
    more = torch.cat([first, prompt((0, 0, 0), 6, seed=9)["input_ids"]], 1)
    shown = torch.cat([inputs["attention_mask"], torch.ones(3, NEW + 6, dtype=torch.int64)], 1)
    expected = reference(model, {"input_ids": more, "attention_mask": shown}, 5)
    found = decoder.generate(more, shown, max_new_tokens=5, held=decoder.length - back)
    assert torch.equal(found, expected) and decoder.length == more.shape[1] + 4


def test_sequences_go_on_behind_ends_of_their_own():
    """In turns of chats, answers end at different steps, and each sequence reads prompts of its own length next. Tokens
    after an end are neither seen nor kept."""
    model, inputs = build("Mistral"), prompt()
    free = reference(model, inputs)[:, COLUMNS:]
    ends = [int(free[0, 3]), int(free[1, 6]), int(free[2, 1])]
    decoder = attn.transformers.Decoder(model, sequences=3, tokens=80, cache=paged(model))
    reads = []
    model.register_forward_pre_hook(
        lambda module, args, given: reads.append(given["input_ids"].shape[1]), with_kwargs=True
    )
    chats = [ids[shown.bool()].tolist() for ids, shown in zip(*inputs.values(), strict=True)]
    held = 0
    for turn in range(3):
        columns = max(len(chat) for chat in chats)
        ids = torch.tensor([[0] * (columns - len(chat)) + chat for chat in chats])
        mask = torch.tensor([[0] * (columns - len(chat)) + [1] * len(chat) for chat in chats])
        given = {"input_ids": ids, "attention_mask": mask}
        del reads[:]
        found = decoder.generate(**given, max_new_tokens=NEW, eos_token_id=ends, held=held)
        width = reads[0]
        assert torch.equal(found, reference(model, given, eos_token_id=ends))
        assert (
            width == columns
            if not turn
            else width == max(len(c) - n for c, n in zip(chats, held, strict=True)) < 15
        )
        answers = [
            row[: next((i + 1 for i, t in enumerate(row) if t in ends), NEW)]
            for row in found[:, columns:].tolist()
        ]
        chats = [chat + answer for chat, answer in zip(chats, answers, strict=True)]
        held = decoder.held
        assert held == [len(chat) - 1 for chat in chats]
        more = torch.randint(3, 90, (6,), generator=torch.Generator().manual_seed(turn)).tolist()
        chats = [chat + more[: 2 + 2 * i] for i, chat in enumerate(chats)]
    assert len(set(map(len, answers))) > 1


def test_tokens_held():
    model, inputs = build(), prompt()
    decoder = made(model, inputs, 20)
    assert decoder.held == [] and decoder_of(model, inputs).held == []
    refused = [([1, 1, 1], "held: expected a number of columns: there are no sequences in pages")]
    for held, told in refused:
        with pytest.raises(attn.PlanError, match=told):
            decoder.generate(**inputs, max_new_tokens=1, held=held)
        with pytest.raises(attn.PlanError, match=told):
            decoder_of(model, inputs).generate(**inputs, max_new_tokens=1, held=held)
    decoder.generate(**inputs, max_new_tokens=1)
    assert decoder.held == [COLUMNS - count for count in PADDING]
    for held, told in (
        ([1, 1], r"held: expected a number for each of the 3 sequences of the cache, got list \[1, 1\]"),
        (
            [15, 21, 9],
            r"held\[1\]: expected 0 to 20: 21 tokens are held, and one of 21 .* got 21; nearest legal: 20",
        ),
        ([15, -1, 9], r"held\[1\]: .* got -1; nearest legal: 0"),
        ([15, 2, True], r"held\[2\]: .* got True"),
    ):
        with pytest.raises(attn.PlanError, match=told):
            decoder.generate(**inputs, max_new_tokens=1, held=held)
    found = decoder.generate(**inputs, max_new_tokens=NEW, held=[15, 0, 3])
    assert torch.equal(found, reference(model, inputs))


def test_goes_on_behind_generate():
    """Generation continues over a cache that `generate` has filled."""
    model, inputs = build(), prompt()
    cache = paged(model)
    more = reference(model, inputs, 4, past_key_values=cache)
    decoder = made(model, inputs, cache=cache)
    shown = torch.cat([inputs["attention_mask"], torch.ones(3, 4, dtype=torch.int64)], 1)
    assert decoder.length == COLUMNS + 3
    found = decoder.generate(more, shown, max_new_tokens=NEW - 4, held=decoder.length)
    assert torch.equal(found, reference(model, inputs))


def test_copies_of_a_prompt_share_its_pages():
    """A prompt is read once, and all of its copies continue from it."""
    model, inputs = build("Mistral"), prompt((5, 0))
    decoder = attn.transformers.Decoder(model, sequences=6, tokens=80, cache=paged(model))
    read, reads = decoder._read, []
    decoder._read = lambda ids, mask: (reads.append(tuple(ids.shape)), read(ids, mask))[1]
    found = decoder.generate(**inputs, max_new_tokens=NEW, num_return_sequences=3)
    expected = reference(model, inputs)
    assert torch.equal(found, expected.repeat_interleave(3, 0)) and reads == [(2, COLUMNS)]
    # Prompts have 27 and 32 tokens; copies share whole pages with the first 16 and 20 of them.
    assert PAGES - decoder.cache.pages.free_pages() == (4 + 3 * 3) + (5 + 3 * 3)
    torch.manual_seed(1)
    draws = {"do_sample": True, "temperature": 2.0}
    found = decoder.generate(**inputs, max_new_tokens=NEW, num_return_sequences=3, **draws)
    assert len({tuple(row) for row in found[:, COLUMNS:].tolist()}) == 6
    shown = torch.cat(
        [inputs["attention_mask"].repeat_interleave(3, 0), torch.ones(6, NEW, dtype=torch.int64)], 1
    )
    for back in (0, 16):
        again = decoder.generate(found, shown, max_new_tokens=5, held=decoder.length - back)
        assert torch.equal(again, reference(model, {"input_ids": found, "attention_mask": shown}, 5))
    model.generation_config.num_return_sequences = 2
    found = decoder.generate(**prompt((0, 2, 4)), max_new_tokens=1)
    assert found.shape == (6, COLUMNS + 1) and torch.equal(found[0::2], found[1::2])


@pytest.mark.parametrize("padding", [(0, 0), (0,)])  # a single sequence's tensors are head-major
def test_keys_from_elsewhere(padding):
    model, inputs = build("Mistral"), prompt(padding)
    cache = transformers.DynamicCache()
    with torch.no_grad():
        model(inputs["input_ids"][:, :-1], past_key_values=cache)
    decoder = made(model, inputs)
    for _ in range(2):
        decoder.fill((layer.keys, layer.values) for layer in cache.layers)
        assert decoder.length == COLUMNS - 1
        found = decoder.generate(**inputs, max_new_tokens=NEW, held=COLUMNS - 1)
        assert torch.equal(found, reference(model, inputs))
    keys, values = cache.layers[0].keys, cache.layers[0].values
    for layers, told in (
        ([(keys, values)], "layers: expected those of all 2 layers, got 1"),
        (
            [(keys, values), (keys, values[:, :, 1:])],
            rf"values of layer 1: expected \[{len(padding)}, kv_heads, 20, dim\]",
        ),
        ([(keys, values), (keys[:, 1:], values[:, 1:])], "k: expected"),
    ):
        with pytest.raises(attn.TensorError, match=told):
            decoder.fill(layers)
        assert decoder.length == 0 and decoder.cache.pages.free_pages() == PAGES


def test_compiled_steps():
    """The forward pass is one graph of PyTorch's, compiled once for all steps and prompts of a decoder."""
    torch.compiler.reset()
    model, inputs = build("Gemma2"), prompt()
    decoder = made(model, inputs, compile={"backend": "aot_eager", "fullgraph": True})
    assert torch.equal(decoder.generate(**inputs, max_new_tokens=NEW), reference(model, inputs))
    other = prompt((0, 7, 20), seed=3)
    with torch.compiler.set_stance("fail_on_recompile"):
        found = decoder.generate(**other, max_new_tokens=NEW)
    assert torch.equal(found, reference(model, other))


# --- Steps ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Llama", "Gemma2"])
def test_steps_are_the_same_work_and_wait_for_nothing(name, monkeypatch):
    """Steps meet the needs of a graph in PyTorch and on the device: the same operations, no waits, and writes to the
    same tensors for every prompt."""
    model, inputs = build(name), prompt()
    monkeypatch.setattr(planned_steps, "_raise_late", lambda model: pytest.fail("asks about an event"))
    device, work = attn.memory.devices.get_device("host"), []
    decoder = made(model, inputs)
    next_step = decoder._next

    def counted(choice):
        device.work(reset=True)
        next_step(choice)
        work.append(device.work())

    decoder._next = counted
    steps, places = watch_steps(decoder)
    decoder.generate(**inputs, max_new_tokens=NEW, eos_token_id=95)
    decoder.generate(**prompt((0, 0, 3), seed=5), max_new_tokens=NEW, eos_token_id=95)
    steps, work = steps[1:], work[1:]  # the first step makes all buffers
    assert len(steps) > 6 and not [each.waits for each in steps if each.waits]
    first = steps[0].names
    assert len(first) > 20 and all(each.names == first for each in steps)
    assert all(each == places[0] for each in places)
    assert all(each["copies"] == each["allocations"] == 0 for each in work)
    assert all(each["launches"] == work[0]["launches"] for each in work)


def test_decoders_share_a_cache():
    """A decoder does not take tokens that another decoder has read for its own."""
    model, inputs, other = build(), prompt(), prompt((0, 3), seed=4)
    cache = paged(model)
    first, second = made(model, inputs, cache=cache), made(model, other, cache=cache)
    for _ in range(2):
        assert torch.equal(first.generate(**inputs, max_new_tokens=NEW), reference(model, inputs))
        assert second.length == 0
        assert torch.equal(second.generate(**other, max_new_tokens=NEW), reference(model, other))


def test_decoders_that_are_gone_keep_no_pages():
    model, inputs = build(), prompt()
    before = set(planned_pages._living)
    decoder = made(model, inputs)
    decoder.generate(**inputs, max_new_tokens=3)
    pages = weakref.ref(decoder.cache.pages)
    assert len(set(planned_pages._living) - before) == 1
    del decoder
    gc.collect()
    assert pages() is None and not set(planned_pages._living) - before


def test_a_step_that_fails_leaves_nothing(monkeypatch):
    """A failed step leaves nothing, not even its new tokens in tables, which the next step would write."""
    model, inputs = build(), prompt()
    decoder = made(model, inputs)
    with monkeypatch.context() as patch:
        patch.setattr(decoder, "_forward", lambda **inputs: pytest.fail("no"))
        with pytest.raises(pytest.fail.Exception):
            decoder.generate(**inputs, max_new_tokens=NEW)
    assert decoder.length == 0 and decoder.cache.pages.free_pages() == PAGES
    assert torch.equal(decoder.generate(**inputs, max_new_tokens=NEW), reference(model, inputs))


# --- Refusals ------------------------------------------------------------------------------------------------


def test_pages():
    """Too few pages are refused before anything is read: a call that has begun has pages to its end."""
    model, inputs = build(), prompt()
    decoder = made(model, inputs, 20, cache=paged(model, 20))
    told = "pages: expected 21 free ones, for 12 new tokens of each sequence, got 20; nearest legal: max_new_tokens=11"
    with pytest.raises(attn.OutOfPages, match=told):
        decoder.generate(**inputs, max_new_tokens=NEW)
    assert torch.equal(decoder.generate(**inputs, max_new_tokens=11), reference(model, inputs, 11))
    assert decoder.cache.pages.free_pages() == 0
    shown = torch.cat([inputs["attention_mask"], torch.ones(3, 11, dtype=torch.int64)], 1)
    found = reference(model, inputs, 11)
    with pytest.raises(
        attn.OutOfPages, match="expected 3 free ones, for 3 new tokens of each sequence, got 0$"
    ):
        decoder.generate(found, shown, max_new_tokens=3, held=decoder.length)
    assert decoder.length == COLUMNS + 10  # as before the call
    with pytest.raises(
        attn.OutOfPages, match="expected 36 free ones, for 1 new tokens of each sequence, got 20$"
    ):
        attn.transformers.Decoder(model, sequences=6, tokens=60, cache=decoder.cache).generate(
            **prompt((0, 0, 0, 0, 0, 0), 22), max_new_tokens=1
        )


@pytest.mark.parametrize("held", [10, [10, 10]])
def test_what_is_cut_off_was_shared(held):
    """The rest of a shared page has to be copied, and no page is free for the copy."""
    model = build()
    decoder = attn.transformers.Decoder(model, sequences=2, tokens=40, cache=paged(model, 5))
    found = decoder.generate(**prompt((0,), 20), max_new_tokens=1, num_return_sequences=2)
    assert decoder.held == [20, 20] and decoder.cache.pages.free_pages() == 0
    with pytest.raises(attn.OutOfPages, match="1 pages asked for, 0 of 5 left"):
        decoder.generate(found, max_new_tokens=1, held=held)
    assert decoder.length == 0 and decoder.cache.pages.free_pages() == 5


def test_caches():
    model = build()
    for cache in (transformers.DynamicCache(), 64):
        with pytest.raises(attn.PlanError, match="cache: expected an attn.transformers.PagedCache, or None"):
            attn.transformers.Decoder(model, sequences=1, tokens=8, cache=cache)
    deeper = build(num_hidden_layers=3)
    with pytest.raises(attn.PlanError, match="cache: expected one of the model's 2 layers, got 3"):
        attn.transformers.Decoder(model, sequences=1, tokens=8, cache=paged(deeper))
    with pytest.raises(
        attn.PlanError,
        match="attn_implementation: expected attn or attn_row, over a cache in pages, got 'sdpa'",
    ):
        attn.transformers.Decoder(build(implementation="sdpa"), sequences=1, tokens=8, cache=paged(model))
    decoder = made(model, prompt())
    model.set_attn_implementation("sdpa")
    with pytest.raises(
        attn.PlanError, match="attn_implementation: expected attn or attn_row, over a cache in pages"
    ):
        decoder.generate(**prompt(), max_new_tokens=2)


def test_copies():
    model, inputs = build(), prompt()
    decoder = made(model, inputs)
    for count in (2, 0, True):
        with pytest.raises(
            attn.PlanError, match=f"num_return_sequences: expected a divisor of the 3 .* got {count}"
        ):
            decoder.generate(**inputs, max_new_tokens=2, num_return_sequences=count)
    with pytest.raises(attn.TensorError, match=r"input_ids: expected \[1, columns\]"):
        decoder.generate(**inputs, max_new_tokens=2, num_return_sequences=3)
    one = prompt((5,))
    found = decoder.generate(**one, max_new_tokens=2, num_return_sequences=3)
    with pytest.raises(
        attn.PlanError, match="num_return_sequences: expected 1 after columns that are held, got 3"
    ):
        decoder.generate(found[:1], max_new_tokens=2, num_return_sequences=3, held=decoder.length)
    with pytest.raises(
        attn.PlanError, match="num_return_sequences=3: sequences share their prompt in pages; make"
    ):
        decoder_of(model, inputs).generate(**one, max_new_tokens=2, num_return_sequences=3)


def test_gates():
    model, inputs = build(), prompt()
    decoder = made(model, inputs)
    decoder.generate(**inputs, max_new_tokens=NEW)
    gates = attn.heads.Gates([[0.9, 0.1], [0.0, 0.2]], sink=4, recent=16)
    attn.transformers.apply_head_gates(model, gates.select(threshold=0.5))
    with pytest.raises(attn.PlanError, match="layers of LlamaForCausalLM are not planned on the device"):
        decoder.generate(**inputs, max_new_tokens=NEW)
    assert decoder.length == 0 and decoder.cache.pages.free_pages() == PAGES
    attn.transformers.apply_head_gates(model, None)
    assert torch.equal(decoder.generate(**inputs, max_new_tokens=NEW), reference(model, inputs))


def test_models_that_compute_with_their_mask():
    """A mask of keys in pages cannot be made, so models that compute with their mask are refused."""
    model, inputs = build(), prompt()
    decoder = made(model, inputs)
    forward = decoder._forward
    decoder._forward = lambda **given: forward(**(given | {"attention_mask": given["attention_mask"] + 0}))
    attn.transformers.set_fallback(True)
    with pytest.raises(attn.TensorError, match="attention_mask: the model computes with it itself"):
        decoder.generate(**inputs, max_new_tokens=NEW)
