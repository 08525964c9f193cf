# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""On a GPU: pages that the device manages, against plain lists, eager and in captured steps."""

import attn
import numpy
import page_model
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("PyTorch finds no GPU", allow_module_level=True)

from test_page_pool import LARGE, SMALL, step_of  # noqa: E402


class OnHost:
    """The members that page_model compares, copied from the GPU."""

    def __init__(self, pool):
        self.pages, self.columns = pool.pages, pool.columns
        self.table, self.counts = pool.table.cpu(), pool.counts.cpu()
        self._tensors = {name: pool._tensors[name].cpu() for name in ("free", "span")}


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("shape", [SMALL, LARGE])
def test_random_steps(shape, captured):
    requests, lists, columns, pages, page_tokens = shape
    sizes = dict(requests=requests, lists=lists, columns=columns, pages=pages, page_tokens=page_tokens)
    pool, draw = attn.PagePool(**sizes, device="cuda"), numpy.random.default_rng(0)
    model = page_model.PageModel(pages, requests * lists, columns, page_tokens)
    step = pool.manage
    if captured:
        graph = torch.cuda.CUDAGraph()
        pool.manage()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            pool.manage()
        step = graph.replay
    tokens, done, vain = numpy.zeros((requests, lists, 2), numpy.int32), 0, 0
    for _ in range(300):
        after = step_of(draw, tokens, columns, page_tokens)
        pool.tokens.copy_(torch.from_numpy(after))
        step()
        expected, _ = model.manage(after.reshape(-1, 2))
        status = pool.status()
        assert (status.done, status.asked, status.there, status.unfit) == expected
        tokens = after if status.done else tokens
        done, vain = done + status.done, vain + (not status.done)
        page_model.compare(OnHost(pool), model)
    assert done > 100 and vain > 0


def test_compaction_is_the_host_devices():
    sizes = dict(requests=3, lists=7, columns=30, pages=500, page_tokens=(4, 8))
    pools = [attn.PagePool(**sizes, device=device) for device in ("cuda", "host")]
    draw = numpy.random.default_rng(0)
    for _ in range(5):
        tokens = draw.integers(0, 60, (3, 7, 2), dtype=numpy.int32)
        keep = torch.from_numpy(draw.random((3, 7, 80)) < 0.7)
        found = []
        for pool in pools:
            numpy_or_torch = torch.as_tensor(pool.tokens)
            numpy_or_torch.copy_(torch.from_numpy(tokens))
            pool.manage()
            pool.require_done()
            moved = pool.compact(keep.to(numpy_or_torch.device), end="left", moves=40)
            pool.manage()
            now = (moved.source, moved.target, pool.tokens, pool.table, pool.counts)
            found.append([torch.as_tensor(x).cpu() for x in now] + [moved.skipped()])
        for one, other in zip(*(each[:-1] for each in found), strict=True):
            assert torch.equal(one, other)
        assert found[0][-1] == found[1][-1]
