# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An attn-run, a contest and a session for tests of `bench gpu`, which need no GPU."""

from contest import Measured
from measure import Bench
from measuring.results import Results

SESSION = {
    "id": "2026-11-20T10:00:00+00:00",
    "commit": "abc1234",
    "device": "NVIDIA H200",
    "torch": "2.11",
    "l2_bytes": 60 << 20,
    "copy_bytes_per_second": 4e12,
}


ABOUT = {"predicted_ms": 0.9, "schedule": "wgmma", "kernel": "attention_rows128", "blocks": 132}


class FakeContest:
    """A contest in which attn takes the time of a FakeRun, and peers the given times; back to back all take a tenth
    more, and peers half of that again."""

    def __init__(self, run, peers=None):
        self.run, self.peers, self.asked = run, peers, []

    def __call__(self, point, names, ours=True):
        self.asked.append((point, names, ours))
        self.run.time += self.run.seconds
        if self.run.status:
            raise RuntimeError(f"{point.key}: attn's result differs")
        alone = {"attn": self.run.milliseconds} if ours else {}
        alone |= self.peers if self.peers and names else {}
        sustained = {name: ms * (1.1 if name == "attn" else 1.15) for name, ms in alone.items()}
        declined = {} if self.peers or not names else {"flex": "no Triton"}
        return Measured(alone, sustained if ours else {}, declined, ABOUT, "cudnn", 0.004)


class FakeRun:
    """An attn-run that takes `milliseconds` of its own and `seconds` of the clock."""

    def __init__(self, milliseconds=1.0, seconds=0.0, status=0):
        self.milliseconds, self.seconds, self.status = milliseconds, seconds, status
        self.time, self.options = 0.0, []

    def __call__(self, file, *options, timeout):
        self.time += self.seconds
        self.options.append(options)
        report = {"run_ms": self.milliseconds, "predicted_ms": 0.9, "schedule": "wgmma", "blocks": 132}
        report |= {"kernel": "attention_rows128", "repeat": 3, "bytes_floor": 600_000_000}
        return self.status, report, "attn-run: error: no"


def fake_start(side, point, caches, result):
    """Return one side in a process of its own that takes no time."""
    import torch

    torch.save(torch.zeros(3), result)
    return {"first_seconds": 0.5 if side == "attn" else 10.0, "run_ms": 1.0 if side == "attn" else 1.5}


def fake_decode(point, bench):
    """Return a model that takes no time to decode."""
    times = {side: 6.0 + index for index, side in enumerate(point.sides())}
    about = {"key": point.key, "part": point.part, "name": point.name, "cache": point.cache, "declined": {}}
    return about | {"times_of": times, "floor_ms": 5.0, "peers_ms": {}}


def fake_replay(point, bench):
    """Return steps of which the host does nothing."""
    times = {"replay": 1.0, "eager": 1.5}
    about = {"key": point.key, "part": point.part, "name": point.name, "layers": point.layers, "declined": {}}
    micros = {"update_us": times, "launches_us": times, "launch_us": 2.0}
    return about | micros | {"step_ms": times, "peers_ms": {}}


def fake_gradients(point, bench):
    """Return gradients that take attn two milliseconds and a peer three."""
    about = {"key": point.key, "part": point.part, "name": point.name, "declined": {}}
    if point.part == "shared-backward":
        about |= {"responses": point.responses, "prompt": point.prompt}
    sustained = {"attn": 2.0, "cudnn": 3.0}
    rates = {
        "visited_flops": 8e11,
        "tflops": 400.0,
        "sustained_tflops": 400.0,
        "ratio_to_best_peer": 1.5,
        "sustained_ratio": 1.5,
    }
    return about | rates | {"attn": {"run_ms": 2.0}, "peers_ms": {"cudnn": 3.0}, "sustained_ms": sustained}


def fake_pages(point, bench):
    """Return bookkeeping of a step that takes four microseconds."""
    about = {"key": point.key, "part": point.part, "name": point.name, "floor_bytes": point.floor_bytes()}
    return about | {"lists": 32768, "attn": {"run_ms": 0.004}, "peers_ms": {}, "declined": {}}


def fake_diffkv(point, bench):
    """Return twice the batch and the tokens of bf16."""
    way = {"batch": 100.0, "step_ms": 10.0, "tokens_per_second": 1e4, "compression": 1.0, "preempted": 0}
    ways = {"bf16": way | {"batch_ratio": 1.0, "throughput_ratio": 1.0}}
    ways["DiffKV"] = way | {"compression": 4.0, "batch_ratio": 2.0, "throughput_ratio": 2.0}
    about = {"key": point.key, "part": point.part, "name": point.name, "spread": 2.0, "alphas": [1.0, 0.1]}
    return about | {"ways": ways, "attn": {"run_ms": 10.0}, "peers_ms": {}, "declined": {}}


def fake_layouts(point, bench):
    """Return a layout that is a little slower."""
    about = {"key": point.key, "part": point.part, "name": point.name, "slower": 1.005}
    return about | {"layouts_ms": {"halves": 1.005}, "attn": {"run_ms": 1.0}, "peers_ms": {}, "declined": {}}


def fake_latents(point, bench):
    return {
        "key": point.key,
        "part": point.part,
        "name": point.name,
        "q_heads": point.q_heads,
        "shape": [point.q_heads, point.batch, point.tokens],
        "rows": point.rows,
        "attn": {"run_ms": 1.0},
        "difference": 0.004,
        "tflops": 400.0,
        "bytes_per_second": 2e12,
        "copy_share": 0.5,
        "sustained_ms": {"attn": 1.1},
        "peers_ms": {},
        "ratio_to_best_peer": None,
        "declined": {"flashinfer": "not installed"},
    } | ({"bf16_ms": 1.5, "over_bf16": 1.5} if point.e4m3 else {})


def fake_wide(point, bench):
    """Return heads of 512 with two thirds of the rate of narrower ones, or of copying."""
    about = {"key": point.key, "part": point.part, "name": point.name, "attn": {"run_ms": 1.0}}
    share = {"copy_share": 0.67, "sustained_copy_share": 0.67}
    rate = {"of_narrow": 0.67, "sustained_of_narrow": 0.67}
    about |= {"tflops": 400.0, "peers_ms": {}, "declined": {}}
    return about | (share if point.rows else rate)


def fake_append(point, bench):
    """Return a kernel that takes a tenth longer than copying."""
    about = {"key": point.key, "part": point.part, "name": point.name, "of_copy": 0.91, "speedup": 3.0}
    return about | {
        "attn": {"run_ms": 1.1},
        "copy_ms": 1.0,
        "separate_ms": 3.3,
        "peers_ms": {},
        "declined": {},
    }


def fake_outputs(point, bench):
    """Return a kernel that is a tenth slower than full attention alone."""
    about = {"key": point.key, "part": point.part, "name": point.name, "tokens": point.tokens, "longer": 1.1}
    return about | {"attn": {"run_ms": 1.1}, "full_ms": 1.0, "peers_ms": {}, "declined": {}}


def fake_significance(point, bench):
    """Return a kernel that is a twentieth slower than without significance."""
    about = {"key": point.key, "part": point.part, "name": point.name, "format": point.format}
    about |= {"kv_bytes": point.kv_bytes(), "without_ms": 1.0, "longer": 1.05, "sustained_longer": 1.04}
    return about | {"attn": {"run_ms": 1.05}, "peers_ms": {}, "declined": {}}


def fake_context(point, bench):
    """Return a token of 20 ms."""
    about = {"key": point.key, "part": point.part, "name": point.name, "tokens": point.context, "error": 0.01}
    about |= {"attention_ms": 15.0, "cache_bytes": 6 * 10**10, "token_bytes": 17408.0}
    return about | {"attn": {"run_ms": 20.0}, "peers_ms": {}, "declined": {}}


def fake_planning(point, bench):
    """Return a plan of eight microseconds, as good as the host's."""
    about = {"key": point.key, "part": point.part, "name": point.name, "tasks": 900, "plan_ms": 0.008}
    return about | {
        "attn": {"run_ms": 1.0},
        "host_plan_ms": 1.0,
        "host_plan_us": 300.0,
        "peers_ms": {},
        "declined": {},
    }


def fake_duo(point, bench):
    """Return half the memory, and twice the speed."""
    about = {
        name: getattr(point, name) for name in ("key", "part", "name", "kind", "prompt", "context", "chunk")
    }
    phases = {side: {"seconds": 1.0, "peak_bytes": 10**10} for side in ("full", "duo")}
    names = [f"{phase}_{what}" for phase in ("prefill", "decode") for what in ("memory", "speed")]
    about |= {"phases": {"prefill": phases, "decode": phases}, "less_keys_and_values": 2.0}
    return about | dict.fromkeys(names, 2.0) | {"attn": {"run_ms": 1.0}, "peers_ms": {}, "declined": {}}


def fake_serving(point, bench):
    """Return an engine that answers a little faster."""
    about = {"key": point.key, "part": point.part, "name": point.name}
    rates = {"engine": 1100.0, "generate_batch": 1000.0}
    return about | {"tokens_per_second": rates, "peers_ms": {}, "declined": {}}


def fake_row(point, bench):
    """Return a contract that costs a hundredth."""
    about = {"key": point.key, "part": point.part, "name": point.name, "kind": point.kind}
    alone, sustained = {"default": 1.0, "row": 1.01}, {"default": 1.1, "row": 1.122}
    about |= {"alone_ms": alone, "sustained_ms": sustained, "ratio": 1.01, "sustained_ratio": 1.02}
    return about | {"attn": {"run_ms": 1.01}, "rows_compared": 300, "peers_ms": {}, "declined": {}}


def fake_eager(point, bench):
    """Return a call as fast as a peer with gradients, and twice as fast without."""
    us = {kind: {"attn": 10.0, "flash": 20.0, "empty": 8.0} for kind in ("forward", "recorded", "both")}
    about = {"key": point.key, "part": point.part, "name": point.name, "host_us": us, "back_to_back_us": us}
    ratios = {"forward": 2.0, "recorded": 2.0, "both": 1.0}
    return about | {"ratio_to_best_peer": ratios, "attn": {}, "peers_ms": {}, "declined": {}}


FAKES = {
    "row": fake_row,
    "eager": fake_eager,
    "serving": fake_serving,
    "duo": fake_duo,
    "layouts": fake_layouts,
    "context": fake_context,
    "append": fake_append,
    "mla": fake_latents,
    "wide": fake_wide,
    "outputs": fake_outputs,
    "significance": fake_significance,
    "planning": fake_planning,
    "backward": fake_gradients,
    "shared-backward": fake_gradients,
    "tree-backward": fake_gradients,
    "transformers": fake_decode,
    "graphs": fake_replay,
    "pages": fake_pages,
    "diffkv": fake_diffkv,
}


def bench_of(run, tmp_path, peers=None, file="gpu.json", session=SESSION, start=fake_start):
    results = Results(tmp_path / file, session)
    contest = FakeContest(run, peers)
    return Bench(results, contest, 20, tmp_path, run, start, FAKES), results
