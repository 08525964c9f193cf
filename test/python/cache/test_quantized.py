# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PagedCache whose pages hold quantized values: attention sees the quantized tokens of its sequences, and metadata
moves with them."""

import attn
import numpy
import oracle
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from paged_model import DIM, KV_HEADS, LAYERS, Model, draw, make, raw, spec  # noqa: E402

FORMATS = [
    {"key": "int8", "value": "int4"},
    {"key": "int4", "value": "int2", "key_group": 16, "value_group": 32},
    {"value": "fp8_e4m3"},
    {"key": "fp8_e5m2", "value": "int8"},
    {"key": "mxfp8_e4m3", "value": "mxfp4"},
    {"key": "nvfp4", "value": "nvfp4"},
]


def read_back(rows, formats, part):
    """Return written rows as they are read."""
    name = formats.get(part)
    if name is None:
        return rows.astype(numpy.float32)
    group = {"group": formats.get(f"{part}_group")}
    return attn.dequantize(*attn.quantize(rows, name, **group), name, **group)


class Quantized(Model):
    """A model whose lists hold the written rows, and whose paths give the quantized ones."""

    def __init__(self, formats, **changes):
        super().__init__(make(**formats, **changes))
        self.formats = formats

    def _read(self, tokens):
        parts = [read_back(tokens[:, :, i], self.formats, part) for i, part in enumerate(("key", "value"))]
        return numpy.stack(parts, axis=2)

    def path(self, node):
        return self._read(super().path(node)) if node in self.held else super().path(node)

    def chain(self, leaf, token):
        return super().chain(leaf, token)


@pytest.mark.parametrize("page", [16, 48])
@pytest.mark.parametrize("formats", FORMATS, ids=lambda formats: "-".join(map(str, formats.values())))
def test_a_tree_with_drafts(formats, page):
    kernel = attn.compile(spec(kv=[attn.Paged(page_size=page, **formats)]), device="host")
    model = Quantized(formats, page_size=page)
    first, second = model.add(), model.add()
    model.append([first, second], [page + 21, 5])
    model.check(kernel, [(first, 37), second])
    twin = model.fork(first)  # copies the tokens of a page that is not full
    model.append([first, twin], [2, 13])
    model.check(kernel, [first, twin, second])
    model.speculate(second, [-1, 0, 0, 2])
    model.commit(second, 3)
    model.branch(first, 2)
    left, right = model.leaves()[-2:]
    model.append([left, right], [1, 20])
    model.prune(twin)
    model.check(kernel, [left, right, (second, 2)])


def test_pages_hold_codes_and_metadata_of_lines():
    cache = make(key="int8", value="int4", value_group=32)
    rng = numpy.random.default_rng(4)
    node = cache.add()
    change = cache.append(node, 21)
    k, v = (draw(rng, LAYERS, 21, KV_HEADS, DIM) for _ in range(2))
    slots = change.slots()
    change.write_all(k, v)
    copied = cache.slots(cache.fork(node))  # slots of the page that is not full
    assert len(slots) == 21 and len(copied) == 5 and not set(copied) & set(slots)
    for places in (slots, numpy.concatenate([slots[:16], copied])):
        found = {name: numpy.asarray(tensor) for name, tensor in cache.layer(1).tensors().items()}
        assert list(found) == ["k_pages", "v_pages", "k_meta", "v_meta"]
        assert found["k_meta"].shape == (64, KV_HEADS, 16, 1, 2) and found["v_meta"].shape[3:] == (2, 2)
        for part, rows, name, group in (("k", k, "int8", None), ("v", v, "int4", 32)):
            codes, meta = attn.quantize(rows[1], name, group=group)
            assert numpy.array_equal(found[f"{part}_pages"][places // 16, :, places % 16], codes)
            assert raw(found[f"{part}_meta"][places // 16, :, places % 16]) == raw(meta)


def test_scales_that_are_given():
    formats = {"key": "fp8_e4m3", "value": "fp8_e4m3", "key_scales": "head", "value_scales": "tensor"}
    kernel = attn.compile(spec(kv=[attn.Paged(**formats)]), device="host")
    cache = make(**formats)
    rng = numpy.random.default_rng(5)
    k, v = (draw(rng, LAYERS, 30, KV_HEADS, DIM) for _ in range(2))
    node, held = cache.add(), []
    for layer in range(LAYERS):
        scales = cache.layer(layer).tensors()
        for part, rows, shared in (("k", k, "head"), ("v", v, "tensor")):
            codes, found = attn.quantize(rows[layer], "fp8_e4m3", scales=shared)
            held.append(attn.dequantize(codes, found, "fp8_e4m3", scales=shared))
            numpy.asarray(scales[f"{part}_scales"])[:] = found
    cache.append(node, 30).write_all(k, v)
    plan = kernel.plan(cache.batch([node]))
    for layer in range(LAYERS):
        q = draw(rng, 1, 4, DIM)
        expected, _ = oracle.attend(q[0], *held[2 * layer : 2 * layer + 2])
        assert oracle.error(kernel.run(q, cache.layer(layer), plan)[0], expected) < 2e-3


def test_bytes_of_a_token():
    assert make().token_bytes == LAYERS * KV_HEADS * 2 * DIM * 2
    cache = make(key="int8", value="int4")
    assert cache.token_bytes == LAYERS * KV_HEADS * (DIM + 4 + DIM // 2 + 4)
    assert (
        f"key='int8', key_group=64, value='int4', value_group=64, {cache.token_bytes} bytes a token"
        in repr(cache)
    )


def test_numbers_that_are_not_finite():
    """Numbers that are not finite are counted, and do not change their neighbours."""
    cache = make(key="int8", value="fp8_e4m3")
    k, v = (draw(numpy.random.default_rng(6), LAYERS, 5, KV_HEADS, DIM) for _ in range(2))
    node, other = cache.add(), cache.add()
    cache.append(node, 5).write_all(k, v)
    assert cache.clamped == 0
    k[0, 3, 0, 7], k[1, 3, 1, 9], v[1, 4, 0, 0] = numpy.nan, numpy.inf, -numpy.inf
    cache.append(other, 5).write_all(k, v)
    assert cache.clamped == 3
    codes = numpy.asarray(cache.layer(0).k).swapaxes(1, 2).reshape(-1, KV_HEADS, DIM)
    first, second = (codes[cache.slots(n)] for n in (node, other))
    assert numpy.array_equal(first[:3], second[:3]) and numpy.array_equal(first[3, 1], second[3, 1])


@pytest.mark.parametrize(
    "given,message",
    [
        ({"key": "int3"}, r"key: expected 'int8', .* got 'int3'$"),
        ({"key": "int4", "key_group": 48}, "key: expected a group of .* divides the dim of 64, .* got 48"),
        ({"key_group": 32}, "key_group: expected None without key"),
        ({"value": "int2", "head_dim": 32}, "value: expected a dim of whole 16 bytes.* nearest legal: 64"),
        ({"key": "int8", "draft_page": 1}, "draft_page: expected page_size, 16, .* got 1; nearest legal: 16"),
    ],
)
def test_what_is_refused(given, message):
    with pytest.raises(attn.PlanError, match=message):
        make(**given)


def test_kernels_of_other_formats():
    cache = make(key="int8", value="int4")
    node = cache.add()
    cache.append(node, 3).skip()
    for kv, message in (
        (attn.Paged(), "kv: the kernel has key=None, and the cache key='int8', key_group=64"),
        (
            attn.Paged(key="int8", value="int4", value_group=32),
            "value='int4', value_group=32, and the cache value='int4', value_group=64",
        ),
    ):
        with pytest.raises(attn.PlanError, match=message):
            cache.batch([node]).user_row(attn.compile(spec(kv=[kv]), device="host"))
