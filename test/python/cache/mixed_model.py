# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model of a MixedCache: the policy of attn.kv_policy and dense tensors."""

import attn
import torch
from attn.cache.policy import HIGH, LOW

STORED = {HIGH: (("int8", "int4")), LOW: (("int4", "int2"))}


def rounded(numbers, format):
    """Return the numbers after quantization to a format and back, float32."""
    rows = numbers.float().reshape(-1, 1, numbers.shape[-1]).contiguous()
    return attn.dequantize(*attn.quantize(rows, format), format).reshape(numbers.shape)


def of_end(cache, layer, end):
    """Return the positions of each list's tokens at an end, in the order of storage."""
    page, table = cache.pool.page_tokens[end], cache.pool.table[layer].cpu()
    position, found = cache.position.cpu(), []
    for row, count in zip(table[: cache.used], cache.counts[end][layer].tolist(), strict=False):
        places = torch.arange(count)
        columns = places // page if end == 0 else cache.pool.columns - 1 - places // page
        found.append(position[row[columns].long(), places % page].long())
    return found


def levels_of(cache, layer, tokens):
    """Return the level of every token of each list: int8 [lists, tokens]."""
    levels = torch.zeros(cache.used, tokens, dtype=torch.int8)
    for end, level in enumerate((HIGH, LOW)[: len(cache.counts)]):
        for row, positions in zip(levels, of_end(cache, layer, end), strict=True):
            assert (row[positions] == 0).all() and len(set(positions.tolist())) == len(positions)
            row[positions] = level
    return levels


class Watched:
    """A cache that compares every decision with the policy's decision for the same significance."""

    def __init__(self, cache, dims, seed=0):
        self.cache, self.dims = cache, dims
        self.random = torch.Generator().manual_seed(seed)
        self.kept = [None] * cache.layers
        self.k = [[] for _ in range(cache.layers)]
        self.v = [[] for _ in range(cache.layers)]
        self.direct = [None] * cache.layers
        self.worth = {}
        if cache.policy is not None:
            launch = cache._revise.launch
            self.layer = 0

            def watched(tensors, stream):
                self.worth[self.layer] = self.by_position(self.layer)
                launch(tensors, stream)

            cache._revise.launch = watched

    def draw(self, *shape):
        """Return normal random numbers, whose scale gives some tokens a large significance."""
        return torch.randn(shape, generator=self.random)

    @property
    def place(self):
        return self.cache.pool.tokens.device

    def heads(self, layer):
        """Return (layer, head) of each of the layer's lists."""
        return [(layer, head) for _ in range(self.cache.requests) for head in range(self.cache.kv_heads)]

    def by_position(self, layer):
        tokens = int(self.cache.seen[layer].max())
        worth = torch.zeros(self.cache.used, tokens)
        for end, found in enumerate(self.cache.worth):
            of_lists = found.flatten(1)[: self.cache.used].cpu()
            for row, numbers, positions in zip(worth, of_lists, of_end(self.cache, layer, end), strict=True):
                row[positions] = numbers[: len(positions)]
        return worth

    def prompt(self, request, tokens):
        """Admit a prompt with random significance for a request."""
        cache, (dim, value_dim) = self.cache, self.dims
        heads = cache.kv_heads
        worth = self.draw(cache.layers, heads, tokens).exp()
        if cache.policy is None:
            levels = torch.full(worth.shape, HIGH, dtype=torch.int8)
        else:
            named = [[(layer, head) for head in range(heads)] for layer in range(cache.layers)]
            kept = [
                cache.policy.prompt(*each) for each in zip(worth, [None] * len(worth), named, strict=True)
            ]
            levels = torch.stack([each.level for each in kept])
            worth = torch.stack([each.score for each in kept])
        slots = cache.admit(request, levels.to(self.place), worth.to(self.place))
        made = []
        for layer in range(cache.layers):
            k, v = self.draw(tokens, heads, dim), self.draw(tokens, heads, value_dim)
            k, v = k.to(torch.bfloat16), v.to(torch.bfloat16)
            cache.write([each[layer] for each in slots], k.to(self.place), v.to(self.place))
            made.append((k, v))
        return levels, worth, made

    def prompts(self, tokens):
        """Admit prompts of `tokens` tokens for all requests."""
        made = [self.prompt(request, tokens) for request in range(self.cache.requests)]
        for layer in range(self.cache.layers):
            if self.cache.policy is not None:
                worth = torch.cat([each[1][layer] for each in made])
                self.kept[layer] = self.cache.policy.prompt(worth, heads=self.heads(layer))
                self.kept[layer].level = torch.cat([each[0][layer] for each in made])
                self.kept[layer].score = worth
                self.direct[layer] = self.kept[layer].level == LOW
            for part, rows in enumerate((self.k, self.v)):
                tensors = [each[2][layer][part].transpose(0, 1) for each in made]
                rows[layer] = list(torch.cat(tensors).unbind(1))

    def step(self):
        """Run a step of all requests. Return the outputs and the expected ones, by layer."""
        cache, (dim, value_dim) = self.cache, self.dims
        cache.begin()
        q_heads, results = cache._of_layer[1], []
        for self.layer in range(cache.layers):
            q, k, v = (
                self.draw(cache.requests, heads, size).to(torch.bfloat16)
                for heads, size in ((q_heads, dim), (cache.kv_heads, dim), (cache.kv_heads, value_dim))
            )
            self.k[self.layer].append(k.reshape(cache.used, dim))
            self.v[self.layer].append(v.reshape(cache.used, value_dim))
            before = self._levels()
            out = cache.attend(self.layer, *(each.to(self.place) for each in (q, k, v)))
            results.append((out.cpu(), *self.wanted(q, before)))
            if cache.policy is not None:
                if self.kept[self.layer] is None:
                    none = torch.zeros(cache.used, 0)
                    self.kept[self.layer] = cache.policy.prompt(none, heads=self.heads(self.layer))
                cache.policy.step(self.kept[self.layer], self.worth[self.layer])
        cache.end()
        return results

    def _levels(self):
        """Return the levels of the layer's lists, with the new token, before the policy decides."""
        tokens = len(self.k[self.layer])
        levels = torch.zeros(self.cache.used, tokens, dtype=torch.int8)
        levels[:, -1] = HIGH
        if self.cache.policy is None:
            return levels.fill_(HIGH)
        if (kept := self.kept[self.layer]) is not None:
            levels[:, :-1] = kept.level[:, : tokens - 1]
        return levels

    def wanted(self, q, levels):
        """Return attention over the kept tokens, and the largest weight of each group: float32."""
        k, v = torch.stack(self.k[self.layer], 1), torch.stack(self.v[self.layer], 1)
        numbers = []
        for part, tensor in enumerate((k, v)):
            if self.cache.policy is None:
                numbers.append(tensor.float())
                continue
            high = rounded(tensor, STORED[HIGH][part])
            low = rounded(high, STORED[LOW][part])
            if (direct := self.direct[self.layer]) is not None:  # a prompt's LOW tokens: quantized directly
                came = tensor[:, : direct.shape[1]]
                low[:, : direct.shape[1]] = torch.where(
                    direct[..., None], rounded(came, STORED[LOW][part]), low[:, : direct.shape[1]]
                )
            numbers.append(torch.where((levels == LOW)[..., None], low, high))
        k, v = numbers
        rows = q.float().reshape(self.cache.used, -1, q.shape[-1])
        scores = torch.einsum("lgd,ltd->lgt", rows, k) / q.shape[-1] ** 0.5
        scores = scores.masked_fill((levels == 0)[:, None], -torch.inf)
        weights = scores.softmax(-1)
        return torch.einsum("lgt,ltd->lgd", weights, v).reshape(
            self.cache.requests, -1, v.shape[-1]
        ), weights.amax(1)
