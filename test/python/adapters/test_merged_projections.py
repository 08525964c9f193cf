# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Projections of one input as one product: the same results, parameters and gradients, and fewer products."""

import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="Transformers is not installed")

import attn  # noqa: E402
import attn.transformers  # noqa: E402
import model_zoo  # noqa: E402

IDS = torch.randint(3, 90, (2, 9), generator=torch.Generator().manual_seed(0))


def build(name="Llama", implementation="sdpa", dtype=torch.float32, **changes):
    return model_zoo.build(getattr(transformers, f"{name}ForCausalLM"), implementation, dtype, 1, **changes)


class Products(torch.utils._python_dispatch.TorchDispatchMode):
    """Count matrix products with weights."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
        return function(*args, **(kwargs or {}))


def products(model):
    with torch.no_grad(), Products() as found:
        logits = model(IDS).logits
    return found.count, logits


@pytest.mark.parametrize("name,biased", [("Llama", False), ("Qwen2", True), ("Mistral", False)])
def test_the_same_logits_by_fewer_products(name, biased):
    model = build(name)
    assert (model.model.layers[0].self_attn.k_proj.bias is not None) == biased
    state = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    before, logits = products(model)
    assert attn.transformers.merge_projections(model) == 2 * model_zoo.LAYERS
    after, merged = products(model)
    assert before - after == 3 * model_zoo.LAYERS
    torch.testing.assert_close(merged, logits, atol=1e-4, rtol=1e-4)
    found = model.state_dict()
    assert list(found) == list(state) and all(torch.equal(found[key], state[key]) for key in state)
    assert attn.transformers.merge_projections(model) == 0


def test_weights_lie_once_and_may_be_loaded_anew():
    model, other = build(), build(initializer_range=0.1)
    attn.transformers.merge_projections(model)
    attention = model.model.layers[1].self_attn
    storages = {
        p.weight.untyped_storage().data_ptr() for p in (attention.q_proj, attention.k_proj, attention.v_proj)
    }
    assert storages == {attention.k_proj.weights.untyped_storage().data_ptr()}
    model.load_state_dict(other.state_dict())
    torch.testing.assert_close(products(model)[1], products(other)[1], atol=1e-4, rtol=1e-4)


def test_projections_of_several_inputs():
    """Projections of several inputs, called in any order, use no product of another input."""
    module = torch.nn.Module()
    for name in ("q_proj", "k_proj", "v_proj"):
        setattr(module, name, torch.nn.Linear(8, 4))
    plain = {name: torch.nn.Linear(8, 4) for name in ("q_proj", "k_proj", "v_proj")}
    for name, each in plain.items():
        each.load_state_dict(getattr(module, name).state_dict())
    assert attn.transformers.merge_projections(module) == 1
    inputs = [torch.randn(3, 8) for _ in range(3)]
    with torch.no_grad():
        for name, which in (
            ("k_proj", 0),
            ("q_proj", 0),
            ("q_proj", 1),
            ("k_proj", 2),
            ("v_proj", 0),
            ("v_proj", 1),
        ):
            torch.testing.assert_close(getattr(module, name)(inputs[which]), plain[name](inputs[which]))
        assert module.q_proj.group.held is None  # nothing is kept after the last one


def test_gradients_are_of_the_parameters():
    model, plain = build("Qwen2"), build("Qwen2")
    attn.transformers.merge_projections(model)
    for each in (model, plain):
        each(IDS, labels=IDS).loss.backward()
    expected = dict(plain.named_parameters())
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight.grad, expected[name].grad)


def test_what_stays_as_it_is():
    model = build()
    layers = model.model.layers
    layers[0].self_attn.k_proj.register_forward_hook(lambda *args: None)
    layers[1].mlp.up_proj = torch.nn.Sequential(layers[1].mlp.up_proj)
    before = products(model)
    assert attn.transformers.merge_projections(model) == 2
    torch.testing.assert_close(products(model)[1], before[1], atol=1e-4, rtol=1e-4)
    with pytest.raises(attn.PlanError, match="model: expected a torch.nn.Module"):
        attn.transformers.merge_projections("model")


@pytest.mark.parametrize("implementation,dtype", [("sdpa", torch.float32), ("attn", torch.bfloat16)])
def test_recorded_steps_of_a_merged_model(implementation, dtype):
    """Compiled code keeps no product after its step, and is compiled once."""
    torch.compiler.reset()
    model = build(implementation=implementation, dtype=dtype, initializer_range=0.3, eos_token_id=None)
    attn.transformers.merge_projections(model)
    decoder = attn.transformers.Decoder(
        model, sequences=2, tokens=20, compile={"backend": "aot_eager", "fullgraph": True}
    )
    found = decoder.generate(IDS, max_new_tokens=8)
    with torch.compiler.set_stance("fail_on_recompile"):
        assert torch.equal(decoder.generate(IDS, max_new_tokens=8), found)
    assert torch.equal(
        found, model.generate(IDS, attention_mask=torch.ones_like(IDS), max_new_tokens=8, do_sample=False)
    )
    assert all(layer.self_attn.q_proj.group.held is None for layer in model.model.layers)
