# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Drafts without a second model: what followed the last tokens when they stood in the text before (prompt lookup).

Several continuations make a tree. One launch per layer verifies all of it behind the text's pages, and the longest path
that the model would have chosen itself is kept. The tokens are those of greedy decoding one by one.
"""

import argparse
import time

import attn
import smollm2
import torch
from transformers import AttentionInterface, AttentionMaskInterface

NAME = "drafts in pages"


class Pages:
    """A model's keys and values in pages, with a tree of drafts behind them. Rows of a step are attended as one launch."""

    def __init__(self, model, tokens, drafts):
        config = model.config
        sizes = {"kv_heads": config.num_key_value_heads, "head_dim": config.head_dim, "dtype": model.dtype}
        where = "host" if model.device.type == "cpu" else str(model.device)
        pages = -(-(tokens + 1) // 16) + -(-drafts // 16) + 2
        stores = [attn.Paged(name="kv"), attn.Paged(name="draft", page_size=1)]
        heads = config.num_attention_heads
        asked = {"q_heads": heads, **sizes, "see": attn.causal()}
        self.read = attn.compile(attn.Spec(kv=stores[:1], **asked), device=where)
        self.verify = attn.compile(attn.Spec(kv=stores, **asked), device=where)
        layers = config.num_hidden_layers
        self.cache = attn.PagedCache(layers=layers, pages=pages, draft_page=1, device=where, **sizes)
        self.leaf, self.model, self.steps = self.cache.add(), model, 0
        self.change = self.kernel = self.plan = None

    def attend(self, layer, q, k, v):
        """q, k, v: [rows, heads, dim]."""
        self.change.write(layer, k.contiguous(), v.contiguous())
        return self.kernel.run(q.contiguous(), self.cache.layer(layer), self.plan)

    def prompt(self, ids):
        """The token that follows a text."""
        self.change = self.cache.append(self.leaf, len(ids))
        self.kernel, rows = self.read, (self.leaf, len(ids))
        return self._logits(ids, list(range(len(ids))), rows)[-1].argmax().item()

    def step(self, ids, parents):
        """Reads a tree of tokens, ids[0] being known to be right. Gives the tokens of its longest right path and what
        follows it, and keeps that path."""
        begin = self.cache.tokens(self.leaf)
        depth = [begin]
        for parent in parents[1:]:
            depth.append(depth[parent] + 1)
        self.change = self.cache.speculate(self.leaf, parents)
        self.kernel = self.verify
        chosen = self._logits(ids, depth, (self.leaf, 0, True)).argmax(-1).tolist()
        at, path = 0, []
        while at is not None:
            last, path = at, [*path, chosen[at]]
            at = next((n for n in range(len(ids)) if parents[n] == at and ids[n] == chosen[at]), None)
        self.cache.commit(self.leaf, last)
        return path

    def _logits(self, ids, positions, rows):
        self.plan, self.steps = self.kernel.plan(self.cache.batch([rows])), self.steps + 1
        where = {"device": self.model.device}
        given = {
            "input_ids": torch.tensor([ids], **where),
            "position_ids": torch.tensor([positions], **where),
        }
        return self.model(**given, use_cache=False, pages_of_drafts=self).logits[0]


def attention(module, query, key, value, mask, pages_of_drafts=None, **kwargs):
    q, k, v = (each[0].transpose(0, 1) for each in (query, key, value))
    return pages_of_drafts.attend(module.layer_idx, q, k, v)[None], None


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, lambda *args, **kwargs: None)


def look_up(text, most, length=8):
    """A tree of at most so many tokens that followed the text's last tokens before, the latest and longest matches first:
    tokens and the parent of each, behind a root that is the text's last token."""
    ids, parents, children = [text[-1]], [-1], {}
    for size in (3, 2, 1):
        tail = text[-size:]
        for at in range(len(text) - size - 1, -1, -1):
            if text[at : at + size] != tail:
                continue
            node = 0
            for token in text[at + size : at + size + length]:
                if (node, token) not in children:
                    if len(ids) > most:
                        return ids, parents
                    children[node, token] = len(ids)
                    ids.append(token)
                    parents.append(node)
                node = children[node, token]
    return ids, parents


def generate(model, prompt, count, drafts):
    """So many greedy tokens behind a prompt, with trees of so many drafts (0: one by one). Gives tokens, steps, seconds."""
    pages = Pages(model, len(prompt) + count + 16, drafts + 1)
    text = [*prompt, pages.prompt(prompt)]
    begin = time.perf_counter()
    while len(text) - len(prompt) < count:
        text += pages.step(*look_up(text, drafts))
    return text[len(prompt) :][:count], pages.steps - 1, time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--context", type=int, default=192, help="tokens of code in front")
    parser.add_argument("--tokens", type=int, default=48, help="to generate")
    parser.add_argument("--drafts", type=int, nargs="+", default=[0, 16, 64])
    asked = parser.parse_args()
    device = smollm2.device()
    model, tokens = smollm2.load(torch.float16, device, NAME), smollm2.tokenizer()
    source = tokens(smollm2.code("statistics.py")).input_ids
    first = {}
    with torch.inference_mode():
        for drafts in asked.drafts:
            made, steps, seconds = generate(model, source[1000 : 1000 + asked.context], asked.tokens, drafts)
            first.setdefault("made", made)
            same = "the same tokens" if made == first["made"] else "other tokens"
            rate = (len(made) - 1) / max(steps, 1)
            print(
                f"{drafts:3} drafts: {rate:.2f} tokens a step, {(len(made) - 1) / seconds:.1f} a second, {same}",
                flush=True,
            )
    print(repr(tokens.decode(made)))


if __name__ == "__main__":
    main()
