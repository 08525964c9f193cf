# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run random products of features. Case N is the same in every process, and one command runs it:

    python test/products/runs.py N          case N, with a traceback of its error
    python test/products/runs.py A B        the cases from A up to B

N modulo FORMS alone decides what is compiled, so that many cases share a kernel; sizes, amplitudes, positions and
numbers depend on N. All memory for results holds NaN before.
"""

from __future__ import annotations

import collections
import sys
import time
import traceback

import package  # noqa: F401

import attn  # isort: skip
import numpy
import torch
from calls import run_attend, run_forest, run_packed
from checks import dirty_memory
from kernels import run_kernel
from problem import draw_form

FORMS = 1536

RUNS = {
    "attend": run_attend,
    "packed": run_packed,
    "forest": run_forest,
    "kernel": run_kernel,
    "device": run_kernel,
}


def run_case(number):
    """Run a case. Return None, or the reason of a refusal; raise if the result is wrong."""
    form = draw_form(number % FORMS)
    random = numpy.random.default_rng([number, 1])
    try:
        with dirty_memory():
            RUNS[form["kind"]](random, form)
    except (attn.CompileError, attn.SpecError) as refused:
        return f"{form['kind']}: {str(refused).splitlines()[0][:150]}"
    except attn.PlanError as refused:
        if "planned on the host" not in str(refused):
            raise
        return f"{form['kind']}: {str(refused).splitlines()[0][:150]}"
    return None


def main():
    first = int(sys.argv[1])
    numbers = range(first, int(sys.argv[2])) if len(sys.argv) > 2 else [first]
    torch.set_num_threads(1)
    refused, wrong, start = collections.Counter(), [], time.perf_counter()
    for number in numbers:
        try:
            why = run_case(number)
            if why:
                refused[why] += 1
        except Exception as error:
            form = draw_form(number % FORMS)
            kept = {name: value for name, value in form.items() if value is not None}
            print(f"case {number}: {type(error).__name__}: {error}\n    {kept}", flush=True)
            if len(numbers) == 1:
                traceback.print_exc()
            wrong.append(number)
        done = number - first + 1
        if done % 100 == 0:
            print(
                f"... {done} of {len(numbers)}, {len(wrong)} wrong, {time.perf_counter() - start:.0f} s",
                flush=True,
            )
    for why, count in refused.most_common():
        print(f"refused {count} times: {why}")
    took = time.perf_counter() - start
    print(f"{len(numbers)} cases, {len(wrong)} wrong, {sum(refused.values())} refused, {took:.1f} s: {wrong}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
