# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""On a GPU: a cache of two precisions under a model, against the same on the CPU."""

import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="Transformers is not installed")
if not torch.cuda.is_available():
    pytest.skip("PyTorch finds no GPU", allow_module_level=True)

from attn import kv_policy  # noqa: E402
from test_transformers_diffkv import PROMPT, build, cache_of, policy, prompt  # noqa: E402

POLICIES = {
    "paper": policy(like="paper"),
    "release": policy(),
    "streaming": kv_policy.Streaming(policy(), [(1, 1)], sink=2, recent=5),
    "snapkv": kv_policy.SnapKV(16, 4),
}


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("model_name,window", [("Llama", None), ("Mistral", 20)])
def test_a_model_on_either_device(name, model_name, window):
    """Both devices keep the same tokens, except near a threshold, and rows can be taken back."""
    if name == "streaming" and window:
        pytest.skip("heads stream where layers see everything")
    ids, _ = prompt()
    steps = torch.randint(3, 90, (2, 6), generator=torch.Generator().manual_seed(8))
    found = []
    with torch.no_grad():
        for device in ("cpu", "cuda"):
            model = build(model_name, sliding_window=window).to(device)
            cache = cache_of(model, POLICIES[name])
            model(ids.to(device), past_key_values=cache)
            model(steps[:, :2].to(device), past_key_values=cache)
            model(steps.flip(0).to(device), past_key_values=cache)
            cache.crop(PROMPT + 2)
            out = model(steps[:, 2:].to(device), past_key_values=cache).logits
            found.append((out.float().cpu(), cache.levels(0), cache.levels(1), cache.stats()["high"].sum()))
    (ours, *levels, high), (wanted, *others, as_many) = found
    differing = sum((one != other).sum() for one, other in zip(levels, others, strict=True))
    assert differing <= 0.02 * levels[0].size and abs(int(high) - int(as_many)) <= differing
    assert (ours - wanted).norm() <= 5e-2 * wanted.norm()
