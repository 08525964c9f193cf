"""Workloads for attn-plan from DeFT's experiments (arXiv 2404.00242): few-shot prompting, reasoning trees and
speculated token trees.

  few-shot   needs no data: a prompt of 4,000 tokens, B branches, one token more per iteration
  reasoning  a file of trees ({id, tokens, start, end, children}): node n generates a token in each of the
             iterations start..end, and exists as far as it is generated
  tokens     a file with a token tree (paths of child indices) and accepted lengths: each step verifies the
             whole tree behind a context that has grown by what was accepted
  table17    runs attn-plan on few-shot with 20, 30 and 50 branches and prints the row of Table 17
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

# Llama-7B-like, as in the paper: every head has keys and values of its own, fp16.
MODEL = {"q_heads": 32, "kv_heads": 32, "dim": 128, "bytes_per_token_per_head": 512, "layers": 32}
TABLE_17 = {20: ("1.68", "17.62"), 30: ("2.10", "26.43"), 50: ("2.94", "44.05")}


def node(parent, tokens, rows):
    return {"parent": parent, "tokens": tokens, "rows": rows}


def workload(steps, **model):
    return {**MODEL, **model, "steps": steps}


def few_shot(branches, prompt=4000, iterations=400):
    return [
        {"nodes": [node(-1, prompt, 0)] + [node(0, i, 1)] * branches, "repeat": 1}
        for i in range(1, iterations + 1)
    ]


def reasoning_step(tree, iteration):
    """The forest at one iteration: nodes without a generating node below them are read by nobody."""
    nodes = {n["id"]: n for n in tree}
    children = {c for n in tree for c in n["children"]}
    forest = []

    def visit(n, parent):
        if n["start"] > iteration:
            return
        generating = n["end"] >= iteration and n["start"] > 0
        mark = len(forest)
        forest.append(node(parent, min(iteration, n["end"]) - n["start"] + 1, int(generating)))
        for child in n["children"]:
            visit(nodes[child], mark)
        if not generating and len(forest) == mark + 1:
            forest.pop()

    for n in tree:
        if n["id"] not in children:
            visit(n, -1)
    return forest


def reasoning(tree, every=1):
    """Steps of every so many iterations, each standing for that many."""
    last = max(n["end"] for n in tree)
    forests = (reasoning_step(tree, i) for i in range(1, last + 1, every))
    return [{"nodes": forest, "repeat": every} for forest in forests if forest]


def token_tree(paths, context):
    """Depth-first, behind the context and the token that is its root; each token is a row."""
    forest = [node(-1, context, 1)]
    index = {(): 0}
    for path in sorted(map(tuple, paths)):
        index[path] = len(forest)
        forest.append(node(index[path[:-1]], 1, 1))
    return forest


def speculation(paths, accepted, context=1000):
    steps = []
    for length in accepted:
        steps.append({"nodes": token_tree(paths, context), "repeat": 1})
        context += length
    return steps


def write(path, value):
    Path(path).write_text(json.dumps(value, separators=(",", ":")))


def table17(program):
    """Returns 0 when all digits are the paper's."""
    wrong = 0
    print(f"{'branches':>8}{'flatten':>10}{'by-query':>10}{'paper':>16}  (TB of keys and values)")
    with tempfile.TemporaryDirectory() as folder:
        file, report = Path(folder) / "workload.json", Path(folder) / "report.json"
        for branches, paper in TABLE_17.items():
            write(file, workload(few_shot(branches)))
            subprocess.run([program, str(file), "--json", str(report)], check=True, stdout=subprocess.DEVNULL)
            figures = json.loads(report.read_text())["strategies"]
            ours = tuple(f"{figures[s]['kv_bytes'] / 1e12:.2f}" for s in ("flatten", "by-query"))
            wrong += ours != paper
            print(f"{branches:>8}{ours[0]:>10}{ours[1]:>10}{' / '.join(paper):>16}")
    return int(wrong > 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    kind = kinds.add_parser("few-shot")
    kind.add_argument("branches", type=int)
    kind.add_argument("out")
    kind.add_argument("--prompt", type=int, default=4000)
    kind.add_argument("--iterations", type=int, default=400)
    kind = kinds.add_parser("reasoning")
    kind.add_argument("file", type=Path)
    kind.add_argument("out")
    kind.add_argument("--tree", type=int, default=0, help="which tree of the file (0)")
    kind.add_argument("--every", type=int, default=1, help="take every so many iterations (1)")
    kind = kinds.add_parser("tokens")
    kind.add_argument("file", type=Path)
    kind.add_argument("out")
    kind.add_argument("--record", type=int, default=0, help="which run of the file (0)")
    kind.add_argument("--context", type=int, default=1000, help="tokens before the first step (1000)")
    kind = kinds.add_parser("table17")
    kind.add_argument("--attn-plan", default="build/bin/attn-plan")
    args = parser.parse_args()

    if args.kind == "table17":
        return table17(args.attn_plan)
    if args.kind == "few-shot":
        steps = few_shot(args.branches, args.prompt, args.iterations)
    elif args.kind == "reasoning":
        steps = reasoning(json.loads(args.file.read_text())[args.tree], args.every)
    else:
        data = json.loads(args.file.read_text())
        steps = speculation(data["tree"], data["records"][args.record]["Accept_length"], args.context)
    write(args.out, workload(steps))
    return 0


if __name__ == "__main__":
    sys.exit(main())
