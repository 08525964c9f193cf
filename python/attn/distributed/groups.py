# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Process groups: who is in them, agreement before the first collective, and collectives whose failures name a rank.

Tensors are sent as integers, since not every backend knows every dtype.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from ..errors import GroupError, TensorError, expected

_WAIT = 3.0  # Seconds in which the ranks that still run report a failure.
# PyTorch 2.13 renamed it.
_gather_bytes: Callable[..., Any] = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


class Group(NamedTuple):
    """A process group, and this process's rank in it. `handle` None: this process alone."""

    handle: Any
    rank: int
    size: int


ALONE = Group(None, 0, 1)


def groups_of(given: object) -> tuple[Group, Group]:
    """Read `group`: None (all processes), a ProcessGroup, or a DeviceMesh. Returns the groups that share tokens and heads;
    a mesh of two dimensions has both, [tokens, heads]. TensorError."""
    if not dist.is_available() or not dist.is_initialized():
        raise TensorError(
            "group: expected processes of torch.distributed, got none; call init_process_group first"
        )
    if isinstance(given, DeviceMesh):
        if given.ndim == 1:
            return _group(given.get_group()), ALONE
        if given.ndim == 2:
            return _group(given.get_group(0)), _group(given.get_group(1))
        raise expected(TensorError, "group", "a mesh of one or two dimensions, [tokens, heads]", given.ndim)
    if given is None or isinstance(given, dist.ProcessGroup):
        return _group(given if given is not None else dist.group.WORLD), ALONE
    raise expected(TensorError, "group", "a ProcessGroup, a DeviceMesh, or None for all processes", given)


def _group(handle: Any) -> Group:
    rank = dist.get_rank(handle)
    if rank < 0:
        raise TensorError("group: expected a group of this process, got one of other ranks")
    return Group(handle, rank, dist.get_world_size(handle))


# --- Agreement ------------------------------------------------------------------------------------------------


def agree(groups: Sequence[Group], said: object, problem: str = "") -> None:
    """Raise a GroupError on every rank if one has a `problem`, or if ranks say different things: a dict of names and
    values. The error names the first such rank."""
    found: list[tuple[str, object, str]] = [(f"rank {dist.get_rank()}", said, problem)]
    for group in groups:
        if group.size > 1:
            everyone: list[Any] = [None] * group.size
            with failures_of(group, "compare arguments"):
                dist.all_gather_object(everyone, found, group=group.handle)
            found = [each for of_rank in everyone for each in of_rank]
    for name, _, wrong in found:
        if wrong:
            raise GroupError(f"{name}: {wrong}")
    first, common = found[0][:2]
    for name, other, _ in found[1:]:
        if other != common:
            assert isinstance(other, dict) and isinstance(common, dict)
            differing = next(key for key in {**common, **other} if common.get(key) != other.get(key))
            raise GroupError(
                f"{name}: expected {differing}={common.get(differing)!r} as on {first}, got {other.get(differing)!r}"
            )


# --- Failures -------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def failures_of(group: Group, doing: str) -> Iterator[None]:
    """Raise a GroupError for an operation that fails, which names the ranks that do not answer any more."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, GroupError) or not _is_of_group(error):
            raise
        silent = _silent(group)
        raise GroupError(
            f"{', '.join(silent) or 'a rank'} failed: ranks could not {doing} ({str(error).splitlines()[0]})"
        ) from error


def _is_of_group(error: RuntimeError) -> bool:
    """Whether a collective failed, and not a kernel or an allocation."""
    if isinstance(error, torch.OutOfMemoryError):
        return False
    return isinstance(error, dist.DistError) or any(
        word in str(error) for word in ("gloo", "onnection", "NCCL", "imed out", "imeout", "peer", "Socket")
    )


def _silent(group: Group) -> list[str]:
    """Report this rank's failure, wait for the reports of others, and return the ranks without one. Ranks whose
    neighbour fails fail, too, and report; a process that has ended does not."""
    store = getattr(dist.distributed_c10d, "_get_default_store", lambda: None)()
    others = [dist.get_global_rank(group.handle, rank) for rank in range(group.size) if rank != group.rank]
    try:
        store.set(f"attn/failed/{dist.get_rank()}", "1")
        end = time.monotonic() + _WAIT
        while others and time.monotonic() < end:
            others = [rank for rank in others if not store.check([f"attn/failed/{rank}"])]
            time.sleep(0.05)
    except (RuntimeError, AttributeError):
        return ["rank 0, which holds the store,"]  # torchrun's agent holds it otherwise, and answers.
    return [f"rank {rank}" for rank in others]


# --- Collectives ----------------------------------------------------------------------------------------------


def pack(*tensors: Tensor) -> Tensor:
    """Return lines of words, one for each row, with the elements of all tensors [rows, ...]."""
    word = _word(tensors)
    parts = []
    for tensor in tensors:
        tensor = tensor.detach().contiguous()
        line = _line(tensor)
        empty = tensor.new_empty(len(tensor), line // word.itemsize, dtype=word)
        parts.append(tensor.view(len(tensor), -1).view(word) if tensor.numel() else empty)
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def unpack(lines: Tensor, *likes: Tensor, rows: Tensor | None = None) -> list[Tensor]:
    """Return tensors from lines that `pack` has made of tensors like these, except for the number of rows. `rows`: the
    indices of lines to take; by default all."""
    found, offset = [], 0
    for like in likes:
        size = _line(like) // lines.element_size()
        part = lines[:, offset : offset + size]
        part = part.contiguous() if rows is None else part.index_select(0, rows)
        found.append(part.view(like.dtype).view(len(part), *like.shape[1:]))
        offset += size
    return found


def _line(tensor: Tensor) -> int:
    """Return the bytes of one row."""
    return math.prod(tensor.shape[1:]) * tensor.element_size()


def _word(tensors: Sequence[Tensor]) -> torch.dtype:
    """Return the longest integers of which all lines consist: GPUs copy them faster than bytes."""
    lines = [_line(tensor) for tensor in tensors]
    words = (torch.int64, torch.int32, torch.int16)
    return next((word for word in words if not any(line % word.itemsize for line in lines)), torch.uint8)


def all_gather(group: Group, lines: Tensor, rows: int) -> Tensor:
    """Gather `rows` lines of every rank: [ranks, rows, words]. A rank with fewer lines has unwritten ones after its
    own."""
    if group.size == 1:
        return lines.unsqueeze(0)
    sent = lines
    if len(lines) < rows:
        sent = lines.new_zeros(rows, lines.shape[1])
        sent[: len(lines)] = lines
    found = lines.new_empty(group.size, rows, lines.shape[1])
    with failures_of(group, "gather keys and values"):
        _gather_bytes(found.view(-1), sent.reshape(-1), group=group.handle)
    return found


def all_to_all(group: Group, lines: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
    """Send `sent[i]` lines to rank i, in the order of ranks, and return the lines of all ranks, in their order."""
    if group.size == 1:
        return lines
    found = lines.new_empty(sum(received), lines.shape[1])
    with failures_of(group, "exchange rows"):
        dist.all_to_all_single(found, lines.contiguous(), list(received), list(sent), group=group.handle)
    return found


class Exchange:
    """Lines on their way to the next rank of a ring, and from the one before."""

    def __init__(self, group: Group, lines: Tensor, rows: int):
        self._group, self._sent = group, lines.contiguous()
        self._received = lines.new_empty(rows, lines.shape[1])
        pairs = [
            (dist.isend, self._sent, (group.rank + 1) % group.size),
            (dist.irecv, self._received, (group.rank - 1) % group.size),
        ]
        with failures_of(group, "pass keys and values on"):
            self._works = (
                dist.batch_isend_irecv(
                    [
                        dist.P2POp(operation, tensor, group=group.handle, group_peer=peer)
                        for operation, tensor, peer in pairs
                        if tensor.numel()
                    ]
                )
                if lines.shape[1] and (len(lines) or rows)
                else []
            )

    def wait(self) -> Tensor:
        """Wait, on a GPU the current stream, and return the lines that have come."""
        with failures_of(self._group, "pass keys and values on"):
            for work in self._works:
                work.wait()
        return self._received
