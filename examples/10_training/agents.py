# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An agent's tree of depth 5: observations are not targets, actions are, and each leaf has an advantage of its own."""

import tiny
import torch
from attn.training import Tree, edge_loss, edge_weights, pack, packed_model, report

model = tiny.decoder("qwen3")
model.gradient_checkpointing_enable({"use_reentrant": False})


def turns(depth):
    """Return an observation of 6 tokens and an action of 4; below each, two continuations."""
    below = [turns(depth - 1) for _ in range(2)] if depth else []
    return Tree(torch.randint(32, (10,)), below, trained=[False] * 6 + [True] * 4)


(packed,) = pack([turns(5)])
advantages = torch.randn(len(packed.trajectories))
with packed_model(model, packed, reference=True):
    logits = model(packed.input_ids()).logits
edge_loss(logits, packed, advantages).backward()  # An action has an edge for each leaf below it.
shared = [weight.grad.clone() for weight in model.parameters()]

model.zero_grad()
(-edge_weights(advantages, packed) * tiny.logprobs_of_copies(model, packed)).sum().backward()
pairs = zip(shared, (weight.grad for weight in model.parameters()), strict=True)
counted = report(packed, model.config)
print(packed)
print("gradients agree:", all((one - other).norm() < 1e-4 * other.norm() for one, other in pairs))
print(f"{counted.replicated_flops / counted.flops:.2f} times less work")
