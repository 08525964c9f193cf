# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sequences of one cache copied to another cache of fewer bits, and the bytes that a layer stores for a node."""

import sys

import attn
import numpy
import oracle
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from paged_model import DIM, KV_HEADS, LAYERS, draw, make, spec  # noqa: E402

HIGH = {"key": "int8", "value": "int8", "value_group": 32}
LOW = {"key": "int4", "value": "int2", "value_group": 16}
PAIRS = {
    "int8 to int4 and int2": (HIGH, LOW),
    "16 bits to int8": ({}, {"key": "int8", "value": "int4"}),
    "16 bits to blocks": ({}, {"key": "mxfp8_e4m3", "value": "mxfp8_e5m2"}),
    "blocks to fewer bits": ({"key": "mxfp8_e4m3", "value": "mxfp8_e4m3"}, {"key": "mxfp4", "value": "int4"}),
    "16 bits to blocks of 16": ({}, {"key": "nvfp4", "value": "nvfp4"}),
    "blocks of 16 as they are": ({"key": "nvfp4", "value": "mxfp8"}, {"key": "nvfp4", "value": "nvfp4"}),
    "fp8 to int4, int4 as it is": ({"key": "fp8_e4m3", "value": "int4"}, {"key": "int4", "value": "int4"}),
    "int4 to blocks of 4 bits": ({"key": "int4", "value": "int4"}, {"key": "mxfp4", "value": "nvfp4"}),
    "16 bits to fp8": ({}, {"key": "fp8_e5m2", "value": "fp8_e4m3"}),
}


def array(memory):
    """Return a NumPy array; floats of 8 bits become bytes, since NumPy has no such type."""
    if "float8" in str(memory.dtype):
        memory = memory.view(sys.modules["torch"].uint8)
    return numpy.asarray(memory)


def raw(memory):
    return array(memory).tobytes()


def used(meta, name):
    """Return metadata without the unused bytes after the scales of a row's blocks."""
    meta = array(meta)
    return meta[..., : DIM // (16 if name == "nvfp4" else 32)] if meta.dtype == numpy.uint8 else meta


def names(formats):
    """Return the arguments of attn.quantize for keys and values; None in 16 bits."""
    return [
        (formats[part], {"group": formats.get(f"{part}_group")}) if part in formats else None
        for part in ("key", "value")
    ]


def numbers(stored, formats):
    """Return the numbers that a layer's quantized values of a node stand for."""
    found = []
    for letter, name in zip("kv", names(formats), strict=True):
        if name is None:
            found.append(numpy.asarray(stored[letter]).astype(numpy.float32))
        else:
            meta = stored.get(f"{letter}_meta", stored.get(f"{letter}_scales"))
            found.append(attn.dequantize(array(stored[letter]), array(meta), name[0], **name[1]))
    return found


def fill(cache, node, count, seed=1):
    rng = numpy.random.default_rng(seed)
    k, v = (draw(rng, LAYERS, count, KV_HEADS, DIM) for _ in range(2))
    cache.append(node, count).write_all(k, v)
    return k, v


@pytest.mark.parametrize("pair", PAIRS)
def test_codes_are_those_of_what_was_stored(pair):
    """The target's quantized values are, to the bit, those of the source's dequantized numbers, in every layer;
    neighbours are unchanged."""
    high, low = PAIRS[pair]
    source, target = make(**high), make(**low, pages=7)
    fill(source, source.add(), 3)
    node = source.add()
    fill(source, node, 37)
    other = target.add()
    fill(target, other, 20)
    before = [target.layer(layer).stored(other) for layer in range(LAYERS)]
    leaf = target.requantize(source, node)
    assert target.tokens(leaf) == 37 and source.tokens(node) == 37
    for layer in range(LAYERS):
        stored = target.layer(layer).stored(leaf)
        theirs = source.layer(layer).stored(node)
        for letter, rows, name, was in zip("kv", numbers(theirs, high), names(low), names(high), strict=True):
            if was == name:
                assert raw(stored[letter]) == raw(theirs[letter])
                continue
            codes, meta = attn.quantize(rows, name[0], **name[1])
            assert raw(stored[letter]) == raw(codes)
            found = stored.get(f"{letter}_meta", stored.get(f"{letter}_scales"))
            assert raw(used(found, name[0])) == raw(used(meta, name[0]))
        after = target.layer(layer).stored(other)
        assert all(raw(after[part]) == raw(tensor) for part, tensor in before[layer].items())


def test_a_path_becomes_a_sequence_that_grows():
    """Tokens of the nodes above are copied too, and the new sequence grows like any other."""
    source, target = make(**HIGH), make(**LOW)
    root = source.add()
    fill(source, root, 21)
    left, right = source.branch(root, 2)
    fill(source, left, 6, 2)
    fill(source, right, 9, 3)
    leaf = target.requantize(source, right)
    assert target.own_tokens(leaf) == 30
    fill(target, leaf, 5, 4)
    kernel = attn.compile(spec(kv=[attn.Paged(**LOW)]), device="host")
    plan = kernel.plan(target.batch([leaf]))
    rng = numpy.random.default_rng(7)
    for layer in range(LAYERS):
        k, v = numbers(target.layer(layer).stored(leaf), LOW)
        assert len(k) == 35
        q = draw(rng, 1, 4, DIM)
        expected, _ = oracle.attend(q[0], k, v)
        assert oracle.error(kernel.run(q, target.layer(layer), plan)[0], expected) < 2e-3
    assert target.requantize(source, source.add()) not in (leaf, right)  # a source without tokens


def test_twice_is_as_good_as_once():
    """Grids nest: eight bits, then four, lose as much as four bits alone."""
    plain, high, low = make(), make(key="int8", value="int8"), make(key="int4", value="int4")
    node = plain.add()
    k, v = fill(plain, node, 64)
    at_once = low.requantize(plain, node)
    in_steps = low.requantize(high, high.requantize(plain, node))
    formats = {"key": "int4", "value": "int4"}
    for letter, rows in enumerate((k, v)):
        errors = [
            numpy.linalg.norm(numbers(low.layer(0).stored(leaf), formats)[letter] - rows[0])
            for leaf in (in_steps, at_once)
        ]
        assert errors[0] <= 1.001 * errors[1]


def test_numbers_that_are_not_finite_are_counted():
    source, target = make(), make(key="int8", value="fp8_e4m3")
    node = source.add()
    rng = numpy.random.default_rng(6)
    k, v = (draw(rng, LAYERS, 5, KV_HEADS, DIM) for _ in range(2))
    k[0, 3, 0, 7], v[1, 4, 0, 0] = numpy.nan, -numpy.inf
    source.append(node, 5).write_all(k, v)
    target.requantize(source, node)
    assert target.clamped == 2 and source.clamped == 0


def streaming(recent, **formats):
    classes = [
        attn.CacheClass(name="retrieval", pages=20, heads=1),
        attn.CacheClass(name="streaming", pages=20, heads=1, recent=recent, sink=4),
    ]
    return make(pages=None, classes=classes, **formats)


def test_classes_keep_what_they_keep():
    """Tokens that a streaming class has freed are skipped where the target does not keep them either."""
    source, target, longer = streaming(32, **HIGH), streaming(32, **LOW), streaming(100, **LOW)
    node = source.add()
    rng = numpy.random.default_rng(8)
    for _ in range(3):
        k, v = (draw(rng, LAYERS, 40, KV_HEADS, DIM) for _ in range(2))
        source.append(node, 40).write_all(k, v, classes=[1, 0])
    leaf = target.requantize(source, node)
    kept = target.slots(leaf, 1) >= 0
    assert target.tokens(leaf) == 120 and 36 <= kept.sum() <= 64 and kept[88:].all() and kept[:4].all()
    pages = {
        cache: {
            index: {part: numpy.asarray(x) for part, x in cache.layer(1).tensors(index).items()}
            for index in (0, 1)
        }
        for cache in (source, target)
    }
    for index in (0, 1):
        there = target.slots(leaf, index) >= 0
        found = []
        for cache, last, formats in ((source, node, HIGH), (target, leaf, LOW)):
            slots, of = cache.slots(last, index)[there], pages[cache][index]
            k, meta = (of[name][slots // 16, :, slots % 16] for name in ("k_pages", "k_meta"))
            found.append(attn.dequantize(k, meta, formats["key"]))
        error = numpy.linalg.norm(found[0] - found[1]) / numpy.linalg.norm(found[0])
        assert 0.01 < error < 0.15
    free = longer.free_pages("streaming")
    with pytest.raises(attn.PlanError, match="class streaming has given back tokens that are kept here"):
        longer.requantize(source, node)
    assert longer.sequences == [] and longer.free_pages("streaming") == free


def test_too_few_pages_change_nothing():
    source, target = make(**HIGH), make(**LOW, pages=2)
    node = source.add()
    fill(source, node, 33)
    with pytest.raises(attn.OutOfPages):
        target.requantize(source, node)
    assert target.sequences == [] and target.free_pages() == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"key": "int8", "value": "int8"},
            "expected a value of at least as many bits as value='int8', value_group=64.*got value='int4', value_group=64",
        ),
        ({}, "expected a key of at least as many bits as key=None"),
        ({**LOW, "head_dim": 128}, "expected head_dim 128, as this cache has, got 64"),
        ({**LOW, "layers": 3}, "expected layers 3, as this cache has, got 2"),
    ],
)
def test_what_is_refused(changes, message):
    source, target = make(key="int8", value="int4"), make(**changes)
    node = source.add()
    fill(source, node, 3)
    with pytest.raises(attn.PlanError, match=message):
        target.requantize(source, node)
    assert target.sequences == []


def test_floats_of_4_bits_have_fewer_than_8():
    source, target = make(key="mxfp4", value="nvfp4"), make(key="int8", value="mxfp8")
    node = source.add()
    fill(source, node, 3)
    with pytest.raises(attn.PlanError, match="expected a key of at least as many bits as key='int8'"):
        target.requantize(source, node)


def test_other_refusals():
    source, target = make(**HIGH), make(**LOW)
    node = source.add()
    for wrong in (target, None, "cache"):
        with pytest.raises(attn.PlanError, match="source: expected another attn.PagedCache"):
            target.requantize(wrong, node)
    with pytest.raises(attn.PlanError, match="node"):
        target.requantize(source, 12345)
    change = source.append(node, 4)
    with pytest.raises(
        attn.PlanError, match="source: the keys and values of its last change are not written"
    ):
        target.requantize(source, node)
    change.skip()
    target.requantize(source, node)


def test_what_is_stored_of_a_node():
    """A layer returns 16-bit rows as they are, quantized values as attn.quantize makes them, and given scales
    unchanged."""
    cache = make()
    node = cache.add()
    k, v = fill(cache, node, 18)
    stored = cache.layer(1).stored(node)
    assert list(stored) == ["k", "v"]
    assert raw(stored["k"]) == raw(k[1]) and raw(stored["v"]) == raw(v[1])
    cache = make(**HIGH)
    node = cache.add()
    k, v = fill(cache, node, 18)
    stored = cache.layer(0).stored(node)
    assert list(stored) == ["k", "v", "k_meta", "v_meta"]
    codes, meta = attn.quantize(v[0], "int8", group=32)
    assert raw(stored["v"]) == raw(codes) and raw(stored["v_meta"]) == raw(meta)
    numpy.asarray(cache.layer(0).k)[:] = 0
    assert raw(stored["v"]) == raw(codes)  # it is a copy
    scaled = make(key="fp8_e4m3", key_scales="head")
    node = scaled.add()
    fill(scaled, node, 2)
    stored = scaled.layer(0).stored(node)
    assert stored["k_scales"].shape == (KV_HEADS,) and stored["k"].shape == (2, KV_HEADS, DIM)
    ring = streaming(8)
    node = ring.add()
    for _ in range(2):
        k, v = (draw(numpy.random.default_rng(1), LAYERS, 40, KV_HEADS, DIM) for _ in range(2))
        ring.append(node, 40).write_all(k, v, classes=[0, 1])
    assert len(ring.layer(0).stored(node, 0)["k"]) == 80
    with pytest.raises(attn.PlanError, match="given back by a streaming class"):
        ring.layer(0).stored(node, 1)
