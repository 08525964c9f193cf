# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""On a GPU: layers that an engine captures once answer any step of that many rows, whatever its split, as plans of the host
do."""

import itertools
import random

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

from attn.serving import DevicePlans, Layer, Plans, write_tokens  # noqa: E402

Q, KV, DIM, PAGE, SEQUENCES, PAGES, LAYERS = 8, 2, 64, 16, 6, 40, 3
ROWS = 48


class Layers:
    """Some layers with pools of their own, which an engine's steps fill."""

    def __init__(self, **options):
        described = dict(q_heads=Q, kv_heads=KV, head_dim=DIM, dtype="float16", page_size=PAGE, **options)
        self.kernels = [
            Layer(device_plan=device_plan, **described).compile("cuda") for device_plan in (False, True)
        ]
        like = dict(dtype=torch.float16, device="cuda")
        self.pools = [
            [torch.randn(SEQUENCES * PAGES, PAGE, KV, DIM, **like) for _ in "kv"] for _ in range(LAYERS)
        ]
        self.q = torch.randn(LAYERS, ROWS, Q, DIM, **like)
        self.out = torch.zeros_like(self.q)
        self.table = torch.randperm(SEQUENCES * PAGES, device="cuda").view(SEQUENCES, PAGES)

    def run(self, step, device_plan, out):
        for layer in range(LAYERS):
            step.run(self.kernels[device_plan], self.q[layer], self.pools[layer], out=out[layer])


def splits(count):
    """Yield splits of at most ROWS rows over sequences, and the lengths of these, none longer than before a step."""
    chosen = random.Random(0)
    for _ in range(count):
        rows = [chosen.choice((0, 1, 1, 1, 2, 9)) for _ in range(SEQUENCES - 1)]
        rows.insert(chosen.randrange(SEQUENCES), chosen.randint(1, ROWS - sum(rows)))
        yield rows, [each + chosen.randint(0, PAGES * PAGE - each) for each in rows]


@pytest.mark.parametrize("options", [dict(), dict(window=100), dict(softcap=10.0)], ids=str)
def test_a_graph_answers_any_split_as_plans_of_the_host_do(options):
    torch.manual_seed(0)
    layers = Layers(**options)
    on_device, on_host = DevicePlans(SEQUENCES, PAGES, "cuda", (ROWS,)), Plans()
    like = dict(dtype=torch.int64, device="cuda")
    step = on_device.step(
        torch.tensor([0, ROWS], **like), torch.tensor([ROWS], **like), layers.table[:1], rows=ROWS
    )
    layers.run(step, True, layers.out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        layers.run(step, True, layers.out)
    for rows, lengths in splits(30):
        starts = [0, *itertools.accumulate(rows)]
        used = starts[-1]
        layers.q.normal_()
        layers.out.fill_(7)
        on_device.step(torch.tensor(starts, **like), torch.tensor(lengths, **like), layers.table, rows=used)
        graph.replay()
        wanted = torch.zeros_like(layers.out)
        layers.run(on_host.step(starts, lengths, layers.table), False, wanted)
        torch.testing.assert_close(layers.out[:, :used], wanted[:, :used], atol=2e-3, rtol=2e-3)
        assert (layers.out[:, used:] == 7).all()


def test_steps_wait_for_nothing_and_allocate_nothing():
    layers = Layers()
    plans = DevicePlans(SEQUENCES, PAGES, "cuda", (ROWS,))
    starts = torch.tensor([0, 20, 48], device="cuda", dtype=torch.int32)
    lengths = torch.tensor([20, 60], device="cuda", dtype=torch.int32)

    def run():
        layers.run(plans.step(starts, lengths, layers.table[:2], rows=ROWS), True, layers.out)

    run()
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    torch.cuda.set_sync_debug_mode("error")
    try:
        run()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before


def test_tokens_are_written_in_a_graph():
    layers = Layers()
    k, v = torch.randn(2, ROWS, KV, DIM, dtype=torch.float16, device="cuda")
    slots = torch.full((ROWS,), -1, device="cuda")
    write_tokens(*layers.pools[0], k, v, slots)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        write_tokens(*layers.pools[0], k, v, slots)
    places = torch.randperm(SEQUENCES * PAGES * PAGE, device="cuda")[: ROWS - 8]
    slots[: ROWS - 8] = places
    kept = [pool.clone() for pool in layers.pools[0]]
    graph.replay()
    for pool, before, given in zip(layers.pools[0], kept, (k, v), strict=True):
        before[places // PAGE, places % PAGE] = given[: ROWS - 8]
        assert torch.equal(pool, before)
