# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""New keys and values in pools of an engine: every layout, negative slots, 8-bit floats, refusals."""

import pytest

torch = pytest.importorskip("torch")

import attn  # noqa: E402
from attn import TensorError  # noqa: E402
from attn.serving import page_of, page_table, pages_of, split_lines, write_tokens  # noqa: E402

PAGES, PAGE, HEADS, DIM = 5, 4, 2, 16


def lines_of(layout, dtype=torch.float16):
    """An engine's cache [pages, heads, page, 2 * dim] in memory of its exact size, by layout."""
    orders = {"heads first": (0, 1, 2, 3), "tokens first": (0, 2, 1, 3), "pages of layers": None}
    if layout == "pages of layers":  # Pages of three layers lie beside each other.
        return torch.zeros(PAGES, 3, HEADS, PAGE, 2 * DIM, dtype=dtype)[:, 1]
    sizes = PAGES, HEADS, PAGE, 2 * DIM
    memory = torch.zeros([sizes[axis] for axis in orders[layout]], dtype=dtype)
    return memory.permute(orders[layout])


def tokens(count, dtype=torch.float16):
    torch.manual_seed(count)
    return torch.randn(2, count, HEADS, DIM).to(dtype).unbind(0)


def expected_lines(k, v, slots):
    lines = torch.zeros(PAGES, HEADS, PAGE, 2 * DIM, dtype=k.dtype)
    for row, slot in enumerate(slots):
        if slot >= 0:
            lines[slot // PAGE, :, slot % PAGE] = torch.cat([k[row], v[row]], -1)
    return lines


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("layout", ["heads first", "tokens first", "pages of layers"])
def test_tokens_lie_at_their_slots(layout, dtype):
    slots = [19, 0, 7, 8, 3]  # The first and the last slot of the pool are among them.
    lines, (k, v) = lines_of(layout), tokens(5)
    write_tokens(*split_lines(lines, DIM), k, v, torch.tensor(slots, dtype=dtype))
    assert torch.equal(lines, expected_lines(k, v, slots))


def test_lines_of_other_layers_are_untouched():
    memory = torch.zeros(PAGES, 3, HEADS, PAGE, 2 * DIM, dtype=torch.float16)
    k, v = tokens(3)
    write_tokens(*split_lines(memory[:, 1], DIM), k, v, torch.tensor([0, 5, 19]))
    assert memory[:, 1].any() and not memory[:, 0].any() and not memory[:, 2].any()


@pytest.mark.parametrize("slots", [[-1, 4, -1, 9, -7], [-1, -1], [0, -1], [-1, 0]])
def test_tokens_of_negative_slots_are_skipped(slots):
    lines, (k, v) = lines_of("tokens first"), tokens(len(slots))
    lines.fill_(7)
    before = lines.clone()
    write_tokens(*split_lines(lines, DIM), k, v, torch.tensor(slots))
    written = {slot for slot in slots if slot >= 0}
    wanted = expected_lines(k, v, slots)
    for slot in range(PAGES * PAGE):
        at = slot // PAGE, slice(None), slot % PAGE
        assert torch.equal(lines[at], (wanted if slot in written else before)[at])


def test_tokens_past_the_slots_are_not_read():
    lines, (k, v) = lines_of("heads first"), tokens(6)
    k[2:], v[2:] = torch.nan, torch.nan  # An engine pads its rows.
    write_tokens(*split_lines(lines, DIM), k, v, torch.tensor([6, 1]))
    assert torch.equal(lines, expected_lines(k[:2], v[:2], [6, 1]))
    write_tokens(*split_lines(lines, DIM), k, v, torch.tensor([], dtype=torch.int64))


def test_rows_that_lie_otherwise_are_copied():
    memory = torch.randn(5 * HEADS * DIM + 1).half()
    odd = memory[1:].view(5, HEADS, DIM)  # No multiple of 16 bytes.
    turned = torch.randn(DIM, HEADS, 5).half().permute(2, 1, 0)
    slots = [19, 0, 7, 8, 3]
    lines = lines_of("tokens first")
    write_tokens(*split_lines(lines, DIM), odd, turned, torch.tensor(slots))
    assert torch.equal(lines, expected_lines(odd, turned, slots))


def test_slots_below_31_bits_are_skipped():
    lines, (k, v) = lines_of("tokens first"), tokens(2)
    write_tokens(*split_lines(lines, DIM), k, v, torch.tensor([-(2**32) + 5, 1]))
    assert torch.equal(lines, expected_lines(k, v, [-1, 1]))


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_floats_of_8_bits_are_divided_by_the_scale(name):
    dtype = getattr(torch, name)
    lines, (k, v) = lines_of("tokens first", torch.uint8), tokens(3)
    k[0, 0, 0] = 60000  # More than the format holds, scaled.
    pages = split_lines(lines.view(dtype), DIM)
    write_tokens(*pages, k, v, torch.tensor([2, -1, 9]), k_scale=torch.tensor(0.5), v_scale=2.0)
    limit = torch.finfo(dtype).max
    for pool, rows, scale in ((pages[0], k, 0.5), (pages[1], v, 2.0)):
        for row, slot in ((0, 2), (2, 9)):
            wanted = (rows[row].float() / scale).clamp(-limit, limit).to(dtype)
            assert torch.equal(pool[slot // PAGE, slot % PAGE].float(), wanted.float())
    assert pages[0][0, 2].float().max() == limit


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            dict(slots=torch.tensor([20])),
            r"slots: expected below 20 \(5 pages of 4 tokens\), got 20; nearest legal: 19",
        ),
        (dict(slots=torch.tensor([1.0])), "slots: expected int32 or int64"),
        (dict(k=torch.zeros(1, 3, DIM, dtype=torch.float16)), "k: expected .1 or more, 2, 16."),
        (dict(v=torch.zeros(0, HEADS, DIM, dtype=torch.float16)), "v: expected .1 or more, 2, 16."),
        (dict(v=torch.zeros(1, HEADS, DIM)), "v_pages: expected torch.float32, as v, or an 8-bit float"),
        (dict(k_pages=torch.zeros(5, 2, 16)), "k_pages: expected .pages, page_size, heads, dim."),
        (
            dict(v_pages=torch.zeros(8, 2, HEADS, DIM, dtype=torch.float16)),
            r"v_pages: expected \[5, 4, 2\] pages, tokens and heads on cpu, as k_pages",
        ),
        (dict(slots=torch.zeros(1, dtype=torch.int64, device="meta")), "slots: expected memory of cpu"),
        (
            dict.fromkeys(("k_pages", "v_pages"), torch.zeros(5, 9, HEADS, DIM, dtype=torch.float16)),
            r"k_pages: expected 1 to 8 or a multiple of 16 .*, got 9; nearest legal: 8 or 16",
        ),
        (
            dict.fromkeys(("k_pages", "v_pages"), torch.zeros(5, 4, HEADS, 12, dtype=torch.float16))
            | dict.fromkeys("kv", torch.zeros(1, HEADS, 12, dtype=torch.float16)),
            "k: no kernel writes 2 heads of 12 and 12 features .*nearest legal: 8 or 16",
        ),
        (
            dict(
                q=torch.zeros(1, 3, DIM, dtype=torch.float16),
                norm=attn.Norm(k=torch.ones(DIM), q=torch.ones(DIM)),
            ),
            "q: expected a multiple of 2 heads, those of k, got 3; nearest legal: 2",
        ),
        (dict(k_scale=1.0), "k_scale: expected none beside pages of torch.float16, got 1.0"),
    ],
)
def test_refusals(changes, message):
    k_pages, v_pages = split_lines(lines_of("tokens first"), DIM)
    k, v = tokens(1)
    given = dict(k_pages=k_pages, v_pages=v_pages, k=k, v=v, slots=torch.tensor([3])) | changes
    with pytest.raises(TensorError, match=message):
        write_tokens(**given)


def test_a_missing_scale_is_refused():
    pages = split_lines(lines_of("tokens first", torch.uint8).view(torch.float8_e4m3fn), DIM)
    with pytest.raises(TensorError, match="k_scale: expected beside pages of fp8_e4m3, got none"):
        write_tokens(*pages, *tokens(1), torch.tensor([3]))


def test_lines_have_keys_and_values():
    with pytest.raises(TensorError, match=r"cache: expected \[pages, heads, page_size, 64\], got .*32"):
        split_lines(lines_of("heads first"), 32)


@pytest.mark.parametrize(
    ("block", "page"),
    [(1, 1), (6, 6), (16, 16), (48, 48), (24, 8), (36, 6), (13, 1), (784, 784), (1056, 1056), (4096, 2048)]
    + [(3136, 1568), (2064, 688)],
)
def test_pages_of_an_engine_are_cut_into_a_kernels(block, page):
    assert page_of(block) == page


@pytest.mark.parametrize("page", [1, 4, 8])
def test_a_pool_of_tokens_is_read_in_pages(page):
    pool = torch.randn(18, HEADS, DIM)
    pages = pages_of(pool, page)
    assert pages.shape == (18 // page, page, HEADS, DIM) and pages.data_ptr() == pool.data_ptr()
    for slot in range(18 // page * page):
        assert torch.equal(pages[slot // page, slot % page], pool[slot])
    with pytest.raises(TensorError, match=r"pool: expected \[slots, heads, dim\]"):
        pages_of(pool[0], page)


def test_slots_of_tokens_become_a_block_table():
    slots = torch.tensor([[8, 16, -1], [-1, 4, 0]], dtype=torch.int32)
    assert page_table(slots, 4).tolist() == [[2, 4, 0], [0, 1, 0]]
    assert page_table(slots, 1).tolist() == [[8, 16, 0], [0, 4, 0]]
    with pytest.raises(TensorError, match=r"slots: expected \[sequences, pages\]"):
        page_table(slots[0], 4)
