# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""On a GPU: steps of a cache in two precisions, captured once and replayed, against those of the host device."""

import attn  # noqa: F401
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("PyTorch finds no GPU", allow_module_level=True)

from attn.cache.capture import record_graph, run_aside  # noqa: E402
from mixed_model import Watched, levels_of  # noqa: E402
from test_mixed import cache_of, check_steps, error, policy_of  # noqa: E402


@pytest.mark.parametrize("like", ["paper", "release"])
def test_steps(like):
    cache = cache_of(policy_of(like), device="cuda")
    watched = Watched(cache, (64, 64))
    watched.prompts(50)
    check_steps(watched, 30)


@pytest.mark.parametrize("like", ["paper", "release"])
def test_replayed_steps(like):
    """Both devices decide alike as long as no significance is near a threshold."""
    caches = [cache_of(policy_of(like), device=device) for device in ("host", "cuda")]
    random = torch.Generator().manual_seed(5)
    q, k, v = (torch.zeros(2, heads, 64, dtype=torch.bfloat16, device="cuda") for heads in (4, 2, 2))
    outs = {}

    def launches():
        caches[1].begin()
        for layer in range(2):
            outs[layer] = caches[1].attend(layer, q, k, v)
        caches[1].end()

    run_aside(torch, launches)  # no request is active
    graph, _ = record_graph(torch, launches)
    for cache in caches:
        cache.active.fill_(1)
    differing = 0
    for step in range(40):
        drawn = [torch.randn(each.shape, generator=random).to(torch.bfloat16) for each in (q, k, v)]
        for tensor, numbers in zip((q, k, v), drawn, strict=True):
            tensor.copy_(numbers)
        graph.replay()
        caches[0].begin()
        for layer in range(2):
            out = caches[0].attend(layer, *drawn)
            if not differing:
                assert error(outs[layer].cpu(), out.float()) <= 2e-2
        caches[0].end()
        levels = [torch.cat([levels_of(cache, layer, step + 1) for layer in range(2)]) for cache in caches]
        differing += int((levels[0] != levels[1]).sum())
    assert int(caches[1].missed) == 0 and differing <= 2
