# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The programs of examples/10_training run and print what the lesson shows; a longer GRPO stays with that of copies."""

import copy
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="Transformers is not installed")

from attn.training import edge_weights, group, logprobs, pack  # noqa: E402
from tiny_decoders import VOCABULARY, decoder, replicated_logprobs  # noqa: E402

LESSON = Path(__file__).resolve().parents[3] / "examples" / "10_training"
STEPS = 100 if os.environ.get("ATTN_FULL") else 10


def shown():
    """What the lesson says that each program prints."""
    pattern = r"^```\npython examples/10_training/(\w+\.py)\n```\n+```text\n(.*?)^```"
    return dict(re.findall(pattern, (LESSON / "tutorial.md").read_text(), flags=re.M | re.S))


def test_every_program_is_shown():
    assert sorted(shown()) == sorted(path.name for path in LESSON.glob("*.py"))


@pytest.mark.parametrize("name", sorted(path.name for path in LESSON.glob("*.py")))
def test_program(name):
    result = subprocess.run(
        [sys.executable, str(LESSON / name)],
        capture_output=True,
        text=True,
        timeout=300,
        env=dict(os.environ, HF_HUB_OFFLINE="1"),
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == shown()[name]


def test_grpo_of_many_steps():
    """Ratios are clipped, responses are of the packed model's policy and of lengths that differ; both models keep their own
    optimizer. Losses differ by 1e-4 at most."""
    random = torch.Generator().manual_seed(0)
    models = [decoder(), decoder()]
    optimizers = [torch.optim.Adam(model.parameters(), lr=1e-3) for model in models]
    prompts = [torch.randint(VOCABULARY, (n,), generator=random) for n in (11, 7)]
    gaps, first = [], None
    for _ in range(STEPS):
        trees, rewards = [], []
        for prompt in prompts:
            lengths = torch.randint(1, 8, (4,), generator=random).tolist()
            responses = [sample(models[0], prompt, n, random) for n in lengths]
            rewards.append(torch.tensor([float((own % 2 == 0).float().mean()) for own in responses]))
            trees.append(group(prompt, responses))
        advantages = torch.cat([(r - r.mean()) / (r.std() + 1e-4) for r in rewards])
        (packed,) = pack(trees, vocabulary=VOCABULARY)
        weights = edge_weights(advantages, packed)
        old = None
        for _ in range(2):
            losses = []
            for model, optimizer, of_model in zip(
                models, optimizers, (of_packed, replicated_logprobs), strict=True
            ):
                found = of_model(model, packed)
                old = found.detach() if old is None else old
                ratio = (found - old).exp()
                loss = -torch.minimum(ratio * weights, ratio.clamp(0.8, 1.2) * weights).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            gaps.append(abs(losses[0] - losses[1]))
        first = copy.deepcopy(models[0].state_dict()) if first is None else first
    assert max(gaps) <= 1e-4, gaps
    now = models[0].state_dict()
    assert any((now[name] - first[name]).abs().max() > 1e-3 for name in now), "nothing was learnt"


def of_packed(model, packed):
    return logprobs(model, packed, reference=True)


@torch.no_grad()
def sample(model, prompt, tokens, random):
    found = prompt
    for _ in range(tokens):
        p = model(found[None], use_cache=False).logits[0, -1].softmax(-1)
        found = torch.cat([found, torch.multinomial(p, 1, generator=random)])
    return found[len(prompt) :]
