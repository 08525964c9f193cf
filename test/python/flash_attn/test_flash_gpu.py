# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.flash_attn on a GPU, beside float64: outputs, gradients, caches whose tables are there, no waits, CUDA graphs."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("PyTorch finds no GPU", allow_module_level=True)

from attn.flash_attn import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache  # noqa: E402
from flash_oracle import attention, batched, close, rotated, tensor  # noqa: E402

SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.0])
CASES = {
    "causal": {"causal": True},
    "window": {"window_size": (33, 20)},
    "cap": {"causal": True, "softcap": 3.0},
    "alibi": {"causal": True, "alibi_slopes": SLOPES},
}


def told(options):
    names = {"window_size": "window", "alibi_slopes": "slopes"}
    return {names.get(name, name): value for name, value in options.items()}


def on_gpu(options):
    return {name: each.cuda() if isinstance(each, torch.Tensor) else each for name, each in options.items()}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_outputs_and_gradients(name, dtype):
    given = [tensor(2, 150, heads, 64, dtype=dtype, seed=heads).cuda() for heads in (4, 2, 2)]
    given = [each.requires_grad_() for each in given]
    out, lse, _ = flash_attn_func(*given, **on_gpu(CASES[name]), return_attn_probs=True)
    exact = [each.detach().cpu().double().requires_grad_() for each in given]
    wanted = batched(*exact, **told(CASES[name]))
    close(out.cpu(), wanted[0], dtype)
    close(lse.cpu(), wanted[1], dtype)
    found = torch.autograd.grad(out.float().square().sum(), given)
    wanted = torch.autograd.grad(wanted[0].square().sum(), exact)
    for one, other in zip(found, wanted, strict=True):
        close(one.cpu(), other)


def test_packed_sequences():
    q, k, v = (tensor(200, heads, 64, seed=heads).cuda() for heads in (4, 2, 2))
    starts = torch.tensor([0, 70, 190], dtype=torch.int32, device="cuda")
    out = flash_attn_varlen_func(q, k, v, starts, starts, 120, 120, causal=True)
    for rows in (slice(0, 70), slice(70, 190)):
        close(out[rows].cpu(), attention(*(x[rows].cpu() for x in (q, k, v)), causal=True)[0])
    assert (out[190:] == 0).all()


class Step:
    """A decoding step over a cache of sequences or of pages, with tables on the GPU."""

    def __init__(self, paged, batch=3, room=512):
        self.q = tensor(batch, 1, 4, 64, seed=1).cuda()
        self.new = [tensor(batch, 1, 2, 64, seed=seed).cuda() for seed in (2, 3)]
        shape = (batch, room) if not paged else (batch * room // 64 + 3, 64)
        self.k, self.v = (tensor(*shape, 2, 64, seed=seed).cuda() for seed in (4, 5))
        self.options = {}
        if paged:
            order = torch.randperm(shape[0])[: batch * room // 64]
            self.options["block_table"] = order.view(batch, -1).int().cuda()
        angles = torch.rand(room, 16) * 6
        self.turn = [angles.cos().bfloat16().cuda(), angles.sin().bfloat16().cuda()]
        self.lengths = torch.zeros(batch, dtype=torch.int32, device="cuda")

    def __call__(self):
        return flash_attn_with_kvcache(
            *(self.q, self.k, self.v, *self.new, *self.turn, self.lengths), causal=True, **self.options
        )

    def check(self, out):
        cos, sin = (each.cpu() for each in self.turn)
        for i, length in enumerate(self.lengths.tolist()):
            table = self.options.get("block_table")
            k, v = (x[i] if table is None else x[table[i].long()].flatten(0, 1) for x in (self.k, self.v))
            k, v, at = k[: length + 1].cpu(), v[: length + 1].cpu(), torch.tensor([length])
            close(k[length:].double(), rotated(self.new[0][i].cpu(), cos, sin, at, True))
            assert torch.equal(v[length:], self.new[1][i].cpu())
            close(out[i].cpu(), attention(rotated(self.q[i].cpu(), cos, sin, at, True), k, v, causal=True)[0])


@pytest.mark.parametrize("paged", [False, True])
def test_caches_are_read_without_a_wait(paged):
    step = Step(paged)
    step()
    for lengths in ([3, 400, 77], [511, 0, 64]):
        step.lengths.copy_(torch.tensor(lengths, dtype=torch.int32))
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            out = step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        step.check(out)


@pytest.mark.parametrize("paged", [False, True])
def test_a_captured_step_reads_new_lengths(paged):
    step = Step(paged)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            out = step()
    torch.cuda.synchronize()
    for lengths in ([3, 400, 77], [510, 0, 64]):
        step.lengths.copy_(torch.tensor(lengths, dtype=torch.int32))
        graph.replay()
        torch.cuda.synchronize()
        step.check(out)


def test_tables_on_the_cpu_and_on_the_gpu_agree():
    step = Step(True)
    step.lengths += 300
    found = step()
    on_host = {"cache_seqlens": step.lengths.cpu() + 1, "block_table": step.options["block_table"].cpu()}
    q = step.q.clone()
    turned = [rotated(q[i].cpu(), *(x.cpu() for x in step.turn), torch.tensor([300]), True) for i in range(3)]
    turned = torch.stack(turned).bfloat16().cuda()
    again = flash_attn_with_kvcache(turned, step.k, step.v, **on_host, causal=True)
    close(again.cpu(), found.cpu().double())
