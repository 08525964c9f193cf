# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows of many parts: a warp merges 32 at a time, and reads the numbers and LSEs of later ones ahead."""

import attn
import pytest
from meaning import assert_close, assert_close_lse, attention, qkv

LARGER = 4  # Times as large queries: few keys decide, so parts differ much in their LSEs.
BLOCKS = 400


def attended(tokens, numerics, **dims):
    """Attention of a row over `tokens` on the host device, by definition, and the number of a row's parts."""
    q, k, v = qkv(1, 1, tokens, heads=2, kv_heads=1, **dims)
    q *= LARGER
    spec = attn.Spec(
        q_heads=2,
        kv_heads=1,
        head_dim=q.shape[-1],
        value_dim=v.shape[-1],
        dtype="float16",
        kv=[attn.Dense()],
        see=attn.causal(),
        numerics=numerics,
    )
    kernel = attn.compile(spec, device="host")
    plan = kernel.plan({"q": q[0], "kv.k": k, "kv.v": v}, blocks=BLOCKS)
    got = kernel.run(q[0], (k, v), plan, return_lse=True)
    wanted = attention(q, k, v, see=attn.causal())
    return got, (wanted[0][0], wanted[1][0]), plan.stats["cuts"] + 1


@pytest.mark.parametrize("dims", [{"dim": 32}, {"dim": 64, "value_dim": 384}], ids=["32", "64-384"])
@pytest.mark.parametrize("tokens,rounds", [(9_000, 1), (17_000, 2), (30_000, 3), (42_000, 4)])
def test_each_part_has_its_weight(tokens, rounds, dims):
    got, wanted, parts = attended(tokens, None, **dims)
    assert parts > 32 * (rounds - 1)
    assert_close(got[0], wanted[0], 2e-3)
    assert_close_lse(got[1], wanted[1])


@pytest.mark.parametrize(
    "tokens,rounds,dims",
    [(300_000, 3, {"dim": 32}), (140_000, 2, {"dim": 64, "value_dim": 384})],
    ids=["32", "64-384"],
)
def test_parts_of_a_contract_have_their_weights(tokens, rounds, dims):
    got, wanted, parts = attended(tokens, "row", **dims)
    assert parts > 32 * (rounds - 1)
    assert_close(got[0], wanted[0], 2e-3)
    assert_close_lse(got[1], wanted[1])
