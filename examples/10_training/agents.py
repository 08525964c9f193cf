# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An agent's tree of depth 5: what it observed is no target, what it did is, and each leaf has an advantage of its own."""

import torch
from attn.training import Tree, edge_loss, pack, packed_model, report
from transformers import Qwen3Config, Qwen3ForCausalLM

torch.manual_seed(0)
sizes = {
    "vocab_size": 32,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "head_dim": 32,
}
model = Qwen3ForCausalLM(Qwen3Config(num_attention_heads=2, num_key_value_heads=1, **sizes)).train()
model.gradient_checkpointing_enable({"use_reentrant": False})


def turns(depth):
    """An observation of 6 tokens and an action of 4; below each, two ways on."""
    trained = [False] * 6 + [True] * 4
    return Tree(torch.randint(32, (10,)), [turns(depth - 1) for _ in range(2)] if depth else [], trained)


(packed,) = pack([turns(5)])
advantages = torch.randn(len(packed.trajectories))
with packed_model(model, packed, reference=True):
    logits = model(packed.input_ids()).logits
edge_loss(logits, packed, advantages).backward()  # an action's edges are as many as the leaves below it
shared = {name: weight.grad.clone() for name, weight in model.named_parameters()}

model.zero_grad()
for number, advantage in enumerate(advantages):
    row = torch.from_numpy(packed.tokens[packed.rows(number)])
    at = torch.from_numpy(packed.edge_position[packed.edge_trajectory == number])
    logprobs = model(row[None], use_cache=False).logits[0].log_softmax(-1)[at - 1, row[at]]
    (-advantage * logprobs.sum()).backward()
copied = {name: weight.grad for name, weight in model.named_parameters()}

print(packed)
print("gradients agree:", all((shared[n] - copied[n]).norm() < 1e-4 * copied[n].norm() for n in shared))
print(
    f"{report(packed, model.config).replicated_flops / report(packed, model.config).flops:.2f} times less work"
)
