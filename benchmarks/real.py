# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures attn on a model that somebody trained (examples/13_real_model), SmolLM2-135M-Instruct, with text that somebody wrote.

Parts are functions of the modules in benchmarks/trained:

  formats   pages of each format of keys and values: perplexity, and KL from 16 bits
  channels  the largest channel of keys and of values in each layer, against the median channel
  layers    each format in one layer alone: KL
  diffkv    tokens that come one at a time over caches that compress themselves: perplexity and KL
  recall    passkeys in such caches
  heads     heads that retrieve, by each method of attn.heads.identify: recall of passkeys while the others stream
  training  GRPO and fine-tuning over shared prompts, against copies: losses, gradients, seconds of an update
  drafts    trees of drafts looked up in the text, against one by one: tokens a step and a second
  serving   512 tokens behind 6,144, and 64 requests at once, beside SDPA and eager attention: tokens a second, memory, the time
            of the first token, and agreement with float32
  rounding  what float16 and bfloat16 change in logits: attn, SDPA and eager attention against float32, row by row

`python benchmarks/real.py --help` lists their options; the docstring of each module says what it measures.
"""

import argparse
import sys
from functools import cache
from pathlib import Path

from measuring.report import BUILD, ROOT, header, save
from plots import loss, palette, updates

sys.path[:0] = [str(BUILD / "python"), str(ROOT / "examples" / "13_real_model")]

import smollm2  # noqa: E402
import torch  # noqa: E402
from trained import diffkv, drafts, formats, heads, layers, rounding, serving, training  # noqa: E402

MODULES = (formats, layers, diffkv, heads, drafts, serving, rounding, training)
PARTS = {name: (module, measure) for module in MODULES for name, measure in module.PARTS.items()}
"""The module of each part, and a function of a loader of models and the options, which yields rows. A module also has
`add_options(parser)`, and `line(row)`, the text of a row."""


PICTURES = {"formats": loss.draw, "training": updates.draw}


def options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", default=[], help=f"of {', '.join(PARTS)}; all of them by default")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--svg", type=Path, help="a picture of the part formats, or else of training")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    for module in MODULES:
        module.add_options(parser)
    asked = parser.parse_args()
    if strange := set(asked.parts) - set(PARTS):
        parser.error(f"expected parts of {', '.join(PARTS)}, got {', '.join(sorted(strange))}")
    asked.drawn = next((part for part in PICTURES if not asked.parts or part in asked.parts), None)
    if asked.svg and asked.drawn is None:
        parser.error(f"--svg draws one of the parts {', '.join(PICTURES)}, and none was asked for")
    asked.device = smollm2.device()
    return asked


def main():
    asked = options()

    @cache
    def load(dtype=torch.float16, attention="attn"):
        with torch.inference_mode(False):  # Some parts train.
            return smollm2.load(dtype, asked.device, attention)

    report = {
        **header("real", torch.cuda.get_device_name() if asked.device == "cuda" else None),
        "model": smollm2.REQUIREMENT,
        "text": f"Python {sys.version.split()[0]}'s language reference",
        "versions": {"torch": torch.__version__},
        "rows": [],
    }
    for part in asked.parts or PARTS:
        print(part, flush=True)
        module, measure = PARTS[part]
        for row in measure(load, asked):
            report["rows"].append(row)
            print(f"  {module.line(row)}", flush=True)
            if asked.json:
                save(asked.json, report)
    if asked.svg:
        palette.save(PICTURES[asked.drawn](report["rows"]), asked.svg)
        print(f"picture: {asked.svg}")


if __name__ == "__main__":
    main()
