# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One kernel by which ranks exchange their states and merge them, in memory that all of them can write."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from ..errors import GroupError, expected
from .groups import Group
from .peers import PeerMemory, make_peer_memory
from .state_kernels import SIGNALS, STATE_WORDS, exchange_kernel, name_of, slot_words


class Exchange:
    """The exchange of states of so many items, rows' heads. `make_exchange` makes it on all ranks together."""

    def __init__(
        self,
        group: Group,
        items: int,
        value_dim: int,
        dtype: torch.dtype,
        peers: PeerMemory,
        timeout: float,
    ):
        device = peers.memory.device
        self._group, self._peers, self._timeout = group, peers, timeout
        state = torch.zeros(STATE_WORDS, dtype=torch.int32)
        state[1], state[2] = group.rank, max(int(timeout * 1000), 1)
        self._state = state.to(device)
        # A kernel writes here only when it fails, so the memory may be the host's: reading it never waits.
        self._status = torch.zeros(group.size, dtype=torch.int32, pin_memory=device.type != "cpu")
        self._missed = self._status.numpy()
        shape = peers.regions, region_words(group.size, items, value_dim)
        self._kernel = exchange_kernel(group.size, items, value_dim, dtype, name_of(device), shape)

    def run(self, group: Group, out: Tensor, lse: Tensor, own_out: Tensor, own_lse: Tensor) -> None:
        """Write the merged states to `out` and `lse`."""
        if group != self._group:
            raise expected(GroupError, "group", "the group that Partial.shared was given", group)
        self.check()
        memory, places = self._peers.memory, self._peers.places
        self._kernel.launch(out, lse, own_out, own_lse, memory, places, self._state, self._status)
        if memory.device.type == "cpu":
            self.check()

    def check(self) -> None:
        """Raise a GroupError that names the ranks that did not signal in time."""
        if not self._missed.any():
            return
        missed = [
            f"rank {dist.get_global_rank(self._group.handle, rank)}"
            for rank, failed in enumerate(self._missed.tolist())
            if failed
        ]
        raise GroupError(
            f"{', '.join(missed)} failed: no answer within {self._timeout:g} s while ranks exchanged states of a step"
        )


def region_words(ranks: int, items: int, value_dim: int) -> int:
    """Return the words of a rank's region: signals, and two sets of a slot for each rank."""
    return ranks * (SIGNALS + 2 * slot_words(items, value_dim))


def make_exchange(
    group: Group, items: int, value_dim: int, dtype: torch.dtype, device: torch.device, timeout: float
) -> tuple[Exchange | None, str]:
    """Make an exchange on all ranks together; returns None where memory cannot be shared, and why. GroupError."""
    words = region_words(group.size, items, value_dim)
    if group.size * words >= 1 << 31:
        return None, f"{words} words for each of {group.size} ranks, more than kernels count"
    peers, why = make_peer_memory(group, words, device)
    if peers is None:
        return None, why
    return Exchange(group, items, value_dim, dtype, peers, timeout), ""
