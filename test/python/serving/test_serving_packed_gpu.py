# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""On a GPU: tokens that are quantized into an engine's pages, also in a graph, and attention over them, as on the host device."""

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

from attn.serving import Layer, Plans, Tokens  # noqa: E402
from attn.serving.formats import PACKED  # noqa: E402

PAGES, PAGE, TOKENS = 40, 16, 300


@pytest.mark.parametrize("layout", ["heads first", "tokens first"])
@pytest.mark.parametrize("format", PACKED)
def test_bytes_and_attention_are_those_of_the_host_device(format, layout):
    torch.manual_seed(0)
    layer = Layer(q_heads=8, kv_heads=2, head_dim=128, dtype="float16", page_size=PAGE, format=format)
    sizes = (PAGES, 2, PAGE) if layout == "heads first" else (PAGES, PAGE, 2)
    k, v = torch.randn(2, TOKENS, 2, 128, dtype=torch.float16)
    q = torch.randn(40, 8, 128, dtype=torch.float16)
    table = torch.randperm(PAGES)[:20].view(1, 20)
    slots = table[0, torch.arange(TOKENS) // PAGE] * PAGE + torch.arange(TOKENS) % PAGE
    slots[7] = -1
    found = {}
    for device in ("cpu", "cuda"):
        memory = torch.zeros(*sizes, layer.token_bytes, dtype=torch.uint8, device=device)
        pages = layer.pages(memory if layout == "heads first" else memory.transpose(1, 2))
        given, at = [each.to(device) for each in (k, v)], slots.to(device)
        pages.write(*given, at)
        if device == "cuda":
            made = Tokens(at)
            pages.write(*given, made)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                pages.write(*given, made)
            first = memory.clone()
            memory.zero_()
            graph.replay()
            assert torch.equal(memory, first)
        step = Plans().step([0, 39, 40], [TOKENS, 100], table.expand(2, -1))
        out = step.run(layer.compile(device), q.to(device), pages)
        found[device] = memory.cpu(), out.float().cpu()
    assert torch.equal(found["cpu"][0], found["cuda"][0])
    torch.testing.assert_close(found["cpu"][1], found["cuda"][1], atol=4e-3, rtol=4e-3)
