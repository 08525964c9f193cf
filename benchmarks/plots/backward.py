# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws the rows of `bench gpu backward`, `shared-backward` and `tree-backward`: TFLOP/s of all products, of attn and of its
peers; and those of `eager`: microseconds of a call."""

from plots.palette import REFERENCE, colour, head, hosts, legend, name_rows, sustained, title

EMPTY = "empty"  # An autograd function that does nothing.


def shade(name):
    return REFERENCE if name == EMPTY else colour(name)


def places_of(index, times):
    """Yield (position, height, side, time) of the bars of a row, side by side."""
    height = 0.8 / len(times)
    for step, (name, time) in enumerate(times.items()):
        yield index + height * (step - (len(times) - 1) / 2), height, name, time


def draw_gradients(axes, rows):
    """Draw gradients. Work is that of attn for all sides: extra work of others, as with copies of a prompt, counts
    against them."""
    for index, row in enumerate(rows):
        rate = lambda ms, flops=row["visited_flops"]: flops / ms / 1e9  # noqa: E731
        times = {"attn": row["attn"]["run_ms"], **row["peers_ms"]}
        for place, height, name, milliseconds in places_of(index, times):
            axes.barh(place, rate(milliseconds), height=height, color=shade(name), label=title(name))
            if back_to_back := row["sustained_ms"].get(name):
                sustained(axes, rate(back_to_back), place, name)
    name_rows(axes, [row["name"] for row in rows])
    axes.set_xlabel("TFLOP/s", fontsize=8)
    head(axes, rows[0]["part"])
    legend(axes)


def draw_eager(axes, rows):
    """Draw forward with gradients, back to back."""
    for index, row in enumerate(rows):
        for place, height, name, microseconds in places_of(index, row["back_to_back_us"]["both"]):
            label = "a function that does nothing" if name == EMPTY else title(name)
            axes.barh(place, microseconds, height=height, color=shade(name), label=label)
            host = row["host_us"]["both"][name]
            hosts(axes, host, place, height * 0.3)
    name_rows(axes, [row["name"] for row in rows])
    axes.set_xlabel("µs a call", fontsize=8)
    head(axes, "forward and gradients of small problems")
    legend(axes)
