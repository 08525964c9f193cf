# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Faults of NCCL ranks, each on a GPU of its own: nothing outlives its timeout, and ranks are named where they can be.

PYTHONPATH=build/python:test/python/distributed python -m pytest -q test/python/distributed/test_faults_gpu.py
"""

import datetime
import json
import multiprocessing
import os
import sys
import time

import attn
import pytest
import torch
import torch.distributed as dist
from attn import distributed

GPUS = min(torch.cuda.device_count(), 4)
TIMEOUT, SLACK = 10, 60  # Seconds: of a group, and for a process to start, to compile and to be torn down.

pytestmark = pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")


def run_gpus(function, tmp_path, ranks=GPUS):
    """Call `function(rank, ranks)` in processes of an NCCL group. Returns exit codes, what each rank reported (a list
    that JSON can hold, or None), and seconds. A process that outlives its time is killed, and its exit code is None."""
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=_rank, args=(rank, ranks, function, str(tmp_path)), daemon=True)
        for rank in range(ranks)
    ]
    begin = time.monotonic()
    for process in processes:
        process.start()
    codes = []
    for process in processes:
        process.join(max(TIMEOUT + SLACK - (time.monotonic() - begin), 0))
        codes.append(process.exitcode)
        if process.exitcode is None:
            process.kill()
            process.join()
    files = [tmp_path / f"rank-{rank}.json" for rank in range(ranks)]
    reports = [json.loads(file.read_text()) if file.exists() else None for file in files]
    return codes, reports, time.monotonic() - begin


def _rank(rank, ranks, function, folder):
    os.environ["NCCL_NVLS_ENABLE"] = "0"  # NVLink multicast stays off.
    os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"
    os.environ["TORCH_NCCL_DUMP_ON_TIMEOUT"] = "0"
    # PyTorch ends a process four times as long after it has found a timeout, and prints stacks for seven seconds.
    os.environ["TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"] = "250"
    os.environ["TORCH_FR_BUFFER_SIZE"] = "0"
    torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=ranks,
        timeout=datetime.timedelta(seconds=TIMEOUT),
        device_id=torch.device("cuda", rank),
    )

    def report(*said):
        with open(f"{folder}/rank-{rank}.json", "w") as file:
            json.dump(said, file)

    function(rank, ranks, report)
    dist.barrier()
    dist.destroy_process_group()


def tensors(rank, ranks, dim=64):
    """Return a split of two documents, and this rank's queries, keys and values."""
    starts = [0, 400, 700]
    generator = torch.Generator().manual_seed(0)
    whole = [torch.randn(700, h, dim, generator=generator).bfloat16() for h in (8, 4, 4)]
    split = distributed.split(starts, ranks, see=attn.causal(), block=32)
    own = [distributed.shard(each, split, rank=rank).cuda() for each in whole]
    return own, dict(split=split, cu_seqlens=starts, causal=True)


def die(form, rank, ranks, report):
    """The last rank ends between two calls."""
    own, options = tensors(rank, ranks)
    for _ in range(2):
        distributed.attend(*own, form=form, **options)
    torch.cuda.synchronize()
    if rank == ranks - 1:
        os._exit(3)
    begin = time.monotonic()
    try:
        for _ in range(3):
            distributed.attend(*own, form=form, **options)
        torch.cuda.synchronize()
    except RuntimeError as error:  # An attn.GroupError is one. NCCL's watchdog may end the process before.
        report(f"{type(error).__name__}: {error}", time.monotonic() - begin)
        sys.exit(1)


def die_gathering(*given):
    die("all_gather", *given)


def die_in_a_ring(*given):
    die("ring", *given)


@pytest.mark.parametrize("function", [die_gathering, die_in_a_ring])
def test_no_rank_outlives_one_that_died(function, tmp_path):
    codes, reports, seconds = run_gpus(function, tmp_path)
    print(codes, reports, f"{seconds:.1f} s")
    assert codes[-1] == 3 and all(code not in (0, None) for code in codes), codes
    for report in reports[:-1]:
        assert report is None or report[1] < TIMEOUT + 15


def disagree(rank, ranks, report):
    """Rank 1 gives other shapes."""
    own, options = tensors(rank, ranks)
    wide, _ = tensors(rank, ranks, dim=128)
    found = []
    calls = (
        lambda: distributed.attend(own[0][:-3] if rank == 1 else own[0], *own[1:], **options),
        lambda: distributed.attend(*(wide if rank == 1 else own), **options),
        lambda: distributed.Partial.shared(4 + (rank == 1), 8, 64, own[0]),
    )
    for call in calls:
        try:
            call()
            found.append("no error")
        except attn.GroupError as error:
            found.append(str(error))
    finite = distributed.attend(*own, **options).isfinite().all().item()  # Ranks still agree.
    report(*found, finite)


def test_every_rank_is_told_whose_shapes_differ(tmp_path):
    codes, reports, _ = run_gpus(disagree, tmp_path)
    assert codes == [0] * GPUS
    for rows, dims, states, finite in reports:
        assert rows.startswith("rank 1: k: expected ["), rows
        assert dims.startswith("rank 1: expected dims=(64, 64) as on rank 0, got (128, 128)"), dims
        assert states.startswith("rank 1: expected rows=4 as on rank 0, got 5"), states
        assert finite


def not_a_number(rank, ranks, report):
    """A value of the first document is NaN on one rank."""
    own, options = tensors(rank, ranks)
    rows = torch.tensor(options["split"].rows(rank))
    own[2][rows == 11] = torch.nan
    wrong = []
    for form in ("all_gather", "ring"):
        out = distributed.attend(*own, form=form, **options)
        lost = ~distributed.unshard(out, options["split"]).isfinite().flatten(1).all(1)
        wrong += [lost[11:400].all().item(), lost[400:].any().item()]
    report(*wrong)


def test_a_nan_reaches_the_rows_that_see_it(tmp_path):
    codes, reports, _ = run_gpus(not_a_number, tmp_path)
    assert codes == [0] * GPUS
    assert reports == [[True, False, True, False]] * GPUS


def exchange(rank, ranks, report):
    """Exchange states of every shape, in a captured step too, as on the host device."""
    import test_exchange

    found = test_exchange.exchange(rank, ranks, torch.device("cuda", rank))
    if rank == 0:
        test_exchange.check_results([found], ranks)
    out, lse = (each.cuda() for each in test_exchange.states(0, ranks, 4, 32, 128, torch.bfloat16))
    shared, gathered = distributed.Partial.shared(4, 32, 128, out), distributed.Partial(4, 32, 128, out)
    wrong = 0
    for partial in (shared, gathered):
        test_exchange.fill(partial, out[rank], lse[rank])
        partial.merged()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(5):
            captured = shared.merged()
    for step in range(200):
        out, lse = (each.cuda() for each in test_exchange.states(step, ranks, 4, 32, 128, torch.bfloat16))
        for partial in (shared, gathered):
            test_exchange.fill(partial, out[rank], lse[rank])
        graph.replay()
        wanted = gathered.merged()
        wrong += not all(map(torch.equal, captured, wanted))
    shared.check()
    report(wrong)


def test_exchanged_states_have_the_bits_of_gathered_ones(tmp_path):
    codes, reports, seconds = run_gpus(exchange, tmp_path)
    print(f"{seconds:.1f} s")
    assert codes == [0] * GPUS and reports == [[0]] * GPUS


def lose_a_rank(rank, ranks, report):
    """The last rank ends between two exchanges; others must not wait for it for ever."""
    out = torch.randn(4, 32, 128, device="cuda").bfloat16()
    partial = distributed.Partial.shared(4, 32, 128, out, timeout=2.0)
    partial.out.copy_(out)
    partial.lse.zero_()
    for _ in range(2):
        partial.merged()
    torch.cuda.synchronize()
    dist.barrier()
    if rank == ranks - 1:
        os._exit(3)
    begin = time.monotonic()
    results = [partial.merged() for _ in range(3)]
    torch.cuda.synchronize()
    seconds, lost = time.monotonic() - begin, all(out.isnan().all().item() for out, _ in results)
    try:
        partial.check()
        report("no error", seconds, lost)
    except attn.GroupError as error:
        report(str(error), seconds, lost)
    os._exit(1)


def test_an_exchange_names_the_rank_that_died(tmp_path):
    codes, reports, _ = run_gpus(lose_a_rank, tmp_path)
    assert codes == [1] * (GPUS - 1) + [3]
    for text, seconds, lost in reports[:-1]:
        assert text.startswith(f"rank {GPUS - 1} failed: no answer within 2 s"), text
        assert 1.5 < seconds < 10 and lost
