# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fine-tuning over chats that share a system prompt, which is held once for all chats of a micro-batch."""

import torch
from attn.training import Tree, edge_loss, pack, packed_model, report
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
sizes = {
    "vocab_size": 32,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "head_dim": 32,
}
model = LlamaForCausalLM(LlamaConfig(num_attention_heads=2, num_key_value_heads=1, **sizes))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

system = torch.randint(32, (40,))
questions = [torch.randint(32, (n,)) for n in (5, 3, 8, 4)]
answers = [(question[-1] + torch.arange(6)) % 32 for question in questions]
chats = [
    Tree(system, [Tree(question, [Tree(answer)], trained=False)], trained=False)
    for question, answer in zip(questions, answers, strict=True)
]

losses = []
for _ in range(12):
    for packed in pack(chats, budget=100, vocabulary=32):
        with packed_model(model, packed, reference=True):
            logits = model(packed.input_ids()).logits
        loss = edge_loss(logits, packed)  # along the edges to the answers' tokens, and to no others
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

rows = [torch.cat([system, *chat]) for chat in zip(questions, answers, strict=True)]
labels = [torch.cat([torch.full((len(row) - 6,), -100), row[-6:]]) for row in rows]
copies = [model(row[None], labels=label[None]).loss for row, label in zip(rows, labels, strict=True)]
with packed_model(model, packed, reference=True):
    shared = edge_loss(model(packed.input_ids()).logits, packed)
print("learns:", losses[-1] < 0.5 * losses[0])
print("agrees with copies:", bool((shared - sum(copies) / 4).abs() < 1e-4))
print(f"{report(packed, model.config).sharing:.2f} times fewer rows")
