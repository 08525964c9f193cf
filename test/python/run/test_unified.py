# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Unified stores: pages that belong to no head, of operands that share a memory. Kernels are checked under all
detectors, and give the bits of ragged stores whose pages hold the same tokens."""

import attn
import numpy
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from attn import Paged, Unified  # noqa: E402

SIZES = {"q_heads": 4, "kv_heads": 2, "head_dim": 64, "dtype": "float16", "see": attn.all_tokens()}
HIGH = Unified(
    name="high", page_size=32, key="int8", value="int4", see=attn.all_tokens(), dims=("batch", "high_len")
)
LOW = Unified(
    name="low", page_size=64, key="int4", value="int2", see=attn.all_tokens(), dims=("batch", "low_len")
)


def spec(*stores, **changes):
    return attn.Spec(**{**SIZES, "kv": list(stores), **changes})


CHECKED = [
    (Unified(key="int8", value="int4"), {}),
    (
        Unified(key="int4", value="int2", key_group=32, page_size=8),
        {"dtype": "bfloat16", "see": attn.causal()},
    ),
    (Unified(page_size=1), {"q_heads": 2}),
    (Unified(page_size=256, key="fp8_e4m3", value="int8"), {"q_heads": 8, "kv_heads": 1}),
    (Unified(key="fp8_e4m3", key_scales="head", value="fp8_e5m2", value_scales="tensor"), {}),
    (Unified(key="int4", value="int4", value_group=16), {"head_dim": 128, "value_dim": 64}),
    (Unified(key="int8", page_size=16), {"see": attn.sink(3) | attn.window(40), "sink_logits": True}),
]


@pytest.mark.parametrize("q_len", [1, 5, 40])
@pytest.mark.parametrize("store,changes", CHECKED)
def test_kernels_are_right_and_clean(store, changes, q_len):
    attn.check(spec(store, **changes), seed=1, shuffle=True, batch=3, q_len=q_len, kv_len=(q_len, 150))


@pytest.mark.parametrize("q_len", [1, 20])
@pytest.mark.parametrize("significance", [None, "max"])
def test_two_precisions(q_len, significance):
    found = spec(HIGH, LOW, significance=significance, see=None)
    attn.check(found, seed=2, shuffle=True, batch=3, q_len=q_len, high_len=(q_len, 100), low_len=(0, 300))


def as_ragged(found, tensors):
    """Return the same tokens in pages that are cut into slices: as many pages, with one slice for each head."""
    made = dict(tensors)
    lengths = tensors["kv.lengths"]
    heads, table = lengths.shape[1], tensors["kv.block_table"]
    for name in [name for name in tensors if "_pages" in name or "_meta" in name]:
        pages = tensors[name]
        wide = numpy.zeros((pages.shape[0], heads, *pages.shape[1:]), pages.dtype)
        for instance, head in numpy.ndindex(lengths.shape):
            mine = table[instance, head, : -(-lengths[instance, head] // pages.shape[1])]
            wide[mine, head] = pages[mine]
        made[name] = wide if found.operands[0].key else numpy.ascontiguousarray(wide.swapaxes(1, 2))
    return made


@pytest.mark.parametrize("formats", [{"key": "int8", "value": "int4"}, {"key": "int4", "value": "int2"}, {}])
def test_bits_are_those_of_ragged_pages(formats):
    unified, ragged = (
        spec(kind(page_size=16, ragged=True, **formats), numerics="row") for kind in (Unified, Paged)
    )
    tensors = attn.sample(unified, seed=3, batch=3, kv_len=(0, 200))
    outs = []
    for found, given in ((unified, tensors), (ragged, as_ragged(unified, tensors))):
        kernel = attn.compile(found, device="host", schedule="mma")
        plan = kernel.plan(given)
        out = numpy.empty((3, 4, 64), numpy.float16)
        parts = ("k_pages", "v_pages", "k_meta", "v_meta")
        kernel.run(
            given["q"], tuple(given[f"kv.{part}"] for part in parts if f"kv.{part}" in given), plan, out=out
        )
        outs.append(out.view(numpy.uint16))
    assert numpy.array_equal(*outs)
