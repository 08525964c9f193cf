# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run cases of attn.attend: batches, packed sequences and trees, with gradients."""

from __future__ import annotations

import math

import package  # noqa: F401

import attn  # isort: skip
import numpy
import torch
from checks import ROUNDING, UNWEIGHED, check_gradient, check_rows, check_worth, unseen_weights
from oracle import Seen, attend, gradient_terms, reach
from problem import draw_problem, normal, pick, visibility
from scores import FORMS as SCORES


def run_attend(random, form):
    batch = int(pick(random, 0, 1, 1, 2, 2, 3))
    tokens = int(pick(random, 0, 1, *random.integers(2, 140, 6), random.integers(200, 900)))
    rows = int(pick(random, 0, 1, *random.integers(1, 30, 4)))
    if form["many"]:
        rows, tokens = int(random.integers(60, 170)), int(random.integers(150, 300))
    rows = (
        min(rows, max(tokens, 1))
        if form["see"] != "all" or form["score"] not in ("none", "softcap1", "softcap30") or form["sinks"]
        else rows
    )
    lengths = None
    if random.random() < 0.3 and batch:
        lengths = [int(random.integers(min(rows, tokens), tokens + 1)) for _ in range(batch)]
        if random.random() < 0.2 and rows == 1:
            lengths[0] = 0
    if tokens == 0 and (
        form["score"] not in ("none", "softcap1", "softcap30")
        or any(word in form["see"] for word in ("sink", "chunk"))
    ):
        rows = 0
    if lengths and 0 in lengths and rows:
        lengths = None
    sizes, scale, tables, sinks = draw_problem(random, form, tokens)
    q = normal(random, (batch, rows, form["heads"], form["dim"]), sizes[0], form["dtype"])
    k = normal(random, (batch, tokens, form["kv_heads"], form["dim"]), sizes[1], form["dtype"])
    v = normal(random, (batch, tokens, form["kv_heads"], form["value_dim"]), sizes[2], form["dtype"])
    see = visibility(form["see"], random, tokens)
    ends = lengths or [tokens] * batch
    positions = (
        torch.cat([torch.arange(end - rows, end) for end in ends])
        if batch
        else torch.zeros(0, dtype=torch.int64)
    )
    seen = [
        [
            Seen(b * tokens + torch.arange(ends[b]), torch.arange(ends[b]), (b * rows, (b + 1) * rows), see)
            for b in range(batch)
        ]
    ] * form["kv_heads"]
    given = {"see": see, "kv_lengths": lengths}
    form = form | {"starts": [b * rows for b in range(batch + 1)]}
    swapped = (
        pick(random, False, False, True)
        and not form["sinks"]
        and form["score"] in ("none", "softcap1", "softcap30")
        and not form["significance"]
    )
    call_attend(random, form, (q, k, v), given, (scale, tables, sinks), seen, positions, swapped)


def run_packed(random, form):
    count = int(pick(random, 0, 1, 2, 3, 5))
    lengths = [int(pick(random, 0, 1, *random.integers(1, 90, 4))) for _ in range(count)]
    rows = [min(int(pick(random, 0, 1, *random.integers(1, 40, 3))), n) for n in lengths]
    if form["many"]:
        rows = lengths = [int(random.integers(40, 130)) for _ in range(count)]
    sizes, scale, tables, sinks = draw_problem(random, form, max(lengths, default=0))
    q = normal(random, (sum(rows), form["heads"], form["dim"]), sizes[0], form["dtype"])
    k = normal(random, (sum(lengths), form["kv_heads"], form["dim"]), sizes[1], form["dtype"])
    v = normal(random, (sum(lengths), form["kv_heads"], form["value_dim"]), sizes[2], form["dtype"])
    see = visibility(form["see"], random, max(lengths, default=0))
    starts, starts_k = (numpy.concatenate([[0], numpy.cumsum(n)]).astype(int) for n in (rows, lengths))
    positions = [torch.arange(n - r, n) for r, n in zip(rows, lengths, strict=True)]
    seen = [
        [
            Seen(
                int(starts_k[i]) + torch.arange(lengths[i]),
                torch.arange(lengths[i]),
                (int(starts[i]), int(starts[i + 1])),
                see,
            )
            for i in range(count)
        ]
    ] * form["kv_heads"]
    given = {"see": see, "cu_seqlens": starts.tolist(), "cu_seqlens_k": starts_k.tolist()}
    positions = torch.cat(positions) if positions else torch.zeros(0, dtype=torch.int64)
    call_attend(random, form, (q, k, v), given, (scale, tables, sinks), seen, positions, False)


def run_forest(random, form):
    """Run a forest, packed node after node; a row sees the tokens on its path from the root up to its own."""
    form = form | {"significance_rows": None}
    count = int(random.integers(1, 7))
    sizes_of = [int(random.integers(1, 25)) for _ in range(count)]
    parents = [-1] + [int(random.integers(-1, i)) for i in range(1, count)]
    order = depth_first(parents)
    parents = [order.index(parents[i]) if parents[i] >= 0 else -1 for i in order]
    starts = numpy.concatenate([[0], numpy.cumsum(sizes_of)]).astype(int).tolist()
    first = []
    for parent in parents:
        first.append(0 if parent < 0 else first[parent] + sizes_of[parent])
    forest = attn.Forest(starts, parents, first)
    tokens = starts[-1]
    sizes, scale, tables, sinks = draw_problem(random, form, tokens)
    q = normal(random, (tokens, form["heads"], form["dim"]), sizes[0], form["dtype"])
    k = normal(random, (tokens, form["kv_heads"], form["dim"]), sizes[1], form["dtype"])
    v = normal(random, (tokens, form["kv_heads"], form["value_dim"]), sizes[2], form["dtype"])
    see = visibility(form["see"], random, tokens)
    positions = torch.cat([first[i] + torch.arange(sizes_of[i]) for i in range(count)])
    seen = []
    for i in range(count):
        below = [j for j in range(count) if i in path(parents, j)]
        rows = (starts[min(below)], starts[max(below) + 1])
        seen.append(
            Seen(torch.arange(starts[i], starts[i + 1]), first[i] + torch.arange(sizes_of[i]), rows, see)
        )
    given = {"see": see, "forest": forest}
    call_attend(
        random, form, (q, k, v), given, (scale, tables, sinks), [seen] * form["kv_heads"], positions, False
    )


def depth_first(parents):
    order = []

    def visit(node):
        order.append(node)
        for child in range(len(parents)):
            if parents[child] == node:
                visit(child)

    for root in range(len(parents)):
        if parents[root] < 0:
            visit(root)
    return order


def path(parents, node):
    found = []
    while node >= 0:
        found.append(node)
        node = parents[node]
    return found


def call_attend(random, form, tensors, given, others, seen, positions, swapped):
    scale, tables, sinks = others
    call, meaning, _ = SCORES[form["score"]]
    given = given | {"score": call, "scale": scale}
    rows = tensors[0].shape[:-2].numel()
    if form["significance"]:
        given |= {"significance": form["significance"]}
        if "forest" not in given:
            given["significance_rows"] = form["significance_rows"]
    if form["gradient"]:
        given["ordered"] = form["ordered"]
        tensors = [t.requires_grad_() for t in tensors]
        tables = {name: t.requires_grad_() for name, t in tables.items()}
        sinks = sinks if sinks is None else sinks.requires_grad_()
    asked = [t.transpose(1, 2).contiguous() if swapped else t for t in tensors]
    if swapped:
        given["layout"] = "bhsd"
    out, lse, *worth = attn.attend(
        *asked, **given, tensors=tables or None, sink_logits=sinks, return_lse=True
    )
    if swapped:
        out, lse = out.transpose(1, 2), lse.transpose(1, 2)
    flat = [t.detach().double().flatten(0, t.ndim - 3) for t in tensors]
    compare(
        random, form, [*tensors, *tables.values(), *([sinks] if sinks is not None else [])],
        (out.reshape(rows, *out.shape[-2:]), lse.reshape(rows, lse.shape[-1])), worth, flat, tables, sinks, meaning,
        scale if scale is not None else form["dim"] ** -0.5, seen, positions, given,
    )  # fmt: skip


def compare(random, form, inputs, found, worth, flat, tables, sinks, meaning, scale, seen, positions, given):
    exact = [t.requires_grad_(form["gradient"]) for t in flat]
    q, k, v = exact
    named = {name: t.detach().double().requires_grad_(form["gradient"]) for name, t in tables.items()}
    exact_sinks = None if sinks is None else sinks.detach().double().requires_grad_(form["gradient"])
    keys, values = ([t[:, h] for h in range(form["kv_heads"])] for t in (k, v))
    score = None if meaning is None else lambda s, h, qi, ki: meaning(s, h, qi, ki, **named)
    counts = counted_rows(form, given, len(q))
    out, lse, size, wanted_worth, weights = attend(
        q, keys, values, seen, positions, scale=scale, score=score, sinks=exact_sinks,
        together=form["significance"], counts=counts,
    )  # fmt: skip
    unweighed = UNWEIGHED * reach(weights, values) if form["dtype"] == "float16" else 0.0
    check_rows(form, found, (out, lse), size.detach(), unweighed=unweighed)
    if worth:
        total = torch.zeros(len(k), form["kv_heads"], dtype=torch.float64)
        for h in range(form["kv_heads"]):
            for part, own in zip(seen[h], wanted_worth[h], strict=True):
                total[part.token, h] += own
        check_worth(worth[0].reshape(total.shape), total)
    if not form["gradient"]:
        return
    d_out = normal(random, tuple(found[0].shape), 1.0, form["dtype"])
    d_lse = torch.from_numpy(random.standard_normal(tuple(found[1].shape))).float() * (random.random() < 0.5)
    d_lse = torch.where(lse.detach() == -math.inf, 0.0, d_lse.double())
    gradients = torch.autograd.grad([found[0], found[1]], inputs, [d_out, d_lse.float()])
    finite = torch.where(lse == -math.inf, 0.0, lse)
    loss = (
        (out * d_out.double()).sum()
        + (finite * d_lse.float().double()).sum()
        + 0.0 * sum(t.sum() for t in exact)
    )
    extras = [*named.values(), *([exact_sinks] if exact_sinks is not None else [])]
    wanted = torch.autograd.grad(loss, [*exact, *extras], allow_unused=True)
    wanted = [torch.zeros_like(t) if w is None else w for w, t in zip(wanted, [*exact, *extras], strict=True)]
    with torch.no_grad():
        of_q, of_k, of_v, of_scores = gradient_terms(
            q,
            [x.detach() for x in keys],
            [x.detach() for x in values],
            weights,
            out.detach(),
            d_out.double(),
            d_lse,
            scale,
        )
        terms = [of_q, torch.stack(of_k, 1), torch.stack(of_v, 1)]
        # The bound for a table: all terms of scores that read it, of a head or of all heads.
        ds = torch.stack([x.sum() for x in of_scores]) if of_scores else torch.zeros(0)
    largest = float(size.max()) if size.numel() else 0.0
    if largest * ROUNDING * 8 > 0.05:
        return
    unseen = of_weights(form, scale, q, k, d_out)
    for name, g, w, t in zip(("dq", "dk", "dv"), gradients[:3], wanted[:3], terms, strict=True):
        check_gradient(form, name, g.reshape(w.shape), w, t, largest, unseen[name])
    far = float((positions.max() + 1) if len(positions) else 1)
    for name, g, w in zip([*named, "sink_logits"], gradients[3:], wanted[3:], strict=False):
        by = far if name == "slopes" else largest if name == "gains" else 1.0
        check_gradient(form, f"d{name}", g, w, by * ds.norm() * 0.25 * torch.ones(1), largest)


def of_weights(form, scale, q, k, d_out):
    """Return unseen_weights of each gradient."""
    dtype, group = form["dtype"], form["heads"] // form["kv_heads"]
    return {
        "dq": unseen_weights(dtype, abs(scale), k, len(q) * group),
        "dk": unseen_weights(dtype, abs(scale), q, len(k)),
        "dv": unseen_weights(dtype, 1.0, d_out.double(), len(k)),
    }


def counted_rows(form, given, rows):
    """Return 1 for each row that counts for the significance of tokens, else 0."""
    last = given.get("significance_rows")
    counts = torch.ones(rows, dtype=torch.float64)
    if not form["significance"] or last is None:
        return counts
    starts = given.get("cu_seqlens", given.get("starts", form.get("starts")))
    counts[:] = 0
    for begin, end in zip(starts[:-1], starts[1:], strict=True):
        counts[max(int(begin), int(end) - last) : int(end)] = 1
    return counts
