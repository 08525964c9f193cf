"""Decode and prefill on a GPU against what PyTorch offers, in one run on one machine.

Peers are every backend of scaled_dot_product_attention that takes the shape, and FlexAttention. Times are the
median over repeats with the L2 cache flushed between them (attn-run repeats without a flush, so decode shapes
are at least ten times the L2). What is printed are ratios, and shares of what this GPU was measured to do:
copying for decode, multiplying matrices for prefill. Data sheets are not consulted.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from report import Problem, attn_run, write_report

DECODE = [(8, 16384), (32, 8192), (64, 8192), (128, 4096)]  # batch, tokens
PREFILL = [(8, 2048), (2, 8192), (1, 16384)]  # batch, tokens
HEADS, KV_HEADS, DIM = 32, 8, 128


def refuse(reason, hint):
    print(f"bench gpu: error: {reason}\n  {hint}", file=sys.stderr)
    sys.exit(2)


def torch_with_gpu():
    try:
        import torch
    except ImportError:
        refuse(
            "this Python has no PyTorch", "run benchmarks/gpu.py with a Python that has; nothing was measured"
        )
    if not torch.cuda.is_available():
        refuse(
            "PyTorch finds no CUDA GPU on this machine; nothing was measured",
            "./dev bench host counts what the same kernels move, on any machine",
        )
    return torch


class Timer:
    """Times a function on the GPU: the median of repeats, each after a flush of the L2 cache."""

    def __init__(self, torch, repeats):
        self.torch, self.repeats = torch, repeats
        l2 = torch.cuda.get_device_properties(0).L2_cache_size
        self.flush = torch.empty(4 * l2, dtype=torch.uint8, device="cuda")

    def __call__(self, function):
        cuda = self.torch.cuda
        for _ in range(3):
            function()
        times = []
        for _ in range(self.repeats):
            self.flush.zero_()
            start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            start.record()
            function()
            end.record()
            cuda.synchronize()
            times.append(start.elapsed_time(end))
        return sorted(times)[len(times) // 2]


def measured_peaks(torch, timer):
    """Copy bandwidth in bytes per second (read and written) and bf16 matrix rate in FLOP/s."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    bandwidth = 2 * source.numel() / timer(lambda: target.copy_(source)) * 1e3
    a = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda")
    b = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda")
    return bandwidth, 2 * 8192**3 / timer(lambda: a @ b) * 1e3


def peers(torch, timer, batch, rows, tokens):
    """Milliseconds of every peer that takes the shape, by name."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    def random(heads, length):
        return torch.randn(batch, heads, length, DIM, dtype=torch.bfloat16, device="cuda")

    q, k, v = random(HEADS, rows), random(KV_HEADS, tokens), random(KV_HEADS, tokens)
    causal = rows > 1  # the one row of a decoding step sees everything
    times = {}
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
        name = f"sdpa {backend.name.removesuffix('_ATTENTION').lower()}"
        try:
            with sdpa_kernel(backend):
                times[name] = timer(lambda: sdpa(q, k, v, is_causal=causal, enable_gqa=True))
        except RuntimeError as error:
            print(f"    {name}: declined ({str(error).splitlines()[0][:80]})")
    try:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        mask = None
        if causal:
            mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, rows, tokens, device="cuda")
        compiled = torch.compile(flex_attention)
        times["flex"] = timer(lambda: compiled(q, k, v, block_mask=mask, enable_gqa=True))
    except Exception as error:  # FlexAttention needs Triton and a C compiler; its errors are of many types
        print(f"    flex: declined ({str(error).splitlines()[0][:80]})")
    return times


def measure(torch, timer, kind, batch, tokens, repeats, peak, folder):
    rows = 1 if kind == "decode" else tokens
    problem = Problem(HEADS, KV_HEADS, DIM, DIM, "bf16", "paged<16>")
    file = folder / "problem.mlir"
    file.write_text(problem.text())
    dims = [f"--dim=batch={batch}", f"--dim=q_len={rows}", f"--dim=kv_len={tokens}"]
    ours = {}
    # Decode has one schedule; for prefill Hopper has two, and measuring both is how `auto` will learn to choose.
    hopper = torch.cuda.get_device_capability(0) == (9, 0)
    for schedule in ["mma"] if kind == "decode" or not hopper else ["mma", "wgmma"]:
        status, report, errors = attn_run(
            file, "--device=cuda", f"--repeat={repeats}", f"--schedule={schedule}", *dims
        )
        if status != 0:
            raise SystemExit(errors)
        ours[schedule] = report["run_ms"]
    if kind == "decode":
        work = 2 * 2 * batch * tokens * KV_HEADS * DIM  # bytes of keys and values
    else:
        work = 4 * batch * HEADS * DIM * (tokens * (tokens + 1) // 2)  # operations below the diagonal
    times = peers(torch, timer, batch, rows, tokens)
    print(f"  {kind} batch {batch:>3} tokens {tokens:>6}")
    for schedule, milliseconds in ours.items():
        share = work / milliseconds * 1e3 / peak
        print(f"    attn {schedule:<11}{milliseconds:8.3f} ms   {share:5.1%} of the measured peak")
    best = min(ours.values())
    for name, milliseconds in sorted(times.items(), key=lambda item: item[1]):
        print(f"    {name:<16}{milliseconds:8.3f} ms   attn is {milliseconds / best:5.2f} times as fast")
    return {
        "kind": kind,
        "batch": batch,
        "tokens": tokens,
        "attn_ms": ours,
        "share_of_peak": work / best * 1e3 / peak,
        "peers_ms": times,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=20, help="timed runs of each kernel (20)")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    args = parser.parse_args()
    torch = torch_with_gpu()
    timer = Timer(torch, args.repeat)
    bandwidth, matrix = measured_peaks(torch, timer)
    device = torch.cuda.get_device_name(0)
    print(f"{device}: copies {bandwidth / 1e12:.2f} TB/s, multiplies bf16 at {matrix / 1e12:.0f} TFLOP/s")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, shapes, peak in (("decode", DECODE, bandwidth), ("prefill", PREFILL, matrix)):
            for batch, tokens in shapes:
                rows.append(measure(torch, timer, kind, batch, tokens, args.repeat, peak, Path(folder)))
    write_report(args.json, "gpu", rows, device)
    return 0


if __name__ == "__main__":
    sys.exit(main())
