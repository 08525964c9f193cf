# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory of ranks that all ranks of a group can write: over NVLink or PCIe between GPUs of one host, and in a shared
file between processes of the host device."""

from __future__ import annotations

import os
import secrets
import socket
import tempfile
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from .groups import Group, failures_of

_SHARED_FOLDER = "/dev/shm"


class PeerMemory(NamedTuple):
    """A region of words for each rank, which begins as zeros.

    memory    int32: this rank's region, or the regions of all ranks one after the other
    regions   how many `memory` has
    places    int32 [ranks, 2] on the device: where each rank's region begins, in words from `memory` on; 64 bits, the
              lower word first
    keep      what owns the memory
    """

    memory: Tensor
    regions: int
    places: Tensor
    keep: object


def make_peer_memory(group: Group, words: int, device: torch.device) -> tuple[PeerMemory | None, str]:
    """Make memory of so many words for each rank. All ranks call it. Returns None where some rank cannot reach the memory
    of another, and why. Raises GroupError for a rank that fails."""
    kind = "cpu" if device.type == "cpu" else torch.cuda.get_device_name(device)
    host = socket.gethostname(), _boot_id(), kind  # Other GPUs would launch other numbers of blocks.
    hosts = _of_all(group, host)
    if len(set(hosts)) > 1:
        other = next(rank for rank, found in enumerate(hosts) if found != hosts[0])
        return (
            None,
            f"rank {_number(group, other)} has another host or kind of GPU than rank {_number(group, 0)}",
        )
    make = _in_file if device.type == "cpu" else _over_links
    made, problem = make(group, words, device)
    problems = _of_all(group, problem)
    if wrong := next((f"rank {_number(group, r)}: {each}" for r, each in enumerate(problems) if each), ""):
        return None, wrong
    return made, ""


def _of_all(group: Group, value: object) -> list:
    found: list = [None] * group.size
    with failures_of(group, "make memory that all can write"):
        dist.all_gather_object(found, value, group=group.handle)
    return found


def _number(group: Group, rank: int) -> int:
    return dist.get_global_rank(group.handle, rank) if group.handle is not None else rank


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]


def _placed(begins: list[int], device: torch.device) -> Tensor:
    words = torch.tensor(begins, dtype=torch.int64).view(torch.int32).view(-1, 2)
    return words.to(device)


# --- GPUs -----------------------------------------------------------------------------------------------------


def _over_links(group: Group, words: int, device: torch.device) -> tuple[PeerMemory | None, str]:
    """Let PyTorch's symmetric memory map the regions of all ranks. Multicast is not needed, and stays off."""
    os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
    try:
        import torch.distributed._symmetric_memory as symmetric

        handle_of: Callable = symmetric.rendezvous
        memory = symmetric.empty(words, dtype=torch.int32, device=device)
        memory.zero_()
        torch.cuda.synchronize(device)
        handle = handle_of(memory, group.handle)
        offset = getattr(handle, "offset", 0)
        bases = [int(base) + offset for base in handle.buffer_ptrs]
        own = memory.data_ptr()
        if bases[group.rank] != own:
            return None, "symmetric memory of another address than its tensor's"
        if any((base - own) % 16 for base in bases):
            return None, "symmetric memory that is not a multiple of 16 bytes apart"
        places = _placed([(base - own) // 4 for base in bases], device)
        return PeerMemory(memory, 1, places, handle), ""
    except (RuntimeError, ImportError, AttributeError, TypeError) as error:
        return None, f"no symmetric memory ({_first_line(error)})"


# --- Processes on the host device -----------------------------------------------------------------------------


def _in_file(group: Group, words: int, device: torch.device) -> tuple[PeerMemory | None, str]:
    """Map one file of shared memory on every rank. Its name is gone before this function returns."""
    path, mark = "", secrets.randbits(31)
    problem = ""
    if group.rank == 0:
        try:
            descriptor, path = tempfile.mkstemp(prefix="attn-", dir=_SHARED_FOLDER)
            try:  # Now, as a write to a full folder later would end the process.
                os.posix_fallocate(descriptor, 0, group.size * words * 4)
            finally:
                os.close(descriptor)
        except OSError as error:
            problem = _first_line(error)
    path, mark, problem = _of_all(group, (path, mark, problem))[0]
    if problem:
        if group.rank == 0 and path:
            os.unlink(path)
        return None, problem
    memory = None
    try:
        memory = torch.from_file(path, shared=True, size=group.size * words, dtype=torch.int32)
    except (RuntimeError, OSError) as error:
        problem = _first_line(error)
    if group.rank == 0 and memory is not None:
        memory[0] = mark
    _of_all(group, None)  # The mark is written.
    if memory is not None and int(memory[0]) != mark:
        problem = "a shared file of another host"
    _of_all(group, None)  # The mark is read.
    if group.rank == 0:
        os.unlink(path)
        if memory is not None:
            memory[0] = 0
    if problem or memory is None:
        return None, problem
    places = _placed([rank * words for rank in range(group.size)], device)
    return PeerMemory(memory, group.size, places, None), ""
