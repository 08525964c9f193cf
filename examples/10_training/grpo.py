# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""GRPO of a tiny Llama, twice: over packed groups, each prompt held once, and over copies. Both learn the same."""

import copy

import torch
from attn.training import edge_weights, group, logprobs, pack
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
PROMPTS, RESPONSES, LENGTH, LIKED = 2, 8, 12, 7
sizes = {
    "vocab_size": 32,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "head_dim": 32,
}
policy = LlamaForCausalLM(
    LlamaConfig(num_attention_heads=2, num_key_value_heads=1, eos_token_id=None, **sizes)
)
models = {"packed": policy, "copies": copy.deepcopy(policy)}
optimizers = {name: torch.optim.Adam(model.parameters(), lr=3e-3) for name, model in models.items()}
prompts = torch.randint(32, (PROMPTS, 24))


def of_copies(model, sequences):
    """Log-probabilities of all responses' tokens, each over a prompt of its own."""
    logits = model(sequences[:, :-1]).logits[:, prompts.shape[1] - 1 :]
    return logits.log_softmax(-1).gather(2, sequences[:, prompts.shape[1] :, None]).flatten()


rewards_of_steps, gaps = [], []
for _ in range(15):
    repeated = prompts.repeat_interleave(RESPONSES, 0)
    options = {"attention_mask": torch.ones_like(repeated), "pad_token_id": 0, "max_new_tokens": LENGTH}
    sequences = policy.generate(repeated, do_sample=True, top_k=0, min_new_tokens=LENGTH, **options)
    responses = sequences[:, prompts.shape[1] :].view(PROMPTS, RESPONSES, LENGTH)
    rewards = (responses == LIKED).float().mean(-1)
    advantages = ((rewards - rewards.mean(1, True)) / (rewards.std(1, keepdim=True) + 1e-4)).flatten()
    (packed,) = pack(
        [group(prompt, list(of_prompt)) for prompt, of_prompt in zip(prompts, responses, strict=True)]
    )
    losses, old = {}, {}
    for _ in range(2):  # the second one is off its policy: ratios are clipped
        for name, model in models.items():
            found = (
                logprobs(model, packed, reference=True) if name == "packed" else of_copies(model, sequences)
            )
            old.setdefault(name, found.detach())
            ratio, weight = (found - old[name]).exp(), edge_weights(advantages, packed)
            losses[name] = -torch.minimum(ratio * weight, ratio.clamp(0.8, 1.2) * weight).mean()
            optimizers[name].zero_grad()
            losses[name].backward()
            optimizers[name].step()
        gaps.append(abs(losses["packed"].item() - losses["copies"].item()))
    rewards_of_steps.append(rewards.mean().item())

print("learns:", sum(rewards_of_steps[-3:]) > 2 * sum(rewards_of_steps[:3]))
print("both losses agree:", max(gaps) < 1e-4)
