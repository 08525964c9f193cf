# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scales of codes far from those of normal numbers: keys whose scores are thousands, values that f16 does not hold.

Metadata of a token is folded into scores, weights or elements (lib/Conversion/AttnToTile/Expand/Dequantize.cpp), and each
of these has a range of its own. The oracle is check's float64 reference over what the codes stand for.
"""

import attn
import numpy as np
import pytest

# The scales of keys and of values are multiplied by each of these. f16 itself rounds results of 1e-6.
FACTORS = {"k": (1e-6, 1e-3, 30.0, 1e3), "v": (1e-6, 1e-3, 30.0, 1e3)}


def stores(key, value):
    """One region; and two, of which the far one has plain values."""
    yield [attn.Paged(key=key, value=value)]
    yield [
        attn.Packed(name="far", dims=("batch", "far_len")),
        attn.Paged(name="kv", key=key, value=value, dims=("batch", "kv_len")),
    ]


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    "key,value",
    [
        ("int2", "int2"),
        ("int4", "int4"),
        ("int8", "int8"),
        ("fp8_e4m3", "fp8_e4m3"),
        ("fp8_e5m2", "fp8_e5m2"),
        ("int2", "fp8_e5m2"),
    ],
)
def test_scales_of_scales(key, value, dtype, rows):
    for kv in stores(key, value):
        spec = attn.Spec(q_heads=8, kv_heads=2, head_dim=128, dtype=dtype, kv=kv, see=attn.causal())
        far = {"far_len": 20} if len(kv) > 1 else {}
        given = attn.sample(spec, batch=2, q_len=rows, kv_len=(60, 150), **far)
        for part, factors in FACTORS.items():
            name = f"kv.{part}_meta" if f"kv.{part}_meta" in given else f"kv.{part}_scales"
            for factor in factors:
                with np.errstate(over="ignore", invalid="ignore"):
                    scales = (given[name].astype(np.float64) * factor).astype(given[name].dtype)
                too_small = dtype == "float16" and part == "v" and factor < 1e-3
                if not (np.isinf(scales).any() or too_small):
                    attn.check(spec, tensors=given | {name: scales})


FLOATS = ("fp8_e4m3", "fp8_e5m2", "mxfp8", "mxfp4", "nvfp4")


@pytest.mark.parametrize("size", [1.0, 1e-3, 1e-5])
@pytest.mark.parametrize("format", [*FLOATS, "int8", "int4"])
def test_a_token_of_zeros_beside_small_ones(format, size):
    """Zeros have the smallest scale: a larger one decides the unit of weights, and the other weights are lost in f16."""
    spec = attn.Spec(
        q_heads=8,
        kv_heads=2,
        head_dim=64,
        dtype="bfloat16",
        see=attn.causal(),
        kv=[attn.Packed(key=format, value=format)],
    )
    given = attn.sample(spec, batch=1, q_len=2, kv_len=40)
    values = np.random.default_rng(3).standard_normal((40, 2, 64)).astype(np.float32) * size
    values[7] = 0
    shared = {"tensor_scale": size} if format == "nvfp4" else {}
    codes, meta = attn.quantize(values, format, **shared)
    given["kv.v"] = codes
    for name in [each for each in given if each.startswith("kv.v_")]:
        if name.endswith("tensor_scale"):
            given[name] = np.array([size], np.float32)
        else:
            given[name] = np.asarray(meta).view(given[name].dtype).reshape(given[name].shape)
    attn.check(spec, tensors=given)


def spread(meta, rng):
    """Return metadata whose scales differ from token to token, by factors up to 2^6."""
    if meta.dtype == np.uint8:
        return (meta.astype(int) + rng.integers(-6, 7, meta.shape)).astype(np.uint8)
    factors = np.exp2(rng.integers(-6, 7, meta.shape[:3])).reshape(*meta.shape[:3], *[1] * (meta.ndim - 3))
    return (meta * factors).astype(meta.dtype)


@pytest.mark.parametrize("see", [attn.causal(), attn.window(20)], ids=["causal", "window"])
@pytest.mark.parametrize("rows", [2, 8, 40])
@pytest.mark.parametrize("format", ["fp8_e4m3", "fp8_e5m2", "int8", "int4", "mxfp8"])
def test_a_row_has_its_bits_whatever_scales_follow_it(format, rows, see):
    """Tokens that a row does not see lie in its tile, and may have larger scales."""
    kv = [attn.Paged(key=format, value=format)]
    described = dict(q_heads=8, kv_heads=2, head_dim=64, dtype="bfloat16", see=see, kv=kv, numerics="row")
    spec = attn.Spec(**described)
    kernel, tokens = attn.compile(spec, device="host"), 90
    for seed in range(3):
        rng = np.random.default_rng(seed)
        given = attn.sample(spec, batch=1, q_len=rows, kv_len=tokens, seed=seed)
        name = "kv.v_scales" if "kv.v_scales" in given else "kv.v_meta"
        given[name] = spread(given[name], rng)
        parts = ("k_pages", "v_pages", "k_scales", "v_scales", "k_meta", "v_meta")
        pages = tuple(given[f"kv.{part}"] for part in parts if f"kv.{part}" in given)
        together = np.array(kernel.run(given["q"], pages, kernel.plan(given)))
        for row in range(0, rows, max(rows // 4, 1)):
            length = tokens - rows + row + 1
            alone = given | {"q": given["q"][row : row + 1], "q_start": np.array([0, 1], np.int32)}
            alone |= {"kv.lengths": np.array([length], np.int32), "q_pos": np.array([length - 1], np.int32)}
            found = np.array(kernel.run(alone["q"], pages, kernel.plan(alone)))
            assert np.array_equal(found[0].view(np.uint16), together[row].view(np.uint16)), (seed, row)
