# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Write docs/compositions.md: which features meet in one kernel, as the compiler and a run on the host device answer.

python tools/compositions.py [OUT.md]
"""

import sys
from pathlib import Path

import attn
import numpy

SINK = attn.causal() & (attn.sink(4) | attn.recent(8))
STREAMS = attn.heads(retrieval=attn.all_tokens(), streaming=attn.sink(4) | attn.recent(8))
INT8 = {"key": "int8", "value": "int8"}

# Each row of the table adds this to a description over one operand.
ROWS = {
    "`Dense()`": {"kv": [attn.Dense()]},
    "`Packed()`": {"kv": [attn.Packed()]},
    "`Paged()`": {},
    "`Paged(ragged=True)`": {"kv": [attn.Paged(ragged=True)]},
    "`Unified()`": {"kv": [attn.Unified(**INT8)]},
    "keys and values of int8": {"kv": [attn.Paged(**INT8)]},
    "keys and values of `fp8_e4m3`": {"kv": [attn.Paged(key="fp8_e4m3", value="fp8_e4m3")]},
    "keys of `mxfp8`, values of `mxfp4`": {"kv": [attn.Paged(key="mxfp8", value="mxfp4")]},
    "keys and values of `nvfp4`": {"kv": [attn.Paged(key="nvfp4", value="nvfp4")]},
    "two operands": {"kv": [attn.Paged(name="first"), attn.Paged(name="second")]},
    "a context that sequences share": {
        "kv": [attn.Paged(name="context", dims=("contexts", "context_len")), attn.Paged(name="own")]
    },
    "`window(8)`": {"see": attn.window(8)},
    "`window(8, 4)`": {"see": attn.window(8, 4)},
    "`causal() & chunk(8)`": {"see": attn.causal() & attn.chunk(8)},
    "`causal() & (sink(4) \\| recent(8))`": {"see": SINK},
    "`sink(4) \\| recent(8)`": {"see": attn.sink(4) | attn.recent(8)},
    "three intervals": {"see": attn.causal() & (attn.sink(4) | attn.recent(8) | attn.window(2))},
    "a score function": {"score": lambda s, h, qi, ki: 30.0 * attn.math.tanh(s / 30.0)},
    "sink logits": {"sink_logits": True},
    "`gate='elementwise'`": {"gate": "elementwise"},
    "`output='fp8_e4m3'`": {"output": "fp8_e4m3"},
    "`output_scales='head'`": {"output": "fp8_e4m3", "output_scales": "head"},
    "head classes": {"heads": STREAMS},
    "`significance=`": {"significance": "max"},
    "`device_plan=True`": {"device_plan": True},
}
COLUMNS = {
    "forward": {},
    "`device_plan=True`": {"device_plan": True},
    "`significance=`": {"significance": "max"},
    "head classes": {"heads": STREAMS},
    "gradients": None,
}
PLAIN = {
    "q_heads": 4,
    "kv_heads": 2,
    "head_dim": 64,
    "dtype": "float16",
    "kv": [attn.Paged()],
    "see": attn.causal(),
}


def dense(store):
    """Return a store in which gradients can be computed: plain pages become dense."""
    plain = store.kind == "paged" and not store.ragged and store.key is None
    return attn.Dense(name=store.name, dims=store.dims) if plain else store


def runs(named, gradient):
    """Return None if the description runs, else the refusal."""
    if gradient:
        named = named | {"kv": [dense(store) for store in named["kv"]]}
    try:
        spec = attn.Spec(**named)
        kernel = attn.compile(spec, device="host")
        sizes = {"contexts": 1, "batch": 2}
        sizes = {
            name: size for name, size in sizes.items() if name in {store.dims[0] for store in spec.operands}
        }
        sizes |= {"batch": 2, "q_len": 2} | {store.dims[1]: 20 for store in spec.operands}
        given = attn.sample(spec, seed=1, **sizes)
        if gradient:
            return no_gradient(kernel, given)
        plan = kernel.device_planner(given).plan(check=True) if spec.device_plan else kernel.plan(given)
        operands = [tuple(given[part] for part in parts) for parts in kernel._parts.values()]
        kernel.run(given["q"], *operands, plan, **{name: given[name] for name in kernel.extras})
    except attn.Error as error:
        return str(error).splitlines()[0].strip()
    return None


def no_gradient(kernel, given):
    import torch

    def tensor(array):
        made = torch.from_numpy(numpy.ascontiguousarray(array))
        return made.requires_grad_() if made.is_floating_point() else made

    try:
        operands = [tuple(tensor(given[part]) for part in parts) for parts in kernel._parts.values()]
        extras = {name: tensor(given[name]) for name in kernel.extras}
        out = kernel.run(tensor(given["q"]), *operands, kernel.plan(given), **extras)
        (out[0] if isinstance(out, tuple) else out).float().sum().backward()
    except attn.Error as error:
        return str(error).splitlines()[0].strip()
    return None


def table():
    reasons, lines = [], []
    for row, added in ROWS.items():
        cells = []
        for column, more in COLUMNS.items():
            if more is not None and set(more) & set(added) and column == row:
                cells.append("")
                continue
            said = runs(PLAIN | added | (more or {}), gradient=more is None)
            if said and said not in reasons:
                reasons.append(said)
            cells.append(f"no ({reasons.index(said) + 1})" if said else "yes")
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    head = ["| | " + " | ".join(COLUMNS) + " |", "|---|" + "---|" * len(COLUMNS)]
    return [*head, *lines], reasons


TEXT = """# Features that meet in one kernel

`tools/compositions.py` writes this page: it compiles each description, runs it on the host device, and notes the refusals.
A description has one operand, `Paged()`, of heads of 64 in f16, that rows see causally, unless its row or its column says
otherwise. For gradients the operand is `Dense()`. "yes": it compiles and runs. attn refuses the others before a launch,
with the messages below the table.

"""


def main():
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "compositions.md"
    lines, reasons = table()
    notes = [f"{number}. {reason}" for number, reason in enumerate(reasons, 1)]
    out.write_text(TEXT + "\n".join([*lines, "", *notes]) + "\n")


if __name__ == "__main__":
    main()
