# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A toy GRPO, step by step: losses over packed groups stay near those over copies.

Each step has two updates, the second with ratios that are clipped. Models are trained side by side, each by its own
optimizer, on responses that the first one samples, of different lengths. CI takes some steps, --full 100, and 20 seeds
of kernels.

The error of bfloat16 is measured in the gradient of one step, against float64. Losses of a training run say nothing of
it: Adam steps by the sign of small gradients, so that two runs part as soon as one bit differs, and a loss is near zero
in every step whose ratios are 1.
"""

import copy
import os

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="Transformers is not installed")

from attn.training import edge_weights, group, logprobs, pack  # noqa: E402
from tiny_decoders import VOCABULARY, decoder, replicated_logprobs  # noqa: E402

FULL = bool(os.environ.get("ATTN_FULL"))


def exact(model, packed):
    return logprobs(model, packed, reference=True)


def kernels(model, packed):
    with torch.autocast("cpu", torch.bfloat16):
        return logprobs(model, packed)


def copies_in_bfloat16(model, packed):
    with torch.autocast("cpu", torch.bfloat16):
        return replicated_logprobs(model, packed)


@torch.no_grad()
def sample(model, prompt, tokens, random):
    found = prompt
    for _ in range(tokens):
        p = model(found[None], use_cache=False).logits[0, -1].softmax(-1)
        found = torch.cat([found, torch.multinomial(p, 1, generator=random)])
    return found[len(prompt) :]


def generate(model, prompts, random):
    """Return a packed step, and its weights: half of the token ids have a reward."""
    trees, advantages = [], []
    for prompt in prompts:
        lengths = torch.randint(1, 8, (4,), generator=random).tolist()
        responses = [sample(model, prompt, n, random) for n in lengths]
        rewards = torch.tensor([float((own % 2 == 0).float().mean()) for own in responses])
        advantages.append((rewards - rewards.mean()) / (rewards.std() + 1e-4))
        trees.append(group(prompt, responses))
    (packed,) = pack(trees, vocabulary=VOCABULARY)
    return packed, edge_weights(torch.cat(advantages), packed)


def train(ways, steps, seed=0):
    """Return the losses of all updates, [updates, ways], and the largest change of the first way's weights."""
    random = torch.Generator().manual_seed(seed)
    first = decoder()
    with torch.no_grad():
        for weight in first.parameters():
            weight += 0.02 * torch.randn(weight.shape, generator=random)
    before = copy.deepcopy(first.state_dict())
    models = [first, *(copy.deepcopy(first) for _ in ways[1:])]
    optimizers = [torch.optim.Adam(model.parameters(), lr=1e-3) for model in models]
    prompts = [torch.randint(VOCABULARY, (n,), generator=random) for n in (11, 7)]
    losses = []
    for _ in range(steps):
        packed, weights = generate(first, prompts, random)
        old = {}
        for _ in range(2):
            losses.append([])
            for way, model, optimizer in zip(ways, models, optimizers, strict=True):
                found = way(model, packed)
                ratio = (found - old.setdefault(way, found.detach())).exp()
                loss = -torch.minimum(ratio * weights, ratio.clamp(0.8, 1.2) * weights).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses[-1].append(loss.item())
    moved = max(float((weight - before[name]).abs().max()) for name, weight in first.state_dict().items())
    return torch.tensor(losses, dtype=torch.float64), moved


def test_losses_in_float32():
    """The largest difference seen over 100 steps is 2.4e-7."""
    losses, moved = train([replicated_logprobs, exact], 100 if FULL else 8)
    assert (losses[:, 1] - losses[:, 0]).abs().max() <= 1e-4
    assert moved > 1e-3, "nothing was learnt"


def gradient(model, way, packed, weights, old):
    """Return the gradient of an off-policy update's loss for all of the model's weights, in float64."""
    model.zero_grad()
    ratio = (way(model, packed).double() - old).exp()
    (-torch.minimum(ratio * weights, ratio.clamp(0.8, 1.2) * weights).mean()).backward()
    return torch.cat([weight.grad.double().flatten() for weight in model.parameters()])


def errors_in_bfloat16(seed):
    """Return the relative errors of one update's gradient against float64: over packed groups by kernels, and over
    copies."""
    random = torch.Generator().manual_seed(seed)
    model = decoder()
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.02 * torch.randn(weight.shape, generator=random)
    prompts = [torch.randint(VOCABULARY, (n,), generator=random) for n in (11, 7)]
    packed, weights = generate(model, prompts, random)
    precise = copy.deepcopy(model).double()
    with torch.no_grad():
        old = exact(precise, packed).double()
    old += 0.1 * torch.randn(old.shape, generator=random, dtype=torch.float64)
    wanted = gradient(precise, exact, packed, weights, old)
    found = [gradient(model, way, packed, weights, old) for way in (kernels, copies_in_bfloat16)]
    return [float((each - wanted).norm() / wanted.norm()) for each in found]


def test_gradients_of_kernels():
    """In bfloat16, gradients of packed groups are nearer to float64 than those of copies: 20 seeds gave 0.87 of their
    error in the mean, 1.007 at most."""
    ratios = []
    for seed in range(20 if FULL else 4):
        packed, copied = errors_in_bfloat16(seed)
        assert copied < 0.02, seed
        ratios.append(packed / copied)
    assert sum(ratios) / len(ratios) < 0.92
    assert max(ratios) < 1.05
