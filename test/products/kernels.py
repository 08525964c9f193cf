# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run cases of a compiled Spec: stores, plans of the host and of the device, updates."""

from __future__ import annotations

import package  # noqa: F401

import attn  # isort: skip
import numpy
import torch
from calls import counted_rows, of_weights
from checks import ROUNDING, UNWEIGHED, check, check_gradient, check_rows, check_worth
from oracle import attend, gradient_terms, reach
from problem import draw_problem, make_spec, normal, pick, visibility
from scores import FORMS as SCORES
from stores import read_operand


def store_of(kind, page, formats, **named):
    if kind in ("dense", "packed"):
        return {"dense": attn.Dense, "packed": attn.Packed}[kind](**formats, **named)
    if kind == "unified":
        return attn.Unified(page_size=page, **formats, **named)
    return attn.Paged(page_size=page, ragged=kind == "ragged", **formats, **named)


def run_kernel(random, form):
    names = ["prefix", "own"] if len(form["stores"]) == 2 else ["kv"]
    if len(names) == 2 and form["prefix"]:
        form = form | {"significance_rows": None}
    if form["kind"] == "device" and form["significance"]:
        form = form | {
            "many": False,
            "see": "causal" if "sink" in form["see"] or form["see"] == "window" else form["see"],
        }
    shared = len(names) == 2 and form["prefix"]
    batch = int(pick(random, 1, 2, 3, 4))
    q_len = [int(pick(random, 0, 1, 1, *random.integers(1, 24, 3))) for _ in range(batch)]
    if form["many"]:
        q_len = [int(random.integers(40, 90)) for _ in range(batch)]
    if form["kind"] == "device":
        q_len = (
            [int(random.integers(1, 9))] * batch
            if random.random() < 0.5 and not form["significance"]
            else [1] * batch
        )
    q_len = [n if any(q_len) else 1 for n in q_len]
    see = visibility(form["see"], random, 100)
    stores, dims = [], {}
    heads = form["kv_heads"]
    for name, (kind, page, formats) in zip(names, form["stores"], strict=True):
        instances, tokens = ("batch", f"{name}_len")
        if name == "prefix" and shared:
            instances = "contexts"
            dims["contexts"] = int(random.integers(1, batch + 1))
        count = dims.get("contexts", 1) if instances == "contexts" else batch
        lists = heads if kind in ("ragged", "unified") else 1
        least = 0 if name == "prefix" else max(q_len)
        lengths = random.integers(least, least + int(pick(random, 3, 60, 150)), (count, lists))
        if lists > 1:
            lengths[:, 0] = lengths.max(1)  # rows belong to the longest list
        dims[tokens] = lengths.reshape(-1).tolist()
        stores.append(store_of(kind, page, formats, name=name, dims=(instances, tokens)))
    if len(names) == 2 and not shared:  # instances of the first operand may have any number of tokens
        pass
    _, scale, tables, sinks = draw_problem(random, form, 200)
    form["numerics"] = None if form["gradient"] or form["significance"] else pick(random, None, None, "row")
    spec = make_spec(form, see, scale if random.random() < 0.5 else None, tables, stores)
    extents = {e: 1 for shape in SCORES[form["score"]][2].values() for e in shape if e != "heads"}
    sizes = (1e-6, 1e4) if random.random() < 0.7 else 1.0
    if scale is not None and sizes == 1.0:
        spec = make_spec(form, see, None, tables, stores)
    given = attn.sample(
        spec, seed=int(random.integers(2**31)), amplitude=sizes, batch=batch, q_len=q_len, **dims, **extents
    )
    given |= {name: t.numpy() for name, t in tables.items()}
    if form["sinks"]:
        given["sink_logits"] = sinks.numpy()
    far = int(pick(random, 0, 0, 1000, 100_000))
    if far and "sink" not in form["see"]:
        given["q_pos"] = given["q_pos"] + numpy.int32(far)
        for store in spec.operands:
            given[f"{store.name}.pos0"] = given[f"{store.name}.pos0"] + numpy.int32(far)
    packed_tail(random, spec, given)
    kernel = attn.compile(spec, device="host")
    data = {name: as_torch(name, array, form) for name, array in given.items()}
    operands = [tuple(data[part] for part in parts) for parts in kernel._parts.values()]
    extras = {name: data[name] for name in kernel.extras}
    if form["kind"] == "device":
        planner = kernel.device_planner(given)
        shorter(random, spec, given)
        wanted_tables = {
            name: torch.from_numpy(numpy.ascontiguousarray(given[name]).reshape(shape))
            for name, shape in planner.tables.items()
        }
        plan = planner.plan(wanted_tables)
        check("plan", plan.fault == "", plan.fault)
    else:
        strategy = pick(random, "flatten", "flatten", "by-query", "auto", "by-node", "by-node-chunk")
        if kernel.manifest.get("first") or form["gradient"]:
            strategy = "flatten"
        plan = kernel.plan(
            given,
            strategy=strategy,
            blocks=int(pick(random, 0, 0, 1, 7)),
        )
        if random.random() < 0.4:
            compare_kernel(random, form, spec, kernel, plan, data, given, operands, extras, meaning_only=True)
            shorter(random, spec, given)
            plan.update(given)
    compare_kernel(random, form, spec, kernel, plan, data, given, operands, extras)


def packed_tail(random, spec, given):
    """Append slots after the last token of a packed store, which hold NaN."""
    for store in spec.operands:
        if store.kind != "packed" or random.random() < 0.5:
            continue
        more = int(random.integers(1, 150))
        for part in ("k", "v"):
            name = f"{store.name}.{part}"
            for each in [n for n in given if n == name or n.startswith(f"{name}_")]:
                array = given[each]
                if array.ndim == 1 and each != name:
                    continue  # scales per head, or one for all
                fill = numpy.full(
                    (more, *array.shape[1:]), 0x7F if array.dtype == numpy.uint8 else 0, array.dtype
                )
                if array.dtype.kind == "f":
                    fill[...] = numpy.nan
                elif array.dtype == numpy.uint16:
                    fill[...] = 0x7FC0
                given[each] = numpy.concatenate([array, fill])


def shorter(random, spec, given):
    """Shorten sequences; their rows remain their last tokens."""
    starts, rows = given["q_start"], numpy.diff(given["q_start"])
    store = spec.operands[-1]
    name = f"{store.name}.lengths"
    lengths = given[name]
    if len(lengths) != len(rows) or f"{store.name}.rows" in given:
        return
    longest = lengths.max(axis=1) if lengths.ndim > 1 else lengths
    less = numpy.array(
        [random.integers(0, max(int(n) - int(r), 0) + 1) for n, r in zip(longest, rows, strict=True)],
        numpy.int32,
    )
    given[name] = numpy.maximum(lengths - (less[:, None] if lengths.ndim > 1 else less), 0).astype(
        numpy.int32
    )
    positions = given["q_pos"].copy()
    for i in range(len(rows)):
        positions[starts[i] : starts[i + 1]] -= less[i]
    given["q_pos"] = positions


def as_torch(name, array, form):
    if not isinstance(array, numpy.ndarray):
        return array
    if array.dtype == numpy.uint16:
        return torch.from_numpy(array.view(numpy.int16)).view(torch.bfloat16)
    return (
        torch.from_numpy(numpy.ascontiguousarray(array))
        if array.flags.c_contiguous
        else torch.from_numpy(array)
    )


def compare_kernel(random, form, spec, kernel, plan, data, given, operands, extras, meaning_only=False):
    q = data["q"]
    gradient = form["gradient"] and not meaning_only
    if gradient:
        parts = [data["q"], *(t for operand in operands for t in operand), *extras.values()]
        for t in parts:
            t.requires_grad_()
    result = (
        kernel.run(q, *operands, plan, return_lse=True, **extras)
        if gradient
        else run_plain(kernel, q, operands, plan, extras)
    )
    out, lse, *worth = result
    kv_heads = form["kv_heads"]
    offset, all_keys, all_values, all_seen, places = (
        [0] * kv_heads,
        [[] for _ in range(kv_heads)],
        [[] for _ in range(kv_heads)],
        [[] for _ in range(kv_heads)],
        [],
    )
    for number, store in enumerate(spec.operands):
        read = read_operand(
            store, given, kv_heads, spec.see if store.see is None else store.see, number, offset
        )
        places.append([of_head[3] for of_head in read])
        for h, (keys, values, seen, _) in enumerate(read):
            all_keys[h].append(keys)
            all_values[h].append(values)
            all_seen[h] += seen
            offset[h] += len(keys)
    keys, values = (
        [torch.cat(of_head).requires_grad_(gradient) for of_head in x] for x in (all_keys, all_values)
    )
    exact_q = q.detach().double().requires_grad_(gradient)
    meaning = SCORES[form["score"]][1]
    named = {
        name: t.detach().double().requires_grad_(gradient)
        for name, t in extras.items()
        if name != "sink_logits"
    }
    sinks = extras["sink_logits"].detach().double().requires_grad_(gradient) if form["sinks"] else None
    score = None if meaning is None else lambda s, h, qi, ki: meaning(s, h, qi, ki, **named)
    scale = spec.scale if spec.scale is not None else form["dim"] ** -0.5
    counts = counted_rows(
        form,
        {
            "significance_rows": form["significance_rows"] if form["significance"] else None,
            "starts": given["q_start"],
        },
        len(q),
    )
    positions = torch.from_numpy(given["q_pos"].astype(numpy.int64))
    wanted_out, wanted_lse, size, wanted_worth, weights = attend(
        exact_q, keys, values, all_seen, positions, scale=scale, score=score, sinks=sinks,
        together=form["significance"], counts=counts,
    )  # fmt: skip
    tolerance = kernel.manifest.get("tolerance") or 0.0
    narrow = form["dtype"] == "float16" or any("value" in formats for _, _, formats in form["stores"])
    check_rows(
        form,
        (torch.as_tensor(out), torch.as_tensor(lse)),
        (wanted_out, wanted_lse),
        size.detach(),
        tolerance,
        unweighed=UNWEIGHED * (reach(weights, values) + form["value_dim"] ** 0.5) if narrow else 0.0,
    )
    if form["significance"]:
        found = worth[0] if isinstance(worth[0], tuple) else (worth[0],)
        for number, store in enumerate(spec.operands):
            check_store_worth(
                store, found[number], number, all_seen, wanted_worth, places[number], kv_heads, given
            )
    if not gradient:
        return
    d_out = normal(random, tuple(out.shape), 1.0, form["dtype"])
    inputs = [q, *(t for operand in operands for t in operand), *extras.values()]
    gradients = torch.autograd.grad(out, inputs, d_out)
    exact = [exact_q, *keys, *values, *named.values(), *([sinks] if sinks is not None else [])]
    loss = (wanted_out * d_out.double()).sum() + 0.0 * sum(t.sum() for t in exact)
    wanted = torch.autograd.grad(loss, exact, allow_unused=True)
    wanted = [torch.zeros_like(t) if w is None else w for w, t in zip(wanted, exact, strict=True)]
    with torch.no_grad():
        of_q, of_k, of_v, of_scores = gradient_terms(
            exact_q,
            [x.detach() for x in keys],
            [x.detach() for x in values],
            weights,
            wanted_out.detach(),
            d_out.double(),
            torch.zeros_like(wanted_lse),
            scale,
        )
    largest = float(size.max()) if size.numel() else 0.0
    if largest * ROUNDING * 8 > 0.05:
        return
    unseen = of_weights(form, scale, exact_q.detach(), torch.cat(keys).detach(), d_out)
    check_gradient(form, "dq", gradients[0], wanted[0], of_q, largest, unseen["dq"])
    number = 1
    base = [0] * kv_heads
    for o in range(len(spec.operands)):
        for part, (of_wanted, of_terms) in enumerate(
            ((wanted[1 : 1 + kv_heads], of_k), (wanted[1 + kv_heads : 1 + 2 * kv_heads], of_v))
        ):
            lines = gradients[number + part].detach().double()
            lines = lines.reshape(-1, *lines.shape[-2:])
            expected, terms = torch.zeros_like(lines), torch.zeros_like(lines)
            for h in range(kv_heads):
                at = base[h]
                for slots in places[o][h]:
                    expected[slots, h] = of_wanted[h][at : at + len(slots)]
                    terms[slots, h] = of_terms[h][at : at + len(slots)]
                    at += len(slots)
            name = ("dk", "dv")[part]
            nobody = torch.ones(lines.shape[:1], dtype=torch.bool)
            for slots in places[o][0]:
                nobody[slots] = False
            check(name, bool((lines[nobody] == 0).all()), "of tokens that are none is not 0")
            check_gradient(form, name, lines, expected, terms, largest, unseen[name])
        for h in range(kv_heads):
            base[h] += sum(len(slots) for slots in places[o][h])
        number += 2
    ds = torch.stack([x.sum() for x in of_scores])
    far = float(positions.abs().max() + 1) if len(positions) else 1.0
    rest = wanted[1 + 2 * kv_heads :]
    order = [*named, *(["sink_logits"] if sinks is not None else [])]
    for name, w in zip(order, rest, strict=True):
        by = far if name == "slopes" else largest if name == "gains" else 1.0
        g = gradients[number + list(extras).index(name)]
        check_gradient(form, f"d{name}", g, w, by * ds.norm() * 0.25 * torch.ones(1), largest)


def run_plain(kernel, q, operands, plan, extras):
    with torch.no_grad():
        return kernel.run(q, *operands, plan, return_lse=True, **extras)


def check_store_worth(store, found, number, seen, wanted, places, kv_heads, given):
    found = torch.as_tensor(found).double()
    exact = torch.zeros_like(found)
    for h in range(kv_heads):
        parts = [(part, own) for part, own in zip(seen[h], wanted[h], strict=True) if part.operand == number]
        for i, (part, own) in enumerate(parts):
            own = torch.as_tensor(own).double().expand(len(part.token))
            if store.kind in ("paged", "unified"):
                exact[i, h].view(-1)[: len(own)] = own
            else:
                exact.view(-1, kv_heads)[places[h][i], h] += own
    check_worth(found, exact)
