# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cost of quantized keys and values for a model: recall of passkeys by a small model that is trained here.

Two layers of attention, width 128, 4 query and 2 KV heads of 32 (the least that kernels take), RoPE. A text of 128
tokens is a haystack from a Markov chain of order 2 over 24 symbols, with three passkeys of 6 tokens between markers;
these are asked for at its end, at least 16 tokens after the last. Three quarters of a batch repeat segments of random
tokens instead, which makes induction heads form soon. Then the model reads texts again, with all keys and values
quantized as in a cache (attn.quantize), and queries unchanged: recall is the share of passkey tokens that it predicts
correctly.

Outputs alone say little: Gaussian keys need their bits less than values do. Keys of models have outlier channels, whose
groups get coarse scales: `--errors` prints the error of the output without and with four of them.
"""

import argparse
import math
import statistics
import sys
from pathlib import Path

from measuring.report import BUILD, write_report

if str(BUILD / "python") not in sys.path:
    sys.path.insert(0, str(BUILD / "python"))

import attn
import torch
from torch.nn import functional

LENGTH, WORDS, KEYS = 128, 24, 32
OPEN = WORDS + KEYS  # Markers of the three passkeys.
CLOSE = OPEN + 3
SYMBOLS = CLOSE + 1
PASSKEYS, KEY_LENGTH, GAP = 3, 6, 16
RECALL = PASSKEYS * (KEY_LENGTH + 1)
WIDTH, Q_HEADS, KV_HEADS, DIM, LAYERS = 128, 4, 2, 32, 2
STEPS, BATCH, REPEATS, RATE = 450, 16, 12, 3e-3

PAIRS = ((16, 16), (8, 8), (8, 4), (4, 8), (4, 4), (4, 2), (2, 4))


def name_of(pair):
    return "K{}V{}".format(*pair)


# --- Texts ---------------------------------------------------------------------------------------------------


def markov_chain(random):
    """Return the cumulated probabilities of the next symbol after each pair."""
    return (2 * torch.randn(WORDS, WORDS, WORDS, generator=random)).softmax(-1).cumsum(-1)


def haystacks(count, chain, random):
    text = torch.randint(WORDS, (count, LENGTH), generator=random)
    draws = torch.rand(count, LENGTH, 1, generator=random)
    for t in range(2, LENGTH):
        text[:, t] = (chain[text[:, t - 2], text[:, t - 1]] < draws[:, t]).sum(1).clamp(max=WORDS - 1)
    return text


def passkeys(count, chain, random):
    """Return texts, and which of their tokens can be recalled."""
    text, wanted = haystacks(count, chain, random), torch.zeros(count, LENGTH, dtype=torch.bool)
    block = KEY_LENGTH + 2
    room = LENGTH - RECALL - GAP - PASSKEYS * block
    for b in range(count):
        gaps = torch.randint(room + 1, (PASSKEYS,), generator=random).sort().values.tolist()
        keys = WORDS + torch.randperm(KEYS, generator=random)[: PASSKEYS * KEY_LENGTH].view(PASSKEYS, -1)
        markers = (OPEN + torch.randperm(PASSKEYS, generator=random)).tolist()
        for i, gap in enumerate(gaps):
            at = gap + i * block
            text[b, at], text[b, at + block - 1] = markers[i], CLOSE
            text[b, at + 1 : at + block - 1] = keys[i]
        for n, i in enumerate(torch.randperm(PASSKEYS, generator=random).tolist()):
            at = LENGTH - RECALL + n * (KEY_LENGTH + 1)
            text[b, at], text[b, at + 1 : at + 1 + KEY_LENGTH] = markers[i], keys[i]
            wanted[b, at + 1 : at + 1 + KEY_LENGTH] = True
    return text, wanted


def repeats(count, random):
    """Return random segments of 6 to 31 tokens, repeated."""
    texts, wanted = [], torch.zeros(count, LENGTH, dtype=torch.bool)
    for b in range(count):
        segment = torch.randint(SYMBOLS, (int(torch.randint(6, 32, (), generator=random)),), generator=random)
        texts.append(segment.repeat(-(-LENGTH // len(segment)))[:LENGTH])
        wanted[b, len(segment) + 1 :] = True
    return torch.stack(texts), wanted


# --- The model -----------------------------------------------------------------------------------------------


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.RMSNorm(WIDTH)
        self.q = torch.nn.Linear(WIDTH, Q_HEADS * DIM, bias=False)
        self.kv = torch.nn.Linear(WIDTH, 2 * KV_HEADS * DIM, bias=False)
        self.out = torch.nn.Linear(Q_HEADS * DIM, WIDTH, bias=False)

    def forward(self, x, rotate, stored):
        y = self.norm(x)
        q = self.q(y).unflatten(-1, (Q_HEADS, DIM)).transpose(1, 2)
        k, v = self.kv(y).unflatten(-1, (2, KV_HEADS, DIM)).transpose(1, 3).unbind(2)
        k, v = stored(rotate(k), v)
        o = functional.scaled_dot_product_attention(rotate(q), k, v, is_causal=True, enable_gqa=True)
        return x + self.out(o.transpose(1, 2).flatten(2))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(SYMBOLS, WIDTH)
        self.layers = torch.nn.ModuleList(Attention() for _ in range(LAYERS))
        self.norm = torch.nn.RMSNorm(WIDTH)
        self.head = torch.nn.Linear(WIDTH, SYMBOLS, bias=False)
        angles = torch.arange(LENGTH)[:, None] * 10000.0 ** (-torch.arange(0, DIM, 2) / DIM)
        self.cos, self.sin = angles.cos(), angles.sin()

    def rotate(self, x):
        a, b = x.chunk(2, -1)
        cos, sin = self.cos[: x.shape[-2]], self.sin[: x.shape[-2]]
        return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)

    def forward(self, text, stored=lambda k, v: (k, v)):
        x = self.embedding(text)
        for layer in self.layers:
            x = layer(x, self.rotate, stored)
        return self.head(self.norm(x))


def train(chain, random):
    model = Model()
    adam = torch.optim.Adam(model.parameters(), lr=RATE)
    rate = torch.optim.lr_scheduler.LambdaLR(
        adam, lambda i: min(1, (i + 1) / 50) * max(0.02, (1 + math.cos(math.pi * i / STEPS)) / 2)
    )
    for _ in range(STEPS):
        parts = passkeys(BATCH - REPEATS, chain, random), repeats(REPEATS, random)
        text, wanted = (torch.cat(both) for both in zip(*parts, strict=True))
        loss = functional.cross_entropy(
            model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten(), reduction="none"
        )
        weight = 1.0 + 4 * wanted[:, 1:].flatten()
        adam.zero_grad()
        ((loss * weight).sum() / weight.sum()).backward()
        adam.step()
        rate.step()
    return model


# --- Quantization --------------------------------------------------------------------------------------------


def stored_as(bits, group):
    """Return a function that quantizes and dequantizes rows of whole groups with so many bits."""
    if bits == 16:
        return lambda rows: rows
    name = f"int{bits}"
    return lambda rows: attn.dequantize(*attn.quantize(rows, name, group=group), name, group=group)


def recall(model, text, wanted, pair):
    """Return recall. Both heads of a token are one row, in groups of a head: rows of 32 features of 2 bits are shorter
    than kernels take."""

    def stored(*parts):
        rows = (part.transpose(1, 2).flatten(2) for part in parts)
        read = (stored_as(bits, DIM)(row) for bits, row in zip(pair, rows, strict=True))
        return [row.unflatten(2, (KV_HEADS, DIM)).transpose(1, 2) for row in read]

    with torch.no_grad():
        said = model(text[:, :-1], stored).argmax(-1)
    return (said == text[:, 1:])[wanted[:, 1:]].float().mean().item()


def measure(seed):
    """Return recall by pair of bits of a model trained from this seed, on texts that it has not seen."""
    torch.manual_seed(seed)
    random = torch.Generator().manual_seed(seed)
    chain = markov_chain(random)
    model = train(chain, random)
    text, wanted = passkeys(256, chain, random)
    return {name_of(pair): recall(model, text, wanted, pair) for pair in PAIRS}


def output_errors(outliers, *, tokens=4096, dim=128, rows=64, seed=0):
    """Return the relative error of attention's output by pair of bits, for Gaussian queries, keys and values;
    `outliers` channels of the keys are six times as large. Queries of half the size leave scores that differ by some
    units."""
    random = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(n, dim, generator=random) for n in (rows, tokens, tokens))
    k[:, torch.randperm(dim, generator=random)[:outliers]] *= 6
    q /= 2

    def attend(pair):
        keys, values = (stored_as(bits, dim)(x).double() for bits, x in zip(pair, (k, v), strict=True))
        return (q.double() @ keys.T / math.sqrt(dim)).softmax(-1) @ values

    exact = attend((16, 16))
    return {
        name_of(pair): ((attend(pair) - exact).norm() / exact.norm()).item()
        for pair in PAIRS
        if pair != (16, 16)
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, help="models to train, of which the median counts")
    parser.add_argument("--errors", action="store_true", help="the errors of outputs, without training")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    args = parser.parse_args()

    rows = []
    if args.errors:
        for outliers in (0, 4):
            rows.append({"outliers": outliers, **output_errors(outliers)})
            print(
                f"{outliers} outlier channels",
                *(f"{n} {e:.3f}" for n, e in rows[-1].items() if n != "outliers"),
            )
    else:
        for seed in range(args.seeds):
            rows.append({"seed": seed, **measure(seed)})
            print(f"seed {seed}", *(f"{n} {r:.4f}" for n, r in rows[-1].items() if n != "seed"), flush=True)
        medians = {name: statistics.median(row[name] for row in rows) for name in map(name_of, PAIRS)}
        print("median", *(f"{name} {value:.4f}" for name, value in medians.items()))
    if args.json:
        write_report(args.json, "recall", rows)


if __name__ == "__main__":
    main()
