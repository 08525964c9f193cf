# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Timing of `bench gpu`: on PyTorch's current stream, between two events.

alone      after a pause of three times its length, a flush of the L2 cache and a wait of the GPU, one run at a
           time: the median of repeats. The wait hides the host's time to start a run, which is reported beside it
sustained  back to back until the power limit takes effect: the mean of a run

Compared sides alternate, so that changes of the GPU's clocks affect all of them.
"""

import math
import statistics
import time


class Timer:
    """Milliseconds of functions on the GPU.

    The flush is attn-run's: it reads four times the cache. If it wrote, the function would pay for writing back.
    """

    # Cycles: the GPU waits at least so long before each start, which hides Python's overhead.
    SLEEP = 1_000_000
    # After a pause Python is cold, and starts gradients in a millisecond. The wait is so many times the
    # host's earlier time, in cycles a second, and at most LONGEST, for functions that wait for the GPU
    # themselves.
    COVER, CYCLES, LONGEST = 2, 2e9, 10_000_000
    ENOUGH = 0.3  # Seconds that all repeats of a side together may take, without pauses.
    PAUSE = 3  # Times the length of a run, after it: a run of 25 ms heats the GPU for the next.
    PASS, SETTLE = 0.3, 0.05  # Seconds of one of two passes of a sustained side, and of the runs before it.
    SHORT, RECORDED = (
        0.06,
        32,
    )  # Milliseconds below which runs are recorded, and how many: Python takes longer.

    def __init__(self, torch, repeats):
        self.torch, self.repeats = torch, repeats
        self.l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
        self.source = torch.zeros(4 * self.l2_bytes, dtype=torch.uint8, device="cuda")
        self.target = torch.zeros(self.l2_bytes // 16, dtype=torch.uint8, device="cuda")
        self.host = {}  # The host's seconds to start each side of the last `alone`: medians.

    def flush(self):
        step = self.target.numel()
        for offset in range(0, self.source.numel() - step + 1, step):
            self.target.copy_(self.source[offset : offset + step])

    def once(self, function, host):
        """Time one run. `host`: seconds of earlier starts, a list to which this one's are added."""
        cuda = self.torch.cuda
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        self.flush()
        cuda._sleep(int(min(max(self.SLEEP, self.COVER * self.CYCLES * max(host, default=0)), self.LONGEST)))
        start.record()
        began = time.perf_counter()
        function()
        host.append(time.perf_counter() - began)
        end.record()
        cuda.synchronize()
        milliseconds = start.elapsed_time(end)
        time.sleep(self.PAUSE * milliseconds / 1e3)
        return milliseconds

    def __call__(self, function):
        return self.alone({"": function})[""]

    def alone(self, functions):
        """Return the time of each function by name; they alternate."""
        for function in functions.values():
            function()  # Compiles and allocates.
        host = {name: [] for name in functions}
        slowest = max(self.once(function, host[name]) for name, function in functions.items()) / 1e3
        repeats = max(3, min(self.repeats, int(self.ENOUGH / slowest)))
        rounds = [
            [self.once(function, host[name]) for name, function in functions.items()] for _ in range(repeats)
        ]
        self.host = {name: statistics.median(seconds) for name, seconds in host.items()}
        return {
            name: statistics.median_high(times)
            for name, times in zip(functions, zip(*rounds, strict=True), strict=True)
        }

    def sustained(self, functions, alone, record, declined):
        """Return the sustained time of each function by name, in their order and then in the reverse. `alone` has their
        times, and `record` returns the function that is recorded for a short one. If it cannot be recorded, `declined`
        gets the error: its time is then that of starting it, if that takes longer."""
        loops = {name: (function, 1) for name, function in functions.items()}
        for name in functions:
            if alone[name] < self.SHORT:
                try:
                    loops[name] = self.graph(record(name)), self.RECORDED
                except RuntimeError as error:
                    self.torch.cuda.synchronize()
                    declined[f"{name}, recorded"] = error
        order = [*functions, *reversed(functions)]
        passes = [(name, self.back_to_back(*loops[name], alone[name])) for name in order]
        return {name: statistics.mean(ms for n, ms in passes if n == name) for name in functions}

    def back_to_back(self, function, runs, milliseconds):
        """Return the time of one of the `runs` runs in a call of the function; nothing waits between the calls."""
        cuda = self.torch.cuda
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        settle, count = (max(2, math.ceil(1e3 * s / milliseconds / runs)) for s in (self.SETTLE, self.PASS))
        for _ in range(settle):
            function()
        start.record()
        for _ in range(count):
            function()
        end.record()
        cuda.synchronize()
        return start.elapsed_time(end) / (count * runs)

    def graph(self, function):
        """Return a function that replays several runs, recorded."""
        return recorded(self.torch, function, self.RECORDED)


def recorded(torch, function, runs=1):
    """Return a function that replays so many runs of another, which has run before."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(runs):
            function()

    def replay():
        graph.replay()

    replay.reads = function  # A recorded function reads its plan: both live as long.
    return replay


def replay_time(torch, function, runs, repeats):
    """Return milliseconds of one of `runs` runs that are recorded together, back to back."""
    function()
    torch.cuda.synchronize()
    replay = recorded(torch, function, runs)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    replay()
    start.record()
    for _ in range(repeats):
        replay()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / repeats / runs


def steps_in_turns(torch, functions, rounds, cuda):
    """Time whole steps by name, which take milliseconds and memory, by the CPU's clock, with a wait after each. Returns
    the median in ms, all rounds, and on a GPU the bytes at the peak beside those allocated before. The first round of
    each is warm-up."""
    times, peaks = {name: [] for name in functions}, {}
    wait = torch.cuda.synchronize if cuda else lambda: None
    for number in range(rounds + 1):
        for name, function in functions.items():
            wait()
            if cuda:
                torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated() if cuda else 0
            begin = time.perf_counter()
            function()
            wait()
            if number:
                times[name].append(1e3 * (time.perf_counter() - begin))
            if cuda:
                peaks[name] = {"peak_bytes": torch.cuda.max_memory_allocated() - before}
    return {
        name: {"ms": statistics.median(each), "rounds": each} | peaks.get(name, {})
        for name, each in times.items()
    }


def measured_peaks(torch, timer):
    """Return copy bandwidth in bytes per second (read and written) and bf16 matrix rate in FLOP/s."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    bandwidth = 2 * source.numel() / timer(lambda: target.copy_(source)) * 1e3
    a = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda")
    b = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda")
    return bandwidth, 2 * 8192**3 / timer(lambda: a @ b) * 1e3
