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
