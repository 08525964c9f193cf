# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The part `training`: GRPO and fine-tuning of the model, each shared token once against a copy for every response.

grpo    Steps of examples/13_real_model/train.py: losses, rewards, and how far gradients are apart, of both sides.
sft     The same for fine-tuning.
error   In bfloat16 alone: the gradient of one update of each side against float32 over copies, from the same weights.
time    An update over N responses of R tokens to a prompt of P, of text that somebody wrote: seconds and, on a GPU, the peak
        of memory above what was there before.
"""

from __future__ import annotations

import copy
import statistics
from dataclasses import dataclass

import shared_prompts
import smollm2
import torch
from attn.training import group, pack

ROUNDS = 3


@dataclass(frozen=True)
class Sizes:
    """How much is trained. `pool`: the questions of grpo, asked in turn; `point`: responses, prompt and response of the task
    `time`."""

    steps: int
    questions: int
    responses: int
    examples: int
    pool: int
    fine_steps: int
    section: int
    point: tuple[int, int, int]


GPU = Sizes(20, 4, 8, 12, 8, 6, 512, (16, 2048, 128))
CPU = Sizes(20, 2, 4, 4, 4, 3, 160, (4, 192, 8))
QUICK = Sizes(1, 1, 2, 1, 1, 1, 48, (2, 32, 4))


def add_options(parser):
    parser.add_argument("--training-steps", type=int, help="of GRPO; 20 by default")


@torch.inference_mode(mode=False)
def measure(load, options):
    """Yield rows, also to a caller in inference mode. `load(dtype, attention)`: the model, which stays as it is; `options`:
    device, quick and training_steps."""
    sizes = QUICK if options.quick else CPU if options.device == "cpu" else GPU
    precision = shared_prompts.choose_precision(options.device)
    tokens = smollm2.tokenizer()
    about = {"part": "training", "precision": precision}

    def sides():
        return shared_prompts.sides(copy.deepcopy(load(torch.float32, "sdpa")), precision)

    both = sides()
    if precision == "bfloat16":
        yield {**about, **measure_error(both, tokens, sizes)}
    yield from ({**about, **row} for row in measure_time(both[0], tokens, *sizes.point))
    task = shared_prompts.Sums(tokens, sizes.examples, sizes.pool)
    asked = {"questions": sizes.questions, "responses": sizes.responses}
    steps = options.training_steps or sizes.steps
    both = sides()
    yield from ({**about, **row} for row in shared_prompts.grpo(both, task, steps=steps, **asked))
    both = sides()
    task = shared_prompts.Quiz(tokens, sizes.section)
    asked = {"steps": sizes.fine_steps, "questions": 2 if options.quick else 8}
    yield from ({**about, **row} for row in shared_prompts.sft(both, task, **asked))


PARTS = {"training": measure}


def measure_error(both, tokens, sizes):
    """A row: how far the gradients of each side are from float32 over copies."""
    task = shared_prompts.Sums(tokens, sizes.examples, sizes.pool)
    asked = {"questions": sizes.questions, "responses": sizes.responses, "most": 8, "seed": 0}
    packed, _, _ = shared_prompts.rollout(both[0].model, task, **asked)
    weights = torch.linspace(-1, 1, len(packed.trajectories))  # Rewards may be equal, without a gradient.
    exact = shared_prompts.Side("replicated", both[1].model, "float32")
    wanted = gradients_of(exact, packed, weights)
    found = {side.way: gradients_of(side, packed, weights) for side in both}
    return {
        "task": "error",
        **shared_prompts.shared(packed, both[0].model.config),
        **{way: shared_prompts.gradients_apart(each, wanted) for way, each in found.items()},
    }


def gradients_of(side, packed, weights):
    side.backward(shared_prompts.Clipped(packed, weights))
    found = {name: gradient.clone() for name, gradient in shared_prompts.gradients(side.model).items()}
    side.optimizer.zero_grad()
    return found


def measure_time(side, tokens, responses, prompt, response):
    """A row for each way: the median seconds of an update of one model, in turns."""
    ids = tokens(smollm2.prose()).input_ids
    tails = [ids[at : at + response] for at in range(prompt, prompt + responses * response, response)]
    (packed,) = pack([group(ids[:prompt], tails)])
    weights = torch.linspace(-1, 1, responses)
    ways = [shared_prompts.Side(way, side.model, side.precision, rate=1e-7) for way in shared_prompts.WAYS]
    seconds, peaks = {way.way: [] for way in ways}, {}
    for number in range(ROUNDS + 1):
        for way in ways:
            way.optimizer.zero_grad()
            before = start_memory(side.model.device)
            _, taken = way.backward(shared_prompts.Clipped(packed, weights))
            peaks[way.way] = peak_memory(side.model.device, before)
            taken += way.step()
            if number:  # the first run compiles
                seconds[way.way].append(taken)
    size = {"responses": responses, "prompt": prompt, "response": response}
    for way, found in seconds.items():
        yield {
            "task": "time",
            "way": way,
            **size,
            **shared_prompts.shared(packed, side.model.config),
            "s": statistics.median(found),
            "peak_bytes": peaks[way],
        }


def start_memory(device):
    """The bytes that are in use on a GPU, from which a peak is counted; None on a CPU."""
    if device.type != "cuda":
        return None
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def peak_memory(device, before):
    return None if before is None else torch.cuda.max_memory_allocated(device) - before


def line(row):
    """A row as text."""
    if row["task"] in ("grpo", "sft"):
        return f"{row['task']} {shared_prompts.line(row)}"
    if row["task"] == "error":
        apart = [f"{way} {row[way]['norms_apart']:.4f}" for way in shared_prompts.WAYS]
        return f"gradients from float32, of its norm: {', '.join(apart)}"
    memory = "" if row["peak_bytes"] is None else f", {row['peak_bytes'] / 1e9:.2f} GB"
    size = f"{row['responses']} responses of {row['response']} to {row['prompt']}"
    return f"{size}, {row['way']}: {row['s']:.3f} s{memory}"
