# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""On a GPU: tokens that are prepared and written into an engine's pages, also in a graph, with the bits of the host
device."""

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

import attn  # noqa: E402
from attn.serving import Layer, Tokens, write_tokens  # noqa: E402
from attn.serving.formats import PACKED  # noqa: E402
from prepared_rows import angles  # noqa: E402

PAGES, PAGE, TOKENS, HEADS, Q_HEADS, DIM = 40, 16, 300, 3, 12, 128
FORMATS = (None, "fp8_e4m3", *PACKED)


def write(format, device, dtype, interleaved, graph):
    """Return pages and prepared queries, written once, or again by a replay."""
    generator = torch.Generator().manual_seed(3)
    fused = torch.randn(TOKENS, Q_HEADS + 2 * HEADS, DIM, generator=generator).to(dtype).to(device)
    q, k, v = fused.split((Q_HEADS, HEADS, HEADS), 1)
    slots = torch.randperm(PAGES * PAGE, generator=generator)[:TOKENS]
    slots[5] = -1
    tables = (torch.tensor(x, dtype=torch.float32, device=device) for x in angles(4096, 64))
    rope = attn.Rope(*tables, interleaved=interleaved)
    weights = (1 + 0.1 * torch.randn(2, DIM, generator=generator)).to(device)
    norm = attn.Norm(k=weights[0], q=weights[1])
    positions = torch.randint(4096, (TOKENS,), generator=generator)
    tokens = Tokens(slots.to(device), positions.to(device))
    out = torch.zeros(TOKENS, Q_HEADS, DIM, dtype=dtype, device=device)
    if format in PACKED:
        layer = Layer(
            q_heads=Q_HEADS, kv_heads=HEADS, head_dim=DIM, dtype=dtype, page_size=PAGE, format=format
        )
        memory = torch.zeros(PAGES, HEADS, PAGE, layer.token_bytes, dtype=torch.uint8, device=device)
        pages = layer.pages(memory)

        def run():
            pages.write(k, v, tokens, q=q, out=out, rope=rope, norm=norm)
    else:
        kind = torch.float8_e4m3fn if format else dtype
        memory = torch.zeros(2, PAGES, PAGE, HEADS, DIM, dtype=kind, device=device)
        scale = dict.fromkeys(("k_scale", "v_scale"), torch.ones(1, device=device)) if format else {}

        def run():
            write_tokens(*memory, k, v, tokens, q=q, out=out, rope=rope, norm=norm, **scale)

    run()
    if graph:
        torch.cuda.synchronize()
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            run()
        memory.view(torch.uint8).zero_()
        out.zero_()
        captured.replay()
    return memory.view(torch.uint8).cpu(), out.cpu()


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("format", FORMATS)
def test_bits_are_those_of_the_host_device(format, dtype, interleaved):
    pages, out = write(format, "cpu", dtype, interleaved, graph=False)
    for graph in (False, True):
        found, prepared = write(format, "cuda", dtype, interleaved, graph)
        assert torch.equal(prepared, out)
        assert torch.equal(found, pages)
