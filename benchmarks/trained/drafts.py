# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Greedy tokens by trees of drafts against one by one: the part drafts of `bench real`.

Drafts are looked up in the text (examples/13_real_model/drafts.py). Steps are recorded on a GPU, those of one token as well.
The `gap` of an answer that parts from that of one by one is the difference of the two tokens' logits in float32.

A GPU makes 256 tokens behind 2,000, a CPU 24 behind 192, and `--quick` 8 behind 60.
"""

import drafts
import smollm2
import torch

COUNTS = (0, 4, 16, 32, 64)
TEXTS = {"code": lambda: smollm2.code("statistics.py"), "prose": smollm2.prose}


def measure_drafts(load, asked):
    """Yield a row for each text and number of drafts."""
    context, count = (60, 8) if asked.quick else (2000, 256) if asked.device == "cuda" else (192, 24)
    model, exact = load(torch.float16, drafts.NAME), load(torch.float32, "eager")
    for name, source in TEXTS.items():
        prompt = smollm2.tokenizer()(source()).input_ids[1000 : 1000 + context]
        first = None
        for most in (0, 16) if asked.quick else COUNTS:
            with torch.inference_mode():
                if asked.device == "cuda":
                    drafts.generate(model, prompt, 8, most)  # compiles
                made, steps, seconds = drafts.generate(model, prompt, count, most)
                first = first or made
                parted = drafts.parting(exact, prompt, made, first)
            yield {
                "part": "drafts",
                "text": name,
                "context": context,
                "drafts": most,
                "tokens": len(made),
                "tokens_step": (len(made) - 1) / steps,
                "tokens_s": (len(made) - 1) / seconds,
                "parts_at": parted and parted[0],
                "gap": parted and parted[1],
            }


def add_options(parser):
    pass


def line(row):
    same = (
        "the same tokens" if row["gap"] is None else f"parts at token {row['parts_at']}, gap {row['gap']:.4f}"
    )
    return (
        f"{row['text']:6} {row['drafts']:3} drafts: {row['tokens_step']:5.2f} tokens a step,"
        f" {row['tokens_s']:7.1f} a second, {same}"
    )


PARTS = {"drafts": measure_drafts}
