# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""flash-attn's functions over attn's kernels: microseconds of the host from one call to the next, and of calls back to back.

  calls    1 x 16 rows of 12/12 heads of 64, causal: attn.attend, flash_attn_func, a window with a cap, ALiBi, the LSE, SDPA
  recorded the same where autograd records: attn.attend, flash_attn_func
  caches   one row for each sequence, 32/8 heads of 128, a new token appended: flash_attn_with_kvcache over a cache of
           sequences and over pages of 256, with tables on the CPU and on the GPU

On the CPU, the host device, calls have no rows, so that the numbers are Python's alone, and there are no caches."""

import argparse
from pathlib import Path

from measuring.report import header, import_attn, save

attn = import_attn()

import torch  # noqa: E402
from attn.flash_attn import flash_attn_func, flash_attn_with_kvcache  # noqa: E402
from parts.eager import WARM, back_to_back_us, host_us  # noqa: E402

HEADS, KV_HEADS, DIM, PAGE = 32, 8, 128, 256


def calls(place):
    """Yield the sides of calls, by name."""
    rows = 16 if place == "cuda" else 0
    q, k, v = (torch.randn(1, rows, 12, 64, device=place, dtype=torch.bfloat16) for _ in range(3))
    slopes = torch.rand(12, device=place)
    yield "calls, attend", lambda: attn.attend(q, k, v, causal=True)
    yield "calls, flash_attn_func", lambda: flash_attn_func(q, k, v, causal=True)
    yield (
        "calls, window and cap",
        lambda: flash_attn_func(q, k, v, causal=True, window_size=(8, 0), softcap=30.0),
    )
    yield "calls, ALiBi", lambda: flash_attn_func(q, k, v, causal=True, alibi_slopes=slopes)
    yield "calls, LSE", lambda: flash_attn_func(q, k, v, causal=True, return_attn_probs=True)
    swapped = [each.transpose(1, 2) for each in (q, k, v)]
    sdpa = torch.nn.functional.scaled_dot_product_attention
    yield "calls, SDPA", lambda: sdpa(*swapped, is_causal=True)
    leaves = [each.detach().requires_grad_() for each in (q, k, v)]
    yield "recorded, attend", lambda: attn.attend(*leaves, causal=True)
    yield "recorded, flash_attn_func", lambda: flash_attn_func(*leaves, causal=True)


def caches(place):
    """Yield the sides of caches, by name."""
    for batch, tokens in ((64, 4000), (8, 16000), (256, 1000)) if place == "cuda" else ():
        room = -(-(tokens + 1) // PAGE) * PAGE
        q = torch.randn(batch, 1, HEADS, DIM, device=place, dtype=torch.bfloat16)
        new = torch.randn(2, batch, 1, KV_HEADS, DIM, device=place, dtype=torch.bfloat16)
        cache = torch.randn(2, batch, room, KV_HEADS, DIM, device=place, dtype=torch.bfloat16)
        pages = cache.view(2, -1, PAGE, KV_HEADS, DIM)
        table = torch.arange(pages.shape[1], dtype=torch.int32).view(batch, -1)
        lengths = torch.full((batch,), tokens, dtype=torch.int32)
        for where in ("cpu", "cuda"):
            told = lengths.to(where)
            named = {"cache_seqlens": told, "causal": True}
            paged = named | {"block_table": table.to(where)}
            name = f"{batch} x {tokens}, tables on the {'GPU' if where == 'cuda' else 'CPU'}"
            yield (
                f"caches, sequences, {name}",
                lambda q=q, c=cache, n=new, o=named: flash_attn_with_kvcache(q, *c, *n, **o),
            )
            yield (
                f"caches, pages, {name}",
                lambda q=q, c=pages, n=new, o=paged: flash_attn_with_kvcache(q, *c, *n, **o),
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    args = parser.parse_args()
    place = "cuda" if torch.cuda.is_available() else "cpu"
    synchronize = torch.cuda.synchronize if place == "cuda" else lambda: None
    rows = []
    print(f"{'side':<58}{'host us':>10}{'a call us':>12}")
    for name, call in (*calls(place), *caches(place)):
        with torch.set_grad_enabled(name.startswith("recorded")):
            for _ in range(WARM):
                call()
            row = {
                "side": name,
                "host_us": host_us(call, synchronize),
                "call_us": back_to_back_us(call, synchronize),
            }
        rows.append(row)
        print(f"{name:<58}{row['host_us']:>10.1f}{row['call_us']:>12.1f}", flush=True)
    if args.json:
        device = torch.cuda.get_device_name() if place == "cuda" else None
        save(args.json, {**header("flash", device), "rows": rows})
        print(f"numbers: {args.json}")


if __name__ == "__main__":
    main()
