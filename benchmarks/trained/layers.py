# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a format costs in one layer while all others keep 16 bits: the part layers of `bench real`.

The text is read at once. The layer's keys and values go through pages of the format, and every row attends to what is stored;
all other layers use PyTorch's attention. KL is from PyTorch's attention in every layer, the mean over the second half of the
text. The format "16 bits" shows the difference of the kernels alone.

A GPU takes 4,096 tokens, a CPU 256, and `--quick` 64; `--tokens` and `--formats` are as of the part formats.
"""

import attn
import torch
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface

from .formats import FORMATS, Text, divergence

NAME = "one layer in pages"


class Pages:
    """Pages of a format for one layer."""

    def __init__(self, config, tokens, dtype, device, formats):
        sizes = {"kv_heads": config.num_key_value_heads, "head_dim": config.head_dim, "dtype": dtype}
        where = "host" if device == "cpu" else device
        spec = attn.Spec(
            q_heads=config.num_attention_heads, **sizes, kv=[attn.Paged(**formats)], see=attn.causal()
        )
        self.kernel = attn.compile(spec, device=where)
        self.cache = attn.PagedCache(layers=1, pages=-(-tokens // 16) + 1, device=where, **sizes, **formats)
        self.change = self.cache.append(node := self.cache.add(), tokens)
        self.plan = self.kernel.plan(self.cache.batch([(node, tokens)]))

    def attend(self, q, k, v):
        """q, k, v: [1, heads, tokens, dim]."""
        q, k, v = (each[0].transpose(0, 1).contiguous() for each in (q, k, v))
        self.change.write(0, k, v)
        return self.kernel.run(q, self.cache.layer(0), self.plan)[None]


def attention(module, query, key, value, mask, pages_of_layer=(None, None), **kwargs):
    layer, pages = pages_of_layer
    if module.layer_idx == layer:
        return pages.attend(query, key, value), None
    out = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    return out.transpose(1, 2), None


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, lambda *args, **kwargs: None)


def measure_layers(load, asked):
    """Yield a row for each format."""
    model = load(torch.float16, NAME)
    text = Text(asked, 4096, 256, 64)
    tokens, device = text.ids.shape[1], str(model.device)

    def read(layer=None, pages=None):
        options = {"use_cache": False, "logits_to_keep": tokens - text.prefix}
        return model(text.ids, pages_of_layer=(layer, pages), **options).logits[0]

    with torch.inference_mode():
        exact = read()
        for name in asked.formats:
            found = []
            for layer in range(model.config.num_hidden_layers):
                pages = Pages(model.config, tokens, model.dtype, device, FORMATS[name])
                found.append(divergence(exact, read(layer, pages)))
            yield {"part": "layers", "format": name, "tokens": tokens, "kl": found}


def add_options(parser):
    pass


def line(row):
    kl = row["kl"]
    worst = sorted(range(len(kl)), key=kl.__getitem__)[-3:][::-1]
    names = ", ".join(f"{layer} ({kl[layer]:.6f})" for layer in worst)
    return f"{row['format']:10} KL {sum(kl) / len(kl):.6f} in the mean layer, most in layers {names}"


PARTS = {"layers": measure_layers}
