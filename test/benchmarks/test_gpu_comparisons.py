# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The parts of `bench gpu` in which attn competes with itself or with copying, as far as no GPU is needed."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from attnlab import attn_run
from benchlab import SESSION, FakeContest, FakeRun, bench_of
from catalogue import PARTS, bars
from contest import Contest, Measured
from measure import Clock, heading, line, measure_all, missing
from measuring.comparisons import compare
from measuring.report import import_attn
from measuring.results import Results
from parts import wide
from parts.cache import cache_points
from parts.sharing import COMPARISONS, TreePoint, shared_points, tree_points
from parts.wide import WidePoint, measure_wide, wide_line

COMPARED = [point for part in COMPARISONS.values() for point in part(False)]


def small(point):
    samples = {"samples": 1} if isinstance(point, TreePoint) else {}
    return replace(
        point, scale=32 if samples else 128 if point.part == "heads" else point.prompt // 128, **samples
    )


@pytest.mark.parametrize("point", COMPARED, ids=lambda p: p.key)
def test_every_way_is_right_and_counted_as_planned(point, tmp_path):
    """Scaled-down copies of every workload on the host device. Bulk copies fill their tiles with what is repeated, so
    bytes are compared where tiles are gathered: within 3 % of the planner's."""
    counted = set()
    contenders = small(point).contenders(tmp_path)
    for label, runs in contenders.items():
        if label == "flatten" and runs[0].rows > 100:
            continue  # many small nodes in tiles of 128: half a minute of a CPU
        for run in runs:
            file = tmp_path / "problem.mlir"
            file.write_text(run.problem.text())
            schedule = () if point.part == "trees" else ("--schedule=mma",)
            status, report, errors = attn_run(file, "--device=host", "--check", *schedule, *run.options)
            assert status == 0, (label, errors)
            assert report["rows"] == run.rows
            if report["schedule"] == "mma" or report["kernel"].endswith("rows16"):
                bytes = report["bytes_read"] + report["bytes_written"]
                assert abs(bytes / report["planned_bytes"] - 1) <= 0.03, label
                counted.add(label)
    assert counted >= set(contenders) - {"flatten"}


def test_sampled_steps_stand_for_all(tmp_path):
    for point in (tree_points(False)[0], replace(tree_points(False)[3], samples=7)):
        contenders = replace(point, scale=8).contenders(tmp_path)
        steps = json.loads((tmp_path / "workload.json").read_text())["steps"]
        for runs in contenders.values():
            assert len(runs) == point.samples
            assert sum(run.weight for run in runs) == len(steps)
            numbers = [
                int(option.partition("=")[2]) for run in runs for option in run.options if "--step" in option
            ]
            assert numbers == sorted(numbers) and numbers[0] > 0 and numbers[-1] < len(steps) - 1


def test_work_shared_and_replicated():
    """By counting pairs; and the ceiling that the issue's bar stands below."""
    small = replace(shared_points(False)[0], sequences=3, prompt=5, response=4)
    prompt, response = 5 * 6 // 2, 4 * 5 + 4 * 5 // 2
    assert small.pairs() == (prompt + 3 * response, 3 * (prompt + response))
    assert shared_points(False)[-1].ceiling() == pytest.approx(5.90, abs=0.01)


class FakeByOptions(FakeRun):
    """One that takes `milliseconds` where an option holds a word, else 1."""

    def __init__(self, word, milliseconds):
        super().__init__()
        self.word, self.slow = word, milliseconds

    def __call__(self, file, *options, timeout):
        self.milliseconds = self.slow if any(self.word in option for option in options) else 1.0
        return super().__call__(file, *options, timeout=timeout)


def test_times_of_a_comparison_are_sums_over_steps(tmp_path, capsys):
    run = FakeByOptions("by-query", 4.0)
    bench, results = bench_of(run, tmp_path)
    point = next(p for p in tree_points(False) if p.name == "256 speculated tokens")
    assert measure_all([replace(point, scale=32)], bench, Clock(None), results) == ([], {})
    row = json.loads((tmp_path / "gpu.json").read_text())["rows"][0]
    assert row["times_ms"] == {"flatten": 100, "flatten, mma": 100, "by-query": 400}
    assert row["predicted_ms"]["by-query"] == pytest.approx(90)
    assert row["ratio"] == 4 and row["best"] == "flatten"
    assert bars(row, SESSION) == [("3.59 times as fast as by-query", True)]
    assert missing([point], Results(tmp_path / "gpu.json", SESSION)) == []
    assert "256 speculated tokens" in capsys.readouterr().out


def test_shared_prompts_have_peers(tmp_path):
    bench, results = bench_of(FakeByOptions("batch", 5.2), tmp_path, {"cudnn": 6.5})
    row = compare(shared_points(False)[-1], bench)
    assert row["ratio"] == 5.2 and row["ratio_to_best_peer"] == 6.5
    assert bars(row, SESSION) == [("5.30 times as fast as replicated", False)]
    ((point, names, ours),) = bench.contest.asked
    assert point.lengths == (34816,) * 16 and "flex" not in names and not ours
    assert point.flops() == pytest.approx(shared_points(False)[-1].pairs()[1] * 4 * 128 * 32)


# --- cache --------------------------------------------------------------------------------------------------


def test_cache_rows_say_what_was_measured(tmp_path, capsys):
    run = FakeRun(0.2)
    bench, results = bench_of(run, tmp_path)
    assert measure_all(cache_points(False)[1:2], bench, Clock(None), results) == ([], {})
    [row] = results.rows.values()
    assert "--dim=layers=32" in run.options[0] and "--dim=rows=4096" in run.options[0]
    assert row["bytes_per_second"] == pytest.approx(3e12)
    assert row["copy_share"] == pytest.approx(0.75)
    assert bars(row, SESSION) == [("0.90 of copying", False)]
    assert "3000 GB/s  0.75 of copying" in capsys.readouterr().out


@pytest.mark.parametrize("point", cache_points(False), ids=lambda p: p.key)
def test_cache_points_move_what_they_count(point, tmp_path):
    file = tmp_path / "problem.mlir"
    file.write_text(point.problem.text())
    status, report, errors = attn_run(file, "--device=host", "--check", "--dim=layers=2", "--dim=rows=40")
    assert status == 0, errors
    slots = 2 if point.problem.op == "move" else 1
    # Some rows are skipped.
    assert 0.5 < (report["bytes_floor"] - 160 * slots) / (2 * 2 * 40 * point.row_bytes()) < 1
    assert report["slots"] <= 5 * slots * 40


# --- heads of 512, beside heads of 256 and copying ---------------------------------------------------------------

PAGES = {"rows": 1, "store": "paged<64>"}


def wide_bench(contest):
    return SimpleNamespace(contest=contest, results=SimpleNamespace(session=SESSION))


def measured_wide(point, peers=None):
    contest = FakeContest(FakeRun(2.0), peers)
    return measure_wide(point, wide_bench(contest)), contest


def test_wide_points():
    points = PARTS["wide"](False)
    assert len({point.key for point in points}) == len(points) == 7 and len(PARTS["wide"](True)) == 2
    assert Clock.work(points[0]) == points[0].seconds() and "512 features" in heading(points[0])
    prompt, half = points[0].of_dim(512), points[0].of_dim(256)
    assert prompt.flops() == 2 * half.flops() == 2 * (8192 * 8193 // 2) * 16 * 1024
    assert points[4].of_dim(512).kv_bytes() == 16 * 8192 * 4 * 1024 * 2


def test_wide_prefill_is_compared_with_heads_of_256():
    row, contest = measured_wide(WidePoint(8192), {"flex": 3.0})
    assert [(point.problem.dim, names) for point, names, _ in contest.asked] == [
        (512, ("cudnn", "flash", "flex")),
        (256, ()),
    ]
    assert row["of_narrow"] == row["sustained_of_narrow"] == 2.0  # Twice the work in the same time.
    times = {512: ({"attn": 5.0}, {"attn": 8.0}), 256: ({"attn": 2.0}, {"attn": 2.0})}
    other = measure_wide(
        WidePoint(8192), wide_bench(lambda point, names: Measured(*times[point.problem.dim]))
    )
    assert other["of_narrow"] == 0.8 and other["sustained_of_narrow"] == 0.5
    assert row["ratio_to_best_peer"] == 1.5 and "flex x1.50" in line(row) == wide_line(row)
    assert bars(row, SESSION) == [
        ("0.75 of the rate of heads of 256", True),
        ("as fast as the best peer", True),
    ]
    slow = row | {"of_narrow": 0.74, "peers_ms": {}}
    assert bars(slow, SESSION) == [("0.75 of the rate of heads of 256", False)]


def test_wide_decode_is_compared_with_copying():
    row, contest = measured_wide(WidePoint(8192, 16, **PAGES))
    assert len(contest.asked) == 1 and contest.asked[0][1] == ()
    assert row["copy_share"] == pytest.approx(16 * 8192 * 8192 / 2e-3 / 4e12)
    assert row["sustained_copy_share"] == pytest.approx(row["copy_share"] / 1.1)
    assert bars(row, SESSION) == [("0.90 of copying", False)] and "of copying" in line(row)


@pytest.mark.parametrize("point", [WidePoint(70), WidePoint(70, 2, **PAGES)], ids=["prefill", "decode"])
def test_tiny_wide_heads(point, monkeypatch):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    import_attn()
    monkeypatch.setattr(wide, "PEERS", ())  # FlexAttention compiles for long.

    def alone(functions):
        for function in functions.values():
            function()
        return dict.fromkeys(functions, 2.0)

    timer = SimpleNamespace(alone=alone, sustained=lambda runs, *_: dict.fromkeys(runs, 2.0))
    row = measure_wide(point, wide_bench(Contest(torch, timer, device="cpu")))
    assert row["difference"] < 0.03 and row["attn"]["run_ms"] == 2.0
