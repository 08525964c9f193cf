# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which heads retrieve, and what the others cost if they stream: the part heads of `bench real`.

Each method of attn.heads.identify finds gates on texts for training. Then the model reads fresh texts, in which numbers are
hidden (examples/13_real_model/passkeys.py), with a half and with a quarter of its KV heads retrieving. Recall is the share of
digits that it predicts, each after the correct earlier ones. It stands beside the recall of the full model, of a model whose
heads all stream, of the half with the least gates (reversed), and of random choices. Correlations of gates are Spearman's.

The model is in float16 on a GPU, with 4,096 tokens and streaming heads of 64 first and 256 last ones. On a CPU it is in
float32, with 512 tokens, 16 and 64. `--quick` takes 160, 4 and 16.
"""

import itertools
import time

import numpy
import smollm2
import torch
from attn.heads import Gates, HeadChoice, identify, recall
from passkeys import passkeys

METHODS = {
    "distill release": {"method": "distill", "blend": "release"},
    "distill paper": {"method": "distill", "blend": "paper"},
    "ablation": {"method": "ablation"},
    "attention": {"method": "attention"},
}
SHARES = (0.5, 0.25)  # of heads that retrieve
RATE = 0.05  # identify takes 0.02 by default, for 2,000 steps.


class Sizes:
    """The sizes that were asked for, or those of the device."""

    def __init__(self, asked):
        usual = (160, 4, 16, 3, 2, 1) if asked.quick else (512, 16, 64, 30, 6, 4)
        if asked.device == "cuda" and not asked.quick:
            usual = 4096, 64, 256, 150, 16, 8
        given = (
            asked.heads_tokens,
            asked.heads_sink,
            asked.heads_recent,
            asked.heads_steps,
            asked.heads_texts,
            asked.heads_random,
        )
        self.tokens, self.sink, self.recent, self.steps, self.texts, self.random = (
            default if value is None else value for value, default in zip(given, usual, strict=True)
        )
        self.names = 1 if asked.quick else 4

    def texts_for(self, training):
        given = {"training": training, "names": self.names, "seed": int(training)}
        return passkeys(smollm2.tokenizer(), self.tokens, **given)

    def steps_of(self, method):
        """Steps of training; texts of ablation, which reads each as often as there are heads, and of attention."""
        return {"distill": self.steps, "ablation": 1, "attention": min(self.texts, 4)}[method]


def spearman(one, other):
    """Return the correlation of ranks, of equal numbers the mean rank; None if all numbers of a side are equal."""
    ranks = [_ranks(numpy.asarray(values).reshape(-1)) for values in (one, other)]
    return None if any(numpy.ptp(r) == 0 for r in ranks) else float(numpy.corrcoef(*ranks)[0, 1])


def _ranks(values):
    _, place, counts = numpy.unique(values, return_inverse=True, return_counts=True)
    return (counts.cumsum() - (counts - 1) / 2)[place]


class Recall:
    """Recall of fresh texts, as rows."""

    def __init__(self, model, sizes):
        data = sizes.texts_for(training=False)
        self.model, self.texts = model, [data(step) for step in range(sizes.texts)]
        self.sizes, self.full = sizes, None

    def row(self, method, choice, **more):
        begin = time.perf_counter()
        found = [recall(self.model, texts, choice) for texts in self.texts]
        mean = sum(found) / len(found)
        self.full = mean if self.full is None else self.full
        return {
            **{"part": "heads", "row": "recall", "method": method, **more},
            **{"recall": mean, "of_full": mean / self.full if self.full else None},
            **{"texts": len(found), "tokens": self.sizes.tokens, "s": time.perf_counter() - begin},
        }


def measure_heads(load, asked):
    """Yield rows of gates, of their correlations and of recall."""
    model = load(torch.float16 if asked.device == "cuda" else torch.float32, "sdpa")
    sizes = Sizes(asked)
    seen, measured, gates = {"sink": sizes.sink, "recent": sizes.recent}, Recall(model, sizes), {}
    shape = model.config.num_hidden_layers, model.config.num_key_value_heads
    yield measured.row("full", None, retrieving=1.0)
    yield measured.row("streaming", HeadChoice(numpy.ones(shape, int), **seen), retrieving=0.0)
    for name in asked.heads_methods:
        begin, steps = time.perf_counter(), sizes.steps_of(METHODS[name]["method"])
        trained = {}
        if METHODS[name]["method"] == "distill":
            trained = {"rate": asked.heads_rate, "regularization": asked.heads_regularization}
        data = sizes.texts_for(training=True)
        found = gates[name] = identify(
            model, data, **METHODS[name], **seen, **trained, steps=steps, progress=False
        )
        yield {
            **{"part": "heads", "row": "gates", "method": name, **seen, "steps": steps, **trained},
            **{"tokens": sizes.tokens, "s": time.perf_counter() - begin},
            **{"mean": float(found.values.mean()), "gates": found.values.round(4).tolist()},
        }
        for share in SHARES:
            yield measured.row(name, found.select(sparsity=1 - share), retrieving=share)
        least = Gates(1 - found.values.clip(0, 1), **seen).select(sparsity=0.5)
        yield measured.row(f"reversed {name}", least, retrieving=0.5)
    for one, other in itertools.combinations(gates, 2):
        correlation = spearman(gates[one].values.clip(0, 1), gates[other].values.clip(0, 1))
        yield {"part": "heads", "row": "correlation", "methods": [one, other], "spearman": correlation}
    for seed, share in itertools.product(range(sizes.random), SHARES):
        drawn = Gates(numpy.random.default_rng(seed).random(shape), **seen)
        yield measured.row("random", drawn.select(sparsity=1 - share), retrieving=share, seed=seed)


def add_options(parser):
    parser.add_argument("--heads-tokens", type=int, help="tokens of the texts of the part heads")
    parser.add_argument("--heads-steps", type=int, help="steps of distillation")
    parser.add_argument("--heads-rate", type=float, default=RATE, help="rate of distillation")
    parser.add_argument("--heads-regularization", type=float, default=0.05, help="weight of the mean gate")
    parser.add_argument("--heads-sink", type=int, help="first tokens that a streaming head sees")
    parser.add_argument("--heads-recent", type=int, help="last tokens that it sees")
    parser.add_argument("--heads-texts", type=int, help="texts of which recall is measured")
    parser.add_argument("--heads-random", type=int, help="random choices")
    parser.add_argument("--heads-methods", nargs="+", choices=METHODS, default=list(METHODS))


def line(row):
    if row["row"] == "correlation":
        found = "none" if row["spearman"] is None else f"{row['spearman']:.3f}"
        return f"{' and '.join(row['methods'])}: Spearman {found}"
    name = f"{row['method']} {row.get('seed', '')}".ljust(25)
    if row["row"] == "gates":
        return f"{name} gates of mean {row['mean']:.3f}, {row['steps']} steps of {row['tokens']} tokens  {row['s']:6.1f} s"
    return f"{name} {row['retrieving']:4.0%} of heads retrieve: recall {row['recall']:.3f}  {row['s']:6.1f} s"


PARTS = {"heads": measure_heads}
