# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""GRPO of a tiny Llama, twice: over packed groups, each prompt held once, and over copies. Both learn the same."""

import copy

import tiny
import torch
from attn.training import edge_weights, group, logprobs, pack

LIKED = 7
policy = tiny.decoder("llama", eos_token_id=None)
twin = copy.deepcopy(policy)
ways = [
    lambda packed: logprobs(policy, packed, reference=True),
    lambda packed: tiny.logprobs_of_copies(twin, packed),
]
optimizers = [torch.optim.Adam(model.parameters(), lr=3e-3) for model in (policy, twin)]
prompts = torch.randint(32, (2, 24))

rewards_of_steps, gaps = [], []
for _ in range(15):
    responses = tiny.respond(policy, prompts, responses=8, tokens=12)
    rewards = (responses == LIKED).float().mean(-1)
    advantages = ((rewards - rewards.mean(1, True)) / (rewards.std(1, keepdim=True) + 1e-4)).flatten()
    (packed,) = pack([group(prompt, list(own)) for prompt, own in zip(prompts, responses, strict=True)])
    with torch.no_grad():
        old, weight = [way(packed) for way in ways], edge_weights(advantages, packed)
    for _ in range(2):  # The second update is off its policy: ratios are clipped.
        losses = []
        for way, before, optimizer in zip(ways, old, optimizers, strict=True):
            ratio = (way(packed) - before).exp()
            loss = -torch.minimum(ratio * weight, ratio.clamp(0.8, 1.2) * weight).mean()
            losses.append(tiny.learn(optimizer, loss))
        gaps.append(abs(losses[0] - losses[1]))
    rewards_of_steps.append(rewards.mean().item())

print("learns:", sum(rewards_of_steps[-3:]) > 2 * sum(rewards_of_steps[:3]))
print("both losses agree:", max(gaps) < 1e-4)
