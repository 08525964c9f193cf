# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random tests: many seeds are one test, whose failure names the seed that failed."""

import random


def of_seeds(count, attempt):
    """Call attempt(random) for each of so many seeds; return the sum of the results."""
    total = 0
    for seed in range(count):
        try:
            total += attempt(random.Random(seed)) or 0
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    return total
