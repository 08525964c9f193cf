# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One attention described in Python by one library, in a process of its own: `bench gpu python` starts it.

    first_result.py attn|flex NAME [--tokens N] [--device cuda|cpu] [--save FILE]

prints JSON: seconds from knowing nothing of the library (imports, mask, compilation) to the first result, and the
milliseconds of a run after that, with the L2 cache flushed.
"""

import argparse
import json
import math
import time

import torch
from measuring.timing import Timer
from parts.python import NAMES, TOKENS

HEADS, KV_HEADS, DIM = 32, 8, 128
WINDOW, SINK, CAP = 1024, 64, 30.0


def slopes(device):
    """Return ALiBi's slopes, for a power of two of heads (arXiv 2108.12409)."""
    return torch.tensor([2.0 ** (-8 * (h + 1) / HEADS) for h in range(HEADS)], device=device)


def attn_call(name, q, k, v):
    import attn

    if name == "window and sink":
        return lambda: attn.attend(q, k, v, causal=True, window=WINDOW, sink=SINK)
    if name == "softcap":
        return lambda: attn.attend(q, k, v, causal=True, softcap=CAP)
    if name == "alibi":
        tensors = {"slopes": slopes(q.device)}

        def biased(s, h, qi, ki, slopes):
            return s - slopes[h] * (qi - ki)

        return lambda: attn.attend(q, k, v, causal=True, score=biased, tensors=tensors)
    return lambda: attn.attend(q, k, v, causal=True)


def flex_call(name, q, k, v):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def visible(batch, head, query, key):
        if name == "window and sink":
            return (query >= key) & ((query - key < WINDOW) | (key < SINK))
        return query >= key

    score = None
    if name == "softcap":

        def score(s, batch, head, query, key):
            return CAP * torch.tanh(s / CAP)

    if name == "alibi":
        table = slopes(q.device)

        def score(s, batch, head, query, key):
            return s - table[head] * (query - key)

    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    tokens = q.shape[2]
    mask = create_block_mask(visible, None, None, tokens, tokens, device=q.device)
    flex = torch.compile(flex_attention) if q.is_cuda else flex_attention
    scale = 1 / math.sqrt(DIM)
    return lambda: flex(q, k, v, score_mod=score, block_mask=mask, scale=scale, enable_gqa=True).transpose(
        1, 2
    )


CALLS = {"attn": attn_call, "flex": flex_call}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("side", choices=CALLS)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--save", help="where the result goes, for comparing sides")
    args = parser.parse_args()

    generator = torch.Generator(args.device).manual_seed(0)

    def random(heads):
        shape = (1, args.tokens, heads, DIM)
        return torch.randn(shape, generator=generator, device=args.device, dtype=torch.bfloat16)

    q, k, v = random(HEADS), random(KV_HEADS), random(KV_HEADS)
    (q[0, :128, 0] @ k[0, :128, 0].T).sum().item()  # Initializes the GPU and its libraries.

    start = time.perf_counter()
    call = CALLS[args.side](args.name, q, k, v)
    result = call()
    if args.device == "cuda":
        torch.cuda.synchronize()
    report = {"first_seconds": time.perf_counter() - start}
    if args.device == "cuda":
        report["run_ms"] = Timer(torch, 20)(call)
    if args.save:
        torch.save(result.float().cpu(), args.save)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
