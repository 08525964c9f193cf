# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares the bits of attn's engine with those of a trainer's forward pass on a GPU, of SmolLM2-135M-Instruct
(examples/13_real_model) and of a random model of Llama-3.1-8B's shape with four layers.

The engine batches continuously, reads prompts in chunks beside requests that decode, and shares prefixes; the trainer
computes the answers again in one forward pass of a batch, which autograd records. A number is a log-probability of one
word after one generated token. Each model runs in up to three ways:

  row        numerics="row", and PyTorch's products and sums in blocks of rows (attn.bits.row_ops)
  default    attention by the quickest plans, beside the same products
  library    numerics="row", beside PyTorch's products as they are

The row `places` says whether the assumption of `row_ops` holds here: that a library's product of a fixed shape gives a
row the same bits at any place of a block and beside any rows.
"""

import argparse
import sys
import time
from pathlib import Path

from measuring.report import ROOT, header, import_attn, save

WAYS = ("row", "default", "library")
_CHUNK = 512


def options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=["smollm2", "8b"], help="of smollm2, 8b, tiny")
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=list(WAYS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--requests", type=int, default=48, help="prompts, each of which comes twice")
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--block", type=int, default=0, help="rows of a block of row_ops; 0: its default")
    parser.add_argument("--layout", default="padded", choices=["padded", "packed"])
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def load(name, device, torch):
    """Return a model and its prompts."""
    import attn.transformers  # noqa: F401  registers the implementations
    from transformers import LlamaConfig, LlamaForCausalLM

    if name == "smollm2":
        sys.path.insert(0, str(ROOT / "examples" / "13_real_model"))
        import smollm2

        model = smollm2.load(torch.bfloat16, device, "attn_row")
        words = smollm2.tokenizer()(smollm2.prose())["input_ids"]
        return model, lambda start, count: words[start : start + count]
    large = name == "8b"
    config = LlamaConfig(
        hidden_size=4096 if large else 128,
        intermediate_size=14336 if large else 256,
        num_hidden_layers=4 if large else 2,
        num_attention_heads=32 if large else 2,
        num_key_value_heads=8 if large else 1,
        head_dim=128 if large else 64,
        vocab_size=128256 if large else 100,
        eos_token_id=None,
        pad_token_id=0,
        attn_implementation="attn_row",
    )
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = LlamaForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    ids = torch.randint(config.vocab_size, (100_000,), generator=torch.Generator().manual_seed(1)).tolist()
    return model, lambda start, count: ids[start : start + count]


def prompts_of(take, count, longest):
    """Return prompts of several lengths, a third of which begin alike."""
    shared = take(0, longest // 2)
    found = []
    for i in range(count):
        own = take(longest + 97 * i, 8 + 37 * i % longest // 2)
        found.append([*shared, *own] if i % 3 == 0 else own)
    return found


def places(model, block, torch):
    """Return how many shapes of products there are, and those whose bits depend on a row's place."""
    from attn.bits import place_matters, row_ops

    weights = {}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            weights.setdefault(tuple(module.weight.shape), (name, module.weight))
    wrong = [
        name for name, weight in weights.values() if place_matters(weight.detach(), row_ops(block or None))
    ]
    return {"shapes": len(weights), "depend_on_place": wrong}


def main():
    asked = options()
    attn = import_attn()
    import torch

    rows = []
    for name in asked.models:
        start = time.monotonic()
        model, take = load(name, asked.device, torch)
        longest = 64 if name == "tiny" else 600
        prompts = prompts_of(take, asked.requests, longest)
        found = {"model": name, "way": "places"} | places(model, asked.block, torch)
        found["seconds"] = round(time.monotonic() - start, 1)
        rows.append(found)
        print(found, flush=True)
        for way in asked.ways:
            start = time.monotonic()
            model.set_attn_implementation("attn" if way == "default" else "attn_row")
            few = prompts if way == "row" else prompts[: max(len(prompts) // 4, 2)]
            report = attn.check_bits(
                model,
                few,
                max_new_tokens=asked.new_tokens,
                sequences=32,
                rows=64 if name == "tiny" else _CHUNK,
                layout=asked.layout,
                batch=8,
                row_ops=False if way == "library" else (asked.block or True),
                do_sample=True,
            )
            found = {
                "model": name,
                "way": way,
                "answers": report.answers,
                "tokens": report.tokens,
                "cached_tokens": report.cached_tokens,
                "tokens_differ": report.differing_tokens,
                "numbers": report.numbers,
                "differ": report.differing,
                "largest": report.largest,
                "first": None if report.first is None else str(report.first),
                "seconds": round(time.monotonic() - start, 1),
            }
            rows.append(found)
            print(found, flush=True)
        del model
    device = asked.device
    if device == "cuda":
        device = torch.cuda.get_device_name()
    if asked.json:
        save(asked.json, header("bits", device) | {"torch": torch.__version__, "rows": rows})
    wrong = [row for row in rows if row["way"] == "row" and row["differ"] + row["tokens_differ"]]
    print(f"{len(wrong)} models differ with numerics=row")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
