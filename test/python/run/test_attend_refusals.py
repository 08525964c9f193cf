# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Refusals of attn.attend, and their messages."""

import attn
import numpy
import pytest
from meaning import SLOPES, qkv, swap

pytest.importorskip("attn._attn", reason="the extension is not built")


def cut(tensors, i, change):
    return [change(tensor) if i == j else tensor for j, tensor in enumerate(tensors)]


WRONG = [
    (
        lambda t: cut(t, 1, lambda k: k.astype("float32")),
        {},
        "k: expected the dtype of q, float16 [2, 5, 8, 64], got float32",
    ),
    (
        lambda t: [x.astype("float32") for x in t],
        {},
        "q: expected bfloat16 or float16, got float32 [2, 5, 8, 64]; nearest legal: q.bfloat16()",
    ),
    (lambda t: [x.astype("int32") for x in t], {}, "q: expected bfloat16 or float16, got int32 ["),
    (
        lambda t: cut(t, 0, lambda q: q[0]),
        {},
        "q: expected 4 dimensions, [batch, seq, heads, dim], got float16 [5, 8, 64]",
    ),
    (
        lambda t: cut(t, 0, lambda q: q[:, :, :7]),
        {},
        "q: expected a multiple of the 2 heads of k along axis 2 of [batch, seq, heads, dim], got 7",
    ),
    (
        lambda t: cut(t, 1, lambda k: k[:, :, :1]),
        {},
        "k: expected [batch, seq, heads, dim] of [2, 70, 2, 64] beside q and v, got [2, 70, 1, 64]",
    ),
    (lambda t: cut(t, 1, lambda k: k[:, ::2]), {}, "k: expected [batch, seq, heads, dim] of [2, 70, 2, 64]"),
    (lambda t: cut(t, 0, lambda q: None), {}, "q: expected a tensor of PyTorch or NumPy"),
    (lambda t: t, {"layout": "bsdh"}, "layout: expected 'bshd' or 'bhsd', got 'bsdh'"),
    (
        lambda t: t,
        {"layout": numpy.zeros(3), "score": lambda s, h, q, k: s},
        "layout: expected 'bshd' or 'bhsd', got ndarray float64 [3]",
    ),
    (lambda t: t, {"window": 4}, "window: expected causal=True beside it, got 4 without"),
    (lambda t: t, {"causal": 1}, "causal: expected True or False, got 1"),
    (lambda t: t, {"causal": True, "window": -4}, "window(n): expected an integer from 0"),
    (
        lambda t: t,
        {"causal": True, "see": attn.causal()},
        "see: expected instead of causal, window and sink, got both",
    ),
    (lambda t: t, {"see": "causal"}, "see: expected a visibility"),
    (lambda t: t, {"softcap": 0.0}, "softcap: expected a positive number, or None, got 0.0"),
    (lambda t: t, {"softcap": 3.0, "score": lambda s, h, qi, ki: s}, "softcap: expected None beside score"),
    (lambda t: t, {"scale": -1.0}, "scale: expected a positive, finite number"),
    (lambda t: t, {"tensors": {"slopes": SLOPES}}, "tensors: expected a score function that reads slopes"),
    (lambda t: t, {"tensors": [SLOPES]}, "tensors: expected a dict of names and tensors"),
    (lambda t: t, {"sink_logits": SLOPES[:3]}, "sink_logits: expected float32 [8], got float32 [3]"),
    (
        lambda t: t,
        {"kv_lengths": [70]},
        "kv_lengths: expected 2 lengths from 0 to the 70 tokens of k, got list [70]",
    ),
    (lambda t: t, {"kv_lengths": [70, 71]}, "kv_lengths: expected 2 lengths"),
    (lambda t: t, {"cu_seqlens_k": [0, 3]}, "cu_seqlens: expected beside cu_seqlens_k, got None"),
    (lambda t: t, {"cu_seqlens": [0, 2]}, "q: expected 3 dimensions, [tokens, heads, dim]"),
    (
        lambda t: [x[0] for x in t],
        {"cu_seqlens": [0, 5], "cu_seqlens_k": [0, 71]},
        "cu_seqlens_k: expected offsets that rise from 0 to at most the 70 rows",
    ),
    (
        lambda t: [x[0] for x in t],
        {"cu_seqlens": [0, 6], "cu_seqlens_k": [0, 70]},
        "cu_seqlens: expected offsets",
    ),
    (
        lambda t: [x[0] for x in t],
        {"cu_seqlens": [0, 5], "kv_lengths": [3]},
        "kv_lengths: expected None beside cu_seqlens",
    ),
    (
        lambda t: [t[0], t[1][:, :3], t[2][:, :3]],
        {"causal": True, "sink": 2, "allow_empty_rows": True},
        "which a sink needs, got 5 rows beside 3",
    ),
    (
        lambda t: [t[0], t[1][:, :3], t[2][:, :3]],
        {"causal": True},
        "got 5 rows beside 3 tokens in sequence 0, so that 2 of the rows would see nothing; tensors are read as "
        "[batch, seq, heads, dim]: write layout='bhsd' where they are [batch, heads, seq, dim], or allow_empty_rows=True",
    ),
    (
        lambda t: [swap(t[0]), swap(t[1][:, :3]), swap(t[2][:, :3])],
        {"causal": True, "window": 2, "layout": "bhsd"},
        "2 of the rows would see nothing; tensors are read as [batch, heads, seq, dim]: write layout='bshd' where they",
    ),
    (
        lambda t: t,
        {"see": attn.recent(9), "kv_lengths": [70, 4]},
        "got 5 rows beside 4 tokens in sequence 1, so that 1 of the rows would see nothing",
    ),
    (
        lambda t: [x[0] for x in t],
        {"causal": True, "cu_seqlens": [0, 1, 5], "cu_seqlens_k": [0, 67, 70]},
        "got 4 rows beside 3 tokens in sequence 1, so that 1 of the rows would see nothing; tensors are read as "
        "[tokens, heads, dim], packed as cu_seqlens and cu_seqlens_k say",
    ),
    (
        lambda t: t,
        {"causal": True, "allow_empty_rows": 1},
        "allow_empty_rows: expected True or False, got 1",
    ),
    (
        lambda t: t,
        {"score": lambda s, h, qi, ki, b: s + b[ki], "tensors": {"b": SLOPES[:0]}},
        "tensors['b']: expected at least 1 in each dimension, as the score function reads elements of it, got float32 [0]",
    ),
    (
        lambda t: t,
        {"score": lambda s, h, qi, ki, b: s + b[h, ki], "tensors": {"b": numpy.zeros((8, 0), numpy.float32)}},
        "tensors['b']: expected at least 1 in each dimension, as the score function reads elements of it, got float32 [8, 0]",
    ),
    (
        lambda t: t,
        {"attn_mask": None},
        "attend: has no argument 'attn_mask'; attn has no mask tensors: say who",
    ),
    (
        lambda t: t,
        {"is_causal": True},
        "attend: has no argument 'is_causal'; write causal=True. Rows are the last",
    ),
    (
        lambda t: t,
        {"enable_gqa": True},
        "'enable_gqa'; leave it out: which query heads share a KV head follows from",
    ),
    (lambda t: t, {"dropout_p": 0.0}, "'dropout_p'; attn has no dropout: leave it out where it is 0"),
    (lambda t: t, {"softmax_scale": 0.1}, "'softmax_scale'; write scale="),
    (lambda t: t, {"casual": True}, "attend: has no argument 'casual'; nearest legal: causal"),
    (lambda t: t, {"xyz": True}, "attend: has no argument 'xyz'; see help(attn.attend)"),
    (
        lambda t: t,
        {"score": lambda s, h, qi, ki, doc: s * doc[qi], "tensors": {"doc": numpy.zeros(70, numpy.int32)}},
        "tensors['doc']: expected float32, got int32 [70]; nearest legal: its float32 copy, which holds integers",
    ),
    (
        lambda t: t,
        {"score": lambda s, h, qi, ki, on: s * on[qi], "tensors": {"on": numpy.zeros(70, bool)}},
        "tensors['on']: expected float32, got bool [70]; nearest legal: its float32 copy, which holds integers",
    ),
    (
        lambda t: t,
        {"out": numpy.zeros((2, 5, 8, 32), numpy.float16)},
        "out: expected float16 [2, 5, 8, 64], got float16",
    ),
    (
        lambda t: t,
        {"out": numpy.zeros((2, 8, 5, 64), numpy.float16).swapaxes(1, 2)},
        "out: expected memory in the order",
    ),
]


@pytest.mark.parametrize("change,given,message", WRONG, ids=[message[:60] for *_, message in WRONG])
def test_wrong_ones_are_refused(change, given, message):
    with pytest.raises((attn.TensorError, attn.SpecError)) as error:
        attn.attend(*change(qkv()), **given)
    assert message in str(error.value)


def test_heads_in_memory_for_scores_that_read_them():
    score = lambda s, h, qi, ki: s * h  # noqa: E731
    tensors = qkv()
    swapped = [swap(numpy.ascontiguousarray(swap(tensor))) for tensor in tensors]
    for t in (swapped, [tensors[0], *swapped[1:]]):
        assert (attn.attend(*t, score=score) == attn.attend(*tensors, score=score)).all()


def test_read_only_outputs_are_refused():
    q, k, v = qkv()
    out = numpy.zeros_like(q)
    out.flags.writeable = False
    with pytest.raises(attn.TensorError, match="out: expected memory that may be written"):
        attn.attend(q, k, v, out=out)


def inside(memory, shape, offset):
    """Return an array of that shape in `memory`, from element `offset` on."""
    count = int(numpy.prod(shape))
    return memory[offset : offset + count].reshape(shape)


@pytest.mark.parametrize("offset", [0, 64, -64, 5 * 8 * 64 - 1])
@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_outputs_in_the_memory_of_inputs_are_refused(name, offset):
    tensors = dict(zip("qkv", qkv(), strict=True))
    memory = numpy.zeros(60000, numpy.float16)
    given = tensors[name] = inside(memory, tensors[name].shape, 20000)
    size = tensors["q"].size
    out = inside(memory, tensors["q"].shape, 20000 + offset)
    with pytest.raises(attn.TensorError, match=f"^out: overlaps {name}, which other blocks still read"):
        attn.attend(**tensors, out=out)
    for legal in (20000 - size, 20000 + given.size):
        attn.attend(**tensors, out=inside(memory, tensors["q"].shape, legal))


def test_outputs_in_the_memory_of_other_inputs_are_refused():
    q, k, v = qkv()
    memory = numpy.zeros(q.size, numpy.float16)
    floats = memory.view(numpy.float32)
    out = inside(memory, q.shape, 0)
    with pytest.raises(attn.TensorError, match="^out: overlaps sink_logits, which"):
        attn.attend(q, k, v, sink_logits=floats[8:16], out=out)
    with pytest.raises(attn.TensorError, match=r"^out: overlaps tensors\['slopes'\], which"):
        attn.attend(
            q,
            k,
            v,
            score=lambda s, h, qi, ki, slopes: s * slopes[h],
            tensors={"slopes": floats[-8:]},
            out=out,
        )


def test_outputs_in_the_room_behind_the_tokens_of_a_cache_are_refused():
    """Outputs between the tokens of two sequences are refused: the runtime knows the first and last byte of keys alone."""
    q, k, v = qkv(batch=3, rows=2, heads=2)
    cache, v_room = numpy.zeros((2, 3, 200, 2, 64), numpy.float16)
    cache[:, :70], v_room[:, :70] = k, v
    for token in (100, 197):  # between the tokens of two sequences, and into those of the second
        out = numpy.lib.stride_tricks.as_strided(cache[0, token:], q.shape, q.strides)
        with pytest.raises(attn.TensorError, match="^out: overlaps '?k"):
            attn.attend(q, cache[:, :70], v_room[:, :70], out=out)


def test_tensors_of_no_memory_are_refused():
    torch = pytest.importorskip("torch")
    tensors = [torch.from_numpy(tensor).to("meta") for tensor in qkv()]
    with pytest.raises((attn.TensorError, attn.DeviceError)):
        attn.attend(*tensors)


_BACKWARD = r"; differentiate with torch\.autograd\.grad or \.backward\(\)"
_FORWARD_MODE = r"^attn does not support torch\.func\.jvp, jacfwd and torch\.autograd\.forward_ad" + _BACKWARD


@pytest.mark.parametrize("transform", ["vmap", "grad", "vjp", "jacrev", "jvp", "forward_ad"])
def test_transforms_of_torch_are_refused_by_name(transform):
    torch = pytest.importorskip("torch")
    q, k, v = (torch.from_numpy(tensor) for tensor in qkv())

    def total(q):
        return attn.attend(q, k, v).float().sum()

    def forward_mode():
        with torch.autograd.forward_ad.dual_level():
            return attn.attend(torch.autograd.forward_ad.make_dual(q, q), k, v)

    calls = {
        "vmap": lambda: torch.func.vmap(total)(q[None]),
        "jvp": lambda: torch.func.jvp(total, (q,), (q,)),
        "vjp": lambda: torch.func.vjp(total, q),
        "forward_ad": forward_mode,
    }
    backward = r"^q: attn does not support torch\.func\.grad, vjp and jacrev" + _BACKWARD
    message = {
        "vmap": r"^q: attn does not support torch\.func\.vmap; call it on the whole batch, \[batch, seq, heads, dim\]$",
        "jvp": _FORWARD_MODE,
        "forward_ad": _FORWARD_MODE,
    }.get(transform, backward)
    with pytest.raises(attn.TensorError, match=message):
        calls.get(transform, lambda: getattr(torch.func, transform)(total)(q))()
