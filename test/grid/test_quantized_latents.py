# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels over latents in e4m3 under all detectors against float64 over what is stored: over scales, stores, pages, dims,
heads, rows, masks, plans, amplitudes and chips. Bytes of their plans, and lines that kernels write. --full takes more."""

import itertools
import os
import subprocess

import attn
import numpy
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from attn import Dense, Packed, Paged, causal, first  # noqa: E402
from attnlab import program  # noqa: E402
from test_latent import OPERATIONS as COPIES  # noqa: E402
from test_latent import ROWS, SLOTS  # noqa: E402

FULL = bool(os.environ.get("ATTN_FULL"))
FP8 = {"key": "fp8_e4m3"}
DIMS = {"head_dim": 576, "dtype": "bfloat16"}


def latents(kind=Paged, features=512, scales="tensor", **options):
    return kind(**FP8, key_scales=scales, value=first(features), **options)


def spec(store=None, **changes):
    given = dict(q_heads=16, kv_heads=1, see=causal(), kv=[store or latents()]) | DIMS
    return attn.Spec(**(given | changes))


# --- Kernels -------------------------------------------------------------------------------------------------

STORES = (
    latents(page_size=64),
    latents(scales="token"),
    latents(Packed, scales="head"),
    latents(Dense),
    latents(page_size=1),
    latents(page_size=528, scales="token"),
)
# Query heads, rows, tokens, visibility, dtype, and the options of the description.
POINTS = (
    (16, (1, 0, 1), (40, 0, 130), causal(), "bfloat16", {}),
    (128, 1, 50, causal(), "float16", {}),
    (1, 3, (4, 97), attn.window(33), "bfloat16", {"sink_logits": True}),
    (16, 4, (40, 75), causal(), "bfloat16", {"softcap": 30.0}),
    (5, 2, (33, 64), causal(), "float16", {}),
    (3, 37, 70, attn.all_tokens(), "bfloat16", {"return_lse": False}),
)
TARGETS = ("sm_90a", "sm_80", "sm_89")


def points():
    every = list(itertools.product(POINTS, STORES, TARGETS)) if FULL else []
    few = [(point, STORES[i], TARGETS[i % 3]) for i, point in enumerate(POINTS)]
    return few + [each for each in every if each not in few]


def described(store, heads, see, dtype, options):
    options = dict(options)
    if cap := options.pop("softcap", None):
        options["score"] = lambda s, h, qi, ki: cap * attn.math.tanh(s / cap)
    return spec(store, q_heads=heads, see=see, dtype=dtype, **options)


@pytest.mark.parametrize("point,store,target", points())
def test_kernels(point, store, target):
    heads, rows, tokens, *rest = point
    batch = 2 if isinstance(tokens, int) else len(tokens)
    report = attn.check(described(store, heads, *rest), batch=batch, q_len=rows, kv_len=tokens, target=target)
    assert report.right and not report.findings


@pytest.mark.parametrize(
    "store,dims",
    [
        (latents(features=256), {"head_dim": 320}),
        (latents(Packed, features=128, scales="token"), {"head_dim": 192}),
        (latents(features=64, scales="head"), {"head_dim": 80, "dtype": "float16"}),
        (latents(Dense, features=128), {"head_dim": 128}),
        (latents(features=64, scales="token"), {"head_dim": 128}),
        (latents(Dense, features=48), {"head_dim": 48}),
        (latents(page_size=8, features=96, scales="token", ragged=True), {"head_dim": 112}),
        (latents(features=512, scales="token"), {"head_dim": 512}),
        (latents(features=256), {"head_dim": 576}),
    ],
)
def test_dims(store, dims):
    """Values of up to 256 features are those of one warp; queries may stay in registers, or fill few rows of a tile."""
    of = spec(store, **DIMS | {"q_heads": 8, "kv_heads": 2} | dims)
    for rows, tokens in ((1, (30, 90)), (70, 90)):
        assert attn.check(of, batch=2, q_len=rows, kv_len=tokens).right


@pytest.mark.parametrize("heads", range(1, 17) if FULL else (2, 7, 16))
@pytest.mark.parametrize("rows", (1, 2, 3, 4) if FULL else (1, 3))
def test_heads_and_rows(heads, rows):
    assert attn.check(spec(q_heads=heads), batch=2, q_len=rows, kv_len=(9, 51)).right


MANY = (
    (latents(page_size=64), 1, (40, 330), {}),
    (latents(Packed, scales="head"), 3, (3, 64, 128, 129, 200), {"dtype": "float16"}),
    (latents(Dense), 2, 200, {"see": attn.window(70), "sink_logits": True}),
    (latents(page_size=1), 1, (40, 130), {"see": attn.all_tokens(), "dtype": "float16"}),
    (latents(page_size=784), 2, (70, 1130), {"see": attn.window(150)}),
    (latents(page_size=16), 40, 170, {"q_heads": 3}),
    (latents(page_size=64), 1, (40, 330), {"output": "fp8_e4m3", "q_heads": 64}),
    (latents(page_size=16), 1, (1, 3000), {"return_lse": False, "gate": "headwise"}),
)


@pytest.mark.parametrize(
    "options",
    [
        {"gate": "elementwise"},
        {"score": lambda s, h, qi, ki: 30 * attn.math.tanh(s / 30)},
        {"see": attn.sink(4) | attn.window(30)},
    ],
)
def test_what_takes_registers_beside_many_heads(options):
    """Gates of features, score regions and masks of several sizes: no producers widen."""
    of = spec(q_heads=128, **options)
    report = attn.check(of, batch=2, q_len=1, kv_len=(40, 130))
    assert report.right and not report.findings
    assert {kernel.get("schedule", "mma") for kernel in attn.compile(of).manifest["kernels"]} == {"mma"}


@pytest.mark.parametrize("store,rows,tokens,options", MANY)
def test_many_heads(store, rows, tokens, options):
    """Two warpgroups share the weights of 64 rows; producers widen latents on their way."""
    batch = 2 if isinstance(tokens, int) else len(tokens)
    of = spec(store, **{"q_heads": 128} | options)
    for plan in ({}, {"blocks": 7}):
        report = attn.check(of, batch=batch, q_len=rows, kv_len=tokens, **plan)
        assert report.right and not report.findings
        assert attn.compile(of).manifest["kernels"][report.plan["kernel"]]["name"].endswith("rows64")


@pytest.mark.parametrize("scales", ["tensor", "token"])
@pytest.mark.parametrize("amplitude", [1e-6, 1e-3, 100.0, 1e4])
def test_amplitudes(amplitude, scales):
    for dtype, dims in (("bfloat16", (576, 512)), ("bfloat16", (192, 128)), ("float16", (320, 256))):
        if dtype == "float16" and amplitude < 1e-3:
            continue  # results of f16 are multiples of 2^-24
        of = spec(latents(features=dims[1], scales=scales), head_dim=dims[0], dtype=dtype)
        attn.check(of, batch=2, q_len=2, kv_len=(60, 90), amplitude=(amplitude, 1.01 * amplitude))


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_queries_of_any_size(size):
    """Queries of bf16 are narrowed to f16 by one power of two for each tile."""
    of = spec(scale=0.04 / size)
    tensors = attn.sample(of, batch=2, q_len=1, kv_len=(20, 70))
    bits = tensors["q"].view(numpy.uint16).astype(numpy.uint32) << 16
    scaled = (bits.view(numpy.float32) * numpy.float32(size)).view(numpy.uint32)
    tensors["q"] = (
        ((scaled + 0x7FFF + (scaled >> 16 & 1)) >> 16).astype(numpy.uint16).view(tensors["q"].dtype)
    )
    assert attn.check(of, tensors).right


def test_a_prefix_in_an_operand_of_its_own():
    """Sequences share a prefix in another format of latents; speculated rows see it and their own tokens."""
    for scales in ("tensor", "token"):
        prefix = latents(Dense, name="prefix", see=attn.all_tokens(), dims=("prefixes", "prefix_len"))
        own = latents(name="own", see=causal(), scales=scales)
        of = attn.Spec(q_heads=16, kv_heads=1, kv=[prefix, own], **DIMS)
        assert attn.check(of, batch=2, q_len=2, prefixes=1, prefix_len=65, kv_len=(20, 35)).right


def test_formats_meet():
    """e4m3 latents beside latents of 16 bits, and beside values of their own."""
    for other in (
        Packed(name="b", value=first(64), dims=("batch", "b_len")),
        Packed(name="b", dims=("batch", "b_len")),
    ):
        kv = [latents(Packed, name="a", features=64, dims=("batch", "a_len")), other]
        for dtype in ("float16", "bfloat16"):
            of = attn.Spec(q_heads=4, kv_heads=2, head_dim=64, dtype=dtype, kv=kv, see=attn.all_tokens())
            assert attn.check(of, batch=2, q_len=3, a_len=50, b_len=40).right


@pytest.mark.parametrize("first_is_quantized", [False, True])
def test_long_lines_of_two_formats_meet(first_is_quantized):
    """Queries stay in 16 bits, because one of the operands is multiplied as it is."""
    plain = dict(value=first(512))
    quantized = plain | FP8 | {"key_scales": "token"}
    a, b = (quantized, plain) if first_is_quantized else (plain, quantized)
    kv = [
        Paged(name="a", **a, dims=("batch", "a_len")),
        Packed(name="b", **b, dims=("batch", "b_len")),
    ]
    of = attn.Spec(q_heads=7, kv_heads=1, kv=kv, see=attn.all_tokens(), **DIMS)
    assert attn.check(of, batch=2, q_len=2, a_len=(20, 60), b_len=(10, 40)).right


def test_classes():
    heads = attn.heads(all=attn.all_tokens(), near=attn.recent(20))
    of = spec(latents(Packed, features=64), head_dim=80, q_heads=4, kv_heads=2, heads=heads)
    assert attn.check(of, batch=2, q_len=1, kv_len=50).right


# --- Plans ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scales,line", [("tensor", 576), ("token", 580)])
def test_a_plan_counts_each_line_once(scales, line):
    report = attn.check(spec(latents(scales=scales)), batch=1, q_len=1, kv_len=128)
    assert report.plan["kv_bytes"] == 128 * line
    least = 128 * line + 16 * 576 * 2
    assert least <= report.counters["bytes_read"] <= 1.05 * least


@pytest.mark.parametrize("scales", ["tensor", "token"])
@pytest.mark.parametrize("heads,numerics", [(16, None), (16, "row"), (128, None)])
def test_a_plan_of_the_device(scales, heads, numerics):
    """Parts are merged, or folded under a numerics contract; the device makes the same plan."""
    of = spec(latents(scales=scales), q_heads=heads, device_plan=True, numerics=numerics)
    tensors = attn.sample(of, batch=3, q_len=1, kv_len=(5, 90, 40))
    kernel = attn.compile(of, device="host")
    names = [name for name in ("kv.k_pages", "kv.k_scales") if name in tensors]
    given = tuple(tensors[name] for name in names)
    host = kernel.run(tensors["q"], given, kernel.plan(tensors))
    planner = kernel.device_planner(tensors)
    tables = {name: tensors[name] for name in ("kv.lengths", "kv.block_table")}
    plan = planner.plan(tables | {"q_start": numpy.arange(4, dtype=numpy.int32)})
    assert plan.fault == "" and numpy.array_equal(kernel.run(tensors["q"], given, plan), host)


@pytest.mark.parametrize("numerics", [None, "row"])
def test_parts_are_merged(numerics):
    """By rows a part has 4,096 tokens."""
    of = spec(latents(page_size=16), numerics=numerics)
    tokens = [4200, 90] if numerics else [500, 90]
    for blocks in (1, 7):
        assert attn.check(of, batch=2, q_len=2, kv_len=tokens, blocks=blocks).right


# --- A cache of lines ----------------------------------------------------------------------------------------

CACHE = "!attn.kv<{store}, heads = 1, dim = 576, key = !attn.quantized<f8E4M3FN, per = {per}>, value = first<512>>"
TURNED, TABLE = "tensor<?x?x16x64xbf16>", "tensor<?x32xf32>"
OPERATIONS = COPIES | {
    "prepare": f"""func.func @append(%k: {ROWS} {{attn.name = "k"}}, %kv: !cache {{attn.name = "kv"}},
                                  %slots: {SLOTS} {{attn.name = "slots"}}, %q: {TURNED} {{attn.name = "q"}},
                                  %w: tensor<?x512xbf16> {{attn.name = "k_norm"}}, %cos: {TABLE} {{attn.name = "cos"}},
                                  %sin: {TABLE} {{attn.name = "sin"}}, %at: {SLOTS} {{attn.name = "positions"}}) -> {TURNED} {{
  %turned = attn.append %k to %kv at %slots query %q : {TURNED}
      norm %w : tensor<?x512xbf16> epsilon 1.0e-6 rotate %cos, %sin at %at : {TABLE}, {TABLE}, {SLOTS} from 512 interleaved
      : {ROWS}, !cache, {SLOTS} -> {TURNED}
  return %turned : {TURNED}
}}""",
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("store", ["paged<16>", "packed"])
@pytest.mark.parametrize("per", ["tensor", "head"])
def test_lines_are_written_once(operation, store, per):
    """Append quantizes lines of 576 features, gather dequantizes them, and move copies their bits."""
    text = f"!cache = {CACHE.format(store=store, per=per)}\n{OPERATIONS[operation]}\n"
    command = [program("attn-run"), "-", "--dim", "rows=37", "--dim", "layers=3", "--check"]
    result = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr + result.stdout
    assert "0 races, 0 uninitialized, 0 out of bounds" in result.stdout and "right" in result.stdout


INFINITE = {"float16": 0x7C00, "bfloat16": 0x7F80}


@pytest.mark.parametrize("dtype", INFINITE)
@pytest.mark.parametrize("store,dim", [(latents(), 576), (Paged(key="fp8_e4m3", value="fp8_e4m3"), 128)])
def test_an_infinite_query_stays_in_its_row(store, dim, dtype):
    """Queries of a tile become f16 with one power of two, which no infinity decides."""
    of = spec(store, q_heads=4, head_dim=dim, dtype=dtype, see=attn.all_tokens())
    tensors = attn.sample(of, batch=1, q_len=4, kv_len=70)
    kernel = attn.compile(of, device="host")
    names = ("kv.k_pages", "kv.v_pages", "kv.k_scales", "kv.v_scales")
    given = tuple(tensors[name] for name in names if name in tensors)
    infinite = tensors["q"].copy()
    infinite.view(numpy.uint16)[0, 0, 0] = INFINITE[dtype]
    before, after = (kernel.run(q, given, kernel.plan(tensors | {"q": q})) for q in (tensors["q"], infinite))
    assert numpy.array_equal(before[1:], after[1:])


# --- Single values -------------------------------------------------------------------------------------------

NANS = (0x7F, 0xFF)


def one_token_each(features, scales, codes, **options):
    """Two rows that see a token each, whose features have these codes; scales are 1/2."""
    given = dict(head_dim=features + 64, dtype="float16") | options
    of = spec(latents(features=features, scales=scales), **given)
    tensors = attn.sample(of, batch=2, q_len=1, kv_len=1)
    tensors["kv.k_scales"][...] = 0.5
    for line, page in zip(codes, tensors["kv.block_table"][:, 0], strict=True):
        tensors["kv.k_pages"][page, 0, 0, : line.size] = line
    kernel = attn.compile(of, device="host")
    given = tensors["kv.k_pages"], tensors["kv.k_scales"]
    got = kernel.run(tensors["q"], given, kernel.plan(tensors))
    if of.dtype == "bfloat16":
        got = (got.view(numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)
    return got.astype(numpy.float64)


# Two warps convert e4m3 for few heads, and producers of two warpgroups for many.
SHAPES = ({}, {"q_heads": 128}, {"q_heads": 128, "dtype": "bfloat16"})


@pytest.mark.parametrize("scales", ["tensor", "head", "token"])
@pytest.mark.parametrize("features,options", [(128, {}), *((512, shape) for shape in SHAPES)])
def test_every_value_is_read_exactly(scales, features, options):
    """All of e4m3, also the subnormal ones: a row that sees one token returns its values."""
    codes = numpy.resize(numpy.delete(numpy.arange(256, dtype=numpy.uint8), NANS), (2, features))
    exponent, fraction = (codes >> 3 & 15).astype(int), (codes & 7).astype(int)
    size = numpy.ldexp(fraction + 8 * (exponent > 0), numpy.maximum(exponent, 1) - 10)
    values = numpy.where(codes >> 7, -size, size)
    got = one_token_each(features, scales, codes, **options)
    assert numpy.array_equal(got, numpy.broadcast_to(0.5 * values[:, None], got.shape))


@pytest.mark.parametrize("code", NANS)
@pytest.mark.parametrize("scales", ["tensor", "token"])
@pytest.mark.parametrize(
    "features,options", [(512, {"numerics": "row"}), (128, {}), *((512, shape) for shape in SHAPES)]
)
def test_a_nan_reaches_the_rows_that_see_it(code, scales, features, options):
    for feature in (0, features // 2 + 44, features - 1, features + 63):
        codes = numpy.full((2, features + 64), 0x38, numpy.uint8)
        codes[1, feature] = code
        got = one_token_each(features, scales, codes, **options)
        assert (got[0] == 0.5).all() and numpy.isnan(got[1]).all()


@pytest.mark.parametrize("features,options", [(128, {}), *((512, shape) for shape in SHAPES)])
def test_a_nan_that_scores_hide_reaches_its_feature(features, options):
    codes = numpy.full((2, features + 64), 0x38, numpy.uint8)
    codes[1, 44] = NANS[0]
    score = lambda s, h, qi, ki: attn.math.where(s > 0, s, 0.0)  # noqa: E731
    got = one_token_each(features, "tensor", codes, score=score, **options)
    expected = numpy.full(got.shape, 0.5)
    expected[1, :, 44] = numpy.nan
    assert numpy.array_equal(got, expected, equal_nan=True)
