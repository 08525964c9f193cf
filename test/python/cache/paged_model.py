# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A cache beside plain lists of its sequences' tokens."""

import attn
import numpy
import oracle
from attn.cache.paged import PagedCache

LAYERS, KV_HEADS, Q_HEADS, DIM = 2, 2, 4, 64


def spec(**changes):
    given = dict(q_heads=Q_HEADS, kv_heads=KV_HEADS, head_dim=DIM, dtype="float16", kv=[attn.Paged()])
    return attn.Spec(**(given | dict(see=attn.causal(), name="decode") | changes))


def make(**changes):
    given = dict(layers=LAYERS, pages=64, kv_heads=KV_HEADS, head_dim=DIM, dtype="float16", device="host")
    return PagedCache(**(given | changes))


def raw(memory):
    """Return the bytes of an array or a tensor, whichever the library is."""
    return numpy.asarray(memory).tobytes()


def draw(rng, *shape):
    return rng.standard_normal(shape).astype(numpy.float16)


class Model:
    """A cache beside plain lists of each node's tokens."""

    def __init__(self, cache, seed=0):
        self.cache, self.rng = cache, numpy.random.default_rng(seed)
        self.held = {}  # node: (parent, keys and values of its own tokens [tokens, layers, 2, heads, dim])
        self.drafts = {}  # leaf: (parents, tokens)

    def tokens(self, count):
        return draw(self.rng, count, LAYERS, 2, KV_HEADS, DIM)

    def write(self, change, tokens):
        for layer in range(LAYERS):
            k, v = (numpy.ascontiguousarray(tokens[:, layer, part]) for part in (0, 1))
            change.write(layer, k, v)

    def add(self):
        node = self.cache.add()
        self.held[node] = (None, self.tokens(0))
        return node

    def append(self, nodes, counts):
        new = [self.tokens(count) for count in counts]
        self.write(self.cache.append(nodes, counts), numpy.concatenate(new))
        for node, tokens in zip(nodes, new, strict=True):
            parent, own = self.held[node]
            self.held[node] = parent, numpy.concatenate([own, tokens])

    def branch(self, node, children):
        for child in self.cache.branch(node, children):
            self.held[child] = node, self.tokens(0)

    def fork(self, leaf):
        twin = self.cache.fork(leaf)
        self.held[twin] = self.held[leaf]
        return twin

    def truncate(self, leaf, tokens):
        self.cache.truncate(leaf, tokens)
        parent, own = self.held[leaf]
        self.held[leaf] = parent, own[: len(own) - tokens]

    def prune(self, node):
        self.cache.prune(node)
        self.held = {n: held for n, held in self.held.items() if self.cache.contains(n)}

    def speculate(self, leaf, parents):
        tokens = self.tokens(len(parents))
        self.write(self.cache.speculate(leaf, parents), tokens)
        self.drafts[leaf] = parents, tokens

    def chain(self, leaf, token):
        """Return the draft's tokens on the path to one of them."""
        parents, tokens = self.drafts[leaf]
        found = []
        while token >= 0:
            found.insert(0, tokens[token])
            token = parents[token]
        return numpy.array(found).reshape(-1, LAYERS, 2, KV_HEADS, DIM)

    def commit(self, leaf, token):
        self.cache.commit(leaf, token)
        parent, own = self.held[leaf]
        self.held[leaf] = parent, numpy.concatenate([own, self.chain(leaf, token)])
        del self.drafts[leaf]

    def path(self, node):
        parent, own = self.held[node]
        return own if parent is None else numpy.concatenate([self.path(parent), own])

    def leaves(self):
        parents = {parent for parent, _ in self.held.values()}
        return [node for node in self.held if node not in parents]

    def expected(self, requests, q, layer, score=None):
        row, results = 0, []
        for request in requests:
            node, rows, draft = (
                (*request, False, False)[:3] if isinstance(request, tuple) else (request, 1, False)
            )
            path = self.path(node)
            seen = [path[: len(path) - rows + 1 + i] for i in range(rows)]
            if draft:
                seen += [
                    numpy.concatenate([path, self.chain(node, token)])
                    for token in range(len(self.drafts[node][0]))
                ]
            for tokens in seen:
                results.append(oracle.attend(q[row], tokens[:, layer, 0], tokens[:, layer, 1], score))
                row += 1
        assert row == len(q)
        return numpy.array([o for o, _ in results]), numpy.array([lse for _, lse in results])

    def check(self, kernel, requests, batch=None, plan=None, score=None, **tensors):
        batch = batch or self.cache.batch(requests)
        plan = plan or kernel.plan(batch)
        q = draw(self.rng, batch.rows, Q_HEADS, DIM)
        for layer in range(LAYERS):
            o, lse = kernel.run(q, self.cache.layer(layer), plan, return_lse=True, **tensors)
            expected, of_rows = self.expected(requests, q, layer, score)
            assert oracle.error(o, expected) < 2e-3
            assert numpy.abs(lse - of_rows).max() < 2e-3
        return batch, plan
