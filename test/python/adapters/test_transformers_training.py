# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models that train with attn as their attention: every mask has the gradients of the mask that it stands for."""

import copy
import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="Transformers is not installed")

import attn  # noqa: E402
import attn.transformers  # noqa: E402
from attn.adapters.head_gates import LayerGates  # noqa: E402
from attn.run.kernel import Kernel  # noqa: E402
from test_transformers_masks import BATCH, DIM, HEADS, MASKS, STEPS, make_mask  # noqa: E402

TOLERANCE = 8e-3  # of a gradient as a whole, in float16


@pytest.fixture(autouse=True)
def refuses():
    """Turn the fallback to PyTorch off."""
    attn.transformers.set_fallback(False)
    yield
    attn.transformers.set_fallback(True)


def exact(q, k, v, seen, softcap, sinks):
    """Return attention in float64; rows that see nothing give zeros."""
    k, v = (tensor.repeat_interleave(q.shape[1] // tensor.shape[1], 1) for tensor in (k, v))
    scores = q @ k.mT * DIM**-0.5
    scores = (softcap * torch.tanh(scores / softcap) if softcap else scores).masked_fill(~seen, -torch.inf)
    of_sinks = sinks[:, None, None].expand(*scores.shape[:3], 1)
    return (torch.cat([scores, of_sinks], -1).softmax(-1)[..., :-1] @ v).transpose(1, 2)


@pytest.mark.parametrize("name", [*MASKS, *STEPS])
def test_gradients_of_masks(name):
    """Gradients of queries, keys, values and sinks match float64, and hidden keys get zeros."""
    function, options = (MASKS | STEPS)[name]
    sizes = {"q_length": 40, "kv_length": 40} | options
    mask = make_mask(BATCH, **sizes, mask_function=function, dtype=torch.float16)
    torch.manual_seed(0)
    rows, tokens = mask.shape[2:]
    shapes = (HEADS, rows), (2, tokens), (2, tokens)
    given = [torch.randn(BATCH, *shape, DIM).half().requires_grad_() for shape in shapes]
    sinks = torch.randn(HEADS, requires_grad=True)
    out, _ = attn.transformers.attention_forward(
        torch.nn.Module(), *given, mask, softcap=20.0, s_aux=sinks, is_causal=True
    )
    twins = [tensor.detach().double().requires_grad_() for tensor in (*given, sinks)]
    seen = mask.dense() == 0
    wanted = exact(*twins[:3], seen, 20.0, twins[3])
    d_out = torch.randn_like(out)
    found = torch.autograd.grad(out, [*given, sinks], d_out)
    for one, other in zip(found, torch.autograd.grad(wanted, twins, d_out.double()), strict=True):
        assert (one.double() - other).norm() <= TOLERANCE * other.norm()
    hidden = ~seen.any(2)[:, 0]
    assert not found[1].transpose(1, 2)[hidden].any() and not found[2].transpose(1, 2)[hidden].any()


MODELS = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM, {}),
    "mistral with a window": (
        transformers.MistralConfig,
        transformers.MistralForCausalLM,
        {"sliding_window": 8},
    ),
    "gemma 2": (
        transformers.Gemma2Config,
        transformers.Gemma2ForCausalLM,
        {"sliding_window": 8, "query_pre_attn_scalar": 32, "attn_logit_softcapping": 20.0},
    ),
    "gpt-oss": (
        transformers.GptOssConfig,
        transformers.GptOssForCausalLM,
        {"num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": 8},
    ),
}


def model_of(name, implementation, dtype):
    config, model, extra = MODELS[name]
    sizes = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "vocab_size": 61,
        "pad_token_id": 0,
    }
    torch.manual_seed(0)
    made = model(config(**(sizes | extra), attn_implementation=implementation))
    return made.to(dtype).train()


def learnt(model, ids, mask, **options):
    """Return gradients of all weights, concatenated."""
    model.zero_grad()
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, 1:].masked_fill_(mask[:, :-1] == 0, -100)  # predictions from padding do not count
    model(input_ids=ids, attention_mask=mask, labels=labels, use_cache=False, **options).loss.backward()
    return torch.cat(
        [weight.grad.double().flatten() for weight in model.parameters() if weight.grad is not None]
    )


@pytest.mark.parametrize("name", MODELS)
def test_models_train(name):
    """In bfloat16, with sequences padded on either side, gradients are no further from float32 than those of eager
    attention, up to chance."""
    ids = torch.randint(1, 61, (2, 37), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[0, :9], mask[1, 30:] = 0, 0
    wanted = learnt(model_of(name, "eager", torch.float32), ids, mask)
    ours, eager = (
        (learnt(model_of(name, implementation, torch.bfloat16), ids, mask) - wanted).norm() / wanted.norm()
        for implementation in ("attn", "eager")
    )
    assert ours <= 1.2 * eager and eager < 0.05


def test_checkpointing_gives_the_same_bits():
    ids = torch.randint(1, 61, (2, 20), generator=torch.Generator().manual_seed(2))
    model = model_of("llama", "attn", torch.bfloat16)
    plain = learnt(model, ids, torch.ones_like(ids))
    model.gradient_checkpointing_enable({"use_reentrant": False})
    assert torch.equal(learnt(model, ids, torch.ones_like(ids)), plain)


def test_a_model_learns():
    """A model trains under autocast, with float32 weights as trainers keep them, on batches of different lengths."""
    model = model_of("llama", "attn", torch.float32)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for step in range(12):
        ids = torch.arange(1, 25 + step % 3).expand(2, -1) % 7 + 1
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_what_does_not_train_is_refused_by_name(monkeypatch):
    q, k = torch.randn(1, 2, 9, 32).bfloat16().requires_grad_(), torch.randn(1, 1, 9, 32).bfloat16()
    forward = lambda *given: attn.transformers.attention_forward(*given, None, is_causal=True)[0]  # noqa: E731
    gated = torch.nn.Module()
    gated.attn_head_gates = LayerGates((0,), 1, 8)
    with pytest.raises(attn.TensorError, match=r"a backward pass beside head gates \(use torch.no_grad"):
        forward(gated, q, k, k)
    large = copy.deepcopy(q).detach().repeat(1, 1, 1, 8).requires_grad_()
    forward(torch.nn.Module(), large, large, large).sum().backward()
    assert large.grad.isfinite().all() and large.grad.abs().sum() > 0
    with monkeypatch.context() as patch:  # a chip of less shared memory
        patch.setattr(Kernel, "_backward", lambda *given: "no schedule of a backward pass")
        with pytest.raises(attn.TensorError, match="a backward pass of heads of 256 and 256 features"):
            forward(torch.nn.Module(), large, large, large)
    with pytest.raises(Exception, match="a backward pass in compiled code"):
        torch.compile(lambda q: forward(torch.nn.Module(), q, k, k), backend="eager", fullgraph=True)(q)
