# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tokens that come one at a time over what DiffKV's policies keep: the parts diffkv and recall of `bench real`.

diffkv   Several texts are a batch. The prefix of each is read as a prompt, and its next tokens come one at a time. Perplexity
         and KL are of these tokens; KL is from 16-bit pages that keep all.
recall   The texts hide numbers (examples/13_real_model/passkeys.py). Recall is the share of digits that the model predicts,
         each after the correct earlier ones. The text up to the first answer is the prompt.

`times` is the bytes of 16-bit keys and values over those of the cache at the end. Thresholds are `--alphas`, and with
`--growth NATS` also those that DiffKV.calibrate finds for so much loss on other text, sources of the standard library.

A GPU reads 16 texts with a prefix of 4,096 tokens, a CPU 2 of 256, and `--quick` one of 64.
"""

import time

import attn.transformers
import smollm2
import torch
from attn import kv_policy
from passkeys import passkeys

from .formats import divergence, pages_of, perplexity

ALPHAS = ((1.0, 0.0), (1.0, 0.2), (8.0, 0.0))
WINDOW = 64
CALIBRATION_STEPS = 4


class Sizes:
    """The sizes of the device, or those that were asked for."""

    def __init__(self, asked):
        usual = (64, 1, 4) if asked.quick else (4096, 16, 48) if asked.device == "cuda" else (256, 2, 16)
        given = asked.prefix, asked.texts, asked.answers
        self.prefix, self.texts, self.answers = (
            default if value is None else value for value, default in zip(given, usual, strict=True)
        )


def policies(model, asked, sizes):
    """Yield the policies: their name, their thresholds and whether these were calibrated."""
    for like in asked.likes:
        for pair in asked.alphas or ALPHAS:
            yield like, pair, False
        if asked.growth is not None:
            text, length = (
                smollm2.tokenizer()(smollm2.code()).input_ids,
                sizes.prefix // 2 + sizes.answers // 2,
            )
            texts = [text[at * length : (at + 1) * length] for at in range(min(sizes.texts, 8))]
            found = kv_policy.DiffKV.calibrate(
                model,
                torch.tensor(texts, device=model.device),
                asked.growth,
                answers=sizes.answers // 2,
                steps=CALIBRATION_STEPS,
                like=like,
                window=WINDOW,
                progress=lambda run: print(f"    {run}", flush=True),
            )
            yield like, (found.alpha_high, found.alpha_low), True


def caches(model, asked, sizes, texts, tokens):
    """Yield a row's first facts, and a new cache for so many texts of so many tokens."""
    yield (
        {"policy": "16 bits", "alphas": None, "calibrated": False},
        pages_of(model, {}, texts * (tokens + 16)),
    )
    lists = model.config.num_hidden_layers * model.config.num_key_value_heads
    for like, pair, calibrated in policies(model, asked, sizes):
        policy = kv_policy.DiffKV(alpha_high=pair[0], alpha_low=pair[1], window=WINDOW, like=like)
        cache = attn.transformers.DiffKVCache(
            model.config, policy, pages=texts * lists * (tokens // 16 + 3), tokens=tokens
        )
        yield {"policy": like, "alphas": pair, "calibrated": calibrated}, cache


def one_by_one(model, ids, prefix, cache):
    """Logits of the rows that predict ids[:, prefix:], [texts, tokens, words]."""
    logits = [model(ids[:, :prefix], past_key_values=cache, logits_to_keep=1).logits]
    for at in range(prefix, ids.shape[1] - 1):
        logits.append(model(ids[:, at : at + 1], past_key_values=cache).logits)
    return torch.cat(logits, 1)


def times(cache):
    """Bytes of 16-bit keys and values over those of the cache."""
    return cache.stats()["compression"] if isinstance(cache, attn.transformers.DiffKVCache) else 1.0


@torch.inference_mode()
def measure_diffkv(load, asked):
    """Yield a row for each policy and pair of thresholds, beside 16-bit pages."""
    model, sizes, base = load(torch.float16, "attn"), Sizes(asked), None
    text = smollm2.tokenizer()(smollm2.prose()).input_ids
    length = sizes.prefix + sizes.answers
    step = (len(text) - length) // max(sizes.texts - 1, 1)
    texts = [text[at * step : at * step + length] for at in range(sizes.texts)]
    ids = torch.tensor(texts, device=model.device)
    for facts, cache in caches(model, asked, sizes, len(texts), length):
        begin = time.perf_counter()
        logits = one_by_one(model, ids, sizes.prefix, cache).flatten(0, 1)
        base = logits if base is None else base
        wanted = ids[:, sizes.prefix :].flatten()
        yield {
            **{"part": "diffkv", **facts, "times": times(cache)},
            "prefix": sizes.prefix,
            "answers": wanted.numel(),
            "perplexity": perplexity(
                torch.nn.functional.cross_entropy(logits.float(), wanted, reduction="none")
            ),
            "kl": divergence(base, logits),
            "s": time.perf_counter() - begin,
        }


@torch.inference_mode()
def measure_recall(load, asked):
    """Yield a row for each policy and pair of thresholds, beside 16-bit pages."""
    model, sizes = load(torch.float16, "attn"), Sizes(asked)
    data = passkeys(smollm2.tokenizer(), sizes.prefix, training=False, names=1 if asked.quick else 4)
    texts = [data(step) for step in range(sizes.texts)]
    ids = torch.cat([each.tokens for each in texts]).to(model.device)
    answers = torch.cat([each.answers for each in texts])
    first = int(answers.any(0).nonzero()[0])
    for facts, cache in caches(model, asked, sizes, len(ids), ids.shape[1]):
        begin = time.perf_counter()
        said = one_by_one(model, ids, first, cache).argmax(-1)
        right = (said == ids[:, first:]).cpu()[answers[:, first:]]
        yield {
            **{"part": "recall", **facts, "times": times(cache)},
            "prefix": first,
            "digits": right.numel(),
            "recall": right.float().mean().item(),
            "s": time.perf_counter() - begin,
        }


def add_options(parser):
    parser.add_argument("--prefix", type=int, help="tokens of a prompt of the parts diffkv and recall")
    parser.add_argument("--texts", type=int, help="texts of these parts")
    parser.add_argument("--answers", type=int, help="tokens that come one at a time, in each text of diffkv")
    parser.add_argument("--alphas", type=float, nargs=2, action="append", metavar=("HIGH", "LOW"))
    parser.add_argument("--likes", nargs="+", choices=("paper", "release"), default=["paper", "release"])
    parser.add_argument("--growth", type=float, help="nats of loss for which thresholds are calibrated")


def line(row):
    pair = (
        row["alphas"] and f"({row['alphas'][0]:g}, {row['alphas'][1]:g}){' calibrated' * row['calibrated']}"
    )
    name = f"{row['policy']} {pair or ''}"
    what = (
        f"recall {row['recall']:.3f} of {row['digits']} digits"
        if row["part"] == "recall"
        else f"perplexity {row['perplexity']:8.4f}  KL {row['kl']:.6f}"
    )
    return f"{name:28} {row['times']:.2f} times fewer bytes  {what}  {row['s']:6.1f} s"


PARTS = {"diffkv": measure_diffkv, "recall": measure_recall}
