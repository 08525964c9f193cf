# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of Transformers over packed forests, against the same models over each trajectory alone."""

import copy
import gc
import io

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="Transformers is not installed")

import attn  # noqa: E402
import numpy  # noqa: E402
import tiny_decoders  # noqa: E402
from attn.training import Tree, group, logprobs, pack, packed_model  # noqa: E402
from tiny_decoders import KINDS, VOCABULARY, decoder, gradients, replicated_logprobs  # noqa: E402


@pytest.fixture(scope="module")
def packed():
    """Two groups, and a tree of three levels with targets in the middle."""
    random = numpy.random.default_rng(0)

    def some(n):
        return random.integers(0, VOCABULARY, n)

    deep = Tree(some(4), [Tree(some(3), [Tree(some(2)), Tree(some(5))]), Tree(some(2))])
    trees = [group(some(17), [some(5), some(9), some(1)]), group(some(3), [some(12), some(2)]), deep]
    return pack(trees, vocabulary=VOCABULARY)[0]


def weights_of(packed):
    return torch.randn(len(packed.edge_source), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("kind", "checkpointing"),
    [*((kind, None) for kind in KINDS), ("llama", False), ("llama", True), ("qwen3_moe", False)],
)
def test_log_probabilities_and_gradients(packed, kind, checkpointing):
    name, options = KINDS[kind]
    model = decoder(name, **options)
    weights = weights_of(packed)
    wanted = replicated_logprobs(model, packed, temperature=0.8)
    of_copies = gradients(model, (wanted * weights).sum())
    if checkpointing is not None:
        model.gradient_checkpointing_enable({"use_reentrant": checkpointing})
    found = logprobs(model, packed, temperature=0.8, reference=True)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
    of_packed = gradients(model, (found * weights).sum())  # after the context
    assert of_packed.keys() == of_copies.keys()
    for parameter, gradient in of_packed.items():
        largest = of_copies[parameter].abs().max()
        assert (gradient - of_copies[parameter]).abs().max() <= 1e-5 * largest, parameter


@pytest.mark.parametrize("kind", ["llama", "mistral with a window"])
def test_kernels_are_as_near_as_copies(packed, kind):
    """In bfloat16 the difference to float32 is about that of copies."""
    name, options = KINDS[kind]
    exact = replicated_logprobs(decoder(name, **options), packed)
    model = decoder(name, torch.bfloat16, "sdpa", **options)
    copies = replicated_logprobs(model, packed)
    found = logprobs(model, packed)
    assert (found - exact).square().mean().sqrt() <= 1.2 * (copies - exact).square().mean().sqrt()
    gradient = gradients(model, (found * weights_of(packed)).sum())
    other = gradients(model, (copies * weights_of(packed)).sum())
    for parameter, value in gradient.items():
        scale = other[parameter].float().norm()
        assert (value - other[parameter]).float().norm() <= 0.05 * scale, parameter


def test_autocast(packed):
    model = decoder()
    with torch.autocast("cpu", torch.bfloat16):
        found = logprobs(model, packed)
    assert (found - replicated_logprobs(model, packed)).abs().max() < 0.05


@pytest.mark.parametrize("tied", [False, True])
def test_logits_exist_a_chunk_at_a_time(packed, tied):
    model, largest = decoder(tie_word_embeddings=tied), []
    whole = logprobs(model, packed, entropy=True, chunk=None, reference=True)
    weights = weights_of(packed)
    wanted = gradients(model, ((whole[0] - 0.3 * whole[1]) * weights).sum())
    model.lm_head.register_forward_pre_hook(lambda _, rows: largest.append(rows[0].shape))
    forward = model.lm_head.forward
    model.lm_head.forward = lambda rows: (largest.append(rows.shape), forward(rows))[1]
    own = model.lm_head.forward
    for chunk in (1, 7, len(packed.sources)):
        largest.clear()
        found = logprobs(model, packed, entropy=True, chunk=chunk, reference=True)
        for one, other in zip(found, whole, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
        for name, value in gradients(model, ((found[0] - 0.3 * found[1]) * weights).sum()).items():
            assert (value - wanted[name]).abs().max() <= 1e-5 * wanted[name].abs().max(), (name, chunk)
        assert largest[0] == (1, len(packed.sources), 64)
        runs = -(-len(packed.sources) // chunk)
        assert [shape[0] for shape in largest[1:]].count(chunk) >= runs - 1
        assert len(largest) - 1 == (2 * runs if runs > 1 else 1), "made once more in backward"
        assert model.lm_head.forward is own, "left as it was"


def test_hidden_rows_of_a_decoder_without_head(packed):
    model = decoder().eval()
    with torch.no_grad(), packed_model(model.model, packed, reference=True):
        rows = model.model(packed.input_ids()).last_hidden_state
    for number, part in enumerate(packed.unpack(rows)):
        ids = torch.from_numpy(packed.tokens[packed.rows(number)])[None]
        with torch.no_grad():
            torch.testing.assert_close(part, model.model(ids).last_hidden_state[0], rtol=0, atol=1e-5)


def test_the_model_is_what_it_was(packed):
    model = decoder("qwen3", implementation="sdpa")
    ids = torch.arange(10)[None]
    before = model(ids).logits
    logprobs(model, packed, reference=True)
    with pytest.raises(RuntimeError, match="stop"), packed_model(model, packed, reference=True):
        raise RuntimeError("stop")
    assert torch.equal(model(ids).logits, before) and model.config._attn_implementation == "sdpa"
    assert model.generate(ids, max_new_tokens=3, do_sample=False).shape == (1, 13)
    hooks = len(model.model.layers[0].self_attn._forward_pre_hooks)
    for _ in range(3):
        logprobs(model, packed, reference=True)
    assert len(model.model.layers[0].self_attn._forward_pre_hooks) == hooks == 1
    assert not model._forward_pre_hooks


def test_copied_saved_and_compiled(packed):
    model = decoder()
    wanted = logprobs(model, packed, reference=True)
    assert torch.equal(logprobs(copy.deepcopy(model), packed, reference=True), wanted)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    assert torch.equal(logprobs(torch.load(file, weights_only=False), packed, reference=True), wanted)
    for layer in model.model.layers:
        layer.compile(backend="eager")
    torch.testing.assert_close(logprobs(model, packed, reference=True), wanted, rtol=0, atol=1e-5)
    with packed_model(model, packed, reference=True):
        model(packed.input_ids().clone())  # an equal tensor is accepted


def test_two_micro_batches_before_backward(packed):
    """Each checkpointed layer runs again over the forest of its own micro-batch."""
    model = decoder()
    (other,) = pack([group([1, 2, 3], [[4, 5], [6]])])
    weights = weights_of(packed)
    wanted = (replicated_logprobs(model, packed) * weights).sum() + replicated_logprobs(model, other).sum()
    of_copies = gradients(model, wanted)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    first, second = (logprobs(model, each, reference=True) for each in (packed, other))
    gc.collect()
    for name, value in gradients(model, (first * weights).sum() + second.sum()).items():
        assert (value - of_copies[name]).abs().max() <= 1e-5 * of_copies[name].abs().max()


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (
            "llama",
            {"attention_dropout": 0.1},
            "config.attention_dropout=0.0 in training over a forest, got 0.1",
        ),
        ("gpt2", {"n_embd": 64, "n_head": 2, "n_layer": 1}, "one of llama, mistral, .*, got 'gpt2'"),
        ("mamba", {}, "mamba has layers of (mamba|linear_attention), which run through"),
        (
            "qwen3_next",
            {"layer_types": ["linear_attention", "full_attention"]} | tiny_decoders.EXPERTS,
            "layers of linear_attention",
        ),
        (
            "qwen3_moe",
            {"output_router_logits": True} | tiny_decoders.EXPERTS,
            "output_router_logits=False, as the balance",
        ),
        (
            "llama",
            {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
            'RoPE of fixed frequencies, got rope_type "dynamic"',
        ),
    ],
)
def test_models_that_are_refused(packed, kind, options, message):
    model = decoder(kind, **options)
    with pytest.raises(attn.SpecError, match=message), packed_model(model, packed):
        pass


def test_dropout_counts_in_training_alone(packed):
    model = decoder(attention_dropout=0.1)
    model.model.layers[1].mlp.act_fn = torch.nn.Sequential(torch.nn.SiLU(), torch.nn.Dropout(0.2))
    model.config.attention_dropout = 0.0
    with pytest.raises(attn.SpecError, match="no dropout .*, got 0.2 of model.layers.1.mlp.act_fn.1"):
        logprobs(model, packed, reference=True)
    assert logprobs(model.eval(), packed, reference=True).isfinite().all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda m, ids: m(ids, attention_mask=torch.ones_like(ids)),
            "attention_mask: expected None beside a forest",
        ),
        (lambda m, ids: m(ids, position_ids=ids), "position_ids: expected None beside a forest"),
        (lambda m, ids: m(ids, past_key_values=()), "past_key_values: expected None beside a forest"),
        (lambda m, ids: m(ids, cache=()), "cache: expected None beside a forest"),
        (lambda m, ids: m(ids, labels=ids), "labels: .* take attn.training.edge_loss"),
        (lambda m, ids: m(inputs_embeds=torch.zeros(1, 2, 64)), "inputs_embeds: expected None"),
        (lambda m, ids: m(ids, use_cache=True), "use_cache: expected False beside a forest"),
        (lambda m, ids: m(ids, output_router_logits=True), "output_router_logits: expected False"),
        (lambda m, ids: m(ids[:, :-1]), r"input_ids: expected packed.input_ids\(device\), \[1, \d+\], got"),
        (lambda m, ids: m(ids + 1), "got other token ids"),
        (lambda m, ids: m(ids, ids), "expected input_ids and named arguments"),
        (lambda m, ids: m(ids), "expected bfloat16 or float16, got torch.float32; load the model in one"),
    ],
)
def test_calls_that_are_refused(packed, call, message):
    model = decoder()
    with pytest.raises(attn.TensorError, match=message), packed_model(model, packed):
        call(model, packed.input_ids())


def test_arguments_that_are_refused(packed):
    with pytest.raises(attn.SpecError, match="packed: expected what attn.training.pack gives"):
        packed_model(decoder(), packed.forest).__enter__()
    with (
        pytest.raises(attn.SpecError, match="a model of Transformers, got 'Linear'"),
        packed_model(torch.nn.Linear(2, 2), packed),
    ):
        pass
    with pytest.raises(attn.SpecError, match="a causal model of Transformers, with a head, got 'LlamaModel'"):
        logprobs(decoder().model, packed, reference=True)
    with pytest.raises(attn.SpecError, match="model: expected a model of Transformers, got 'NoneType'"):
        logprobs(None, packed)
    with pytest.raises(attn.SpecError, match="packed: expected what attn.training.pack gives, got None"):
        logprobs(None, None)
    with pytest.raises(attn.SpecError, match="chunk: expected a number of rows from 1 on, or None, got 0"):
        logprobs(decoder(), packed, chunk=0, reference=True)
    with pytest.raises(attn.TensorError, match=r"a label in \[0, 50\), as logits have, got"):
        logprobs(decoder(vocab_size=50), packed, reference=True)
    with pytest.raises(attn.SpecError, match="reference: expected True or False"):
        logprobs(decoder(), packed, reference=1)
