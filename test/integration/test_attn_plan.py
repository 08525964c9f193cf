# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn-workload and attn-plan: DeFT's figures to the printed digits, balance on real trees, messages for bad
input."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import deft
import pictures
import pytest
from attnlab import ROOT, program


def call(name, *arguments, text=""):
    command = [program(name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, input=text)


def run(*arguments, text=""):
    return call("attn-plan", *arguments, text=text)


def figures(workload, *arguments):
    result = run("-", "--json=-", *arguments, text=json.dumps(workload))
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def made(*arguments):
    """Return a workload of attn-workload."""
    result = call("attn-workload", *arguments)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def few_shot(branches, *options):
    return made("few-shot", f"--branches={branches}", *options)


def data(name):
    """Return arguments that name a published file, or none, for data generated in its shape."""
    folder = os.environ.get("ATTN_DATA_DIR")
    if not folder:
        return []
    file = Path(folder) / name
    if not file.exists():
        pytest.skip(f"{file} does not exist")
    return [file]


@pytest.mark.parametrize("branches", deft.TABLE_17)
def test_table_17(branches):
    workload = few_shot(branches)
    printed = tuple(
        f"{figures(workload, f'--strategy={s}')['kv_bytes'] / 1e12:.2f}" for s in ("flatten", "by-query")
    )
    assert printed == deft.TABLE_17[branches]


def test_table_17_command():
    command = [sys.executable, ROOT / "benchmarks/deft.py", "table17", "--programs"]
    command.append(Path(program("attn-plan")).parent)
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("name", ["sorting128ToT", "docmergeToT"])
def test_balance(name, seed):
    """Trees at every tenth step, 132 blocks: within a tile of the mean, 5 % from a mean of 20 tiles on."""
    file = data(f"deft/{name}.trees.json")
    workload = made("reasoning", *file, "--every=10", f"--tree={seed}" if file else f"--seed={seed}")
    report = figures(workload, "--strategy=flatten")
    assert len(report["steps"]) == len(workload["steps"]) > 20
    for step, plan in zip(workload["steps"], report["steps"], strict=True):
        assert plan["max_tiles"] - plan["mean_tiles"] <= 1
        assert plan["mean_tiles"] < 20 or plan["balance"] <= 1.05
        assert plan["kv_bytes"] == sum(node["tokens"] for node in step["nodes"]) * 32 * 512


def test_strategies_differ_as_they_should():
    report = figures(few_shot(20, "--iterations=40"))
    by_query, by_node, chunk, flatten = (
        report["strategies"][s] for s in ("by-query", "by-node", "by-node-chunk", "flatten")
    )
    assert by_query["kv_bytes"] > 8 * flatten["kv_bytes"]
    assert by_node["kv_bytes"] == chunk["kv_bytes"] == flatten["kv_bytes"] == report["kv_bytes"]
    assert by_node["balance"] > 1.5 > 1.05 > flatten["balance"]
    assert flatten["partial_bytes"] < chunk["partial_bytes"]
    assert flatten["estimated_seconds"] == min(s["estimated_seconds"] for s in report["strategies"].values())


def test_repeats_and_layers_multiply():
    workload = few_shot(5, "--prompt=100", "--iterations=1", "--layers=1")
    once = figures(workload)
    many = figures({**workload, "layers": 3, "steps": [{**workload["steps"][0], "repeat": 7}]})
    for name in ("kv_bytes", "partial_bytes", "metadata_bytes", "tiles", "max_tiles"):
        assert many[name] == 21 * once[name] > 0
    assert many["balance"] == pytest.approx(once["balance"])


def test_token_trees():
    workload = made("tokens", *data("deft/APPS_tree_size64.json"))
    assert len(workload["steps"]) >= 100 and len(workload["steps"][0]["nodes"]) == 64
    report = figures(workload)["strategies"]
    assert report["by-query"]["kv_bytes"] > 30 * report["flatten"]["kv_bytes"]


def test_requests_share_prefixes():
    file = data("mooncake/synthetic_trace.jsonl")
    workload = made("requests", *file, "--count=500", *([] if file else ["--sharing=50"]))
    assert sum(node["rows"] for node in workload["steps"][0]["nodes"]) == 500
    report = figures(workload)["strategies"]
    assert report["by-query"]["kv_bytes"] > 1.05 * report["flatten"]["kv_bytes"]


@pytest.mark.parametrize("strategy", ["by-query", "by-node", "by-node-chunk", "flatten"])
def test_picture(strategy, tmp_path):
    file = tmp_path / "w.json"
    file.write_text(json.dumps(few_shot(20, "--iterations=3")))
    result = run(file, f"--strategy={strategy}", "--svg", tmp_path / "plan.svg", "--blocks", "40")
    assert result.returncode == 0, result.stderr
    assert strategy in result.stdout and "TB/s" in result.stdout
    picture = ElementTree.parse(tmp_path / "plan.svg").getroot()
    boxes = [r for r in picture.iter("{http://www.w3.org/2000/svg}rect") if len(r)]
    blocks = {r[0].text.split(",")[0] for r in boxes}
    assert len(blocks) == 40
    assert all(float(r.get("width")) > 0 for r in boxes)
    assert max(float(r.get("x")) + float(r.get("width")) for r in boxes) <= float(picture.get("width"))
    assert "hsl" not in (tmp_path / "plan.svg").read_text()
    words = {text.text or "" for text in picture.iter("{http://www.w3.org/2000/svg}text")}
    assert {"block", "0", "nodes of depth 0", "nodes of depth 1", "numbers in boxes: nodes"} <= words
    pictures.check((tmp_path / "plan.svg").read_text())
    assert any(text.startswith("what a block reads, in tiles of") for text in words)


def step(i):
    return {
        "nodes": [
            {"parent": -1, "tokens": 4000, "rows": 0},
            *({"parent": 0, "tokens": i, "rows": 1} for _ in "abc"),
        ]
    }


GOOD = {"q_heads": 32, "kv_heads": 32, "dim": 128, "bytes_per_token_per_head": 512, "layers": 32}
GOOD["steps"] = [{**step(i), "repeat": 1} for i in (1, 2)]


def spoiled(change):
    workload = json.loads(json.dumps(GOOD))
    change(workload)
    return json.dumps(workload)


BAD = {
    "empty": ("", ["w.json"]),
    "cut": (json.dumps(GOOD)[:-20], ["w.json"]),
    "cycle": (spoiled(lambda w: w["steps"][1]["nodes"][1].update(parent=2)), ["steps[1].nodes[1].parent"]),
    "orphan": (spoiled(lambda w: w["steps"][1]["nodes"][3].update(parent=9)), ["steps[1].nodes[3]", "9"]),
    "negative": (
        spoiled(lambda w: w["steps"][0]["nodes"][2].update(tokens=-5)),
        ["steps[0].nodes[2].tokens"],
    ),
    "missing": (spoiled(lambda w: w["steps"][0]["nodes"][2].pop("rows")), ["steps[0].nodes[2].rows"]),
    "decoding trees": ("[[]]", ["got decoding trees", "attn-workload reasoning FILE"]),
    "published trees": ('[{"data": {}}]', ["got decoding trees", "attn-workload reasoning FILE"]),
    "speculated trees": ('{"Tree_Structure": [[0]]}', ["attn-workload tokens FILE"]),
    "unknown": (spoiled(lambda w: w.update(head=3)), ["unknown field 'head'"]),
    "not whole": (spoiled(lambda w: w["steps"][0]["nodes"][1].update(rows=0.5)), ["nodes[1].rows", "0.5"]),
    "sums overflow": (
        spoiled(lambda w: [s.update(repeat=2**31 - 1) for s in w["steps"]] and w.update(layers=65536)),
        ["steps[0]", "63 bits"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_workload(case, tmp_path):
    text, words = BAD[case]
    (tmp_path / "w.json").write_text(text)
    result = run(tmp_path / "w.json", "--json", tmp_path / "out", "--svg", tmp_path / "out.svg")
    assert result.returncode == 2 and result.stdout == "", result
    for word in words:
        assert word in result.stderr, result.stderr
    assert os.listdir(tmp_path) == ["w.json"]


@pytest.mark.parametrize(
    "arguments,words",
    [
        ([], ["expected a file"]),
        (["absent.json"], ["absent.json"]),
        (["-", "-"], ["one file"]),
        (["-", "--strategy=best"], ["by-node-chunk", "best"]),
        (["-", "--blocks=0"], ["at least 1", "'0'"]),
        (["-", "--blocks", "many"], ["many"]),
        (["-", "--blocks"], ["--blocks expects"]),
        (["-", "--colour=red"], ["--colour"]),
        (["-", "--json=/nonexistent/folder/file"], ["/nonexistent/folder/file"]),
    ],
    ids=str,
)
def test_command_line(arguments, words):
    result = run(*arguments, text=json.dumps(GOOD))
    assert result.returncode == 2 and result.stdout == "", result
    for word in words:
        assert word in result.stderr, result.stderr


def test_help():
    result = run("--help")
    assert result.returncode == 0
    for word in ("WORKLOAD.json", "--strategy", "--blocks", "--json", "--svg", "flatten", "Exit status"):
        assert word in result.stdout


@pytest.mark.parametrize(
    "arguments,words",
    [
        ([], ["few-shot, reasoning, tokens, requests or composed"]),
        (["beams"], ["few-shot", "'beams'"]),
        (["few-shot", "--width=3"], ["no option '--width' of few-shot", "--branches"]),
        (["few-shot", "--branches=0"], ["--branches", "1 to", "'0'"]),
        (["few-shot", "--branches"], ["--branches expects"]),
        (["few-shot", "file"], ["no file", "'file'"]),
        (["composed", "file"], ["no file", "'file'"]),
        (["composed", "--width=9", "--depth=9"], ["65536 leaves", "2 x 9 ^ 9"]),
        (["reasoning", "absent.json"], ["absent.json"]),
        (["reasoning", "a", "b"], ["one file", "'b'"]),
        (["tokens", "--every=2"], ["no option '--every' of tokens"]),
        (["requests", "--q-heads=3", "--kv-heads=2"], ["q_heads", "multiple of the 2"]),
        (["few-shot", "-o", "/nonexistent/folder/file"], ["/nonexistent/folder/file"]),
    ],
    ids=str,
)
def test_attn_workload_command_line(arguments, words):
    result = call("attn-workload", *arguments)
    assert result.returncode == 2 and result.stdout == "", result
    for word in words:
        assert word in result.stderr, result.stderr


def test_attn_workload_bad_files(tmp_path):
    tree = [{"id": 0, "tokens": 3, "start": 1, "end": 3, "children": [7]}]
    files = {
        "tree.json": (["reasoning"], [tree], ["tree.json", "trees[0][0].children[0]", "no node 7"]),
        "one.json": (["reasoning", "--tree=2"], [[{**tree[0], "children": []}]], ["--tree", "below 1", "2"]),
        "tokens.json": (["tokens"], {"tree": [[0, 0]], "size": 2, "records": []}, ["token 0 is an orphan"]),
        "lines.jsonl": (["requests"], {"input_length": 5}, ["lines.jsonl: line 1", "output_length"]),
        "few.jsonl": (
            ["requests", "--count=2"],
            {"input_length": 5, "output_length": 1, "hash_ids": [1]},
            ["within the 1 requests", "few.jsonl"],
        ),
    }
    for name, (arguments, content, words) in files.items():
        (tmp_path / name).write_text(json.dumps(content))
        result = call("attn-workload", *arguments[:1], tmp_path / name, *arguments[1:])
        assert result.returncode == 2 and result.stdout == "", result
        for word in words:
            assert word in result.stderr, result.stderr


def test_attn_workload_help():
    result = call("attn-workload", "--help")
    assert result.returncode == 0
    for word in ("few-shot", "reasoning", "tokens", "requests", "--seed", "-o F", "Exit status"):
        assert word in result.stdout
