# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.attend: any strides that a kernel reads, any library, the results of the definition, of attn-run and of
FlexAttention; and repeated calls that reuse kernels and plans."""

import os
import threading

import attn
import numpy
import pytest
from attnlab import attn_run
from meaning import RANDOM, SLOPES, assert_close, assert_close_lse, attention, normal, numbers, qkv, swap

from examples import load, save

pytest.importorskip("attn._attn", reason="the extension is not built")

from attn.compiler import artifacts  # noqa: E402
from attn.run import direct as module  # noqa: E402

TOLERANCE = {"float16": 1e-3, "bfloat16": 8e-3, "uint16": 8e-3}


def compare(inputs, meaning, **given):
    """Compare attend of [batch, seq, heads, dim] with the definition; `given` are attend's arguments for `meaning`."""
    o, lse = attn.attend(*inputs, return_lse=True, **given)
    wanted, wanted_lse = attention(*inputs, **meaning)
    assert_close(o, wanted, TOLERANCE[str(inputs[0].dtype).removeprefix("torch.")])
    assert_close_lse(lse, wanted_lse)
    return o, lse


# --- Meaning -------------------------------------------------------------------------------------------------

SEES = {
    "all": ({}, attn.all_tokens()),
    "causal": ({"causal": True}, attn.causal()),
    "window": ({"causal": True, "window": 9}, attn.window(9)),
    "sink": ({"causal": True, "sink": 3}, attn.causal() & attn.sink(3)),
    "streaming": ({"causal": True, "window": 9, "sink": 3}, attn.causal() & (attn.sink(3) | attn.recent(9))),
    "see": ({"see": attn.sink(2) | attn.window(4)}, attn.sink(2) | attn.window(4)),
}


@pytest.mark.parametrize("name", SEES)
@pytest.mark.parametrize("dtype", ["float16", "uint16"])
def test_visibility(name, dtype):
    given, see = SEES[name]
    compare(qkv(dtype=dtype), {"see": see}, **given)


@pytest.mark.parametrize("heads,kv_heads", [(1, 1), (4, 4), (6, 2), (28, 4), (5, 1)])
@pytest.mark.parametrize("dim,value_dim", [(32, 32), (128, 64)])
def test_heads_and_dims(heads, kv_heads, dim, value_dim):
    tensors = qkv(rows=3, tokens=20, heads=heads, kv_heads=kv_heads, dim=dim, value_dim=value_dim)
    compare(tensors, {"see": attn.causal()}, causal=True)


@pytest.mark.parametrize("name", SEES)
def test_sequences_without_tokens(name):
    """Rows of sequences without tokens see nothing, and other sequences see what they do without them."""
    given, see = SEES[name]
    tensors, lengths = qkv(batch=3, rows=1, tokens=20), [0, 5, 20]
    compare(tensors, {"see": see, "lengths": lengths}, kv_lengths=lengths, **given)
    q, k, v = (x.reshape(-1, *x.shape[2:]) for x in tensors)
    out, lse = attn.attend(
        q, k, v, cu_seqlens=[0, 1, 2, 3], cu_seqlens_k=[0, 0, 20, 60], return_lse=True, **given
    )
    assert not out[0].any() and numpy.isneginf(lse[0]).all() and numpy.isfinite(lse[1:]).all()


def test_positions_of_sequences_without_tokens():
    def score(s, h, qi, ki):
        return s - 0.1 * (qi - ki)

    tensors, lengths = qkv(batch=3, rows=1, tokens=20), [0, 5, 20]
    compare(tensors, {"score": score, "lengths": lengths}, kv_lengths=lengths, score=score)


def test_scale_and_softcap():
    meaning = {"score": lambda s, h, qi, ki: 2 * numpy.tanh(s / 2), "scale": 0.3}
    compare(qkv(), meaning, scale=0.3, softcap=2.0)


def test_score_that_reads_a_tensor_and_sink_logits():
    logits = RANDOM.standard_normal(8).astype(numpy.float32)
    meaning = {
        "see": attn.causal(),
        "score": lambda s, h, qi, ki: s + SLOPES[h] * (qi - ki),
        "sink_logits": logits,
    }
    compare(
        qkv(),
        meaning,
        causal=True,
        score=lambda s, h, qi, ki, slopes: s + slopes[h] * (qi - ki),
        tensors={"slopes": SLOPES},
        sink_logits=logits,
    )


def test_tables_of_any_length_are_one_kernel():
    def score(s, h, qi, ki, bias):
        return s + bias[h, ki]

    compiled = artifacts.counts.compiled + artifacts.counts.from_disk
    for tokens in (20, 33):
        bias = RANDOM.standard_normal((8, tokens)).astype(numpy.float32)
        meaning = {"score": lambda s, h, qi, ki, bias=bias: s + bias[h][ki[0]]}
        compare(qkv(tokens=tokens), meaning, score=score, tensors={"bias": bias})
    assert artifacts.counts.compiled + artifacts.counts.from_disk <= compiled + 1


def test_lengths_of_a_cache_with_room():
    lengths = [70, 5]
    compare(qkv(), {"see": attn.causal(), "lengths": lengths}, causal=True, kv_lengths=lengths)


@pytest.mark.parametrize("rows,tokens", [(9, 4), (1, 1), (3, 0), (0, 3), (7, 7)])
@pytest.mark.parametrize("causal", [False, True])
def test_more_rows_than_tokens_and_nothing_at_all(rows, tokens, causal):
    see = attn.causal() if causal else attn.all_tokens()
    empty = {"allow_empty_rows": True} if causal and rows > tokens > 0 else {}
    compare(qkv(rows=rows, tokens=tokens), {"see": see}, causal=causal, **empty)


@pytest.mark.parametrize("more_rows,more_tokens", [(7, 0), (0, 9), (40, 33)])
def test_offsets_that_end_before_the_buffer(more_rows, more_tokens):
    """Rows after the last sequence see nothing, and no row sees tokens after it."""
    q, k, v = (x.reshape(-1, *x.shape[2:]) for x in qkv(batch=2, rows=5, tokens=30))
    starts, starts_k = [0, 4, 7], [0, 30, 51]
    rows, tokens = 7, 51
    options = dict(causal=True, cu_seqlens=starts, cu_seqlens_k=starts_k, return_lse=True)
    wanted, wanted_lse = attn.attend(q[:rows], k[:tokens], v[:tokens], **options)
    longer = [
        numpy.concatenate([x[:used], numpy.full((more, *x.shape[1:]), numpy.nan, x.dtype)])
        for x, used, more in ((q, rows, more_rows), (k, tokens, more_tokens), (v, tokens, more_tokens))
    ]
    out, lse = attn.attend(*longer, **options)
    assert numpy.allclose(out[:rows], wanted, atol=2e-3) and numpy.allclose(lse[:rows], wanted_lse, atol=2e-3)
    assert not out[rows:].any() and numpy.isneginf(lse[rows:]).all()


def test_packed_sequences():
    q_lens, lengths = [3, 0, 5], [40, 7, 5]
    q, k, v = (normal(sum(lens), heads, 64) for lens, heads in ((q_lens, 8), (lengths, 2), (lengths, 2)))
    starts, starts_k = (numpy.concatenate([[0], numpy.cumsum(lens)]) for lens in (q_lens, lengths))
    o, lse = attn.attend(
        q, k, v, causal=True, cu_seqlens=starts, cu_seqlens_k=starts_k.tolist(), return_lse=True
    )
    for i in range(3):
        rows, tokens = slice(starts[i], starts[i + 1]), slice(starts_k[i], starts_k[i + 1])
        wanted, wanted_lse = attention(q[None, rows], k[None, tokens], v[None, tokens], attn.causal())
        assert_close(o[None, rows], wanted, 1e-3)
        assert_close_lse(lse[None, rows], wanted_lse)


# --- Memory --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize("q_lies", ["bshd", "bhsd"])
@pytest.mark.parametrize("kv_lies", ["bshd", "bhsd"])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_every_order_gives_the_same(layout, q_lies, kv_lies, library):
    tensors = qkv(rows=4)
    wanted, wanted_lse = attention(*tensors, attn.causal())
    given = []
    for tensor, lies in zip(tensors, (q_lies, kv_lies, kv_lies), strict=True):
        tensor = tensor if lies == "bshd" else swap(numpy.ascontiguousarray(swap(tensor)))
        given.append(tensor if layout == "bshd" else swap(tensor))
    if library == "torch":
        torch = pytest.importorskip("torch")
        given = [torch.from_numpy(tensor) for tensor in given]
    o, lse = attn.attend(*given, causal=True, layout=layout, return_lse=True)
    assert type(o) is type(given[0])
    o, lse = (o, lse) if layout == "bshd" else (swap(o), swap(lse))
    assert_close(o, wanted, 1e-3)
    assert_close_lse(lse, wanted_lse)


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_the_front_of_a_static_cache_is_not_copied(layout):
    q, k, v = qkv(tokens=70)
    wanted, _ = attention(q, k[:, :33], v[:, :33], attn.causal())
    if layout == "bhsd":
        q, k, v = (numpy.ascontiguousarray(swap(tensor)) for tensor in (q, k, v))
        k[:, :, 33:], v[:, :, 33:] = numpy.nan, numpy.nan
        o = swap(attn.attend(q, k[:, :, :33], v[:, :, :33], causal=True, layout=layout))
    else:
        k[:, 33:], v[:, 33:] = numpy.nan, numpy.nan
        o = attn.attend(q, k[:, :33], v[:, :33], causal=True)
    assert_close(o, wanted, 1e-3)


def test_output_that_is_given():
    q, k, v = qkv()
    out = numpy.full(q.shape, numpy.nan, numpy.float16)
    assert attn.attend(q, k, v, out=out) is out
    assert_close(out, attention(q, k, v)[0], 1e-3)
    q, k, v = (numpy.ascontiguousarray(swap(tensor)) for tensor in (q, k, v))
    heads_first = numpy.full(q.shape, numpy.nan, numpy.float16)
    attn.attend(q, k, v, layout="bhsd", out=heads_first)
    assert_close(swap(heads_first), numbers(out), 1e-3)


def test_autograd_sees_that_a_given_output_is_written():
    torch = pytest.importorskip("torch")
    from attn.serving import write_tokens

    q, k, v, out = (torch.randn(1, 8, 2, 64, dtype=torch.float16) for _ in range(4))
    weight = torch.randn(64, 64, dtype=torch.float16, requires_grad=True)
    spec = attn.Spec(
        q_heads=2, kv_heads=2, head_dim=64, dtype="float16", kv=[attn.Dense()], see=attn.causal()
    )
    kernel = attn.compile(spec, device="host")
    plan = kernel.plan({"q": q[0], "kv.k": k, "kv.v": v, "q_start": [0, 8]})
    for again in (
        lambda: attn.attend(q, k, v, out=out),
        lambda: kernel.run(q[0], (k, v), plan, out=out[0]),
        lambda: write_tokens(out.view(1, 8, 2, 64), k, k[0], v[0], torch.arange(8)),
    ):
        for _ in range(3):  # Later calls are prepared.
            again()
            product = out @ weight
            again()
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                product.float().sum().backward()


class OnlyDLPack:
    """A tensor of a library that attn does not know."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **given):
        return self.tensor.__dlpack__(**given)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


def test_anything_with_dlpack():
    tensors = qkv()
    o = attn.attend(*map(OnlyDLPack, tensors))
    assert isinstance(o, numpy.ndarray)
    assert (o == attn.attend(*tensors)).all()
    swapped = [swap(numpy.ascontiguousarray(swap(tensor))) for tensor in tensors]
    assert (o == attn.attend(*map(OnlyDLPack, swapped))).all()
    with pytest.raises(attn.TensorError, match="as OnlyDLPack cannot be copied"):
        attn.attend(OnlyDLPack(tensors[0]), *map(OnlyDLPack, swapped[1:]))
    part = attn.attend(OnlyDLPack(tensors[0]), *(OnlyDLPack(tensor[:, 30:]) for tensor in tensors[1:]))
    assert (part == attn.attend(tensors[0], *(tensor[:, 30:].copy() for tensor in tensors[1:]))).all()


def test_bfloat16_of_pytorch():
    torch = pytest.importorskip("torch")
    tensors = [torch.from_numpy(tensor).bfloat16() for tensor in qkv()]
    o, lse = compare(tensors, {"see": attn.causal()}, causal=True)
    assert o.dtype == torch.bfloat16 and lse.dtype == torch.float32
    bits = [tensor.view(torch.uint16).numpy() for tensor in tensors]
    assert (attn.attend(*bits, causal=True) == o.view(torch.uint16).numpy()).all()
    dlpack = attn.attend(*map(OnlyDLPack, tensors), causal=True)
    assert dlpack.dtype == numpy.uint16 and (dlpack == o.view(torch.uint16).numpy()).all()


def test_bfloat16_of_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    tensors = [tensor.astype(ml_dtypes.bfloat16) for tensor in qkv()]
    o = attn.attend(*tensors)
    assert o.dtype == ml_dtypes.bfloat16
    assert_close(o.astype(numpy.float32), attention(*(t.astype(numpy.float64) for t in tensors))[0], 8e-3)


# --- Equal to others -----------------------------------------------------------------------------------------


def test_the_bits_of_attn_run(tmp_path):
    """The command attn-run gives the same bits for the same tensors in a file."""
    q, k, v = qkv(batch=3, rows=4, tokens=300)
    see = attn.causal() & (attn.sink(5) | attn.recent(100))
    o, lse = attn.attend(q, k, v, see=see, return_lse=True)
    spec = attn.Spec(q_heads=8, kv_heads=2, head_dim=64, dtype="float16", kv=[attn.Dense()], see=see)
    (tmp_path / "spec.mlir").write_text(spec.mlir())
    save(
        tmp_path / "in.safetensors",
        {
            "q": q.reshape(12, 8, 64),
            "q_start": numpy.arange(0, 13, 4, dtype=numpy.int32),
            "kv.k": k,
            "kv.v": v,
            "kv.lengths": numpy.full(3, 300, numpy.int32),
        },
    )
    status, _, error = attn_run(
        tmp_path / "spec.mlir",
        *(
            "--device=host",
            "--inputs",
            tmp_path / "in.safetensors",
            "--outputs",
            tmp_path / "out.safetensors",
        ),
    )
    assert status == 0, error
    out = load(tmp_path / "out.safetensors")
    assert (out["o"].view(numpy.uint16) == o.reshape(12, 8, 64).view(numpy.uint16)).all()
    assert (out["lse"].view(numpy.uint32) == lse.reshape(12, 8).view(numpy.uint32)).all()


FLEX_MASKS = {
    "full": ({}, None),
    "causal": ({"causal": True}, lambda b, h, q, k: q >= k),
    "window": ({"causal": True, "window": 17}, lambda b, h, q, k: (q >= k) & (q - k < 17)),
    "sink and window": (
        {"causal": True, "window": 17, "sink": 4},
        lambda b, h, q, k: (q >= k) & ((k < 4) | (q - k < 17)),
    ),
    "union": ({"see": attn.sink(6) | attn.causal()}, lambda b, h, q, k: (k < 6) | (q >= k)),
}


@pytest.mark.filterwarnings("ignore")
def test_documents_in_one_sequence_by_a_table_of_floats():
    """A table of integers in float32 works in a comparison and as an index."""
    document = numpy.repeat(numpy.arange(4), [20, 7, 30, 13]).astype(numpy.float32)
    weight = numpy.array([0.5, -1, 2, 0], numpy.float32)

    def score(s, h, qi, ki, document, weight):
        own = attn.math.to_int(document[ki])
        return attn.math.where(document[qi] == document[ki], s + weight[own], -attn.math.inf)

    def wanted(s, h, qi, ki):
        same = document[qi] == document[ki]
        return numpy.where(same, s + weight[document[ki].astype(int)], -numpy.inf)

    compare(qkv(rows=70), {"score": wanted}, score=score, tensors={"document": document, "weight": weight})


@pytest.mark.parametrize("scored", ["plain", "softcap", "alibi", "blocks"])
@pytest.mark.parametrize("mask", FLEX_MASKS)
def test_flex_attention(mask, scored):
    """attn and FlexAttention get the same masks, and the same score functions."""
    torch = pytest.importorskip("torch")
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    tokens, slopes = 90, torch.from_numpy(SLOPES)
    q, k, v = (swap(torch.from_numpy(t)) for t in qkv(rows=tokens, tokens=tokens))
    scores = {
        "plain": None,
        "softcap": lambda s, h, qi, ki: 3.0 * torch.tanh(s / 3.0),
        "alibi": lambda s, h, qi, ki, slopes=slopes: s + slopes[h] * (qi - ki),
        "blocks": lambda s, h, qi, ki: torch.where(qi // 16 == ki // 16, s, s - 4.0),
    }
    score, (given, mask_mod) = scores[scored], FLEX_MASKS[mask]
    block_mask = mask_mod and flex.create_block_mask(mask_mod, None, None, tokens, tokens, device="cpu")
    wanted, wanted_lse = flex.flex_attention(
        *(tensor.float() for tensor in (q, k, v)),
        score_mod=score and (lambda s, b, h, qi, ki: score(s, h, qi, ki)),
        block_mask=block_mask,
        enable_gqa=True,
        return_lse=True,
    )
    if score:
        given = given | {"score": score}
    if scored == "alibi":
        given = given | {"tensors": {"slopes": slopes}}
    o, lse = attn.attend(q, k, v, layout="bhsd", return_lse=True, **given)
    assert_close(o, numbers(wanted), 1e-3)
    assert_close_lse(lse, numbers(wanted_lse))


# --- Reuse ---------------------------------------------------------------------------------------------------


def count_made(monkeypatch):
    made = []
    make = module.make_call
    monkeypatch.setattr(module, "make_call", lambda *given: made.append(1) or make(*given))
    return made


def test_a_call_like_the_one_before_makes_nothing(monkeypatch):
    made = count_made(monkeypatch)
    for _ in range(3):
        tensors = qkv(rows=2, tokens=41)
        compare(tensors, {"see": attn.causal()}, causal=True)
    assert len(made) == 1
    attn.attend(*qkv(rows=2, tokens=42), causal=True)
    assert len(made) == 2


def test_lambdas_of_every_call_are_known_by_what_they_do(monkeypatch):
    made = count_made(monkeypatch)
    for cap in (3.0, 3.0, 5.0, 3.0):
        meaning = {"score": lambda s, h, qi, ki, cap=cap: cap * numpy.tanh(s / cap)}
        compare(qkv(tokens=43), meaning, score=lambda s, h, qi, ki, cap=cap: attn.math.softcap(s, cap))
    assert len(made) == 2


def test_lengths_that_change_in_place_are_noticed():
    tensors, lengths = qkv(), numpy.array([70, 20], numpy.int32)
    for last in (20, 31):
        lengths[1] = last
        compare(tensors, {"lengths": lengths}, kv_lengths=lengths)


def test_sizes_of_windows_compile_nothing():
    attn.attend(*qkv(), causal=True, window=11, sink=2)
    before = artifacts.counts.compiled + artifacts.counts.from_disk
    for window, sink in ((13, 2), (64, 7)):
        see = attn.causal() & (attn.sink(sink) | attn.recent(window))
        compare(qkv(), {"see": see}, causal=True, window=window, sink=sink)
    assert artifacts.counts.compiled + artifacts.counts.from_disk == before


def test_plans_are_taken_over_from_calls_of_long_ago():
    """In a decoding loop every step has another length."""
    for tokens in range(30, 30 + 2 * module._MOST_PLANS):
        compare(qkv(rows=1, tokens=tokens), {"see": attn.causal()}, causal=True)
    alike = {}
    for call in module._calls.values():
        alike[id(call.kernel)] = alike.get(id(call.kernel), 0) + 1
    assert max(alike.values()) <= module._MOST_PLANS


def test_threads():
    problems = [qkv(rows=1 + i % 3, tokens=20 + i) for i in range(24)]
    wanted = [attention(*tensors, attn.causal())[0] for tensors in problems]
    failures = []

    def work(first):
        try:
            for i in range(first, len(problems), 4):
                assert_close(attn.attend(*problems[i], causal=True), wanted[i], 1e-3)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_process_makes_its_own():
    tensors = qkv(rows=2, tokens=44)
    wanted = attn.attend(*tensors, causal=True)
    child = os.fork()
    if child == 0:
        os._exit(0 if (attn.attend(*tensors, causal=True) == wanted).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
