# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""benchmarks/builds.py: builds take turns at the same points, on the host device here."""

import json
from dataclasses import replace

import builds
import pytest
from measuring.report import BUILD
from parts.backward import BackwardPoint
from parts.quantized import FORMATS, shapes_of
from parts.significance import PLAIN, SignificancePoint

pytest.importorskip("torch", reason="PyTorch is not installed")
POINT = "decode: 32/8 batch 1 x 4096"


@pytest.fixture
def copy(tmp_path):
    """Another build folder: the same package."""
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "python").symlink_to(BUILD / "python")
    return folder


def test_two_builds_that_are_one(copy, tmp_path, capsys):
    file = tmp_path / "rows.json"
    command = [str(BUILD), str(copy), "--names", "before,after", "--device", "cpu", "--json", str(file)]
    assert builds.main([*command, "--point", POINT, "--rounds", "2", "--runs", "1"]) == 0
    said = capsys.readouterr().out
    assert "before: " in said and "of 1 points, least" in said and "all results agree to the bit" in said
    report = json.loads(file.read_text())
    (row,) = report["rows"]
    assert row["point"] == POINT and row["same_results"] and row["kernel"].startswith("attention")
    assert row["ms"].keys() == {"before", "after"} and row["speed"].keys() == {"over before"}
    assert row["speed"]["over before"] == row["ms"]["before"] / row["ms"]["after"]


SMALL = [
    BackwardPoint(1, 70, 4, 2, dim=64),
    SignificancePoint(PLAIN, 2, 80),
    SignificancePoint("K8V4", 2, 80),
    replace(shapes_of(FORMATS["nvfp4"])["usual"], lengths=(70, 70), q_heads=4, kv_heads=2),
]


@pytest.mark.parametrize("point", SMALL, ids=lambda point: point.key)
def test_points_of_all_kinds_run(point):
    import torch

    served = builds.Served(torch, "cpu")
    served.points = {point.key: point}
    with torch.no_grad():
        made = [served.make(point.key) for _ in range(2)]
    assert made[0] == made[1] and made[0]["result"] != 0
    assert 1 <= len(served.time(2)) <= 2  # as many as a round has time for
    served.drop()


def test_what_differs_is_named():
    rows = [
        {"point": "a", "speed": {"over x": 2.0}, "same_results": True},
        {"point": "b", "speed": {"over x": 0.5}, "same_results": False},
    ]
    assert list(builds.summary(rows)) == [
        "over x: 1.000 in the mean of 2 points, least 0.500: b",
        "other bits at 1: b",
    ]


def test_an_error_of_a_build_names_it(copy):
    build = builds.Build(copy, "cpu")
    with pytest.raises(RuntimeError, match="other: KeyError: 'no such point'"):
        build.call("make", "no such point")
    build.process.kill()
    build.process.wait()


@pytest.mark.parametrize(
    "folders,message",
    [
        ([BUILD], "expected at least two builds and a name for each, got 1"),
        ([BUILD, BUILD], "expected at least two builds and a name for each, got 2"),
        ([BUILD, "/nowhere"], "/nowhere is no build folder: there is no /nowhere/python/attn"),
    ],
)
def test_refusals(folders, message, capsys):
    with pytest.raises(SystemExit):
        builds.main([str(folder) for folder in folders])
    assert message in capsys.readouterr().err
