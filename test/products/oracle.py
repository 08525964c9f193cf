# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compute attention in PyTorch and float64, over the tokens that each row and head sees: an oracle that shares no code with
the library. Gradients are autograd's."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Seen:
    """Tokens of one KV head: their indices among all keys of that head, their positions, and the rows that may see them."""

    token: Tensor  # i64 [tokens]
    position: Tensor  # i64 [tokens]
    rows: tuple[int, int]
    see: object  # an attn.Visibility
    operand: int = 0


def attend(q, keys, values, seen, positions, *, scale, score=None, sinks=None, together=None, counts=None):
    """Return out, lse, the magnitude of the terms of scores, worth, and the weights of each head with its tokens.

    q: [rows, heads, dim]; keys, values: per KV head [tokens, dim]; seen: per KV head a list of Seen; positions: i64 [rows];
    score(s, h, qi, ki): on tensors that broadcast; worth: per KV head and Seen [tokens]."""
    rows, heads, _ = q.shape
    group = heads // len(keys)
    value_dim = values[0].shape[-1]
    outs, lses, sizes, weights = [], [], [], []
    worth = [[0.0] * len(of_head) for of_head in seen]
    qi = positions[:, None]
    for h in range(heads):
        kv = h // group
        found, of_values, largest = [], [], []
        for part in seen[kv]:
            k = keys[kv][part.token]
            s = scale * (q[:, h] @ k.T)
            largest.append(scale * (q[:, h].detach().abs() @ k.detach().abs().T))
            if score is not None:
                s = score(s, torch.tensor(h), qi, part.position[None])
            row = torch.arange(rows)[:, None]
            visible = (row >= part.rows[0]) & (row < part.rows[1]) & part.see.sees(qi, part.position[None])
            found.append(torch.where(visible, s, -math.inf))
            largest[-1] = torch.where(visible, largest[-1], 0)
            of_values.append(values[kv][part.token])
        s = torch.cat(found, 1) if found else q.new_zeros(rows, 0)
        v = torch.cat(of_values) if of_values else q.new_zeros(0, value_dim)
        if sinks is not None:
            s = torch.cat([s, sinks[h].expand(rows, 1)], 1)
        top = s.detach().amax(1, keepdim=True).clamp(min=-1e300) if s.shape[1] else s.new_zeros(rows, 1)
        exponentials = torch.exp(s - top)
        total = exponentials.sum(1, keepdim=True)
        some = total > 0
        p = exponentials / torch.where(some, total, 1)
        lse = torch.where(some, top + torch.log(torch.where(some, total, 1)), -math.inf)
        tokens = (
            torch.cat([part.token for part in seen[kv]]) if seen[kv] else torch.zeros(0, dtype=torch.int64)
        )
        weights.append((p[:, : len(v)].detach(), tokens))
        outs.append(p[:, : len(v)] @ v)
        lses.append(lse[:, 0])
        sizes.append(torch.cat(largest, 1).amax(1) if s.shape[1] - (sinks is not None) else q.new_zeros(rows))
        if together is not None:
            begin = 0
            for i, part in enumerate(seen[kv]):
                own = (p[:, begin : begin + len(part.token)] * counts[:, None]).sum(0).detach()
                begin += len(part.token)
                before = worth[kv][i]
                worth[kv][i] = (
                    torch.maximum(own, torch.as_tensor(before)) if together == "max" else own + before
                )
    if together == "mean":
        worth = [[w / group for w in of_head] for of_head in worth]
    return torch.stack(outs, 1), torch.stack(lses, 1), torch.stack(sizes, 1), worth, weights


def reach(weights, values):
    """Return the norm of all values that each row and head sees: [rows, heads]."""
    group, found = len(weights) // len(values), []
    for h, (p, tokens) in enumerate(weights):
        found.append(((p > 0).double() @ values[h // group][tokens].detach().square().sum(-1)).sqrt())
    return torch.stack(found, 1)


def gradient_terms(q, keys, values, weights, out, d_out, d_lse, scale):
    """Return the magnitude of the terms of gradients of queries, keys and values, and of each head's scores. If terms cancel,
    an error is small relative to these. `keys`, `values`: per KV head; `weights`: per head, from `attend`."""
    group = q.shape[1] // len(keys)
    of_q, of_k = torch.zeros_like(q), [torch.zeros_like(k) for k in keys]
    of_v, of_scores = [torch.zeros_like(v) for v in values], []
    for h, (p, tokens) in enumerate(weights):
        k, v = keys[h // group][tokens].abs(), values[h // group][tokens]
        delta = (d_out[:, h] * out[:, h]).sum(1, keepdim=True).abs() + d_lse[:, h, None].abs()
        ds = p * ((d_out[:, h] @ v.T).abs() + delta)
        of_scores.append(ds)
        of_q[:, h] = scale * (ds @ k)
        of_k[h // group].index_add_(0, tokens, scale * (ds.T @ q[:, h].abs()))
        of_v[h // group].index_add_(0, tokens, p.T @ d_out[:, h].abs())
    return of_q, of_k, of_v, of_scores
