# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""python -m attn.aot FILE... -o BUNDLE: compiles descriptions ahead of time into one file.

FILE is a Python file, of which every attn.Spec is taken that it leaves in a global name, alone or in a
list, tuple, set or dict (or, where it has one, only what is in `specs`); or MLIR text, *.mlir. The Python file is
executed.

Each kernel that is compiled goes into the cache on disk at once. Interrupted, the command writes no BUNDLE; given again,
it goes on from there.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .errors import Error


def specs_of(path: Path) -> list[object]:
    """Return the descriptions in a file, each once, in order. Error for a file without one."""
    if path.suffix == ".mlir":
        return [path.read_text(encoding="utf-8")]
    if path.suffix != ".py":
        raise Error(f"{path}: expected a file *.py or *.mlir")
    names = runpy.run_path(str(path), run_name="attn.aot")
    found = dict.fromkeys(_specs_in(names["specs"] if "specs" in names else list(names.values())))
    if not found:
        raise Error(f"{path}: no attn.Spec in its global names, alone or in a list, tuple, set or dict")
    return list(found)


def _specs_in(value: object) -> Iterator[object]:
    from .describe.spec import Spec

    if isinstance(value, Spec):
        yield value
    elif isinstance(value, dict):
        yield from _specs_in(list(value.values()))
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from _specs_in(item)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    summary, _, details = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m attn.aot", description=summary.partition(": ")[2], epilog=details
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="BUNDLE")
    parser.add_argument(
        "--device",
        choices=["host", "cuda", "both"],
        default="both",
        help="where the kernels run (default: both)",
    )
    parser.add_argument(
        "--target", action="append", help="chip of the GPUs; may be repeated (default: sm_90a)"
    )
    parser.add_argument("--schedule", default="auto", help="auto, mma or wgmma (default: auto)")
    options = parser.parse_args(arguments)
    try:
        return _compile_all(options)
    except (Error, OSError) as error:
        print(f"attn.aot: error: {error}", file=sys.stderr)
        return 2


def _compile_all(options: argparse.Namespace) -> int:
    from .compiler.artifacts import artifact, disk_cache
    from .compiler.bundle import write_bundle
    from .compiler.requests import Request, request_for

    forms = ["host", "cuda"] if options.device == "both" else [options.device]
    requests = dict.fromkeys(
        request_for(spec, target=target, schedule=options.schedule, form=form)
        for path in options.files
        for spec in specs_of(path)
        for target in options.target or ["sm_90a"]
        for form in forms
    )

    def compiled(request: Request) -> tuple:
        begin = time.perf_counter()
        key, entry = artifact(request)
        print(
            f"{key}  {request.name()}: {len(entry.payload)} bytes, {time.perf_counter() - begin:.2f} s",
            flush=True,
        )
        return request, entry

    try:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            size = write_bundle(options.output, pool.map(compiled, requests))
    except KeyboardInterrupt:
        cache = disk_cache()
        left = (
            f"the kernels compiled so far were not saved: {cache.problem}"
            if cache.problem
            else f"the kernels compiled so far are in {cache.directory}; repeat the command to continue"
        )
        print(f"attn.aot: interrupted; {options.output} was not written; {left}", file=sys.stderr)
        return 130
    print(f"{options.output}: {len(requests)} kernels, {size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
