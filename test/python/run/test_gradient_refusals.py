# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients that do not exist are refused by name: so are second derivatives and forward derivatives on every path, also
where PyTorch would take zeros."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")

import attn  # noqa: E402
from attn.heads.two_outputs import attend_both, attend_streaming  # noqa: E402
from attn.run.backward import check_place  # noqa: E402
from gradient_tensors import dense, leaves  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402


@pytest.fixture(autouse=True)
def forget_compiled_code():
    """PyTorch runs functions eagerly whose compiled code has raised: later tests would not compile them."""
    yield
    torch._dynamo.reset()


def refused(message):
    return pytest.raises(attn.TensorError, match=message)


def test_refusals_of_attend():
    q, k, v = dense(dim=16, dtype=torch.bfloat16)
    with refused("out: expected None where a gradient is required"):
        attn.attend(q, k, v, out=torch.empty_like(q))
    with refused("out: expected None of the reference"):
        attn.attend(q.detach(), k.detach(), v.detach(), out=torch.empty_like(q), reference=True)
    with refused("k: expected a tensor of PyTorch, got ndarray"):
        attn.attend(q, k.detach().float().numpy(), v)
    with refused("v: expected the dtype of q, torch.bfloat16, got torch.float16"):
        attn.attend(q, k, v.detach().half())
    with refused("q: the reference reads CPU memory, got a tensor on meta; nearest: q.cpu()"):
        attn.attend(q.detach().to("meta"), k, v, reference=True)
    with refused(r"k: expected \[batch, seq, heads, dim\] of"):
        attn.attend(q, k.detach()[:, :3], v)
    with refused("reference: expected True or False, got 'yes'"):
        attn.attend(q, k, v, reference="yes")
    for number in (0, 1, 0.0, "apart"):
        with refused(f"ordered: expected True, False or None, got {number!r}"):
            attn.attend(q, k, v, ordered=number)
    with refused(
        "ordered: expected True or None beside numerics='row', whose gradients always have an order"
    ):
        attn.attend(q, k, v, ordered=False, numerics="row")
    with refused("q: expected floats of 16, 32 or 64 bits, got torch.int32"):
        attn.attend(q.detach().int(), k, v, reference=True)


def test_refusals_of_forests():
    q, k, v = leaves((4, 2, 16), (4, 1, 16), (4, 1, 16), dtype=torch.bfloat16)
    forest = attn.Forest([0, 4], [-1])
    with refused("q: expected the 4 tokens of the forest, each a row, got 3"):
        attn.attend(q[:3], k, v, causal=True, forest=forest)
    with refused("cu_seqlens: expected None beside forest"):
        attn.attend(q, k, v, causal=True, forest=forest, cu_seqlens=[0, 4])
    with refused(r"q: expected 3 dimensions, \[tokens, heads, dim\]"):
        attn.attend(q[None], k[None], v[None], causal=True, forest=forest)
    with pytest.raises(attn.PlanError, match="forest: expected an attn.Forest, got list"):
        attn.attend(q.detach(), k.detach(), v.detach(), causal=True, forest=[0, 4])


def test_gradients_of_wrong_shape_are_refused():
    given = dense(dim=16, dtype=torch.bfloat16)
    out = attn.attend(*given, causal=True)
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        out.backward(torch.ones(2, 3, 4, 8))


def test_pages_and_codes_are_refused_by_name():
    q = torch.zeros(1, 2, 32, dtype=torch.bfloat16, requires_grad=True)
    for store, message in (
        (attn.Paged(), "kv: a paged store has no gradients"),
        (
            attn.Packed(value="int8"),
            r"kv: values in a quantized format \(value='int8', value_group=32\) have no gradients",
        ),
    ):
        kernel = attn.compile(
            attn.Spec(q_heads=2, kv_heads=1, head_dim=32, dtype="bfloat16", kv=[store], see=attn.causal()),
            device="host",
        )
        with refused(message):
            kernel.run(q, (q, q), object())


def test_what_no_kernel_makes_is_said_before_the_forward_pass():
    """On a GPU, for which a tensor without memory stands here, unsupported gradients are refused before the forward
    pass."""
    q = torch.empty(1, 2, 16, dtype=torch.bfloat16, device="meta")
    data = {"q": q, "kv.k": q, "kv.v": q}
    check_place(object(), data)
    for kernel, given, why in (
        ("it has classes", data, r"no kernel gives the gradients of this description \(it has classes\)"),
        (object(), data | {"q": q.float()}, "bfloat16 and float16, not in torch.float32"),
    ):
        with refused(why):
            check_place(kernel, given)
        check_place(kernel, {name: torch.empty(0, dtype=t.dtype) for name, t in given.items()})


# --- Second and forward derivatives --------------------------------------------------------------------------

TOKENS = 9
TWICE = r"^attn does not support second derivatives: .* create_graph=False"
FORWARD = (
    r"^attn does not support torch\.func\.jvp, jacfwd and torch\.autograd\.forward_ad; differentiate with"
)


def of_tokens(gradient=True):
    """Return q, k and v, packed: [tokens, heads, dim]."""
    torch.manual_seed(0)
    made = [torch.randn(TOKENS, 2, 64, dtype=torch.bfloat16) for _ in range(3)]
    return [each.requires_grad_(gradient) for each in made]


def swapped(q, k, v):
    return [each[None].transpose(1, 2) for each in (q, k, v)]


@pytest.fixture(scope="module")
def planned():
    spec = attn.Spec(
        q_heads=2,
        kv_heads=2,
        head_dim=64,
        dtype="bfloat16",
        kv=[attn.Packed()],
        see=attn.causal(),
        return_lse=True,
    )
    kernel = attn.compile(spec, device="host")
    q, k, v = of_tokens(False)
    tables = {"q_start": [0, TOKENS], "kv.start": [0, TOKENS], "kv.lengths": [TOKENS]}
    return kernel, kernel.plan({"q": q, "kv.k": k, "kv.v": v, "q_pos": list(range(TOKENS)), **tables})


def causal(q, k, v, **options):
    return attn.attend(q[None], k[None], v[None], causal=True, **options)


def operator(q, k, v):
    return torch.ops.attn.attend(q[None], k[None], v[None], [], causal=True)[0]


PATHS = {
    "attend": causal,
    "attend, reference": lambda *given: causal(*given, reference=True),
    "attend, packed": lambda *given: attn.attend(*given, causal=True, cu_seqlens=[0, 4, TOKENS]),
    "attend, compiled": torch.compile(causal, backend="eager"),
    "operator": operator,
    "Kernel.run": None,
    "Kernel.run, compiled": None,
    "both outputs, PyTorch": lambda *given: attend_both(*swapped(*given), sink=1, recent=3, by="torch")[0],
    "both outputs": lambda *given: attend_both(*swapped(*given), sink=1, recent=3, by="kernels")[2],
    "streaming": lambda *given: attend_streaming(*swapped(*given), 0.125, 1, 3, by="kernels"),
}


def path_of(name, planned):
    if PATHS[name] is not None:
        return PATHS[name]
    kernel, plan = planned

    def run(q, k, v):
        return kernel.run(q, (k, v), plan)

    return torch.compile(run, backend="eager") if name.endswith("compiled") else run


@pytest.fixture(params=PATHS)
def path(request, planned):
    return path_of(request.param, planned)


@pytest.fixture(params=[name for name in PATHS if name != "Kernel.run, compiled"])
def recorded(request, planned):
    """Return a path that has gradients."""
    return path_of(request.param, planned)


# A sum has no gradient that depends on the output: PyTorch's own check lets its second derivatives pass as zeros.
@pytest.mark.parametrize("loss", [lambda out: out.sum(), lambda out: out.square().sum()])
@pytest.mark.parametrize("of", [0, 1, 2])
def test_second_derivatives(recorded, loss, of):
    tensors = of_tokens()
    (once,) = torch.autograd.grad(loss(recorded(*tensors).float()), tensors[:1], create_graph=True)
    wanted = torch.autograd.grad(loss(recorded(*tensors).float()), tensors[:1])[0]
    assert torch.equal(once, wanted) and once.requires_grad
    with pytest.raises(attn.TensorError, match=TWICE):
        torch.autograd.grad(once.float().sum(), tensors[of : of + 1], allow_unused=True)


def test_second_derivatives_by_the_gradient_of_the_output(recorded):
    tensors = of_tokens()
    out = recorded(*tensors)
    weights = torch.ones_like(out).requires_grad_()
    (once,) = torch.autograd.grad(out, tensors[:1], weights, create_graph=True)
    with pytest.raises(attn.TensorError, match=TWICE):
        torch.autograd.grad(once.float().sum(), weights, allow_unused=True)


def test_products_with_the_hessian(recorded):
    q, k, v = of_tokens(False)
    with pytest.raises(attn.TensorError, match=TWICE):
        torch.autograd.functional.hvp(lambda q: recorded(q, k, v).float().sum(), q, torch.ones_like(q))


def refuses_forward_mode(path, tensors, of):
    with forward_ad.dual_level():
        tensors[of] = forward_ad.make_dual(tensors[of], torch.ones_like(tensors[of]))
        with pytest.raises(attn.TensorError, match=FORWARD):
            path(*tensors)


@pytest.mark.parametrize("of", [0, 1, 2])
def test_forward_mode(path, of):
    refuses_forward_mode(path, of_tokens(False), of)


def test_forward_mode_where_autograd_records(recorded):
    refuses_forward_mode(recorded, of_tokens(), 0)


def test_forward_mode_of_other_tensors(planned):
    """Tensors without tangents may be given while forward mode is on for others."""
    kernel, plan = planned
    q, k, v = of_tokens(False)
    wanted = causal(q, k, v)
    with forward_ad.dual_level():
        assert torch.equal(causal(q, k, v), wanted) and torch.equal(kernel.run(q, (k, v), plan), wanted[0])


@pytest.mark.parametrize("of", [0, 1, 2])
def test_transforms(path, of):
    tensors = of_tokens(False)

    def of_one(tensor):
        return path(*tensors[:of], tensor, *tensors[of + 1 :])

    with pytest.raises(attn.TensorError, match=FORWARD.removesuffix("; differentiate with")):
        torch.func.jvp(of_one, (tensors[of],), (torch.ones_like(tensors[of]),))
    with pytest.raises(
        attn.TensorError, match=r"attn does not support torch\.func\.vmap; call it on the whole"
    ):
        torch.func.vmap(of_one)(tensors[of][None])


def test_vmap_of_operators():
    q, k, v = (each[None] for each in of_tokens(False))
    with pytest.raises(attn.TensorError, match=r"^attn::attend: attn does not support torch\.func\.vmap"):
        torch.func.vmap(operator)(q, k, v)
