# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The chart of README: forward, backward, decode and quantized decode on one card, beside the best peers.

It is written as SVG without a library, so that the same files give the same picture everywhere."""

from dataclasses import dataclass

from measuring.newest import newest, newest_of_peers, peer, peer_title
from plots.palette import COLOURS, INK, LINE, PAPER, TITLES

MODES = ("light", "dark")
LIGHT_SIDES = (COLOURS["flashinfer"], COLOURS["flash4"])  # numbers in their bars are dark
WIDTH, HEIGHT = 860, 560
LEFT, TOP, RIGHT, BOTTOM = 50, 40, 8, 42  # of a panel, around its axes
HEAD = 54

FORWARD = ("2048", "4096", "8192", "16384", "32768")
BACKWARD = (
    ("64/8, 1 x 4K", "d128 64/8 causal 1 x 4096"),
    ("64/8, 1 x 16K", "d128 64/8 causal 1 x 16384"),
    ("32/8, 2 x 8K", "d128 32/8 causal 2 x 8192"),
    ("32/8, 32 x 512", "d128 32/8 causal 32 x 512"),
)
DECODE = (
    ("1 x 32K", "32/8 batch 1 x 32768"),
    ("16 x 8K", "32/8 batch 16 x 8192"),
    ("64 x 4K", "32/8 batch 64 x 4096"),
    ("64 x 16K", "32/8 batch 64 x 16384"),
)
QUANTIZED = (
    ("e4m3", "e4m3 per head, 32 x 8192"),
    ("int8", "K8V8, 32 x 8192"),
    ("K8V4", "K8V4, 41 x 8192"),
    ("nvfp4", "nvfp4, 57 x 8192"),
    ("int4", "K4V4, 61 x 8192"),
    ("K4V2", "K4V2, 79 x 8192"),
)


@dataclass(frozen=True)
class Panel:
    title: str
    unit: str
    tick: float
    across: str  # The meaning of the names below the bars.
    bars: list  # (name, figure by side).
    measured: list  # The measurement of each bar.
    line: tuple | None = None  # A figure to compare with, and its name.


def times(measured, sides):
    """Return milliseconds of attn and of some peers."""
    found = {"attn": measured.row["attn"]["run_ms"]}
    for name, ms in measured.row["peers_ms"].items():
        if peer(name) in sides:
            found[peer(name)] = min(ms, found.get(peer(name), ms))
    return {name: found[name] for name in sides if name in found}


def bars_of(card, part, points, sides, figure, wanted=lambda m: True):
    """Return (label, figure by side) of each point that the card has, and its measurements."""
    known = {m.name: m for m in newest_of_peers(card, part, wanted)}
    there = [(label, known[name]) for label, name in points if name in known]
    bars = [(label, {s: figure(m.row, ms) for s, ms in times(m, sides).items()}) for label, m in there]
    return bars, [m for _, m in there]


def teraflops(row, ms):
    return row["visited_flops"] / ms / 1e9


def terabytes(row, ms):
    return row["kv_bytes"] / ms / 1e9


def over_bf16(row, ms):
    return row["bf16_ms"] / ms


def panels(card):
    known = {str(m.row["lengths"][0]): m.name for m in newest(card, "prefill") if prefill_shown(m)}
    labels = [(f"{int(n) // 1024}K", known[n]) for n in FORWARD if n in known]
    forward = bars_of(card, "prefill", labels, ("attn", "flashinfer", "cudnn", "flash"), teraflops)
    backward = bars_of(card, "backward", BACKWARD, ("attn", "flash4", "cudnn", "flash"), teraflops)
    decode = bars_of(card, "decode", DECODE, ("attn", "flashinfer", "cudnn"), terabytes)
    copying = max(m.session["copy_bytes_per_second"] for m in decode[1]) / 1e12
    # e4m3 beside FlashInfer comes from the newest run that had both.
    pairs = bars_of(
        card, "quantized", QUANTIZED[:1], ("attn", "flashinfer"), over_bf16, lambda m: m.row["peers_ms"]
    )
    alone = bars_of(card, "quantized", QUANTIZED[1:], ("attn",), over_bf16)
    heads = "query/KV heads, sequences x tokens"
    formats = "keys and values; K8V4: keys int8, values int4"
    return [
        Panel(
            "Forward: prefill, 32/8 heads of 128, causal", "TFLOP/s", 200, "tokens of one sequence", *forward
        ),
        Panel("Backward: gradients, heads of 128, causal", "TFLOP/s", 200, heads, *backward),
        Panel(
            "Decode: bf16, 32/8 heads, pages of 16 (cuDNN: dense)",
            "TB/s",
            1,
            "sequences x tokens",
            *decode,
            (copying, "copying"),
        ),
        Panel(
            "Quantized decode: times as fast as attn's bf16",
            "times",
            1,
            formats,
            pairs[0] + alone[0],
            pairs[1] + alone[1],
        ),
    ]


def prefill_shown(measured):
    row = measured.row
    return row["dim"] == 128 and row["heads"] == [32, 8] and row["see"] == "causal"


def text(x, y, words, anchor="middle", size=11, weight="normal", more=""):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}"{more}>'
        f"{words}</text>"
    )


def number(x, y, value, mode, on=None):
    """Above a bar, where no line goes through it, or in white or ink inside of a bar of the colour `on`."""
    shown = f"{value:.0f}" if value >= 100 else f"{value:.1f}"
    if on:
        fill = INK[0] if on in LIGHT_SIDES else PAPER[0]
        return text(x, y + 22, shown, size=9, weight="600", more=f' fill="{fill}"')
    halo = (
        f' stroke="{PAPER[MODES.index(mode)]}" stroke-width="3" stroke-linejoin="round" paint-order="stroke"'
    )
    return text(x, y - 3, shown, size=8, more=halo)


def draw_panel(panel, x0, y0, width, height, mode):
    tick, bars, line = panel.tick, panel.bars, panel.line
    line_colour, ink = (pair[MODES.index(mode)] for pair in (LINE, INK))
    left, right, top, bottom = x0 + LEFT, x0 + width - RIGHT, y0 + TOP, y0 + height - BOTTOM
    most = max([value for _, sides in bars for value in sides.values()] + ([line[0]] if line else []))
    end = tick * (int(most * 1.06 / tick) + 1)
    place = lambda value: bottom - (bottom - top) * value / end  # noqa: E731
    lines = [
        text(left, y0 + 16, panel.title, "start", 12, "600"),
        text(left - 6, y0 + 32, panel.unit, "end", 10),
    ]
    lines.append(text((left + right) / 2, bottom + 31, panel.across, size=10))
    for step in range(int(end / tick) + 1):
        y = place(step * tick)
        lines.append(
            f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="{line_colour}" '
            f'stroke-opacity="0.35"/>'
        )
        lines.append(text(left - 6, y + 4, f"{step * tick:g}", "end", 10))
    slot = (right - left) / len(bars)
    for index, (label, sides) in enumerate(bars):
        width_of_bar = min(26, slot * 0.94 / max(len(s) for _, s in bars))
        at = left + slot * (index + 0.5) - width_of_bar * len(sides) / 2
        for name, value in sides.items():
            y = place(value)
            lines.append(
                f'<rect x="{at:.1f}" y="{y:.1f}" width="{width_of_bar - 2:.1f}" height="{bottom - y:.1f}" '
                f'fill="{COLOURS[name]}"/>'
            )
            middle = at + width_of_bar / 2 - 1
            # Beside a line that crosses the panel numbers are inside the bars.
            lines.append(number(middle, y, value, mode, COLOURS[name] if line else None))
            at += width_of_bar
        lines.append(text(left + slot * (index + 0.5), bottom + 16, label, size=10))
    if line:
        y = place(line[0])
        lines.append(
            f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="{ink}" stroke-dasharray="4 3"/>'
        )
        lines.append(text(left + 2, y - 4, line[1], "start", 9))
    return lines


def legend(drawn, mode):
    """Draw the sides of all panels with their versions, in one line above them."""
    sessions = {}
    for panel in drawn:
        for (_, sides), m in zip(panel.bars, panel.measured, strict=True):
            for name in sides:
                if name not in sessions or sessions[name]["id"] < m.session["id"]:
                    sessions[name] = m.session
    lines, x = [], LEFT
    for name in (name for name in COLOURS if name in sessions):
        words = TITLES[name] if name == "attn" else peer_title(name, sessions[name])
        lines.append(f'<rect x="{x:.1f}" y="32" width="12" height="12" fill="{COLOURS[name]}"/>')
        lines.append(text(x + 17, 42, words, "start"))
        x += 17 + 6.3 * len(words) + 16
    return lines


def draw_speed(card, mode):
    drawn = panels(card)
    dates = [m.date for panel in drawn for m in panel.measured]
    title = f"NVIDIA {card}, measured {min(dates)} to {max(dates)}; higher is better"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="Helvetica, Arial, sans-serif" fill="{INK[MODES.index(mode)]}" role="img">',
        f"<title>{title}</title>",
        text(LEFT, 18, title, "start", 13, "600"),
        *legend(drawn, mode),
    ]
    width, height = WIDTH / 2, (HEIGHT - HEAD) / 2
    for index, one in enumerate(drawn):
        lines += draw_panel(one, width * (index % 2), HEAD + height * (index // 2), width, height, mode)
    return "\n".join([*lines, "</svg>"]) + "\n"
