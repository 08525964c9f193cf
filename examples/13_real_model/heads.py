# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the heads of SmolLM2-135M-Instruct that retrieve, and answers from a cache in which the others keep few tokens.

Gates are trained as DuoAttention's (attn.heads.identify) on texts with hidden numbers, and saved as the release has them,
with a picture. Then fresh texts are read: by the full model, by one half of whose KV heads stream, and by one with a random
half. At last the model answers a question about a hidden number over pages, with a store for each class of heads: streaming
heads keep the first and the last tokens alone.

With default sizes that takes about a minute of one idle core, and no GPU.
"""

import argparse
import time
from pathlib import Path

import attn
import numpy
import smollm2
import torch
from passkeys import first_question, passkeys
from transformers import AttentionInterface, AttentionMaskInterface

NAME = "classes of heads in pages"


class ClassedPages:
    """Keys and values of a model in two stores of pages: retrieval heads keep all tokens, streaming heads the sink and the
    recent ones."""

    def __init__(self, model, choice, tokens, chunk):
        config, self.model, self.classes = model.config, model, choice.classes.tolist()
        sizes = {"kv_heads": config.num_key_value_heads, "head_dim": config.head_dim, "dtype": model.dtype}
        where = "host" if model.device.type == "cpu" else str(model.device)
        near = {"sink": choice.sink, "recent": choice.recent}
        few = sum(-(-size // 16) for size in (choice.sink, choice.recent, chunk)) + 2
        streaming = [sum(of_layer) for of_layer in self.classes]
        retrieval = [config.num_key_value_heads - count for count in streaming]
        self.pools = [
            attn.CacheClass(name="retrieval", pages=-(-tokens // 16) + 1, heads=retrieval),
            attn.CacheClass(name="streaming", pages=few, heads=streaming, **near),
        ]
        spec = attn.Spec(
            **{"q_heads": config.num_attention_heads, **sizes, "see": attn.causal(), "return_lse": False},
            heads=attn.heads(
                retrieval=attn.all_tokens(), streaming=attn.sink(choice.sink) | attn.recent(choice.recent)
            ),
            kv=[
                attn.Paged(name="all", head_class="retrieval"),
                attn.Paged(name="few", head_class="streaming"),
            ],
        )
        self.kernel = attn.compile(spec, device=where)
        layers = config.num_hidden_layers
        self.cache = attn.PagedCache(layers=layers, classes=self.pools, device=where, **sizes)
        self.sequence, self.chunk, self.length = self.cache.add(), chunk, 0

    def generate(self, prompt, count):
        """Return so many greedy tokens that follow a prompt [1, tokens], which is read in chunks."""
        for rows in prompt.split(self.chunk, 1):
            said = self._read(rows)
        made = [said]
        while len(made) < count:
            made.append(self._read(made[-1].view(1, 1)))
        return torch.stack(made).cpu()

    def _read(self, rows):
        """Append tokens [1, rows]; returns the token that follows them."""
        begin, count = self.length, rows.shape[1]
        self.change, self.plans = self.cache.append(self.sequence, count), {}
        self.length += count
        at = torch.arange(begin, self.length, device=self.model.device)[None]
        given = {"input_ids": rows.to(self.model.device), "position_ids": at, "logits_to_keep": 1}
        return self.model(**given, use_cache=False, classed_pages=self).logits[0, -1].argmax()

    def attend(self, layer, q, k, v):
        """Compute a layer's attention, [rows, heads, dim]. Layers with as many heads of each class share a plan."""
        classes = self.classes[layer]
        self.change.write(layer, k.contiguous(), v.contiguous(), classes=classes)
        if sum(classes) not in self.plans:
            rows = [(self.sequence, len(q))]
            self.plans[sum(classes)] = self.kernel.plan(self.cache.batch(rows, classes=classes))
        plan = self.plans[sum(classes)]
        return self.kernel.run(q.contiguous(), self.cache.layer(layer), plan, classes=classes)

    def held_bytes(self):
        """Return the bytes of keys and values in pages that are in use, in all layers."""
        of_page = 2 * 16 * self.model.config.head_dim * self.model.dtype.itemsize
        used = (pool.pages - self.cache.free_pages(pool.name) for pool in self.pools)
        return sum(count * sum(pool.heads) * of_page for count, pool in zip(used, self.pools, strict=True))


def attention(module, query, key, value, mask, classed_pages=None, **kwargs):
    q, k, v = (each[0].transpose(0, 1) for each in (query, key, value))
    return classed_pages.attend(module.layer_idx, q, k, v)[None], None


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, lambda *args, **kwargs: None)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=320, help="tokens of a text")
    parser.add_argument("--steps", type=int, default=16, help="steps of training")
    parser.add_argument("--sink", type=int, default=16, help="first tokens that a streaming head sees")
    parser.add_argument("--recent", type=int, default=64, help="last tokens that it sees")
    parser.add_argument("--texts", type=int, default=4, help="fresh texts, of 20 digits each")
    parser.add_argument("--names", type=int, default=4, help="numbers that a text hides, 1 to 8")
    parser.add_argument("--folder", type=Path, default=Path("smollm2-heads"), help="where gates are saved")
    asked = parser.parse_args()
    device, tokens = smollm2.device(), smollm2.tokenizer()
    model = smollm2.load(torch.float16 if device == "cuda" else torch.float32, device, "sdpa")

    def texts_of(training):
        return passkeys(tokens, asked.tokens, training=training, names=asked.names)

    begin = time.perf_counter()
    gates = attn.heads.identify(
        model,
        texts_of(training=True),
        sink=asked.sink,
        recent=asked.recent,
        steps=asked.steps,
        rate=0.05,
    )
    print(f"{asked.steps} steps of {asked.tokens} tokens in {time.perf_counter() - begin:.0f} s")
    half = gates.select(sparsity=0.5)
    folder = gates.save(asked.folder)
    print(f"{folder}: gates, and {gates.draw(folder / 'gates.svg', half).name} with the half that retrieves")

    drawn = attn.heads.Gates(
        numpy.random.default_rng(0).random(gates.values.shape), sink=asked.sink, recent=asked.recent
    )
    fresh = texts_of(training=False)
    texts = [fresh(step) for step in range(asked.texts)]
    choices = {
        "all heads retrieve": None,
        "half of them": half,
        "a random half": drawn.select(sparsity=0.5),
        "none": attn.heads.HeadChoice(
            numpy.ones(half.classes.shape, int), sink=asked.sink, recent=asked.recent
        ),
    }
    for name, choice in choices.items():
        found = sum(attn.heads.recall(model, each, choice) for each in texts) / len(texts)
        print(f"recall, {name:18} {found:.3f}", flush=True)

    prompt, answer = first_question(texts[0])
    model = smollm2.load(torch.float16, device, NAME)
    with torch.inference_mode():
        pages = ClassedPages(model, half, prompt.shape[1] + len(answer), chunk=64)
        made = pages.generate(prompt, len(answer))
    asks = tokens.decode(prompt[0]).rsplit("Question: ")[-1]
    print(f"{asks}{tokens.decode(made)} (it is {tokens.decode(answer)})")
    everything = 4 * pages.length * half.classes.size * model.config.head_dim
    print(
        f"{pages.length} tokens: {pages.held_bytes() / 1e6:.2f} MB of keys and values in pages, not {everything / 1e6:.2f}"
    )


if __name__ == "__main__":
    main()
