# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that the example programs share: models small enough for a CPU, and the results of training over copies."""

import torch
from transformers import AutoConfig, AutoModelForCausalLM


def decoder(kind, **options):
    """Return a random model of Transformers with 32 token ids, in training mode."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 32, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
    return AutoModelForCausalLM.from_config(
        AutoConfig.for_model(kind, **sizes, **heads, **options), attn_implementation="eager"
    ).train()


def logprobs_of_copies(model, packed):
    """Return the log-probability of each edge's target with a copy of shared tokens for every trajectory: [edges], in
    the order of `logprobs`."""
    found = []
    for number in range(len(packed.trajectories)):
        row = torch.from_numpy(packed.tokens[packed.rows(number)])
        at = torch.from_numpy(packed.edge_position[packed.edge_trajectory == number])
        found.append(model(row[None], use_cache=False).logits[0].log_softmax(-1)[at - 1, row[at]])
    return torch.cat(found)


def respond(model, prompts, responses, tokens):
    """Return samples of a model, [prompts, responses, tokens], for prompts of one length, [prompts, length]."""
    repeated = prompts.repeat_interleave(responses, 0)
    options = {"attention_mask": torch.ones_like(repeated), "pad_token_id": 0, "max_new_tokens": tokens}
    rows = model.generate(repeated, do_sample=True, top_k=0, min_new_tokens=tokens, **options)
    return rows[:, prompts.shape[1] :].view(len(prompts), responses, tokens)


def learn(optimizer, loss):
    """Update once; returns the loss as a number."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
