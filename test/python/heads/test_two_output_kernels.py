# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Full and streaming attention by one kernel: both outputs, both LSEs and gradients, against float64."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import attn  # noqa: E402
from attn.heads import attend_both, two_outputs  # noqa: E402
from attn.heads.two_output_kernels import Streaming, TwoOutputs  # noqa: E402
from attn.heads.two_outputs import attend_streaming  # noqa: E402
from attn.run.kernel import Kernel  # noqa: E402

TOLERANCE = {torch.bfloat16: 8e-3, torch.float16: 1e-3}


def tensors(tokens, batch=2, q_heads=4, kv_heads=2, dim=64, value_dim=None, dtype=torch.bfloat16, seed=0):
    """Return tensors in the memory order of a model's projections, [batch, tokens, heads, dim], with heads before
    tokens."""
    random = torch.Generator().manual_seed(seed)
    shapes = (q_heads, dim), (kv_heads, dim), (kv_heads, value_dim or dim)
    made = [torch.randn(batch, tokens, heads, d, generator=random).to(dtype) for heads, d in shapes]
    return [x.transpose(1, 2) for x in made]


def error(found, wanted):
    return ((found.double() - wanted).norm(dim=-1) / wanted.norm(dim=-1).clamp(min=1e-30)).max()


def expect_near(found, q, k, v, **sizes):
    wanted = attend_both(*(x.detach().double() for x in (q, k, v)), **sizes)
    for name, out, exact in zip(("full", "near"), found[::2], wanted[::2], strict=True):
        assert out.dtype == q.dtype and error(out, exact) <= TOLERANCE[q.dtype], name
    for lse, exact in zip(found[1::2], wanted[1::2], strict=True):
        assert lse.dtype == torch.float32 and (lse - exact).abs().max() <= 2e-3


SIZES = [
    (300, {"sink": 4, "recent": 40}),
    (300, {"sink": 0, "recent": 1}),
    (129, {"sink": 130, "recent": 7}),  # no token is left for the rest
    (260, {"sink": 100, "recent": 400}),  # all tokens are recent
    (333, {"sink": 5, "recent": 64, "window": 100}),
    (200, {"sink": 3, "recent": 30, "window": 20}),  # the window hides the rest
    (1, {"sink": 1, "recent": 1}),
]


@pytest.mark.parametrize("tokens,sizes", SIZES)
def test_both_outputs(tokens, sizes):
    q, k, v = tensors(tokens)
    expect_near(attend_both(q, k, v, by="kernels", **sizes), q, k, v, **sizes)


@pytest.mark.parametrize(
    "shape",
    [
        {"q_heads": 2, "kv_heads": 2, "dim": 128, "dtype": torch.float16},
        {"q_heads": 6, "kv_heads": 2, "dim": 96, "value_dim": 72},
        {"q_heads": 8, "kv_heads": 1, "dim": 256, "batch": 1},
    ],
)
def test_heads_of_all_kinds(shape):
    q, k, v = tensors(150, **shape)
    expect_near(attend_both(q, k, v, sink=8, recent=33, by="kernels"), q, k, v, sink=8, recent=33)


@pytest.mark.parametrize("schedule", ("mma", "wgmma"))
def test_no_race_and_no_stray_access(schedule):
    """Under the detectors, on tensors of exact size, the host device throws at the first finding."""
    q, k, v = (x.transpose(1, 2) for x in tensors(280, batch=1))
    described = TwoOutputs(4, 2, 64, 64, "bfloat16", 0.125, Streaming(10, 50, 0), rest_window=0)
    kernel = attn.compile(described, device="host", schedule=schedule, checked=True)
    tables = {"q_start": [0, 280], "q_pos": list(range(280))}
    tables |= {"near.lengths": [280], "near.pos0": [0], "rest.lengths": [270], "rest.pos0": [60]}
    rest = k[:, 10:].contiguous(), v[:, 10:].contiguous()
    rows = q.flatten(0, 1)
    data = {"q": rows, "near.k": k, "near.v": v, "rest.k": rest[0], "rest.v": rest[1]}
    plan = kernel.plan(data | tables)
    found = kernel.run(rows, (k, v), rest, plan)
    assert kernel.schedule == schedule and plan.stats["cuts"] == 0
    as_heads = [x.unflatten(0, (1, 280)).transpose(1, 2) for x in found]
    expect_near(as_heads, *(x.transpose(1, 2) for x in (q, k, v)), sink=10, recent=50)


@pytest.mark.parametrize("given", ((0, 1, 2, 3), (0,), (2, 3)))
@pytest.mark.parametrize("sizes", ({"sink": 4, "recent": 30}, {"sink": 4, "recent": 30, "window": 70}))
def test_gradients(sizes, given):
    """Gradients of q, k and v, for each choice of used results, are as exact as their type."""
    q, k, v = (x.detach().requires_grad_() for x in tensors(150, batch=1))
    found = attend_both(q, k, v, by="kernels", **sizes)
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    wanted = attend_both(*exact, **sizes)
    random = torch.Generator().manual_seed(1)
    grads = [torch.randn(wanted[i].shape, generator=random).to(found[i].dtype) for i in given]
    torch.autograd.backward([found[i] for i in given], grads)
    torch.autograd.backward([wanted[i] for i in given], [grad.double() for grad in grads])
    for x, of in zip((q, k, v), exact, strict=True):
        assert x.grad.dtype == x.dtype
        assert (x.grad - of.grad).norm() <= 1.5e-2 * of.grad.norm()


@pytest.mark.parametrize("sink,recent", ((4, 30), (0, 30)))
def test_streaming_alone(sink, recent):
    """By kernels it is the streaming output of both, and has its gradients; also for tensors of another memory order."""
    q, k, v = (x.detach().contiguous().requires_grad_() for x in tensors(150, batch=1))
    found = attend_streaming(q, k, v, 0.125, sink, recent, by="kernels")
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    wanted = attend_both(*exact, sink=sink, recent=recent)[2]
    assert found.dtype == q.dtype and error(found, wanted) <= TOLERANCE[q.dtype]
    grad = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(1)).to(found.dtype)
    found.backward(grad)
    wanted.backward(grad.double())
    for x, of in zip((q, k, v), exact, strict=True):
        assert (x.grad - of.grad).norm() <= 1.5e-2 * of.grad.norm()


def test_the_gates_gradient():
    """The gradient is the sum of <d_out, full - streaming> over outputs of kernels."""
    from attn.heads.two_outputs import mix

    q, k, v = tensors(200, batch=1)
    gates = torch.tensor([0.25, 0.75], requires_grad=True)
    full, _, near, _ = attend_both(q, k, v, sink=4, recent=30, by="kernels")
    d_out = torch.randn(full.shape, generator=torch.Generator().manual_seed(2))
    mix(full, near, gates).backward(d_out)
    full, _, near, _ = attend_both(*(x.double() for x in (q, k, v)), sink=4, recent=30)
    wanted = (d_out.double() * (full - near)).unflatten(1, (2, 2)).sum((0, 2, 3, 4))
    assert ((gates.grad - wanted).abs() <= 2e-2 * d_out.norm()).all()


def test_sizes_share_a_kernel():
    """Sizes share a kernel, also the sizes that the form itself has."""
    q, k, v = tensors(90, batch=1)
    for sizes in ({"sink": 2, "recent": 9}, {"sink": 1, "recent": 2}, {"sink": 1, "recent": 2, "window": 3}):
        expect_near(attend_both(q, k, v, by="kernels", **sizes), q, k, v, **sizes)
    one, other = (
        TwoOutputs(4, 2, 64, 64, "bfloat16", 0.125, Streaming(*s), 0) for s in ((9, 5, 0), (4, 70, 0))
    )
    assert one.form() == other.form() and one.ends([1, 2]) == [9, 5]


@pytest.mark.parametrize(
    "dtypes,named,message",
    [
        ((torch.float32,) * 3, {}, "q, k, v: expected bfloat16 or float16, all three, got torch.float32"),
        (
            (torch.bfloat16, torch.bfloat16, torch.float16),
            {},
            "q, k, v: expected bfloat16 or float16, all three",
        ),
        (
            (torch.bfloat16,) * 3,
            {"by": "kernel"},
            "by: expected auto, kernels, torch, got 'kernel'.*'kernels'",
        ),
    ],
)
def test_refusals(dtypes, named, message):
    given = [x.to(dtype) for x, dtype in zip(tensors(20), dtypes, strict=True)]
    with pytest.raises(attn.TensorError, match=message):
        attend_both(*given, sink=1, recent=1, **({"by": "kernels"} | named))


def test_heads_whose_gradients_no_kernel_gives(monkeypatch):
    """Heads of 256 features on a chip of less shared memory have no gradients by kernels."""
    q, k, v = tensors(20, dim=256)
    assert attend_both(q, k, v, sink=1, recent=4, by="kernels")[0].shape == q.shape
    monkeypatch.setattr(Kernel, "_backward", lambda *given: "no schedule of a backward pass")
    with pytest.raises(
        attn.TensorError, match="no kernel gives the gradients of heads of 256 and 256 features"
    ):
        attend_both(q.requires_grad_(), k, v, sink=1, recent=4, by="kernels")


def test_two_attentions_are_run_as_they_stand():
    described = TwoOutputs(4, 2, 64, 64, "bfloat16", 0.125, Streaming(2, 5, 0), rest_window=0)
    kernel = attn.compile(described, device="host")
    rows, k, v = (x.transpose(1, 2).contiguous() for x in tensors(20, batch=1))
    rows = rows.flatten(0, 1)
    data = {"q": rows, "near.k": k, "near.v": v, "rest.k": k, "rest.v": v, "near.pos0": [0], "rest.pos0": [0]}
    plan = kernel.plan(data | {"q_start": [0, 20]})
    with pytest.raises(attn.TensorError, match="two attentions is run as it stands, under torch.no_grad"):
        kernel.run(rows.requires_grad_(), (k, v), (k, v), plan)


def test_heads_are_found_by_kernels(monkeypatch):
    """On a device where "auto" takes kernels, which the test sets here, gates are those of PyTorch up to half
    precision."""
    transformers = pytest.importorskip("transformers", reason="Transformers is not installed")
    sizes = {"hidden_size": 128, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 50}
    config = transformers.LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2)
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)

    def data(step):
        random = torch.Generator().manual_seed(step)
        return torch.randint(50, (1, 96), generator=random), torch.ones(1, 96, dtype=torch.bool)

    sizes = {"sink": 2, "recent": 9, "steps": 3, "blend": "paper", "initial": 0.5}
    by_torch = attn.heads.identify(model, data, **sizes)
    used = []
    monkeypatch.setattr(two_outputs, "_takes_kernels", lambda *given: used.append(given) or True)
    by_kernels = attn.heads.identify(model, data, **sizes)
    assert len(used) == 3 * 2 and (by_kernels.values != 0.5).any()
    assert abs(by_kernels.values - by_torch.values).max() < 1e-2
