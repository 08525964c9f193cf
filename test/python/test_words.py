# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Messages for typical mistakes: the given value, the expected one and a remedy, in the user's words."""

import re

import attn
import numpy
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from attn.errors import closest, given, is_near  # noqa: E402

q, k, v = numpy.zeros((3, 2, 100, 8, 64), numpy.float16)
LONG = numpy.zeros((100, 2, 8, 64), numpy.float16)
PAGES = numpy.zeros((8, 16, 2, 64), numpy.float16)
SIZES = dict(q_heads=8, kv_heads=2, head_dim=64, dtype="float16", kv=[attn.Paged()], see=attn.causal())
BATCH = {
    "q": numpy.zeros((2, 8, 64), numpy.float16), "q_start": [0, 1, 2], "kv.k_pages": PAGES, "kv.v_pages": PAGES,
    "kv.lengths": [20, 5], "kv.block_table": [[0, 1], [2, 3]],
}  # fmt: skip


def attend(*tensors, **named):
    return attn.attend(*(tensors or (q, k, v)), **named)


class Foreign:
    """An array of a library that attn does not know, whose tensors it does not copy."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def foreign(*arrays):
    return [Foreign(array) for array in arrays]


def spec(**changes):
    return attn.Spec(**(SIZES | changes))


_kernel = None


def kernel():
    global _kernel
    _kernel = _kernel or attn.compile(spec(), device="host")
    return _kernel


def plan(changes=None, **options):
    return kernel().plan(BATCH | (changes or {}), **options)


def run(q=BATCH["q"], *operands, **named):
    return kernel().run(q, *(operands or ((PAGES, PAGES),)), plan(), **named)


def cache(**changes):
    return attn.PagedCache(
        **(dict(layers=2, pages=8, kv_heads=2, head_dim=64, dtype="float16", device="host") | changes)
    )


def grown(tokens=20):
    made = cache()
    made.append(made.add(), tokens).skip()
    return made


def planned(made):
    made.append(made.add(), 1).skip()
    return kernel().plan(made.batch(made.sequences))


def row(count):
    return numpy.zeros((count, 2, 64), numpy.float16)


def scores(function, **tensors):
    return attend(score=function, tensors=tensors or None)


ATTEND = [
    (lambda: attend(windw=3), "attend: has no argument 'windw'; nearest legal: window"),
    (lambda: attend(foo=3), "attend: has no argument 'foo'; see help(attn.attend)"),
    (lambda: attend(is_casual=True), "'is_casual'; write causal=True"),
    (lambda: attend(softmax_scal=1.0), "'softmax_scal'; write scale="),
    (lambda: attend(attn_mask=None), "attn has no mask tensors"),
    (lambda: attend(window_size=3), "window_size: expected two integers (left, right) from -1 on"),
    (lambda: attend(window_size=(3, -2)), "positions before and after a row's own, -1 for no limit, got"),
    (lambda: attend(window_size=(3, 0), window=4), "window_size: expected instead of window, sink and see, got both"),
    (lambda: attend(window=3), "window: expected causal=True beside it, got 3"),
    (lambda: attend(causal=True, window=-1), "from 0 to 2147483647, got -1; nearest legal: 0"),
    (lambda: attend(causal=True, window=2**40), "from 0 to 2147483647, got 1099511627776$"),
    (lambda: attend(causal=True, window="3"), "got '3'$"),
    (lambda: attend(causal=1), "causal: expected True or False, got 1$"),
    (lambda: attend(see=lambda b, h, q, k: q >= k), "got function <lambda>. A function of positions is no visibility"),
    (lambda: attend(see=attn.causal), "got function causal. Did you mean causal()?"),
    (lambda: attend(see=attn.window), "got function window. Did you mean window(n)?"),
    (lambda: attend(see=attn.causal() & (lambda x: x)), "an operand of &: expected a visibility, got function <lambda>$"),
    (lambda: attend(see=attn.causal() and attn.sink(3)), "combine visibilities with & and |"),
    (lambda: attend(see=numpy.ones((100, 100))), "got ndarray float64 [100, 100]$"),
    (lambda: attend(see=attn.causal(), causal=True), "see: expected instead of causal, window and sink"),
    (lambda: attn.Visibility("lookahead", (3,)), "got 'lookahead'. Visibilities are made by attn.causal()"),
    (lambda: attn.Visibility("windw", 3), "got 'windw'; nearest legal: 'window'"),
    (lambda: attn.Visibility("window", ("x",)), "window(n): expected an integer"),
    (lambda: attn.window(3, -1), "right of window(left, right): expected an integer from 0 to 2147483647, got -1"),
    (lambda: attn.Visibility("window", 3), "the sizes of window: expected (n) or (left, right), got 3"),
    (lambda: attn.Visibility("causal", (3,)), "the sizes of causal: expected (), got"),
    (lambda: attn.chunk(0), "chunk(n): expected an integer from 1 to 2147483647, got 0; nearest legal: 1"),
    (lambda: attn.Visibility("and"), "Visibility('and', parts): expected visibilities"),
    (lambda: attend(q.astype("f4"), k, v), "q: expected bfloat16 or float16, got float32 [2, 100, 8, 64]"),
    (lambda: attend(q.astype("i4"), k, v), "q: expected bfloat16 or float16, got int32 [2, 100, 8, 64]$"),
    (lambda: attend(q, k.astype("f4"), v), "k: expected the dtype of q, float16 [2, 100, 8, 64], got float32"),
    (lambda: attend(layout="bhds"), "layout: expected 'bshd' or 'bhsd', got 'bhds'; nearest legal: 'bhsd' or 'bshd'"),
    (lambda: attend(layout="bsdh"), "got 'bsdh'"),
    (lambda: attend(*foreign(q[..., ::2], k[..., ::2], v)), "k: its features are 2 elements apart; expected next to each other"),
    (lambda: attend(*foreign(q, LONG.transpose(1, 0, 2, 3), LONG.transpose(1, 0, 2, 3))),
     "k: lies in memory as [seq, batch, heads, dim]; expected [batch, seq, heads, dim]: k.contiguous()"),
    (lambda: attend(*foreign(q, numpy.zeros((64, 2, 100, 8), "f2").transpose(1, 2, 3, 0), v)),
     "k: lies in memory as [dim, batch, seq, heads]; expected [batch, seq, heads, dim]"),
    (lambda: attend(q, k, numpy.zeros((2, 100, 8, 60), "f2")), "value_dim: expected a multiple of 8"),
    (lambda: attend(*foreign(q, numpy.lib.stride_tricks.as_strided(k, k.shape, (*k.strides[:2], 0, 2)), v)), "k: repeats one entry along heads"),
    (lambda: attend(*foreign(q, k[:, ::-1], v)), "k: runs backwards along seq"),
    (lambda: attend(q[0], k[0], v[0]), "q: expected 4 dimensions, [batch, seq, heads, dim], got float16 [100, 8, 64]"),
    (lambda: attend(q, k[:, :, :3], v[:, :, :3]), "a multiple of the 3 heads of k along axis 2 of [batch, seq, heads, dim]"),
    (lambda: attend(numpy.zeros((1, 8, 40, 64), "f2"), *numpy.zeros((2, 1, 2, 39, 64), "f2")),
     "Tensors [batch, heads, seq, dim] take layout='bhsd'"),
    (lambda: attend(q, k, v[:, :50]), "k: expected [batch, seq, heads, dim] of [2, 50, 8, 64] beside q and v"),
    (lambda: attend(q[..., :60], k[..., :60], v), "head_dim: expected a multiple of 8 from 8 to 256, or of 32 up to 576, got 60"),
    (lambda: attend(*numpy.zeros((3, 1, 4, 2, 320), "f2")), "got 320; nearest legal: 256"),
    (lambda: attend(kv_lengths=[1, 2, 3]), "kv_lengths: expected 2 lengths from 0 to the 100 tokens of k"),
    (lambda: attend(kv_lengths=numpy.ones(2)), "kv_lengths: expected integers, got ndarray float64 [2]$"),
    (lambda: attend(cu_seqlens=[0, 100, 200]), "q: expected 3 dimensions, [tokens, heads, dim]"),
    (lambda: attend(q[0], k[0], v[0], cu_seqlens=[0, 150]), "cu_seqlens: expected offsets that rise from 0 to at most the 100 rows"),
    (lambda: attend(softcap=-1), "softcap: expected a positive number, or None, got -1"),
    (lambda: attend(scale="0.1"), "scale: expected a positive, finite number"),
    (lambda: attend(scale=2**2000), "scale: expected a positive, finite number"),
    (lambda: attend(out=numpy.zeros(q.shape)), "out: expected float16 [2, 100, 8, 64], got float64 [2, 100, 8, 64]"),
    (lambda: attend(out=q), "out: overlaps q"),
    (lambda: attend([[1]], k, v), "q: expected a tensor of PyTorch or NumPy, or one with __dlpack__, got list [[1]]"),
    (lambda: attend(None, k, v), "got None$"),
    (lambda: attend(forest=q), "forest: expected an attn.Forest, got ndarray float16 [2, 100, 8, 64]. As in"),
    (lambda: attend(significance="maximum"), "got 'maximum'; nearest legal: 'max'"),
    (lambda: attend(significance="average"), "significance: expected max, mean or sum, got 'average'$"),
    (lambda: scores(lambda s, h, q: s), "got function <lambda> with the signature (s, h, q)"),
    (lambda: scores(lambda s, h, qi, ki: s if qi > ki else 0), "Instead of `if` use attn.math.where"),
    (lambda: scores(lambda s, h, qi, ki: None), "Did you forget `return`?"),
    (lambda: scores(lambda s, h, qi, ki, b: s + b[h], b=[0.0] * 8), "tensors['b']: expected a tensor of PyTorch or NumPy"),
    (lambda: scores(lambda s, h, qi, ki, b: s + b[h], b=numpy.zeros(8)), "tensors['b']: expected float32, got float64 [8]"),
    (lambda: scores(lambda s, h, qi, ki: s, b=numpy.zeros(8, "i4")), "expected float32, got int32 [8]; nearest legal"),
]  # fmt: skip

DESCRIBE = [
    (lambda: spec(q_heads=7), "q_heads: expected a multiple of kv_heads, 2, got 7; nearest legal: 6 or 8"),
    (lambda: spec(q_heads="8"), "q_heads: expected an integer from 1 to 4096, got '8'$"),
    (lambda: spec(kv_heads=2.0), "kv_heads: expected an integer from 1 to 4096, got 2.0$"),
    (lambda: spec(head_dim=65), "got 65; nearest legal: 64 or 72"),
    (lambda: spec(dtype="float32"), "dtype: expected 'bfloat16' or 'float16', got 'float32'"),
    (lambda: spec(dtype="bfloat"), "got 'bfloat'; nearest legal: 'bfloat16'"),
    (lambda: spec(kv=attn.Paged()), "kv: expected a list of Dense, Packed, Paged or Unified"),
    (lambda: spec(kv=[attn.Paged]), "Did you mean Paged()?"),
    (lambda: spec(kv=[int]), "kv[0]: expected Dense(), Packed(), Paged() or Unified(), got type <class 'int'>$"),
    (lambda: attn.Paged(page_size=17), "got 17; nearest legal: 16 or 32"),
    (lambda: attn.Paged(page_size="16"), "Paged(page_size): expected 1 to 8 or a multiple of 16 up to 2048, got '16'$"),
    (lambda: attn.Paged(key="e5m2"), "got 'e5m2'; nearest legal: 'fp8_e5m2'"),
    (lambda: attn.Paged(key="q4_0"), "got 'q4_0'$"),
    (lambda: attn.Paged(key="nvfp8"), "nearest legal: 'nvfp4'"),
    (lambda: attn.Paged(key="int16"), "got 'int16'$"),
    (lambda: attn.Paged(key="bfloat16"), "got 'bfloat16'. Leave Paged(key) out, and give dtype="),
    (lambda: spec(kv=[attn.Paged(key="int8", key_group=24)]), "got 24; nearest legal: 16"),
    (lambda: attn.Paged(key_group=64), "Paged(key_group): expected None without Paged(key)"),
    (lambda: attn.Paged(key="int8", key_scales="token"), "Integers have a scale and a zero for every group"),
    (lambda: attn.Paged(key="fp8", key_scales="tokens"), "got 'tokens'; nearest legal: 'token'"),
    (lambda: attn.Paged(key="fp8", key_scales="channel"), "'tensor', 'head' or 'token', got 'channel'$"),
    (lambda: attn.quantize(numpy.zeros((2, 2, 60), "f2"), "int4"), "a multiple of 32 elements of int4, got 60"),
    (lambda: attn.quantize(numpy.zeros((2, 2, 64), "f2"), "int3"), "format: expected 'int8', 'int4', 'int2'"),
    (lambda: spec(see=None), "As in see=attn.causal(), of the Spec or of the operand"),
    (lambda: spec(heads={"a": 1}), "heads: expected head classes, got dict {'a': 1}. As in attn.heads("),
    (lambda: spec(significance="avg"), "significance: expected max, mean or sum, got 'avg'$"),
    (lambda: spec().draw("a.png", q_len=3, kv_len=9), "a name that ends with .svg, got 'a.png'; nearest legal: a.svg"),
    (lambda: attn.compile(spec(), device="gpu"), "'host', 'cuda', 'cuda:1' or a torch.device, got 'gpu'$"),
    (lambda: attn.compile(spec(), device="cuda0"), "got 'cuda0'; nearest legal: 'cuda:0'"),
    (lambda: attn.compile(spec(), device="host", target="sm_90"), "got 'sm_90'; nearest legal: 'sm_90a'"),
    (lambda: attn.compile(spec(), device="host", target="h100"), "sm_120a, got 'h100'$"),
    (lambda: attn.check(spec(), kv_ln=50), "got 'kv_ln'; nearest legal: 'kv_len'"),
]  # fmt: skip

RUN = [
    (lambda: kernel().emit("tiles"), "got 'tiles'; nearest legal: 'tile'"),
    (lambda: kernel().emit("sass"), "got 'sass'$"),
    (lambda: plan({"kv.length": [1, 2]}), "got 'kv.length'; nearest legal: 'kv.lengths'"),
    (lambda: plan({"kv.lengths": [100, 2]}), "'kv.lengths'[0]: expected between 0 and 32"),
    (lambda: plan({"q": numpy.zeros((2, 8, 64), "f4")}), "tensor 'q': expected dtype float16, got float32"),
    (lambda: plan({"kv.k_pages": PAGES.astype("i1")}), "tensor 'kv.k_pages': expected dtype float16, got int8"),
    (lambda: plan({"kv.lengths": numpy.ones(2)}), "kv.lengths: expected integers, got ndarray float64 [2]$"),
    (lambda: plan(strategy="by_query"), "got 'by_query'; nearest legal: 'by-query'"),
    (lambda: plan(strategy="foo"), "by-node or by-node-chunk, got 'foo'$"),
    (lambda: plan(blocks=1.5), "blocks: expected a whole number of 31 bits, got 1.5$"),
    (lambda: kernel().plan(q), "PagedCache.batch(...) or tensors by name, got ndarray float16 [2, 100, 8, 64]"),
    (lambda: run(numpy.zeros((2, 8, 64), "f4")), "q: expected float16 [2, 8, 64], got float32 [2, 8, 64]"),
    (lambda: run(BATCH["q"], (PAGES,)), "kv: expected (keys, values) or PagedCache.layer(i)"),
    (lambda: run(BATCH["q"], {"key": PAGES, "v_pages": PAGES}), "kv: expected one of k_pages, v_pages, got 'key'$"),
    (lambda: run(numpy.zeros((2, 8, 128), "f2")[..., ::2]), "q: its features are 2 elements apart"),
    (lambda: run(sinks=q), "argument: expected no further tensor, got 'sinks'"),
    (lambda: run(rows="users"), "rows: expected 'user' or 'batch', got 'users'"),
]  # fmt: skip

CACHE = [
    (lambda: cache(page_size=17), "page_size: expected 1 to 8 or a multiple of 16 up to 2048, got 17; nearest legal: 16 or 32"),
    (lambda: cache(dtype="float32"), "dtype: expected 'bfloat16' or 'float16', got 'float32'"),
    (lambda: cache(pages="8"), "pages: expected a whole number from 1 to 2147483647, got '8'$"),
    (lambda: cache().layer(2), "layer: expected a number from 0 to 1, got 2; nearest legal: 1"),
    (lambda: cache().layer("0"), "layer: expected a number from 0 to 1, got '0'$"),
    (lambda: cache().append(None), "append: expected a sequence, got None"),
    (lambda: grown().append(numpy.zeros(3)), "append: expected whole numbers"),
    (lambda: grown().truncate(1, 30), "truncation of 30 tokens from node 1"),
    (lambda: grown().append(1, 3).write(0, row(4), row(3)), "k: expected float16 [3, 2, 64], got float16 [4, 2, 64]"),
    (lambda: grown().append(1, 3).write(0, row(3).astype("f4"), row(3)), "k: expected float16 [3, 2, 64], got float32"),
    (lambda: grown().append(1, 300), "pages asked for"),
    (lambda: planned(cache(key="int8", value="int4")),
     "kv: the kernel has key=None, and the cache key='int8', key_group=64"),
    (lambda: planned(cache(dtype="bfloat16")), "kv: the kernel has dtype='float16', and the cache dtype='bfloat16'"),
    (lambda: planned(cache(page_size=32)),
     "kv: the kernel reads Paged(page_size=16), and the cache is Paged(page_size=32)"),
    (lambda: planned(cache(kv_heads=4)), "kv: the kernel has kv_heads=2, and the cache kv_heads=4"),
]  # fmt: skip

MISTAKES = [*ATTEND, *DESCRIBE, *RUN, *CACHE]


@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_mistake(number):
    act, words = MISTAKES[number]
    with pytest.raises(attn.Error) as raised:
        act()
    message = str(raised.value)
    end = words.endswith("$")
    assert words.removesuffix("$") in message if not end else message.endswith(words[:-1]), message
    check_style(message)


def check_style(message):
    """Check that a message has neither the compiler's names of types and stores, nor contents of tensors, nor
    addresses."""
    assert not re.search(
        r"(?<![\w'.])(f16|f32|f64|bf16|i8|i32|u8)(?![\w'])|paged<|!attn|array\(|tensor\(|0x[0-9a-f]{6}",
        message,
    )
    assert "incompatible function arguments" not in message and len(message) < 600


def test_there_are_many():
    assert len(MISTAKES) >= 110


def test_fp8_is_what_everyone_means():
    said = repr(cache(key="fp8", value="fp8"))
    assert "key='fp8_e4m3', key_scales='token', value='fp8_e4m3', value_scales='token'" in said
    assert spec(kv=[attn.Paged(key="fp8")]).mlir() == spec(kv=[attn.Paged(key="fp8_e4m3")]).mlir()


def test_what_is_near():
    assert closest("windw", ["window", "causal"]) == "'window'"
    assert closest("foo", ["forest", "window"]) is None and closest("x", []) is None
    assert closest("top_q", ["top_k", "top_p", "rows"]) == "'top_k' or 'top_p'"
    assert closest("int", ["int8", "int4", "int2"]) is None  # equally near
    assert closest("e4m3", ["fp8_e4m3", "int8"]) == "'fp8_e4m3'"
    for value, legal in (
        (17, 16),
        (0, 1),
        (300, 256),
        (-1, 0),
        ("windw", "'window'"),
        (1.5, 1),
        ((5, 1), (1, 5)),
    ):
        assert is_near(value, legal), (value, legal)
    for value, legal in (
        (10**9, 256),
        (2**63, 31),
        (True, 1),
        (0, 128),
        (None, 1),
        ("x", 3),
        ("foo", "'forest'"),
    ):
        assert not is_near(value, legal), (value, legal)


class Broken:
    def __repr__(self):
        raise RuntimeError("no")


def test_what_was_given():
    assert (
        given(q) == "ndarray float16 [2, 100, 8, 64]" and given([q, 1]) == "list [float16 [2, 100, 8, 64], 1]"
    )
    assert given({"q": q}) == "dict {'q': float16 [2, 100, 8, 64]}" and given(None) == "None"
    assert given(lambda x: x) == "function <lambda>" and given(list(range(10**6))).startswith("list [0, 1, 2")
    assert given(Broken()) == "Broken whose repr raises RuntimeError" and len(given("x" * 999)) == 80
    assert given(numpy.float32(1)) in ("float32 1.0", "float32 np.float32(1.0)")


def test_what_caches_show_of_themselves():
    made = grown()
    assert repr(made.layer(1)) == f"<attn.CacheLayer 1 of {made!r}>"
    assert repr(made.append(1, 3)) == "<attn.CacheChange of 3 new tokens: not written>"


def test_names_that_are_not_there_suggest_others():
    with pytest.raises(AttributeError, match="has no attribute 'PagdCache'") as raised:
        attn.PagdCache  # noqa: B018
    assert (raised.value.name, raised.value.obj) == ("PagdCache", attn)
