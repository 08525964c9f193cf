# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cost of quantization: a model trained here, and the outputs of random tensors.

CI trains one model, --full five.
"""

import os
import statistics

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from attnlab import BUILD  # noqa: E402

if not (BUILD / "python" / "attn" / "libattn_compiler.so.0").exists():
    pytest.skip("no package is built", allow_module_level=True)

import recall  # noqa: E402
import recall_policy  # noqa: E402
import torch  # noqa: E402
from recall import measure, output_errors  # noqa: E402

SEEDS = range(5 if os.environ.get("ATTN_FULL") else 1)


def test_recall():
    """Keys need their bits: K8V4 costs nothing, and of six bits the keys need four."""
    found = [measure(seed) for seed in SEEDS]
    median = {name: statistics.median(each[name] for each in found) for name in found[0]}
    assert median["K16V16"] >= 0.95, "the model has learned its task"
    assert median["K16V16"] - median["K8V4"] <= 0.005
    assert median["K4V2"] - median["K2V4"] >= 0.05


def test_outlier_channels():
    """With a few larger channels keys need more bits than values, and without them fewer."""
    plain, outliers = output_errors(0), output_errors(4)
    assert plain["K4V8"] < plain["K8V4"]
    assert outliers["K8V4"] < outliers["K4V8"]
    assert outliers["K4V2"] < outliers["K2V4"]


def test_steps_are_the_model():
    """Steps of one token over a cache of 16 bits give the result of the whole text."""
    random = torch.Generator().manual_seed(0)
    chain = recall.markov_chain(random)
    text, _ = recall.passkeys(8, chain, random)
    torch.manual_seed(0)
    model = recall.Model()
    with torch.no_grad():
        said = model(text[:, :-1]).argmax(-1)
        as_said = torch.cat([text[:, :1], said], 1)
        everywhere = torch.ones_like(text, dtype=torch.bool)
        found, _ = recall_policy.measure(
            model, text, everywhere, recall_policy.Fixed(recall_policy.HIGH), plain=True, wanted_text=as_said
        )
    assert found == 1


@pytest.mark.skipif(not os.environ.get("ATTN_FULL"), reason="trains five models: it runs with --full")
def test_recall_under_a_policy():
    """The policy keeps recall at a third of the bytes of 16 bits."""
    found = [recall_policy.of_seed(seed) for seed in SEEDS]
    for like in ("paper", "release"):
        lost = [each["K16V16"] - each[like] for each in found]
        assert statistics.median(lost) <= 0.01
        assert statistics.median(each[f"{like} compression"] for each in found) >= 2.98
