# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draw a case: a form, which is compiled, and sizes, amplitudes and numbers."""

from __future__ import annotations

import math

import package  # noqa: F401

import attn  # isort: skip
import numpy
import torch
from scores import FORMS as SCORES
from scores import draw_tables
from stores import MX

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def pick(random, *choices):
    return choices[int(random.integers(len(choices)))]


def amplitude(random):
    return 1.0 if random.random() < 0.3 else 10.0 ** random.uniform(-6, 4)


def draw_see(random):
    return pick(
        random,
        "all",
        "causal",
        "causal",
        "window",
        "sink window",
        "sink recent",
        "two sides",
        "chunk",
        "causal chunk",
    )


def visibility(name, random, longest):
    size = lambda: int(random.integers(1, longest + 3))  # noqa: E731
    return {
        "all": attn.all_tokens(),
        "causal": attn.causal(),
        "window": attn.window(size()),
        "sink window": attn.causal() & (attn.sink(size()) | attn.recent(size())),
        "sink recent": attn.sink(size()) | attn.recent(size()),
        "two sides": attn.window(size(), size()),
        "chunk": attn.chunk(size()),
        "causal chunk": attn.causal() & attn.chunk(size()),
    }[name]


def draw_form(number):
    random = numpy.random.default_rng([number, 77])
    kind = pick(random, *["attend"] * 7, *["packed"] * 3, "forest", *["kernel"] * 6, *["device"] * 3)
    kv_heads, group = pick(random, (1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (1, 8), (3, 1))
    dims = pick(random, (64, 64), (64, 64), (32, 32), (128, 128), (64, 32), (32, 96), (40, 72))
    form = dict(
        kind=kind,
        dtype=pick(random, "bfloat16", "bfloat16", "float16"),
        kv_heads=kv_heads,
        heads=kv_heads * group,
        dim=dims[0],
        value_dim=dims[1],
        see=draw_see(random),
        score=pick(random, "none", "none", "none", *SCORES),
        sinks=bool(random.random() < 0.25),
        ordered=pick(random, None, None, True, False),
        gradient=bool(random.random() < 0.65) if kind in ("attend", "packed", "forest") else False,
        significance=pick(random, None, None, None, "max", "mean", "sum"),
        significance_rows=pick(random, None, 1, 5),
        many=bool(random.random() < 0.15),
    )
    if kind in ("kernel", "device"):
        form["stores"] = draw_stores(random, form)
        plain = all(kind in ("packed", "dense") and not formats for kind, _, formats in form["stores"])
        form["gradient"] = kind == "kernel" and plain and bool(random.random() < 0.5)
        form["prefix"] = bool(random.random() < 0.5)
    if form["gradient"]:
        form["significance"] = None
    return form


def draw_stores(random, form):
    count = 2 if form["kind"] == "kernel" and random.random() < 0.3 else 1
    stores = []
    for _ in range(count):
        kind = pick(random, "packed", "dense", "paged", "paged", "ragged", "unified")
        if form["kind"] == "device":
            kind = pick(random, "paged", "paged", "dense", "ragged", "unified")
        formats = {}
        if random.random() < 0.6 and kind != "dense" or kind == "unified":
            for part in ("key", "value"):
                name = pick(random, None, "int8", "int4", "int2", "fp8_e4m3", "fp8_e5m2", *MX)
                dim = form["dim" if part == "key" else "value_dim"]
                bits = {"int8": 8, "int4": 4, "int2": 2, "mxfp4": 4, "nvfp4": 4}.get(name, 8)
                if name is None or dim * bits % 128 or (name in MX and dim % 32):
                    continue
                formats[part] = name
                if name.startswith("fp8"):
                    formats[f"{part}_scales"] = pick(random, None, "token", "head", "tensor")
                elif name.startswith("int") and random.random() < 0.3 and dim % 32 == 0:
                    formats[f"{part}_group"] = 32
        page = pick(random, 1, 8, 16, 16, 32)
        stores.append((kind, 16 if kind == "unified" and page == 1 else page, formats))
    return stores


def make_spec(form, see, scale, tables, stores):
    call, _, shapes = SCORES[form["score"]]
    extents = {"heads": form["heads"]}
    return attn.Spec(
        q_heads=form["heads"],
        kv_heads=form["kv_heads"],
        head_dim=form["dim"],
        value_dim=form["value_dim"],
        dtype=form["dtype"],
        kv=stores,
        see=see,
        score=call,
        tensors={name: tuple(extents.get(e, e) for e in shape) for name, shape in shapes.items()} or None,
        sink_logits=form["sinks"],
        scale=scale,
        return_lse=True,
        significance=form["significance"],
        significance_rows=form["significance_rows"] if form["significance"] else None,
        device_plan=form["kind"] == "device",
        numerics=form.get("numerics"),
    )


def score_scale(random, form, of_q, of_k):
    """Return a scale that gives scores a standard deviation from 0.01 to 20, whatever the amplitudes; or None."""
    if of_q == of_k == 1.0 and random.random() < 0.7:
        return None
    size = 10.0 ** random.uniform(-2, 1.3)
    return float(size / (of_q * of_k * math.sqrt(form["dim"])))


def draw_problem(random, form, longest):
    sizes = [amplitude(random) for _ in range(3)]
    scale = score_scale(random, form, sizes[0], sizes[1])
    tables = draw_tables(form["score"], random, form["heads"], longest)
    sinks = torch.from_numpy(random.standard_normal(form["heads"]) * 3).float() if form["sinks"] else None
    return sizes, scale, tables, sinks


def normal(random, shape, size, dtype):
    return torch.from_numpy(random.standard_normal(shape) * size).to(DTYPES[dtype])
