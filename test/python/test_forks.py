# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A child that is forked while threads of its parent import, compile and run does the same, and ends."""

import gc
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import attn
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from attn import forks  # noqa: E402

# Two threads attend from the first import on; children that do not end in time print where they wait.
PROGRAM = """
import faulthandler, os, sys, threading, time
import numpy
import attn

q = numpy.zeros((1, 4, 2, 32), numpy.float16)
done = False

def attend(thread):
    number = 0
    while not done:
        number += 1
        attn.attend(q, q, q, causal=True, window=number % 7 + 1 if number % 2 else None, scale=0.1 + number * 0.01 + thread)

threads = [threading.Thread(target=attend, args=(i,)) for i in range(2)]
for thread in threads:
    thread.start()
failed = 0
for number in range(int(sys.argv[1])):
    time.sleep(0.01 * (number % 7))
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(60, exit=True)
        attn.attend(q, q, q, causal=True, scale=0.5 + number * 0.01)
        os._exit(0)
    failed += os.waitpid(child, 0)[1] != 0
done = True
for thread in threads:
    thread.join()
sys.exit(failed)
"""


def test_children_of_busy_parents_end(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTN_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(attn.__file__).parents[1]))
    ran = subprocess.run([sys.executable, "-c", PROGRAM, "25"], capture_output=True, text=True, timeout=900)
    assert ran.returncode == 0, ran.stderr


def test_a_fork_waits_for_imports(tmp_path, monkeypatch):
    """A fork waits for imports of other threads, with the imports that they start, and never for its own thread's."""
    (tmp_path / "first_slow.py").write_text("import time\ntime.sleep(0.3)\n")
    (tmp_path / "second_slow.py").write_text(
        "import time\ntime.sleep(0.3)\nimport attn.forks\nattn.forks._finish_imports()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    def load():
        import first_slow  # noqa: F401
        import second_slow  # noqa: F401

    thread = threading.Thread(target=load)
    thread.start()
    while "first_slow" not in sys.modules:
        time.sleep(0.01)
    forks._finish_imports()
    assert not forks._imports_under_way() and "first_slow" in sys.modules
    thread.join(30)
    assert not thread.is_alive()


def test_imports_are_counted_while_modules_come():
    """A garbage collection amid the count adds a module, as a finalizer or another thread does. Python 3.12 and later
    collect between instructions alone, where the count never was in danger."""
    names = [f"come_{number}" for number in range(10000)]

    def come(phase, information):
        if phase == "stop" and names:
            sys.modules[names.pop()] = types.ModuleType("come")

    before = set(sys.modules)
    threshold = gc.get_threshold()
    gc.callbacks.append(come)
    try:
        gc.set_threshold(1)
        for _ in range(10):
            assert not forks._imports_under_way()
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(come)
        for name in set(sys.modules) - before:
            del sys.modules[name]


# The lock of a module is taken before the module exists.
SEEKING = """
import faulthandler, importlib, os, sys, threading, time
import attn

looking = threading.Event()

class Slow:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "sought_slowly" and threading.current_thread() is not threading.main_thread():
            looking.set()
            time.sleep(1)

sys.meta_path.insert(0, Slow)
thread = threading.Thread(target=lambda: __import__("sought_slowly"))
thread.start()
looking.wait()
lock = importlib._bootstrap._module_locks["sought_slowly"]()  # lives on in the child, as where its thread stood elsewhere
child = os.fork()
if child == 0:
    faulthandler.dump_traceback_later(20, exit=True)
    import sought_slowly
    os._exit(0)
thread.join()
sys.exit(os.waitpid(child, 0)[1] != 0)
"""


def test_a_child_imports_what_another_thread_was_looking_for(tmp_path, monkeypatch):
    (tmp_path / "sought_slowly.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", f"{Path(attn.__file__).parents[1]}:{tmp_path}")
    ran = subprocess.run([sys.executable, "-c", SEEKING], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr


# Hooks run in the reverse of their order: this one starts an import after the hook of attn has waited for
# all.
BEGINNING = """
import faulthandler, os, sys, threading, time

def begin():
    threading.Thread(target=lambda: __import__("begun_late"), daemon=True).start()
    while "begun_late" not in sys.modules:
        time.sleep(0.01)

os.register_at_fork(before=begin)
import attn

child = os.fork()
if child == 0:
    faulthandler.dump_traceback_later(20, exit=True)
    import begun_late
    os._exit(0 if begun_late.whole else 1)
import begun_late
sys.exit(os.waitpid(child, 0)[1] != 0 or not begun_late.whole)
"""


def test_a_child_imports_what_another_thread_had_begun(tmp_path, monkeypatch):
    (tmp_path / "begun_late.py").write_text("import time\ntime.sleep(1)\nwhole = True\n")
    monkeypatch.setenv("PYTHONPATH", f"{Path(attn.__file__).parents[1]}:{tmp_path}")
    ran = subprocess.run([sys.executable, "-c", BEGINNING], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr


def test_a_guard_is_free_in_a_child():
    import os

    for kind in (threading.Lock, threading.RLock):
        guard = forks.make_guard(kind)
        holder = threading.Thread(target=lambda guard=guard: (guard.acquire(), time.sleep(1)))
        holder.start()
        time.sleep(0.1)
        child = os.fork()
        if child == 0:
            os._exit(0 if guard.acquire(timeout=5) else 1)
        assert os.waitpid(child, 0)[1] == 0
        holder.join()


def test_a_property_is_computed_once():
    class Counter:
        count = 0

        @forks.cached_property
        def value(self):
            """Count a read, and return the count."""
            self.count += 1
            return self.count

    counter = Counter()
    assert (counter.value, counter.value, Counter().value) == (1, 1, 1)
    assert Counter.value.__doc__ == "Count a read, and return the count."
