# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains SmolLM2-135M-Instruct over prompts that responses share, with each shared token once and, beside that, with copies.

sft    Fine-tuning on questions about a section of Python's language reference: every prompt begins with the section.
grpo   Reinforcement on sums of two digits: responses are sampled from the model, a checker rewards them, and each step has
       two updates with clipped ratios. Both sides get the responses that the packed side's model has made.

Both sides begin with the same weights and make their own steps of AdamW. Each line has their losses, how far gradients are
apart as a share of the largest gradient, and seconds of an update. On a CPU all is in float32, and attention of packed rows is
attn's float64 reference; on a GPU products are in bfloat16 and attention is in attn's kernels, which have no float32.
"""

import argparse
import json
import sys
from pathlib import Path

import shared_prompts
import smollm2
import torch

FLOAT32_BOUND = 1e-4
# Rewards are compared within a group, so that it needs two responses.
LEAST = {
    "steps": 1,
    "questions": 1,
    "examples": 0,
    "pool": 1,
    "section": 48,
    "responses": 2,
    "tokens": 1,
    "updates": 1,
}


def summary(rows):
    """The largest differences of all rows, the median seconds of an update, and how many times fewer rows ran."""
    found = {name: max(row[name] for row in rows) for name in ("loss_apart", "gradients_apart")}
    packed, copies = (sorted(row["s"][way] for row in rows)[len(rows) // 2] for way in shared_prompts.WAYS)
    sharing = sum(row["copies"] for row in rows) / sum(row["rows"] for row in rows)
    return found | {"packed_s": packed, "replicated_s": copies, "sharing": sharing}


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tasks = parser.add_subparsers(dest="task", required=True, metavar="sft | grpo")
    for name, steps, questions in (("sft", 6, 8), ("grpo", 20, 2)):
        of = tasks.add_parser(name, help=f"{name} --help has its options")
        of.add_argument("--steps", type=int, default=steps, help="%(default)s by default")
        of.add_argument("--questions", type=int, default=questions, help="of a step; %(default)s by default")
        of.add_argument(
            "--rate", type=float, default=shared_prompts.RATE, help="of learning; %(default)s by default"
        )
        of.add_argument("--seed", type=int, default=0, help="of questions and samples")
        of.add_argument(
            "--precision",
            choices=shared_prompts.PRECISIONS,
            help="float32 on a CPU, bfloat16 on a GPU by default",
        )
        of.add_argument("--json", type=Path, help="write rows to this file")
    tasks.choices["sft"].add_argument(
        "--section", type=int, default=256, help="tokens of a section; %(default)s by default"
    )
    of = tasks.choices["grpo"]
    of.add_argument("--responses", type=int, default=4, help="to each question; %(default)s by default")
    of.add_argument(
        "--examples", type=int, default=4, help="worked ones in each prompt; %(default)s by default"
    )
    of.add_argument(
        "--pool", type=int, default=4, help="questions that are asked in turn; %(default)s by default"
    )
    of.add_argument("--tokens", type=int, default=8, help="of a response, at most; %(default)s by default")
    of.add_argument(
        "--updates", type=int, default=2, help="with the samples of a step; %(default)s by default"
    )
    asked = parser.parse_args(arguments)
    for name, least in LEAST.items():
        if getattr(asked, name, least) < least:
            parser.error(f"--{name}: expected at least {least}, got {getattr(asked, name)}")
    return asked


def rows_of(asked, both, tokens):
    """Rows of the task that was asked for."""
    if asked.task == "sft":
        task = shared_prompts.Quiz(tokens, asked.section, asked.seed)
        return shared_prompts.sft(both, task, steps=asked.steps, questions=asked.questions)
    task = shared_prompts.Sums(tokens, asked.examples, asked.pool, asked.seed)
    sizes = {"questions": asked.questions, "responses": asked.responses, "most": asked.tokens}
    return shared_prompts.grpo(both, task, steps=asked.steps, updates=asked.updates, seed=asked.seed, **sizes)


def train(asked):
    """Print a line for each update; return the precision and all rows."""
    device = smollm2.device()
    precision = shared_prompts.choose_precision(device, asked.precision)
    model, tokens = smollm2.load(torch.float32, device, "sdpa"), smollm2.tokenizer()
    kernels = "kernels on the host device" if device == "cpu" else "kernels"
    attention = "the float64 reference" if precision == "float32" else kernels
    print(f"{smollm2.NAME} in {precision} on {device}; attention of packed rows: {attention}", flush=True)
    rows = []
    for row in rows_of(asked, shared_prompts.sides(model, precision, asked.rate), tokens):
        rows.append(row)
        print(shared_prompts.line(row), flush=True)
        if asked.json:
            asked.json.write_text(json.dumps({"precision": precision, "device": device, "rows": rows}) + "\n")
    return precision, rows


def main():
    try:
        precision, rows = train(parse())
    except (smollm2.ModelError, ValueError) as error:
        sys.exit(f"train: error: {error}")
    found = summary(rows)
    print(
        f"{found['sharing']:.2f} times fewer rows; an update takes {found['packed_s']:.2f} s, over copies "
        f"{found['replicated_s']:.2f} s; losses are {found['loss_apart']:.1e} apart at most, gradients "
        f"{found['gradients_apart']:.1e} of the largest"
    )
    if precision == "float32" and max(found["loss_apart"], found["gradients_apart"]) > FLOAT32_BOUND:
        sys.exit(f"wrong: expected losses and gradients up to {FLOAT32_BOUND} apart in float32")


if __name__ == "__main__":
    main()
