# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A numerics contract: a row's output and LSE have the same bits in every store, chunk, batch and plan.

Kernels run on the host device, and under all of its detectors where tests say so. Rows are compared by their bytes, and
with float64.
"""

import itertools
import os

import attn
import numpy
import oracle
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from attn.memory.devices import checked_host  # noqa: E402

SPLIT = 4096
SIZES = {"q_heads": 4, "kv_heads": 2, "head_dim": 64, "dtype": "float16"}
STORES = {
    "dense": attn.Dense(),
    "packed": attn.Packed(),
    "pages of 16": attn.Paged(page_size=16),
    "pages of 64": attn.Paged(page_size=64),
    "pages of 256": attn.Paged(page_size=256),
    "pages of 48": attn.Paged(page_size=48),
}


def under_contract(spec):
    """Return the text of a description under the contract "row"."""
    text = spec.mlir()
    if "attributes {" in text:
        return text.replace("attributes {", 'attributes {attn.numerics = "row", ', 1)
    head, _, body = text.rpartition(") {\n")
    return head + ') attributes {attn.numerics = "row"} {\n' + body


def compile_row(store, schedule="auto", device="host", checked=False, **changes):
    """Compile a description under the contract "row"."""
    spec = attn.Spec(**{**SIZES, "see": attn.causal(), **changes}, kv=[store])
    text = under_contract(spec)
    return attn.compile(text, device=device, target="sm_90a", schedule=schedule, checked=checked)


class Sequences:
    """Keys, values and queries of sequences of these lengths."""

    def __init__(
        self, lengths, seed=0, *, q_heads=4, kv_heads=2, head_dim=64, value_dim=None, dtype=numpy.float16
    ):
        numbers = numpy.random.default_rng(seed)

        def make(tokens, heads, dim):
            return numbers.standard_normal((tokens, heads, dim)).astype(dtype)

        self.lengths, self.dtype = lengths, dtype
        self.q = [make(n, q_heads, head_dim) for n in lengths]
        self.k = [make(n, kv_heads, head_dim) for n in lengths]
        self.v = [make(n, kv_heads, value_dim or head_dim) for n in lengths]

    def batch(self, store, parts, seed=0, poison=False):
        """Return the tensors of a launch. `parts`: (sequence, first row, end of its rows), whose rows see the tokens
        before the end. `poison`: memory of others is NaN."""
        lengths = [end for _, _, end in parts]
        rows = [end - first for _, first, end in parts]
        tensors = {
            "q": numpy.concatenate([self.q[s][first:end] for s, first, end in parts]),
            "q_start": numpy.cumsum([0, *rows], dtype=numpy.int32),
            "q_pos": numpy.concatenate(
                [numpy.arange(first, end, dtype=numpy.int32) for _, first, end in parts]
            ),
            "kv.lengths": numpy.array(lengths, numpy.int32),
            "kv.pos0": numpy.zeros(len(parts), numpy.int32),
        }
        for name, source in (("k", self.k), ("v", self.v)):
            shape, fill = source[0].shape[1:], numpy.nan if poison else 0
            if isinstance(store, attn.Packed):
                tensors[f"kv.{name}"] = numpy.concatenate([source[s][:end] for s, _, end in parts])
                tensors["kv.start"] = numpy.cumsum([0, *lengths], dtype=numpy.int32)
            elif isinstance(store, attn.Dense):
                tensors[f"kv.{name}"] = numpy.full((len(parts), max(lengths), *shape), fill, self.dtype)
                for i, (s, _, end) in enumerate(parts):
                    tensors[f"kv.{name}"][i, :end] = source[s][:end]
            else:
                page, each = store.page_size, [-(-n // store.page_size) for n in lengths]
                places = numpy.random.default_rng(seed).permutation(sum(each) + 3)
                table = numpy.full((len(parts), max(each)), places[-1], numpy.int32)
                pages = numpy.full((len(places), page, *shape), fill, self.dtype)
                for i, (s, _, end) in enumerate(parts):
                    table[i, : each[i]], places = places[: each[i]], places[each[i] :]
                    padded = numpy.zeros((each[i] * page, *shape), self.dtype)
                    padded[:end] = source[s][:end]
                    pages[table[i, : each[i]]] = padded.reshape(each[i], page, *shape)
                tensors["kv.block_table"], tensors[f"kv.{name}_pages"] = table, pages
        return tensors


def run(kernel, store, tensors, torch=None, **options):
    """Run a launch, with `torch` in bfloat16. Return the bytes of output and LSE for each row, output and LSE."""
    if torch:
        tensors = {
            name: torch.from_numpy(each).bfloat16() if each.dtype == numpy.float16 else each
            for name, each in tensors.items()
        }
    plan = kernel.plan(tensors, **options)
    operands = [tensors[f"kv.{part}"] for part in ("k", "v", "k_pages", "v_pages") if f"kv.{part}" in tensors]
    others = {name: tensors[name] for name in tensors if "." not in name and not name.startswith("q")}
    out, lse = kernel.run(tensors["q"], tuple(operands), plan, return_lse=True, **others)
    if torch:
        out, lse = out.view(torch.int16).numpy(), lse.numpy()
    return [(o.tobytes(), row.tobytes()) for o, row in zip(out, lse, strict=True)], out, lse


def rows_of(kernel, store, sequences, parts, extra=None, **options):
    """Return the bytes of each row by its sequence and position."""
    tensors = {**sequences.batch(store, parts, seed=len(parts)), **(extra or {})}
    found, *_ = run(kernel, store, tensors, **options)
    at = [(s, row) for s, first, end in parts for row in range(first, end)]
    return dict(zip(at, found, strict=True))


def check_same(expected, found):
    for at, row in found.items():
        assert row == expected[at], f"sequence {at[0]}, row {at[1]}"


@pytest.mark.parametrize("schedule", ["wgmma", "mma"])
@pytest.mark.parametrize("name", STORES)
def test_stores_chunks_and_neighbours(name, schedule):
    """One prefill of a dense tensor, and in each store: chunks, single tokens, alone and beside others."""
    sequences = Sequences([300, SPLIT + 152])
    dense = STORES["dense"]
    whole = [(0, 0, 300), (1, SPLIT - 8, SPLIT + 152)]
    expected = rows_of(compile_row(dense, schedule), dense, sequences, whole)
    store = STORES[name]
    kernel = compile_row(store, schedule)
    check_same(expected, rows_of(kernel, store, sequences, whole))
    check_same(expected, rows_of(kernel, store, sequences, [(1, SPLIT - 8, SPLIT + 42)]))
    for row in (SPLIT - 8, SPLIT - 1, SPLIT, SPLIT + 1, SPLIT + 151):
        check_same(expected, rows_of(kernel, store, sequences, [(1, row, row + 1)], blocks=3))
    for row in (0, 127, 128, 299):
        check_same(
            expected, rows_of(kernel, store, sequences, [(0, row, row + 1), (1, SPLIT + 52, SPLIT + 55)])
        )
    check_same(expected, rows_of(kernel, store, sequences, [(0, 100, 260)], strategy="by-query", blocks=7))


def test_results_are_right():
    sequences = Sequences([SPLIT + 252])
    store = STORES["pages of 16"]
    kernel = compile_row(store)
    tensors = sequences.batch(store, [(0, SPLIT + 242, SPLIT + 252)])
    _, out, lse = run(kernel, store, tensors)
    for i, row in enumerate(range(SPLIT + 242, SPLIT + 252)):
        for head in range(2):
            mine = slice(2 * head, 2 * head + 2)
            k, v = (part[0][: row + 1, head : head + 1] for part in (sequences.k, sequences.v))
            o, of_row = oracle.attend(sequences.q[0][row, mine], k, v)
            assert oracle.error(out[i, mine], o) < 2e-3
            assert abs(lse[i, mine] - of_row).max() < 2e-3


def capped(s, h, qi, ki):
    return attn.math.tanh(s / 30.0) * 30.0


def alibi(s, h, qi, ki):
    return s + (ki - qi) * 0.03125


VISIBLE = {
    "window": {"see": attn.window(150)},
    "narrow window": {"see": attn.window(20)},
    "wide window": {"see": attn.window(SPLIT + 52)},
    "sink and window": {"see": attn.sink(20) | attn.window(150)},
    "sink logits": {"sink_logits": True},
    "soft cap": {"score": capped},
    "ALiBi": {"score": alibi},
    "bf16": {"dtype": "bfloat16"},
}


CASES = [(case, schedule) for case in VISIBLE for schedule in ("wgmma", "mma")]


@pytest.mark.parametrize("case,schedule", CASES if os.environ.get("ATTN_FULL") else CASES[::5])
def test_visibilities_and_scores(case, schedule):
    changes = VISIBLE[case]
    extra = {"sink_logits": numpy.linspace(-2, 2, 4, dtype=numpy.float32)} if "sink_logits" in changes else {}
    sequences = Sequences([SPLIT + 352])
    torch = pytest.importorskip("torch") if case == "bf16" else None
    found = []
    for name in ("dense", "pages of 16"):
        store = STORES[name]
        kernel = compile_row(store, schedule, **changes)
        rows = rows_of(kernel, store, sequences, [(0, SPLIT - 8, SPLIT + 352)], extra, torch=torch)
        for first, end in (
            (SPLIT - 8, SPLIT - 7),
            (SPLIT, SPLIT + 1),
            (SPLIT + 152, SPLIT + 252),
            (SPLIT + 351, SPLIT + 352),
        ):
            check_same(
                rows, rows_of(kernel, store, sequences, [(0, first, end)], extra, torch=torch, blocks=5)
            )
        found.append(rows)
    check_same(*found)


@pytest.mark.parametrize("dims", [(96, 96), (128, 128), (192, 128), (256, 256)])
@pytest.mark.parametrize("schedule", ["wgmma", "mma"])
def test_head_dims(dims, schedule):
    key, value = dims
    sequences = Sequences([SPLIT + 152], head_dim=key, value_dim=value)
    store = STORES["pages of 16"]
    kernel = compile_row(store, schedule, head_dim=key, value_dim=value)
    rows = rows_of(kernel, store, sequences, [(0, SPLIT - 8, SPLIT + 152)])
    for first, end in ((SPLIT - 8, SPLIT - 7), (SPLIT, SPLIT + 4), (SPLIT + 151, SPLIT + 152)):
        check_same(rows, rows_of(kernel, store, sequences, [(0, first, end)]))


def test_whole_and_cut_tasks_give_the_same_bits():
    """A task that folds its parts, and the merge of parts that other tasks stored."""
    sequences = Sequences([2 * SPLIT + 404, 2 * SPLIT + 404])
    store = STORES["pages of 64"]
    kernel = compile_row(store)
    parts = [(0, 2 * SPLIT + 104, 2 * SPLIT + 404), (1, 2 * SPLIT + 304, 2 * SPLIT + 404)]
    found = [rows_of(kernel, store, sequences, parts, blocks=blocks) for blocks in (1, 2, 7, 132)]
    for other in found[1:]:
        check_same(found[0], other)
    check_same(found[0], rows_of(kernel, store, sequences, [(0, 2 * SPLIT + 403, 2 * SPLIT + 404)]))


def test_tokens_in_front_of_a_window_may_belong_to_others():
    """Pages that a window has left are given back: their entries name pages full of NaN."""
    sequences = Sequences([1000])
    store = STORES["pages of 16"]
    kernel = compile_row(store, see=attn.window(100))
    expected = rows_of(kernel, store, sequences, [(0, 900, 1000)])
    for first, end in ((900, 1000), (950, 951), (999, 1000)):
        tensors = sequences.batch(store, [(0, first, end)], poison=True)
        gone = (first - 99) // 16
        table = tensors["kv.block_table"]
        owned = set(table[0, gone:])
        table[0, :gone] = next(page for page in range(len(tensors["kv.k_pages"])) if page not in owned)
        foreign = table[0, 0]
        for name in ("kv.k_pages", "kv.v_pages"):
            tensors[name][foreign] = numpy.nan
        found, *_ = run(kernel, store, tensors)
        check_same(expected, {(0, first + i): row for i, row in enumerate(found)})


@pytest.mark.parametrize("q_len", [1, 30])
def test_quantized_pages_among_themselves(q_len):
    store = attn.Paged(page_size=16, key="int8", value="int4")
    kernel = compile_row(store)
    spec = attn.Spec(**SIZES, see=attn.causal(), kv=[store])
    tensors = attn.sample(spec, seed=1, batch=2, q_len=q_len, kv_len=(600, 700))
    names = ("k_pages", "v_pages", "k_meta", "v_meta")
    found = []
    for blocks, strategy in itertools.product((1, 9, 132), ("flatten", "by-query")):
        plan = kernel.plan(tensors, blocks=blocks, strategy=strategy)
        out, lse = kernel.run(tensors["q"], tuple(tensors[f"kv.{n}"] for n in names), plan, return_lse=True)
        found.append(out.tobytes() + lse.tobytes())
    assert len(set(found)) == 1


def test_the_manifest_says_the_contract():
    found = [compile_row(STORES[name], "wgmma").manifest["numerics"] for name in ("dense", "pages of 16")]
    assert found[0] == found[1]
    assert found[0]["contract"] == "row" and found[0]["split"] == SPLIT
    assert found[0]["split"] % found[0]["keys"] == 0 and found[0]["streams"] == 1
    mma = compile_row(STORES["dense"], "mma").manifest["numerics"]
    assert mma["instructions"] == "mma" and mma != found[0]


def read_cache(kernel, sequences, chunks, **kept):
    """Read a sequence through a cache in chunks of these sizes. Return the bytes of each row."""
    cache = attn.PagedCache(layers=1, kv_heads=2, head_dim=64, dtype="float16", device="host", **kept)
    node, at, found = cache.add(), 0, []
    for count in chunks:
        change, rows = cache.append([node], [count]), slice(at, at + count)
        change.write(
            0,
            sequences.k[0][rows],
            sequences.v[0][rows],
            **({"classes": [0, 1]} if "classes" in kept else {}),
        )
        batch = cache.batch([(node, count)], **({"classes": [0, 1]} if "classes" in kept else {}))
        out, lse = kernel.run(sequences.q[0][rows], cache.layer(0), kernel.plan(batch), return_lse=True)
        found += [(o.tobytes(), row.tobytes()) for o, row in zip(out, lse, strict=True)]
        at += count
    return {(0, i): row for i, row in enumerate(found)}


@pytest.mark.parametrize("schedule", ["wgmma", "mma"])
@pytest.mark.parametrize("sink", [0, 20])
def test_pages_that_a_cache_gives_back(schedule, sink):
    """A class of heads gives back pages in front of its recent tokens; another keeps all."""
    from attn.cache.state import CacheClass

    tokens, recent = 403, 140
    sequences = Sequences([tokens])
    near = attn.sink(sink) | attn.recent(recent) if sink else attn.recent(recent)
    heads = attn.heads(retrieval=attn.all_tokens(), streaming=near)

    def compiled(*stores):
        spec = attn.Spec(**SIZES, see=attn.causal(), heads=heads, kv=list(stores))
        return attn.compile(under_contract(spec), device="host", target="sm_90a", schedule=schedule)

    whole = compiled(attn.Paged(name="kv"))
    tensors = {
        **sequences.batch(STORES["pages of 16"], [(0, 0, tokens)]),
        "classes": numpy.array([0, 1], numpy.int32),
    }
    found, *_ = run(whole, None, tensors)
    expected = {(0, row): bits for row, bits in enumerate(found)}
    kernel = compiled(
        attn.Paged(name="all", head_class="retrieval"), attn.Paged(name="few", head_class="streaming")
    )
    classes = [
        CacheClass(name="retrieval", pages=40, heads=1),
        CacheClass(name="streaming", pages=40, heads=1, recent=recent, sink=sink),
    ]
    for chunks in ([tokens], [16] * 25 + [3], [129, 128, 146], [7, 200, 196]):
        check_same(expected, read_cache(kernel, sequences, chunks, classes=classes))


@pytest.mark.parametrize("see", [attn.causal(), attn.window(150), attn.window(SPLIT + 52)])
@pytest.mark.parametrize("sinks", [False, True])
def test_plans_of_the_device(see, sinks):
    """Cuts of both planners are the same, at windows, too."""
    store = STORES["pages of 16"]
    spec = attn.Spec(**SIZES, see=see, kv=[store], device_plan=True, sink_logits=sinks)
    kernel = attn.compile(under_contract(spec), device="host", target="sm_90a")
    extra = {"sink_logits": numpy.linspace(-2, 2, 4, dtype=numpy.float32)} if sinks else {}
    sequences = Sequences([SPLIT + 352, 700, 2 * SPLIT + 104])
    parts = [(0, SPLIT + 351, SPLIT + 352), (1, 690, 700), (2, 2 * SPLIT + 101, 2 * SPLIT + 104)]
    tensors = {**sequences.batch(store, parts), **extra}
    expected, *_ = run(kernel, store, tensors)
    planner = kernel.device_planner(tensors)
    given = {name: tensors[name] for name in ("kv.lengths", "kv.block_table", "q_start")}
    plan = planner.plan(given)
    assert plan.fault == ""
    pages = tensors["kv.k_pages"], tensors["kv.v_pages"]
    out, lse = kernel.run(tensors["q"], pages, plan, return_lse=True, **extra)
    assert [(o.tobytes(), row.tobytes()) for o, row in zip(out, lse, strict=True)] == expected


def test_shared_prefixes():
    """A prompt is read once for several rows, or for each of them."""
    heads = {"kv_heads": 2, "head_dim": 64, "dtype": "float16", "device": "host"}
    kernel = compile_row(attn.Paged(name="kv"))
    numbers, found = numpy.random.default_rng(0), {}

    def some(count, heads=2):
        return numbers.standard_normal((count, heads, 64)).astype(numpy.float16)

    cache = attn.PagedCache(layers=1, pages=450, **heads)
    prompt = cache.add()
    cache.append([prompt], [SPLIT + 252]).write(0, some(SPLIT + 252), some(SPLIT + 252))
    leaves = cache.branch(prompt, 6)
    counts = [5, 1, 130, 40, 3, 17]
    cache.append(leaves, counts).write(0, some(sum(counts)), some(sum(counts)))
    batch = cache.batch([(leaf, 1) for leaf in leaves])
    q = some(6, 4)
    for strategy, blocks in itertools.product(("flatten", "by-query", "by-node"), (3, 132)):
        plan = kernel.plan(batch, strategy=strategy, blocks=blocks)
        out, lse = kernel.run(q, cache.layer(0), plan, return_lse=True)
        found[strategy, blocks] = out.tobytes() + lse.tobytes()
    for leaf in range(6):  # each alone
        plan = kernel.plan(cache.batch([(leaves[leaf], 1)]))
        out = kernel.run(q[leaf : leaf + 1], cache.layer(0), plan)
        whole = numpy.frombuffer(found["flatten", 3][: q.nbytes], numpy.float16).reshape(q.shape)
        assert numpy.array_equal(out[0], whole[leaf])
    assert len(set(found.values())) == 1


@pytest.mark.parametrize("schedule", ["wgmma", "mma"])
@pytest.mark.parametrize("seed", range(3))
def test_random_batches(seed, schedule):
    """Rows of random batches, stores, blocks and strategies, under orders of threads of their own."""
    numbers = numpy.random.default_rng(seed)
    see = [attn.causal(), attn.window(333), attn.causal()][seed]
    lengths = [int(numbers.integers(1, 900)) for _ in range(4)] + [
        int(numbers.integers(SPLIT + 1, SPLIT + 252))
    ]
    sequences, compared = Sequences(lengths, seed), 0
    dense = STORES["dense"]
    kernel = compile_row(dense, schedule, see=see)
    expected = rows_of(kernel, dense, sequences, [(s, 0, n) for s, n in enumerate(lengths[:4])])
    expected |= rows_of(kernel, dense, sequences, [(4, lengths[4] - 300, lengths[4])])
    for round_ in range(6):
        store = STORES[list(STORES)[int(numbers.integers(len(STORES)))]]
        device = checked_host(seed=round_, shuffle=True)
        kernel = compile_row(store, schedule, device, checked=True, see=see)
        parts = []
        for s in numbers.permutation(5)[: int(numbers.integers(1, 6))]:
            least = max(lengths[s] - 300, 0) if s == 4 else 0
            first = int(numbers.integers(least, lengths[s]))
            parts.append((int(s), first, min(lengths[s], first + int(numbers.integers(1, 200)))))
        options = {
            "blocks": int(numbers.integers(1, 60)),
            "strategy": ["flatten", "by-query"][int(numbers.integers(2))],
        }
        found = rows_of(kernel, store, sequences, parts, **options)
        check_same(expected, found)
        report = device.report()
        assert not any(report[name] for name in ("races", "uninitialized", "out_of_bounds")), report
        compared += len(found)
    assert compared > 300


@pytest.mark.parametrize("sinks", [False, True])
def test_plans_that_grow(sinks):
    """Steps of decoding that extend a plan, over the end of a part, have the bits of plans made anew."""
    kernel = compile_row(attn.Paged(name="kv"), sink_logits=sinks)
    extra = {"sink_logits": numpy.linspace(-2, 2, 4, dtype=numpy.float32)} if sinks else {}
    numbers = numpy.random.default_rng(0)
    cache = attn.PagedCache(layers=1, pages=580, kv_heads=2, head_dim=64, dtype="float16", device="host")
    nodes = [cache.add(), cache.add()]

    def append(counts):
        k, v = numbers.standard_normal((2, sum(counts), 2, 64)).astype(numpy.float16)
        cache.append(nodes, counts).write(0, k, v)

    append([SPLIT - 18, SPLIT + 452])
    batch = cache.batch([(node, 1) for node in nodes])
    plan, extended = kernel.plan(batch), 0
    for _ in range(30):
        append([1, 1])
        batch.update()
        extended += plan.update()
        q = numbers.standard_normal((2, 4, 64)).astype(numpy.float16)
        out = kernel.run(q, cache.layer(0), plan, **extra)
        anew = kernel.plan(cache.batch([(node, 1) for node in nodes]), blocks=7)
        assert numpy.array_equal(out, kernel.run(q, cache.layer(0), anew, **extra))
    assert extended > 10 or sinks
