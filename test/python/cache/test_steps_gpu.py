# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps as a CUDA graph: ten thousand of them against eager runs, with no wait for the GPU and no allocation on it."""

import gc

import attn
import numpy
import pytest
import step_script
from step_script import DRAFTS, ROWS, SEQUENCES, TOKENS

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("PyTorch finds no GPU", allow_module_level=True)

LAYERS, Q_HEADS, KV_HEADS, DIM, STEPS = 2, 8, 2, 128, 10_000


def described(*stores):
    return attn.Spec(
        q_heads=Q_HEADS,
        kv_heads=KV_HEADS,
        head_dim=DIM,
        dtype="bfloat16",
        kv=list(stores),
        see=attn.causal(),
        device_plan=True,
        numerics="row",
    )


def make():
    return attn.PagedCache(
        layers=LAYERS, pages=256, kv_heads=KV_HEADS, head_dim=DIM, draft_page=1, device="cuda"
    )


def run_eagerly(kernel, cache, groups, q):
    """Return outputs [layers, rows, …] in the order of the groups."""
    out, first, begins = torch.zeros_like(q), 0, {}
    counts = {n: rows + (cache.draft_tokens(n) if draft else 0) for n, rows, draft in groups}
    for node, count in counts.items():
        begins[node] = first
        first += count
    for batch in step_script.alone(cache, groups):
        rows = [begins[node] + i for node, _, _ in batch for i in range(counts[node])]
        rows = torch.tensor(rows, device="cuda")
        plan = kernel.plan(cache.batch(batch))
        for layer in range(LAYERS):
            out[layer, rows] = kernel.run(q[layer, rows].contiguous(), cache.layer(layer), plan)
    return out


def test_replays_are_eager_runs_to_the_bit():
    spec = described(attn.Paged(name="kv"), attn.Paged(name="draft", page_size=1))
    kernel = attn.compile(spec, device="cuda")
    cache, eager = make(), make()
    steps = cache.steps(kernel, sequences=SEQUENCES, rows=ROWS, tokens=TOKENS, drafts=DRAFTS)
    like = dict(device="cuda", dtype=torch.bfloat16)
    q, out = (torch.zeros(LAYERS, ROWS, Q_HEADS, DIM, **like) for _ in range(2))
    k, v = (torch.zeros(LAYERS, ROWS, KV_HEADS, DIM, **like) for _ in range(2))

    def launches():
        plan = steps.plan()
        for layer in range(LAYERS):
            steps.write(layer, k[layer], v[layer])
            kernel.run(q[layer], cache.layer(layer), plan, out=out[layer])

    captured = steps.capture(launches)
    torch.manual_seed(0)
    nodes, eager_nodes = {}, {}
    for step in step_script.script(1, STEPS):
        step_script.change(cache, nodes, step)
        step_script.change(eager, eager_nodes, step)
        for buffer in (q, k, v):
            buffer.normal_()
        out.fill_(7)
        torch.cuda.synchronize()
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        torch.cuda.set_sync_debug_mode("error")
        try:
            new = step_script.tell(steps, nodes, step)
            captured.replay()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert torch.cuda.memory_stats()["allocation.all.allocated"] == before
        step_script.write(eager, eager_nodes, step, k, v, torch.Tensor.contiguous)
        groups = step_script.requests(eager_nodes, step)
        expected = run_eagerly(kernel, eager, groups, q[:, :new])
        assert torch.equal(expected.view(torch.int16), out[:, :new].view(torch.int16))
        assert bool((out[:, new:] == 7).all())
    assert steps.fault == ""


def test_an_update_does_not_wait_for_the_gpu():
    """An update returns while earlier work of the stream still runs, and later work of the stream sees it."""
    spec = described(attn.Paged())
    cache = make()
    steps = cache.steps(attn.compile(spec, device="cuda"), sequences=4, rows=8, tokens=64)
    node = cache.add()
    steps.append(node, 5)
    steps.update([(node, 5)])  # the first update makes all buffers
    steps.ran()
    torch.cuda.synchronize()
    torch.cuda._sleep(2_000_000_000)
    done = torch.cuda.Event()
    done.record()
    steps.append(node, 3)
    steps.update([(node, 3)])
    assert not done.query()
    starts = torch.as_tensor(steps.tables["q_start"]).cpu()
    assert numpy.array_equal(starts, [0, 3, 3, 3, 3])


def test_a_capture_outlives_graphs_that_are_garbage():
    """The collector may not destroy an older graph in a cycle during a capture, which would end the capture."""
    spec = described(attn.Paged(page_size=16))
    kernel, cache = attn.compile(spec, device="cuda"), make()
    node = cache.add()
    cache.append(node, 40).skip()
    steps = cache.steps(kernel, sequences=1, rows=1, tokens=64)
    q = torch.randn(1, Q_HEADS, DIM, dtype=torch.bfloat16, device="cuda")

    class Owner:
        def launches(self):
            if torch.cuda.is_current_stream_capturing() and gc.isenabled():
                gc.collect()  # as Python may at any moment
            return kernel.run(q, cache.layer(0), steps.plan())

    results = []
    for _ in range(3):
        owner = Owner()
        owner.captured = steps.capture(
            owner.launches
        )  # a cycle: the capture keeps the function, whose owner keeps the capture
        steps.update([node])
        results.append(owner.captured.replay().clone())
        del owner
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])
