# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Part `rounding`: what 16 bits change in the model's logits, by whose attention and in which parts of the model.

Every row of a text is compared with a float32 model and eager attention over the same tokens: how many rows would choose
another token, the largest gap that float32 has between the two (what a generation would lose at its worst step), and the
root of the mean square of the logits' differences. Ways are

  attn, SDPA, eager             the whole model in float16, or in bfloat16
  attn, a float32 model         over pages in float16: only queries, keys, values and their weights are rounded
  float32, float16's weights    no attention in 16 bits: what the rounded weights change alone
"""

import copy

import attn.transformers
import smollm2
import torch

SLICE = 512  # Rows of logits in memory at a time, of each side.
FLOAT32 = "float32"


def measure_rounding(load, asked):
    """Yield a row for each way."""
    length, count = (64, 1) if asked.quick else (4096, 8) if asked.device == "cuda" else (256, 2)
    text = smollm2.tokenizer()(smollm2.prose()).input_ids
    step = (len(text) - length) // max(count - 1, 1)
    texts = [torch.tensor([text[at * step : at * step + length]], device=asked.device) for at in range(count)]
    with torch.inference_mode():
        exact = load(torch.float32, "eager")
        wanted = [last_states(exact, ids) for ids in texts]
        for name, dtype, model, pages in ways(load):
            found = Apart()
            for ids, states in zip(texts, wanted, strict=True):
                cache = {}
                if pages is not None:
                    cache["past_key_values"] = attn.transformers.PagedCache(
                        model.config, pages=length // 16 + 2, dtype=pages
                    )
                made = last_states(model, ids, **cache)
                for at in range(0, length, SLICE):
                    found.add(
                        exact.lm_head(states[at : at + SLICE]), model.lm_head(made[at : at + SLICE]).float()
                    )
            yield {"part": "rounding", "way": name, "dtype": dtype, "tokens": length, **found.row()}


def ways(load):
    """Yield names, the dtype, models, and the dtype of pages; None where the model needs no cache."""
    for dtype in (torch.float16, torch.bfloat16):
        for name, attention in {"attn": "attn", "SDPA": "sdpa", "eager": "eager"}.items():
            yield name, str(dtype)[6:], load(dtype, attention), dtype if name == "attn" else None
    yield "attn, a float32 model", FLOAT32, load(torch.float32, "attn"), torch.float16
    rounded = copy.deepcopy(load(torch.float16, "eager")).float()
    yield "float32, float16's weights", FLOAT32, rounded, None


def last_states(model, ids, **cache):
    """Return the states before the last product, [tokens, width]."""
    return model.model(ids, **cache).last_hidden_state[0]


class Apart:
    """How far logits are apart from float32's, over slices of rows."""

    def __init__(self):
        self.rows, self.others, self.gap, self.squares, self.logits = 0, 0, 0.0, 0.0, 0

    def add(self, exact, logits):
        """Take rows of both, [rows, vocabulary]."""
        chosen = logits.argmax(-1, keepdim=True)
        gaps = exact.amax(-1) - exact.gather(1, chosen)[:, 0]
        self.rows += len(gaps)
        self.others += int((gaps > 0).sum())
        self.gap = max(self.gap, gaps.max().item())
        self.squares += (logits - exact).square().sum(dtype=torch.float64).item()
        self.logits += logits.numel()

    def row(self):
        return {
            "rows": self.rows,
            "others": self.others,
            "largest_gap": self.gap,
            "rms": (self.squares / self.logits) ** 0.5,
        }


def add_options(parser):
    pass


def line(row):
    return (
        f"{row['way']:26} {row['dtype']:9} {row['others']:4} of {row['rows']} rows choose another token, gaps up to "
        f"{row['largest_gap']:.4f}, logits {row['rms']:.5f} apart"
    )


PARTS = {"rounding": measure_rounding}
