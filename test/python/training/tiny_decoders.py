# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiny decoders of Transformers with random weights, and their log-probabilities as trained without packing."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers

VOCABULARY = 97
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 512,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
# One of each model type that packed_model takes, with windows in all or some layers among them.
KINDS = {
    "llama": ("llama", {}),
    "mistral with a window": ("mistral", {"sliding_window": 8}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {}),
    "qwen3 with a window": (
        "qwen3",
        {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
    ),
    "qwen3_moe": ("qwen3_moe", EXPERTS),
}


def decoder(kind="llama", dtype=torch.float32, implementation="eager", **options):
    """Return a decoder in training mode, with the same weights in each call."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **SIZES | options)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=implementation)
    return model.to(dtype).train()


def replicated_logprobs(model, packed, temperature=1.0):
    """Return the log-probability of each edge's target, one trajectory after the other: [edges]."""
    found = []
    for number in range(len(packed.trajectories)):
        ids = torch.from_numpy(packed.tokens[packed.rows(number)])
        logprobs = (model(ids[None], use_cache=False).logits[0].float() / temperature).log_softmax(-1)
        at = torch.from_numpy(packed.edge_position[packed.edge_trajectory == number])
        found.append(logprobs[at - 1, ids[at]])
    return torch.cat(found)


def gradients(model, loss):
    """Return the gradients of weights by name."""
    model.zero_grad()
    loss.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
