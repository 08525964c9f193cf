# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model small enough to be trained while one waits, some of whose heads retrieve: lesson 6 finds them.

Two layers of attention without MLPs, width 128, 8 query and 4 KV heads of 32 features: a Llama of Transformers. A text has
128 tokens: a haystack from a Markov chain of order 2 over 24 symbols, three passkeys of 6 tokens from 32 others, and the
questions. Three quarters of the texts that it is trained on repeat a segment of random tokens instead, which is what makes
induction heads form soon. `python toy_model.py --seeds 10` measures what the methods of attn.heads find.
"""

import argparse
import json
import math
import time

import numpy
import torch
from attn.heads import HeadChoice, Passkeys, identify, recall
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

LENGTH, WORDS, KEYS, PASSKEYS = 128, 24, 32, 3
MARKS = [[WORDS + KEYS + i] for i in range(PASSKEYS)]
CLOSE = WORDS + KEYS + PASSKEYS
SYMBOLS = CLOSE + 1
LAYERS, KV_HEADS = 2, 4
SIZES = {"sink": 4, "recent": 16}  # Sizes of streaming heads: a passkey and its question are farther apart.
STEPS, BATCH, RATE = 600, 16, 3e-3


class NoMLP(torch.nn.Module):
    """An MLP that adds nothing."""

    def forward(self, x):
        return torch.zeros_like(x)


def untrained_model():
    """Return a model initialized from PyTorch's seed."""
    config = LlamaConfig(
        vocab_size=SYMBOLS,
        hidden_size=128,
        intermediate_size=1,
        num_hidden_layers=LAYERS,
        num_attention_heads=8,
        num_key_value_heads=KV_HEADS,
        head_dim=32,
        max_position_embeddings=LENGTH,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    model = LlamaForCausalLM(config)
    for layer in model.model.layers:
        layer.mlp = NoMLP()
    for module in model.modules():
        if isinstance(module, (torch.nn.Linear, torch.nn.Embedding)):
            module.reset_parameters()
    return model


def passkeys(seed, batch):
    """Return texts in the language of a seed."""
    random = torch.Generator().manual_seed(seed)
    chain = (2 * torch.randn(WORDS, WORDS, WORDS, generator=random)).softmax(-1).cumsum(-1).tolist()

    def haystack(count, random):
        text = [0, 0]
        for draw in torch.rand(count, generator=random).tolist():
            shares = chain[text[-2]][text[-1]]
            text.append(next((word for word, share in enumerate(shares) if share > draw), WORDS - 1))
        return torch.tensor(text[2:])

    return Passkeys(
        alphabet=range(WORDS, WORDS + KEYS),
        haystack=haystack,
        openings=MARKS,
        separator=[CLOSE],
        lengths=(LENGTH, LENGTH),
        intervals=1,
        passkey=6,
        depth=(0.0, 0.7),
        batch=batch,
        distinct=True,
        shuffle=True,
        seed=seed,
    )


def repeats(count, random):
    """Return random segments of 6 to 31 tokens, repeated; and which tokens are there for the second time."""
    texts, again = [], torch.zeros(count, LENGTH, dtype=torch.bool)
    for b in range(count):
        segment = torch.randint(SYMBOLS, (int(torch.randint(6, 32, (), generator=random)),), generator=random)
        texts.append(segment.repeat(-(-LENGTH // len(segment)))[:LENGTH])
        again[b, len(segment) + 1 :] = True
    return torch.stack(texts), again


def train(seed, steps=STEPS):
    """Train the model of a seed; returns it and 64 texts that it has not seen. Takes about a minute of one core."""
    torch.manual_seed(seed)
    model, random = untrained_model(), torch.Generator().manual_seed(seed)
    adam, data = torch.optim.Adam(model.parameters(), lr=RATE), passkeys(seed, BATCH // 4)
    for step in range(steps):
        decay = max(0.02, (1 + math.cos(math.pi * step / steps)) / 2)
        adam.param_groups[0]["lr"] = RATE * min(1, (step + 1) / 50) * decay
        texts, (repeated, again) = data(step), repeats(BATCH - BATCH // 4, random)
        tokens = torch.cat([texts.tokens, repeated])
        weight = 1.0 + 4 * torch.cat([texts.answers, again])[:, 1:].flatten()
        logits = model(tokens[:, :-1], use_cache=False).logits
        loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
        adam.zero_grad()
        ((loss * weight).sum() / weight.sum()).backward()
        adam.step()
    return model.eval(), passkeys(seed, 64)(10**6)


def streaming(*heads):
    """Return a choice in which these heads (layer, KV head) stream, or all."""
    classes = numpy.zeros((LAYERS, KV_HEADS), int) if heads else numpy.ones((LAYERS, KV_HEADS), int)
    for head in heads:
        classes[head] = 1
    return HeadChoice(classes, **SIZES)


def induction_head(model, texts):
    """Return the head without which the model finds least, and the recall without each head."""
    found = numpy.array(
        [[recall(model, texts, streaming((i, j))) for j in range(KV_HEADS)] for i in range(LAYERS)]
    )
    return numpy.unravel_index(found.argmin(), found.shape), found


def find(model, seed, method="distill", **options):
    """Find the gates of the toy: a shorter training, at a higher rate, than large models take. Gates are few, so each
    weighs more: with the default of 0.05 those of all heads that matter end at 1, in no order."""
    if method == "distill":
        options = {"steps": 150, "rate": 0.05, "regularization": 3.0} | options
    return identify(model, passkeys(seed + 1000, 8), method=method, **SIZES, **options)


def measure(seed, blends=("release",)):
    """Return a row for a seed: recall of the model, with half of its heads and with none, and the rank (from 1) of its
    induction head by each blend."""
    begun = time.process_time()
    model, texts = train(seed)
    row = {"seed": seed, "train_s": time.process_time() - begun, "recall": recall(model, texts)}
    row["streaming"] = recall(model, texts, streaming())
    head, alone = induction_head(model, texts)
    row |= {"head": [int(i) for i in head], "alone": alone.round(4).tolist()}
    for blend in blends:
        begun = time.process_time()
        gates = find(model, seed, blend=blend)
        row[blend] = {
            "find_s": time.process_time() - begun,
            "rank": 1 + int((gates.values > gates.values[head]).sum()),
            "half": recall(model, texts, gates.select(sparsity=0.5)),
            "gates": gates.values.round(4).tolist(),
        }
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1, help="models to train")
    parser.add_argument("--first", type=int, default=0, help="the first of the seeds")
    args = parser.parse_args()
    for seed in range(args.first, args.first + args.seeds):
        print(json.dumps(measure(seed, ("release", "paper"))), flush=True)


if __name__ == "__main__":
    main()
