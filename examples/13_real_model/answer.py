# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Answers a prompt from pages, then compares every row of logits with float32 eager attention, all rows at once.

`./dev demo --model` runs this. Tokens are greedy. Two bounds decide the exit status:
- The largest difference of a logit is at most `--bound` times that of PyTorch's eager attention in the same 16 bits.
- Where the likeliest token is another one, float32 prefers its own by a gap of 0.02 at most.
"""

import argparse
import sys
import time

import smollm2
import torch

GAP = 0.02


def generate(model, ids, count, ends, show):
    """Greedy tokens over pages. Gives all rows of logits [rows, words], the tokens and the seconds of each step."""
    import attn.transformers

    cache = attn.transformers.PagedCache(model.config, pages=-(-(ids.shape[1] + count) // 16))
    rows, made, seconds, new = [], [], [], ids
    while len(made) < count and not (made and made[-1] in ends):
        begin = time.perf_counter()
        logits = model(new, past_key_values=cache).logits[0]
        made.append(int(logits[-1].argmax()))  # which waits for the GPU
        seconds.append(time.perf_counter() - begin)
        rows.append(logits.float().cpu())
        new = ids.new_tensor([[made[-1]]])
        show(made)
    return torch.cat(rows), made, seconds


def compare(rows, reference):
    """The largest and the mean difference of logits, the share of rows with the same likeliest token, and the largest gap
    between the two likeliest tokens where they differ."""
    error, chosen = (rows - reference).abs(), rows.argmax(-1, keepdim=True)
    gaps = (reference.amax(-1, keepdim=True) - reference.gather(-1, chosen))[:, 0]
    same = (chosen[:, 0] == reference.argmax(-1)).float().mean()
    return error.max().item(), error.mean().item(), same.item(), gaps.max().item()


def common(texts):
    """How many tokens all texts begin with."""
    columns = zip(*texts, strict=False)
    return next((at for at, each in enumerate(columns) if len(set(each)) > 1), min(map(len, texts)))


def stream(tokens):
    """Prints what tokens add to the text."""
    printed = 0

    def show(made):
        nonlocal printed
        text = tokens.decode(made, skip_special_tokens=True)
        if not text.endswith("\N{REPLACEMENT CHARACTER}"):  # the middle of a character
            print(text[printed:], end="", flush=True)
            printed = len(text)

    return show


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("prompt", nargs="?", default="Explain in three sentences why the sky is blue.")
    parser.add_argument("--tokens", type=int, default=48, help="of the answer, at most")
    parser.add_argument("--dtype", choices=("float16", "bfloat16"), default="float16")
    parser.add_argument("--bound", type=float, default=2.0)
    asked = parser.parse_args()
    dtype, device = getattr(torch, asked.dtype), smollm2.device()
    begin = time.perf_counter()
    try:
        model, tokens = smollm2.load(dtype, device), smollm2.tokenizer()
    except smollm2.ModelError as error:
        sys.exit(f"answer: error: {error}")
    where = torch.cuda.get_device_name() if device == "cuda" else "attn's host device, a CPU"
    print(
        f"{smollm2.NAME} ({smollm2.LICENSE}) in {asked.dtype} on {where}, there after {time.perf_counter() - begin:.1f} s"
    )
    ids = torch.tensor([smollm2.chat(tokens, asked.prompt)], device=device)
    ends = {model.generation_config.eos_token_id}
    print(f"> {asked.prompt}")
    with torch.inference_mode():
        rows, made, seconds = generate(model, ids, asked.tokens, ends, stream(tokens))
        text = torch.cat([ids, ids.new_tensor([made[:-1]])], 1)
        reference = smollm2.load(torch.float32, device, "eager")(text).logits[0].cpu()
        same_bits = smollm2.load(dtype, device, "eager")(text).logits[0].float().cpu()
    rate = (len(made) - 1) / max(sum(seconds[1:]), 1e-9)
    print(f"\n{ids.shape[1]} tokens read in {seconds[0]:.2f} s, {len(made)} made, {rate:.1f} a second")
    print(f"{len(rows)} rows of logits beside float32 eager attention:")
    print(f"  {'':22}{'largest':>10}{'mean':>10}{'same token':>13}{'largest gap of others':>24}")
    found = {"attn, pages": compare(rows, reference), "PyTorch, eager": compare(same_bits, reference)}
    for name, (largest, mean, same, gap) in found.items():
        print(
            f"  {name + ', ' + asked.dtype:<26}{largest:>6.3f}{mean:>10.4f}{100 * same:>11.2f} %{gap:>24.4f}"
        )
    largest, _, _, gap = found["attn, pages"]
    most = asked.bound * found["PyTorch, eager"][0]
    if largest > most or gap > GAP:
        sys.exit(
            f"wrong: expected differences up to {most:.3f} and gaps up to {GAP}, got {largest:.3f} and {gap:.4f}"
        )
    print(
        f"right: differences up to {most:.3f} ({asked.bound} of PyTorch's) and gaps up to {GAP} are allowed"
    )


if __name__ == "__main__":
    main()
