# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What cheaper keys and values cost: the parts formats and channels of `bench real`.

The model reads Python's language reference in float16.

formats    The whole text is read over pages of each format, so that every row attends to stored keys and values. Perplexity
           is that of the tokens after the prefix, the first half. KL is the mean over these rows of the divergence of the
           next token's distribution from that over 16-bit pages.
channels   The largest channel of keys and of values in each layer, as a multiple of the median channel (root mean squares).

A GPU takes 8,192 tokens, a CPU 1,024, and `--quick` 256.
"""

import math
import time

import attn.transformers
import smollm2
import torch

FORMATS = {
    "16 bits": {},
    "K8V8": {"key": "int8", "value": "int8"},
    "K8V4": {"key": "int8", "value": "int4"},
    "K4V8": {"key": "int4", "value": "int8"},
    "K4V4": {"key": "int4", "value": "int4"},
    "K4V2": {"key": "int4", "value": "int2"},
    "K2V4": {"key": "int2", "value": "int4"},
    "e4m3": {"key": "fp8_e4m3", "value": "fp8_e4m3"},
    "mxfp8": {"key": "mxfp8", "value": "mxfp8"},
    "mxfp4": {"key": "mxfp4", "value": "mxfp4"},
    "nvfp4": {"key": "nvfp4", "value": "nvfp4"},
}


class Text:
    """Tokens to read, [1, tokens], of which those after the prefix are counted: as many as asked for, or by default as a GPU,
    a CPU and `--quick` take."""

    def __init__(self, asked, gpu=8192, cpu=1024, quick=256):
        count = asked.tokens or (quick if asked.quick else gpu if asked.device == "cuda" else cpu)
        ids = smollm2.tokenizer()(smollm2.prose()).input_ids[:count]
        self.ids, self.prefix = torch.tensor([ids], device=asked.device), count // 2

    def losses(self, logits, end=None):
        """Nats of the tokens from the prefix to `end`: logits [rows, words] of the rows that predict them."""
        return torch.nn.functional.cross_entropy(
            logits.float(), self.ids[0, self.prefix : end], reduction="none"
        )


def perplexity(losses):
    return math.exp(losses.double().mean().item())


def divergence(expected, found, rows=256):
    """The mean KL of distributions, in nats, by parts of the rows, which are as wide as the vocabulary."""
    parts = []
    for each, other in zip(expected.split(rows), found.split(rows), strict=True):
        p, q = each.float().log_softmax(-1), other.float().log_softmax(-1)
        parts.append((p.exp() * (p - q)).sum(-1))
    return torch.cat(parts).mean().item()


def pages_of(model, formats, tokens):
    return attn.transformers.PagedCache(model.config, pages=tokens // 16 + 2, **formats)


def token_bytes(cache):
    return cache.pages.token_bytes


@torch.inference_mode()
def measure_formats(load, asked):
    """Yield a row for each format."""
    model, text = load(), Text(asked)
    base = None
    for name in ["16 bits", *[f for f in asked.formats if f != "16 bits"]]:
        begin = time.perf_counter()
        cache = pages_of(model, FORMATS[name], text.ids.shape[1])
        logits = model(text.ids, past_key_values=cache).logits[0, text.prefix - 1 : -1]
        base = logits if base is None else base
        losses = text.losses(logits)
        yield {
            "part": "formats",
            "format": name,
            "tokens": text.ids.shape[1],
            "prefix": text.prefix,
            "token_bytes": token_bytes(cache),
            "perplexity": perplexity(losses),
            "kl": divergence(base, logits),
            "same_token": (logits.argmax(-1) == base.argmax(-1)).float().mean().item(),
            "s": time.perf_counter() - begin,
        }


@torch.inference_mode()
def measure_channels(load, asked):
    """Yield a row for each layer."""
    model, text = load(), Text(asked)
    cache = pages_of(model, {}, text.ids.shape[1])
    model(text.ids, past_key_values=cache)
    for layer in range(model.config.num_hidden_layers):
        found = {"part": "channels", "layer": layer}
        for name, tensor in zip(("key", "value"), stored(cache, layer), strict=True):
            size = tensor.float().square().mean(0).sqrt()  # [heads, dim]
            found[name] = (size.amax(-1) / size.median(-1).values).max().item()
        yield found


def stored(cache, layer):
    """Keys and values of a layer's tokens, [tokens, heads, dim]."""
    tensors = cache.pages.layer(layer).tensors()
    slots = torch.from_numpy(cache.pages.slots(cache.nodes[0])).long()
    for name in ("k_pages", "v_pages"):
        pages = next(tensor for key, tensor in tensors.items() if key.endswith(name))
        yield pages.flatten(0, 1)[slots.to(pages.device)]


def add_options(parser):
    parser.add_argument(
        "--tokens", type=int, help="tokens of the text that formats, layers and channels read"
    )
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))


def line(row):
    if row["part"] == "channels":
        return f"layer {row['layer']:2}: keys {row['key']:6.2f}, values {row['value']:6.2f}"
    return (
        f"{row['format']:8} {row['token_bytes']:6} bytes  perplexity {row['perplexity']:8.4f}  KL {row['kl']:.6f}"
        f"  {row['s']:6.1f} s"
    )


PARTS = {"formats": measure_formats, "channels": measure_channels}
