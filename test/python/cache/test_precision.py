# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pages of one format, and kernels that take their slots from lists on the device."""

import attn
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from attn import _attn  # noqa: E402
from attn.cache.precision import Precision, SlotList  # noqa: E402
from attn.cache.requantize import find_requantizer  # noqa: E402

PAGES, PAGE, DIM = 6, 8, 64
FORMATS = {
    "bf16": {},
    "K8V4": {"key": "int8", "value": "int4"},
    "K4V2": {"key": "int4", "value": "int2"},
}


def precision_of(name, **room):
    store = attn.Paged(name="kv", page_size=PAGE, dtype="bfloat16", **FORMATS[name]).settled(DIM, DIM)
    room = dict(appended=20, moved=12) | room
    return Precision(store, PAGES, (DIM, DIM), "bf16", "host", **room)


def listed(slots, target=None):
    found = SlotList(len(slots), "host", pairs=target is not None)
    found.slots.copy_(torch.tensor(slots))
    if target is not None:
        found.target.copy_(torch.tensor(target))
    return found


def lines(precision):
    """Of each slot, its bytes."""
    tensors = []
    for tensor in precision.operand:
        heads_last = tensor if precision.run.heads_first else tensor.transpose(1, 2)
        tensors.append(heads_last.reshape(PAGES * PAGE, -1).contiguous().view(torch.uint8))
    return torch.cat(tensors, 1)


def filled(name, slots, seed=0, **room):
    precision = precision_of(name, **room)
    rows = torch.randn(2, len(slots), 1, DIM, generator=torch.Generator().manual_seed(seed)).to(
        torch.bfloat16
    )
    precision.append(listed(slots), *rows)
    return precision, rows


@pytest.mark.parametrize("name", FORMATS)
def test_appends_and_moves(name):
    """Negative slots are skipped, and what no list names stays."""
    slots = [3, -1, 17, 40, 9, -1]
    precision, _ = filled(name, slots)
    before = lines(precision)
    written = sorted(slot for slot in slots if slot >= 0)
    assert before.any(1).nonzero()[:, 0].tolist() == written
    precision.move(listed([17, -1, 3], [0, -1, 47]))
    after = lines(precision)
    assert torch.equal(after[0], before[17]) and torch.equal(after[47], before[3])
    rest = [slot for slot in range(PAGES * PAGE) if slot not in (0, 47)]
    assert torch.equal(after[rest], before[rest])


@pytest.mark.parametrize("source,target", [("bf16", "K8V4"), ("K8V4", "K4V2")])
def test_requantized_lists(source, target):
    high, rows = filled(source, [5, 6, 30])
    low = precision_of(target)
    requantizer = find_requantizer(high.run, low.run)
    requantizer.reserve(4)
    requantizer.launch(high.run, listed([30, -1, 5, -1], [11, -1, 2, -1]))
    found = lines(low)
    assert found.any(1).nonzero()[:, 0].tolist() == [2, 11]
    if source == "bf16":
        direct = precision_of(target)
        direct.append(listed([2, 11]), *(part[[0, 2]].contiguous() for part in rows))
        assert torch.equal(found, lines(direct))


def test_room_for_a_longer_append():
    slots = list(range(40)) * 2
    precision = precision_of("K8V4")
    rows = torch.ones(2, 80, 1, DIM, dtype=torch.bfloat16)
    precision.append(listed(slots[:40] + [-1] * 40), *rows)
    assert lines(precision).any(1).sum() == 40


def test_refusals():
    precision, _ = filled("K8V4", [1])
    short = listed([1], [2])
    address, nbytes = short.address(0)
    with pytest.raises(_attn.Failure, match="expected lists of at least 544 bytes .* got 543"):
        precision._kernels.move(address, nbytes - 1)
    requantizer = find_requantizer(precision.run, precision_of("K4V2").run)
    requantizer.reserve(70)
    with pytest.raises(attn.PlanError, match="requantizer: expected lists of at least 1056 bytes .* got 544"):
        requantizer.launch(precision.run, short)
    with pytest.raises(attn.TensorError, match=r"k: expected bfloat16 \[1, 1, 64\]"):
        precision.append(listed([1]), torch.ones(2, 1, DIM), torch.ones(2, 1, DIM))
