# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Preferences (DPO): the chosen and the rejected response of a pair share their prompt."""

import copy

import torch
from attn.training import group, logprobs, pack, trajectory_sums
from torch.nn.functional import logsigmoid
from transformers import MistralConfig, MistralForCausalLM

torch.manual_seed(0)
sizes = {
    "vocab_size": 32,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "head_dim": 32,
}
config = MistralConfig(num_attention_heads=2, num_key_value_heads=1, sliding_window=16, **sizes)
model = MistralForCausalLM(config).train()
before = copy.deepcopy(model).eval()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

pairs = [(torch.randint(32, (30,)), torch.randint(16, (7,)), torch.randint(16, 32, (9,))) for _ in range(4)]
batches = pack([group(prompt, [chosen, rejected]) for prompt, chosen, rejected in pairs], budget=110)


def margins(model, packed):
    """Of each pair: how much likelier the chosen response is."""
    chosen, rejected = trajectory_sums(logprobs(model, packed, reference=True), packed).view(-1, 2).unbind(1)
    return chosen - rejected


losses = []
for _ in range(6):
    for packed in batches:
        with torch.no_grad():
            reference = margins(before, packed)
        loss = -logsigmoid(0.1 * (margins(model, packed) - reference)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

prompt, chosen, rejected = pairs[0]
of_copies = [
    model(torch.cat([prompt, own])[None]).logits[0, 29:-1].log_softmax(-1).gather(1, own[:, None]).sum()
    for own in (chosen, rejected)
]
print("micro-batches:", [len(packed.tokens) for packed in batches])
print("learns:", losses[-1] < 0.8 * losses[0])
print(
    "agrees with copies:", bool((margins(model, batches[0])[0] - (of_copies[0] - of_copies[1])).abs() < 1e-3)
)
