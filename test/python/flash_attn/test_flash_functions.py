# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.flash_attn on dense and packed tensors, beside float64: every argument, gradients, errors, signatures."""

import inspect

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")

import attn  # noqa: E402
from attn import flash_attn  # noqa: E402
from flash_oracle import attention, batched, close, tensor  # noqa: E402

_TAIL = (
    "dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None, "
    "deterministic=False, return_attn_probs=False"
)
# Those of flash-attn 2.8.
SIGNATURES = {
    "flash_attn_func": f"(q, k, v, {_TAIL})",
    "flash_attn_kvpacked_func": f"(q, kv, {_TAIL})",
    "flash_attn_qkvpacked_func": f"(qkv, {_TAIL})",
    "flash_attn_varlen_func": f"(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, {_TAIL}, block_table=None)",
    "flash_attn_varlen_kvpacked_func": f"(q, kv, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, {_TAIL})",
    "flash_attn_varlen_qkvpacked_func": f"(qkv, cu_seqlens, max_seqlen, {_TAIL})",
    "flash_attn_with_kvcache": "(q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, "
    "cache_batch_idx=None, cache_leftpad=None, block_table=None, softmax_scale=None, causal=False, window_size=(-1, -1), "
    "softcap=0.0, rotary_interleaved=True, alibi_slopes=None, num_splits=0, return_softmax_lse=False)",
}


def test_signatures():
    assert sorted(flash_attn.__all__) == sorted(SIGNATURES)
    for name, wanted in SIGNATURES.items():
        signature = inspect.signature(getattr(flash_attn, name))
        plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
        assert str(inspect.Signature(plain)) == wanted, name
    assert attn.flash_attn is flash_attn


SLOPES = torch.tensor([[0.5, 0.25, 0.125, 0.0], [0.0625, 0.4, 0.3, 0.2]])
CASES = {
    "all": {},
    "causal": {"causal": True},
    "window": {"window_size": (5, 3)},
    "left": {"window_size": (4, -1)},
    "right": {"window_size": (-1, 2)},
    "none after": {"window_size": (6, 0)},
    "causal window": {"causal": True, "window_size": [3, 9]},
    "far window": {"causal": True, "window_size": (2**31 - 1, 2**31 - 1)},
    "cap": {"softcap": 2.0, "causal": True},
    "cap and window": {"softcap": 2.0, "window_size": (5, 3)},
    "scale": {"softmax_scale": 0.3},
    "alibi": {"alibi_slopes": SLOPES[0], "causal": True},
    "alibi both ways": {"alibi_slopes": SLOPES[0]},
    "alibi of sequences": {"alibi_slopes": SLOPES, "causal": True, "softcap": 3.0},
    "alibi, expanded": {"alibi_slopes": SLOPES[:1].expand(2, 4), "window_size": (5, 3)},
}


def told(options):
    """Return a case's options as the oracle takes them."""
    names = {"window_size": "window", "softmax_scale": "scale", "alibi_slopes": "slopes"}
    return {names.get(name, name): value for name, value in options.items()}


def qkv(rows=9, tokens=13, heads=4, kv_heads=2, dim=64, dtype=torch.bfloat16):
    return (
        tensor(2, rows, heads, dim, dtype=dtype, seed=1),
        tensor(2, tokens, kv_heads, dim, dtype=dtype, seed=2),
        tensor(2, tokens, kv_heads, dim, dtype=dtype, seed=3),
    )


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("rows, tokens", [(9, 13), (13, 9)])
def test_every_option(name, rows, tokens):
    given = qkv(rows, tokens)
    for _ in range(2):  # The second call may find a prepared launch.
        out, lse, probs = flash_attn.flash_attn_func(*given, **CASES[name], return_attn_probs=True)
        assert lse.is_contiguous() and lse.dtype == torch.float32 and probs.numel() == 0
        wanted = batched(*given, **told(CASES[name]))
        close(out, wanted[0])
        close(lse, wanted[1])
        assert torch.equal(flash_attn.flash_attn_func(*given, **CASES[name]), out)
    if rows > tokens and "causal" in CASES[name]:
        assert (out[:, : rows - tokens] == 0).all()


@pytest.mark.parametrize("name", ["causal", "window", "cap", "alibi", "alibi of sequences"])
def test_float16_and_odd_heads(name):
    for kv_heads, dim in ((1, 96), (4, 44)):
        given = qkv(kv_heads=kv_heads, dim=dim, dtype=torch.float16)
        out, lse, _ = flash_attn.flash_attn_func(*given, **CASES[name], return_attn_probs=True)
        wanted = batched(*given, **told(CASES[name]))
        close(out, wanted[0], torch.float16)
        close(lse, wanted[1], torch.float16)


def test_slopes_that_are_copied():
    """Slopes apart, and slopes of one row for all sequences: later calls read them anew."""
    given = [each.requires_grad_() for each in qkv()]
    every_other = torch.stack((SLOPES[0], SLOPES[1]), 1)[:, 0]
    for slopes in (every_other, SLOPES[:1].expand(2, 4)):
        for _ in range(2):
            with torch.no_grad():
                found = flash_attn.flash_attn_func(*given, causal=True, alibi_slopes=slopes)
            assert torch.equal(flash_attn.flash_attn_func(*given, causal=True, alibi_slopes=slopes), found)
            close(found, batched(*(each.detach() for each in given), causal=True, slopes=SLOPES[0])[0])


def test_values_of_another_dim():
    q, k, _ = qkv()
    v = tensor(2, 13, 2, 32)
    close(flash_attn.flash_attn_func(q, k, v, causal=True), batched(q, k, v, causal=True)[0])


def gradients(loss, given):
    return torch.autograd.grad(loss, given)


@pytest.mark.parametrize("name", ["causal", "window", "cap", "alibi", "alibi of sequences", "right"])
@pytest.mark.parametrize("deterministic", [False, True])
def test_gradients(name, deterministic):
    given = [each.requires_grad_() for each in qkv(13, 9)]
    exact = [each.detach().double().requires_grad_() for each in given]
    wanted = batched(*exact, **told(CASES[name]))
    seen = ~wanted[1].isinf()
    wanted = gradients(wanted[0].square().sum() + wanted[1][seen].sum(), exact)
    for _ in range(2):
        out, lse, _ = flash_attn.flash_attn_func(
            *given, **CASES[name], deterministic=deterministic, return_attn_probs=True
        )
        found = gradients(out.float().square().sum() + lse[seen].sum(), given)
        for one, other in zip(found, wanted, strict=True):
            close(one, other)


def test_packed_dimensions():
    q, k, v = qkv(9, 9, kv_heads=4)
    packed = torch.stack((q, k, v), 2).requires_grad_()
    wanted = flash_attn.flash_attn_func(q, k, v, causal=True, window_size=(4, 0))
    found = flash_attn.flash_attn_qkvpacked_func(packed, causal=True, window_size=(4, 0))
    assert torch.equal(found, wanted)
    (gradient,) = gradients(found.float().square().sum(), [packed])
    assert torch.equal(
        flash_attn.flash_attn_kvpacked_func(q, packed[:, :, 1:], causal=True, window_size=(4, 0)), wanted
    )
    parts = [each.clone().requires_grad_() for each in (q, k, v)]
    out = flash_attn.flash_attn_func(*parts, causal=True, window_size=(4, 0))
    apart = gradients(out.float().square().sum(), parts)
    assert torch.equal(gradient, torch.stack(apart, 2))
    with pytest.raises(
        attn.TensorError, match=r"qkv: expected a tensor of PyTorch, \[batch, seq, 3, heads, dim\]"
    ):
        flash_attn.flash_attn_qkvpacked_func(packed[:, :, :2])
    with pytest.raises(
        attn.TensorError, match=r"kv: expected a tensor of PyTorch, \[batch, seq, 2, heads, dim\]"
    ):
        flash_attn.flash_attn_kvpacked_func(q, packed)


# --- Packed sequences ----------------------------------------------------------------------------------------

STARTS, STARTS_K = [0, 5, 5, 18], [0, 9, 13, 22]


def packed(dtype=torch.bfloat16, rest=0):
    return (
        tensor(18 + rest, 4, 64, dtype=dtype, seed=1),
        tensor(22 + rest, 2, 64, dtype=dtype, seed=2),
        tensor(22 + rest, 2, 64, dtype=dtype, seed=3),
    )


def by_sequence(q, k, v, slopes=None, **options):
    """Return (out [tokens, heads, dim], lse [heads, tokens]) of the sequences of STARTS."""
    found = []
    for i in range(3):
        rows, tokens = slice(*STARTS[i : i + 2]), slice(*STARTS_K[i : i + 2])
        slope = slopes if slopes is None or slopes.ndim == 1 else slopes[i]
        found.append(attention(q[rows], k[tokens], v[tokens], slopes=slope, **options))
    return torch.cat([out for out, _ in found]), torch.cat([lse for _, lse in found], 1)


def offsets(dtype=torch.int32):
    return torch.tensor(STARTS, dtype=dtype), torch.tensor(STARTS_K, dtype=dtype)


VARLEN = CASES | {"alibi of sequences": {"alibi_slopes": torch.cat((SLOPES, SLOPES[:1])), "softcap": 3.0}}
VARLEN["alibi, expanded"] = {"alibi_slopes": SLOPES[:1].expand(3, 4)}


@pytest.mark.parametrize("name", VARLEN)
def test_every_option_of_packed_sequences(name):
    given, lengths = packed(), (13, 9)
    wanted = by_sequence(*given, **told(VARLEN[name]))
    for dtype in (torch.int32, torch.int64, torch.int32):
        out, lse, probs = flash_attn.flash_attn_varlen_func(
            *given, *offsets(dtype), *lengths, **VARLEN[name], return_attn_probs=True
        )
        assert lse.is_contiguous() and probs.numel() == 0
        close(out, wanted[0])
        close(lse, wanted[1])
    assert torch.equal(flash_attn.flash_attn_varlen_func(*given, *offsets(), *lengths, **VARLEN[name]), out)


@pytest.mark.parametrize("name", ["causal", "cap and window", "alibi of sequences"])
def test_gradients_of_packed_sequences(name):
    """Rows after the last sequence hold anything: they get zeros, and so do their gradients."""
    given = packed(rest=4)
    for each, used in zip(given, (18, 22, 22), strict=True):
        each[used:] = float("nan")
    given = [each.requires_grad_() for each in given]
    exact = [
        each.detach().double()[:used].requires_grad_() for each, used in zip(given, (18, 22, 22), strict=True)
    ]
    wanted = gradients(by_sequence(*exact, **told(VARLEN[name]))[0].square().sum(), exact)
    out, lse, _ = flash_attn.flash_attn_varlen_func(
        *given, *offsets(), 13, 9, **VARLEN[name], return_attn_probs=True
    )
    assert (out[18:] == 0).all() and (lse[:, 18:] == -torch.inf).all()
    found = gradients(out.float().square().sum(), given)
    for one, other in zip(found, wanted, strict=True):
        close(one[: len(other)], other)
        assert (one[len(other) :] == 0).all()


def test_packed_dimensions_of_packed_sequences():
    q, k, v = (tensor(18, 4, 64, seed=i) for i in range(3))
    starts = torch.tensor(STARTS, dtype=torch.int32)
    wanted = flash_attn.flash_attn_varlen_func(q, k, v, starts, starts, 13, 13, causal=True)
    every = torch.stack((q, k, v), 1)
    assert torch.equal(flash_attn.flash_attn_varlen_qkvpacked_func(every, starts, 13, causal=True), wanted)
    both = every[:, 1:]
    found = flash_attn.flash_attn_varlen_kvpacked_func(q, both, starts, starts, 13, 13, causal=True)
    assert torch.equal(found, wanted)


# --- Other ways to call --------------------------------------------------------------------------------------


def test_autocast_and_compiled_code():
    given = [each.float() for each in qkv()]
    compiled = torch.compile(
        lambda *t: flash_attn.flash_attn_func(*t, causal=True, window_size=(4, 0), return_attn_probs=True),
        backend="eager",
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = flash_attn.flash_attn_func(*given, causal=True, window_size=(4, 0))
        found = compiled(*given)
    assert out.dtype == torch.bfloat16 and torch.equal(found[0], out)
    close(found[1], batched(*(each.bfloat16() for each in given), causal=True, window=(4, 0))[1])


@pytest.mark.parametrize("slopes", [SLOPES[0], SLOPES])
def test_compiled_slopes(slopes):
    given = [each.requires_grad_() for each in qkv()]
    options = dict(causal=True, alibi_slopes=slopes, softcap=10.0)
    compiled = torch.compile(lambda *t: flash_attn.flash_attn_func(*t, **options), backend="aot_eager")
    found, wanted = compiled(*given), flash_attn.flash_attn_func(*given, **options)
    assert torch.equal(found, wanted)
    gradients = [torch.autograd.grad(each.float().square().sum(), given) for each in (found, wanted)]
    assert all(map(torch.equal, *gradients))


def test_slopes_of_no_sequences():
    given = [each[:0] for each in qkv()]
    assert flash_attn.flash_attn_func(*given, alibi_slopes=SLOPES[:0]).shape == given[0].shape


def test_soft_caps_that_change_nothing_are_refused():
    with pytest.raises(attn.SpecError, match="softcap: expected at most 16384"):
        flash_attn.flash_attn_func(*qkv(), softcap=1e5)
    with pytest.raises(attn.SpecError, match="softcap: expected at most 16384"):
        attn.attend(*qkv(), softcap=1e39)


def test_odd_layouts_are_copied():
    q, k, v = qkv()
    wanted = flash_attn.flash_attn_func(q, k, v, causal=True)
    odd = q.transpose(0, 1).contiguous().transpose(0, 1), k.transpose(1, 3).contiguous().transpose(1, 3), v
    assert torch.equal(flash_attn.flash_attn_func(*odd, causal=True), wanted)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"dropout_p": 0.1}, r"^dropout_p: expected 0\.0, as attn has no dropout, got 0\.1"),
        ({"softcap": -1.0}, r"^softcap: expected a number from 0\.0 on, which is none, got -1\.0"),
        (
            {"softmax_scale": "1"},
            r"^softmax_scale: expected a number, or None for 1/sqrt\(headdim\), got '1'",
        ),
        ({"causal": "yes"}, "^causal: expected True or False, got 'yes'"),
        ({"window_size": (-2, 0)}, r"^window_size: expected two integers \(left, right\) from -1 on"),
        ({"window_size": 4}, "^window_size: expected two integers"),
        ({"alibi_slopes": torch.zeros(3)}, r"^alibi_slopes: expected float32 \[4\] or \[2, 4\] on cpu"),
        (
            {"alibi_slopes": torch.zeros(4).half()},
            r"^alibi_slopes: expected float32 \[4\] or \[2, 4\] on cpu",
        ),
    ],
)
def test_refusals(options, message):
    for function, given in (
        (flash_attn.flash_attn_func, qkv()),
        (flash_attn.flash_attn_varlen_func, (*packed()[:3], *(torch.tensor([0, 5, 18]),) * 2, 13, 13)),
    ):
        with pytest.raises((attn.SpecError, attn.TensorError), match=message):
            function(*given, **options)


def test_refusals_of_tensors():
    q, k, v = qkv()
    with pytest.raises(
        attn.TensorError, match=r"^q: expected a tensor of PyTorch, \[batch, seq, heads, dim\], got"
    ):
        flash_attn.flash_attn_func(q[0], k, v)
    with pytest.raises(attn.TensorError, match="^q: expected bfloat16 or float16"):
        flash_attn.flash_attn_func(q.float(), k.float(), v.float())
    with pytest.raises(attn.TensorError, match="^cu_seqlens: expected offsets that rise"):
        flash_attn.flash_attn_varlen_func(*packed(), torch.tensor([0, 30]), torch.tensor([0, 22]), 30, 22)
    with pytest.raises(attn.TensorError, match=r"^cu_seqlens_q: expected int32 \[batch \+ 1\]"):
        flash_attn.flash_attn_varlen_func(*packed(), 3, torch.tensor([0, 22]), 30, 22)
