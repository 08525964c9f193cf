# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Signals that arrive while the host device runs a kernel: Python's handlers run at once, not when the kernel has
ended."""

import os
import signal
import threading
import time

import attn
import numpy
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from kernel_problem import Problem, spec  # noqa: E402

LONG = numpy.zeros((1, 4096, 8, 128), numpy.float16)  # minutes, on two cores


def soon(number=signal.SIGINT, seconds=0.5):
    timer = threading.Timer(seconds, os.kill, (os.getpid(), number))
    timer.start()
    return timer


def test_an_interrupt_ends_a_launch():
    rng = numpy.random.default_rng(1)
    q, k, v = rng.standard_normal((3, 1, 40, 2, 64)).astype(numpy.float16)
    wanted = attn.attend(q, k, v, causal=True)
    attn.attend(LONG[:, :8], LONG[:, :8], LONG[:, :8], causal=True)  # compiled
    for _ in range(2):
        timer, begin = soon(), time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            attn.attend(LONG, LONG, LONG, causal=True)
        assert time.monotonic() - begin < 20
        timer.join()
        assert numpy.array_equal(attn.attend(q, k, v, causal=True), wanted)  # the device still works


def test_a_plan_goes_on_after_it():
    kernel = attn.compile(spec(), device="host", checked=True)
    problem = Problem()
    plan = kernel.plan(problem.batch)

    class Stop(Exception):
        pass

    def stop(*_):
        raise Stop

    old = signal.signal(signal.SIGALRM, stop)
    try:
        ended = 0
        for _ in range(5):  # at different moments
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            try:
                for _ in range(1000):
                    kernel.run(problem.q, (problem.k, problem.v), plan)
            except Stop:
                ended += 1
        assert ended == 5
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    problem.check(kernel.run(problem.q, (problem.k, problem.v), plan))


def test_a_handler_that_raises_nothing_runs_meanwhile():
    came = []
    q = LONG[:, :2048] + numpy.float16(1)
    old = signal.signal(signal.SIGALRM, lambda *_: came.append(time.monotonic()))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        out = attn.attend(q, q, q, causal=True)
        end = time.monotonic()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert numpy.array_equal(out, q)
    assert came and min(came) < end - 0.05


def test_signals_are_the_main_thread_s():
    """A launch of another thread runs to its end, and the main thread gets the interrupt."""
    found = []
    q = LONG[:, :256] + numpy.float16(1)
    thread = threading.Thread(target=lambda: found.append(attn.attend(q, q, q, causal=True)))
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        soon(seconds=0.1)
        while thread.is_alive():
            time.sleep(0.01)
        time.sleep(5)
    thread.join()
    assert numpy.array_equal(found[0], q)
