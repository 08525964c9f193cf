# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`python -m attn check-bits MODEL`: attn.check_bits for a model of Transformers, from a shell."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..errors import Error


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns 0 if all bits are equal, 1 if some differ, 2 if nothing was compared."""
    parser = argparse.ArgumentParser(
        prog="python -m attn check-bits",
        description="Answer prompts with attn's engine, recompute the answers as a trainer does, and compare "
        "log-probabilities to the bit.",
    )
    parser.add_argument("model", help="a folder or a name that from_pretrained takes")
    parser.add_argument(
        "--prompts", type=Path, help="a file with a prompt in each line; by default random tokens"
    )
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16"])
    parser.add_argument("--device", default=None, help="cpu or cuda; by default a GPU if there is one")
    parser.add_argument("--new-tokens", type=int, default=16)
    parser.add_argument("--layout", default="padded", choices=["padded", "packed"], help="of the trainer")
    parser.add_argument("--numerics", default="row", choices=["row", "none"], help="of attention")
    parser.add_argument(
        "--library-ops", action="store_true", help="leave PyTorch's products and sums as they are"
    )
    options = parser.parse_args(arguments)
    import torch
    from transformers import AutoModelForCausalLM

    from .checking import check_bits

    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        model = AutoModelForCausalLM.from_pretrained(
            options.model,
            dtype=getattr(torch, options.dtype),
            attn_implementation="attn_row" if options.numerics == "row" else "attn",
        ).to(device)
        prompts = _prompts(options.prompts, options.model, model.config)
        report = check_bits(
            model.eval(),
            prompts,
            max_new_tokens=options.new_tokens,
            layout=options.layout,
            row_ops=not options.library_ops,
        )
    except (Error, OSError, ValueError) as error:
        print(f"check-bits: {error}", file=sys.stderr)
        return 2
    print(report)
    return 0 if report.equal else 1


def _prompts(file: Path | None, model: str, config: object) -> list[list[int]]:
    """Return tokens of each line of a file, or random ones of several lengths."""
    import torch

    if file is None:
        torch.manual_seed(0)
        words = config.get_text_config(decoder=True).vocab_size  # type: ignore[attr-defined]
        return [torch.randint(words, (count,)).tolist() for count in (5, 40, 17, 70)]
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line]
    return [tokenizer(line)["input_ids"] for line in lines]
