# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What nobody may miss: faults, planted one at a time, and which test sees each.

    python test/faults/faults.py [WORD ...]

Each fault is a few words of one file that become others. What needs it is built, suites that should see it run until
the first of their tests fails, and the file is put back: a table says which test that was. A fault that nobody sees is
missing a test. Words choose faults by their names and files. Exit status 1: something was not seen.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = os.environ.get("ATTN_BUILD", "build")


@dataclass
class Fault:
    name: str
    file: str
    right: str
    wrong: str
    suites: tuple[str, ...]


def pytest(*arguments):
    return [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *arguments]


# By name: what is built for a suite, and its command, which ends with its first failure.
SUITES = {
    "runtime": (
        ["attn-rt-tests"],
        [f"{BUILD}/test-bin/attn-rt-tests", "--gtest_brief=1", "--gtest_fail_fast"],
    ),
    "lit": (["programs"], ["lit", "-s", "--max-failures=1", "--param", f"build={BUILD}", "test"]),
    "grid": (["programs"], pytest("test/grid")),
    "integration": (["programs"], pytest("test/integration")),
    "cache codes": (
        ["programs"],
        pytest("test/integration/test_cache_codes.py", "test/grid/test_cache_codes.py"),
    ),
    "formats": (["programs"], pytest("test/grid/test_formats.py")),
    "head classes": (["programs"], pytest("test/integration/test_head_classes.py")),
    "python cache": ([], pytest("test/python/cache")),
    "python compiler": ([], pytest("test/python/compiler")),
    "python run": ([], pytest("test/python/run")),
    "python driver": ([], pytest("test/python/test_driver.py")),
    "python fuzz": ([], pytest("test/python/test_misuse.py", "test/python/test_fuzz.py")),
}
RUNTIME, CONVERSION, PYTHON = "runtime/src", "lib/Conversion/AttnToTile", "python/attn"
FAULTS = [
    Fault(
        "a key past the end counts",
        f"{CONVERSION}/Steps/LowerMask.cpp",
        "Value exists = b.sub(op.getEnd(), firstToken);",
        "Value exists = b.sub(b.add(op.getEnd(), b.i32(1)), firstToken);",
        ("grid", "lit"),
    ),
    Fault(
        "a window is one token too long",
        f"{CONVERSION}/Kernel/ValuePositions.h",
        "return b.sub(b.max(p, b.i32(-farthest)), b.min(n, b.i32(farthest)));",
        "return b.sub(b.max(b.sub(p, b.i32(1)), b.i32(-farthest)), b.min(n, b.i32(farthest)));",
        ("grid", "lit"),
    ),
    Fault(
        "the unit of a row moves, and what was summed does not",
        f"{CONVERSION}/Steps/LowerSoftmaxStep.cpp",
        "math::Exp2Op::create(b, scaled(arith::SubFOp::create(b, old, center)))",
        "b.f32(1)",
        ("grid", "lit"),
    ),
    Fault(
        "each task of a row counts its sink",
        f"{CONVERSION}/Walk/WalkTasks.cpp",
        "sink = hasFlag(::attn::rt::taskHasSink);",
        "sink = b.compare(arith::CmpIPredicate::eq, b.i32(0), b.i32(0));",
        ("formats", "integration", "lit"),
    ),
    Fault(
        "the LSE of a row that sees nothing is 0",
        f"{CONVERSION}/Expand/States.cpp",
        "arith::MulFOp::create(b, log, b.f32(ln2)), b.f32(-infinity))",
        "arith::MulFOp::create(b, log, b.f32(ln2)), b.f32(0))",
        ("grid", "lit"),
    ),
    Fault(
        "merged parts are not rescaled",
        f"{CONVERSION}/Expand/ExpandOnLanes.cpp",
        "columns.push_back(arith::MulFOp::create(b, column, decay));",
        "columns.push_back(column);",
        ("integration", "lit"),
    ),
    Fault(
        "no barrier behind the exchange of warps",
        "lib/Conversion/TileToMachine/MergeWarps.cpp",
        "  NVVM::Barrier0Op::create(e.b, e.loc);\n  return share;",
        "  return share;",
        ("grid", "lit"),
    ),
    Fault(
        "integers are cut off, not rounded",
        f"{CONVERSION}/Rows/QuantizeRows.cpp",
        "math::FmaOp::create(b, n.sub(x, meta.zero), meta.inverse, least)",
        "math::FmaOp::create(b, n.sub(x, meta.zero), meta.inverse, b.f32(toInteger - 0.5F))",
        ("cache codes", "lit"),
    ),
    Fault(
        "queries are balanced for other codes",
        "lib/Conversion/TileToMachine/CorrectionPatterns.cpp",
        "bitOf(op.getCodes(), inLine) : 0",
        "bitOf(op.getCodes(), inLine + 1) : 0",
        ("formats", "lit"),
    ),
    Fault(
        "scores take the first group's metadata",
        f"{CONVERSION}/Expand/Dequantize.cpp",
        "scales.push_back(meta[2 * group]), zeros.push_back(meta[2 * group + 1]);",
        "scales.push_back(meta[0]), zeros.push_back(meta[1]);",
        ("formats", "lit"),
    ),
    Fault(
        "a cut loses the token in front of it",
        f"{RUNTIME}/plan/Emit.cpp",
        "segment.kvEnd = static_cast<int32_t>(tokens.end);",
        "segment.kvEnd = static_cast<int32_t>(tokens.end) - 1;",
        ("runtime",),
    ),
    Fault(
        "a plan's window is one token too short",
        f"{RUNTIME}/batch/Visibility.cpp",
        "const Interval lower = termInterval(leaf, ends, low);",
        "const Interval lower = termInterval(leaf, ends, low + 1);",
        ("runtime",),
    ),
    Fault(
        "head classes read heads in the order of their ordinals",
        f"{RUNTIME}/batch/HeadClasses.cpp",
        "heads.empty() ? ordinal : heads[static_cast<size_t>(ordinal)]});",
        "slot});",
        ("runtime", "head classes"),
    ),
    Fault(
        "a page just past the pool is accepted",
        f"{RUNTIME}/batch/CheckBatch.cpp",
        "int32Limit + 1) - 1);",
        "int32Limit + 1));",
        ("runtime",),
    ),
    Fault(
        "a pruned node keeps its spare pages",
        f"{RUNTIME}/cache/Nodes.cpp",
        "{&run.pages, &run.spare}",
        "{&run.pages}",
        ("runtime",),
    ),
    Fault(
        "plans read a page that was cut as if it held what it did",
        f"{RUNTIME}/cache/Truncate.cpp",
        "if (node.tokens % s.options.pageTokens)",
        "if (false)",
        ("runtime",),
    ),
    Fault(
        "a fork shares the page that it should copy",
        f"{RUNTIME}/cache/Fork.cpp",
        "s.at(twin).runs[c].pages.push_back(page);",
        "s.at(twin).runs[c].pages.push_back(s.at(index).runs[c].pages.back());",
        ("runtime",),
    ),
    Fault(
        "windows may change in launches that were fixed",
        f"{RUNTIME}/session/State.cpp",
        "if (plan.ends != fixed->ends)",
        "if (plan.ends.size() != fixed->ends.size())",
        ("runtime",),
    ),
    Fault(
        "a tensor map has the next dimension's stride",
        f"{RUNTIME}/cuda/CudaTensorMap.cpp",
        "static_cast<uint64_t>(tensor.strides[i]) : 0",
        "static_cast<uint64_t>(tensor.strides[std::min(i + 1, rank - 2)]) : 0",
        ("runtime",),
    ),
    Fault(
        "codes of a page lie token by token",
        f"{RUNTIME}/tensor/Store.cpp",
        "hasHeadsFirst() ? dims.begin() + 1 : dims.end()",
        "dims.end()",
        ("runtime",),
    ),
    Fault(
        "plain and checked kernels share a key",
        f"{PYTHON}/compiler/requests.py",
        'info["producer"], *self, *code]',
        'info["producer"], *self[:-1], *code]',
        ("python compiler",),
    ),
    Fault(
        "a kernel captured without being fixed",
        f"{PYTHON}/run/calls.py",
        "        self.plan.fix()\n        self.pinned = True",
        "        self.pinned = True",
        ("python driver",),
    ),
    Fault(
        "an array with room between its heads passes as one without",
        f"{PYTHON}/memory/layouts.py",
        "(heads == 1 or of_head == dim) and",
        "(heads == 1 or of_head >= dim) and",
        ("python run", "python fuzz"),
    ),
    Fault(
        "a fork of Python's cache leaves the last page uncopied",
        f"{PYTHON}/cache/paged.py",
        "            self._moved(movement)\n        except BaseException:",
        "            pass\n        except BaseException:",
        ("python cache",),
    ),
]


def first_failure(output):
    for pattern in (
        r"^\[  FAILED  \] (\S+)",
        r"^FAILED (\S+)",
        r"^FAIL: (.*?) \(",
        r"^ERROR (\S+)",
        r"^  (attn :: \S+)",
    ):
        if found := re.search(pattern, output, re.M):
            return found[1].rstrip(",")
    return output.strip().splitlines()[-1][:100] if output.strip() else "no output"


def seen_by(suite):
    """The first test of a suite that fails, or None."""
    targets, command = SUITES[suite]
    if targets:
        build = subprocess.run(
            ["ninja", "-C", BUILD, "-j2", *targets], cwd=ROOT, capture_output=True, text=True
        )
        if build.returncode != 0:
            return f"the build: {build.stdout[-300:]}"
    path = os.pathsep.join([str(ROOT / BUILD / "bin"), os.environ["PATH"]])
    env = dict(os.environ, ATTN_BUILD=str(ROOT / BUILD), PATH=path)
    result = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    return first_failure(result.stdout + result.stderr) if result.returncode else None


def plant(fault):
    """Which test sees a fault, and of which suite; None where none does."""
    file = ROOT / fault.file
    text = file.read_text()
    assert text.count(fault.right) == 1, f"{fault.file}: {text.count(fault.right)} times {fault.right!r}"
    try:
        file.write_text(text.replace(fault.right, fault.wrong))
        for suite in fault.suites:
            if test := seen_by(suite):
                return f"{suite}: {test}"
    finally:
        file.write_text(text)
    return None


def main():
    words = sys.argv[1:]
    missed = 0
    print("| fault | file | seen by |\n|---|---|---|", flush=True)
    for fault in FAULTS:
        if words and not any(word in fault.name or word in fault.file for word in words):
            continue
        test = plant(fault)
        missed += test is None
        print(f"| {fault.name} | `{fault.file}` | {test or 'nobody'} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
