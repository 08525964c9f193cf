# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares kernels of a visibility with its definition: softmax in float64 over the tokens that `Visibility.sees`
shows.

It also runs as a program: python seen.py VISIBILITY..., with visibilities in Python's syntax.
"""

import math
import sys

import attn
import numpy
import torch

HEADS, KV_HEADS, DIM = 4, 2, 64
TOLERANCE = 1e-2  # Tolerance of bfloat16, relative to the largest value.


def exact(q, k, v, see, positions, first):
    """Return out [rows, heads, dim] of one sequence whose token t is at position first + t; autograd passes through."""
    shown = torch.from_numpy(see.sees(positions[:, None], first + numpy.arange(len(k))[None]))
    k, v = (each.repeat_interleave(HEADS // KV_HEADS, 1) for each in (k, v))
    s = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(DIM)
    s = s.masked_fill(~shown, -math.inf)
    weights = torch.nan_to_num(torch.softmax(s, 2))
    return torch.einsum("hqk,khd->qhd", weights, v)


def near(found, wanted, what):
    worst = (found.double() - wanted).abs().max() / wanted.abs().max().clamp(min=1e-6)
    assert worst <= TOLERANCE, f"{what}: {worst:.2e}"


def compiled(store, schedule, numerics=None, on_device=False):
    heads = dict(q_heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM)
    spec = attn.Spec(**heads, dtype="bfloat16", kv=[store], device_plan=on_device, numerics=numerics)
    return spec, attn.compile(spec, schedule=schedule, device="host")


def sampled(spec, rows, lengths):
    """Return samples by name; numbers as tensors of PyTorch."""
    given = attn.sample(spec, seed=1, batch=len(lengths), q_len=rows, kv_len=list(lengths))
    numbers = {name for name, array in given.items() if array.dtype == numpy.uint16}
    return given | {name: torch.from_numpy(given[name]).view(torch.bfloat16) for name in numbers}


def check_gradients(see, schedule, rows=50, lengths=(300, 133), numerics=None):
    """Check forward and backward, over dense tensors that hold more than the sequences."""
    spec, kernel = compiled(attn.Dense(see=see), schedule, numerics)
    given = sampled(spec, rows, lengths)
    leaves = [given[name].requires_grad_() for name in ("q", "kv.k", "kv.v")]
    q, k, v = leaves
    out = kernel.run(q, (k, v), kernel.plan(given))
    exact_leaves = [tensor.detach().double().requires_grad_() for tensor in leaves]
    eq, ek, ev = exact_leaves
    made = torch.cat(
        [
            exact(eq[i * rows : (i + 1) * rows], ek[i, :n], ev[i, :n], see, numpy.arange(n - rows, n), 0)
            for i, n in enumerate(lengths)
        ]
    )
    near(out.detach(), made.detach(), f"{see}, {schedule}: out")
    d_out = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).bfloat16()
    out.backward(d_out)
    made.backward(d_out.double())
    for name, one, other in zip(("dq", "dk", "dv"), leaves, exact_leaves, strict=True):
        wanted = torch.nan_to_num(other.grad)
        near(one.grad, wanted, f"{see}, {schedule}: {name}")


def check_pages(see, schedule, rows, lengths=(300, 133), numerics=None, on_device=False):
    """Check forward over pages, planned on the host or on the device."""
    spec, kernel = compiled(attn.Paged(page_size=16, see=see), schedule, numerics, on_device)
    given = sampled(spec, rows, lengths)
    plan = kernel.device_planner(given).plan(check=True) if on_device else kernel.plan(given)
    out = kernel.run(given["q"], (given["kv.k_pages"], given["kv.v_pages"]), plan)
    table = torch.from_numpy(given["kv.block_table"]).long()
    for i, length in enumerate(lengths):
        pages = table[i, : -(-length // 16)]
        k, v = (given[f"kv.{part}_pages"][pages].flatten(0, 1)[:length].double() for part in "kv")
        own = slice(given["q_start"][i], given["q_start"][i + 1])
        wanted = exact(given["q"][own].double(), k, v, see, given["q_pos"][own], int(given["kv.pos0"][i]))
        near(
            out[own],
            wanted,
            f"{see}, {schedule}, {rows} rows, plan of the {'device' if on_device else 'host'}",
        )


def check_everywhere(see):
    for schedule in ("mma", "wgmma"):
        for numerics in (None, "row"):
            check_gradients(see, schedule, numerics=numerics)
            for rows in (3, 50):
                for on_device in (False, True):
                    check_pages(see, schedule, rows, numerics=numerics, on_device=on_device)


if __name__ == "__main__":
    for text in sys.argv[1:]:
        check_everywhere(eval(text, vars(attn) | {name: getattr(attn, name) for name in attn.__all__}))
        print(text, "is right")
