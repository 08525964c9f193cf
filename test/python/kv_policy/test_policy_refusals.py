# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Refusals of policies, and the nearest legal values that they name."""

import attn
import pytest
from attn.kv_policy import DiffKV, SnapKV, Streaming

SPECS = {
    "order": (
        lambda: DiffKV(1.0, 2.0),
        "alpha_low.: expected at most alpha_high, 1.0.* got 2.0; nearest legal: 1.0",
    ),
    "negative": (
        lambda: DiffKV(1.0, -0.5),
        "alpha_low.: expected a number from 0 on, got -0.5; nearest legal: 0.0",
    ),
    "nan": (lambda: DiffKV(float("nan"), 0.0), "alpha_high.: expected a number from 0 on, got nan"),
    "text": (lambda: DiffKV("1", 0.0), "alpha_high.: expected a number from 0 on, got '1'"),
    "window": (
        lambda: DiffKV(1, 0, window=0),
        "window.: expected a number of tokens from 1 .* nearest legal: 1",
    ),
    "norm": (
        lambda: DiffKV(1, 0, norm="length"),
        "norm.: expected one of .* nearest legal: 'inverse_length'",
    ),
    "like": (
        lambda: DiffKV(1, 0, like="papers"),
        "like.: expected one of paper, release, .* nearest legal: 'paper'",
    ),
    "group": (lambda: DiffKV(1, 0, group="min"), "group.: expected one of max, mean, sum, got 'min'"),
    "head": (
        lambda: DiffKV(1, 0, overrides={3: (1, 0)}),
        r"overrides.: expected keys \(layer, head\).* got 3",
    ),
    "pair": (
        lambda: DiffKV(1, 0, overrides={(0, 3): 1}),
        r"overrides\[\(0, 3\)\].: expected \(alpha_high, alpha_low",
    ),
    "own order": (
        lambda: DiffKV(1, 0, overrides={(0, 3): (1, 4)}),
        r"overrides\[\(0, 3\)\]: alpha_low.: expected at most alpha_high, 1.* got 4; nearest legal: 1",
    ),
    "streaming policy": (
        lambda: Streaming("diffkv", []),
        r"Streaming\(policy\): expected another policy, .* 'diffkv'",
    ),
    "recent": (
        lambda: Streaming(DiffKV(1, 0), [], 4, 0),
        "recent.: expected a number of tokens from 1 on, got 0; nearest",
    ),
    "streaming heads": (
        lambda: Streaming(DiffKV(1, 0), [3]),
        r"heads.: expected pairs \(layer, head\), got list",
    ),
    "head below 0": (
        lambda: Streaming(DiffKV(1, 0), [(0, -1)]),
        r"heads.: expected \(layer, head\) from 0 on, got",
    ),
    "target": (lambda: DiffKV.calibrate(None, [], -1.0), r"calibrate\(target\): expected nats from 0 on"),
    "most": (lambda: DiffKV.calibrate(None, [], 1.0, most=-1), "most: alpha_high.: .* got -1; nearest"),
    "steps": (lambda: DiffKV.calibrate(None, [], 1.0, steps=0), "steps.: expected a number from 1 on"),
    "budget": (
        lambda: SnapKV(8, 32),
        "budget.: expected at least the window, 32 tokens, got 8; nearest legal: 32",
    ),
    "kernel": (lambda: SnapKV(64, 32, 4), "kernel.: expected an odd number, got 4; nearest legal: 3 or 5"),
    "snap group": (
        lambda: SnapKV(64, group="average"),
        "group.: expected one of max, mean, sum, got 'average'",
    ),
    "snap window": (lambda: SnapKV(64, 0), "window.: expected a number from 1 on, got 0; nearest legal: 1"),
}


@pytest.mark.parametrize("case", SPECS)
def test_descriptions(case):
    make, message = SPECS[case]
    with pytest.raises(attn.SpecError, match=message):
        make()


def test_tensors():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    policy = DiffKV(1, 0, window=2)
    kept = policy.prompt(torch.zeros(3, 5))
    before = kept.score.clone()
    cases = {
        "expected a tensor of floats": lambda: policy.prompt([[1.0]]),
        "expected .lists, tokens., got .*3, 5, 1": lambda: policy.prompt(torch.zeros(3, 5, 1)),
        "a number for each of 3 lists": lambda: policy.prompt(torch.zeros(3, 5), [1, 2]),
        r"lengths.1.: expected from 0 to 5 tokens, got 9; nearest legal: 5": lambda: policy.prompt(
            torch.zeros(3, 5), [1, 9, 2]
        ),
        "heads: expected .layer, head. of each of 3 lists, got 1": lambda: policy.prompt(
            torch.zeros(3, 5), heads=[(0, 0)]
        ),
        "heads: expected .layer, head. of each of 3 lists, got None": lambda: DiffKV(
            1, 0, overrides={(0, 0): (1, 1)}
        ).prompt(torch.zeros(3, 5)),
        "of each of 3 lists, got None": lambda: Streaming(policy, [(0, 0)]).prompt(torch.zeros(3, 5)),
        "at least 6 tokens, .* got 5; nearest legal: 6": lambda: policy.step(kept, torch.zeros(3, 5)),
        "expected 3 lists on cpu, got 2": lambda: policy.step(kept, torch.zeros(2, 6)),
        "finite numbers from 0 on": lambda: policy.step(kept, torch.full((3, 6), float("nan"))),
    }
    for message, call in cases.items():
        with pytest.raises(attn.TensorError, match=message):
            call()
    assert torch.equal(kept.score, before) and kept.lengths.tolist() == [5] * 3
