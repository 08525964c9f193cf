# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tables of DeFT (arXiv 2404.00242) from attn-plan's accounting.

table17    few-shot prompting with 20, 30 and 50 branches: bytes of keys and values, tree-aware against
           per-query, and the paper's digits
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

TABLE_17 = {20: ("1.68", "17.62"), 30: ("2.10", "26.43"), 50: ("2.94", "44.05")}


def few_shot(programs, branches, *options):
    """Return the workload as text: Llama-7B-like, as in the paper; every head has keys and values of its own, fp16."""
    command = [str(programs / "attn-workload"), "few-shot", f"--branches={branches}", *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def strategies(programs, workload):
    command = [str(programs / "attn-plan"), "-", "--json=-"]
    result = subprocess.run(command, check=True, capture_output=True, text=True, input=workload)
    return json.loads(result.stdout)["strategies"]


def table17(programs):
    """Print the table; returns 0 if all digits are the paper's."""
    wrong = 0
    print(f"{'branches':>8}{'flatten':>10}{'by-query':>10}{'paper':>16}  (TB of keys and values)")
    for branches, paper in TABLE_17.items():
        figures = strategies(programs, few_shot(programs, branches))
        ours = tuple(f"{figures[s]['kv_bytes'] / 1e12:.2f}" for s in ("flatten", "by-query"))
        wrong += ours != paper
        print(f"{branches:>8}{ours[0]:>10}{ours[1]:>10}{' / '.join(paper):>16}")
    return int(wrong > 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("table", choices=["table17"])
    parser.add_argument("--programs", type=Path, default=Path("build/bin"), help="where they are (build/bin)")
    args = parser.parse_args()
    return table17(args.programs)


if __name__ == "__main__":
    sys.exit(main())
