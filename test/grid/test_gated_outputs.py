# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels that gate their outputs assemble without spills, for every chip, head dim and dtype."""

import os

import attn
import pytest
from kernels import assemble, assert_nothing_spilled

FULL = bool(os.environ.get("ATTN_FULL"))
DIMS = [(64, 64), (96, 96), (128, 128), (192, 128), (256, 256)]
# Targets, and numerics: the merge kernel under a contract spills with and without a gate on others.
KERNELS = [(target, None) for target in ("sm_80", "sm_89", "sm_90a", "sm_120a")]
KERNELS += [("sm_90a", "row"), ("sm_120a", "row")]


@pytest.mark.parametrize("gate", ["elementwise", "headwise"] if FULL else ["elementwise"])
@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("target,numerics", KERNELS)
def test_nothing_is_spilled(tmp_path, target, numerics, dims, gate):
    described = {"q_heads": 32, "kv_heads": 4, "head_dim": dims[0], "value_dim": dims[1], "dtype": "bfloat16"}
    described |= {"kv": [attn.Paged()], "see": attn.causal(), "gate": gate, "numerics": numerics}
    assert_nothing_spilled(assemble(tmp_path, attn.Spec(**described).mlir(), target)[1])


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("key,value", [("int8", "int4"), ("fp8_e4m3", "fp8_e4m3"), ("mxfp4", "mxfp4")])
def test_nothing_is_spilled_beside_quantized_values(tmp_path, target, key, value):
    described = {"q_heads": 32, "kv_heads": 4, "head_dim": 128, "dtype": "bfloat16", "see": attn.causal()}
    described |= {"kv": [attn.Paged(key=key, value=value)], "gate": "elementwise"}
    assert_nothing_spilled(assemble(tmp_path, attn.Spec(**described).mlir(), target)[1])
