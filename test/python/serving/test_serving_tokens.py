# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""New tokens in an engine's pages: prepared, quantized and written in one launch, against float64 and attn.quantize."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")

import attn  # noqa: E402
import numpy  # noqa: E402
from attn.serving import Layer, Tokens, split_lines, write_tokens  # noqa: E402
from attn.serving.formats import PACKED  # noqa: E402
from prepared_rows import angles, close, prepared, quantized_alike  # noqa: E402

PAGES, PAGE, HEADS, DIM = 6, 16, 3, 64
SLOTS = [95, 0, -1, 33, 15, 16]
POSITIONS = [0, 5, 7, 99, 3, 42]


def rope_of(rotary_dim=DIM, positions=100):
    return attn.Rope(*(torch.tensor(x, dtype=torch.float32) for x in angles(positions, rotary_dim)))


NORM = attn.Norm(k=torch.linspace(0.5, 1.5, DIM), q=torch.linspace(1.5, 0.5, DIM))


def numbers(tensor):
    return tensor.to(torch.float64).numpy()


def wanted(rows, weight, rope):
    tables = dict(cos=numbers(rope.cos), sin=numbers(rope.sin), positions=POSITIONS)
    return prepared(numbers(rows), weight=numbers(weight), epsilon=NORM.epsilon, **tables)


def draw(heads, dtype=torch.float16, seed=0):
    return torch.randn(len(SLOTS), heads, DIM, generator=torch.Generator().manual_seed(seed)).to(dtype)


def pools(layout, dtype=torch.float16):
    """Return views of keys and of values [pages, page, heads, dim], and the memory around them."""
    if layout == "lines":  # A key, then its value: [pages, heads, page, 2 * dim].
        memory = torch.zeros(PAGES, HEADS, PAGE, 2 * DIM, dtype=dtype)
        return *split_lines(memory, DIM), memory
    if layout == "layers":  # Pages of three layers lie beside each other.
        memory = torch.zeros(2, PAGES, 3, PAGE, HEADS, DIM, dtype=dtype)
        return memory[0, :, 1], memory[1, :, 1], memory
    memory = torch.zeros(2, PAGES, PAGE, HEADS, DIM, dtype=dtype)
    return memory[0], memory[1], memory


def check_rows(pool, rows, compare):
    for row, slot in enumerate(SLOTS):
        if slot >= 0:
            assert compare(numbers(pool[slot // PAGE, slot % PAGE]), rows[row])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("layout", ["lines", "layers", "dense"])
def test_pools_of_16_bits(layout, dtype):
    k_pages, v_pages, memory = pools(layout, dtype)
    k, v, q, rope = draw(HEADS, dtype, 1), draw(HEADS, dtype, 2), draw(2 * HEADS, dtype, 3), rope_of(32)
    tokens = Tokens(torch.tensor(SLOTS), torch.tensor(POSITIONS))
    out = write_tokens(k_pages, v_pages, k, v, tokens, q=q, rope=rope, norm=NORM)
    name = str(dtype).removeprefix("torch.")
    assert close(numbers(out), wanted(q, NORM.q, rope), name)
    check_rows(k_pages, wanted(k, NORM.k, rope), lambda x, y: close(x, y, name))
    check_rows(v_pages, numbers(v), numpy.array_equal)
    kept = sum(slot >= 0 for slot in SLOTS)
    assert int((memory != 0).sum()) <= 2 * kept * HEADS * DIM  # Other tokens are untouched.


@pytest.mark.parametrize("scale", [0.5, torch.tensor([0.5])], ids=["number", "tensor"])
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_pools_of_8_bits(dtype, scale):
    k_pages, v_pages, _ = pools("lines", dtype)
    k, v, rope = draw(HEADS, seed=1), draw(HEADS, seed=2), rope_of()
    tokens = Tokens(torch.tensor(SLOTS, dtype=torch.int32), torch.tensor(POSITIONS, dtype=torch.int32))
    given = dict(k_scale=scale, v_scale=scale, rope=rope, norm=NORM)
    assert write_tokens(k_pages, v_pages, k, v, tokens, **given) is None

    def rounded(rows):
        return (torch.tensor(rows, dtype=torch.float32) / 0.5).to(dtype).double().numpy()

    check_rows(k_pages, rounded(wanted(k, NORM.k, rope)), quantized_alike)
    check_rows(v_pages, rounded(numbers(v)), numpy.array_equal)


@pytest.mark.parametrize("format", PACKED)
def test_packed_pages(format):
    layer = Layer(
        q_heads=2 * HEADS, kv_heads=HEADS, head_dim=DIM, dtype="float16", page_size=PAGE, format=format
    )
    cache = torch.full((PAGES, 2, HEADS, PAGE, layer.token_bytes), 77, dtype=torch.uint8)
    pages = layer.pages(cache[:, 1])
    k, v, q, rope = draw(HEADS, seed=1), draw(HEADS, seed=2), draw(2 * HEADS, seed=3), rope_of()
    tokens = Tokens(torch.tensor(SLOTS), torch.tensor(POSITIONS))
    out = pages.write(k, v, tokens, q=q, rope=rope, norm=NORM)
    assert close(numbers(out), wanted(q, NORM.q, rope), "float16")
    assert (cache[:, 0] == 77).all()
    for row, slot in enumerate(SLOTS):
        for head in range(HEADS if slot >= 0 else 0):
            block = slot // PAGE * pages.apart + head
            for part, rows, named in zip(
                "kv", (wanted(k, NORM.k, rope), numbers(v)), PACKED[format], strict=True
            ):
                found = [
                    tensor[block, slot % PAGE].view(torch.uint8).numpy()
                    for name, tensor in pages.named.items()
                    if name[0] == part and "tensor_scale" not in name
                ]
                codes = attn.quantize(rows[row, head][None].astype(numpy.float32), named)
                read = attn.dequantize(
                    *(x[None].view(y.dtype) for x, y in zip(found, codes, strict=True)), named
                )
                assert quantized_alike(read[0], attn.dequantize(*codes, named)[0], 0.98 if part == "k" else 1)


def test_refusals():
    k_pages, v_pages, _ = pools("lines")
    k, v = draw(HEADS), draw(HEADS)
    slots, positions = torch.tensor(SLOTS), torch.tensor(POSITIONS)
    with pytest.raises(
        attn.TensorError, match=r"slots: expected attn.serving.Tokens\(slots, positions\) beside a rope"
    ):
        write_tokens(k_pages, v_pages, k, v, slots, rope=rope_of())
    with pytest.raises(attn.TensorError, match=r"rope.cos: expected tables of at least 100 positions"):
        write_tokens(k_pages, v_pages, k, v, Tokens(slots, positions), rope=rope_of(positions=99))
    with pytest.raises(attn.TensorError, match=r"slots: expected below 96 \(6 pages of 16 tokens\), got 96"):
        write_tokens(k_pages, v_pages, k[:1], v[:1], Tokens(torch.tensor([96])), norm=NORM)
    with pytest.raises(attn.TensorError, match=r"slots: expected int32 or int64 \[tokens\]"):
        Tokens(slots.float())
    with pytest.raises(attn.TensorError, match=r"slots: expected int32 or int64 \[tokens\], got list"):
        write_tokens(k_pages, v_pages, k, v, slots.tolist())
    with pytest.raises(
        attn.TensorError, match=r"positions: expected int32 or int64 \[6\], got Tensor int64 \[3\]"
    ):
        Tokens(slots, positions[:3])
    assert not k_pages.any()


def test_no_tokens():
    k_pages, v_pages, _ = pools("lines")
    none = draw(HEADS)[:0]
    out = write_tokens(
        k_pages, v_pages, none, none, Tokens(torch.tensor([], dtype=torch.int64)), q=draw(6)[:0], norm=NORM
    )
    assert out.shape == (0, 6, DIM)
