# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dense tensors in memory: a form and its tables, as a kernel reads them, give the original numbers."""

import attn
import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from visibilities import VISIBILITIES

pytest.importorskip("attn._attn", reason="the extension is not built")

from attn.memory.layouts import Form, forms, overlaps, swapped  # noqa: E402
from attn.memory.views import Strided, span  # noqa: E402
from attn.run.arrange import arrange  # noqa: E402


def strides_of(array):
    return tuple(stride // array.itemsize for stride in array.strides)


ORDERS = st.tuples(st.booleans(), st.sampled_from([0, 0, 3]))  # token-major, capacity after the last token
FUSED = st.tuples(st.none(), st.sampled_from([2, 3]))  # one part of a fused projection of this many parts


@st.composite
def dense(draw, batch, seq, heads, dim, orders=ORDERS):
    """Draw [batch, seq, heads, dim] in one of the two orders, possibly the front part of a longer tensor."""
    token_major, room = draw(orders)
    if token_major is None:
        data = numpy.random.default_rng(draw(st.integers(0, 9))).standard_normal(
            (batch, seq, room, heads, dim)
        )
        return data[:, :, 0]
    shape = (batch, seq + room, heads, dim)
    total = int(numpy.prod(shape))
    data = numpy.random.default_rng(draw(st.integers(0, 9))).standard_normal(total)
    if token_major:
        return data.reshape(shape)[:, :seq]
    return data.reshape(swapped(shape)).swapaxes(1, 2)[:, :seq]


SIZES = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.sampled_from([2, 4]))


def memory(array):
    """Return all memory of the array's base, from the array's first element on."""
    base = array
    while isinstance(base.base, numpy.ndarray):
        base = base.base
    return base.reshape(-1)


@given(SIZES.flatmap(lambda sizes: dense(*sizes)))
def test_memory_read_through_a_form_is_the_tensor(array):
    batch, seq, heads, dim = array.shape
    found = forms(array.shape, strides_of(array))
    assert found
    for major, capacity in found:
        shape = (batch, capacity, heads, dim)
        in_memory = shape if major == "token" else swapped(shape)
        flat = memory(array)
        need = int(numpy.prod(in_memory))
        if need > flat.size:  # an instance of one token or one head may have any capacity
            flat = numpy.concatenate([flat, numpy.zeros(need - flat.size)])
        read = flat[:need].reshape(in_memory)
        read = read if major == "token" else read.swapaxes(1, 2)
        assert (read[:, :seq] == array).all()


@pytest.mark.parametrize(
    "array",
    [
        numpy.zeros((2, 3, 4, 8))[..., ::2],
        numpy.zeros((2, 3, 4, 8)).transpose(0, 3, 2, 1),
        numpy.zeros((2, 3, 2, 4, 8))[:, :, 0],  # keys of a fused tensor of keys and values
        numpy.zeros((2, 6, 4, 8))[:, ::2],
        numpy.zeros((2, 3, 8, 8))[:, :, :4],
        numpy.broadcast_to(numpy.zeros((2, 3, 1, 8)), (2, 3, 4, 8)),
    ],
)
def test_other_strides_have_no_form(array):
    assert forms(array.shape, strides_of(array)) == []


def test_both_orders_of_one_token():
    assert forms((2, 1, 4, 8), (32, 32, 8, 1)) == [Form("token", 1), Form("head", 1)]
    assert forms((2, 5, 1, 8), (40, 8, 8, 1)) == [Form("token", 5), Form("head", 5)]


def as_seen(array):
    return Strided("f16", array.shape, strides_of(array), "host")


def attention(see, q, k, v, q_pos, k_pos):
    """Return attention of rows [n, d] over tokens [m, d] by definition."""
    scores = numpy.where(see.sees(q_pos[:, None], k_pos[None]), q @ k.T, -numpy.inf)
    top = scores.max(axis=1, initial=-1e30, keepdims=True)
    weights = numpy.exp(scores - top)
    return weights @ v / numpy.maximum(weights.sum(axis=1, keepdims=True), 1e-300)


def run_kernel(made, see, q, k, v):
    """Return a kernel's result from the operands: it reads memory, shapes, strides and tables."""
    ops = made.operands
    read = {}
    for name, array in (("q", q), ("kv.k", k), ("kv.v", v)):
        shape, flat = ops[name][1], memory(array)
        if name in made.strides:
            lies = tuple(stride * flat.itemsize for stride in made.strides[name])
            assert span(shape, made.strides[name], 1) <= flat.size
            read[name] = numpy.lib.stride_tricks.as_strided(flat, shape, lies)
        else:
            read[name] = flat[: int(numpy.prod(shape))].reshape(shape)
    rows, heads, _ = read["q"].shape
    out = numpy.zeros((rows, heads, read["kv.v"].shape[-1]))
    group = heads // read["kv.k"].shape[-2]
    for i, (first, last) in enumerate(zip(ops["q_start"][:-1], ops["q_start"][1:], strict=True)):
        length, pos0 = ops["kv.lengths"][i], ops["kv.pos0"][i]
        for h in range(heads):
            if "kv.start" in ops:
                tokens = slice(ops["kv.start"][i], ops["kv.start"][i + 1])
                keys, values = read["kv.k"][tokens, h // group], read["kv.v"][tokens, h // group]
            else:
                keys, values = (read[name][i, :length, h // group] for name in ("kv.k", "kv.v"))
            positions = ops["q_pos"][first:last]
            assert (positions >= 0).all()
            out[first:last, h] = attention(
                see, read["q"][first:last, h], keys, values, positions, pos0 + numpy.arange(length)
            )
    return out


@st.composite
def problems(draw):
    batch, rows, tokens = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 6))
    kv_heads, group = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    q = draw(dense(batch, rows, kv_heads * group, 4, ORDERS | FUSED))
    alike = st.just((draw(st.booleans()), draw(st.sampled_from([0, 3])))) | FUSED
    k, v = draw(dense(batch, tokens, kv_heads, 4, alike)), draw(dense(batch, tokens, kv_heads, 2, alike))
    lengths = draw(st.none() | st.lists(st.integers(0, tokens), min_size=batch, max_size=batch))
    return q, k, v, None if lengths is None else numpy.array(lengths, numpy.int32)


@settings(max_examples=400)
@given(problems(), VISIBILITIES, st.sampled_from(["bshd", "bhsd"]), st.booleans())
def test_dense_arrangements_mean_attention(problem, see, layout, by_head):
    check_dense(problem, see, layout, by_head)


def test_lengths_that_differ_where_heads_are_sequences():
    random = numpy.random.default_rng(0)
    q, k, v = (
        random.standard_normal((3, heads, tokens, dim)).swapaxes(1, 2)
        for heads, tokens, dim in ((4, 2, 4), (2, 6, 4), (2, 6, 2))
    )
    check_dense((q, k, v, numpy.array([6, 2, 3], numpy.int32)), attn.causal(), "bhsd", False)


def check_dense(problem, see, layout, by_head):
    q, k, v, lengths = problem
    given = [array if layout == "bshd" else array.swapaxes(1, 2) for array in (q, k, v)]
    reads_positions = see.fixed_term()
    try:
        made = arrange(
            *map(as_seen, given),
            layout,
            (lengths, None, None),
            of_heads="h" * by_head,
            of_positions=reads_positions,
        )
    except attn.TensorError as error:
        narrow = any(array.shape[-1] % 8 for array in (q, k, v))  # rows that are not a multiple of 16 bytes
        assert "as many rows as tokens" in str(error) or (narrow and "16 bytes" in str(error))
        return
    if by_head:
        assert made.q_heads == q.shape[2]
    if made.copies_q:
        q = numpy.ascontiguousarray(q.swapaxes(1, 2) if made.order[8:13] == "heads" else q)
    out = run_kernel(made, see, q, k, v).reshape(made.shape)
    out = out.swapaxes(1, 2) if made.swapped else out
    out = out if layout == "bshd" else out.swapaxes(1, 2)
    batch, rows, heads, _ = problem[0].shape
    for b in range(batch):
        length = k.shape[1] if lengths is None else lengths[b]
        for h in range(heads):
            kv = h // (heads // k.shape[2])
            wanted = attention(
                see,
                problem[0][b, :, h],
                k[b, :length, kv],
                v[b, :length, kv],
                length - rows + numpy.arange(rows),
                numpy.arange(length),
            )
            numpy.testing.assert_allclose(out[b, :, h], wanted, atol=1e-12)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), min_size=1, max_size=4),
    VISIBILITIES,
    st.integers(0, 99),
)
def test_packed_arrangements_mean_attention(sizes, see, seed):
    random = numpy.random.default_rng(seed)
    starts = numpy.concatenate([[0], numpy.cumsum([rows for rows, _ in sizes])]).astype(numpy.int32)
    starts_k = numpy.concatenate([[0], numpy.cumsum([tokens for _, tokens in sizes])]).astype(numpy.int32)
    q = random.standard_normal((starts[-1], 4, 4))
    k, v = random.standard_normal((starts_k[-1], 2, 4)), random.standard_normal((starts_k[-1], 2, 2))
    if any(rows > tokens for rows, tokens in sizes) and see.fixed_term():
        see = attn.causal()
    made = arrange(*map(as_seen, (q, k, v)), "bshd", (None, starts, starts_k))
    out = run_kernel(made, see, q, k, v)
    for i, (rows, tokens) in enumerate(sizes):
        for h in range(4):
            wanted = attention(
                see,
                q[starts[i] : starts[i + 1], h],
                k[starts_k[i] : starts_k[i + 1], h // 2],
                v[starts_k[i] : starts_k[i + 1], h // 2],
                tokens - rows + numpy.arange(rows),
                numpy.arange(tokens),
            )
            numpy.testing.assert_allclose(out[starts[i] : starts[i + 1], h], wanted, atol=1e-12)


@settings(max_examples=500)
@given(
    st.tuples(*[st.integers(0, 4)] * 3),
    st.integers(0, 7),
    st.integers(60, 200),
    st.integers(0, 30),
    st.booleans(),
)
def test_overlaps_are_those_of_the_elements(shape, room, start, nbytes, swap):
    strides = (shape[1] * shape[2] + room, shape[2], 1)
    if swap:
        shape, strides = swapped((*shape, 1))[:3], swapped((*strides, 1))[:3]
    places = [sum(i * n for i, n in zip(index, strides, strict=True)) for index in numpy.ndindex(*shape)]
    memory = {100 + 2 * place + half for place in places for half in (0, 1)}
    met = any(start <= byte < start + nbytes for byte in memory)
    assert overlaps(start, nbytes, 100, shape, strides, 2) == met
