# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What attn says of vLLM's options, without vLLM."""

import pytest

torch = pytest.importorskip("torch")

from attn.vllm.limits import latent_block, refusals  # noqa: E402


@pytest.mark.parametrize("block", [None, 16, 48, 64, 784, 2048, 4096, 24, 8])
def test_blocks_are_cut_into_pages(block):
    found = refusals(64, torch.float16, block_size=block)
    assert bool(found) == (block in (24, 8)) and all(
        "expected a multiple of 16 tokens" in why for why in found
    )


@pytest.mark.parametrize(("tokens", "block"), [(16, 64), (64, 64), (784, 784)])
def test_latents_lie_in_blocks_of_a_box(tokens, block):
    assert latent_block(tokens) == block
    assert not refusals(576, torch.float16, block_size=block, latent=True, value_dim=512)


def test_several_reasons_are_given():
    given = dict(
        head_size=640, dtype=torch.float16, block_size=40, kv_cache_dtype="nvfp4", attn_type="encoder"
    )
    found = refusals(**given)
    assert [reason.split(":")[0] for reason in found] == [
        "attention type",
        "block_size",
        "kv_cache_dtype",
        "head_size",
    ]


@pytest.mark.parametrize(
    ("head_size", "packed", "reason"),
    [
        (64, "int4_int2", []),
        (96, "int8_int4", []),
        (
            48,
            "int4",
            "head_size: expected a dim of whole 16 bytes, a multiple of 32 elements of int4, got 48; nearest legal: 32 or 64",
        ),
        (
            96,
            "int4_int2",
            "head_size: expected a dim of whole 16 bytes, a multiple of 64 elements of int2, got 96; nearest legal: 64 or 128",
        ),
    ],
)
def test_head_sizes_that_a_format_cannot_have(head_size, packed, reason):
    found = refusals(head_size=head_size, dtype=torch.float16, packed=packed)
    assert found == ([reason] if reason else [])


def test_a_word_of_vllm_leads_to_the_nearest_format():
    (found,) = refusals(head_size=64, dtype=torch.float16, kv_cache_dtype="turboquant_k8v4")
    assert found.endswith('nearest legal: auto with additional_config={"attn_kv_cache_dtype": "int8_int4"}')
