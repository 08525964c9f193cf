"""attn-plan: DeFT's figures to the printed digits, balance on real trees, its words for bad input."""

import json
import os
import random
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from attnlab import ROOT, program

sys.path.insert(0, str(ROOT / "benchmarks"))
import deft_workloads as deft  # noqa: E402


def run(*arguments, text=None):
    return subprocess.run(
        [program("attn-plan"), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        input=text if text is not None else "",
    )


def figures(workload, *arguments):
    result = run("-", "--json=-", *arguments, text=json.dumps(workload))
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def trees(name, shape):
    """A file of trees from the data directory, or generated ones of the same shape."""
    folder = os.environ.get("ATTN_DATA_DIR")
    if folder:
        file = Path(folder) / "deft" / f"{name}.trees.json"
        if not file.exists():
            pytest.skip(f"{file} does not exist")
        return json.loads(file.read_text())
    rng = random.Random(name)

    def tree():
        nodes = [{"id": 0, "tokens": 1100, "start": -1099, "end": 0, "children": []}]
        level = list(nodes)
        for width, keep, longest in shape:
            parents = level if keep is None else rng.sample(level, keep)
            level = []
            for parent in parents:
                for _ in range(width):
                    start = parent["end"] + 1
                    end = start + rng.randrange(longest)
                    child = {"id": len(nodes), "start": start, "end": end, "children": []}
                    nodes.append(child)
                    level.append(child)
                    parent["children"].append(child["id"])
        return nodes

    return [tree() for _ in range(10)]


@pytest.mark.parametrize("branches", deft.TABLE_17)
def test_table_17(branches):
    workload = deft.workload(deft.few_shot(branches))
    printed = tuple(
        f"{figures(workload, f'--strategy={s}')['kv_bytes'] / 1e12:.2f}" for s in ("flatten", "by-query")
    )
    assert printed == deft.TABLE_17[branches]


def test_table_17_command():
    command = [sys.executable, ROOT / "benchmarks/deft_workloads.py", "table17", "--attn-plan"]
    result = subprocess.run([*command, program("attn-plan")], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr


SHAPES = {
    "sorting128ToT": [(10, None, 1400), (5, 3, 1400), (10, 2, 1400)],
    "docmergeToT": [(10, None, 900), (5, 3, 900)],
}


@pytest.mark.parametrize("name", SHAPES)
def test_balance(name):
    """Every tree at every tenth step, 132 blocks: within a tile of the mean, 5 % where that is 20 or more."""
    checked = 0
    for tree in trees(name, SHAPES[name]):
        steps = deft.reasoning(tree, every=10)
        report = figures(deft.workload(steps), "--strategy=flatten")
        assert len(report["steps"]) == len(steps)
        for step, plan in zip(steps, report["steps"], strict=True):
            assert plan["max_tiles"] - plan["mean_tiles"] <= 1
            assert plan["mean_tiles"] < 20 or plan["balance"] <= 1.05
            assert plan["kv_bytes"] == sum(node["tokens"] for node in step["nodes"]) * 32 * 512
            checked += 1
    assert checked > 100


def test_strategies_differ_as_they_should():
    report = figures(deft.workload(deft.few_shot(20, iterations=40)))
    by_query, by_node, chunk, flatten = (
        report["strategies"][s] for s in ("by-query", "by-node", "by-node-chunk", "flatten")
    )
    assert by_query["kv_bytes"] > 8 * flatten["kv_bytes"]
    assert by_node["kv_bytes"] == chunk["kv_bytes"] == flatten["kv_bytes"] == report["kv_bytes"]
    assert by_node["balance"] > 1.5 > 1.05 > flatten["balance"]
    assert flatten["partial_bytes"] < chunk["partial_bytes"]
    assert flatten["estimated_seconds"] == min(s["estimated_seconds"] for s in report["strategies"].values())


def test_repeats_and_layers_multiply():
    step = {"nodes": deft.few_shot(5, 100, 1)[0]["nodes"]}
    once = figures(deft.workload([step], layers=1))
    many = figures(deft.workload([{**step, "repeat": 7}], layers=3))
    for name in ("kv_bytes", "partial_bytes", "metadata_bytes", "tiles", "max_tiles"):
        assert many[name] == 21 * once[name] > 0
    assert many["balance"] == pytest.approx(once["balance"])


def test_token_trees():
    folder = os.environ.get("ATTN_DATA_DIR")
    paths, accepted = [[i] for i in range(10)] + [[i, j] for i in range(10) for j in range(5)], [3, 2, 4]
    if folder:
        data = json.loads((Path(folder) / "deft/APPS_tree_size64.json").read_text())
        paths, accepted = data["tree"], data["records"][0]["Accept_length"][:20]
    steps = deft.speculation(paths, accepted)
    assert len(steps) == len(accepted) and len(steps[0]["nodes"]) == len(paths) + 1
    report = figures(deft.workload(steps))["strategies"]
    assert report["by-query"]["kv_bytes"] > 30 * report["flatten"]["kv_bytes"]


@pytest.mark.parametrize("strategy", ["by-query", "by-node", "by-node-chunk", "flatten"])
def test_picture(strategy, tmp_path):
    file = tmp_path / "w.json"
    deft.write(file, deft.workload(deft.few_shot(20, iterations=3)))
    result = run(file, f"--strategy={strategy}", "--svg", tmp_path / "plan.svg", "--blocks", "40")
    assert result.returncode == 0, result.stderr
    assert strategy in result.stdout and "TB/s" in result.stdout
    picture = ElementTree.parse(tmp_path / "plan.svg").getroot()
    boxes = [r for r in picture.iter("{http://www.w3.org/2000/svg}rect") if len(r)]
    blocks = {r[0].text.split(",")[0] for r in boxes}
    assert len(blocks) == 40
    assert all(float(r.get("width")) > 0 for r in boxes)
    assert max(float(r.get("x")) + float(r.get("width")) for r in boxes) <= float(picture.get("width"))


GOOD = deft.workload(deft.few_shot(3, iterations=2))


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
