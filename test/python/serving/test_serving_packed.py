# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantized pages in an engine's memory: the bits that are written, what kernels read of them, refusals."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")

import attn  # noqa: E402
from attn.serving import Layer, Plans, Tokens  # noqa: E402
from attn.serving.formats import PACKED  # noqa: E402

PAGES, PAGE, HEADS, DIM = 6, 16, 2, 64
LAYOUTS = ["heads first", "tokens first", "pages of layers", "16-bit elements"]


def layer_of(format, **changes):
    sizes = dict(q_heads=4, kv_heads=HEADS, head_dim=DIM, dtype="float16", page_size=PAGE)
    return Layer(**sizes | dict(format=format) | changes)


def cache_of(layer, layout="heads first", byte=0):
    """An engine's cache [pages, heads, page, bytes] in memory of its exact size."""
    sizes = PAGES, layer.kv_heads, layer.page_size, layer.token_bytes
    if layout == "pages of layers":  # Pages of three layers lie beside each other.
        return torch.full((PAGES, 3, *sizes[1:]), byte, dtype=torch.uint8)[:, 1]
    if layout == "tokens first":
        return torch.full(
            (PAGES, layer.page_size, layer.kv_heads, sizes[3]), byte, dtype=torch.uint8
        ).transpose(1, 2)
    cache = torch.full(sizes, byte, dtype=torch.uint8)
    return cache.view(torch.float16) if layout == "16-bit elements" else cache


def tokens(layer, count, seed=0):
    torch.manual_seed(seed)
    return torch.randn(2, count, layer.kv_heads, layer.head_dim).to(layer.torch_dtype).unbind(0)


def stored(pages, head, slot):
    """The bytes of a token: codes and metadata of keys, then of values."""
    packing = pages.packing
    block = slot // packing.page_size * pages.apart + head
    found = {}
    for name, tensor in pages.named.items():
        if "tensor_scale" not in name:
            found.setdefault(name[0], []).append(tensor[block, slot % packing.page_size])
    return found["k"], found["v"]


def right(pages, head, slot, k, v, **options):
    for part, format, rows in zip(
        stored(pages, head, slot), PACKED[pages.packing.format], (k, v), strict=True
    ):
        for found, wanted in zip(part, attn.quantize(rows[None], format, **options), strict=True):
            if not torch.equal(found.view(torch.uint8), wanted[0].view(torch.uint8)):
                return False
    return True


@pytest.mark.parametrize("slot_type", [torch.int32, torch.int64])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("format", PACKED)
def test_bits_are_those_of_quantize(format, layout, slot_type):
    layer, slots = layer_of(format), [95, 0, -1, 33, 15, 16]  # The first and the last slot are among them.
    pages, (k, v) = layer.pages(cache_of(layer, layout)), tokens(layer, len(slots))
    pages.write(k, v, torch.tensor(slots, dtype=slot_type))
    for row, slot in enumerate(slots):
        for head in range(HEADS):
            assert slot < 0 or right(pages, head, slot, k[row, head], v[row, head])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("format", PACKED)
def test_other_tokens_are_untouched(format, layout):
    layer = layer_of(format)
    cache = cache_of(layer, layout, byte=77)
    whole = cache if cache._base is None else cache._base
    pages = layer.pages(cache)
    pages.write(*tokens(layer, 3), torch.tensor([-1, 40, -5]))
    written = sum(x.numel() * x.element_size() for part in stored(pages, 0, 40) for x in part)
    assert 0 < int((whole.view(torch.uint8) != 77).sum()) <= HEADS * written
    for head in range(HEADS):
        for slot in set(range(PAGES * PAGE)) - {40}:
            assert all((x.view(torch.uint8) == 77).all() for part in stored(pages, head, slot) for x in part)


@pytest.mark.parametrize("format", ["int8_int4", "nvfp4"])
def test_rows_of_a_fused_projection_are_read_where_they_lie(format):
    layer, slots = layer_of(format), [3, 64, 17]
    fused = torch.randn(3, (4 + 2 * HEADS) * DIM).half()
    _, k, v = (x.unflatten(1, (-1, DIM)) for x in fused.split([4 * DIM, HEADS * DIM, HEADS * DIM], 1))
    odd = torch.randn(3, HEADS, DIM + 1).half()[:, :, 1:]  # Heads that are no rows.
    for rows in ((k, v), (odd, v), (k[:1], v[:1])):
        pages = layer.pages(cache_of(layer))
        pages.write(*rows, torch.tensor(slots[: len(rows[0])]))
        for row, slot in enumerate(slots[: len(rows[0])]):
            assert all(
                right(pages, head, slot, rows[0][row, head], rows[1][row, head]) for head in range(HEADS)
            )


def test_bfloat16_and_other_sizes():
    for changes in (
        dict(dtype="bfloat16"),
        dict(kv_heads=1),
        dict(head_dim=128),
        dict(page_size=784),
        dict(page_size=6),
    ):
        layer = layer_of("int4_int2", **changes)
        pages, (k, v) = (
            layer.pages(cache_of(layer)),
            tokens(layer, 300),
        )  # More pairs than the shortest list has.
        room = PAGES * layer.page_size
        slots = torch.full((300,), -1)
        slots[1 : room + 1] = torch.randperm(room)[:299] if room > 96 else torch.arange(room)
        pages.write(k, v, slots)
        for row, slot in enumerate(slots.tolist()):
            assert slot < 0 or all(
                right(pages, head, slot, k[row, head], v[row, head]) for head in range(layer.kv_heads)
            )


def test_numbers_that_are_not_finite_are_clamped():
    layer = layer_of("int8")
    pages, (k, v) = layer.pages(cache_of(layer)), tokens(layer, 1)
    k[0, 0, :3] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    pages.write(k, v, torch.tensor([5]))
    assert right(pages, 0, 5, k[0, 0], v[0, 0])


def test_layers_write_by_one_list():
    layer = layer_of("int4")
    first, second = (layer.pages(cache_of(layer)) for _ in range(2))
    slots = Tokens(torch.tensor([7, -1, 90]))
    for seed, pages in enumerate((first, second)):
        k, v = tokens(layer, 3, seed)
        pages.write(k, v, slots)
        assert right(pages, 1, 90, k[2, 1], v[2, 1]) and right(pages, 0, 7, k[0, 0], v[0, 0])
    first.write(*tokens(layer, 0), torch.tensor([], dtype=torch.int64))
    other, (k, v) = layer.pages(cache_of(layer, "pages of layers")), tokens(layer, 3)
    other.write(k, v, slots)  # Pages lie apart.
    assert right(other, 1, 90, k[2, 1], v[2, 1])


def test_nvfp4_has_a_scale_of_the_tensor():
    layer = layer_of("nvfp4")
    scale = torch.tensor(4.0)
    pages, (k, v) = layer.pages(cache_of(layer), k_scale=scale, v_scale=scale), tokens(layer, 1)
    pages.write(k, v, torch.tensor([5]))
    assert right(pages, 0, 5, k[0, 0], v[0, 0], tensor_scale=4.0)
    assert not right(pages, 0, 5, k[0, 0], v[0, 0])


# --- Results of kernels


def float64(layer, pages, q, q_start, lengths, table):
    """Attention over the dequantized pages."""
    named = pages.named
    scales = [dict(tensor_scale=float(x)) for name, x in named.items() if "tensor_scale" in name] or [{}, {}]
    parts = [
        attn.dequantize(codes.contiguous(), meta.contiguous(), format, **scale)
        for codes, meta, format, scale in zip(
            pages[:2], pages[2:4], PACKED[layer.format], scales, strict=True
        )
    ]
    out = torch.zeros(q.shape, dtype=torch.float64)
    for row, length in enumerate(lengths):
        begin, end = q_start[row : row + 2]
        for head in range(layer.q_heads):
            kv_head = head // (layer.q_heads // layer.kv_heads)
            blocks = torch.tensor(table[row])[: -(-length // layer.page_size)] * pages.apart + kv_head
            k, v = (part[blocks].double().flatten(0, 1)[:length] for part in parts)
            scores = q[begin:end, head].double() @ k.T * layer.head_dim**-0.5
            far = torch.arange(length - (end - begin), length)[:, None] - torch.arange(length)
            scores = scores.masked_fill((far < 0) | (far >= (layer.window or length)), -torch.inf)
            out[begin:end, head] = scores.softmax(-1) @ v
    return out


def filled(layer, layout="heads first", **scales):
    pages = layer.pages(cache_of(layer, layout, byte=255), **scales)
    pages.write(*tokens(layer, PAGES * layer.page_size, 7), torch.randperm(PAGES * layer.page_size))
    return pages


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("format", PACKED)
def test_results_are_those_of_float64_over_the_same_pages(format, layout):
    layer = layer_of(format)
    pages, kernel = filled(layer, layout), layer.compile("cpu")
    plans = Plans()
    for q_start, lengths in (([0, 3, 4, 23], [40, 17, 19]), ([0, 1, 2, 3], [41, 18, 20])):
        table = [[5, 2, 1], [0, 3, 0], [4, 0, 0]]
        q = torch.randn(q_start[-1], 4, DIM).half()
        found = plans.step(q_start, lengths, table).run(kernel, q, pages)
        assert (found - float64(layer, pages, q, q_start, lengths, table)).abs().max() < 4e-3


def test_shared_pages_and_windows():
    layer = layer_of("int8_int4", window=30)
    pages, kernel = filled(layer), layer.compile("cpu")
    q_start, lengths, table = [0, 2, 3, 4], [60, 55, 33], [[5, 2, 1, 0], [5, 2, 1, 3], [4, 0, 3, 0]]
    q = torch.randn(4, 4, DIM).half()
    wanted = float64(layer, pages, q, q_start, lengths, table)
    for shared in (0, 2):
        step = Plans(shared).step(q_start, lengths, table)
        assert (step.run(kernel, q, pages) - wanted).abs().max() < 4e-3
    assert "kv.rows" in step._tables_of_heads(PAGE, HEADS, pages.apart, True)


def test_tables_by_head_follow_the_block_table():
    """Only rows that change are computed anew, and an earlier step keeps its own."""
    layer = layer_of("int8_int4")
    pages, kernel, plans = filled(layer), layer.compile("cpu"), Plans()
    tables = [[[5, 2, 1], [0, 3, 4]], [[5, 2, 1], [0, 3, 4]], [[5, 2, 1], [4, 3, 0]], [[1, 2, 5], [4, 3, 0]]]
    made, seen = [], []
    for at, table in enumerate(tables):
        lengths, q = [40 + at, 33 + at], torch.randn(2, 4, DIM).half()
        step = plans.step([0, 1, 2], lengths, table)
        found = step.run(kernel, q, pages)
        assert (found - float64(layer, pages, q, [0, 1, 2], lengths, table)).abs().max() < 4e-3
        made.append(step._tables_of_heads(PAGE, HEADS, pages.apart, True)["kv.block_table"])
        seen.append(made[-1].copy())
    assert all((now == then).all() for now, then in zip(made, seen, strict=True))
    assert made[0] is made[1] and made[1] is not made[2] and (made[1] != made[2]).any()


def test_a_tensors_scale_is_read():
    layer = layer_of("nvfp4")
    pages = filled(layer, k_scale=torch.tensor(0.5), v_scale=torch.tensor(8.0))
    q = torch.randn(1, 4, DIM).half()
    found = Plans().step([0, 1], [40], [[5, 2, 1]]).run(layer.compile("cpu"), q, pages)
    assert (found - float64(layer, pages, q, [0, 1], [40], [[5, 2, 1]])).abs().max() < 4e-3


# --- Sizes and refusals


def test_bytes_of_tokens_and_pages():
    bytes_of = {name: layer_of(name).token_bytes for name in (None, "fp8_e4m3", *PACKED)}
    assert bytes_of == {
        None: 256,
        "fp8_e4m3": 128,
        "int8": 136,
        "int8_int4": 104,
        "int4": 72,
        "int4_int2": 56,
        "mxfp8": 136,
        "mxfp4": 72,
        "nvfp4": 72,
    }
    assert layer_of("int8_int4").page_bytes == HEADS * PAGE * 104
    for page in (1, 2, 4, 8):  # Blocks are whole 16 bytes.
        layer = layer_of("int8", page_size=page)
        assert page * layer.token_bytes % 16 == 0 and layer.token_bytes >= 136
        pages = layer.pages(cache_of(layer))
        k, v = tokens(layer, 1)
        pages.write(k, v, torch.tensor([page]))
        assert right(pages, 1, page, k[0, 1], v[0, 1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(format="int4", head_dim=48), r"multiple of 32.*got 48; nearest legal: 32 or 64"),
        (dict(format="int4_int2", head_dim=96), r"multiple of 64.*got 96; nearest legal: 64 or 128"),
        (dict(format="mxfp8", head_dim=80), r"multiple of 32.*got 80; nearest legal: 64 or 96"),
        (
            dict(format="int8", page_size=40),
            "expected 1 to 8 or a multiple of 16 up to 2048, got 40; nearest legal: 32 or 48",
        ),
        (
            dict(format="int8_int8"),
            "format: expected None, fp8_e4m3, .* or nvfp4, got 'int8_int8'; nearest legal: 'int8",
        ),
    ],
)
def test_layers_that_a_format_cannot_have(changes, message):
    with pytest.raises(attn.SpecError, match=message):
        layer_of(**changes)


@pytest.mark.parametrize(
    ("cache", "message"),
    [
        (
            torch.zeros(6, 2, 16, 104),
            r"cache: expected \[pages, heads, page_size, bytes\] with 2 \* 16 \* 104 bytes a page",
        ),
        (
            torch.zeros(6, 2, 104, 16, dtype=torch.uint8).transpose(2, 3),
            "cache: expected .pages, heads, page_size, bytes.",
        ),
        (
            torch.zeros(2, 6, 16, 104, dtype=torch.uint8).transpose(0, 1),
            "expected pages of 3328 bytes in one piece",
        ),
        (
            torch.zeros(6, 3329, dtype=torch.uint8)[:, 1:].view(6, 2, 16, 104),
            "a multiple of 1664 bytes apart",
        ),
        (
            torch.zeros(3328 * 6 + 8, dtype=torch.uint8)[8:].view(6, 2, 16, 104),
            "cache: expected memory at a multiple of 16",
        ),
    ],
)
def test_memory_that_kernels_cannot_read(cache, message):
    with pytest.raises(attn.TensorError, match=message):
        layer_of("int8_int4").pages(cache)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            dict(slots=torch.tensor([96])),
            r"slots: expected below 96 \(6 pages of 16 tokens\), got 96; nearest legal: 95",
        ),
        (dict(slots=torch.tensor([1.0])), "slots: expected int32 or int64"),
        (dict(slots=torch.tensor([1], device="meta")), "slots: expected memory of cpu, got .*meta"),
        (dict(k=torch.zeros(1, HEADS, DIM, dtype=torch.float16, device="meta")), "k: expected memory of cpu"),
        (dict(slots=torch.tensor([1, 2])), r"k: expected torch.float16 \[2 or more, 2, 64\], got .*1, 2, 64"),
        (dict(v=torch.zeros(1, HEADS, DIM)), r"v: expected torch.float16 \[1 or more, 2, 64\], got"),
    ],
)
def test_refusals_of_tokens(changes, message):
    layer = layer_of("int8_int4")
    k, v = tokens(layer, 1)
    given = dict(k=k, v=v, slots=torch.tensor([3])) | changes
    with pytest.raises(attn.TensorError, match=message):
        layer.pages(cache_of(layer)).write(**given)


def test_scales_are_those_of_nvfp4_alone():
    layer = layer_of("int8")
    with pytest.raises(attn.TensorError, match="k_scale: expected none beside int8, got one"):
        layer.pages(cache_of(layer), k_scale=torch.ones(1))
    with pytest.raises(attn.TensorError, match=r"v_scale: expected float32 \[1\] on cpu"):
        layer_of("nvfp4").pages(cache_of(layer_of("nvfp4")), v_scale=torch.ones(2))


def test_pages_that_are_none_of_the_cache_are_refused_by_the_callers_numbers():
    """Pages of other layers lie between these: page 2^30 is block 2^32, which a sum of 32 bits takes for block 0."""
    layer = layer_of("int8")
    cache = torch.zeros(PAGES, 2, HEADS, PAGE, layer.token_bytes, dtype=torch.uint8)[:, 0]
    pages, kernel, plans = layer.pages(cache), layer.compile("cpu"), Plans()
    assert pages.apart == 4
    q = torch.zeros(2, 4, DIM, dtype=torch.float16)
    for page in (PAGES, 1 << 28, 1 << 29, 1 << 30, -1, -(1 << 30)):
        step = plans.step([0, 1, 2], [16, 20], [[0, page], [1, page]])
        message = rf"^block_table\[1\]\[1\]: expected a page, 0 to {PAGES - 1}, got {page}"
        with pytest.raises(attn.PlanError, match=message):
            step.run(kernel, q, pages)
    unread = plans.step([0, 1, 2], [16, 16], [[0, 1 << 30], [1, -5]]).run(kernel, q, pages)
    assert torch.isfinite(unread).all()


def test_pages_of_another_kind_are_refused():
    packed, plain = layer_of("int8"), layer_of(None)
    pages, q = packed.pages(cache_of(packed)), torch.zeros(1, 4, DIM, dtype=torch.float16)
    step = Plans().step([0, 1], [16], [[0]])
    with pytest.raises(attn.TensorError, match=r"pages: expected what Layer.pages returns"):
        step.run(packed.compile("cpu"), q, tuple(pages))
    with pytest.raises(
        attn.TensorError, match=r"pages: expected tensors of pages that are not packed.*got Tensor"
    ):
        step.run(plain.compile("cpu"), q, pages)
