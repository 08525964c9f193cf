# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Points of `bench gpu` that are described in Python, or by a model: nothing of them is compiled before the GPU is
there."""


class Described:
    """A point of a `part`, with a `name` of its own there."""

    @property
    def key(self):
        return f"{self.part}: {self.name}"

    def problems(self):
        return set()
