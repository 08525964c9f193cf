# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels over latents as engines store them (fp8_ds_mla: e4m3 with a scale for each 128 features, and 64 bf16, in lines of
656 bytes) under all detectors against float64 over what is stored: over stores, pages, heads, rows, masks, plans, sizes
and chips. Lines that kernels write, move and read back. --full takes more."""

import itertools
import os
import subprocess

import attn
import numpy
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from attn import Dense, Packed, Paged, causal, first  # noqa: E402
from attnlab import program  # noqa: E402
from test_quantized_latents import OPERATIONS, POINTS, TARGETS, described  # noqa: E402

FULL = bool(os.environ.get("ATTN_FULL"))
MIXED = {"key": "fp8_ds_mla", "value": first(512)}
DIMS = {"head_dim": 576, "dtype": "bfloat16"}


def spec(store=None, **changes):
    given = dict(q_heads=16, kv_heads=1, see=causal(), kv=[store or Paged(**MIXED, page_size=64)]) | DIMS
    return attn.Spec(**(given | changes))


# --- Kernels -------------------------------------------------------------------------------------------------

STORES = (
    Paged(**MIXED, page_size=64),
    Paged(**MIXED, page_size=32),
    Packed(**MIXED),
    Dense(**MIXED),
    Paged(**MIXED, page_size=1),
    Paged(**MIXED, page_size=528),
)


def points():
    wide = [(*point[:4], "bfloat16", point[5]) for point in POINTS]
    every = list(itertools.product(wide, STORES, TARGETS)) if FULL else []
    few = [(point, STORES[i], TARGETS[i % 3]) for i, point in enumerate(wide)]
    return few + [each for each in every if each not in few]


@pytest.mark.parametrize("point,store,target", points())
def test_kernels(point, store, target):
    heads, rows, tokens, *rest = point
    batch = 2 if isinstance(tokens, int) else len(tokens)
    report = attn.check(described(store, heads, *rest), batch=batch, q_len=rows, kv_len=tokens, target=target)
    assert report.right and not report.findings


@pytest.mark.parametrize("heads", range(1, 17) if FULL else (2, 7, 16))
@pytest.mark.parametrize("rows", (1, 2, 3, 4) if FULL else (1, 3))
def test_heads_and_rows(heads, rows):
    assert attn.check(spec(q_heads=heads), batch=2, q_len=rows, kv_len=(9, 51)).right


def test_several_latents_of_a_token():
    of = spec(q_heads=8, kv_heads=2)
    for rows, tokens in ((1, (30, 90)), (70, 90)):
        assert attn.check(of, batch=2, q_len=rows, kv_len=tokens).right


@pytest.mark.parametrize("store", [Paged(**MIXED, page_size=8, ragged=True), Dense(**MIXED, ragged=True)])
def test_lists_of_heads(store):
    assert attn.check(spec(store, q_heads=8, kv_heads=2), batch=2, q_len=2, kv_len=60).right


def test_stores_of_classes():
    heads = attn.heads(all=attn.all_tokens(), near=attn.recent(20))
    kv = [
        Paged(**MIXED, name="a", head_class="all", see=attn.all_tokens()),
        Paged(**MIXED, name="b", head_class="near", see=attn.recent(20), dims=("batch", "b_len")),
    ]
    of = attn.Spec(q_heads=8, kv_heads=2, heads=heads, kv=kv, **DIMS)
    assert attn.check(of, batch=2, q_len=1, kv_len=50, b_len=30).right


@pytest.mark.parametrize("amplitude", [1e-6, 1e-3, 100.0, 1e4])
def test_amplitudes(amplitude):
    attn.check(spec(), batch=2, q_len=2, kv_len=(60, 90), amplitude=(amplitude, 1.01 * amplitude))


def resized(tensors, factors):
    """Multiply the scales of groups of every line, and keep what is stored otherwise."""
    pages = tensors["kv.k_pages"].copy()
    scales = pages[..., 512:528].copy().view(numpy.float32)
    scales *= numpy.array(factors, numpy.float32)
    pages[..., 512:528] = scales.view(numpy.uint8)
    return tensors | {"kv.k_pages": pages}


@pytest.mark.parametrize(
    "factors", [(1, 1e-3, 1, 1e-3), (1e-4, 1, 1, 1e-2), (1, 1, 1, 1e-30), (0.5, 1, 2, 4)]
)
def test_groups_of_unlike_sizes(factors):
    """Each group of an output's features is as right as the others, however small its values are."""
    of = spec()
    tensors = resized(attn.sample(of, batch=2, q_len=2, kv_len=(30, 70)), factors)
    assert attn.check(of, tensors).right
    kernel = attn.compile(of, device="host")
    out = kernel.run(tensors["q"], (tensors["kv.k_pages"],), kernel.plan(tensors))
    wide = (out.view(numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32).reshape(-1, 16, 4, 128)
    sizes = abs(wide).max(axis=(0, 1, 3))
    for group, factor in enumerate(factors):
        assert sizes[group] == 0 or 0.02 * factor < sizes[group] < 50 * factor


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_queries_of_any_size(size):
    """Queries of the quantized features become f16 by a power of two for each tile; those of the rest stay bf16."""
    of = spec(scale=0.04 / size)
    tensors = attn.sample(of, batch=2, q_len=1, kv_len=(20, 70))
    bits = tensors["q"].view(numpy.uint16).astype(numpy.uint32) << 16
    scaled = (bits.view(numpy.float32) * numpy.float32(size)).view(numpy.uint32)
    tensors["q"] = (
        ((scaled + 0x7FFF + (scaled >> 16 & 1)) >> 16).astype(numpy.uint16).view(tensors["q"].dtype)
    )
    assert attn.check(of, tensors).right


def test_a_prefix_in_an_operand_of_its_own():
    prefix = Dense(**MIXED, name="prefix", see=attn.all_tokens(), dims=("prefixes", "prefix_len"))
    of = attn.Spec(q_heads=16, kv_heads=1, kv=[prefix, Paged(**MIXED, name="own", see=causal())], **DIMS)
    assert attn.check(of, batch=2, q_len=2, prefixes=1, prefix_len=65, kv_len=(20, 35)).right


@pytest.mark.parametrize("other", [{}, {"key": "fp8_e4m3"}, {"key": "fp8_e4m3", "key_scales": "tensor"}])
@pytest.mark.parametrize("first_is_mixed", [False, True])
def test_formats_meet(other, first_is_mixed):
    """Latents of this form beside those in bf16, and in e4m3 throughout: queries stay bf16."""
    forms = [MIXED, {"value": first(512)} | other]
    a, b = forms if first_is_mixed else forms[::-1]
    kv = [Paged(name="a", **a, dims=("batch", "a_len")), Packed(name="b", **b, dims=("batch", "b_len"))]
    of = attn.Spec(q_heads=7, kv_heads=1, kv=kv, see=attn.all_tokens(), **DIMS)
    assert attn.check(of, batch=2, q_len=2, a_len=(20, 60), b_len=(10, 40)).right


@pytest.mark.parametrize("heads", [None, "classes"])
def test_sinks_and_classes(heads):
    given = {"heads": attn.heads(all=attn.all_tokens(), near=attn.recent(20)), "kv_heads": 2} if heads else {}
    see = {} if heads else {"see": attn.sink(4) | attn.window(30)}
    of = spec(q_heads=4, sink_logits=True, **(see | given))
    assert attn.check(of, batch=2, q_len=1, kv_len=50).right


# --- Plans ---------------------------------------------------------------------------------------------------


def test_a_plan_counts_each_line_once():
    report = attn.check(spec(), batch=1, q_len=1, kv_len=128)
    assert report.plan["kv_bytes"] == 128 * 656
    least = 128 * 656 + 16 * 576 * 2
    assert least <= report.counters["bytes_read"] <= 1.05 * least


@pytest.mark.parametrize("numerics", [None, "row"])
def test_a_plan_of_the_device(numerics):
    of = spec(device_plan=True, numerics=numerics)
    tensors = attn.sample(of, batch=3, q_len=1, kv_len=(5, 90, 40))
    kernel = attn.compile(of, device="host")
    given = (tensors["kv.k_pages"],)
    host = kernel.run(tensors["q"], given, kernel.plan(tensors))
    planner = kernel.device_planner(tensors)
    tables = {name: tensors[name] for name in ("kv.lengths", "kv.block_table")}
    plan = planner.plan(tables | {"q_start": numpy.arange(4, dtype=numpy.int32)})
    assert plan.fault == "" and numpy.array_equal(kernel.run(tensors["q"], given, plan), host)


@pytest.mark.parametrize("numerics", [None, "row"])
def test_parts_are_merged(numerics):
    of = spec(Paged(**MIXED), numerics=numerics)
    tokens = [4200, 90] if numerics else [500, 90]
    for blocks in (1, 7):
        assert attn.check(of, batch=2, q_len=2, kv_len=tokens, blocks=blocks).right


# --- Lines ---------------------------------------------------------------------------------------------------

CACHE = "!attn.kv<{store}, heads = 1, dim = 576, key = !attn.quantized<f8E4M3FN, per = 128, rest = 64>, value = first<512>>"


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("store", ["paged<16>", "paged<64>", "packed"])
def test_lines_are_written_once(operation, store):
    """Append quantizes groups of 128 features and rounds the last 64, gather reads both, and move copies bytes."""
    text = f"!cache = {CACHE.format(store=store)}\n{OPERATIONS[operation]}\n"
    command = [program("attn-run"), "-", "--dim", "rows=37", "--dim", "layers=3", "--check"]
    result = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr + result.stdout
    assert "0 races, 0 uninitialized, 0 out of bounds" in result.stdout and "right" in result.stdout
