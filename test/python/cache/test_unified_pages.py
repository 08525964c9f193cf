# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory of unified pages: views, new tokens as quantized values, fewer bits, and attention over two precisions in one
memory."""

from dataclasses import replace

import attn
import numpy
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from attn import Unified, UnifiedPages  # noqa: E402

HIGH = Unified(name="high", page_size=32, key="int8", value="int4", see=attn.all_tokens())
LOW = Unified(name="low", page_size=64, key="int4", value="int2", see=attn.all_tokens())


def made(pages=12, **changes):
    return UnifiedPages(HIGH, LOW, pages=pages, head_dim=128, dtype="float16", device="host", **changes)


def numbers(seed, tokens, dim=128):
    return numpy.random.default_rng(seed).standard_normal((2, tokens, dim)).astype(numpy.float16)


def array(tensor):
    return tensor.numpy() if hasattr(tensor, "numpy") else tensor


def test_sizes_are_those_of_the_longest_store():
    pages = made()
    assert pages.page_bytes == 64 * 104 and tuple(pages.memory.shape) == (12, 6656)
    assert pages.waste() == {"high": 1 - 32 * 200 / 6656, "low": 0.0}
    parts = pages.tensors("low")
    assert {name: tuple(view.shape) for name, view in parts.items()} == {
        "low.k_pages": (12, 64, 64), "low.v_pages": (12, 64, 32), "low.k_meta": (12, 64, 1, 2), "low.v_meta": (12, 64, 1, 2)
    }  # fmt: skip
    extra = made(per_token={"scores": "float32", "positions": "int32"})
    assert extra.page_bytes == 64 * 112
    extra.per_token("high")["positions"][:] = 7
    extra.per_token("high")["scores"][:] = 0
    assert (array(extra.memory)[:, 32 * 200 + 32 * 4 : 32 * 208].copy().view(numpy.int32) == 7).all()


def test_written_tokens_are_those_of_quantize():
    pages, rows = made(), numbers(1, 50)
    slots = numpy.random.default_rng(2).permutation(12 * 32)[:50].astype(numpy.int32)
    slots[3] = -1
    pages.write("high", slots, *rows)
    views = {name: array(view) for name, view in pages.tensors("high").items()}
    for part, bits in (("k", "int8"), ("v", "int4")):
        codes, meta = attn.quantize(rows["kv".index(part)].astype(numpy.float32), bits, group=128)
        for token, slot in enumerate(slots):
            if slot >= 0:
                assert (views[f"high.{part}_pages"][slot // 32, slot % 32] == codes[token]).all()
                assert (views[f"high.{part}_meta"][slot // 32, slot % 32] == meta[token]).all()


def test_what_is_not_finite_is_counted():
    pages, rows = made(), numbers(1, 4)
    rows[0, 2, 5], rows[1, 0, 0] = numpy.nan, numpy.inf
    pages.write("low", range(4), *rows)
    assert pages.clamped() == 2


@pytest.mark.parametrize("sizes", [(32, 64), (48, 96), (7, 112), (528, 1056)])
def test_two_precisions_of_one_memory_against_float64(sizes):
    """Lists of four heads of two sequences, whose tokens are divided between the two stores; some are requantized."""
    high, low = (replace(store, page_size=size) for store, size in zip((HIGH, LOW), sizes, strict=True))
    rng, of = numpy.random.default_rng(3), dict(high=sizes[0], low=sizes[1])
    lengths = {"high": sizes[0] + rng.integers(1, 58, (2, 2)), "low": rng.integers(10, 120, (2, 2))}
    held = {name: -(-lengths[name] // of[name]) for name in lengths}
    count = sum(int(each.sum()) for each in held.values()) + 3
    pages = UnifiedPages(high, low, pages=count, head_dim=128, dtype="float16", device="host")
    order, taken = rng.permutation(count), iter(range(count))
    tables = {name: numpy.zeros((2, 2, each.max()), numpy.int32) for name, each in held.items()}
    for name in lengths:
        for at in numpy.ndindex(2, 2):
            for column in range(held[name][at]):
                tables[name][(*at, column)] = order[next(taken)]

    def slot(name, at, token):
        return tables[name][(*at, token // of[name])] * of[name] + token % of[name]

    for name in lengths:
        for at in numpy.ndindex(2, 2):
            count = int(lengths[name][at])
            pages.write(name, [slot(name, at, t) for t in range(count)], *numbers(7 * count, count))
    # A token of each list of many bits moves to the list of few bits.
    for at in numpy.ndindex(2, 2):
        pages.requantize("high", [slot("high", at, sizes[0])], "low", [slot("low", at, 0)])
    spec = attn.Spec(q_heads=4, kv_heads=2, head_dim=128, dtype="float16", kv=[high, low])
    batch = {"q": numbers(5, 8)[0].reshape(2, 4, 128), "q_start": numpy.arange(3, dtype=numpy.int32)}
    for name in lengths:
        batch |= {part: array(view) for part, view in pages.tensors(name).items()}
        batch[f"{name}.lengths"] = lengths[name].astype(numpy.int32)
        batch[f"{name}.block_table"], batch[f"{name}.pos0"] = tables[name], numpy.zeros(2, numpy.int32)
    attn.check(spec, batch)


@pytest.mark.parametrize(
    "call,error,words",
    [
        (lambda: UnifiedPages(pages=3, head_dim=64), attn.SpecError, "at least one attn.Unified"),
        (lambda: UnifiedPages(attn.Paged(), pages=3, head_dim=64), attn.SpecError, r"attn\.Unified\(\.\.\.\)"),
        (lambda: UnifiedPages(HIGH, HIGH, pages=3, head_dim=64), attn.SpecError, "stores of different names"),
        (lambda: UnifiedPages(HIGH, pages=0, head_dim=64), attn.PlanError, "pages"),
        (lambda: UnifiedPages(LOW, pages=3, head_dim=96), attn.SpecError, "low: value: expected a dim"),
        (lambda: made(per_token={"x": "int8"}), attn.SpecError, r"per_token\['x'\]: expected 'int32' or 'float32'"),
        (lambda: made().tensors("kv"), attn.SpecError, "one of high, low"),
        (lambda: Unified(ragged=False), attn.SpecError, r"Unified\(ragged\): expected True"),
        (lambda: Unified(page_size=24), attn.SpecError, r"Unified\(page_size\).*nearest legal: 16 or 32"),
        (lambda: made().write("high", [12 * 32], *numbers(1, 1)), attn.TensorError, "less than 384, got 384"),
        (lambda: made().write("high", [5, 5], *numbers(1, 2)), attn.TensorError, "one twice"),
        (lambda: made().write("high", [5], *numbers(1, 2)), attn.TensorError, r"k: expected float16 \[1, 128\]"),
        (lambda: made().requantize("low", [0], "high", [9]), attn.Error, "at most as many bits"),
        (
            lambda: UnifiedPages(Unified(key="fp8_e4m3", key_scales="head"), pages=3, head_dim=64, dtype="float16", device="host").write("kv", [0], *numbers(1, 1, 64)),
            attn.PlanError,
            "scales by token",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_tensors_of_different_pages_are_refused():
    spec = attn.Spec(
        q_heads=2,
        kv_heads=2,
        head_dim=64,
        dtype="float16",
        kv=[Unified(key="int8", value="int8")],
        see=attn.causal(),
    )
    tensors = attn.sample(spec, batch=2, kv_len=70)
    kernel = attn.compile(spec, device="host")
    plan = kernel.plan(tensors)
    parts = [tensors[f"kv.{part}"] for part in ("k_pages", "v_pages", "k_meta", "v_meta")]
    parts[2] = numpy.ascontiguousarray(parts[2])
    with pytest.raises(attn.Error, match=r"kv\.k_meta: expected pages \d+ bytes apart, as of kv\.k_pages"):
        kernel.run(tensors["q"], tuple(parts), plan)
    parts[2] = tensors["kv.k_meta"][:, :, :, ::-1]
    with pytest.raises(attn.Error, match=r"kv\.k_meta"):
        kernel.run(tensors["q"], tuple(parts), plan)
