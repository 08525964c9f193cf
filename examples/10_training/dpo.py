# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Preferences (DPO): the chosen and the rejected response of a pair share their prompt."""

import copy

import tiny
import torch
from attn.training import group, logprobs, pack, trajectory_sums
from torch.nn.functional import logsigmoid

model = tiny.decoder("mistral", sliding_window=16)
before, optimizer = copy.deepcopy(model).eval(), torch.optim.Adam(model.parameters(), lr=1e-3)
pairs = [
    [torch.randint(low, high, (n,)) for low, high, n in ((0, 32, 30), (0, 16, 7), (16, 32, 9))]
    for _ in "1234"
]
batches = pack([group(prompt, responses) for prompt, *responses in pairs], budget=110)


def margins(found, packed):
    """Return the margin of each pair: how much likelier the chosen response is."""
    return -trajectory_sums(found, packed).view(-1, 2).diff().flatten()


losses = []
for packed in 6 * batches:
    with torch.no_grad():
        reference = margins(logprobs(before, packed, reference=True), packed)
    gained = margins(logprobs(model, packed, reference=True), packed) - reference
    losses.append(tiny.learn(optimizer, -logsigmoid(0.1 * gained).mean()))

with torch.no_grad():
    gaps = logprobs(model, packed, reference=True) - tiny.logprobs_of_copies(model, packed)
print("micro-batches:", [len(packed.tokens) for packed in batches])
print("learns:", losses[-1] < 0.8 * losses[0])
print("agrees with copies:", bool(gaps.abs().max() < 1e-3))
