# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws the rows of `bench gpu backward`, `shared-backward` and `tree-backward`: TFLOP/s of all products, of attn and of its
peers; and those of `eager`: microseconds of a call."""

SHADES = {
    "attn": "#d62728",
    "cudnn": "#2ca02c",
    "flash": "#1f77b4",
    "flash4": "#17becf",
    "empty": "#c7c7c7",
    "replicated": "#7f7f7f",
    "one level": "#7f7f7f",
}


def draw_gradients(axes, rows):
    """Work is that of attn for all sides: what others do besides, as with copies of a prompt, is their loss. Lines:
    back to back."""
    for index, row in enumerate(rows):
        times = {"attn": row["attn"]["run_ms"], **row["peers_ms"]}
        height = 0.8 / len(times)
        for step, (name, milliseconds) in enumerate(times.items()):
            place = index + height * (step - (len(times) - 1) / 2)
            rate = lambda ms, flops=row["visited_flops"]: flops / ms / 1e9  # noqa: E731
            axes.barh(
                place, rate(milliseconds), height=height, color=SHADES.get(name.split(",")[0]), label=name
            )
            if sustained := row["sustained_ms"].get(name):
                axes.plot(
                    [rate(sustained)] * 2,
                    [place - height / 2, place + height / 2],
                    color="black",
                    linewidth=1,
                )
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("TFLOP/s")
    axes.set_title(f"{rows[0]['part']}; black: back to back", fontsize=9)
    handles, labels = axes.get_legend_handles_labels()
    first = dict(zip(reversed(labels), reversed(handles), strict=True))
    axes.legend(first.values(), first.keys(), fontsize=7)


def draw_eager(axes, rows):
    """Forward with gradients, back to back. Black: what the host takes from one call to the next."""
    for index, row in enumerate(rows):
        times = row["back_to_back_us"]["both"]
        height = 0.8 / len(times)
        for step, (name, microseconds) in enumerate(times.items()):
            place = index + height * (step - (len(times) - 1) / 2)
            shade = SHADES.get(name.split(",")[0])
            axes.barh(place, microseconds, height=height, color=shade, label=name)
            host = row["host_us"]["both"][name]
            axes.plot([host] * 2, [place - height / 2, place + height / 2], color="black", linewidth=1)
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("us a call")
    axes.set_title("forward and gradients of small problems; black: the host", fontsize=9)
    handles, labels = axes.get_legend_handles_labels()
    first = dict(zip(reversed(labels), reversed(handles), strict=True))
    axes.legend(first.values(), first.keys(), fontsize=7)
