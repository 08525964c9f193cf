# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes what people read of benchmarks/results, from its JSON files: of each card and point the newest measurement.

benchmarks/RESULTS.md           every task: attn, the best peer, ratio, card, date, command
docs/pictures/speed-*.svg       the chart of README, light and dark
README.md                       its table of results

./dev bench summary, or python benchmarks/summary.py [FOLDER]    writes into FOLDER; by default into this checkout
"""

import math
import statistics
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from measuring.generated import replace_section
from measuring.newest import OPTIONAL, newest, newest_of_peers, peer, peer_title, reports, short_name
from plots.speed import draw_speed

ROOT = Path(__file__).resolve().parents[1]
CARDS = ("H200", "H100")
SAME_PAGES = "decode, pages of 16, beside FlashInfer, which reads the same pages"
# Caches of Transformers, by their names in the files.
CACHES = {
    "dynamic": "dynamic cache",
    "static": "static cache",
    "graphed": "static cache, compiled and recorded",
    "recorded": "static cache, recorded by `Decoder`",
}
COMMAND = "./dev bench gpu {} --json FILE"
# Keys of a row that tell points of several GPUs apart.
POINT = ("part", "side", "tokens", "sequences", "gradients", "prompt")


@dataclass(frozen=True)
class Point:
    """One measured point: attn's time, the best peer's time, and their ratio. `reached` is attn's rate in
    `reached_unit`: TFLOP/s, TB/s, or the time itself."""

    name: str
    ours: float
    theirs: float
    unit: str
    peer: str
    ratio: float | None
    sustained: float | None
    date: str
    reached: float
    reached_unit: str


@dataclass(frozen=True)
class Task:
    """A line of the table: points that are summed up together."""

    title: str
    part: str
    points: list[Point]


def point(measured, ours, theirs, unit, peer, *, more_is_better=False, alone=True, sustained=None):
    ratio = ours / theirs if more_is_better else theirs / ours
    reached = rate(measured) or (ours, unit)
    dated = (measured.date, *reached)
    return Point(measured.name, ours, theirs, unit, peer, ratio if alone else None, sustained, *dated)


def rate(measured):
    """Return attn's use of the device: arithmetic if rows count it and memory is not the limit, else bytes."""
    row = measured.row
    if row["part"] in ("decode", "quantized"):
        return row["bytes_per_second"] / 1e12, "TB/s"
    return (row["tflops"], "TFLOP/s") if row.get("tflops") else None


def shown(value, unit):
    digits = {"TFLOP/s": 0, "tokens/s": 0, "us": 1, "TB/s": 2, "s": 2, "ms": 3 if value < 10 else 1}[unit]
    return f"{value:.{digits}f}"


def beside_peers(measured):
    best, ms, _ = measured.alone()
    title = peer_title(best, measured.session)
    ours = measured.row["attn"]["run_ms"]
    return point(measured, ours, ms, "ms", title, sustained=measured.sustained())


def beside_flashinfer(measured):
    """Return a point beside FlashInfer, which need not be the best peer."""
    ours, ms = measured.row["attn"]["run_ms"], measured.row["peers_ms"]["flashinfer"]
    times = measured.row.get("sustained_ms", {})
    sustained = times["flashinfer"] / times["attn"] if "flashinfer" in times else None
    return point(measured, ours, ms, "ms", peer_title("flashinfer", measured.session), sustained=sustained)


def beside_copies(measured):
    """Return prefill after a shared prompt: attn reads it once, peers read a copy for each response."""
    row = measured.row
    best, ms = measured.best_peer(row["peers_ms"])
    title = peer_title(best, measured.session) + ", copies of the prompt"
    return point(measured, row["times_ms"][row["best"]], ms, "ms", title)


def call_of(kind):
    """Return calls of small problems, one after the other: forward, or forward and gradients."""

    def call(measured):
        times = measured.row["back_to_back_us"][kind]
        best, us = measured.best_peer(times)
        title, ours = peer_title(best, measured.session), times["attn"]
        return point(measured, ours, us, "us", title, alone=False, sustained=us / ours)

    return call


def first_result(measured):
    seconds = measured.row["first_seconds"]
    return point(measured, seconds["attn"], seconds["flex"], "s", peer_title("flex", measured.session))


def token_of_a_model(measured):
    times = measured.row["times_of"]
    title = f"SDPA, Transformers {measured.row['transformers']}"
    return point(measured, times["attn"], times["sdpa"], "ms", title)


def served(measured):
    rates = measured.row["tokens_per_second"]
    title = f"generate_batch with SDPA, Transformers {measured.row['transformers']}"
    ours, theirs = rates["engine"], rates["generate_batch sdpa"]
    return point(measured, ours, theirs, "tokens/s", title, more_is_better=True)


def has_peer(measured):
    return "run_ms" in (measured.row.get("attn") or {}) and measured.alone() is not None


def with_all_peers(found):
    """Leave out points that no session measured beside a library beside which other points of the part were measured."""
    there = {peer(name) for m in found for name in m.row.get("peers_ms", {})}
    needed = [key for key, name in OPTIONAL.items() if name in there]
    return [m for m in found if m.libraries.issuperset(needed)]


def any_of(measured):
    return True


def large(measured):
    return measured.row["kv_bytes"] >= 512 << 20


def peer_tasks(card):
    """Return tasks that were measured beside another library on this card."""

    def task(title, part, point=beside_peers, wanted=has_peer):
        return Task(title, part, [point(m) for m in with_all_peers(newest_of_peers(card, part, wanted))])

    def of(test):
        return lambda m: has_peer(m) and test(m)

    def of_copies(m):
        return m.best_peer(m.row["peers_ms"]) is not None

    def of_cache(kind):
        return lambda m: m.row["cache"] == kind and {"attn", "sdpa"} <= m.row["times_of"].keys()

    def of_pages(m):
        return has_peer(m) and "flashinfer" in m.row["peers_ms"]

    tasks = [
        task(
            f"prefill of one sequence, heads of {dim}",
            "prefill",
            wanted=of(lambda m, d=dim: m.row["dim"] == d),
        )
        for dim in (64, 128, 256)
    ]
    tasks += [
        task("prefill of 1 to 32 sequences, 8 to 128 heads", "batches"),
        task("chunked prefill, 512 to 8,192 rows after 16K to 320K tokens", "chunks"),
        task("decode, pages of 16, from 512 MiB of keys and values", "decode", wanted=of(large)),
        task("decode, pages of 16, less than 512 MiB", "decode", wanted=of(lambda m: not large(m))),
        task(SAME_PAGES, "decode", beside_flashinfer, of_pages),
        task("decode over e4m3, pages of 16", "quantized", wanted=of(lambda m: "e4m3" in m.row["format"])),
        task("gradients", "backward"),
        task("prefill after a prompt that responses share", "shared", beside_copies, of_copies),
        task("forward and gradients after a shared prompt, beside copies", "shared-backward"),
        task("small calls one after the other, forward", "eager", call_of("forward"), any_of),
        task("small calls one after the other, forward and gradients", "eager", call_of("both"), any_of),
        task("described in Python: from import to the first result", "python", first_result, any_of),
    ]
    for kind, cache in CACHES.items():
        title = f"a token of an 8B Llama in `generate`, {cache}"
        tasks.append(task(title, "transformers", token_of_a_model, of_cache(kind)))
    tasks.append(task("requests served by `Engine`, an 8B Llama", "serving", served, any_of))
    return [found for found in tasks if found.points]


@dataclass(frozen=True)
class Own:
    """A figure of attn beside itself or beside the hardware: the ratio of two times, over the points of a part."""

    title: str
    part: str
    figure: object
    says: str


def times_of(name):
    return lambda row: row.get(name)


def of_heads(heads, name):
    """Return a figure of the points with so many query heads: those in e4m3, or the others."""
    e4m3 = name == "over_bf16"
    return lambda row: row[name] if row["q_heads"] == heads and ("over_bf16" in row) == e4m3 else None


OWN = (
    Own("sinks, windows, pages, ragged lengths, soft caps", "features", times_of("slowdown"), "time per visited FLOP over plain causal attention's"),
    Own("speculated and few-shot trees", "trees", times_of("ratio"), "times as fast as reading a path for each query"),
    Own("prompts that responses share", "shared", times_of("ratio"), "times as fast as copies of the prompt"),
    Own("heads that stream beside heads that see all", "heads", times_of("ratio"), "times as fast as with all heads seeing all"),
    Own("gradients over a tree of depth", "tree-backward", times_of("ratio_to_best_peer"), "times as fast as over one level"),
    Own("decode over bf16", "decode", times_of("copy_share"), "of the bandwidth that copies reach"),
    Own("append, move and gather of a cache", "cache", times_of("copy_share"), "of the bandwidth that copies reach"),
    Own("decode over latents (MLA), 16 query heads", "mla", of_heads(16, "copy_share"), "of the bandwidth that copies reach"),
    Own("decode over latents (MLA), 128 query heads", "mla", of_heads(128, "tflops"), "TFLOP/s"),
    Own("decode over latents in e4m3, 16 query heads", "mla", of_heads(16, "over_bf16"), "times as fast as bf16 on the same numbers"),
    Own("decode over latents in e4m3, 128 query heads", "mla", of_heads(128, "over_bf16"), "times as fast as bf16 on the same numbers"),
    Own("prefill with heads of 512", "wide", times_of("of_narrow"), "of the TFLOP/s of heads of 256"),
    Own("decode with heads of 512", "wide", times_of("copy_share"), "of the bandwidth that copies reach"),
    Own("new tokens, normalized, rotated and written", "append", times_of("of_copy"), "of the speed of copying"),
    Own("decoding with the significance of tokens", "significance", times_of("longer"), "times as long as without"),
    Own("full and streaming attention in one launch", "outputs", times_of("longer"), "times as long as full attention alone"),
    Own("pools in the layouts of engines", "layouts", times_of("slower"), "times as long as tensors of their own"),
    Own("a plan that the GPU makes", "planning", lambda row: row["plan_ms"] * 1e3, "us"),
    Own("page management, a step for all lists", "pages", lambda row: row["attn"]["run_ms"] * 1e3, "us"),
    Own("a recorded step of 32 layers of paged decode", "graphs", lambda row: row["step_ms"].get("replay"), "ms"),
    Own("decode of a model whose heads stream in part", "duo", times_of("decode_speed"), "times as fast as with all heads seeing all"),
    Own("DiffKV in a fixed memory, tokens per second", "diffkv", lambda row: row["ways"].get("DiffKV", {}).get("throughput_ratio"), "times as many as in bf16"),
)  # fmt: skip


def figures(card, own):
    """Return (name, figure, date) of each point."""
    return [
        (m.name, figure, m.date) for m in newest(card, own.part) if (figure := own.figure(m.row)) is not None
    ]


def by_format(card):
    """Return decode over quantized keys and values, a line for each format: times as fast as bf16 on the same tokens."""
    found = {}
    for m in newest(card, "quantized", lambda m: m.row["over_bf16"] and large_of_bf16(m)):
        found.setdefault(m.row["format"], []).append((m.name, m.row["over_bf16"], m.date))
    return found


def large_of_bf16(measured):
    """Whether quantized keys and values have 512 MiB, so that memory is measured."""
    return measured.row["kv_bytes"] >= 500e6


def several_gpus(device):
    """Return the newest rows of `bench distributed` on a device, with their dates, by number of GPUs and point."""
    found = {}
    for report in reports("distributed"):
        if short_name(report["device"]) == device:
            for row in report["rows"]:
                if row.get("times_one"):
                    found[report["ranks"], *map(row.get, POINT)] = row, report["date"]
    return found


def several_lines(card):
    """Format attention over several GPUs beside one of them."""
    lines = []
    for (ranks, part, side, *_), (row, date) in several_gpus(card).items():
        tokens = f"{row['sequences']} x {row['tokens']:,}" if "sequences" in row else f"{row['tokens']:,}"
        both = ", forward and gradients" if row.get("gradients") else ""
        cells = [str(ranks), part, f"{tokens} tokens{both}", side, f"{shown(row['ms'], 'ms')} ms"]
        lines.append("| " + " | ".join([*cells, f"{row['times_one']:.2f}", date]) + " |")
    head = f"### {card}: several GPUs beside one"
    command = "`./dev bench distributed --json FILE`; ordered gradients are beside ordered ones of one GPU."
    columns = "| GPUs | part | point | side | time | times as fast as one GPU | date |"
    return ["", head, "", command, "", columns, "|---|---|---|---|---|---|---|", *lines] if lines else []


def mean(ratios):
    return math.exp(statistics.fmean(map(math.log, ratios)))


def spread(ratios):
    """Format the geometric mean, and least and most of several."""
    ratios = [ratio for ratio in ratios if ratio]
    if not ratios:
        return "not measured"
    if len(ratios) == 1:
        return f"{ratios[0]:.2f}"
    return f"{mean(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def span(dates):
    first, last = min(dates), max(dates)
    return first if first == last else f"{first} to {last}"


def peers(points):
    """Format the peers that were the best, with the number of their points."""
    counts = Counter(point.peer for point in points)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{peer} ({count} of {len(points)})" for peer, count in counts.most_common())


def reach(points):
    """Format what attn reached, least to most."""
    least, most = (choose(p.reached for p in points) for choose in (min, max))
    unit = points[0].reached_unit
    first, last = shown(least, unit), shown(most, unit)
    return f"{first} {unit}" if first == last else f"{first} to {last} {unit}"


def task_line(task):
    points = task.points
    cells = [
        task.title,
        str(len(points)),
        reach(points),
        peers(points),
        spread([p.ratio for p in points]),
        spread([p.sustained for p in points]),
        span([p.date for p in points]),
        f"`{COMMAND.format(task.part)}`",
    ]
    return "| " + " | ".join(cells) + " |"


def own_line(title, part, found, says):
    values = [value for _, value, _ in found]
    dates = span([date for _, _, date in found])
    return f"| {title} | {len(found)} | {spread(values)} | {says} | {dates} | `{COMMAND.format(part)}` |"


def details(task):
    lines = [f"<details><summary>{task.title}: {len(task.points)} points</summary>", ""]
    lines += [
        "| point | attn | best peer | its time | alone | sustained | date |",
        "|---|---|---|---|---|---|---|",
    ]
    for p in task.points:
        times = [f"{shown(value, p.unit)} {p.unit}" for value in (p.ours, p.theirs)]
        ratios = [f"{ratio:.2f}" if ratio else "" for ratio in (p.ratio, p.sustained)]
        lines.append("| " + " | ".join((p.name, times[0], p.peer, times[1], *ratios, p.date)) + " |")
    return [*lines, "", "</details>", ""]


def environment(card):
    """Format the software of a card's newest session, and the rates that the card itself reached."""
    sessions = [m.session for part in ("batches", "backward", "quantized") for m in newest(card, part)]
    last = max(sessions, key=lambda session: session["id"])
    copies, products = last["copy_bytes_per_second"] / 1e12, last["matrix_flops_per_second"] / 1e12
    return (
        f"Driver {last['driver']}, PyTorch {last['torch']}, CUDA {last['cuda']}. Copies reach {copies:.2f} TB/s, products of "
        f"matrices {products:.0f} TFLOP/s."
    )


INTRODUCTION = """# Results

`./dev bench summary` writes this page from the JSON files of [results](results/README.md): the newest figure of each card and
point. A run may lack a library: of each peer the newest run counts, and of these runs the page has the one whose best peer is
ahead the most. The [log of runs](results/README.md) describes each run, and lists the bars that it missed.

- **Ratio**: the best peer's time over attn's. Above 1, attn is faster. The number is the geometric mean over the points; least
  and most are in brackets.
- **Alone**: the median of runs with the L2 cache emptied before each. **Sustained**: the mean of runs back to back, where the
  power limit rules.
- In prefill, batches, chunks, decode, quantized and backward all sides run in one process on the same tensors, in alternation.
  attn's result is compared before anything is timed.
- In decode, cuDNN reads dense tensors; FlashInfer and attn read pages.
- To repeat a line, run its command on such a card. Installed peers are measured.
- A figure is of one card.
"""


def page():
    lines = [INTRODUCTION]
    for card in CARDS:
        tasks = peer_tasks(card)
        lines += [f"## {card}", "", environment(card), "", f"### {card}: beside other libraries", ""]
        lines += [
            "| task | points | attn | best peer | ratio alone | ratio sustained | date | command |",
            "|---|---|---|---|---|---|---|---|",
        ]
        lines += [*map(task_line, tasks), "", f"### {card}: beside attn itself, and beside the hardware", ""]
        lines += ["| task | points | figure | what it is | date | command |", "|---|---|---|---|---|---|"]
        for fmt, found in by_format(card).items():
            title = f"decode over {fmt}, from 512 MiB of quantized values"
            lines.append(own_line(title, "quantized", found, "times as fast as bf16 on the same tokens"))
        for own in OWN:
            if found := figures(card, own):
                lines.append(own_line(own.title, own.part, found, own.says))
        lines += several_lines(card)
        lines += ["", f"### {card}: every point beside other libraries", ""]
        for task in tasks:
            lines += details(task)
    return "\n".join(lines).rstrip() + "\n"


# README's table: tasks of one card, by their titles.
SHOWN = (
    "prefill of 1 to 32 sequences, 8 to 128 heads",
    "chunked prefill, 512 to 8,192 rows after 16K to 320K tokens",
    "decode, pages of 16, from 512 MiB of keys and values",
    "decode, pages of 16, less than 512 MiB",
    SAME_PAGES,
    "decode over e4m3, pages of 16",
    "gradients",
    "prefill after a prompt that responses share",
    "small calls one after the other, forward",
    "described in Python: from import to the first result",
)


def short_table(card):
    lines = [
        f"| task, on an {card} | attn | best peer | ratio alone | sustained | `./dev bench gpu` |",
        "|---|---|---|---|---|---|",
    ]
    tasks = {task.title: task for task in peer_tasks(card)}
    for task in (tasks[title] for title in SHOWN):
        ratios = [spread([getattr(p, name) for p in task.points]) for name in ("ratio", "sustained")]
        lines.append(
            f"| {task.title} | {reach(task.points)} | {peers(task.points)} | {' | '.join(ratios)} | `{task.part}` |"
        )
    return lines


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    (folder / "benchmarks").mkdir(exist_ok=True)
    (folder / "docs" / "pictures").mkdir(parents=True, exist_ok=True)
    (folder / "benchmarks" / "RESULTS.md").write_text(page())
    for mode in ("light", "dark"):
        (folder / "docs" / "pictures" / f"speed-{mode}.svg").write_text(draw_speed(CARDS[0], mode))
    readme = (ROOT / "README.md").read_text()
    (folder / "README.md").write_text(replace_section(readme, "results", short_table(CARDS[0])))


if __name__ == "__main__":
    main()
