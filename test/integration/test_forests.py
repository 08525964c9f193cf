# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn-run on forests: right by an independent reading of the workload, counted as planned, refused if
impossible."""

import json
import os
import subprocess
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import pictures
import pytest
from attnlab import ROOT, Problem, attn_run, program
from safetensors.numpy import load_file

DEVICE = os.environ.get("ATTN_DEVICE", "host")
MODEL = ["--q-heads=8", "--kv-heads=2", "--dim=64", "--layers=1"]
PROBLEM = Problem(8, 2, 64, 64, "f16")


def data(name):
    """Return a published file as an argument, or nothing: attn-workload then generates a similar one."""
    file = Path(os.environ.get("ATTN_DATA_DIR", "/nonexistent")) / name
    return [file] if file.exists() else []


# Every kind of workload, scaled down until a CPU takes about a second; the step that is run.
WORKLOADS = {
    "few-shot": (["few-shot", "--branches=20", "--scale=4"], 300),
    "few-shot, at once": (["few-shot", "--branches=50", "--scale=8"], 0),
    "sorting": (["reasoning", *data("deft/sorting128ToT.trees.json"), "--every=100", "--scale=2"], 9),
    "merging": (["reasoning", *data("deft/docmergeToT.trees.json"), "--every=100", "--scale=2"], 3),
    "tokens 32": (["tokens", *(data("deft/APPS_tree_size32.json") or ["--tokens=31"]), "--scale=2"], 0),
    "tokens 64": (["tokens", *(data("deft/APPS_tree_size64.json") or ["--tokens=63"]), "--scale=2"], 9),
    "requests": (["requests", *data("mooncake/synthetic_trace.jsonl"), "--count=12", "--scale=32"], 0),
    "composed": (["composed", "--scale=4"], 0),
}


def call(*arguments):
    command = [program(arguments[0]), *map(str, arguments[1:])]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)


def made(folder, *arguments):
    file = folder / "workload.json"
    result = call("attn-workload", *arguments, *MODEL, "-o", file)
    assert result.returncode == 0, result.stderr
    return file


def problem(folder, text=None):
    file = folder / "problem.mlir"
    file.write_text(text or PROBLEM.text())
    return file


# --- an independent reading of the workload -------------------------------------------------------------------------


def attention(step, tensors, sees):
    """Compute float64 attention from the nodes: a row's tokens are those of its path, found through the
    tables of one store."""
    nodes, scale = step["nodes"], 1 / np.sqrt(64)
    keys, values = (tensors[f"kv.{part}_pages"].astype(np.float64) for part in "kv")
    pages, out, row = tensors["kv.block_table"], [], 0

    def tokens(node):
        t = np.arange(nodes[node]["tokens"])
        return pages[node][t // 16], t % 16

    for n, node in enumerate(nodes):
        path = [n]
        while nodes[path[0]]["parent"] >= 0:
            path.insert(0, nodes[path[0]]["parent"])
        k, v = (np.concatenate([part[tokens(i)] for i in path]) for part in (keys, values))
        for last in range(len(k) - node["rows"], len(k)):
            seen = sees(last, np.arange(len(k)))
            q = tensors["q"][row].astype(np.float64)
            assert tensors["q_pos"][row] == last
            for head in range(8):
                scores = k[seen, head // 4] @ q[head] * scale
                weights = np.exp(scores - scores.max())
                out.append(weights @ v[seen, head // 4] / weights.sum())
            row += 1
    assert row == len(tensors["q"])
    return np.array(out).reshape(row, 8, 64)


@pytest.mark.parametrize("schedule", ["mma", "wgmma"])
@pytest.mark.parametrize("see", ["causal", "window(70)"])
def test_rows_see_their_paths(tmp_path, see, schedule):
    workload = made(tmp_path, "composed", "--scale=16", "--trees=3")
    file = problem(tmp_path, Problem(8, 2, 64, 64, "f16", see=see).text())
    save, outputs = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    options = ["--workload", workload, f"--device={DEVICE}", f"--schedule={schedule}", "--shuffle", "--check"]
    result = call("attn-run", file, *options, "--save-inputs", save, "--outputs", outputs)
    assert result.returncode == 0, result.stderr
    step = json.loads(workload.read_text())["steps"][0]
    window = 70 if see != "causal" else 1 << 30
    expected = attention(step, load_file(save), lambda q, k: (k <= q) & (q - k < window))
    error = np.linalg.norm(load_file(outputs)["o"].astype(np.float64) - expected, axis=-1)
    assert np.all(error <= 1e-3 * np.linalg.norm(expected, axis=-1))


@pytest.mark.parametrize("schedule", ["mma", "wgmma"])
@pytest.mark.parametrize("draft", ["paged<1>", "paged<16>", "packed", "dense"])
def test_drafts_may_have_a_store_of_their_own(tmp_path, draft, schedule):
    workload = made(tmp_path, "composed", "--scale=16", "--depth=2", "--draft=7")
    options = ["--workload", workload, f"--device={DEVICE}", f"--schedule={schedule}", "--check"]
    status, report, errors = attn_run(problem(tmp_path, replace(PROBLEM, draft_store=draft).text()), *options)
    assert status == 0, errors
    assert report["rows"] == sum(
        node["rows"] for node in json.loads(workload.read_text())["steps"][0]["nodes"]
    )


# Keys, values, and the bytes of a token and head.
CODES = {
    "K8V4": ("!attn.quantized<i8, per = 64>", "!attn.quantized<i4, per = 64>", 104),
    "K4V2 per 32": ("!attn.quantized<i4, per = 32>", "!attn.quantized<i2, per = 32>", 64),
    "e4m3 per token": (
        "!attn.quantized<f8E4M3FN, per = token>",
        "!attn.quantized<f8E4M3FN, per = token>",
        136,
    ),
    "e5m2 per head, V16": ("!attn.quantized<f8E5M2, per = head>", "", 192),
}


@pytest.mark.parametrize("strategy", ["flatten", "by-query", "by-node", "by-node-chunk"])
@pytest.mark.parametrize("format", CODES)
def test_nodes_and_drafts_of_codes(tmp_path, format, strategy):
    """Every strategy of reading shared tokens, quantized; quantized drafts, too, in pages of one token, which
    plans list."""
    key, value, size = CODES[format]
    workload = made(tmp_path, "composed", "--scale=16", "--depth=2", "--draft=7", f"--bytes={size}")
    formats = {"key": key, "value": value, "draft_key": key, "draft_value": value}
    text = replace(PROBLEM, draft_store="paged<1>", **formats).text()
    options = ["--workload", workload, f"--device={DEVICE}", f"--strategy={strategy}", "--shuffle", "--check"]
    status, report, errors = attn_run(problem(tmp_path, text), *options)
    assert status == 0, errors
    assert report["passed"] and report["schedule"] == "mma"
    if DEVICE == "host":
        assert (report["races"], report["uninitialized"], report["out_of_bounds"]) == (0, 0, 0)


@pytest.mark.parametrize("store", ["packed", "paged<1>", "paged<64>"])
def test_windows_of_trees_of_codes(tmp_path, store):
    key, value, size = CODES["K8V4"]
    workload = made(tmp_path, "composed", "--scale=16", "--trees=3", f"--bytes={size}")
    text = replace(PROBLEM, store=store, see="window(70)", key=key, value=value).text()
    options = ["--workload", workload, f"--device={DEVICE}", "--check"]
    status, report, errors = attn_run(problem(tmp_path, text), *options)
    assert status == 0, errors
    assert report["passed"]


# --- counters -----------------------------------------------------------------------------------------------


@pytest.mark.skipif(DEVICE != "host", reason="counters exist on the host device only")
@pytest.mark.parametrize("name", WORKLOADS)
def test_counted_as_planned(tmp_path, name):
    """Bytes are within 3 % of the planner's, and those of partials equal to the byte."""
    arguments, step = WORKLOADS[name]
    workload = made(tmp_path, *arguments)
    status, report, errors = attn_run(
        problem(tmp_path),
        "--workload",
        workload,
        f"--step={step}",
        "--device=host",
        "--schedule=mma",
        "--check",
    )
    assert status == 0, errors
    assert report["races"] == report["uninitialized"] == report["out_of_bounds"] == 0
    counted = report["bytes_read"] + report["bytes_written"]
    assert abs(counted / report["planned_bytes"] - 1) <= 0.03
    assert report["bytes_partials"] == report["partial_bytes"]


@pytest.mark.skipif(DEVICE != "host", reason="counters exist on the host device only")
def test_boxes_past_the_end_read_nothing(tmp_path):
    """Nodes of three pages each fill three quarters of a tile of keys; their rows fill three tiles of rows."""
    nodes = [{"parent": -1, "tokens": 48, "rows": 48} for _ in range(24)]
    workload = tmp_path / "workload.json"
    shape = {"q_heads": 8, "kv_heads": 2, "dim": 64, "bytes_per_token_per_head": 256, "layers": 1}
    workload.write_text(json.dumps({**shape, "steps": [{"nodes": nodes, "repeat": 1}]}))
    options = ["--workload", workload, "--device=host", "--schedule=wgmma", "--check"]
    status, report, errors = attn_run(problem(tmp_path), *options)
    assert status == 0, errors
    assert report["kernel"].endswith("rows64")
    counted = report["bytes_read"] + report["bytes_written"]
    assert abs(counted / report["planned_bytes"] - 1) <= 0.03


# --- picture ------------------------------------------------------------------------------------------------


def test_picture(tmp_path):
    """Every visible instance is drawn in the upper half; in the lower half every block has its line."""
    workload, picture = made(tmp_path, "composed", "--scale=16"), tmp_path / "plan.svg"
    text = Problem(8, 2, 64, 64, "f16", see="causal heads {all: see all, near: see recent(30)}").text()
    status, report, errors = attn_run(
        problem(tmp_path, text), "--workload", workload, "--svg", picture, f"--device={DEVICE}", "--blocks=40"
    )
    assert status == 0, errors
    root = ElementTree.parse(picture).getroot()
    regions, shares = ([r[0].text for r in g if len(r)] for g in root.findall("{*}g"))
    regions.sort(key=lambda text: int(text[text.index("[") + 1 : text.index("]")]))
    nodes = json.loads(workload.read_text())["steps"][0]["nodes"]
    assert [t.split(" ")[:2] for t in regions] == [
        [f"kv[{i}],", str(n["tokens"])] for i, n in enumerate(nodes)
    ]
    assert "seen by rows [0, " in regions[0]
    assert {t.split(",")[0] for t in shares} == {f"block {b}" for b in range(40)}
    assert any(", near; kv[" in t for t in shares) and any(", all, starts" in t for t in shares)
    words = " ".join(t.text for t in root.findall(".//{*}text"))
    assert (
        f"{report['tasks']} tasks" in words and "parts" in words and "fainter: heads of class near" in words
    )
    assert "kv, depth 0" in words
    pictures.check(picture.read_text())


# --- refusals -----------------------------------------------------------------------------------------------

GOOD = {"q_heads": 8, "kv_heads": 2, "dim": 64, "bytes_per_token_per_head": 256, "layers": 1}


def steps(*nodes):
    keys = ("parent", "tokens", "rows")
    return {**GOOD, "steps": [{"nodes": [dict(zip(keys, node, strict=True)) for node in nodes]}]}


@pytest.mark.parametrize(
    ("workload", "options", "words"),
    [
        ("{", [], ["w.json", "line 1"]),
        (steps((-1, 5, 1), (3, 5, 1)), [], ["steps[0].nodes[1].parent", "orphan"]),
        (steps((-1, 5, 1), (0, 5, 1), (-1, 2, 1), (0, 1, 1)), [], ["nodes[3].parent", "depth-first"]),
        (steps((-1, 5, 6)), [], ["w.json: steps[0].nodes[0]", "at most 5, got 6"]),
        (steps((-1, 5, 0)), [], ["steps[0] has no rows"]),
        (steps((-1, 5, 1)), ["--step=1"], ["below 1", "w.json", "got 1"]),
        ({**steps((-1, 5, 1)), "dim": 32}, [], ["w.json is of", "of 32", "'kv' is of", "of 64"]),
        (steps((-1, 5, 1)), ["--dim=kv_len=7"], ["--dim kv_len follows from --workload"]),
        (steps((-1, 5, 1)), ["--dim=batch=7"], ["--dim batch follows from --workload"]),
        (steps((-1, 5, 1)), ["--inputs=x.safetensors"], ["--workload", "--inputs", "one of the two"]),
        (steps((-1, 1 << 30, 1)), [], ["too large for this machine"]),
    ],
    ids=str,
)
def test_refused(tmp_path, workload, options, words):
    file = tmp_path / "w.json"
    file.write_text(workload if isinstance(workload, str) else json.dumps(workload))
    outputs = tmp_path / "o.safetensors"
    result = call("attn-run", problem(tmp_path), "--workload", file, "--outputs", outputs, *options)
    assert result.returncode == 2 and not result.stdout, result
    for word in words:
        assert word in result.stderr, result.stderr
    assert not outputs.exists()


def test_a_step_is_a_workloads(tmp_path):
    result = call("attn-run", ROOT / "examples/01_paged_decode/decode.mlir", "--step=1")
    assert result.returncode == 2 and "--step chooses a step of a --workload" in result.stderr
    result = call("attn-run", problem(tmp_path), "--workload", tmp_path / "absent.json")
    assert result.returncode == 2 and "absent.json" in result.stderr
