# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Drafts without a second model: what followed the last tokens when they stood in the text before (prompt lookup).

Several continuations make a tree. A step verifies all of it behind the text's pages, with one launch per layer, and keeps
the longest path that the model would have chosen itself. Steps have a fixed size, so on a GPU one CUDA graph serves them
all. The tokens are those of greedy decoding one by one; where two tokens are equally likely, rounding decides.
"""

import argparse
import sys
import time

import attn
import smollm2
import torch
from transformers import AttentionInterface, AttentionMaskInterface

NAME = "drafts in pages"
LENGTH = 8  # tokens of a continuation
TIE = 0.02  # between two logits, as in answer.py


class Pages:
    """A model's keys and values in pages, with a tree of drafts behind them."""

    def __init__(self, model, tokens, drafts):
        config, rows = model.config, drafts + 1
        sizes = {"kv_heads": config.num_key_value_heads, "head_dim": config.head_dim, "dtype": model.dtype}
        where = "host" if model.device.type == "cpu" else str(model.device)
        stores = [attn.Paged(name="kv"), attn.Paged(name="draft", page_size=1)]
        asked = {"q_heads": config.num_attention_heads, **sizes, "see": attn.causal()}
        self.read = attn.compile(attn.Spec(kv=stores[:1], **asked), device=where)
        self.verify = attn.compile(attn.Spec(kv=stores, device_plan=True, **asked), device=where)
        pages = -(-tokens // 16) + -(-rows // 16) + 2
        layers = config.num_hidden_layers
        self.cache = attn.PagedCache(layers=layers, pages=pages, draft_page=1, device=where, **sizes)
        self.leaf, self.model, self.steps = self.cache.add(), model, 0
        depth = min(LENGTH, drafts) + 1
        capacity = {"sequences": rows, "rows": rows, "tokens": tokens + depth, "drafts": depth}
        # The host device runs blocks one after the other, and the launch of a recorded step has all of them.
        self.tables = self.cache.steps(self.verify, **capacity, blocks=4 if where == "host" else 0)
        self.ids, self.positions = torch.zeros(2, 1, rows, dtype=torch.int64, device=model.device)
        self.write = self.kernel = self.plan = None
        with torch.inference_mode():
            self.captured = self.tables.capture(self._verify)

    def attend(self, layer, q, k, v):
        """q, k, v: [rows, heads, dim]."""
        self.write(layer, k.contiguous(), v.contiguous())
        return self.kernel.run(q.contiguous(), self.cache.layer(layer), self.plan)

    def prompt(self, ids):
        """The token that follows a text."""
        self.write, self.kernel = self.cache.append(self.leaf, len(ids)).write, self.read
        self.plan = self.read.plan(self.cache.batch([(self.leaf, len(ids))]))
        given = torch.tensor([ids], device=self.model.device)
        return self._next(given, torch.arange(len(ids), device=given.device)[None], 1).item()

    def step(self, ids, parents):
        """Reads a tree of tokens, ids[0] being known to be right. Gives the tokens of its longest right path and what
        follows it, and keeps that path."""
        depth, count = [self.cache.tokens(self.leaf)], len(ids)
        for parent in parents[1:]:
            depth.append(depth[parent] + 1)
        self.tables.speculate(self.leaf, parents)
        self.ids[0, :count], self.positions[0, :count] = torch.tensor([ids, depth], device=self.ids.device)
        self.tables.update([(self.leaf, 0, True)])
        chosen, self.steps = self.captured.replay()[:count].tolist(), self.steps + 1
        at, path = 0, []
        while at is not None:
            last, path = at, [*path, chosen[at]]
            at = next((n for n in range(count) if parents[n] == at and ids[n] == chosen[at]), None)
        self.cache.commit(self.leaf, last)
        return path

    def _verify(self):
        """A step of any tree: the same launches whatever the tables hold."""
        self.write, self.kernel, self.plan = self.tables.write, self.verify, self.tables.plan()
        return self._next(self.ids, self.positions, 0)

    def _next(self, ids, positions, rows):
        """The likeliest token after each of the last so many rows (0: all)."""
        options = {"use_cache": False, "logits_to_keep": rows, "pages_of_drafts": self}
        return self.model(input_ids=ids, position_ids=positions, **options).logits[0].argmax(-1)


def attention(module, query, key, value, mask, pages_of_drafts=None, **kwargs):
    q, k, v = (each[0].transpose(0, 1) for each in (query, key, value))
    return pages_of_drafts.attend(module.layer_idx, q, k, v)[None], None


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, lambda *args, **kwargs: None)


def look_up(text, most):
    """A tree of at most so many tokens that followed the text's last tokens before, the latest and longest matches first:
    tokens and the parent of each, behind a root that is the text's last token. Each branch is given from its first token
    to its last."""
    children, count = {}, 0
    for size in (3, 2, 1):
        tail = text[-size:]
        for at in range(len(text) - size - 1, -1, -1):
            if count == most:
                break
            if text[at : at + size] != tail:
                continue
            node = children
            for token in text[at + size : at + size + LENGTH]:
                if token not in node and count == most:
                    break
                count += token not in node
                node = node.setdefault(token, {})
    ids, parents, open_ = [], [], [(text[-1], -1, children)]
    while open_:
        token, parent, below = open_.pop()
        ids.append(token)
        parents.append(parent)
        open_ += [(token, len(ids) - 1, more) for token, more in reversed(below.items())]
    return ids, parents


def generate(model, prompt, count, drafts):
    """So many greedy tokens behind a prompt, with trees of so many drafts (0: one by one). Gives tokens, steps, seconds."""
    pages = Pages(model, len(prompt) + count + LENGTH, drafts)
    text = [*prompt, pages.prompt(prompt)]
    begin = time.perf_counter()
    while len(text) - len(prompt) < count:
        text += pages.step(*look_up(text, drafts))
    return text[len(prompt) :][:count], pages.steps, time.perf_counter() - begin


def parting(model, prompt, made, expected):
    """Return where two answers part, and the gap that `model` has between their tokens there; None if they are the same."""
    at = next((n for n, (one, other) in enumerate(zip(made, expected, strict=True)) if one != other), None)
    if at is None:
        return None
    ids = torch.tensor([[*prompt, *expected[:at]]], device=model.device)
    logits = model(ids, logits_to_keep=1).logits[0, -1]
    return at, (logits[expected[at]] - logits[made[at]]).abs().item()


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
    source = tokens(smollm2.code("statistics.py")).input_ids[1000 : 1000 + asked.context]
    first, wrong = None, False
    with torch.inference_mode():
        for drafts in asked.drafts:
            made, steps, seconds = generate(model, source, asked.tokens, drafts)
            first, same = first or made, "the same tokens"
            if made != first:
                at, gap = parting(smollm2.load(torch.float32, device, "eager"), source, made, first)
                wrong |= gap > TIE
                said = "wrong" if gap > TIE else "a tie"
                same = f"other tokens from token {at} on ({said}: float32 has a gap of {gap:.4f} there)"
            rate = (len(made) - 1) / max(steps, 1)
            print(
                f"{drafts:3} drafts: {rate:.2f} tokens a step, {(len(made) - 1) / seconds:.1f} a second, {same}",
                flush=True,
            )
    print(repr(tokens.decode(first)))
    if wrong:
        sys.exit(f"wrong: where answers part, expected a gap of at most {TIE} between the two tokens")


if __name__ == "__main__":
    main()
