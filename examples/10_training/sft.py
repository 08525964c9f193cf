# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fine-tuning over chats that share a system prompt, which is held once for all chats of a micro-batch."""

import tiny
import torch
from attn.training import Tree, edge_loss, logprobs, pack, packed_model, report

model = tiny.decoder("llama")
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
system = torch.randint(32, (40,))
chats = []
for length in (5, 3, 8, 4):
    question = torch.randint(32, (length,))
    answer = Tree((question[-1] + torch.arange(6)) % 32)
    chats.append(Tree(system, [Tree(question, [answer], trained=False)], trained=False))

losses = []
for _ in range(12):
    for packed in pack(chats, budget=100, vocabulary=32):
        with packed_model(model, packed, reference=True):
            logits = model(packed.input_ids()).logits
        # The loss is over answers' tokens alone.
        losses.append(tiny.learn(optimizer, edge_loss(logits, packed)))

with torch.no_grad():
    gaps = logprobs(model, packed, reference=True) - tiny.logprobs_of_copies(model, packed)
print("learns:", losses[-1] < 0.5 * losses[0])
print("agrees with copies:", bool(gaps.abs().max() < 1e-4))
print(f"{report(packed, model.config).sharing:.2f} times fewer rows")
