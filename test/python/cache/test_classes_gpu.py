# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""On a GPU: tokens of head classes with separate stores are written and read without a wait for the GPU."""

import attn
import oracle
import pytest
from attn.cache.state import CacheClass

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("PyTorch finds no GPU", allow_module_level=True)

SINK, RECENT, DIM, CLASSES = 20, 140, 64, [1, 0, 0, 1]


def test_steps_do_not_wait():
    spec = attn.Spec(
        q_heads=8,
        kv_heads=4,
        head_dim=DIM,
        dtype="float16",
        see=attn.causal(),
        heads=attn.heads(retrieval=attn.all_tokens(), streaming=attn.sink(SINK) | attn.recent(RECENT)),
        kv=[attn.Paged(name="all", head_class="retrieval"), attn.Paged(name="few", head_class="streaming")],
    )
    kernel = attn.compile(spec, device="cuda")
    kept = [
        CacheClass(name="retrieval", pages=40, heads=2),
        CacheClass(name="streaming", pages=40, heads=2, recent=RECENT, sink=SINK),
    ]
    cache = attn.PagedCache(layers=2, kv_heads=4, head_dim=DIM, dtype="float16", device="cuda", classes=kept)
    node, counts = cache.add(), [300, 1, 1, 1]
    q, k, v = (
        torch.randn(2, sum(counts), heads, DIM, device="cuda", dtype=torch.float16) for heads in (8, 4, 4)
    )
    at, outs = 0, []
    for number, count in enumerate(counts):
        change, rows = cache.append([node], [count]), slice(at, at + count)
        plan = kernel.plan(cache.batch([(node, count)], classes=CLASSES))
        if number > 1:  # the first step has made all buffers
            torch.cuda.set_sync_debug_mode("error")
        try:
            for layer in range(2):
                change.write(layer, k[layer, rows], v[layer, rows], classes=CLASSES)
                outs.append(kernel.run(q[layer, rows], cache.layer(layer), plan))
        finally:
            torch.cuda.set_sync_debug_mode("default")
        at += count
    row = at - 1
    for layer, out in enumerate(outs[-2:]):
        for head, streams in enumerate(CLASSES):
            near = [t for t in range(at) if not streams or t < SINK or t > row - RECENT]
            mine = slice(2 * head, 2 * head + 2)
            parts = (q[layer, row, mine], k[layer, near, head : head + 1], v[layer, near, head : head + 1])
            wanted, _ = oracle.attend(*(part.cpu().numpy() for part in parts))
            assert oracle.error(out[0, mine].cpu().numpy(), wanted) < 2e-3
