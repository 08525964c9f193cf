# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""New latents in an engine's pages: normalized, rotated and written in one launch, against float64."""

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")

import attn  # noqa: E402
from attn.serving import Tokens, write_latents  # noqa: E402
from prepared_rows import angles, close, prepared  # noqa: E402

PAGES, PAGE, DIM, VALUE = 6, 16, 48, 32
SLOTS = [95, 0, -1, 33, 15, 16]
POSITIONS = [0, 5, 7, 99, 3, 42]


def numbers(tensor):
    return tensor.to(torch.float64).numpy()


def rope_of(first=VALUE):
    tables = (torch.tensor(x, dtype=torch.float32) for x in angles(100, DIM - VALUE))
    return attn.Rope(*tables, interleaved=True, first=first)


def draw(*sizes, dtype=torch.bfloat16, seed=0):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed)).to(dtype)


def check_rows(pool, rows, dtype):
    for row, slot in enumerate(SLOTS):
        if slot >= 0:
            assert close(numbers(pool[slot // PAGE, slot % PAGE]), rows[row], dtype)
    kept = torch.ones(PAGES * PAGE, dtype=torch.bool)
    kept[[slot for slot in SLOTS if slot >= 0]] = False
    assert not pool.reshape(-1, DIM)[kept].any()


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_pools(dtype, layers):
    """Pages of several layers may lie beside each other. Rotated queries go to the end of absorbed ones."""
    kind = getattr(torch, dtype)
    memory = torch.zeros(PAGES, layers, PAGE, DIM, dtype=kind)
    pool = memory[:, layers - 1]
    projected = draw(7, DIM + 16, dtype=kind)  # Latents are a slice of a fused projection.
    latents = projected[:, 16:]
    queries, absorbed = draw(6, 5, 24, dtype=kind, seed=1), torch.zeros(6, 5, DIM, dtype=kind)
    rope, norm = rope_of(), attn.Norm(k=torch.linspace(0.5, 1.5, VALUE).to(kind))
    tokens = Tokens(torch.tensor(SLOTS), torch.tensor(POSITIONS))
    out = write_latents(
        pool, latents, tokens, value_dim=VALUE, q=queries[..., 8:], out=absorbed[..., VALUE:], rope=rope, norm=norm
    )  # fmt: skip
    tables = dict(cos=numbers(rope.cos), sin=numbers(rope.sin), positions=POSITIONS, interleaved=True)
    expected = prepared(
        numbers(latents[:6, None]), weight=numbers(norm.k), epsilon=norm.epsilon, start=VALUE, **tables
    )
    check_rows(pool, expected[:, 0], dtype)
    assert close(numbers(out), prepared(numbers(queries[..., 8:]), **tables), dtype)
    assert out.data_ptr() == absorbed[..., VALUE:].data_ptr() and not absorbed[..., :VALUE].any()
    assert layers == 1 or not memory[:, 0].any()


def test_lines_alone():
    pool, latents = torch.zeros(PAGES, PAGE, DIM, dtype=torch.float16), draw(6, DIM, dtype=torch.float16)
    assert write_latents(pool, latents, torch.tensor(SLOTS), value_dim=VALUE) is None
    check_rows(pool, numbers(latents), "float16")
    assert write_latents(pool, latents, torch.tensor([], dtype=torch.int32), value_dim=VALUE) is None


@pytest.mark.parametrize("prepares", [False, True])
@pytest.mark.parametrize("dims", [(DIM, VALUE), (576, 512)])
def test_pools_in_8_bits(dims, prepares):
    """An engine's fp8 pool with one scale; the kernel that reads it takes the pool as it is."""
    dim, value = dims
    pool = torch.zeros(PAGES, PAGE, dim, dtype=torch.uint8).view(torch.float8_e4m3fn)
    latents, scale = draw(6, dim), torch.tensor([0.03])
    options, slots, rows = {}, torch.tensor(SLOTS), numbers(latents)
    if prepares:
        tables = (torch.tensor(x, dtype=torch.float32) for x in angles(100, dim - value))
        rope, norm = (
            attn.Rope(*tables, interleaved=True, first=value),
            attn.Norm(k=torch.linspace(0.5, 1.5, value)),
        )
        options, slots = dict(rope=rope, norm=norm), Tokens(slots, torch.tensor(POSITIONS))
        found = dict(cos=numbers(rope.cos), sin=numbers(rope.sin), positions=POSITIONS, interleaved=True)
        weighed = dict(weight=numbers(norm.k), epsilon=norm.epsilon)
        rows = prepared(rows[:, None], start=value, **weighed, **found)[:, 0]
    assert write_latents(pool, latents, slots, value_dim=value, scale=scale, **options) is None
    for row, slot in enumerate(SLOTS):
        if slot >= 0:
            stored = numbers(pool.float()[slot // PAGE, slot % PAGE]) * 0.03
            assert (abs(stored - rows[row]) <= 2**-4 * abs(rows[row]) * 1.02 + 1e-4).all()
    with pytest.raises(
        attn.TensorError, match=r"scale: expected a number or float32 \[1\] beside pages of float8_e4m3fn"
    ):
        write_latents(pool, latents, slots, value_dim=value, **options)
    for wrong in (0.0, -1.0, float("nan"), "a"):
        with pytest.raises(attn.TensorError, match="scale: expected a number above 0, or float32"):
            write_latents(pool, latents, slots, value_dim=value, scale=wrong, **options)
    store = attn.Paged(page_size=PAGE, key="fp8_e4m3", key_scales="tensor", value=attn.first(value))
    given = dict(q_heads=4, kv_heads=1, head_dim=dim, dtype="bfloat16", see=attn.all_tokens())
    kernel = attn.compile(attn.Spec(**given, kv=[store]), device="host")
    batch = {"q": ("bfloat16", (1, 4, dim)), "q_start": [0, 1], "kv.lengths": [PAGE], "kv.block_table": [[2]]}
    batch |= {"kv.k_pages": ("float8_e4m3fn", (PAGES, PAGE, 1, dim)), "kv.k_scales": ("float32", (1,))}
    out = kernel.run(draw(1, 4, dim, seed=4), (pool.unsqueeze(2), scale), kernel.plan(batch))
    weights = out.float() / 0.03
    assert out.shape == (1, 4, value) and weights.abs().max() > 0


@pytest.mark.parametrize("prepares", [False, True])
def test_pools_of_engines_lines(prepares):
    """vLLM's fp8_ds_mla: 512 e4m3 with a scale for each 128, and 64 bfloat16, in lines of 656 bytes."""
    dim, value = 576, 512
    memory = torch.full((PAGES, 2, PAGE, 656), 7, dtype=torch.uint8)
    pool = memory[:, 1]  # of the second layer
    latents = draw(6, dim)
    latents[:, 128:256] *= 100
    options, slots, rows = {}, torch.tensor(SLOTS), numbers(latents)
    if prepares:
        tables = (torch.tensor(x, dtype=torch.float32) for x in angles(100, dim - value))
        rope, norm = (
            attn.Rope(*tables, interleaved=True, first=value),
            attn.Norm(k=torch.linspace(0.5, 1.5, value)),
        )
        options, slots = dict(rope=rope, norm=norm), Tokens(slots, torch.tensor(POSITIONS))
        found = dict(cos=numbers(rope.cos), sin=numbers(rope.sin), positions=POSITIONS, interleaved=True)
        weighed = dict(weight=numbers(norm.k), epsilon=norm.epsilon)
        rows = prepared(rows[:, None], start=value, **weighed, **found)[:, 0]
    assert write_latents(pool, latents, slots, value_dim=value, **options) is None
    kept = torch.ones(PAGES * PAGE, dtype=torch.bool)
    kept[[slot for slot in SLOTS if slot >= 0]] = False
    assert (memory[:, 0] == 7).all() and (pool.reshape(-1, 656)[kept] == 7).all()
    for row, slot in enumerate(SLOTS):
        if slot >= 0:
            line = pool[slot // PAGE, slot % PAGE]
            scales = line[512:528].view(torch.float32)
            codes = line[:512].view(torch.float8_e4m3fn).float().reshape(4, 128)
            largest = abs(rows[row][:value]).reshape(4, 128).max(axis=1)
            assert numpy.allclose(scales.numpy(), largest / 448, rtol=1e-5)
            stored = numbers((codes * scales[:, None]).reshape(-1))
            assert (
                abs(stored - rows[row][:value])
                <= 2**-4 * abs(rows[row][:value]) + largest.repeat(128) * 2**-17
            ).all()
            rest = numbers(line[528:].view(torch.bfloat16))
            assert (abs(rest - rows[row][value:]) <= 2**-8 * abs(rows[row][value:]) + 1e-6).all()
    store = attn.Paged(page_size=PAGE, key="fp8_ds_mla", value=attn.first(value))
    given = dict(q_heads=4, kv_heads=1, head_dim=dim, dtype="bfloat16", see=attn.all_tokens())
    kernel = attn.compile(attn.Spec(**given, kv=[store]), device="host")
    batch = {"q": ("bfloat16", (1, 4, dim)), "q_start": [0, 1], "kv.lengths": [1], "kv.block_table": [[2]]}
    batch |= {"kv.k_pages": ("uint8", (PAGES, PAGE, 1, 656))}
    write_latents(pool, latents, torch.tensor([2 * PAGE]), value_dim=value)
    line = pool[2, 0]
    out = kernel.run(draw(1, 4, dim, seed=4), (pool.unsqueeze(2),), kernel.plan(batch))
    codes = line[:512].view(torch.float8_e4m3fn).float().reshape(4, 128)
    value_row = (codes * line[512:528].view(torch.float32)[:, None]).reshape(-1)
    assert torch.allclose(out[0].float(), value_row.expand(4, -1), rtol=2**-7, atol=1e-6)
    for change, message in (
        (
            dict(scale=0.5),
            "scale: expected None beside pages of uint8, whose lines hold their scales, got 0.5",
        ),
        (dict(value_dim=256), "value_dim: expected 512 beside pages of uint8, got 256; nearest legal: 512"),
        (dict(pages=pool[:, :, :640]), r"pages: expected \[pages, page_size, 656\] of uint8, got"),
        (dict(latents=latents.float()), "latents: expected float16 or bfloat16, got"),
    ):
        with pytest.raises(attn.TensorError, match=message):
            write_latents(
                **(dict(pages=pool, latents=latents, slots=torch.tensor(SLOTS), value_dim=value) | change)
            )


def test_refusals():
    pool, latents = torch.zeros(PAGES, PAGE, DIM, dtype=torch.float16), draw(6, DIM, dtype=torch.float16)
    slots = torch.tensor(SLOTS)
    for change, message in (
        (dict(pages=pool[:, :, None]), r"pages: expected \[pages, page_size, dim\], got"),
        (dict(latents=latents[:3]), r"latents: expected \[6 or more, 48\], got"),
        (
            dict(latents=latents.bfloat16()),
            "pages: expected float16 or bfloat16, the dtype of latents, float8_e4m3fn, or uint8",
        ),
        (dict(scale=0.5), "scale: expected None beside pages of 16 bits, got 0.5"),
        (dict(value_dim=56), "value_dim: expected a multiple of 8 from 8 to 48, got 56; nearest legal: 48"),
        (
            dict(slots=slots + 1),
            r"slots: expected below 96 \(6 pages of 16 tokens\), got 96; nearest legal: 95",
        ),
        (dict(rope=rope_of()), r"slots: expected attn.serving.Tokens\(slots, positions\) beside a rope"),
    ):
        given = dict(pages=pool, latents=latents, slots=slots, value_dim=VALUE) | change
        with pytest.raises(attn.TensorError, match=message):
            write_latents(**given)
    tokens = Tokens(slots, torch.tensor(POSITIONS))
    message = "rope.first: expected 16 rotated features within heads of 48, from 32 on at the latest, got 40; nearest legal: 32"
    with pytest.raises(attn.SpecError, match=message):
        write_latents(pool, latents, tokens, value_dim=VALUE, rope=rope_of(first=40))
    assert not pool.any()
