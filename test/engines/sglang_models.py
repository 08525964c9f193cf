# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random models that SGLang reads, and their log-probabilities in Transformers, in float32, without pages."""

import models
import torch


def _granite_swa():
    from transformers import GraniteSWAConfig

    given = {name: value for name, value in models.SMALL.items() if name != "head_dim"}
    return GraniteSWAConfig(
        **given,
        sliding_window=24,
        attention_multiplier=32**-0.5,
        layer_types=["sliding_attention", "full_attention"],
    )


def _gemma2():
    config = models.KINDS["gemma2"]()
    config.hidden_act = config.hidden_activation  # SGLang reads both.
    return config


def _deepseek():
    """Latents of 64 features and 16 rotated ones, without experts. SGLang rotates on a CPU by YaRN alone."""
    from transformers import DeepseekV2Config

    rope = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=128)
    rope |= dict(mscale=0.707, mscale_all_dim=0.707, beta_fast=32, beta_slow=1)
    given = {name: value for name, value in models.SMALL.items() if name != "head_dim"}
    return DeepseekV2Config(
        **given | dict(num_key_value_heads=4, rope_parameters=rope),
        kv_lora_rank=64,
        q_lora_rank=None,
        qk_nope_head_dim=32,
        qk_rope_head_dim=16,
        v_head_dim=32,
        first_k_dense_replace=models.SMALL["num_hidden_layers"],
        moe_layer_freq=1,
        n_routed_experts=4,
        n_shared_experts=1,
        num_experts_per_tok=1,
        moe_intermediate_size=64,
        n_group=1,
        topk_group=1,
    )


models.KINDS = models.KINDS | {
    "granite_swa": _granite_swa,
    "sglang_gemma2": _gemma2,
    "deepseek": _deepseek,
}
models.SCALES = models.SCALES | {"kv_a_proj": 2}


def write(kind, folder):
    """Write a model's config and weights, of float16, into a folder."""
    models.write(kind, folder)


def logprobs(folder, prompts, answers):
    """Return the likeliest token at each place of answers, and the log-probability of each token that is there."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    tokens, found = [], []
    with torch.inference_mode():
        for prompt, answer in zip(prompts, answers, strict=True):
            rows = model(torch.tensor([prompt + answer[:-1]])).logits[0, len(prompt) - 1 :].log_softmax(-1)
            tokens.append(rows.argmax(-1).tolist())
            found.append(rows.gather(1, torch.tensor(answer)[:, None])[:, 0].tolist())
    return tokens, found
