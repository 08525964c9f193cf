# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors as frameworks hand them to attn.attend: autocast, expanded dimensions, odd strides and addresses, sequences
between each other's tokens, offsets that end before a fixed buffer."""

import attn
import numpy
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def normal(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


# Tensors [batch, seq, heads, dim] that lie in memory in many ways.
FORMS = {
    "dense": lambda b, s, h, d: normal(b, s, h, d),
    "heads first": lambda b, s, h, d: normal(b, h, s, d).transpose(1, 2),
    "sequences first": lambda b, s, h, d: normal(s, b, h, d).transpose(0, 1),
    "one head": lambda b, s, h, d: normal(b, s, 1, d).expand(b, s, h, d),
    "one sequence": lambda b, s, h, d: normal(1, s, h, d).expand(b, s, h, d),
    "one token": lambda b, s, h, d: normal(b, 1, h, d).expand(b, s, h, d),
    "odd strides": lambda b, s, h, d: normal(b, s, h, d + 3)[..., :d],
    "odd address": lambda b, s, h, d: normal(b * s * h * d + 3)[3:].view(b, s, h, d),
    "features apart": lambda b, s, h, d: normal(b, s, d, h).transpose(2, 3),
    "a cache": lambda b, s, h, d: normal(b, s + 20, h, d)[:, :s],
    "a cache, heads first": lambda b, s, h, d: normal(b, h, s + 20, d)[:, :, :s].transpose(1, 2),
    "fused": lambda b, s, h, d: normal(b, s, 3, h, d)[:, :, 1],
}
KEYS = {form: (form, form) for form in FORMS} | {
    "two forms": ("dense", "heads first"),
    "heads first and odd": ("heads first", "odd strides"),
    "a cache and sequences first": ("a cache, heads first", "sequences first"),
}


def tensors(of_q, of_k, of_v, batch=2, rows=5, tokens=19):
    return (
        FORMS[of_q](batch, rows, 4, 64),
        FORMS[of_k](batch, tokens, 2, 64),
        FORMS[of_v](batch, tokens, 2, 64),
    )


def check(out, given, **options):
    exact = (each.double() for each in given)
    wanted = attn.attend(*exact, causal=True, reference=True, **options)
    for one, other in zip(out, wanted, strict=True) if isinstance(wanted, tuple) else [(out, wanted)]:
        assert (one.double() - other).abs().max() < 2e-2


@pytest.mark.parametrize("form", FORMS)
def test_queries_in_any_form(form):
    given = tensors(form, "dense", "dense")
    for _ in range(2):  # The second call must not find a launch that reads the caller's tensors.
        check(attn.attend(*given, causal=True), given)


@pytest.mark.parametrize("form", KEYS)
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_keys_and_values_in_any_form(form, layout):
    given = tensors("dense", *KEYS[form])
    turned = given if layout == "bshd" else [each.transpose(1, 2) for each in given]
    for _ in range(2):
        out = attn.attend(*turned, causal=True, layout=layout)
        check(out if layout == "bshd" else out.transpose(1, 2), given)


@pytest.mark.parametrize("form", ["one head", "sequences first", "odd address"])
def test_forms_meet_other_options(form):
    q, k, v = given = tensors(form, form, form)
    sinks = torch.tensor([0.5, 1.0, -1.0, 2.0])
    options = dict(sink_logits=sinks, softcap=20.0, kv_lengths=[19, 7], return_lse=True)
    out, lse = attn.attend(q, k, v, causal=True, **options)
    check((out, lse), given, **options)
    into = torch.empty_like(out)
    assert attn.attend(q, k, v, causal=True, out=into) is into
    assert torch.equal(into, attn.attend(*(each.contiguous() for each in given), causal=True))


def test_prepared_launches_are_of_aligned_tensors():
    """A tensor at an odd address has the strides of an earlier one, whose launch would read it wrongly."""
    given = tensors("dense", "dense", "dense")
    for _ in range(3):
        check(attn.attend(*given, causal=True), given)
        for i in range(3):
            odd = list(given)
            odd[i] = tensors("odd address", "odd address", "odd address")[i]
            check(attn.attend(*odd, causal=True), odd)


@pytest.mark.parametrize(
    "form", ["one head", "one sequence", "sequences first", "odd strides", "odd address"]
)
def test_gradients_of_any_form(form):
    """Gradients have the values of contiguous copies; expanded dimensions add theirs up."""
    plain = [each.detach().clone().requires_grad_() for each in tensors(form, form, form)]
    given = tensors(form, form, form)
    leaves = []
    for each in given:
        base = each._base if each._base is not None else each
        leaves.append(base.clone().requires_grad_())
    views = [
        leaf.as_strided(each.shape, each.stride(), each.storage_offset())
        for leaf, each in zip(leaves, given, strict=True)
    ]
    wanted = torch.autograd.grad(attn.attend(*plain, causal=True).float().square().sum(), plain)
    found = torch.autograd.grad(attn.attend(*views, causal=True).float().square().sum(), views)
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one, other) and one.abs().sum() > 0
    of_leaves = torch.autograd.grad(attn.attend(*views, causal=True).float().square().sum(), leaves)
    assert all(each.shape == leaf.shape for each, leaf in zip(of_leaves, leaves, strict=True))


def test_packed_tensors_in_any_form():
    starts = [0, 4, 19]
    odd = (
        normal(19, 4, 67)[..., :64],
        normal(19, 1, 64).expand(19, 2, 64),
        normal(19 * 128 + 1)[1:].view(19, 2, 64),
    )
    found = attn.attend(*odd, causal=True, cu_seqlens=starts)
    assert torch.equal(found, attn.attend(*(each.clone() for each in odd), causal=True, cu_seqlens=starts))


def test_arrays_of_numpy():
    q, k, v = (numpy.random.default_rng(1).standard_normal((2, 9, 2, 64)).astype("float16") for _ in range(3))
    wide = numpy.zeros((2, 9, 2, 67), "float16")
    wide[..., :64] = k
    memory = numpy.zeros(q.nbytes + 2, numpy.uint8)[2:].view("float16")
    memory[:] = q.ravel()
    wanted = attn.attend(q, k, v, causal=True)
    assert (attn.attend(memory.reshape(q.shape), wide[..., :64], v, causal=True) == wanted).all()


class OnlyDLPack:
    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


def test_tensors_of_other_libraries_are_not_copied():
    given = [OnlyDLPack(each) for each in tensors("dense", "one head", "dense")]
    with pytest.raises(attn.TensorError, match="k: repeats one entry along heads"):
        attn.attend(*given)


# --- Autocast ------------------------------------------------------------------------------------------------


def sdpa(q, k, v):
    q, k, v = (each.transpose(1, 2) for each in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(1, 2)


@pytest.mark.parametrize("to", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "dtypes", [(torch.float32,) * 3, (torch.bfloat16, torch.float32, torch.float16), (torch.float16,) * 3]
)
def test_autocast_casts_as_sdpa(dtypes, to):
    given = [each.to(dtype) for each, dtype in zip(tensors("dense", "dense", "dense"), dtypes, strict=True)]
    for _ in range(2):
        if dtypes[0] == dtypes[1] != torch.float32:
            attn.attend(*given)  # Its prepared launch must not be taken below.
        with torch.autocast("cpu", dtype=to):
            found = attn.attend(*given)
            assert found.dtype == sdpa(*given).dtype == to
            assert torch.equal(found, attn.attend(*(each.to(to) for each in given)))
        with torch.autocast("cpu", dtype=to, enabled=False), pytest.raises(attn.TensorError):
            attn.attend(*(each.float() for each in given))


def test_autocast_records_gradients_of_what_was_given():
    given = [each.float().requires_grad_() for each in tensors("dense", "dense", "dense")]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = attn.attend(*given, causal=True, sink_logits=torch.zeros(4))
    found = torch.autograd.grad(out.float().square().sum(), given)
    plain = [each.detach().bfloat16().requires_grad_() for each in given]
    out = attn.attend(*plain, causal=True, sink_logits=torch.zeros(4))
    wanted = torch.autograd.grad(out.float().square().sum(), plain)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == torch.float32 and torch.equal(one, other.float())


def test_autocast_leaves_float64_and_tables():
    q, k, v = tensors("dense", "dense", "dense")
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])
    score = lambda s, h, qi, ki, slopes: s + slopes[h] * (qi - ki)  # noqa: E731
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = attn.attend(q.float(), k.float(), v.float(), score=score, tensors={"slopes": slopes})
        with pytest.raises(attn.TensorError, match="q: expected bfloat16 or float16, got float64"):
            attn.attend(q.double(), k.double(), v.double())
        exact = attn.attend(q.double(), k.double(), v.double(), reference=True)
    assert exact.dtype == torch.float64
    assert torch.equal(found, attn.attend(q, k, v, score=score, tensors={"slopes": slopes}))


def test_autocast_in_compiled_code():
    given = [each.float() for each in tensors("dense", "dense", "dense")]
    compiled = torch.compile(lambda *t: attn.attend(*t, causal=True), backend="eager", fullgraph=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(compiled(*given), attn.attend(*given, causal=True))


# --- A fixed buffer ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rows_after_the_last_sequence(dtype):
    q, k, v = (normal(24, heads, 64, dtype=dtype).requires_grad_() for heads in (4, 2, 2))
    with torch.no_grad():
        for each in (q, k, v):
            each[19:] = float("nan")  # Nobody has written there.
    out, lse = attn.attend(q, k, v, causal=True, cu_seqlens=[0, 4, 19], return_lse=True)
    assert (out[19:] == 0).all() and (lse[19:] == -torch.inf).all()
    found = torch.autograd.grad(out[:19].float().square().sum(), (q, k, v))
    exact = [each.detach()[:19].clone().requires_grad_() for each in (q, k, v)]
    short = attn.attend(*exact, causal=True, cu_seqlens=[0, 4, 19])
    wanted = torch.autograd.grad(short.float().square().sum(), exact)
    assert torch.equal(out[:19], short)
    for one, other in zip(found, wanted, strict=True):
        assert (one[19:] == 0).all()
        torch.testing.assert_close(one[:19], other, atol=0.05, rtol=0.02)
