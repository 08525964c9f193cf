# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs every test of the repository and ends with one line: N passed, N failed, N skipped.

Each suite writes a JUnit file, the one format that lit, GoogleTest and pytest share; the counts and the
reasons of skips come from those files. A suite that dies without its file counts as one failure.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIT = "/usr/lib/llvm-22/bin/lit"
# Tests of test/python that an installed wheel can fail although the build tree passes: its files and needs, the modules
# that importing it loads, and, without PyTorch, each kind of work once: tensors, calls, caches, all examples.
SMOKE = (
    "test_packaging.py",
    "test_import.py",
    "memory/test_tensors.py",
    "run/test_attend.py",
    "run/test_check.py",
    "cache/test_paged.py",
)
# Rooms of test/python that depend on the versions of PyTorch, Transformers and TRL.
OF_VERSIONS = ("adapters", "flash_attn", "generation", "training")
NEWEST = "python newest, of PyTorch, Transformers and TRL"
# Tests of the package that measure time; nothing runs beside them.
ALONE = "python alone"
LONGEST_FIRST = (
    "python python",
    "python grid",
    "python integration",
    "python benchmarks",
    "unit attn-integration-tests",
)
# The environment of a program under a sanitizer. The host device's tests look at the signals that end a program, and at the
# stack that handlers run on: both are left to it. A finding ends a program with a status that no program of ours has.
SANITIZED = {
    "asan": {
        "ASAN_OPTIONS": "exitcode=77:use_sigaltstack=0:handle_segv=0:handle_sigbus=0:handle_sigfpe=0"
        ":handle_sigill=0:handle_sigtrap=0:handle_abort=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    },
    "tsan": {"TSAN_OPTIONS": "exitcode=77:halt_on_error=1:second_deadlock_stack=1"},
}
# Instrumented headers of LLVM's allocators poison memory that they have not handed out; the shared libMLIR is not
# instrumented and hands it out without unpoisoning it.
OF_PROGRAM = {
    "asan attn-dialect-tests": {"ASAN_OPTIONS": SANITIZED["asan"]["ASAN_OPTIONS"] + ":allow_user_poisoning=0"}
}
# Tests in which threads share something: caches, plans and devices through the C API, blocks of the host device. In tests of one
# thread there is nothing for ThreadSanitizer to see.
THREADED = "CapiThreads*:SharedKernel.*:Session.*"


class Tally:
    def __init__(self):
        self.passed = 0
        self.failed = []
        self.skipped = []

    def read(self, suite, junit, status):
        """Adds one suite's JUnit file; `status` is the exit status of the program that wrote it."""
        failures = len(self.failed)
        try:
            cases = list(ElementTree.parse(junit).getroot().iter("testcase"))
        except (OSError, ElementTree.ParseError):
            self.failed.append(f"{suite}: died with exit status {status} before it reported")
            return
        for case in cases:
            name = f"{suite}: {case.get('classname', '')} {case.get('name')}"
            skip = case.find("skipped")
            if case.find("failure") is not None or case.find("error") is not None:
                self.failed.append(name)
            elif skip is not None or case.get("result") == "skipped" or case.get("status") == "notrun":
                reason = skip.get("message") if skip is not None else None
                self.skipped.append((name, (reason or "no reason given").strip()))
            else:
                self.passed += 1
        if status != 0 and len(self.failed) == failures:
            self.failed.append(f"{suite}: exit status {status} although no test failed")


def run(suite, command, junit, env, timeout, printing):
    """Runs one suite and prints what it said, in one piece: others run beside it."""
    with printing:
        print(f"... {suite}", flush=True)
    start = time.monotonic()
    junit.unlink(missing_ok=True)
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        try:
            status = subprocess.run(
                command,
                cwd=ROOT,
                env=env,
                timeout=timeout,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            ).returncode
        except subprocess.TimeoutExpired:
            status = f"timeout after {timeout} s"
        took = time.monotonic() - start
        output.seek(0)
        with printing:
            print(f"\n--- {suite}\n{output.read()}    {suite}: {took:.1f} s", flush=True)
    return status


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build", help="the build directory to test")
    parser.add_argument(
        "--full", action="store_true", help="many more shapes, clang-tidy over every file, sanitizers"
    )
    parser.add_argument(
        "--wheel-python",
        help="an interpreter with attn's wheel and without PyTorch: a smoke suite of test/python runs there",
    )
    parser.add_argument(
        "--newest-python",
        help="an interpreter with the newest PyTorch, Transformers and TRL: the tests of what depends on them run there, too",
    )
    parser.add_argument(
        "--without-newest", metavar="WHY", help="why there is none, which is reported as a skip"
    )
    parser.add_argument(
        "--vllm-python", help="an interpreter with vLLM: the tests of attn's backend run there"
    )
    parser.add_argument(
        "--without-vllm", metavar="WHY", help="why there is none, which is reported as a skip"
    )
    parser.add_argument(
        "--sglang-python", help="an interpreter with SGLang: the tests of attn's backend run there"
    )
    parser.add_argument(
        "--without-sglang", metavar="WHY", help="why there is none, which is reported as a skip"
    )
    parser.add_argument("--only", help="run only suites whose name contains this")
    args = parser.parse_args()

    build = ROOT / args.build
    results = build / "test-results"
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    env = dict(os.environ, ATTN_BUILD=str(build), ATTN_FULL="1" if args.full else "")
    env["ATTN_VLLM_PYTHON"] = args.vllm_python or ""
    env["ATTN_WITHOUT_VLLM"] = args.without_vllm or ""
    env["ATTN_SGLANG_PYTHON"] = args.sglang_python or ""
    env["ATTN_WITHOUT_SGLANG"] = args.without_sglang or ""
    env["PATH"] = os.pathsep.join([str(build / "bin"), env["PATH"]])
    # Suites that start processes leave a core idle now and then, so two run side by side, each with its share of the
    # cores: threads of PyTorch that wait for one another by spinning take two to three times as long when they share a core.
    cores = os.cpu_count() or 1
    workers = max(2, cores // 4)
    env.setdefault("OMP_NUM_THREADS", str(max(1, cores // workers)))
    limit = 12 * 3600 if args.full else 3600

    suites = []
    for program in sorted((build / "test-bin").glob("*")):
        if program.is_file() and os.access(program, os.X_OK):
            junit = results / f"{program.name}.xml"
            suites.append(
                (f"unit {program.name}", [program, "--gtest_brief=1", f"--gtest_output=xml:{junit}"], junit)
            )
    junit = results / "lit.xml"
    lit = [LIT, "-sv", "--xunit-xml-output", junit, "--param", f"build={args.build}", "test"]
    suites.append(("lit", lit, junit))
    tests = ROOT / "test"
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    for room in sorted({tests / path.relative_to(tests).parts[0] for path in tests.rglob("test_*.py")}):
        junit = results / f"python-{room.name}.xml"
        suites.append(
            (f"python {room.name}", [*pytest, "-m", "not alone", f"--junitxml={junit}", room], junit)
        )
    junit = results / "python-alone.xml"
    suites.append((ALONE, [*pytest, "-m", "alone", f"--junitxml={junit}", tests / "python"], junit))

    if args.full:
        for sanitizer in SANITIZED:
            for program in sorted((ROOT / f"build-{sanitizer}" / "test-bin").glob("attn-*-tests")):
                junit = results / f"{sanitizer}-{program.name}.xml"
                gtest = [program, "--gtest_brief=1", f"--gtest_output=xml:{junit}"]
                gtest += [f"--gtest_filter={THREADED}"] if sanitizer == "tsan" else []
                suites.append((f"{sanitizer} {program.name}", gtest, junit))

    if args.wheel_python:
        junit = results / "python-wheel.xml"
        smoke = [args.wheel_python, *pytest[1:], "-m", "not alone", f"--junitxml={junit}"]
        suites.append(
            ("python wheel, without PyTorch", [*smoke, *(f"test/python/{name}" for name in SMOKE)], junit)
        )

    if args.newest_python:
        junit = results / "python-newest.xml"
        newest = [args.newest_python, *pytest[1:], "-m", "not alone", f"--junitxml={junit}"]
        suites.append((NEWEST, [*newest, *(tests / "python" / room for room in OF_VERSIONS)], junit))

    suites = [suite for suite in suites if not args.only or args.only in suite[0]]
    printing = threading.Lock()

    def status_of(suite):
        name, command, junit = suite
        installed = {"ATTN_INSTALLED": "1"} if command[0] == args.wheel_python else {}
        options = SANITIZED.get(name.split()[0], {}) | OF_PROGRAM.get(name, {})
        return run(name, command, junit, env | installed | options, limit, printing)

    # Suites that measure time wait until the others are done.
    together = [suite for suite in suites if suite[0] != ALONE]
    together.sort(key=lambda suite: LONGEST_FIRST.index(suite[0]) if suite[0] in LONGEST_FIRST else 99)
    with ThreadPoolExecutor(workers) as pool:
        statuses = list(pool.map(status_of, together))
    alone = [suite for suite in suites if suite[0] == ALONE]
    tally = Tally()
    if args.without_newest:
        tally.skipped.append((NEWEST, args.without_newest))
    for suite, status in zip(together + alone, statuses + [status_of(suite) for suite in alone], strict=True):
        tally.read(suite[0], suite[2], status)

    print()
    for name, reason in tally.skipped:
        print(f"skipped: {name}: {reason}")
    for name in tally.failed:
        print(f"failed: {name}")
    print(f"{tally.passed} passed, {len(tally.failed)} failed, {len(tally.skipped)} skipped")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
