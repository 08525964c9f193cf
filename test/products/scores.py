# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Define score functions in attn and in PyTorch, and the tables that they read."""

from __future__ import annotations

import attn
import torch


def clamp(index, extent):
    """Clamp an index to a table: an index outside of it finds the nearest entry."""
    return index.clamp(0, extent - 1)


def _softcap(s, cap):
    return cap * torch.tanh(s / cap)


# name: attn's function, PyTorch's function, tables by name with their extents: "heads" or a number of the run
FORMS = {
    "none": (None, None, {}),
    "softcap1": (lambda s, h, qi, ki: attn.math.softcap(s, 1.0), lambda s, h, qi, ki: _softcap(s, 1.0), {}),
    "softcap30": (
        lambda s, h, qi, ki: attn.math.softcap(s, 30.0),
        lambda s, h, qi, ki: _softcap(s, 30.0),
        {},
    ),
    "distance": (lambda s, h, qi, ki: s - 0.01 * (qi - ki), lambda s, h, qi, ki: s - 0.01 * (qi - ki), {}),
    "every third": (
        lambda s, h, qi, ki: attn.math.where(ki % 3 == 0, s, s - 1.0),
        lambda s, h, qi, ki: torch.where(ki % 3 == 0, s, s - 1.0),
        {},
    ),
    "slopes": (
        lambda s, h, qi, ki, slopes: s + slopes[h] * (qi - ki),
        lambda s, h, qi, ki, slopes: s + slopes[h] * (qi - ki),
        {"slopes": ("heads",)},
    ),
    "gains": (
        lambda s, h, qi, ki, gains: s * gains[h],
        lambda s, h, qi, ki, gains: s * gains[h],
        {"gains": ("heads",)},
    ),
    "key bias": (
        lambda s, h, qi, ki, bias: s + bias[h, ki],
        lambda s, h, qi, ki, bias: s + bias[h, clamp(ki, bias.shape[1])],
        {"bias": ("heads", "extent")},
    ),
    "row bias": (
        lambda s, h, qi, ki, bias: s + bias[qi, h],
        lambda s, h, qi, ki, bias: s + bias[clamp(qi, bias.shape[0]), h],
        {"bias": ("extent", "heads")},
    ),
    "relative": (
        lambda s, h, qi, ki, bias: s + bias[qi - ki],
        lambda s, h, qi, ki, bias: s + bias[clamp(qi - ki, bias.shape[0])],
        {"bias": ("extent",)},
    ),
    "capped key bias": (
        lambda s, h, qi, ki, bias: attn.math.softcap(s + bias[ki], 20.0),
        lambda s, h, qi, ki, bias: _softcap(s + bias[clamp(ki, bias.shape[0])], 20.0),
        {"bias": ("extent",)},
    ),
}


def draw_tables(form, random, heads, longest):
    """Return tables with values of the magnitude of scores, or less if positions multiply them. Extents are both smaller and
    larger than the number of positions."""
    made = {}
    for name, extents in FORMS[form][2].items():
        shape = tuple(
            heads if extent == "heads" else int(random.integers(1, longest + 8)) for extent in extents
        )
        size = 10.0 ** random.uniform(-6, -2) if name == "slopes" else 10.0 ** random.uniform(-4, 0.5)
        made[name] = torch.from_numpy(random.standard_normal(shape) * size).float()
        if name == "gains":
            made[name] = 1 + 0.5 * torch.tanh(made[name])
    return made
