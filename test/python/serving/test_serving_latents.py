# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""New latents in an engine's pages: normalized, rotated and written in one launch, against float64."""

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


def test_refusals():
    pool, latents = torch.zeros(PAGES, PAGE, DIM, dtype=torch.float16), draw(6, DIM, dtype=torch.float16)
    slots = torch.tensor(SLOTS)
    for change, message in (
        (dict(pages=pool[:, :, None]), r"pages: expected \[pages, page_size, dim\], got"),
        (dict(latents=latents[:3]), r"latents: expected \[6 or more, 48\], got"),
        (dict(latents=latents.bfloat16()), "pages: expected float16 or bfloat16, the dtype of latents"),
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
