# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the programs beside this one share: models small enough for a CPU, and what training over copies would give."""

import torch
from transformers import AutoConfig, AutoModelForCausalLM


def decoder(kind, **options):
    """A model of Transformers at random, of 32 token ids, in training mode."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 32, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
    return AutoModelForCausalLM.from_config(
        AutoConfig.for_model(kind, **sizes, **heads, **options), attn_implementation="eager"
    ).train()


def logprobs_of_copies(model, packed):
    """Of each edge's target, where every trajectory has a copy of what it shares: [edges], in the order of `logprobs`."""
    found = []
    for number in range(len(packed.trajectories)):
        row = torch.from_numpy(packed.tokens[packed.rows(number)])
        at = torch.from_numpy(packed.edge_position[packed.edge_trajectory == number])
        found.append(model(row[None], use_cache=False).logits[0].log_softmax(-1)[at - 1, row[at]])
    return torch.cat(found)


def respond(model, prompts, responses, tokens):
    """Samples of a model, [prompts, responses, tokens], to prompts of one length, [prompts, length]."""
    repeated = prompts.repeat_interleave(responses, 0)
    options = {"attention_mask": torch.ones_like(repeated), "pad_token_id": 0, "max_new_tokens": tokens}
    rows = model.generate(repeated, do_sample=True, top_k=0, min_new_tokens=tokens, **options)
    return rows[:, prompts.shape[1] :].view(len(prompts), responses, tokens)


def learn(optimizer, loss):
    """One update; gives the loss as a number."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
