# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The picture of `bench real training`: GRPO of a trained model over packed groups, and over copies."""

from .palette import COLOURS, LIMIT, OTHER_FORM, STYLE, head, legend

BOUND = 1e-4  # of gradients in float32


def draw(rows):
    """Draw losses of both sides over updates, mean rewards over steps, and how far gradients are apart."""
    import matplotlib
    from matplotlib import pyplot, ticker

    matplotlib.rcParams.update(STYLE)
    shown = [row for row in rows if row["part"] == "training" and row["task"] == "grpo"]
    numbers = range(1, len(shown) + 1)
    figure, (losses, rewards, apart) = pyplot.subplots(3, figsize=(8, 7))
    for way, shade, width in (("packed", COLOURS["attn"], 3.0), ("replicated", COLOURS["sdpa"], 1.0)):
        label = "packed, attn" if way == "packed" else "copies, PyTorch"
        losses.plot(numbers, [row["loss"][way] for row in shown], color=shade, linewidth=width, label=label)
    losses.set(xlabel="update", ylabel="loss")
    steps = {row["step"]: row["reward"] for row in shown}
    rewards.plot([step + 1 for step in steps], steps.values(), color=COLOURS["attn"], label="mean reward")
    rewards.set(xlabel="step", ylabel="reward")
    for name, shade, label in (
        ("gradients_apart", COLOURS["attn"], "gradients, of the largest"),
        ("loss_apart", OTHER_FORM, "losses"),
    ):
        found = [(at, row[name]) for at, row in zip(numbers, shown, strict=True) if row[name] > 0]
        if found:
            apart.plot(*zip(*found, strict=True), color=shade, marker=".", linestyle="none", label=label)
    if all(row["precision"] == "float32" for row in shown):
        apart.plot([1, len(shown)], [BOUND, BOUND], color=LIMIT, linewidth=1.2, label="bar")
    apart.set(yscale="log", xlabel="update", ylabel="apart")
    head(losses, "GRPO of SmolLM2-135M-Instruct, packed and over copies")
    for axes in (losses, rewards, apart):
        axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
        axes.grid(which="major")
        legend(axes)
    figure.tight_layout()
    return figure
