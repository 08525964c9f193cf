# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes tiny random models of Transformers' architectures, whose configurations name their sizes in different ways."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from transformers.models.auto import modeling_auto

VOCABULARY = 97
LAYERS = 2

# By the names of configurations. Heads have 32 features, the least that attn takes with any kernel.
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "d_model": 128,
    "n_embd": 128,
    "dim": 128,
    "embedding_size": 128,
    "emb_dim": 128,
    "projection_dim": 128,
    "out_hidden_size": 128,
    "embed_dim": 128,
    "attention_hidden_size": 128,
    "word_embed_proj_dim": 128,
    "intermediate_size": 96,
    "moe_intermediate_size": 96,
    "shared_expert_intermediate_size": 96,
    "moe_shared_expert_intermediate_size": 96,
    "shared_intermediate_size": 96,
    "ffn_dim": 96,
    "d_ff": 96,
    "d_inner": 96,
    "hidden_dim": 96,
    "mlp_dim": 96,
    "expert_ffn_hidden_size": 96,
    "ffn_hidden_size": 96,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96,
    "num_hidden_layers": LAYERS,
    "num_layers": LAYERS,
    "n_layer": LAYERS,
    "n_layers": LAYERS,
    "encoder_layers": LAYERS,
    "decoder_layers": LAYERS,
    "num_decoder_layers": LAYERS,
    "num_attention_heads": 4,
    "num_heads": 4,
    "n_head": 4,
    "n_heads": 4,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_kv_heads": 2,
    "head_dim": 32,
    "d_kv": 32,
    "global_head_dim": 32,
    "attention_head_size": 32,
    "kv_channels": 32,
    "rotary_dim": 16,
    "max_position_embeddings": 512,
    "n_positions": 512,
    "max_seq_len": 512,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_topk": 2,
    "n_group": 1,
    "topk_group": 1,
    "num_expert_group": 1,
    "first_k_dense_replace": 1,
    "n_shared_experts": 1,
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 32,
    "qk_nope_head_dim": 32,
    "qk_head_dim": 64,
    "v_head_dim": 32,
    "sliding_window": 8,
    "attention_window_size": 8,
    "attention_chunk_size": 8,
    "type_vocab_size": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "vocab_size_per_layer_input": VOCABULARY,
    "hidden_size_per_layer_input": 32,
    "laurel_rank": 8,
    "query_pre_attn_scalar": 32,
    "mamba_d_state": 16,
    "mamba_n_heads": 8,
    "mamba_d_head": 32,
    "mamba_n_groups": 1,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "initializer_range": 0.2,
    "init_std": 0.2,
    "use_cache": True,
}
# Sizes that a configuration does not have, and must get here.
UNSAID = (
    "head_dim",
    "sliding_window",
    "num_key_value_heads",
    "vocab_size",
    "num_kv_heads",
    "n_shared_experts",
)
UNSAID += ("pad_token_id", "bos_token_id", "eos_token_id")
DROPOUTS = ("dropout", "pdrop", "layerdrop", "drop_path")

LINEAR = {"layer_types": ["linear_attention", "full_attention"]}
ONE_LANGUAGE = {"languages": ["en_XX"], "default_language": "en_XX"}
EXPERTS = {
    "num_experts_per_tok": 2,
    "num_local_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "n_shared_experts": 1,
}
ROPE = {"rope_type": "default", "rope_theta": 1e4}
# By model type: further changes.
MORE = {
    "bailing_hybrid": EXPERTS,
    "bamba": {"attn_layer_indices": [1]},
    "cohere_compass_text": {"rope_parameters": {"full_attention": ROPE, "sliding_attention": ROPE}},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "dots1": {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1},
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 8},
        "ffn_config": {"ffn_hidden_size": 128, "moe_num_experts": 4, "moe_top_k": 2, "hidden_size": 128},
    },
    "esmc": {"num_key_value_heads": 4},
    "falcon_h1": {"mamba_d_ssm": 128, "mamba_n_heads": 4, "mamba_d_head": 32},
    "fsmt": {"src_vocab_size": VOCABULARY, "tgt_vocab_size": VOCABULARY, "langs": ["en", "de"]},
    "gemma3n_text": {
        "num_hidden_layers": 5,
        "layer_types": ["sliding_attention"] * 4 + ["full_attention"],
        "num_kv_shared_layers": 0,
        "intermediate_size": 96,
        "activation_sparsity_pattern": None,
    },
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 8},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "kimi_linear": EXPERTS,
    "led": {"attention_window": 8},
    "longformer": {"attention_window": 8},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "longcat_flash": {"zero_expert_num": 1, "ffn_hidden_size": 96},
    "luke": {"entity_vocab_size": 20, "entity_emb_size": 32},
    "mamba2": {"num_heads": 8, "head_dim": 32, "state_size": 16, "n_groups": 1, "chunk_size": 16},
    "musicgen_decoder": {"num_codebooks": 1},
    "musicgen_melody_decoder": {"num_codebooks": 1},
    "nemotron_h": {
        "layers_block_type": ["mamba", "attention"],
        "mamba_num_heads": 8,
        "mamba_head_dim": 32,
        "ssm_state_size": 16,
        "n_groups": 1,
        "chunk_size": 16,
    },
    "olmo_hybrid": LINEAR,
    "pegasus_x": {"block_size": 8, "num_global_tokens": 4},
    "qwen3_5": LINEAR,
    "qwen3_5_moe": LINEAR,
    "qwen3_5_moe_text": LINEAR,
    "qwen3_5_text": LINEAR,
    "qwen3_next": LINEAR,
    "recurrent_gemma": {"num_hidden_layers": 3, "lru_width": 128},
    "reformer": {"axial_pos_embds": False, "attn_layers": ["local", "lsh"], "attention_head_size": 32},
    "roc_bert": {"pronunciation_vocab_size": 20, "shape_vocab_size": 20},
    "xmod": ONE_LANGUAGE,
    "zaya": {"num_experts_per_tok": 1},
}


def tiny(kind, **changes):
    """Return a configuration of the class `kind` with small sizes, also in its inner configurations."""
    default = kind()
    known, mapped = default.to_dict(), set(getattr(default, "attribute_map", {}))
    arguments = {}
    for name, value in known.items():
        inner = vars(default).get(name)
        if isinstance(inner, transformers.PretrainedConfig):
            arguments[name] = tiny(type(inner)).to_dict()
        elif name in SIZES and name not in mapped and not isinstance(value, (dict, list)):
            if value is not None or name in UNSAID:
                arguments[name] = SIZES[name]
        elif any(part in name for part in DROPOUTS) and isinstance(value, float):
            arguments[name] = 0.0
    if "kv_lora_rank" in arguments:
        arguments["num_key_value_heads"] = SIZES["num_attention_heads"]
    return kind(**(arguments | MORE.get(default.model_type, {}) | changes))


# Models take no fewer tokens than these, in eager attention too.
LEAST = {"funnel": 5}
# Models whose SDPA differs from their eager attention in Transformers itself: attn falls back to their
# default. In "inkling_text", rounding decides between experts that are nearly as good.
APART = ("inkling_text", "moshi")
# Models that are left out, with the reason.
LEFT_OUT = {
    "blt": "its patcher and its tables of hashes have sizes that no configuration makes small",
    "fnet": "has no attention, and no float16",
    "inkling2_text": "Transformers 5.24 multiplies its numbers of 16 bits with those of 32",
    "inkling2_loop_text": "Transformers 5.24 multiplies its numbers of 16 bits with those of 32",
    "mra": "has kernels of its own for GPUs, and no float16",
    "encoder-decoder": "has no configuration of its own",
    "gemma3n": "needs timm",
    "gemma4_assistant": "needs the model that it assists",
    "gemma4_unified_assistant": "needs the model that it assists",
    "nemo_speechlm": "has a token for blanks that no small vocabulary holds",
    "perceiver": "takes 260 million parameters at least",
    "vibevoice_asr": "takes 690 million parameters at least",
    "voxtral_realtime": "needs sound",
    "zamba": "its default ties weights of layers that a small one does not have",
    "zamba2": "its default ties weights of layers that a small one does not have",
}


def is_causal(model):
    """Whether a model, or a class of models, is for causal language modelling."""
    kind = model if isinstance(model, type) else type(model)
    return kind in {kind for _, kind in classes("CAUSAL_LM")}


def classes(mapping):
    """Yield the model types of a mapping of Transformers, and the classes of their models."""
    for of_type, name in getattr(modeling_auto, f"MODEL_FOR_{mapping}_MAPPING_NAMES").items():
        yield of_type, getattr(transformers, name if isinstance(name, str) else name[0])


def build(model, implementation, dtype=torch.float32, seed=0, **changes):
    """Build a random model of the class `model`."""
    if is_causal(model) and "is_decoder" in model.config_class().to_dict():
        changes = {"is_decoder": True} | changes
    config = tiny(model.config_class, **changes)
    config._attn_implementation = implementation
    torch.manual_seed(seed)
    made = model(config).eval()
    return made.to(dtype)
