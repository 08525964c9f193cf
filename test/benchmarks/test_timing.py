# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How `bench gpu` takes time, against a PyTorch that only writes down what it was asked for."""

import contextlib
import gc
import weakref

import pytest
from measuring.timing import Timer


class FakeTensor:
    def __init__(self, torch, size):
        self.torch, self.size = torch, size

    def numel(self):
        return self.size

    def __getitem__(self, part):
        return FakeTensor(self.torch, part.stop - part.start)

    def copy_(self, other):
        assert other.size == self.size
        self.torch.log.append(other.size)


class FakeEvent:
    def __init__(self, torch):
        self.torch = torch

    def record(self):
        self.torch.log.append("event")
        self.time = self.torch.time

    def elapsed_time(self, end):
        return end.time - self.time


class FakeTorch:
    """The part of PyTorch that the timer uses. A launch takes time only when it runs, not when it is recorded."""

    uint8 = None

    def __init__(self):
        self.cuda, self.log, self.time, self.recording = self, [], 0.0, None
        self.slept = []

    def get_device_properties(self, index):
        self.L2_cache_size = 1 << 20
        return self

    def zeros(self, size, dtype, device):
        return FakeTensor(self, size)

    def _sleep(self, cycles):
        self.log.append("sleep")
        self.slept.append(cycles)

    def Event(self, enable_timing):
        return FakeEvent(self)

    def synchronize(self):
        self.log.append("wait")

    def launch(self, name, milliseconds):
        if self.recording is not None:
            self.recording.append((name, milliseconds))
            return
        self.log.append(name)
        self.time += milliseconds

    def CUDAGraph(self):
        return FakeGraph(self)

    @contextlib.contextmanager
    def graph(self, graph):
        self.recording = graph.launches
        try:
            yield
        finally:
            self.recording = None


class FakeGraph:
    def __init__(self, torch):
        self.torch, self.launches = torch, []

    def replay(self):
        self.torch.log.append("replay")
        self.torch.time += sum(milliseconds for _, milliseconds in self.launches)


def taking(torch, **milliseconds):
    return {name: lambda name=name, ms=ms: torch.launch(name, ms) for name, ms in milliseconds.items()}


@pytest.fixture(autouse=True)
def pauses(monkeypatch):
    """Seconds that the host waited between runs, without waiting."""
    seconds = []
    monkeypatch.setattr("measuring.timing.time.sleep", seconds.append)
    return seconds


def test_a_run_rests_before_the_next(pauses):
    torch = FakeTorch()
    Timer(torch, 20).alone(taking(torch, short=1.0, long=100.0))
    assert pauses == pytest.approx([0.003, 0.3] * (len(pauses) // 2)) and pauses


@pytest.mark.parametrize(("milliseconds", "runs"), [(0.01, 22), (60, 7), (10_000, 5)])
def test_one_alone(milliseconds, runs):
    torch = FakeTorch()
    assert Timer(torch, 20)(taking(torch, run=milliseconds)["run"]) == pytest.approx(milliseconds)
    assert torch.log.count("run") == runs  # one to warm up, one to see how long it takes, and the repeats
    assert torch.log[0] == "run"
    flush = [(1 << 20) // 16] * 64  # reads four times the cache into a part of it
    assert torch.log[1:] == [*flush, "sleep", "event", "run", "event", "wait"] * (runs - 1)


def test_sides_take_turns():
    torch = FakeTorch()
    times = Timer(torch, 4).alone(taking(torch, attn=1.0, cudnn=2.0, flash=3.0))
    assert times == pytest.approx({"attn": 1, "cudnn": 2, "flash": 3})
    order = [name for name in torch.log if name in times]
    assert order == ["attn", "cudnn", "flash"] * 6
    after = torch.log[3:]  # the first calls compile
    assert after.count("sleep") == after.count("wait") == 15 and after.count(65536) == 15 * 64


def test_the_wait_covers_what_the_host_takes(monkeypatch):
    """Quick starts have the least wait, slow ones twice what they took before, those that wait themselves the longest."""
    torch, now = FakeTorch(), [0.0]
    monkeypatch.setattr("measuring.timing.time.perf_counter", lambda: now[0])

    def starting(name, seconds):
        def run():
            now[0] += seconds
            torch.launch(name, 100.0)

        return run

    sides = {"quick": starting("quick", 1e-4), "slow": starting("slow", 1e-3), "long": starting("long", 1.0)}
    timer = Timer(torch, 20)
    timer.alone(sides)
    assert timer.host == pytest.approx({"quick": 1e-4, "slow": 1e-3, "long": 1.0})
    least, longest = Timer.SLEEP, Timer.LONGEST
    assert torch.slept[:3] == [least] * 3  # nothing is known of them yet
    assert torch.slept[3:] == pytest.approx([least, 4_000_000, longest] * 3, abs=1)


def test_a_median_not_a_mean():
    torch = FakeTorch()
    left = iter([5.0, 5.0, 1.0, 9.0, 2.0])
    assert Timer(torch, 3)(lambda: torch.launch("run", next(left))) == pytest.approx(2.0)


def test_sustained_runs_follow_each_other():
    torch = FakeTorch()
    functions = taking(torch, attn=1.0, cudnn=10.0)
    timer = Timer(torch, 20)
    times = timer.sustained(functions, {"attn": 1.0, "cudnn": 10.0}, pytest.fail, {})
    assert times == pytest.approx({"attn": 1, "cudnn": 10})
    passes = "".join({"attn": "a", "cudnn": "c", "event": "|", "wait": "\n"}[word] for word in torch.log)
    # 50 ms to settle and 300 that count, nothing between them; and the order reversed the second time.
    once = {"a": "a" * 50 + "|" + "a" * 300 + "|", "c": "c" * 5 + "|" + "c" * 30 + "|"}
    assert passes.split() == [once["a"], once["c"], once["c"], once["a"]]


def test_sustained_is_a_mean_of_both_passes():
    torch = FakeTorch()
    slowing = iter([*[1.0] * 350, *[2.0] * 350])
    functions = {"attn": lambda: torch.launch("attn", next(slowing))}
    assert Timer(torch, 20).sustained(functions, {"attn": 1.0}, None, {}) == pytest.approx({"attn": 1.5})


def test_short_runs_are_recorded():
    """Else what is timed is Python."""
    torch = FakeTorch()
    functions = taking(torch, attn=0.01, cudnn=0.1)
    fixed = taking(torch, fixed=0.02)["fixed"]
    asked = []
    record = lambda name: (asked.append(name), fixed)[1]  # noqa: E731
    times = Timer(torch, 20).sustained(functions, {"attn": 0.01, "cudnn": 0.1}, record, {})
    assert asked == ["attn"]
    assert times == pytest.approx({"attn": 0.02, "cudnn": 0.1})
    assert "attn" not in torch.log and torch.log.count("replay") == 2 * (157 + 938)  # of 32 runs each


def test_what_cannot_be_recorded_is_started_each_time():
    torch, declined = FakeTorch(), {}

    def refuses():
        if torch.recording is not None:
            raise RuntimeError("operation not permitted when stream is capturing")
        torch.launch("flash", 0.05)

    functions = {**taking(torch, attn=0.01), "flash": refuses}
    times = Timer(torch, 20).sustained(functions, {"attn": 0.01, "flash": 0.05}, functions.get, declined)
    assert times == pytest.approx({"attn": 0.01, "flash": 0.05})
    assert list(declined) == ["flash, recorded"] and "capturing" in str(declined["flash, recorded"])


def test_what_was_recorded_lives_as_long_as_its_replays():
    torch = FakeTorch()
    record = taking(torch, attn=0.01)["attn"]
    alive = weakref.ref(record)
    replay = Timer(torch, 20).graph(record)
    del record
    gc.collect()
    assert alive() is not None and callable(replay)
