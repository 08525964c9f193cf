# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantized keys and values: their descriptions, their kernels under all detectors, tensors of a run."""

import attn
import numpy
import pictures
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from attn import Dense, Packed, Paged  # noqa: E402
from attnlab import ROOT  # noqa: E402

SIZES = {"q_heads": 4, "kv_heads": 2, "head_dim": 64, "dtype": "float16", "see": attn.causal()}


def spec(store, **changes):
    return attn.Spec(**{**SIZES, "kv": [store], **changes})


# --- Descriptions --------------------------------------------------------------------------------------------


def test_what_is_left_open_is_filled_in():
    one, two = spec(Paged(key="int8", value="int4")), spec(Paged(key="int8", value="int4", value_group=64))
    assert one == two and hash(one) == hash(two) and one.operands[0].key_group == 64
    assert "key = !attn.quantized<i8, per = 64>, value = !attn.quantized<i4, per = 64>" in one.mlir()
    assert "key='int8', key_group=64" in repr(one)
    fp8 = spec(Dense(key="fp8_e4m3", value="fp8_e5m2", value_scales="head"))
    assert fp8.operands[0].key_scales == "token"
    assert (
        "key = !attn.quantized<f8E4M3FN, per = token>, value = !attn.quantized<f8E5M2, per = head>"
        in fp8.mlir()
    )
    assert spec(Paged(key="int4", key_group=16), head_dim=256).operands[0].key_group == 16
    assert spec(Paged(key="int4"), head_dim=256).operands[0].key_group == 128


@pytest.mark.parametrize(
    "store,message",
    [
        (lambda: Paged(key="int7"), r"Paged\(key\): expected 'int8', .* got 'int7'$"),
        (lambda: Paged(key="fp8_e4"), "nearest legal: 'fp8_e4m3'"),
        (lambda: Dense(value_group=32), r"Dense\(value_group\): expected None without Dense\(value\)"),
        (lambda: Packed(key="int8", key_scales="head"), r"Packed\(key_scales\): expected None beside 'int8'"),
        (lambda: Packed(key="fp8_e4m3", key_scales="row"), "'tensor', 'head' or 'token', got 'row'"),
        (
            lambda: spec(Paged(key="int8", key_group=48)),
            r"kv\[0\]\.key: expected a group .* nearest legal: (32|64)",
        ),
        (lambda: spec(Paged(value="int2"), head_dim=96), r"kv\[0\]\.value: expected a dim .* 64 or 128"),
        (lambda: Paged(key="bfloat16"), r"None for the dtype .* got 'bfloat16'. Leave "),
        (
            lambda: Paged(key="mxfp4", key_group=16),
            r"Paged\(key_group\): expected None or 32 beside 'mxfp4', got 16",
        ),
        (
            lambda: Paged(key="mxfp8", key_scales="token"),
            r"expected None beside 'mxfp8_e4m3', of which each block",
        ),
        (
            lambda: spec(Paged(key="mxfp8"), head_dim=80),
            r"kv\[0\]\.key: expected a dim of whole blocks.* 64 or 96",
        ),
        (  # a legal value is a multiple of 16, and for blocks a multiple of 32
            lambda: spec(Paged(key="mxfp8"), head_dim=40),
            r"kv\[0\]\.key: expected a dim of whole 16 bytes.* nearest legal: 32 or 64",
        ),
        (
            lambda: attn.quantize(numpy.ones((1, 1, 32), numpy.float32), "nvfp4", tensor_scale=1e-40),
            r"tensor_scale: expected a number that is normal in float32, from 1.18e-38 to 3.4e\+38, got 1e-40",
        ),
        (
            lambda: attn.quantize(numpy.ones((1, 1, 32), numpy.float32), "nvfp4", tensor_scale="0.5"),
            "tensor_scale: expected a number, got '0.5'",
        ),
    ],
)
def test_what_is_refused(store, message):
    with pytest.raises(attn.SpecError, match=message):
        store()


def test_metadata_of_other_rows():
    """The scales of one row do not depend on other rows."""
    rows = numpy.ones((2, 1, 64), numpy.float32)
    for format in ("nvfp4", "mxfp8", "int8", "fp8_e4m3"):
        codes, meta = attn.quantize(rows, format)
        with pytest.raises(attn.TensorError, match=r"meta: expected \[2, 1"):
            attn.dequantize(codes, meta[:1], format)


# --- Kernels -------------------------------------------------------------------------------------------------

CHECKED = [
    (Paged(key="int8", value="int4"), {}),
    (Paged(key="int4", value="int2", key_group=32, value_group=16, page_size=8), {"dtype": "bfloat16"}),
    (Packed(key="int8"), {"see": attn.sink(3) | attn.window(20)}),
    (Dense(value="int4", value_group=32), {"score": lambda s, h, qi, ki: attn.math.softcap(s, 20.0)}),
    (Paged(key="fp8_e4m3", value="fp8_e5m2"), {}),
    (
        Packed(key="fp8_e4m3", value="fp8_e4m3", key_scales="tensor", value_scales="head"),
        {"dtype": "bfloat16"},
    ),
    (Paged(key="int8", value="int8", ragged=True, see=attn.all_tokens()), {"see": None}),
]


@pytest.mark.parametrize("store,changes", CHECKED, ids=lambda part: str(getattr(part, "key", "")))
def test_right_under_all_detectors(store, changes):
    assert attn.check(spec(store, **changes), batch=2, kv_len=(20, 70), seed=3).right


def test_operands_of_different_precision():
    old, new = Paged(name="old", key="int4", value="int2"), Paged(name="new", dims=("batch", "new_len"))
    described = spec(old, kv=[old, new])
    assert attn.check(described, batch=2, kv_len=(20, 70), new_len=10).right


def test_samples():
    tensors = attn.sample(spec(Paged(key="int4", value="fp8_e4m3", value_scales="head")), batch=2, kv_len=20)
    assert tensors["kv.k_pages"].dtype == numpy.uint8 and tensors["kv.k_pages"].shape[1:] == (2, 16, 32)
    assert tensors["kv.k_meta"].shape[1:] == (2, 16, 1, 2) and tensors["kv.v_scales"].shape == (2,)
    listed = tensors["kv.block_table"].ravel()
    unlisted = numpy.setdiff1d(numpy.arange(len(tensors["kv.k_pages"])), listed)
    assert numpy.isnan(tensors["kv.k_meta"][unlisted]).all() and numpy.isfinite(tensors["kv.v_scales"]).all()


def test_tensors_of_a_run():
    described = spec(Packed(key="int8", value="fp8_e4m3"))
    kernel = attn.compile(described, device="host")
    tensors = attn.sample(described, batch=2, kv_len=20)
    plan, q = kernel.plan(tensors), tensors["q"]
    named = {name: tensors[f"kv.{name}"] for name in ("k", "v", "k_meta", "v_scales")}
    out = kernel.run(q, tuple(named.values()), plan)
    assert numpy.isfinite(out).all()
    assert numpy.array_equal(kernel.run(q, dict(reversed(named.items())), plan), out)
    refused = [
        (
            (named["k"], named["v"]),
            r"kv: expected \(k, v, k_meta, v_scales\), these by name, .* got 2 tensors",
        ),
        (
            {n: t for n, t in named.items() if n != "k_meta"},
            "kv.k_meta: expected beside k, v, v_scales, got none",
        ),
        (named | {"k_scales": q}, "kv: expected one of k, v, k_meta, v_scales, got 'k_scales'; nearest"),
        (
            named | {"k_meta": named["k_meta"][:-1]},
            r"kv.k_meta: expected float16 \[4\d, 2, 1, 2\], got float16",
        ),
        (named | {"k": named["k"].view(numpy.int8)}, r"kv.k: expected uint8 .*, got int8"),
        (named | {"v_scales": named["v_scales"].astype(numpy.float16)}, "kv.v_scales: expected float32"),
    ]
    for operand, message in refused:
        with pytest.raises(attn.TensorError, match=message):
            kernel.run(q, operand, plan)


def test_microscaling_types_of_torch():
    """PyTorch has types for a byte of two floats of 4 bits, and for a power of two."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    described = spec(Packed(key="mxfp8", value="mxfp4"))
    tensors = attn.sample(described, kv_len=40)
    parts = {name: torch.from_numpy(array) for name, array in tensors.items() if name.startswith("kv.")}
    typed = {
        "kv.k": torch.float8_e4m3fn,
        "kv.k_scales": torch.float8_e8m0fnu,
        "kv.v_scales": torch.float8_e8m0fnu,
    }
    typed |= {"kv.v": torch.float4_e2m1fn_x2} if hasattr(torch, "float4_e2m1fn_x2") else {}
    kernel = attn.compile(described, device="host")
    plan, q = kernel.plan(tensors), torch.from_numpy(tensors["q"])
    names = ("kv.k", "kv.v", "kv.k_scales", "kv.v_scales")
    plain = kernel.run(q, tuple(parts[name].view(torch.uint8) for name in names), plan)
    of_types = tuple(parts[name].view(torch.uint8).view(typed.get(name, torch.uint8)) for name in names)
    assert torch.equal(kernel.run(q, of_types, plan), plain)


def test_tensors_of_torch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    described = spec(Packed(key="fp8_e4m3", value="int4"))
    kernel = attn.compile(described, device="host")
    tensors = attn.sample(described, batch=2, kv_len=20)
    plan = kernel.plan(tensors)
    arrays = [tensors[f"kv.{name}"] for name in ("k", "v", "k_scales", "v_meta")]
    codes, *others = map(torch.from_numpy, arrays)
    q = torch.from_numpy(tensors["q"])
    out = kernel.run(q, (codes.view(torch.float8_e4m3fn), *others), plan)
    assert numpy.array_equal(out.numpy(), kernel.run(tensors["q"], arrays, plan))
    assert attn.check(described, {name: torch.from_numpy(t) for name, t in tensors.items()}).right


def test_pictures(tmp_path):
    from xml.etree import ElementTree

    svg = Paged(key="int8", value="int4").svg(kv_heads=8, head_dim=128)
    assert (ROOT / "examples/09_quantized/page.svg").read_text() == svg, "lesson 9 shows this picture"
    unified = attn.Unified(page_size=32, key="int8", value="int4").svg(kv_heads=8, head_dim=128)
    assert "6400 a page" in unified and unified.count("; a page") == 4
    assert (ROOT / "examples/09_quantized/unified.svg").read_text() == unified, "lesson 9 shows this picture"
    for drawn in (svg, unified):
        pictures.check(drawn, numbers=8)
    text = " ".join(ElementTree.fromstring(svg).itertext())
    assert "i8 per 128, i4 per 128" in text and "200 bytes a token of one head, 0.39 of the 512" in text
    assert "v_pages: uint8 [pages, 8, 16, 64]; a line for each head" in text
    assert "v_meta: float16 [pages, 8, 16, 1, 2]; a line for each head" in text
    tokens = " ".join(ElementTree.fromstring(Paged().svg(kv_heads=8, head_dim=128)).itertext())
    assert "[pages, 16, 8, 128]; a line for each token" in tokens
    for store in (Packed(key="fp8_e4m3", key_scales="head"), Dense(value="int2"), Paged()):
        pictures.check(store.svg(kv_heads=2, head_dim=64, value_dim=128))
    with pytest.raises(attn.SpecError, match=r"Paged\(key\): expected a dim of whole 16 bytes"):
        Paged(key="int2").svg(kv_heads=1, head_dim=32)


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("format", ["fp8_e4m3", "fp8_e5m2"])
def test_values_of_floats_have_any_size(format, dtype, rows):
    """Scales of float formats may be outside the range of f16. Cases include values of 16 bits beside them, and one
    scale for each head."""
    stores = (
        [Paged(key=format, value=format)],
        [
            Paged(name="near", value=format, dims=("batch", "near_len")),
            Packed(name="far", dims=("batch", "far_len")),
        ],
        [
            Paged(name="near", value=format, value_scales="head", dims=("batch", "near_len")),
            Packed(name="far", value=format, dims=("batch", "far_len")),
        ],
    )
    for kv in stores:
        described = attn.Spec(**SIZES | {"dtype": dtype, "kv": kv})
        names = ["kv_len"] if len(kv) == 1 else ["near_len", "far_len"]
        for size in (1e4, 2e-5 if dtype == "bfloat16" else 5e-3):  # results in f16 are multiples of 2**-24
            sizes = {name: 60 for name in names}
            attn.check(described, batch=1, q_len=rows, amplitude=(size, 1.01 * size), **sizes)


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_small_values_of_floats_beside_a_token_of_integers(dtype, rows):
    """A few tokens of integer formats set the unit of weights, in which weights of small float scales must stay exact."""
    kv = [
        Paged(name="far", key="int4", value="int2", dims=("batch", "far_len")),
        Paged(name="near", value="fp8_e5m2", dims=("batch", "near_len")),
    ]
    described = attn.Spec(**SIZES | {"dtype": dtype, "kv": kv})
    given = attn.sample(described, batch=1, q_len=rows, far_len=3, near_len=60)
    given["near.v_scales"] *= numpy.float32(3e-4)
    given["far.v_meta"] = (given["far.v_meta"] * numpy.float16(8e-3)).astype(numpy.float16)
    attn.check(described, tensors=given)
