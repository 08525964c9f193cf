# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws the rows of `bench gpu transformers`, milliseconds from a token to the next, and of `bench gpu serving`, tokens a second."""

from plots.palette import COLOURS, OTHER_FORM, REFERENCE, TITLES, head, legend, name_rows


def draw_models(axes, rows):
    for index, name in enumerate(("attn", "sdpa")):
        there = [(i, r["times_of"][name]) for i, r in enumerate(rows) if name in r["times_of"]]
        if there:
            at, milliseconds = zip(*there, strict=True)
            places = [i + 0.35 * (index - 0.5) for i in at]
            axes.barh(places, milliseconds, height=0.35, color=COLOURS[name], label=TITLES[name])
    for place, row in enumerate(rows):
        axes.plot(
            [row["floor_ms"]] * 2,
            [place - 0.4, place + 0.4],
            color=REFERENCE,
            label="weights, keys, values read once",
        )
    name_rows(axes, [r["name"] for r in rows])
    axes.set_xlabel("ms a token", fontsize=8)
    head(axes, "Llama-3.1-8B's shape in generate")
    legend(axes)


# The servers: their colours and titles.
SERVERS = {
    "engine": (COLOURS["attn"], "attn's Engine"),
    "generate_batch": (OTHER_FORM, "attn in generate_batch"),
    "generate_batch sdpa": (COLOURS["sdpa"], "SDPA in generate_batch"),
}


def draw_serving(axes, rows):
    """Draw bars of the servers, for each kind of requests."""
    for index, (name, (shade, label)) in enumerate(SERVERS.items()):
        there = [
            (i, r["tokens_per_second"][name]) for i, r in enumerate(rows) if name in r["tokens_per_second"]
        ]
        if there:
            at, rates = zip(*there, strict=True)
            axes.barh([i + 0.25 * (index - 1) for i in at], rates, height=0.25, color=shade, label=label)
    name_rows(axes, [r["name"] for r in rows])
    axes.set_xlabel("generated tokens a second", fontsize=8)
    head(axes, "requests that come and go, Llama-3.1-8B's shape")
    legend(axes)
