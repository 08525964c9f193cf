# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention over forests as trained without packing, by PyTorch: each node's rows over a copy of all nodes above it."""

import attn
import numpy
import torch


def random_forest(random, depth, most=12):
    """Return a forest in depth-first order with one path of the given depth; some nodes are empty."""
    parent, depths = [-1], [0]
    for _ in range(2 * depth + int(random.integers(0, 4))):
        path = [len(parent) - 1]
        while parent[path[-1]] >= 0:
            path.append(parent[path[-1]])
        deeper = max(depths) < depth and random.random() < 0.9
        above = path[0] if deeper else int(random.choice([-1, *path]))
        if above >= 0 and depths[above] == depth:
            continue
        parent.append(above)
        depths.append(0 if above < 0 else depths[above] + 1)
    lengths = random.integers(0, most, len(parent))
    lengths[0] = max(lengths[0], 1)
    return attn.Forest(numpy.cumsum([0, *lengths]), parent)


def causal(q, k):
    """Return the pairs of positions in which the key is not after the query."""
    return k[None] <= q[:, None]


def attend(q, k, v, sees=causal, positions=None, scale=None, score=None, sinks=None):
    """Return (out, lse) of rows [rows, heads, dim] over tokens [tokens, kv heads, dim], in their dtype."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    at_q, at_k = positions
    s = torch.einsum("qhd,khd->hqk", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if score is not None:
        heads = torch.arange(q.shape[1])[:, None, None]
        s = score(s, heads, at_q[None, :, None], at_k[None, None, :])
    s = s.masked_fill(~sees(at_q, at_k), -torch.inf)
    if sinks is not None:
        s = torch.cat([s, sinks[:, None, None].expand(-1, len(q), 1)], -1)
        v = torch.cat([v, v.new_zeros(1, *v.shape[1:])])
    lse = s.logsumexp(-1)
    return torch.einsum("hqk,khd->qhd", (s - lse[..., None]).exp(), v), lse.T


def attend_forest(forest, q, k, v, **options):
    """Return (out, lse) of all rows, node by node."""
    positions = torch.from_numpy(forest.positions.copy())
    outs, lses = [], []
    for node in range(forest.nodes):
        rows = torch.arange(*forest.node_start[node : node + 2].tolist())
        if len(rows) == 0:
            continue
        tokens = torch.cat([torch.arange(*forest.node_start[n : n + 2].tolist()) for n in forest.path(node)])
        out, lse = attend(
            q[rows], k[tokens], v[tokens], positions=(positions[rows], positions[tokens]), **options
        )
        outs.append(out)
        lses.append(lse)
    return torch.cat(outs), torch.cat(lses)
