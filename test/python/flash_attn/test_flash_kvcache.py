# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""flash_attn_with_kvcache and packed rows over pages, beside float64: caches of sequences and of pages, appended keys,
rotary embeddings, tables of the host and of the device."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")

import attn  # noqa: E402
from attn.flash_attn import flash_attn_varlen_func, flash_attn_with_kvcache, kvcache, plans  # noqa: E402
from flash_oracle import attention, close, rotated, tensor  # noqa: E402


@pytest.fixture(params=["host", "device"])
def place(request, monkeypatch):
    """Plan on the host, or as for tables of a GPU, which are tensors of the CPU here."""
    if request.param == "device":
        monkeypatch.setattr(kvcache, "_is_on_gpu", lambda table: isinstance(table, torch.Tensor))
    return request.param


HEADS, KV_HEADS, DIM = 4, 2, 64


class Cache:
    """A cache, and the keys and values of each sequence in it."""

    def __init__(self, kind, batch=2, room=48, dtype=torch.bfloat16, value_dim=DIM):
        self.kind, self.batch, self.room = kind, batch, room
        shape = (batch + 1, room)
        if kind.startswith("pages of"):
            size = int(kind.removeprefix("pages of "))
            self.per = -(-room // size)
            shape = (batch * self.per + 2, size)
            order = torch.randperm(shape[0], generator=torch.Generator().manual_seed(5))
            self.table = order[: batch * self.per].view(batch, self.per).to(torch.int32)
        self.k = tensor(*shape, KV_HEADS, DIM, dtype=dtype, seed=11)
        self.v = tensor(*shape, KV_HEADS, value_dim, dtype=dtype, seed=12)
        if kind == "heads first":
            self.k, self.v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (self.k, self.v))
        if kind == "a part":
            self.k, self.v = (torch.cat((x, x), 1)[:, :room] for x in (self.k, self.v))
        self.index = torch.tensor([2, 0], dtype=torch.int32)

    @property
    def options(self):
        if self.kind.startswith("pages of"):
            return {"block_table": self.table}
        return {"cache_batch_idx": self.index} if self.kind == "by index" else {}

    def tokens(self, i):
        """Return the keys and values of all tokens that sequence i has room for."""
        if self.kind.startswith("pages of"):
            return tuple(x[self.table[i].long()].flatten(0, 1) for x in (self.k, self.v))
        entry = self.index[i] if self.kind == "by index" else i
        return self.k[entry], self.v[entry]


KINDS = ["sequences", "by index", "heads first", "a part", "pages of 16", "pages of 24", "pages of 512"]
ROTARY = [None, "interleaved", "halves"]
SLOPES = torch.tensor([[0.5, 0.25, 0.125, 0.0], [0.0625, 0.4, 0.3, 0.2]])


def run(cache, q, lengths, k=None, v=None, rotary=None, leftpad=None, angles=24, **options):
    """Call the function, and compare results and cache with float64's."""
    before = [x.clone() for x in (cache.k, cache.v)]
    tokens = [tuple(x.clone() for x in cache.tokens(i)) for i in range(len(q))]
    given, new = {}, 0 if k is None else k.shape[1]
    if rotary:
        count = max(cache.room + 8, cache.k.shape[1])
        table = torch.rand(count, angles // 2, generator=torch.Generator().manual_seed(3)) * 6
        cos, sin = table.cos().to(q.dtype), table.sin().to(q.dtype)
        given = {"rotary_cos": cos, "rotary_sin": sin, "rotary_interleaved": rotary == "interleaved"}
    if leftpad is not None:
        given["cache_leftpad"] = torch.tensor(leftpad, dtype=torch.int32)
    seqlens = (
        lengths if isinstance(lengths, int) or lengths is None else torch.tensor(lengths, dtype=torch.int32)
    )
    out, lse = flash_attn_with_kvcache(
        q,
        cache.k,
        cache.v,
        k,
        v,
        cache_seqlens=seqlens,
        return_softmax_lse=True,
        **given,
        **cache.options,
        **options,
    )
    assert lse.is_contiguous() and lse.dtype == torch.float32
    names = {"window_size": "window", "softmax_scale": "scale"}
    oracle = {names.get(name, name): value for name, value in options.items() if name != "alibi_slopes"}
    slopes, written = options.get("alibi_slopes"), 0
    for i in range(len(q)):
        first = (leftpad or [0] * len(q))[i]
        length = cache.room if lengths is None else lengths if isinstance(lengths, int) else lengths[i]
        keys, values = (x.double() for x in tokens[i])
        rows = q[i].double()
        if k is not None:
            positions = length + torch.arange(new)
            added = k[i] if not rotary else rotated(k[i], cos, sin, positions, rotary == "interleaved")
            keys[length : length + new], values[length : length + new] = added.double(), v[i].double()
            if rotary:
                local = options.get("causal") or options.get("window_size", (-1, -1)) != (-1, -1)
                at = length + (
                    torch.arange(q.shape[1]) if local else torch.zeros(q.shape[1], dtype=torch.long)
                )
                rows = rotated(q[i], cos, sin, at, rotary == "interleaved")
            close(cache.tokens(i)[0][: length + new].double(), keys[: length + new])
            assert torch.equal(cache.tokens(i)[1][length : length + new], v[i])
            written += new
        seen = slice(first, length + new)
        slope = slopes if slopes is None or slopes.ndim == 1 else slopes[i]
        wanted = attention(rows, keys[seen], values[seen], slopes=slope, **oracle)
        close(out[i], wanted[0], q.dtype)
        close(lse[i], wanted[1], q.dtype)
    for was, now in zip(before, (cache.k, cache.v), strict=True):
        assert (was != now).flatten(2).any(-1).sum() <= written
    again = flash_attn_with_kvcache(
        q, cache.k, cache.v, k, v, cache_seqlens=seqlens, **given, **cache.options, **options
    )
    assert torch.equal(again, out)


def rows(count=3, dtype=torch.bfloat16):
    return tensor(2, count, HEADS, DIM, dtype=dtype, seed=21)


def new(count=3, dtype=torch.bfloat16, value_dim=DIM):
    k = tensor(2, count, KV_HEADS, DIM, dtype=dtype, seed=22)
    return k, tensor(2, count, KV_HEADS, value_dim, dtype=dtype, seed=23)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rotary", ROTARY)
def test_appended_keys(kind, rotary, place):
    run(Cache(kind), rows(), [33, 0], *new(), rotary=rotary, causal=True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cache_is_read_alone(kind, place):
    before = Cache(kind)
    cache = Cache(kind)
    run(cache, rows(1), [48, 7], causal=True)
    run(cache, rows(1), 19, causal=True)
    assert torch.equal(cache.k, before.k) and torch.equal(cache.v, before.v)


OPTIONS = {
    "everything": {},
    "window": {"causal": True, "window_size": (6, 0)},
    "both sides": {"window_size": (6, 1)},
    "cap": {"causal": True, "softcap": 2.0},
    "scale": {"causal": True, "softmax_scale": 0.3},
    "alibi": {"causal": True, "alibi_slopes": SLOPES[0]},
    "alibi of sequences": {"alibi_slopes": SLOPES, "softcap": 2.0},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("rotary", [None, "interleaved"])
def test_every_option(name, rotary, place):
    run(Cache("sequences"), rows(), [33, 2], *new(), rotary=rotary, **OPTIONS[name])


def test_rows_that_see_nothing(place):
    """A sequence without tokens, and one with fewer tokens than rows."""
    for options in ({"causal": True}, {}):
        run(Cache("pages of 16"), rows(), [0, 2], **options)


@pytest.mark.parametrize("leftpad", [[16, 32], [3, 0], [33, 5]])
@pytest.mark.parametrize("rotary", [None, "halves"])
def test_padding_on_the_left(leftpad, rotary, place):
    cache = Cache("by index")
    run(cache, rows(), [33, 35], *new(), leftpad=leftpad, rotary=rotary, causal=True)
    run(cache, rows(1), [36, 38], leftpad=leftpad, window_size=(5, -1))


def test_float16_other_dims_and_counts(place):
    cache = Cache("pages of 16", dtype=torch.float16, value_dim=32)
    run(cache, rows(2, torch.float16), [33, 0], *new(5, torch.float16, 32), causal=True, rotary="halves")
    cache = Cache("sequences", dtype=torch.float16)
    run(cache, rows(5, torch.float16), [0, 0], *new(5, torch.float16), causal=True)
    run(cache, rows(1, torch.float16), None, causal=True)


def test_steps_share_plans():
    """A cache grows, layers of a step have equal tables, and later steps update the plan."""
    layers = [Cache("sequences") for _ in range(2)]
    plans._local.__dict__.clear()
    for length in range(20, 26):
        for cache in layers:
            run(cache, rows(1), [length, length - 9], *new(1), causal=True)
    assert len(plans._local.plans) == 1


def test_odd_queries(place):
    cache = Cache("pages of 16")
    for odd in (
        torch.zeros(2, 3, HEADS, DIM + 3, dtype=torch.bfloat16)[..., :DIM],
        tensor(3, 2, HEADS, DIM).transpose(0, 1),
        tensor(2, 1, HEADS, DIM).expand(2, 3, HEADS, DIM),
    ):
        run(cache, odd, [33, 2], causal=True)


def test_captured_tables_are_read_again(monkeypatch):
    """A planner is kept: other lengths on the device need no other."""
    monkeypatch.setattr(kvcache, "_is_on_gpu", lambda table: isinstance(table, torch.Tensor))
    plans._local.__dict__.clear()
    for lengths in ([33, 2], [4, 40], [0, 1]):
        run(Cache("sequences"), rows(), lengths, causal=True)
    assert len(plans._local.plans) == 1


def test_wrong_lengths_on_the_device_give_nan(monkeypatch):
    monkeypatch.setattr(kvcache, "_is_on_gpu", lambda table: isinstance(table, torch.Tensor))
    cache = Cache("sequences")
    lengths = torch.tensor([3, 4000], dtype=torch.int32)
    out, lse = flash_attn_with_kvcache(
        rows(), cache.k, cache.v, cache_seqlens=lengths, causal=True, return_softmax_lse=True
    )
    assert out.isnan().all() and lse.isnan().all()


# --- Packed rows over pages ----------------------------------------------------------------------------------


@pytest.mark.parametrize("slopes", [None, SLOPES[0], SLOPES])
@pytest.mark.parametrize("size", [16, 24])
def test_packed_rows(size, slopes):
    cache = Cache(f"pages of {size}")
    q = tensor(14, HEADS, DIM)
    starts, starts_k = torch.tensor([0, 4, 11]), torch.tensor([0, 40, 45])
    for _ in range(2):
        out, lse, _ = flash_attn_varlen_func(
            *(q, cache.k, cache.v, starts, starts_k, 7, 40),
            causal=True,
            alibi_slopes=slopes,
            block_table=cache.table,
            return_attn_probs=True,
        )
        for i in range(2):
            part = slice(int(starts[i]), int(starts[i + 1]))
            slope = slopes if slopes is None or slopes.ndim == 1 else slopes[i]
            keys = [x[: int(starts_k[i + 1] - starts_k[i])] for x in cache.tokens(i)]
            wanted = attention(q[part], *keys, causal=True, slopes=slope)
            close(out[part], wanted[0])
            close(lse[:, part], wanted[1])
        assert (out[11:] == 0).all() and (lse[:, 11:] == -torch.inf).all()


# --- Refusals ------------------------------------------------------------------------------------------------


def int32(*numbers):
    return torch.tensor(numbers, dtype=torch.int32)


@pytest.mark.parametrize(
    "kind, given, message",
    [
        (
            "sequences",
            {"cache_seqlens": int32(33, 46)},
            r"^cache_seqlens\[1\]: expected tokens in a cache for 48 beside 3 new",
        ),
        ("sequences", {"cache_seqlens": int32(33, -1)}, r"^cache_seqlens\[1\]: .* got -1; nearest legal: 0"),
        ("sequences", {"cache_seqlens": int32(33)}, r"^cache_seqlens: expected int32 \[2\], got"),
        (
            "sequences",
            {"cache_seqlens": None},
            r"^cache_seqlens: expected int32 \[batch\], or a number, beside k and v",
        ),
        ("sequences", {"cache_seqlens": torch.tensor([1.0, 2.0])}, "^cache_seqlens: expected integers"),
        (
            "sequences",
            {"cache_batch_idx": int32(0, 3)},
            r"^cache_batch_idx\[1\]: expected entries of k_cache: 0 to 2, got 3",
        ),
        (
            "sequences",
            {"cache_leftpad": int32(0, 8)},
            r"^cache_leftpad\[1\]: expected tokens of the sequence: 0 to 4",
        ),
        ("pages of 16", {"cache_leftpad": int32(0, 8)}, "^cache_leftpad: expected None beside block_table"),
        (
            "pages of 16",
            {"cache_batch_idx": int32(0, 1)},
            "^cache_batch_idx: expected None beside block_table",
        ),
        (
            "pages of 16",
            {"block_table": int32(0, 1)},
            r"^block_table: expected int32 \[2, pages of a sequence\]",
        ),
        (
            "pages of 16",
            {"block_table": int32(*[99] * 6).view(2, 3)},
            "expected a page of the pool|expected pages|block_table",
        ),
        (
            "sequences",
            {"rotary_cos": torch.ones(60, 8)},
            "^rotary_cos, rotary_sin: expected both, beside k and v",
        ),
        (
            "sequences",
            {"rotary_cos": torch.ones(60, 40), "rotary_sin": torch.ones(60, 40)},
            r"^rotary_cos: .* at most the 64",
        ),
        (
            "sequences",
            {"rotary_cos": torch.ones(9, 8), "rotary_sin": torch.ones(9, 8)},
            r"^rotary_cos: expected \[36 or more",
        ),
        (
            "sequences",
            {"rotary_cos": torch.ones(60, 8), "rotary_sin": torch.ones(60, 4)},
            "^rotary_sin: expected the shape",
        ),
        ("sequences", {"k": None}, "^k, v: expected both, or None"),
        ("sequences", {"v": new(4)[1]}, r"^v: expected \[batch, seq_new, heads_k, dim\] of \[2, 3, 2, 64\]"),
        ("sequences", {"k": new(dtype=torch.float16)[0]}, "^k: expected torch.bfloat16 on cpu, as q"),
        ("sequences", {"q": rows()[:, :, :3]}, "^k_cache: expected .* a multiple of heads_k"),
        ("sequences", {"q": rows().float()}, "^q: expected 'bfloat16' or 'float16'"),
        ("sequences", {"q": rows()[0]}, r"^q: expected a tensor of PyTorch, \[batch, seq, heads, dim\]"),
        (
            "sequences",
            {"v_cache": torch.zeros(3, 40, 2, 64).bfloat16()},
            r"^v_cache: expected \[3, 48, 2\] and dim",
        ),
        ("sequences", {"softcap": -2.0}, "^softcap: expected a number from 0.0 on"),
        ("sequences", {"alibi_slopes": SLOPES[:, :3]}, r"^alibi_slopes: expected float32 \[4\] or \[2, 4\]"),
        (
            "sequences",
            {"k": new()[0].requires_grad_()},
            "^k: requires a gradient, which attention over a cache",
        ),
    ],
)
def test_refused_calls_write_nothing(kind, given, message):
    cache = Cache(kind)
    before = cache.k.clone(), cache.v.clone()
    k, v = new()
    call = {
        "q": rows(),
        "k_cache": cache.k,
        "v_cache": cache.v,
        "k": k,
        "v": v,
        "cache_seqlens": int32(33, 4),
    }
    with pytest.raises((attn.SpecError, attn.TensorError, attn.PlanError), match=message):
        flash_attn_with_kvcache(**(call | cache.options | given))
    assert torch.equal(cache.k, before[0]) and torch.equal(cache.v, before[1])


def test_a_failed_plan_writes_nothing(monkeypatch):
    cache = Cache("sequences")
    before = cache.k.clone()

    def fail(self):
        raise attn.PlanError("no plan")

    monkeypatch.setattr(plans.PagedCall, "_on_host", fail)
    with pytest.raises(attn.PlanError, match="no plan"):
        flash_attn_with_kvcache(rows(), cache.k, cache.v, *new(), cache_seqlens=int32(33, 2), causal=True)
    assert torch.equal(cache.k, before)


def test_forward_mode_is_refused():
    cache, q = Cache("sequences"), rows()
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(q, q)
        with pytest.raises(attn.TensorError, match=r"^attn does not support torch\.func\.jvp"):
            flash_attn_with_kvcache(dual, cache.k, cache.v, cache_seqlens=7)


@pytest.mark.parametrize("dims", [(20, 20), (64, 36)])
def test_heads_of_no_multiple_of_8(place, dims):
    dim, value_dim = dims
    k_cache, v_cache = tensor(2, 48, KV_HEADS, dim, seed=1), tensor(2, 48, KV_HEADS, value_dim, seed=2)
    q, k, v = (
        tensor(2, rows, heads, of, seed=3 + i)
        for i, (rows, heads, of) in enumerate(((3, HEADS, dim), (3, KV_HEADS, dim), (3, KV_HEADS, value_dim)))
    )
    lengths, before = torch.tensor([20, 7], dtype=torch.int32), (k_cache.clone(), v_cache.clone())
    out, lse = flash_attn_with_kvcache(
        q, k_cache, v_cache, k, v, cache_seqlens=lengths, causal=True, return_softmax_lse=True
    )
    for i, length in enumerate(lengths.tolist()):
        assert torch.equal(k_cache[i, length : length + 3], k[i])
        assert torch.equal(v_cache[i, length : length + 3], v[i])
        for cache, old in zip((k_cache, v_cache), before, strict=True):
            assert torch.equal(cache[i, :length], old[i, :length])
            assert torch.equal(cache[i, length + 3 :], old[i, length + 3 :])
        wanted = attention(q[i], k_cache[i, : length + 3], v_cache[i, : length + 3], causal=True)
        close(out[i], wanted[0])
        close(lse[i], wanted[1])
    pages, values = (x.view(6, 16, KV_HEADS, x.shape[-1]) for x in (k_cache, v_cache))
    starts, ends = torch.tensor([0, 3, 6], dtype=torch.int32), torch.tensor([0, 23, 33], dtype=torch.int32)
    table = torch.arange(6, dtype=torch.int32).view(2, 3)
    packed = flash_attn_varlen_func(
        q.flatten(0, 1), pages, values, starts, ends, 3, 23, causal=True, block_table=table
    )
    assert torch.equal(packed.view_as(out), out)
