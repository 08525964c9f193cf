# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The counters of the host device over a grid of shapes: the bytes that a kernel moves, not the speed of a CPU."""

import argparse
import sys
import tempfile
from pathlib import Path

from measuring.host_pages import page_line, page_rows
from measuring.report import Problem, attn_run, write_report

DECODE = [("batch=4", "kv_len=512..2000"), ("batch=8", "kv_len=100..2000"), ("batch=1", "kv_len=8192")]
PREFILL = [("batch=2", "q_len=300", "kv_len=300"), ("batch=1", "q_len=128", "kv_len=1024")]
CASES = [
    (Problem(), DECODE + PREFILL),
    (Problem(store="paged<1>"), DECODE[:1]),
    (Problem(store="paged<64>"), DECODE[:1]),
    (Problem(store="packed"), DECODE[:1] + PREFILL),
    (Problem(store="dense"), DECODE[:1]),
    (Problem(28, 4), DECODE[:1]),
    (Problem(8, 1), DECODE[:1]),
    (Problem(8, 8), DECODE[:1]),
    (Problem(dim=64, value_dim=64), DECODE[:1]),
    (Problem(dim=192, value_dim=128), DECODE[:1]),
    (Problem(8, 2, 256, 256), DECODE[:1]),
    (Problem(see="window(600)"), DECODE[:1]),
    (Problem(see="causal and (sink(64) | recent(256))"), DECODE[:1]),
    (Problem(softcap=True), DECODE[:1]),
]
COUNTERS = ("bytes_read", "bytes_written", "bytes_partials", "bytes_floor", "flops", "flops_useful")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    args = parser.parse_args()

    rows = []
    header = f"{'problem':<52}{'shape':<34}{'rel_err':>9}{'amplif.':>9}{'sectors':>9}{'banks':>8}{'useful':>8}{'races':>7}"
    print(header)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "problem.mlir"
        for problem, shapes in CASES:
            file.write_text(problem.text())
            name = (
                f"{problem.q_heads}/{problem.kv_heads} d{problem.dim}/{problem.value_dim} {problem.dtype} "
                f"{problem.store} {problem.see}{' softcap' if problem.softcap else ''}"
            )
            for shape in shapes:
                status, report, errors = attn_run(
                    file, "--device=host", "--check", *[f"--dim={d}" for d in shape]
                )
                if report is None:
                    raise SystemExit(errors)
                useful = report["flops_useful"] / report["flops"] if report["flops"] else 1.0
                rows.append({"problem": name, "shape": list(shape), "status": status, **report})
                print(
                    f"{name[:51]:<52}{' '.join(shape):<34}{report['rel_err']:>9.1e}{report['amplification']:>9.3f}"
                    f"{report['sector_efficiency']:>9.3f}{report['bank_conflicts']:>8.3f}{useful:>8.2f}"
                    f"{report['races'] + report['uninitialized'] + report['out_of_bounds']:>7}",
                    flush=True,
                )
    for row in page_rows():
        rows.append(row)
        print(page_line(row), flush=True)
    write_report(args.json, "host", rows)
    return int(any(row["status"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
