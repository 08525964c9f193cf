# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Policies that users write from public names alone, and messages for those that return something else than expected."""

import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="Transformers is not installed")

import attn  # noqa: E402
import attn.transformers  # noqa: E402
import model_zoo  # noqa: E402
from attn.kv_policy import HIGH, NOTHING, PRUNED, Changes, Policy, begin  # noqa: E402

PROMPT, STEPS = 20, 4


class Recent(Policy):
    """A step prunes the token that leaves the window."""

    window, rows, group = 18, None, "max"

    def prompt(self, significance, lengths=None, heads=None):
        return begin(self, significance, lengths)

    def step(self, kept, significance):
        kept.append(significance)
        leaves = kept.lengths - 1 - self.window
        pruned = torch.where(leaves >= 0, leaves, NOTHING)
        rows = (pruned >= 0).nonzero()[:, 0]
        kept.level[rows, pruned[rows]], kept.score[rows, pruned[rows]] = PRUNED, 0
        return Changes(torch.full_like(pruned, NOTHING), pruned)


def run(policy, steps=STEPS):
    model = model_zoo.build(
        transformers.LlamaForCausalLM, "attn", torch.float16, sliding_window=None, head_dim=64
    )
    cache = attn.transformers.DiffKVCache(model.config, policy, pages=200)
    ids = torch.randint(3, 90, (2, PROMPT + steps), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        for first, end in ((0, PROMPT), *((at, at + 1) for at in range(PROMPT, PROMPT + steps))):
            model(ids[:, first:end], past_key_values=cache)
    return cache


def test_a_policy_of_public_names():
    levels = run(Recent()).levels()
    gone = [PROMPT + step - Recent.window for step in range(STEPS)]
    wanted = torch.full((PROMPT + STEPS,), HIGH)
    wanted[gone] = PRUNED
    assert (torch.from_numpy(levels) == wanted).all()


def policy_of(**methods):
    return type("Mine", (Recent,), methods)()


def without_append(self, kept, significance):
    nothing = torch.full_like(kept.lengths, NOTHING)
    return Changes(nothing, nothing)


def out_of_the_list(self, kept, significance):
    changes = Recent.step(self, kept, significance)
    return Changes(changes.downgraded, changes.pruned + 1000)


def of_floats(self, kept, significance):
    changes = Recent.step(self, kept, significance)
    return Changes(changes.downgraded, changes.pruned.float())


def longer(self, significance, lengths=None, heads=None):
    kept = begin(self, significance, lengths)
    kept.lengths += 1
    return kept


def of_other_levels(self, significance, lengths=None, heads=None):
    kept = begin(self, significance, lengths)
    kept.level += 3
    return kept


@pytest.mark.parametrize(
    "methods,message",
    [
        (
            {"step": lambda *_: None},
            r"Mine.step: expected an attn.kv_policy.Changes\(downgraded, pruned\), got None",
        ),
        ({"step": lambda *_: (1, 2)}, r"Mine.step: expected .*Changes.* got tuple \(1, 2\)"),
        ({"step": without_append}, "Mine.step: expected one more token in each list, as kept.append"),
        (
            {"step": out_of_the_list},
            r"Mine.step: pruned\[0\]: expected a position from 0 to 20, or NOTHING, got 1002",
        ),
        ({"step": of_floats}, r"Mine.step: pruned: expected int64 \[\d+\] on cpu, got torch.float32"),
        ({"prompt": lambda *_: None}, r"Mine.prompt: expected an attn.kv_policy.Kept, as begin.* got None"),
        ({"prompt": longer}, "Mine.prompt: lengths: expected those of the prompts"),
        ({"prompt": of_other_levels}, "Mine.prompt: level: expected PRUNED, LOW or HIGH"),
        ({"sees": lambda *_: 5}, r"Mine.sees\(0, 0\): expected \(sink, recent\), .* got 5"),
        ({"window": None}, "Mine.window: expected a number of tokens from 0 on, got None"),
        ({"rows": 0}, "Mine.rows: expected a number of rows from 1 on, or None for all, got 0"),
        ({"group": "all"}, "Mine.group: expected 'max', 'mean' or 'sum', got 'all'"),
    ],
    ids=str,
)
def test_what_a_policy_gives_is_checked(methods, message):
    with pytest.raises(attn.PlanError, match=message):
        run(policy_of(**methods))
