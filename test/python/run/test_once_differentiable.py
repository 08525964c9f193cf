# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Second derivatives and forward derivatives are refused by name on every path, also where PyTorch would take zeros."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")

import attn  # noqa: E402
from attn.heads.two_outputs import attend_both, attend_streaming  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402

TOKENS = 9
TWICE = r"^attn does not support second derivatives: .* create_graph=False"
FORWARD = (
    r"^attn does not support torch\.func\.jvp, jacfwd and torch\.autograd\.forward_ad; differentiate with"
)


def leaves(gradient=True):
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
    q, k, v = leaves(False)
    tables = {"q_start": [0, TOKENS], "kv.start": [0, TOKENS], "kv.lengths": [TOKENS]}
    return kernel, kernel.plan({"q": q, "kv.k": k, "kv.v": v, "q_pos": list(range(TOKENS)), **tables})


def dense(q, k, v, **options):
    return attn.attend(q[None], k[None], v[None], causal=True, **options)


def operator(q, k, v):
    return torch.ops.attn.attend(q[None], k[None], v[None], [], causal=True)[0]


PATHS = {
    "attend": dense,
    "attend, reference": lambda *given: dense(*given, reference=True),
    "attend, packed": lambda *given: attn.attend(*given, causal=True, cu_seqlens=[0, 4, TOKENS]),
    "attend, compiled": torch.compile(dense, backend="eager"),
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
    tensors = leaves()
    (once,) = torch.autograd.grad(loss(recorded(*tensors).float()), tensors[:1], create_graph=True)
    wanted = torch.autograd.grad(loss(recorded(*tensors).float()), tensors[:1])[0]
    assert torch.equal(once, wanted) and once.requires_grad
    with pytest.raises(attn.TensorError, match=TWICE):
        torch.autograd.grad(once.float().sum(), tensors[of : of + 1], allow_unused=True)


def test_second_derivatives_by_the_gradient_of_the_output(recorded):
    tensors = leaves()
    out = recorded(*tensors)
    weights = torch.ones_like(out).requires_grad_()
    (once,) = torch.autograd.grad(out, tensors[:1], weights, create_graph=True)
    with pytest.raises(attn.TensorError, match=TWICE):
        torch.autograd.grad(once.float().sum(), weights, allow_unused=True)


def test_products_with_the_hessian(recorded):
    q, k, v = leaves(False)
    with pytest.raises(attn.TensorError, match=TWICE):
        torch.autograd.functional.hvp(lambda q: recorded(q, k, v).float().sum(), q, torch.ones_like(q))


def refuses_forward_mode(path, tensors, of):
    with forward_ad.dual_level():
        tensors[of] = forward_ad.make_dual(tensors[of], torch.ones_like(tensors[of]))
        with pytest.raises(attn.TensorError, match=FORWARD):
            path(*tensors)


@pytest.mark.parametrize("of", [0, 1, 2])
def test_forward_mode(path, of):
    refuses_forward_mode(path, leaves(False), of)


def test_forward_mode_where_autograd_records(recorded):
    refuses_forward_mode(recorded, leaves(), 0)


def test_forward_mode_of_other_tensors(planned):
    """Tensors without tangents may be given while forward mode is on for others."""
    kernel, plan = planned
    q, k, v = leaves(False)
    wanted = dense(q, k, v)
    with forward_ad.dual_level():
        assert torch.equal(dense(q, k, v), wanted) and torch.equal(kernel.run(q, (k, v), plan), wanted[0])


@pytest.mark.parametrize("of", [0, 1, 2])
def test_transforms(path, of):
    tensors = leaves(False)

    def of_one(tensor):
        return path(*tensors[:of], tensor, *tensors[of + 1 :])

    with pytest.raises(attn.TensorError, match=FORWARD.removesuffix("; differentiate with")):
        torch.func.jvp(of_one, (tensors[of],), (torch.ones_like(tensors[of]),))
    with pytest.raises(
        attn.TensorError, match=r"attn does not support torch\.func\.vmap; call it on the whole"
    ):
        torch.func.vmap(of_one)(tensors[of][None])


def test_vmap_of_operators():
    q, k, v = (each[None] for each in leaves(False))
    with pytest.raises(attn.TensorError, match=r"^attn::attend: attn does not support torch\.func\.vmap"):
        torch.func.vmap(operator)(q, k, v)
