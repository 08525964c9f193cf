# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small models with random weights of a real scale: with weights near zero, attention would not change an answer."""

import torch

SMALL = dict(
    vocab_size=512,
    hidden_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    intermediate_size=256,
    max_position_embeddings=512,
    tie_word_embeddings=False,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)


def _windowed():
    from transformers import MistralConfig

    return MistralConfig(**SMALL, sliding_window=24)


def _one_layer():
    from transformers import MistralConfig

    return MistralConfig(**SMALL | dict(head_dim=64, num_hidden_layers=1), sliding_window=None)


def _gemma2():
    from transformers import Gemma2Config

    return Gemma2Config(
        **SMALL | dict(tie_word_embeddings=True),
        sliding_window=24,
        query_pre_attn_scalar=32,
        attn_logit_softcapping=5.0,
        layer_types=["sliding_attention", "full_attention"],
    )


def _bloom():
    from transformers import BloomConfig

    return BloomConfig(vocab_size=512, hidden_size=128, n_layer=2, n_head=4)


def _gpt_oss():
    from transformers import GptOssConfig

    return GptOssConfig(
        **SMALL,
        sliding_window=24,
        num_local_experts=2,
        num_experts_per_tok=1,
        layer_types=["sliding_attention", "full_attention"],
    )


def _wide():
    from transformers import MistralConfig

    return MistralConfig(**SMALL | dict(head_dim=1024), sliding_window=None)


def _encoder():
    from transformers import BertConfig

    return BertConfig(hidden_size=128, num_hidden_layers=1, num_attention_heads=4, intermediate_size=256)


def deepseek(latent=512, rotated=64):
    """Latents (MLA) of so many features and rotated ones, without experts. Engines rotate on a CPU by YaRN."""
    from transformers import DeepseekV2Config

    rope = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=128)
    rope |= dict(mscale=0.707, mscale_all_dim=0.707, beta_fast=32, beta_slow=1)
    given = {name: value for name, value in SMALL.items() if name != "head_dim"}
    return DeepseekV2Config(
        **given | dict(num_key_value_heads=4, rope_parameters=rope),
        kv_lora_rank=latent,
        q_lora_rank=None,
        qk_nope_head_dim=32,
        qk_rope_head_dim=rotated,
        v_head_dim=32,
        first_k_dense_replace=SMALL["num_hidden_layers"],
        moe_layer_freq=1,
        n_routed_experts=4,
        n_shared_experts=1,
        num_experts_per_tok=1,
        moe_intermediate_size=64,
        n_group=1,
        topk_group=1,
    )


KINDS = {
    "wide": _wide,
    "encoder": _encoder,
    "windowed": _windowed,
    "one layer": _one_layer,
    "gemma2": _gemma2,
    "bloom": _bloom,
    "gpt_oss": _gpt_oss,
    "deepseek": deepseek,
}


# Queries and keys far from uniform weights; outputs of attention that count beside the input of a layer.
SCALES = {
    "q_proj": 2,
    "k_proj": 2,
    "query_key_value": 2,
    "o_proj": 2,
    "self_attention.dense": 4,
    "kv_a_proj": 2,
}


def write(kind, folder):
    """Write a model's config and weights into a folder."""
    from transformers import AutoModel, AutoModelForCausalLM

    torch.manual_seed(3)
    model = (AutoModel if kind == "encoder" else AutoModelForCausalLM).from_config(KINDS[kind]())
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim >= 2:
                scale = weight.shape[-1] ** -0.5
                weight.normal_(0, next((scale * by for part, by in SCALES.items() if part in name), scale))
            elif "sinks" in name:
                weight.normal_(0, 2)
    dtype = torch.bfloat16 if kind == "gemma2" else torch.float16  # vLLM runs no Gemma in float16.
    model.to(dtype).save_pretrained(folder)
