# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Packages that SGLang imports and that a model of text on a CPU does not need. Import it before SGLang.

SGLang's kernels for CPUs (`sgl_kernel`) and `torchvision` have no package that fits PyTorch for CPUs here. They are found
as packages whose functions raise when they are called, so that nothing of theirs can pass for a result. The bookkeeping of
drafts has functions in their place (sglang_drafts.py)."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types

ABSENT = ("sgl_kernel", "torchvision")


class _Absent:
    def __init__(self, name):
        self._name = name

    def __call__(self, *given, **named):
        raise RuntimeError(f"{self._name} is not installed")

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Absent(f"{self._name}.{name}")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ABSENT:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)

        def missing(name):
            if name.startswith("__"):
                raise AttributeError(name)
            if spec.name.startswith("sgl_kernel"):
                import sglang_drafts

                if name in sglang_drafts.FUNCTIONS:
                    return sglang_drafts.FUNCTIONS[name]
            return _Absent(f"{spec.name}.{name}")

        module.__getattr__ = missing
        module.__version__ = "0.99"  # Transformers reads torchvision's.
        return module

    def exec_module(self, module):
        pass


if not any(isinstance(each, _Finder) for each in sys.meta_path):
    sys.meta_path.append(_Finder())  # The last: what is installed is taken.
