# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks of a gloo group, each a process: they are forked from a server that has imported PyTorch once."""

import multiprocessing
import os
import pickle
import time
import traceback
from multiprocessing.connection import wait

FULL = bool(os.environ.get("ATTN_FULL"))
TIMEOUT = 300.0

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    ["torch", "torch.distributed", "torch.distributed.device_mesh", "attn.distributed"]
)


class RankFailed(AssertionError):
    """A rank raised; `errors` has what each rank raised, as text, or None."""

    def __init__(self, errors):
        super().__init__("\n".join(f"rank {rank}: {error}" for rank, error in enumerate(errors) if error))
        self.errors = errors


def run_ranks(count, function, *arguments, timeout=TIMEOUT, group_timeout=120.0, tmp_path):
    """Call `function(rank, *arguments)` in `count` processes of a gloo group; returns their results. A rank that dies gives
    None. RankFailed if one raised. No process outlives the call."""
    store = tmp_path / f"store-{time.monotonic_ns()}"
    pipes = [_context.Pipe(duplex=False) for _ in range(count)]
    processes = [
        _context.Process(
            target=_rank,
            args=(rank, count, str(store), group_timeout, function, arguments, pipes[rank][1]),
            daemon=True,
        )
        for rank in range(count)
    ]
    try:
        for process, (_, writing) in zip(processes, pipes, strict=True):
            process.start()
            writing.close()
        found, end = [None] * count, time.monotonic() + timeout
        open_pipes = {reading: rank for rank, (reading, _) in enumerate(pipes)}
        while open_pipes:
            ready = wait(list(open_pipes), max(end - time.monotonic(), 0))
            assert ready, f"ranks {sorted(open_pipes.values())} did not end within {timeout} s"
            for reading in ready:
                rank = open_pipes.pop(reading)
                try:
                    found[rank] = pickle.loads(reading.recv_bytes())
                except EOFError:
                    found[rank] = "died", None
    finally:
        for process in processes:
            if process.pid:
                process.kill()
                process.join()
    errors = [text if kind == "raised" else None for kind, text in found]
    if any(errors):
        raise RankFailed(errors)
    return [value for _, value in found]


def _rank(rank, count, store, group_timeout, function, arguments, pipe):
    import datetime

    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{store}",
            rank=rank,
            world_size=count,
            timeout=datetime.timedelta(seconds=group_timeout),
        )
        found = "returned", function(rank, *arguments)
        if dist.is_initialized():  # A page may end its group itself.
            dist.barrier()
    except BaseException as error:
        found = "raised", f"{type(error).__name__}: {error}\n{traceback.format_exc()[-1500:]}"
    pipe.send_bytes(pickle.dumps(found))
    pipe.close()
