# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pages that people read of benchmarks/results are what benchmarks/summary.py makes of its files."""

import json
import re
import sys
import xml.etree.ElementTree as ElementTree

import pytest
import summary
from attnlab import ROOT
from measuring import newest
from plots.speed import panels

PAGES = (
    "benchmarks/RESULTS.md",
    "README.md",
    "docs/pictures/speed-light.svg",
    "docs/pictures/speed-dark.svg",
)


def test_the_pages_are_of_the_files(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["summary.py", str(tmp_path)])
    summary.main()
    for page in PAGES:
        assert (tmp_path / page).read_text() == (ROOT / page).read_text(), "run ./dev bench summary"


def session(day, **more):
    device = {"device": "NVIDIA H200", "torch": "2.11.0", "cudnn": 91900}
    return {"id": f"2026-11-{day:02}T00:00:00+00:00", "flashinfer": "0.7.2", **device, **more}


def row(name, of, ours, **peers):
    return {
        "key": f"batches: {name}",
        "part": "batches",
        "name": name,
        "attn": {"run_ms": ours},
        "tflops": 100 / ours,
        "peers_ms": peers,
        "sustained_ms": {},
        "declined": {},
        "session": of["id"],
    }


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Write files of `bench gpu`, each a session with its rows."""

    def write(*reports):
        for index, (of, rows) in enumerate(reports):
            report = {"benchmark": "gpu", "sessions": [of], "rows": rows}
            (tmp_path / f"{index}.json").write_text(json.dumps(report))
        monkeypatch.setattr(newest, "RESULTS", tmp_path)
        newest.gpu_files.cache_clear()

    yield write
    newest.gpu_files.cache_clear()


def test_of_each_point_the_newest_counts(files):
    old, new = session(20), session(21)
    files(
        (new, [row("a", new, 1.0, cudnn=2.0)]),
        (old, [row("a", old, 4.0, cudnn=2.0), row("b", old, 1.0, cudnn=3.0)]),
    )
    [task] = summary.peer_tasks("H200")
    assert [(p.name, p.ratio, p.date) for p in task.points] == [
        ("a", 2.0, "2026-11-21"),
        ("b", 3.0, "2026-11-20"),
    ]
    assert summary.spread([p.ratio for p in task.points]) == "2.45 (2.00 to 3.00)"
    assert summary.reach(task.points) == "100 TFLOP/s"


def test_cards_are_apart(files):
    here, there = session(20), session(21, device="NVIDIA H100 80GB HBM3")
    files((here, [row("a", here, 1.0, cudnn=2.0)]), (there, [row("a", there, 1.0, cudnn=1.5)]))
    assert [summary.peer_tasks(card)[0].points[0].ratio for card in ("H200", "H100")] == [2.0, 1.5]


def test_the_best_peer_is_named_with_its_version(files):
    here = session(20)
    files(
        (here, [row("a", here, 1.0, cudnn=3.0, flashinfer=2.0), row("b", here, 1.0, **{"cudnn, fed": 1.5})])
    )
    [task] = summary.peer_tasks("H200")
    assert summary.peers(task.points) == "FlashInfer 0.7.2 (1 of 2), cuDNN 9.19.0 (1 of 2)"


def test_a_peer_that_a_newer_run_lacks_stays(files):
    """The newest run of every peer counts, and of these runs the one whose best peer is ahead the most."""
    full, newer, newest_of_all = session(20), session(21, flashinfer=None), session(22, flashinfer=None)
    files(
        (
            full,
            [row("a", full, 2.0, cudnn=3.0, flashinfer=1.0), row("b", full, 2.0, cudnn=2.0, flashinfer=5.0)],
        ),
        (newer, [row("b", newer, 1.0, cudnn=1.1)]),
        (newest_of_all, [row("a", newest_of_all, 1.0, cudnn=3.0), row("b", newest_of_all, 1.0, cudnn=1.5)]),
    )
    [task] = summary.peer_tasks("H200")
    assert [(p.ratio, p.date) for p in task.points] == [(0.5, "2026-11-20"), (1.0, "2026-11-20")]


def test_sessions_without_a_library_are_left_out(files):
    full, lacking = session(20), session(21, flashinfer=None)
    files((full, [row("a", full, 1.0, flashinfer=2.0)]), (lacking, [row("b", lacking, 1.0, cudnn=3.0)]))
    [task] = summary.peer_tasks("H200")
    assert [p.name for p in task.points] == ["a"]


def test_several_gpus_have_their_newest_rows(files, tmp_path):
    files()

    def write(name, date, ranks, device="NVIDIA H200", **row):
        row = {"part": "decode", "side": "by tokens", "tokens": 8192, "ms": 0.5, **row}
        report = {"benchmark": "distributed", "device": device, "ranks": ranks, "date": date}
        (tmp_path / name).write_text(json.dumps(report | {"rows": [row, {"part": "links", "side": "ring"}]}))

    assert summary.several_lines("H200") == []
    write("1.json", "2026-11-20", 2, times_one=1.5)
    write("2.json", "2026-11-21", 2, times_one=1.75, sequences=4)
    write("3.json", "2026-11-22", 2, times_one=1.25)
    write("4.json", "2026-11-22", 4, times_one=3.5, part="training", side="ring", gradients=True)
    write("5.json", "2026-11-22", 2, "NVIDIA H100 80GB HBM3", times_one=1.9)
    assert summary.several_lines("H200")[-3:] == [
        "| 2 | decode | 8,192 tokens | by tokens | 0.500 ms | 1.25 | 2026-11-22 |",
        "| 2 | decode | 4 x 8,192 tokens | by tokens | 0.500 ms | 1.75 | 2026-11-21 |",
        "| 4 | training | 8,192 tokens, forward and gradients | ring | 0.500 ms | 3.50 | 2026-11-22 |",
    ]


def test_figures_of_latents_are_by_heads():
    row = {"q_heads": 16, "copy_share": 0.9, "tflops": 120}
    assert summary.of_heads(16, "copy_share")(row) == 0.9 and summary.of_heads(128, "tflops")(row) is None
    codes = row | {"over_bf16": 1.5}
    assert (
        summary.of_heads(16, "over_bf16")(codes) == 1.5 and summary.of_heads(128, "over_bf16")(codes) is None
    )
    assert (
        summary.of_heads(16, "over_bf16")(row) is None and summary.of_heads(16, "copy_share")(codes) is None
    )


def test_the_chart_is_of_one_card_and_has_few_sides():
    for panel in panels("H200"):
        sides = {name for _, of in panel.bars for name in of}
        assert {m.card for m in panel.measured} == {"H200"}
        assert "attn" in sides and len(sides) <= 6, panel.title
    ElementTree.fromstring((ROOT / "docs/pictures/speed-dark.svg").read_text())


LINK = re.compile(r'\]\(([^)#: ]+)(?:#[\w-]*)?\)|(?:src|srcset)="([^":]+)"')


@pytest.mark.parametrize(
    "page", ["README.md", "benchmarks/RESULTS.md", "benchmarks/results/README.md", "docs/support.md"]
)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text()
    links = {first or second for first, second in LINK.findall(text)}
    assert links
    assert not [link for link in links if not ((ROOT / page).parent / link).exists()]
