# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The picture of `bench real`: what each format of keys and values costs a trained model."""

from .palette import COLOURS, STYLE


def draw(rows):
    """Draw KL over bytes of a token, by format."""
    import matplotlib
    from matplotlib import pyplot

    matplotlib.rcParams.update(STYLE)
    shown = [row for row in rows if row["part"] == "formats" and row["kl"] > 0]
    figure, axes = pyplot.subplots(figsize=(7, 4))
    points = [(row["token_bytes"], row["kl"]) for row in shown]
    axes.scatter(*zip(*points, strict=True), color=COLOURS["attn"])
    for row, point in zip(shown, points, strict=True):
        axes.annotate(row["format"], point, xytext=(4, 4), textcoords="offset points")
    axes.set(yscale="log", xlabel="bytes of a token, all layers", ylabel="KL from 16 bits, nats")
    axes.set_title("SmolLM2-135M-Instruct: loss by format", fontsize=9)
    axes.margins(x=0.12, y=0.1)
    axes.grid(which="major")
    figure.tight_layout()
    return figure
