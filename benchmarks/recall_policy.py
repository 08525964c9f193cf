# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cost of a cache that compresses itself for a model: recall of passkeys (recall.py) with DiffKV's policy.

The haystack with its passkeys is a prompt, read in 16 bits. The questions at the end come a token at a time, over the
tokens that the policy has kept of each KV head: K8V4, K4V2 or nothing. The high threshold is searched for on other
texts, so that keys and values take a given number of times fewer bytes than in 16 bits, including metadata. Beside it
are the same model in 16 bits and all tokens in one format; and the policy with a low threshold at which it prunes,
which is not searched for.
"""

import argparse
import statistics
from pathlib import Path

import recall
import torch
from attn import kv_policy
from attn.kv_policy import HIGH, LOW, PRUNED
from measuring.report import write_report
from recall import DIM, KV_HEADS, LENGTH, Q_HEADS, RECALL

PROMPT, WINDOW, GROUP = LENGTH - RECALL, 16, Q_HEADS // KV_HEADS
TOKEN_BYTES = {HIGH: 8 * DIM // 8 + 4 * DIM // 8 + 8, LOW: 4 * DIM // 8 + 2 * DIM // 8 + 8, PRUNED: 0}
"""Bytes of one head: quantized values, and a scale and a zero point of keys and of values."""
PLAIN_BYTES = 4 * DIM
TARGET = 3.0


class Fixed:
    """A policy that keeps every token alike."""

    rows, group = None, "max"

    def __init__(self, level):
        self.level = level

    def prompt(self, significance):
        """Implement Policy.prompt."""
        lists, tokens = significance.shape
        return kv_policy.Kept(
            *[torch.zeros(lists, LENGTH)] * 2, torch.full((lists, LENGTH), self.level), torch.tensor([tokens])
        )

    def step(self, kept, significance):
        """Implement Policy.step: changes nothing."""


class Stored:
    """Keys and values of a layer's lists, and their dequantized values as HIGH and as LOW."""

    def __init__(self, plain):
        self.plain = plain
        self.parts = None

    def append(self, k, v):
        """Append keys and values, [lists, tokens, dim]."""
        if self.plain:
            both = [(x, x) for x in (k, v)]
        else:
            both = []
            for x, high, low in ((k, 8, 4), (v, 4, 2)):
                rows = x.unflatten(0, (-1, KV_HEADS)).transpose(1, 2).flatten(2)
                first = recall.stored_as(high, DIM)(rows)
                back = [
                    y.unflatten(2, (KV_HEADS, DIM)).transpose(1, 2).flatten(0, 1)
                    for y in (first, recall.stored_as(low, DIM)(first))
                ]
                both.append(back)
        new = [x for pair in both for x in pair]
        self.parts = (
            new if self.parts is None else [torch.cat(pair, 1) for pair in zip(self.parts, new, strict=True)]
        )

    def read(self, level):
        """Return keys and values as they are kept."""
        tokens = self.parts[0].shape[1]
        is_high = (level[:, :tokens] == HIGH)[..., None]
        return [torch.where(is_high, self.parts[i], self.parts[i + 1]) for i in (0, 2)]


def weights_of(q, k, seen):
    """Return weights [lists, group, rows, tokens] of q [lists, group, rows, dim] and k [lists, tokens, dim]."""
    scores = torch.einsum("lgrd,ltd->lgrt", q, k) / DIM**0.5
    return scores.masked_fill(~seen, -torch.inf).softmax(-1)


def project(model, layer, x, first):
    """Return queries [lists, group, rows, dim], keys and values [lists, rows, dim] of positions from `first` on."""
    y = layer.norm(x)
    q = layer.q(y).unflatten(-1, (KV_HEADS, GROUP, DIM))
    k, v = layer.kv(y).unflatten(-1, (2, KV_HEADS, DIM)).unbind(2)
    cos, sin = (table[first : first + x.shape[1]] for table in (model.cos, model.sin))

    def rotate(t):
        a, b = t.transpose(1, -2).chunk(2, -1)  # [..., rows, dim]
        return torch.cat((a * cos - b * sin, a * sin + b * cos), -1).transpose(1, -2)

    q, k = rotate(q), rotate(k)
    return (
        q.permute(0, 2, 3, 1, 4).flatten(0, 1),
        k.transpose(1, 2).flatten(0, 1),
        v.transpose(1, 2).flatten(0, 1),
    )


def finish(layer, x, o):
    """Return the layer's output from o [lists, group, rows, dim]."""
    o = o.unflatten(0, (-1, KV_HEADS)).permute(0, 3, 1, 2, 4).flatten(2)
    return x + layer.out(o)


def measure(model, text, wanted, policy, plain=False, wanted_text=None):
    """Return recall of `wanted_text`, by default the text itself, and how many times fewer bytes there are at the end."""
    answers = text if wanted_text is None else wanted_text
    x = model.embedding(text[:, :PROMPT])
    states = []
    causal = torch.ones(PROMPT, PROMPT, dtype=torch.bool).tril()
    for layer in model.layers:
        q, k, v = project(model, layer, x, 0)
        p = weights_of(q, k, causal)
        x = finish(layer, x, torch.einsum("lgrt,ltd->lgrd", p, v))
        rows = p if policy.rows is None else p[:, :, -policy.rows :]
        kept, stored = policy.prompt(rows.sum(2).amax(1)), Stored(plain)
        stored.append(k, v)
        states.append((kept, stored))
    said = []
    for at in range(PROMPT, LENGTH - 1):
        x = model.embedding(text[:, at : at + 1])
        for layer, (kept, stored) in zip(model.layers, states, strict=True):
            q, k, v = project(model, layer, x, at)
            stored.append(k, v)
            level = kept.level[:, : at + 1].clone()
            if level.shape[1] == at:
                level = torch.nn.functional.pad(level, (0, 1))
            if not isinstance(policy, Fixed):
                level[:, at] = HIGH
            keys, values = stored.read(level)
            p = weights_of(q, keys, (level != PRUNED)[:, None, None])
            x = finish(layer, x, torch.einsum("lgrt,ltd->lgrd", p, values))
            policy.step(kept, p[:, :, 0].amax(1))
        said.append(model.head(model.norm(x))[:, 0].argmax(-1))
    right = torch.stack(said, 1) == answers[:, PROMPT + 1 :]
    asked = wanted[:, PROMPT + 1 :]
    levels = torch.cat([kept.level[:, : LENGTH - 1] for kept, _ in states])
    stored = sum(TOKEN_BYTES[level] * int((levels == level).sum()) for level in TOKEN_BYTES)
    return right[asked].float().mean().item(), PLAIN_BYTES * levels.numel() / stored


def search(model, text, wanted, like, target=TARGET):
    """Return the least alpha_high, with a low threshold of 0, at which texts take `target` times fewer bytes."""
    low, high = 0.0, 16.0
    for _ in range(8):
        middle = (low + high) / 2
        policy = kv_policy.DiffKV(middle, 0.0, WINDOW, like=like)
        low, high = (low, middle) if measure(model, text, wanted, policy)[1] >= target else (middle, high)
    return high


def of_seed(seed, texts=256):
    """Return recall and compression by name, of a model trained from this seed, on texts that it has not seen."""
    torch.manual_seed(seed)
    random = torch.Generator().manual_seed(seed)
    chain = recall.markov_chain(random)
    model = recall.train(chain, random)
    text, wanted = recall.passkeys(texts, chain, random)
    other = recall.passkeys(64, chain, random)
    row = {"seed": seed}
    with torch.no_grad():
        row["K16V16"], _ = measure(model, text, wanted, Fixed(HIGH), plain=True)
        row["K8V4"], row["K8V4 compression"] = measure(model, text, wanted, Fixed(HIGH))
        row["K4V2"], row["K4V2 compression"] = measure(model, text, wanted, Fixed(LOW))
        for like in ("paper", "release"):
            alpha = row[f"{like} alpha_high"] = search(model, *other, like)
            policy = kv_policy.DiffKV(alpha, 0.0, WINDOW, like=like)
            row[like], row[f"{like} compression"] = measure(model, text, wanted, policy)
            policy = kv_policy.DiffKV(alpha, min(alpha, 0.05), WINDOW, like=like)
            row[f"{like} pruning"], row[f"{like} pruning compression"] = measure(model, text, wanted, policy)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, help="models to train, of which the median counts")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    args = parser.parse_args()
    rows = []
    for seed in range(args.seeds):
        rows.append(of_seed(seed))
        print(
            *(f"{n} {r:.4f}" if isinstance(r, float) else f"{n} {r}" for n, r in rows[-1].items()), flush=True
        )
    names = [name for name in rows[0] if name != "seed"]
    print("median", *(f"{name} {statistics.median(row[name] for row in rows):.4f}" for name in names))
    if args.json:
        write_report(args.json, "recall_policy", rows)


if __name__ == "__main__":
    main()
