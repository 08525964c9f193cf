# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fork safety: a forked child does not wait for threads that it does not have.

A child has one thread and a copy of every lock. A lock that another thread of its parent held stays locked in the child
for ever, and so do the locks of Python's import system.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


def make_guard(kind: Callable[[], Any] = threading.Lock) -> Any:
    """Make a lock of a module that is free in a forked child."""
    guard = kind()
    os.register_at_fork(after_in_child=guard._at_fork_reinit)
    return guard


class cached_property(Generic[T]):
    """Compute a property once for each object. functools.cached_property of Python 3.11 holds a lock that all objects
    share; this class has none. Threads that ask at the same time compute the same value twice."""

    def __init__(self, compute: Callable[[Any], T]):
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> cached_property[T]: ...

    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...

    def __get__(self, instance: object | None, owner: type | None = None) -> cached_property[T] | T:
        if instance is None:
            return self
        return instance.__dict__.setdefault(self.name, self.compute(instance))


def _finish_imports() -> None:
    """Wait for the imports that other threads have begun, one after the other. A module whose import has not begun is
    no problem: the child imports it itself."""
    awaited: set[str] = set()
    while begun := _imports_under_way() - awaited:
        for name in begun:
            with contextlib.suppress(Exception):  # The other thread receives the exception.
                importlib.import_module(name)
        awaited |= begun


def _imports_under_way() -> set[str]:
    # copy() makes no objects on the way, so no other thread adds a module meanwhile; list(items()) makes a tuple each.
    return {
        name
        for name, module in sys.modules.copy().items()
        if getattr(getattr(module, "__spec__", None), "_initializing", False)
    }


def _forget_imports() -> None:
    """Let a child import for itself the modules that other threads were importing at the fork. A module that they were
    looking for is still locked. A module whose import began after `_finish_imports` is there in part and would be taken
    for whole."""
    locks = getattr(importlib._bootstrap, "_module_locks", {})  # type: ignore[attr-defined]
    owners = {name: getattr(reference(), "owner", None) for name, reference in list(locks.items())}
    own = threading.get_ident()
    for name, owner in owners.items():
        if owner not in (None, own):
            locks.pop(name, None)
    for name in _imports_under_way():
        if owners.get(name) != own:
            sys.modules.pop(name, None)


os.register_at_fork(before=_finish_imports, after_in_child=_forget_imports)
