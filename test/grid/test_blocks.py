# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Keys and values in blocks: of 32 floats with a power of two each, mxfp8 and mxfp4, and of 16 with an e4m3 each beside one scale
of the tensor, nvfp4: codes against the definition, and attention over stores, dims, masks, score functions, classes, plans of the device, other regions, amplitudes and targets."""

import sys

import attn
import numpy as np
import pytest
from kernels import assemble, assert_nothing_spilled

LLAMA = {"q_heads": 8, "kv_heads": 2, "head_dim": 128, "see": attn.causal()}
FORMATS = ("mxfp8_e4m3", "mxfp8_e5m2", "mxfp4", "nvfp4")
# Sign, bits of exponent and mantissa, the exponent of the largest number.
LAYOUTS = {"mxfp8_e4m3": (4, 3, 8), "mxfp8_e5m2": (5, 2, 15), "mxfp4": (2, 1, 2), "nvfp4": (2, 1, 2)}
BLOCK = {"nvfp4": 16}  # others 32


def numbers_of(name):
    """Return the number of each bit pattern, by the definition; NaN where it is no number."""
    exponents, mantissas, _ = LAYOUTS[name]
    code = np.arange(2 ** (1 + exponents + mantissas))
    exponent, mantissa = code >> mantissas & (2**exponents - 1), code & (2**mantissas - 1)
    bias = 2 ** (exponents - 1) - 1
    small = mantissa * 2.0 ** (1 - bias - mantissas)
    large = (1 + mantissa / 2**mantissas) * 2.0 ** (exponent - float(bias))
    number = np.where(exponent == 0, small, large)
    if name == "mxfp8_e4m3":
        number[code & 0x7F == 0x7F] = np.nan
    if name == "mxfp8_e5m2":
        number[exponent == 31] = np.nan
    return np.where(code >> (exponents + mantissas) == 1, -number, number)


def e4m3(codes):
    return numbers_of("mxfp8_e4m3")[codes]


@pytest.mark.parametrize("tensor_scale", [None, 0.125, 3.0])
def test_codes_beside_a_tensors_scale(tensor_scale):
    """Each block's scale is the e4m3 nearest to a sixth of its largest number, and numbers go to the nearest code."""
    rows = np.random.default_rng(1).normal(size=(7, 3, 96)).astype(np.float32)
    rows *= np.exp2(np.random.default_rng(2).integers(-6, 6, (7, 3, 1))).astype(np.float32)
    rows[0, 0, :16] = 0
    of_tensor = 1.0 if tensor_scale is None else tensor_scale
    codes, scales = attn.quantize(rows, "nvfp4", tensor_scale=tensor_scale)
    assert scales.shape == (7, 3, 8) and scales.dtype == np.uint8
    largest = np.abs(rows).reshape(7, 3, 6, 16).max(-1)
    legal = e4m3(np.arange(1, 0x7F))
    wanted = np.clip(largest / 6 / of_tensor, legal[0], legal[-1])
    found = e4m3(scales[..., :6])
    np.testing.assert_allclose(np.abs(found - wanted), np.abs(legal - wanted[..., None]).min(-1), atol=1e-6)
    number = numbers_of("nvfp4")[np.stack([codes & 15, codes >> 4], -1).reshape(rows.shape)]
    unit = found.repeat(16, -1) * of_tensor
    read = attn.dequantize(codes, scales, "nvfp4", tensor_scale=tensor_scale)
    np.testing.assert_allclose(read, number * unit, rtol=1e-6)
    inside = np.abs(rows) <= 6 * unit
    nearest = np.abs(numbers_of("nvfp4") - (rows / unit)[..., None]).min(-1)
    np.testing.assert_allclose((np.abs(read - rows) / unit)[inside], nearest[inside], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(np.abs(number[~inside]), 6)


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in BLOCK])
def test_codes(name):
    table = numbers_of(name)
    rows = np.random.default_rng(1).normal(size=(7, 3, 96)).astype(np.float32)
    rows *= np.exp2(np.random.default_rng(2).integers(-20, 10, (7, 3, 1))).astype(np.float32)
    rows[0, 0, :32] = 0
    codes, scales = attn.quantize(rows, name)
    assert scales.shape == (7, 3, 4) and scales.dtype == np.uint8
    if name == "mxfp4":
        codes = np.stack([codes & 15, codes >> 4], -1).reshape(rows.shape)
    powers = np.exp2(scales[..., :3].repeat(32, -1) - 127.0)
    read = attn.dequantize(*attn.quantize(rows, name), name)
    np.testing.assert_array_equal(read, (table[codes] * powers).astype(np.float32))
    # The scale is that of the specification, and each number goes to the nearest that has a code.
    largest = np.abs(rows).reshape(7, 3, 3, 32).max(-1)
    # Zeros have the smallest scale.
    exponent = (
        np.floor(np.log2(np.where(largest > 0, largest, 2.0 ** (LAYOUTS[name][2] - 127)))) - LAYOUTS[name][2]
    )
    np.testing.assert_array_equal(scales[..., :3], exponent + 127)
    legal = np.sort(table[np.isfinite(table)])
    nearest = np.abs(legal - (rows / powers)[..., None]).min(-1)
    np.testing.assert_allclose(np.abs(read - rows) / powers, nearest, rtol=1e-5, atol=1e-6)


PAIRS = [
    (key, value)
    for key in (None, *FORMATS, "int8")
    for value in (None, *FORMATS, "int4")
    if {key, value} & set(FORMATS)
]


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("key,value", PAIRS)
def test_formats(key, value, dtype, rows):
    spec = attn.Spec(**LLAMA, dtype=dtype, kv=[attn.Paged(key=key, value=value)])
    attn.check(spec, batch=2, q_len=rows, kv_len=(60, 150))


STORES = {
    "dense": attn.Dense,
    "packed": attn.Packed,
    "tokens": lambda **formats: attn.Paged(page_size=1, **formats),
    "ragged": lambda **formats: attn.Paged(page_size=64, ragged=True, **formats),
    "unified": attn.Unified,
}


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("dims", [(128, 128), (64, 96), (192, 128), (256, 256), (32, 160)])
@pytest.mark.parametrize("key,value", [("mxfp4", "mxfp8"), ("nvfp4", "nvfp4")])
def test_stores(store, dims, key, value):
    kv = [STORES[store](key=key, value=value)]
    spec = attn.Spec(**LLAMA | {"head_dim": dims[0]}, value_dim=dims[1], dtype="bfloat16", kv=kv)
    attn.check(spec, batch=2, q_len=3, kv_len=(60, 150))


FEATURES = {
    "window and sink": {"see": attn.causal() & (attn.sink(4) | attn.window(30))},
    "classes": {"heads": attn.heads(retrieval=attn.causal(), streaming=attn.sink(4) | attn.recent(32))},
    "soft cap": {"score": lambda s, h, qi, ki: attn.math.softcap(s, 20.0)},
    "sinks": {"sink_logits": True},
    "significance": {"significance": "sum"},
    "device plan": {"device_plan": True},
}


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize(
    "other", [None, {"key": "int8", "value": "int4"}, {"key": "nvfp4", "value": "fp8_e5m2"}, {}]
)
@pytest.mark.parametrize("key,value", [("mxfp8", "mxfp4"), ("nvfp4", "nvfp4")])
def test_features(feature, other, key, value):
    kv = [attn.Paged(name="kv", key=key, value=value, dims=("batch", "kv_len"))]
    sizes = {"kv_len": (60, 150)}
    if other is not None:
        kv.append(attn.Paged(name="near", page_size=32, dims=("batch", "near_len"), **other))
        sizes["near_len"] = 40
    spec = attn.Spec(**LLAMA | FEATURES[feature], dtype="bfloat16", kv=kv)
    attn.check(spec, batch=2, q_len=1 if feature == "device plan" else 9, **sizes)


@pytest.mark.parametrize("amplitude", [1e-6, 1e-3, 100.0, 1e4])
@pytest.mark.parametrize("name", ["mxfp8_e4m3", "mxfp4", "nvfp4"])
def test_amplitudes(name, amplitude):
    for dtype in ("bfloat16", "float16"):
        if dtype == "float16" and amplitude < 1e-3:
            continue  # results of f16 are multiples of 2^-24
        spec = attn.Spec(**LLAMA, dtype=dtype, kv=[attn.Paged(key=name, value=name)])
        attn.check(spec, batch=2, q_len=2, kv_len=(60, 150), amplitude=(amplitude, 1.01 * amplitude))


@pytest.mark.parametrize("rows", [1, 5])  # of a group of four heads: eight of a tile, and more
def test_scales_that_are_far_apart(rows):
    """A block of 2^-127 beside one of 2^7 of the same token adds nothing, and no NaN."""
    spec = attn.Spec(
        q_heads=8,
        kv_heads=2,
        head_dim=64,
        dtype="float16",
        see=attn.all_tokens(),
        kv=[attn.Packed(value="mxfp4")],
    )
    tensors = attn.sample(spec, batch=2, q_len=rows, kv_len=(30, 60))
    scales = tensors["kv.v_scales"]
    scales[..., 0], scales[..., 1], scales[..., 2:] = 0, 134, 255  # those behind are nobody's
    scales[::2, :, :2] = scales[::2, :, 1::-1]
    assert attn.check(spec, tensors).right


@pytest.mark.parametrize("dims", [(32, 32), (96, 160), (224, 96)])
@pytest.mark.parametrize("name", ["mxfp8", "mxfp4", "nvfp4"])
def test_bytes_behind_the_last_scale(name, dims):
    """Lines of scales end with bytes that are nobody's, NaN here: features that pad a tile do not take them."""
    block = BLOCK.get(name, 32)
    for rows in (1, 9):
        spec = attn.Spec(
            **LLAMA | {"head_dim": dims[0]},
            value_dim=dims[1],
            dtype="bfloat16",
            kv=[attn.Paged(key=name, value=name)],
        )
        tensors = attn.sample(spec, batch=2, q_len=rows, kv_len=(40, 90))
        for part, dim in zip("kv", dims, strict=True):
            scales = tensors[f"kv.{part}_scales"].view(np.uint8)
            scales[..., dim // block :] = 0x7F if name == "nvfp4" else 0xFF
        assert attn.check(spec, tensors).right


TEXT = """
!query = tensor<?x8x{dim}x{element}>
!codes = !attn.quantized<{code}>
!cache = !attn.kv<paged<16>, heads = 2, dim = {dim}, key = !codes, value = !codes>
func.func @blocks(%q: !query {{attn.name = "q"}}, %kv: !cache {{attn.name = "kv"}}) -> !query {{
  %o = attn.attend %q over (%kv see causal) : !query, !cache -> !query
  return %o : !query
}}
"""


@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90a", "sm_120a"])
@pytest.mark.parametrize(
    "code",
    [
        "f8E4M3FN, per = 32, scale = f8E8M0FNU",
        "f4E2M1FN, per = 32, scale = f8E8M0FNU",
        "f4E2M1FN, per = 16, scale = f8E4M3FN",
    ],
)
def test_nothing_is_spilled(tmp_path, code, target):
    dims = (64, 128, 256) if target in ("sm_90a", "sm_120a") else (64, 128)
    for dim in dims:
        text = TEXT.format(dim=dim, element="bf16", code=code)
        assert_nothing_spilled(assemble(tmp_path, text, target)[1])


def bytes_of(memory):
    """View memory of NumPy, or of PyTorch if it is imported, as bytes."""
    return memory if isinstance(memory, np.ndarray) else memory.view(sys.modules["torch"].uint8).numpy()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("dim", [64, 96, 128, 256])
@pytest.mark.parametrize("name", FORMATS)
def test_append(name, dim, dtype):
    """Kernels make the codes and scales that the CPU makes, of blocks of any size, and of zeros."""
    scale = {"tensor_scale": 0.3} if name == "nvfp4" else {}
    random = np.random.default_rng(2)
    rows = random.normal(size=(37, 3, dim)) * np.exp2(random.integers(-18, 9, (37, 3, 1)))
    rows[3, 1] = 0
    rows = rows.astype(np.float16)
    given = rows if dtype == "float16" else attn.bfloat16_bits(rows.astype(np.float32))
    cache = attn.PagedCache(
        layers=1, pages=8, kv_heads=3, head_dim=dim, dtype=dtype, device="host", key=name, value=name
    )
    change = cache.append(cache.add(), 37)
    slots = change.slots()
    if scale:
        for part in "kv":
            cache.layer(0).tensors()[f"{part}_tensor_scale"][:] = scale["tensor_scale"]
    change.write(0, given, given)
    written = {part: bytes_of(memory) for part, memory in cache.layer(0).tensors().items()}
    codes, scales = attn.quantize(
        rows if dtype == "float16" else attn.from_bfloat16_bits(given), name, **scale
    )
    blocks = dim // BLOCK.get(name, 32)
    for part in "kv":
        np.testing.assert_array_equal(written[f"{part}_pages"][slots // 16, :, slots % 16], codes)
        found = written[f"{part}_scales"][slots // 16, :, slots % 16, :blocks]
        np.testing.assert_array_equal(found, scales[..., :blocks])
