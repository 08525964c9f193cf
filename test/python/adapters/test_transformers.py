# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn as the attention of Hugging Face models: tiny models with random weights, on the CPU."""

import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="Transformers is not installed")

import attn  # noqa: E402
import attn.transformers  # noqa: E402
from attn.adapters.transformers_config import CACHE  # noqa: E402

VOCABULARY = 97
NEW_TOKENS = 12


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def llama(implementation, **kwargs):
    return build(transformers.LlamaConfig, transformers.LlamaForCausalLM, implementation, **kwargs)


def qwen(implementation, **kwargs):
    """Build Qwen3, whose second layer has a sliding window of 8."""
    window = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
    return build(transformers.Qwen3Config, transformers.Qwen3ForCausalLM, implementation, **(window | kwargs))


def gemma(implementation, **kwargs):
    """Build Gemma 2, with soft caps and a window in the first layer."""
    extra = {"sliding_window": 8, "query_pre_attn_scalar": 32, "attn_logit_softcapping": 20.0}
    return build(
        transformers.Gemma2Config, transformers.Gemma2ForCausalLM, implementation, **(extra | kwargs)
    )


def build(config, model, implementation, seed=1, **kwargs):
    sizes = {
        "hidden_size": 128,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 256,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": None,
        "initializer_range": 0.3,  # far from uniform logits, so that greedy choices are clear
    }
    torch.manual_seed(seed)
    config = config(**(sizes | kwargs), attn_implementation=implementation, dtype=torch.bfloat16)
    return model(config).to(torch.bfloat16).eval()


MODELS = {"llama": llama, "qwen": qwen, "gemma": gemma}


def prompt(rows=20, batch=3, padding=(5, 0, 11), seed=0):
    """Return ids and mask of a batch that is padded on the left."""
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(2, VOCABULARY, (batch, rows), generator=random)
    mask = torch.ones_like(ids)
    for row, count in enumerate(padding[:batch]):
        ids[row, :count], mask[row, :count] = 0, 0
    return {"input_ids": ids, "attention_mask": mask}


def close(ours, eager, *inputs, mask=None, **named):
    """Return whether logits are as good as those of eager attention in bfloat16: both are compared with eager attention
    in float32."""
    rounded = eager(*inputs, **named).logits.float()
    exact = eager.float()(*inputs, **named).logits
    eager.to(torch.bfloat16)
    rounded, ours = (rounded - exact).abs(), (ours.float() - exact).abs()
    if mask is not None:
        rounded, ours = rounded[mask.bool()], ours[mask.bool()]
    return ours.max() <= 1.5 * rounded.max() and ours.mean() <= 1.25 * rounded.mean()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("rows", [1, 20, 150])
def test_logits_equal_eager(name, rows):
    inputs = prompt(rows, padding=(0, 0, 0) if rows == 1 else (5, 0, 11))
    ours, eager = MODELS[name]("attn")(**inputs).logits, MODELS[name]("eager")
    assert close(ours, eager, **inputs, mask=inputs["attention_mask"])
    assert not close(ours.roll(1, 0), eager, **inputs, mask=inputs["attention_mask"])


def test_without_a_mask():
    ids = prompt()["input_ids"]
    assert close(llama("attn")(ids).logits, llama("eager"), ids)


def caches(model):
    yield "dynamic", {}
    yield "static", {"cache_implementation": "static"}
    yield (
        "paged",
        {
            "past_key_values": attn.transformers.PagedCache(
                model.config, pages=64, page_size=4, dtype=model.dtype
            )
        },
    )


CLEAR = {"initializer_range": 0.05}


def clear_choices(model, inputs, options):
    """Return a seed whose greedy choices rounding cannot change, and its tokens: the best logit leads by several times
    the difference between float16 and float32."""
    options = options | {"output_scores": True, "return_dict_in_generate": True}
    for seed in range(50):
        eager = model("eager", seed=seed, **CLEAR)
        rounded = eager.to(torch.float16).generate(**inputs, **options)
        exact = eager.float().generate(**inputs, **options)
        if torch.equal(rounded.sequences, exact.sequences):
            scores = torch.stack(exact.scores)
            noise = (torch.stack(rounded.scores).float() - scores).abs().max()
            best, second = scores.topk(2, -1).values.unbind(-1)
            if (best - second).min() > 5 * noise:
                return seed, exact.sequences
    return pytest.fail("no seed gives a model whose choices are clear")


@pytest.mark.parametrize("name", MODELS)
def test_generate_gives_the_same_tokens_from_every_cache(name):
    inputs, rows = prompt(), 20
    options = {"max_new_tokens": NEW_TOKENS, "do_sample": False}
    seed, expected = clear_choices(MODELS[name], inputs, options)
    model = MODELS[name]("attn", seed=seed, **CLEAR).to(torch.float16)
    for cache, arguments in caches(model):
        tokens = model.generate(**inputs, **options, **arguments)
        assert torch.equal(tokens[:, rows:], expected[:, rows:]), cache


def test_a_paged_cache_holds_no_padding():
    model, inputs = llama("attn"), prompt()
    cache = attn.transformers.PagedCache(model.config, pages=64, page_size=4)
    model.generate(**inputs, max_new_tokens=5, do_sample=False, past_key_values=cache)
    # The last generated token is never fed back.
    assert [cache.pages.tokens(node) for node in cache.nodes] == [15 + 4, 20 + 4, 9 + 4]
    assert cache.pages.free_pages() == 64 - sum(-(-n // 4) for n in (19, 24, 13))
    cache.reset()
    assert cache.pages.free_pages() == 64 and cache.get_seq_length() == 0


def test_a_paged_cache_goes_on_with_a_conversation():
    model, eager = llama("attn"), llama("eager")
    first, second = prompt(batch=1, padding=(0,)), prompt(7, batch=1, padding=(0,), seed=5)
    cache = attn.transformers.PagedCache(model.config, pages=64)
    first_logits = model(**first, past_key_values=cache).logits
    ids = torch.cat([first["input_ids"], second["input_ids"]], 1)
    ours = model(second["input_ids"], attention_mask=torch.ones_like(ids), past_key_values=cache).logits
    assert close(torch.cat([first_logits, ours], 1), eager, ids)


def test_a_paged_cache_that_is_full_says_so():
    model, inputs = llama("attn"), prompt()
    cache = attn.transformers.PagedCache(model.config, pages=8, page_size=4)
    with pytest.raises(attn.OutOfPages):
        model(**inputs, past_key_values=cache)


def test_a_paged_cache_after_a_pass_that_failed():
    model, inputs = llama("attn"), prompt()
    cache = attn.transformers.PagedCache(model.config, pages=64)
    second = model.model.layers[1].self_attn
    second.attention_dropout, second.training = 0.1, True
    with pytest.raises(
        attn.TensorError, match=f"{CACHE}: LlamaAttention: dropout of 0.1, which attn does not serve"
    ):
        model(**inputs, past_key_values=cache)
    second.training = False
    cache.reset()
    assert cache.pages.free_pages() == 64
    assert torch.equal(
        model(**inputs, past_key_values=cache).logits, model(**inputs, past_key_values=fresh(cache)).logits
    )


def fresh(cache):
    cache.reset()
    return cache


def test_what_a_paged_cache_refuses():
    model, inputs = llama("attn"), prompt()
    cache = attn.transformers.PagedCache(model.config, pages=64)
    model(**inputs, past_key_values=cache)
    with pytest.raises(attn.TensorError, match="holds 3 sequences, and the batch has 1"):
        model(inputs["input_ids"][:1, -1:], past_key_values=cache)


def attend(mask, seed, **options):
    """Return the output of a layer of this mask's model, and PyTorch's output."""
    random = torch.Generator().manual_seed(seed)
    q = torch.randn(3, 1, 4, 32, generator=random).bfloat16().transpose(1, 2)
    k, v = (torch.randn(3, 2, 20, 32, generator=random).bfloat16() for _ in range(2))
    out, _ = attn.transformers.attention_forward(torch.nn.Module(), q, k, v, mask, **options)
    exact = torch.nn.functional.scaled_dot_product_attention(
        q.float(), k.float(), v.float(), attn_mask=mask.dense().float(), enable_gqa=True
    )
    return out.float(), exact.transpose(1, 2)


def test_masks_in_turns():
    """Layers of two masks share a kernel and its plan, which each call must update to its own mask."""
    masks = []
    for padding in ((5, 0, 11), (0, 17, 2)):
        shown = torch.arange(20) >= torch.tensor(padding)[:, None]
        masks.append(attn.adapters.transformers_mask.make_mask(3, 1, 20, 19, 0, attention_mask=shown))
    for seed, mask in enumerate((*masks, *masks, masks[1], masks[0])):
        out, exact = attend(mask, seed)
        torch.testing.assert_close(out, exact, atol=2e-2, rtol=2e-2)
    assert all(len(mask.calls) == 1 for mask in masks)


def test_layers_that_differ_under_one_mask():
    shown = torch.arange(20) >= torch.tensor((5, 0, 11))[:, None]
    mask = attn.adapters.transformers_mask.make_mask(3, 1, 20, 19, 0, attention_mask=shown)
    plain, _ = attend(mask, 1)
    scaled, _ = attend(mask, 1, scaling=0.5)
    capped, _ = attend(mask, 1, softcap=1.0)
    sinks, _ = attend(mask, 1, s_aux=torch.ones(4))
    assert not any(torch.equal(plain, other) for other in (scaled, capped, sinks))
    assert torch.equal(plain, attend(mask, 1)[0]) and torch.equal(scaled, attend(mask, 1, scaling=0.5)[0])


# --- Steps that the device plans -----------------------------------------------------------------------------


@pytest.fixture
def planned(monkeypatch):
    """Counts layers that attended under a plan of the device, and compares each with a plan of the host."""
    steps = attn.adapters.planned_steps
    calls = attn.adapters.rows.padded_calls
    attend, served = steps.attend_step, []

    def checked(q, k, v, step):
        out = attend(q, k, v, step)
        kind, see = steps._planners[step.handle].kind, steps._planners[step.handle].see
        visible = calls.Visible(step.spans(), None, see)
        host = calls.PaddedCall(q, k, v, None, visible, calls.Scores(kind.scale, kind.softcap))(q, k, v, None)
        torch.testing.assert_close(out, host, atol=1e-2, rtol=1e-2)
        served.append(see)
        return out

    monkeypatch.setattr(steps, "attend_step", checked)
    monkeypatch.setattr(attn.adapters.layer_calls, "attend_step", checked)
    return served


@pytest.mark.parametrize("name", ["llama", "qwen"])
@pytest.mark.parametrize("padding", [(5, 0, 11), (0, 0, 0)])
def test_steps_of_static_caches_are_planned_on_the_device(name, padding, planned):
    model, inputs = MODELS[name]("attn"), prompt(padding=padding)
    options = {"max_new_tokens": NEW_TOKENS, "do_sample": False}
    static = model.generate(**inputs, **options, cache_implementation="static", disable_compile=True)
    windows_on_host = name == "qwen" and CACHE == "cache"  # windowed layers of 5.24 count rows in Python
    assert len(planned) == (NEW_TOKENS - 1) * (1 if windows_on_host else 2)
    assert torch.equal(static, model.generate(**inputs, **options))


class Waits(torch.utils._python_dispatch.TorchDispatchMode):
    """Record operations that would wait for a GPU: numbers that go to Python, and results whose size depends on
    contents."""

    ASKED = {"_local_scalar_dense", "nonzero", "equal", "is_nonzero", "masked_select", "unique2"}

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function._schema.name.partition("::")[2]
        boolean = name == "index" and any(each is not None and each.dtype == torch.bool for each in args[1])
        moved = name == "_to_copy" and "device" in (kwargs or {})
        if name in self.ASKED or boolean or moved:
            self.found.append(name)
        return function(*args, **(kwargs or {}))


def test_masks_become_plans_without_waiting(monkeypatch):
    """A mask on the device becomes the results of a layer without a wait; the check that padding has no holes runs
    later."""
    steps, waits, later, calls = attn.adapters.planned_steps, Waits(), [], []

    def watched(call):
        def watch(*args):
            calls.append(call.__name__)
            with waits:
                return call(*args)

        return watch

    monkeypatch.setattr(attn.adapters.transformers_mask, "plan_step", watched(steps.plan_step))
    monkeypatch.setattr(attn.adapters.layer_calls, "attend_step", watched(steps.attend_step))
    monkeypatch.setattr(steps, "_look_later", lambda model, counted, shown: later.append((counted, shown)))
    model, inputs = llama("attn"), prompt()
    static_steps(model, inputs, model)
    assert calls == ["plan_step", "attend_step", "attend_step"] * 5 and not waits.found
    assert len(later) == 5 and all((counted == shown).all() for counted, shown in later)
    with waits:  # `waits` would have recorded a wait
        inputs["attention_mask"].sum().item()
    assert waits.found == ["_local_scalar_dense"]


def static_steps(model, inputs, forward, count=5, room=40):
    """Return tokens generated over a static cache, as generate makes them with a compiled forward."""
    cache = transformers.StaticCache(config=model.config, max_cache_len=room)
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    out = model(**inputs, past_key_values=cache)
    for _ in range(count):
        ids = torch.cat([ids, out.logits[:, -1:].argmax(-1)], 1)
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], 1)
        named = {"past_key_values": cache, "attention_mask": mask, "use_cache": True}
        out = forward(**model.prepare_inputs_for_generation(ids, next_sequence_length=1, **named))
    return ids


def test_a_compiled_step_takes_its_plan_as_an_input(planned):
    model = llama("attn")
    torch.compiler.reset()
    compiled = torch.compile(model.forward, backend="aot_eager", fullgraph=True)
    first = static_steps(model, prompt(), compiled)
    made = len(planned)
    assert made == 2 * 5
    assert torch.equal(first, static_steps(model, prompt(), model))
    other = prompt(padding=(0, 3, 1), seed=5)
    with torch.compiler.set_stance("fail_on_recompile"):
        again = static_steps(model, other, compiled)
    assert torch.equal(again, static_steps(model, other, model))


def test_a_compiled_model_serves_batches_and_caches_of_several_sizes(planned):
    """Each batch and cache size has its own planner, and compiled code looks it up by layer."""
    model = llama("attn")
    torch.compiler.reset()
    compiled = torch.compile(model.forward, backend="aot_eager", fullgraph=True)
    for padding, room in (((4, 0, 2), 40), ((3,), 48), ((0, 1), 40), ((0, 1), 56)):
        inputs = prompt(batch=len(padding), padding=padding)
        assert torch.equal(
            static_steps(model, inputs, compiled, room=room), static_steps(model, inputs, model, room=room)
        )
    assert planned


def test_a_mask_that_changes_between_steps_is_refused_by_the_next_one():
    model, inputs = llama("attn"), prompt()
    cache = transformers.StaticCache(config=model.config, max_cache_len=40)
    model(**inputs, past_key_values=cache)
    mask = torch.cat([inputs["attention_mask"], torch.ones(3, 1, dtype=torch.int64)], 1)
    mask[1, 7] = 0
    with pytest.raises(
        attn.TensorError, match=r"attention_mask\[1\]: expected what it was in the step before"
    ):
        model(input_ids=torch.ones(3, 1, dtype=torch.int64), attention_mask=mask, past_key_values=cache)


def test_layers_of_several_kinds_are_planned_on_the_host(planned):
    model, inputs = llama("attn"), prompt()
    model.model.layers[1].self_attn.scaling *= 0.5
    options = {"max_new_tokens": 4, "do_sample": False}
    static = model.generate(**inputs, **options, cache_implementation="static", disable_compile=True)
    assert not planned and torch.equal(static, model.generate(**inputs, **options))


# --- DuoAttention --------------------------------------------------------------------------------------------

SINK, RECENT = 3, 6


def duo_eager(module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs):
    """Eager attention with the gates as a mask for each head."""
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    weights = query @ key.transpose(2, 3) * scaling + attention_mask
    k = torch.arange(key.shape[2])
    q = k[-query.shape[2] :, None]
    streams = (k < SINK) | (q - k < RECENT)
    for head, of_class in enumerate(module.classes):
        if of_class == 1:
            weights[:, head * groups : (head + 1) * groups] += torch.where(streams, 0.0, -torch.inf)
    out = weights.float().softmax(-1).to(query.dtype) @ value
    return out.transpose(1, 2).contiguous(), None


@pytest.fixture
def gates():
    """Return gates of layers that differ in how many heads retrieve."""
    return attn.heads.Gates([[0.99, 0.01], [0.02, 0.4], [0.7, 0.6]], sink=SINK, recent=RECENT)


def test_gates_make_heads_differ(gates):
    options = {"num_hidden_layers": 3}
    model, plain = llama("attn", **options), llama("attn", **options)
    attn.transformers.apply_head_gates(model, gates.select(threshold=0.5))
    inputs = prompt(40, batch=1, padding=(0,))
    transformers.AttentionInterface.register("duo_eager", duo_eager)
    transformers.AttentionMaskInterface.register("duo_eager", transformers.masking_utils.eager_mask)
    eager = llama("duo_eager", **options)
    for layer, classes in zip(eager.model.layers, [[0, 1], [1, 1], [0, 0]], strict=True):
        layer.self_attn.classes = classes
    assert close(model(**inputs).logits, eager, **inputs)
    assert not close(plain(**inputs).logits, eager, **inputs)
    # Over pages, a few tokens at a time.
    cache = attn.transformers.PagedCache(model.config, pages=64)
    parts = [model(part, past_key_values=cache).logits for part in inputs["input_ids"].split([25, 14, 1], 1)]
    assert close(torch.cat(parts, 1), eager, **inputs)
    attn.transformers.apply_head_gates(model, None)
    assert torch.equal(model(**inputs).logits, plain(**inputs).logits)


def test_gates_count_from_the_first_token(gates):
    """Sinks are counted from the first token, not from padding: a padded sequence has the sinks that it has alone."""
    model, inputs = llama("attn", num_hidden_layers=3), prompt(40)

    def errors():
        together = model(**inputs).logits
        for row, padding in enumerate((5, 0, 11)):
            alone = model(inputs["input_ids"][row : row + 1, padding:]).logits
            yield (together[row : row + 1, padding:] - alone).float().norm() / alone.float().norm()

    rounding = max(errors())  # from rotations of other positions
    attn.transformers.apply_head_gates(model, gates.select(threshold=0.5))
    assert max(errors()) <= 2 * rounding


def test_gates_by_sparsity(gates):
    model = llama("attn", num_hidden_layers=3)
    attn.transformers.apply_head_gates(model, gates.select(sparsity=0.5))
    found = [layer.self_attn.attn_head_gates for layer in model.model.layers]
    assert [g and g.classes for g in found] == [(0, 1), (1, 1), None]
    assert (found[0].sink, found[0].recent) == (SINK, RECENT)


def test_gates_that_do_not_fit(gates):
    model, choice = llama("attn", num_hidden_layers=3), gates.select(sparsity=0.5)
    of_one = attn.heads.Gates([[0.5, 0.5]]).select(sparsity=0.5)
    for given, message in (
        ((model, gates), "choice: expected an attn.heads.HeadChoice, or None, .*select"),
        ((model, of_one), "expected 3 layers of 2 KV heads, as the model has, got '?1 layers of 2"),
        ((torch.nn.Linear(2, 2), choice), "expected a decoder of Transformers"),
        ((llama("eager", num_hidden_layers=3), choice), 'expected attn_implementation="attn", got'),
    ):
        with pytest.raises(attn.SpecError, match=message):
            attn.transformers.apply_head_gates(*given)


# --- Operators -----------------------------------------------------------------------------------------------


def test_compiles_without_graph_breaks():
    model, inputs = qwen("attn").model, prompt()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(**inputs).last_hidden_state, model(**inputs).last_hidden_state)


def test_spans():
    mask = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0]], dtype=torch.bool)
    zero = torch.tensor(0)
    spans = torch.ops.attn.spans(mask, zero, zero, 3, 6, 9, True)
    assert spans.tolist() == [[2, 6, -2, -2], [0, 6, 0, 0], [0, 0, 0, 0]]
    spans = torch.ops.attn.spans(mask, torch.tensor([5]), torch.tensor(3), 3, 1, 3, True)
    assert spans.tolist() == [[0, 3, 1, 3], [0, 3, 3, 5], [0, 0, 3, 5]]
    assert spans.dtype == torch.int32
    mask[1, 4] = False
    with pytest.raises(
        attn.TensorError, match=r"attention_mask\[1\]: .* got padding at position 4 between tokens"
    ):
        torch.ops.attn.spans(mask, zero, zero, 3, 6, 9, True)


@pytest.mark.parametrize("rows", [1, 6])
def test_its_operators_pass_the_checks_of_pytorch(rows):
    mask = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]], dtype=torch.bool)
    begin, zero = torch.tensor(6 - rows), torch.tensor(0)
    arguments = (mask, begin, zero, 2, rows, 6, True)
    torch.library.opcheck(torch.ops.attn.spans.default, arguments)
    spans = torch.ops.attn.spans(*arguments)
    random = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(2, heads, tokens, dim, generator=random).to(torch.bfloat16)
        for heads, tokens, dim in ((4, rows, 64), (2, 6, 64), (2, 6, 32))
    )
    classes = {"classes": [0, 1], "streaming": [1, 2]}
    for option in ({}, {"see": "window(3)", "softcap": 20.0}, {"sink_logits": torch.zeros(4)}, classes):
        torch.library.opcheck(torch.ops.attn.attend_spans.default, (q, k, v, spans, 0.1), option)
    torch.library.opcheck(torch.ops.attn.seen.default, (spans, None, 2, "window(3)", rows, 6))
