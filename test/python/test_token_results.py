# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Results by token, in memory that holds NaN before: every number is written, for any layout and for tokens that no row
sees."""

import attn
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

HEADS, KV_HEADS, DIM = 4, 2, 64
NO_PAGE = 2**31 - 1


@pytest.fixture(autouse=True)
def no_memory_is_zero(monkeypatch):
    plain = torch.empty

    def empty(*arguments, **named):
        made = plain(*arguments, **named)
        return made.fill_(float("nan")) if made.is_floating_point() else made

    monkeypatch.setattr(torch, "empty", empty)


def draw(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))).bfloat16()


def described(store, **named):
    return attn.Spec(
        q_heads=HEADS,
        kv_heads=KV_HEADS,
        head_dim=DIM,
        dtype="bfloat16",
        kv=[store],
        see=attn.causal(),
        return_lse=True,
        **named,
    )


def packed(rows, lengths, starts, tokens):
    """Return rows and lengths of each sequence, the starts of its tokens, and all tokens."""
    q, k, v = draw(sum(rows), HEADS, DIM), draw(tokens, KV_HEADS, DIM), draw(tokens, KV_HEADS, DIM)
    tables = {
        "q_start": torch.tensor([0, *rows]).cumsum(0).int(),
        "kv.start": torch.tensor(starts).int(),
        "kv.lengths": torch.tensor(lengths).int(),
    }
    held = torch.zeros(tokens, dtype=torch.bool)
    for begin, length in zip(starts[:-1], lengths, strict=True):
        held[begin : begin + length] = True
    return q, k, v, tables, held


PACKED = {
    "a tail": ([5, 7], [9, 14], [0, 9, 23], 40),
    "gaps and a tail": ([5, 7], [6, 11], [0, 9, 23], 300),
    "all of a tail of tiles": ([1], [3], [0, 3], 700),
    "a sequence without rows": ([0, 4], [9, 14], [0, 9, 23], 40),
    "no rows": ([0, 0], [9, 14], [0, 9, 23], 40),
    "no sequences": ([], [], [0], 40),
    "no tokens": ([3], [0], [0, 0], 40),
}


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("ordered", [False, True])
def test_gradients_of_packed_tokens(name, ordered, monkeypatch):
    q, k, v, tables, held = packed(*PACKED[name])
    data = [tensor.requires_grad_() for tensor in (q, k, v)]
    kernel = attn.compile(described(attn.Packed()), device="host")
    plan = kernel.plan({"q": q, "kv.k": k, "kv.v": v} | tables)
    torch.use_deterministic_algorithms(ordered, warn_only=True)
    try:
        out, lse = kernel.run(q, (k, v), plan, return_lse=True)
        dq, dk, dv = torch.autograd.grad(out.float().sum() + lse.clamp(min=-9).sum(), data)
    finally:
        torch.use_deterministic_algorithms(False)
    assert dq.isfinite().all()
    for found in (dk, dv):
        assert found.isfinite().all() and (found[~held] == 0).all()
    if len(q) and held.any():
        assert (dv[held] != 0).any()


@pytest.mark.parametrize("name", PACKED)
def test_significance_of_packed_tokens(name):
    q, k, v, tables, held = packed(*PACKED[name])
    kernel = attn.compile(described(attn.Packed(), significance="max"), device="host")
    plan = kernel.plan({"q": q, "kv.k": k, "kv.v": v} | tables)
    out, worth = kernel.run(q, (k, v), plan)
    assert out.isfinite().all() and worth.isfinite().all() and (worth[~held] == 0).all()
    mine = torch.full_like(worth, float("nan"))
    kernel.run(q, (k, v), plan, significance=mine)
    assert torch.equal(mine, worth)


@pytest.mark.parametrize("rows", [0, 1, 5, 40])
@pytest.mark.parametrize("fixed", [False, True])
def test_significance_of_pages(rows, fixed):
    """Lists end before their pages, tables have spare columns, and entries after a list belong to no page."""
    lengths = torch.tensor([41, 64, 0]).int()
    table = torch.tensor([[3, 0, 5, NO_PAGE], [1, 2, 4, 6], [NO_PAGE] * 4]).int()
    pages, q = draw(2, 7, 16, KV_HEADS, DIM), draw(2 * rows, HEADS, DIM)
    kernel = attn.compile(described(attn.Paged(page_size=16), significance="sum"), device="host")
    batch = {"q": q, "kv.k_pages": pages[0], "kv.v_pages": pages[1], "kv.block_table": table}
    batch |= {"q_start": torch.tensor([0, rows, 2 * rows, 2 * rows]).int()}
    plan = kernel.plan(batch | {"kv.lengths": lengths})
    if fixed:
        plan.fix()
    for held in (lengths, torch.tensor([40, 49, 0]).int()):
        plan.update(batch | {"kv.lengths": held})
        out, worth = kernel.run(q, (pages[0], pages[1]), plan)
        assert out.isfinite().all() and worth.isfinite().all()
        for list_, length in zip(worth.flatten(2), held.tolist(), strict=True):
            assert (list_[:, length:] == 0).all()
            assert rows == 0 or length == 0 or (list_[:, :length] > 0).any()


def test_room_for_more_pages_is_in_the_table():
    """The table has columns for a plan's whole limit, since significance is written for all of them."""
    pages, q = draw(2, 7, 16, KV_HEADS, DIM), draw(1, HEADS, DIM)
    kernel = attn.compile(described(attn.Paged(page_size=16), significance="sum"), device="host")
    batch = {"q": q, "kv.k_pages": pages[0], "kv.v_pages": pages[1], "kv.lengths": [20]}
    batch["kv.block_table"] = torch.tensor([[3, 0]]).int()
    with pytest.raises(
        attn.PlanError, match="'kv.block_table': expected 5 columns, as many as launches have"
    ):
        kernel.plan(batch, limits={"pages": 5})
    batch["kv.block_table"] = torch.tensor([[3, 0, NO_PAGE, NO_PAGE, NO_PAGE]]).int()
    _, worth = kernel.run(q, (pages[0], pages[1]), kernel.plan(batch, limits={"pages": 5}))
    assert worth.shape == (1, KV_HEADS, 5, 16) and (worth.flatten(2)[..., 20:] == 0).all()


@pytest.mark.parametrize("kind", ["ragged", "unified"])
@pytest.mark.parametrize("rows", [1, 9])
def test_significance_of_lists_of_heads(kind, rows):
    """Significance, zeros included, matches the reference of `attn.check`."""
    store = attn.Unified(page_size=16) if kind == "unified" else attn.Paged(page_size=16, ragged=True)
    found = attn.check(
        described(store, significance="mean"), batch=3, q_len=rows, kv_len=[40, 17, 64, 9, 33, 48]
    )
    assert found.significance_err <= 1e-2


@pytest.mark.parametrize("lengths", [[40, 13], [0, 0], [40, 0]])
@pytest.mark.parametrize("rows", [0, 1, 6])
def test_tokens_behind_dense_lengths(lengths, rows):
    q = draw(2, rows, HEADS, DIM).requires_grad_()
    k, v = (draw(2, 40, KV_HEADS, DIM).requires_grad_() for _ in range(2))
    out = attn.attend(q, k, v, causal=True, kv_lengths=lengths)
    gradients = torch.autograd.grad(out.float().sum(), (q, k, v))
    with torch.no_grad():
        *_, worth = attn.attend(q, k, v, causal=True, kv_lengths=lengths, significance="max")
    for found in (*gradients, worth):
        assert found.isfinite().all()
    for b, length in enumerate(lengths):
        for found in (*gradients[1:], worth):
            assert (found[b, length:] == 0).all()
