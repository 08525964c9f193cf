# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What of `bench gpu` can be tested without a GPU: its points, its arithmetic, its files and its refusals."""

import json
import subprocess
import sys
import types
from importlib.util import find_spec

import gpu
import plot_gpu
import pytest
from attnlab import ROOT, attn_run, program
from benchlab import ABOUT, SESSION, FakeRun, bench_of
from catalogue import PARTS, bars
from contest import PEERS
from measure import Clock, heading, measure_all, missing, verdict
from measure import line as line_of
from measuring.points import region, visible_pairs
from measuring.results import Results
from parts.attention import decode_points, feature_points, prefill_points
from parts.batches import batch_points, chunk_points
from parts.cache import Appending, AppendPoint, append_line, cache_points, measure_append

POINTS = [point for part in PARTS.values() for point in part(False)]

# --- points -------------------------------------------------------------------------------------------------

SEEN = {
    "all": lambda q, k: True,
    "causal": lambda q, k: k <= q,
    "window(5)": lambda q, k: 0 <= q - k < 5,
    "sink(3)": lambda q, k: k < 3,
    "causal & (sink(3) | recent(5))": lambda q, k: k <= q and (k < 3 or 0 <= q - k < 5),
    "causal & sink(3) | window(2)": lambda q, k: (k <= q and k < 3) or 0 <= q - k < 2,
    "window(5) & sink(3)": lambda q, k: 0 <= q - k < 5 and k < 3,
}


@pytest.mark.parametrize("see", SEEN)
@pytest.mark.parametrize(("rows", "tokens"), [(1, 1), (1, 9), (7, 7), (4, 13), (13, 13)])
def test_visible_pairs(see, rows, tokens):
    expected = sum(SEEN[see](q, k) for q in range(tokens - rows, tokens) for k in range(tokens))
    assert visible_pairs(see, rows, tokens) == expected
    by_regions = sum(region(see).count(q, tokens) for q in range(tokens - rows, tokens))
    assert by_regions == expected


def test_points_are_what_was_asked_for():
    assert len({point.key for point in POINTS}) == len(POINTS)
    assert {(p.problem.q_heads, p.problem.dim, p.problem.see) for p in prefill_points(False)} == {
        (heads, dim, see) for heads in (64, 32) for dim in (64, 128, 256) for see in ("causal", "all")
    }
    assert {p.lengths[0] for p in prefill_points(False)} == {2048 << i for i in range(5)}
    for point in decode_points(False):
        assert 4e6 <= point.kv_bytes() <= 2**33
        assert 1 <= len(point.lengths) <= 64 and 500 <= point.lengths[0] <= 131072
    for part in PARTS.values():
        some, every = part(True), part(False)
        assert 0 < len(some) < len(every) and {p.key for p in some} <= {p.key for p in every}


def test_batches_cover_what_was_asked_for():
    """Batches of 1 to 32, 512 to 8K tokens, 8 to 128 heads, groups of 1 to 16, five head sizes; and the issue's own."""
    points = batch_points(False)
    assert 55 <= len(points) <= 65
    shapes = {(len(p.lengths), p.lengths[0], p.problem.q_heads, p.problem.kv_heads) for p in points}
    assert {b for b, *_ in shapes} == {1, 2, 4, 8, 16, 32}
    assert {512, 1024, 2048, 4096, 8192} <= {n for _, n, *_ in shapes}
    assert {q for *_, q, _ in shapes} == {8, 16, 32, 64, 128}
    assert {p.problem.group for p in points} == {1, 4, 8, 16}
    for see in ("causal", "all"):
        dims = {(p.problem.dim, p.problem.value_dim) for p in points if p.problem.see == see}
        assert dims == {(64, 64), (96, 96), (128, 128), (192, 128), (256, 256)}
    assert all(p.kv_bytes() + 2 * p.query_bytes() <= 8e9 for p in points)
    assert all(p.flops() >= 4e9 for p in points)  # what is shorter measures a launch


def test_every_problem_compiles(tmp_path):
    problems = set().union(*(p.problems() if hasattr(p, "problems") else {p.problem} for p in POINTS))
    for text in {problem.text() for problem in problems}:
        file = tmp_path / "problem.mlir"
        file.write_text(text)
        command = [program("attn-opt"), str(file), "--target=sm_90a", "--emit=manifest", "-o", "/dev/null"]
        result = subprocess.run(command, capture_output=True, text=True)
        assert result.returncode == 0, f"{text}\n{result.stderr}"


@pytest.mark.parametrize(
    "point", feature_points(False, tokens=130, window=64, ragged=(100, 37, 130)), ids=lambda p: p.name
)
def test_features_run_and_count_alike(point, tmp_path):
    file = tmp_path / "problem.mlir"
    file.write_text(point.problem.text())
    status, report, errors = attn_run(file, "--device=host", "--check", *point.dims(tmp_path))
    assert status == 0, errors
    assert report["rows"] == point.row_count
    assert report["flops_useful"] == point.flops()


# --- measuring ----------------------------------------------------------------------------------------------


def test_rows_say_what_was_measured(tmp_path):
    bench, results = bench_of(FakeRun(2.0), tmp_path, {"cudnn": 3.0, "flash": 4.0})
    point = prefill_points(True)[0]
    assert measure_all([point], bench, Clock(None), results) == ([], {})
    row = json.loads((tmp_path / "gpu.json").read_text())["rows"][0]
    assert row["key"] == point.key and row["session"] == SESSION["id"]
    assert row["tflops"] == pytest.approx(point.flops() / 2e-3 / 1e12)
    assert row["peers_ms"] == {"cudnn": 3.0, "flash": 4.0} and row["ratio_to_best_peer"] == 1.5
    assert row["sustained_ms"] == pytest.approx({"attn": 2.2, "cudnn": 3.45, "flash": 4.6})
    assert row["sustained_ratio"] == pytest.approx(3.45 / 2.2)
    assert row["sustained_tflops"] == pytest.approx(point.flops() / 2.2e-3 / 1e12)
    assert row["attn"] == {"run_ms": 2.0, **ABOUT} and row["difference"] == 0.004


def test_lines_say_both_ratios(tmp_path, capsys):
    bench, results = bench_of(FakeRun(2.0), tmp_path, {"cudnn": 3.0})
    points = [
        prefill_points(True)[0],
        batch_points(True)[0],
        *feature_points(True)[:2],
        decode_points(True)[0],
    ]
    measure_all(points, bench, Clock(None), results)
    said = [line for line in capsys.readouterr().out.splitlines() if "sustained 2.200" in line]
    assert len(said) == 5
    for line in (*said[:2], said[-1]):
        assert line.endswith("cudnn 3.000  x1.50   sustained 2.200  cudnn 3.450  x1.57")
    assert said[3].endswith(
        "of plain   sustained 2.200 " + f"{results.rows[points[3].key]['slowdown']:.3f} of plain"
    )


def test_who_is_asked(tmp_path):
    """Features compete with plain attention; FlexAttention compiles too long for every batch."""
    bench, _ = bench_of(FakeRun(), tmp_path, {"cudnn": 1.0})
    for point in (
        prefill_points(True)[0],
        batch_points(True)[0],
        chunk_points(True)[0],
        feature_points(True)[0],
        decode_points(True)[0],
    ):
        bench(point)
    prefill, batches, chunks, features, decode = (names for _, names, _ in bench.contest.asked)
    assert prefill == PEERS and chunks == ("flashinfer",) and features == ()
    assert set(PEERS) - set(batches) == {"flex", "flashinfer, single"}
    assert set(PEERS) - set(decode) == {"flashinfer, single"}


def test_large_results_are_repeated_less(tmp_path):
    run = FakeRun()
    bench, _ = bench_of(run, tmp_path)
    small, large = cache_points(False)[0], cache_points(False)[-1]
    bench(small)
    bench(large)
    assert "--repeat=20" in run.options[0] and "--repeat=3" in run.options[1]


def test_what_exceeds_the_budget_is_named(tmp_path, capsys):
    run = FakeRun(seconds=40)
    bench, results = bench_of(run, tmp_path)
    points = prefill_points(True)[:4]
    clock = Clock(105, now=lambda: run.time)
    skipped, failed = measure_all(points, bench, clock, results)
    assert [p.key for p in points[:2]] == list(results.rows) and not failed
    assert skipped == [p.key for p in points[2:]]  # the first two took far longer than guessed
    assert "flex declined: no Triton" in capsys.readouterr().out


def test_a_failing_point_is_named_and_the_rest_goes_on(tmp_path, capsys):
    bench, results = bench_of(FakeRun(status=1), tmp_path)
    points = prefill_points(True)[:2]
    skipped, failed = measure_all(points, bench, Clock(None), results)
    assert not skipped and list(failed) == [p.key for p in points] and not results.rows
    assert f"failed: {points[0].key}: attn's result differs" in capsys.readouterr().out
    measure_all(cache_points(False)[:1], bench, Clock(None), results)
    assert "attn-run ended with 1: attn-run: error: no" in capsys.readouterr().out


def test_features_are_compared_with_the_plain_one(tmp_path):
    run = FakeRun(1.0)
    bench, results = bench_of(run, tmp_path)
    plain, sinks = feature_points(True)[0], feature_points(True)[2]
    assert bench(sinks)["slowdown"] is None
    assert bench(plain)["slowdown"] == 1
    run.milliseconds = 1.3
    assert bench(sinks)["slowdown"] == pytest.approx(1.3)


# --- files --------------------------------------------------------------------------------------------------


def test_parts_of_several_runs_are_kept(tmp_path):
    run = FakeRun(1.0)
    points = prefill_points(True)
    bench, results = bench_of(run, tmp_path)
    measure_all(points[:3], bench, Clock(None), results)

    later = {**SESSION, "id": "2026-11-20T11:00:00+00:00"}
    run.milliseconds = 2.0
    bench, results = bench_of(run, tmp_path, session=later)
    measure_all(points[2:5], bench, Clock(None), results)
    report = json.loads((tmp_path / "gpu.json").read_text())
    assert [r["key"] for r in report["rows"]] == [p.key for p in points[:5]]
    assert [r["attn"]["run_ms"] for r in report["rows"]] == [1, 1, 2, 2, 2]
    assert [s["id"] for s in report["sessions"]] == [SESSION["id"], later["id"]]
    assert missing(points, Results(tmp_path / "gpu.json", later)) == points[5:]
    # Another commit or another GPU measures again; sessions that nothing refers to any more go.
    for other in ({"commit": "def5678"}, {"device": "NVIDIA H100"}):
        assert missing(points, Results(tmp_path / "gpu.json", {**later, **other})) == points
    bench, results = bench_of(run, tmp_path, session=later)
    measure_all(points[:3], bench, Clock(None), results)
    assert [s["id"] for s in json.loads((tmp_path / "gpu.json").read_text())["sessions"]] == [later["id"]]


def test_resumed_features_begin_with_the_plain_one(tmp_path):
    points = feature_points(False)
    bench, results = bench_of(FakeRun(), tmp_path)
    measure_all(points[:3], bench, Clock(None), results)
    left = missing(prefill_points(True)[:1] + points, Results(tmp_path / "gpu.json", SESSION))
    assert [p.name for p in left[1:3]] == ["plain", points[3].name] and len(left) == 1 + 1 + 6
    measure_all(points[3:], bench, Clock(None), results)
    assert missing(points, Results(tmp_path / "gpu.json", SESSION)) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"benchmark": "host", "rows": []}', '{"benchmark": "gpu"}'])
def test_other_files_are_refused(text, tmp_path, capsys):
    file = tmp_path / "other.json"
    file.write_text(text)
    with pytest.raises(SystemExit) as exit:
        Results(file, SESSION)
    assert exit.value.code == 2
    error = capsys.readouterr().err
    assert f"{file} is not a file of this benchmark" in error and "--json" in error
    assert file.read_text() == text


# --- bars ---------------------------------------------------------------------------------------------------


def test_bars():
    prefill = {"part": "prefill", "dim": 128, "see": "causal", "lengths": [16384], "peers_ms": {"cudnn": 1}}
    assert bars({**prefill, "ratio_to_best_peer": 0.99, "tflops": 651}, SESSION) == [
        ("as fast as the best peer", False),
        ("650 TFLOP/s", True),
    ]
    assert len(bars({**prefill, "ratio_to_best_peer": 1, "lengths": [8192]}, SESSION)) == 1
    assert bars({**prefill, "peers_ms": {}, "dim": 64}, SESSION) == []

    batches = {"part": "batches", "peers_ms": {"cudnn": 1}}
    assert bars({**batches, "ratio_to_best_peer": 0.995, "sustained_ratio": 0.971}, SESSION) == [
        ("as fast as the best peer", False),
        ("0.97 of the best peer's speed, sustained", True),
    ]
    assert bars({**batches, "peers_ms": {}}, SESSION) == []

    feature = {"part": "features", "softcap": False, "approximate": False, "slowdown": 1.11}
    assert bars(feature, SESSION) == [("1.10 of plain per visited FLOP", False)]
    softcap = {**feature, "softcap": True}
    assert bars(softcap, SESSION) == []
    assert bars({**softcap, "approximate": True}, SESSION) == [("1.25 of plain per visited FLOP", True)]

    decode = {"part": "decode", "kv_bytes": 537e6, "copy_share": 0.89}
    assert bars(decode, SESSION) == [("0.90 of copying", False)]
    assert bars({**decode, "kv_bytes": 134e6}, SESSION) == [("0.75 of copying", True)]
    assert bars({**decode, "kv_bytes": 67e6}, SESSION) == []


def test_sustained_counts_in_the_mean(capsys):
    """One bar of all points together, whatever parts the file has."""

    def row(name, ratio, part="batches"):
        base = {
            "key": f"{part}: {name}",
            "part": part,
            "name": name,
            "peers_ms": {"cudnn": 1.0},
            "session": 1,
        }
        return {
            **base,
            "ratio_to_best_peer": 1.2,
            "sustained_ratio": ratio,
            "dim": 64,
            "see": "all",
            "lengths": [1],
        }

    others = row("long", 0.5, "prefill")
    for ratios, mean, met in ((0.98, 1.03), "1.005", "7 of 7"), ((0.98, 1.01), "0.995", "6 of 7"):
        verdict([*(row(str(r), r) for r in ratios), row("none", None), others], {1: SESSION})
        said = capsys.readouterr().out
        assert (
            f"batches: the best peer's time over attn's x1.200 alone, x{mean} sustained, in the mean" in said
        )
        assert f"bars: {met} met" in said
        assert ("missed: batches: sustained as fast as the best peers in the mean" in said) == (met[0] == "6")


# --- command lines ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["prefil"], ["no part 'prefil'", "prefill, batches, chunks, features, decode"]),
        (["--repeat", "0"], ["--repeat", "at least 1", "got 0"]),
        (["--budget", "-5"], ["--budget", "positive", "got -5"]),
        (["--budget", "nan"], ["--budget", "positive", "got nan"]),
        (["--resume"], ["--resume", "--json FILE"]),
        (["--json", "/nonexistent/gpu.json"], ["/nonexistent"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_arguments(arguments, words, capsys):
    with pytest.raises(SystemExit) as exit:
        gpu.main(arguments)
    assert exit.value.code == 2
    error = capsys.readouterr().err
    assert all(word in error for word in words), error


def test_parts_and_budget_are_taken():
    args = gpu.arguments(["decode", "prefill", "--quick", "--budget", "540"])
    assert args.parts == ["decode", "prefill"] and args.quick and args.budget == 540


def test_without_a_gpu_it_refuses(tmp_path):
    if find_spec("torch"):
        pytest.skip("this Python has PyTorch")
    file = tmp_path / "gpu.json"
    command = [sys.executable, ROOT / "benchmarks/gpu.py", "--json", file]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 2 and not file.exists()
    assert "no PyTorch" in result.stderr and "nothing was measured" in result.stderr


# --- picture ------------------------------------------------------------------------------------------------


def test_picture(tmp_path):
    run = FakeRun(5.0)
    bench, results = bench_of(run, tmp_path, {"cudnn": 6.0, "flash, heads expanded": 7.0})
    points = [point for part in PARTS.values() for point in part(True)]
    measure_all(points, bench, Clock(None), results)
    picture = tmp_path / "gpu.svg"
    plot_gpu.main([str(tmp_path / "gpu.json"), "-o", str(picture)])
    text = picture.read_text()
    words = (
        "d128 64/8 causal",
        "d256 64/8 full",
        "cuDNN",
        "PyTorch's FlashAttention-2",
        "attn, predicted",
        "softcap 30",
    )
    for word in (
        *words,
        "attn, sustained",
        "4 x 4096 128/128 d192/128 causal",
        "256 speculated tokens",
        "trees: by-query over the best",
        "append 64 rows, a step of 64 sequences",
    ):
        assert f"<!-- {word} -->" in text, word
    prefill = [r for r in results.rows.values() if r["part"] == "prefill"]
    top = plot_gpu.highest(prefill)
    assert (
        max(r["tflops"] for r in prefill) < max(p.flops() / 0.9e-3 / 1e12 for p in prefill_points(True)) < top
    )
    lines = plot_gpu.curves(
        [r for r in results.rows.values() if r["part"] == "decode"],
        lambda r: r["kv_bytes"],
        plot_gpu.gigabytes,
    )
    assert [bytes for bytes, _ in lines["attn"]] == sorted(p.kv_bytes() for p in decode_points(True))
    assert all(rate == pytest.approx(bytes / 5e-3 / 1e9) for bytes, rate in lines["attn"])


@pytest.mark.parametrize("part", PARTS)
def test_picture_of_one_part(part, tmp_path):
    bench, results = bench_of(FakeRun(5.0), tmp_path)
    measure_all(PARTS[part](True), bench, Clock(None), results)
    plot_gpu.main([str(tmp_path / "gpu.json"), "-o", str(tmp_path / "gpu.svg")])
    assert (tmp_path / "gpu.svg").stat().st_size > 5000


def test_nothing_to_draw(tmp_path, capsys):
    file = tmp_path / "gpu.json"
    file.write_text('{"benchmark": "gpu", "sessions": [], "rows": []}')
    with pytest.raises(SystemExit):
        plot_gpu.main([str(file), "-o", str(tmp_path / "gpu.svg")])
    assert "has no rows" in capsys.readouterr().err


# --- the part `append`, with few tokens on the host device -------------------------------------------------------


def tiny_append(**changes):
    return AppendPoint(**dict(rows=21, layers=2, q_heads=4, kv_heads=2, dim=64, device="host") | changes)


def test_append_points():
    points = PARTS["append"](False)
    assert len({point.key for point in points}) == len(points) == 6
    assert points[0].key == "append: 256 tokens, bf16, 32 layers"
    assert Clock.work(points[0]) == points[0].seconds() and "normalized" in heading(points[0])
    assert points[0].token_bytes() == 2 * 128 * (32 + 8 + 8) + 2 * 128 * (32 + 8 + 8)


def test_append_few_tokens():
    torch = pytest.importorskip("torch")
    times = {"attn": 1.0, "separate": 2.5, "copy": 0.9}
    timer = types.SimpleNamespace(alone=lambda runs: {name: times[name] for name, run in runs.items()})
    bench = types.SimpleNamespace(contest=types.SimpleNamespace(torch=torch, timer=timer))
    row = measure_append(tiny_append(), bench)
    assert (row["of_copy"], row["speedup"]) == (0.9, 2.5) and row["name"] in line_of(row) == append_line(row)
    assert [reached for _, reached in bars(row, {})] == [True, True]
    assert [reached for _, reached in bars(row | {"of_copy": 0.8, "speedup": 1.9}, {})] == [False, False]


@pytest.mark.parametrize("format", [None, "fp8_e4m3", "int8_int4"])
def test_append_pages_are_alike(format):
    """attn and PyTorch's operations write the same tokens, up to rounding."""
    torch = pytest.importorskip("torch")
    appending = Appending(torch, tiny_append(format=format))
    held = []
    for run in (appending.separate, appending.attn):
        run()
        if appending.layer.is_packed:
            named = appending.pools[1].named
            codes = named["k_pages"].float(), (named["v_pages"] & 15).float()
            held.append([x[..., 0, :] for x in codes] if codes[0].ndim == 5 else list(codes))
        else:
            held.append([x.float() for x in appending.pools[1]])
    near = 6 if format == "int8_int4" else 0.3 if format else 0.05  # Codes, or numbers.
    for separate, ours in zip(*held, strict=True):
        assert separate.any() and (separate - ours).abs().max() <= near
