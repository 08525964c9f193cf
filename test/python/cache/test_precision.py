# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pages of one format, and kernels that take their slots from lists on the device."""

import attn
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from attn.cache.precision import Copies, Precision, SlotList  # noqa: E402

PAGES, PAGE, DIM = 6, 8, 64
FORMATS = {
    "bf16": {},
    "K8V4": {"key": "int8", "value": "int4"},
    "K4V2": {"key": "int4", "value": "int2"},
}


def memory_of(*names):
    stores = [attn.Unified(name=name, page_size=PAGE, **FORMATS[name]) for name in names]
    memory = attn.UnifiedPages(*stores, pages=PAGES, head_dim=DIM, device="host")
    memory.memory[:] = 0
    return memory


def precision_of(name, memory=None):
    return Precision(memory or memory_of(name), name, appended=20, moved=12)


def listed(slots, target=None):
    """Return a list of new rows and their target slots, without rows that go nowhere."""
    found = SlotList(len(slots), "host")
    source = [row if slot >= 0 else -1 for row, slot in enumerate(slots)] if target is None else slots
    found.source.copy_(torch.tensor(source))
    found.target.copy_(torch.tensor(slots if target is None else target))
    return found


def lines(precision):
    """Return the bytes of each slot."""
    tensors = [
        tensor.reshape(PAGES * PAGE, -1).contiguous().view(torch.uint8) for tensor in precision.operand
    ]
    return torch.cat(tensors, 1)


def filled(name, slots, seed=0, memory=None):
    precision = precision_of(name, memory)
    rows = torch.randn(2, len(slots), DIM, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)
    precision.append(listed(slots), *rows)
    return precision, rows


@pytest.mark.parametrize("name", FORMATS)
def test_appends_and_moves(name):
    """Negative slots are skipped, and slots that no list names are unchanged."""
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
def test_pages_of_one_memory(source, target):
    """Pages of one format move into pages of another format in the same memory; pages that no list names are unchanged."""
    memory = memory_of(source, target)
    high, rows = filled(source, [5, 6, 30], memory=memory)
    low = precision_of(target, memory)
    before = lines(high)[: 4 * PAGE]
    Copies(memory, source, target, 4).launch(listed([30, -1, 5, -1], [35, -1, 47, -1]))
    assert torch.equal(lines(high)[: 4 * PAGE], before)
    direct = precision_of(target)
    direct.append(listed([35, 47]), *(part[[2, 0]].contiguous() for part in rows))
    if source == "bf16":
        assert torch.equal(lines(low)[[35, 47]], lines(direct)[[35, 47]])
    assert lines(low)[[35, 47]].any(1).all()


def test_lists_of_any_length():
    precision = precision_of("K8V4")
    rows = torch.ones(2, 80, DIM, dtype=torch.bfloat16)
    precision.write(listed(list(range(40)) + [-1] * 40), *rows)
    assert lines(precision).any(1).sum() == 40


def test_refusals():
    precision, _ = filled("K8V4", [1])
    short = listed([1], [2])
    copies = Copies(precision._memory, "K8V4", "K8V4", 70)
    copies._room = 64  # a small workspace, for the test
    with pytest.raises(attn.PlanError, match="requantizer: expected lists of at least 1056 bytes .* got 544"):
        copies.launch(short)
    with pytest.raises(attn.TensorError, match=r"k: expected bfloat16 \[1, 64\]"):
        precision.append(listed([1]), torch.ones(2, DIM), torch.ones(2, DIM))
