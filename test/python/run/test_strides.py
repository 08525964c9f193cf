# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors in the layouts of engines, read in place: one compiled kernel, one plan, the same bits."""

import attn
import numpy
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from kernel_problem import DIM, KV_HEADS, PAGES, Q_HEADS, Problem, spec  # noqa: E402
from meaning import qkv, swap  # noqa: E402


@pytest.fixture(scope="module")
def kernel():
    return attn.compile(spec(), device="host")


def nhd(problem):
    return problem.k, problem.v


def hnd(problem):
    return tuple(numpy.ascontiguousarray(swap(pages)).swapaxes(1, 2) for pages in nhd(problem))


def interleaved(problem):
    pool = numpy.stack(nhd(problem), axis=1)  # [pages, 2, page, heads, dim]
    return pool[:, 0], pool[:, 1]


def halves(problem):
    pool = numpy.empty((PAGES, KV_HEADS, 16, 2 * DIM), numpy.float16)
    pool[..., :DIM], pool[..., DIM:] = (swap(pages) for pages in nhd(problem))
    return swap(pool[..., :DIM]), swap(pool[..., DIM:])


def layers(problem):
    """Return one of three layers of a pool whose pages hold all layers, with NaN in the others."""
    pool = numpy.full((PAGES, 3, 2, 16, KV_HEADS, DIM), numpy.nan, numpy.float16)
    pool[:, 1, 0], pool[:, 1, 1] = nhd(problem)
    return pool[:, 1, 0], pool[:, 1, 1]


LAYOUTS = [nhd, hnd, interleaved, halves, layers]


@pytest.mark.parametrize("lay", LAYOUTS, ids=lambda lay: lay.__name__)
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_pools_of_every_layout_give_the_same_bits(kernel, lay, library):
    problem = Problem()
    plan = kernel.plan(problem.batch)
    wanted, wanted_lse = kernel.run(problem.q, nhd(problem), plan, return_lse=True)
    problem.check(wanted, wanted_lse)
    given = lay(problem)
    if library == "torch":
        torch = pytest.importorskip("torch")
        given = tuple(
            torch.as_strided(torch.from_numpy(base_of(t)), t.shape, steps(t), offset(t)) for t in given
        )
    o, lse = kernel.run(problem.q, given, plan, return_lse=True)
    assert (o == wanted).all() and (lse == wanted_lse).all()


def base_of(array):
    while array.base is not None:
        array = array.base
    return array.reshape(-1)


def steps(array):
    return tuple(stride // array.itemsize for stride in array.strides)


def offset(array):
    return (array.ctypes.data - base_of(array).ctypes.data) // array.itemsize


def test_queries_and_outputs_in_parts_of_others(kernel):
    problem = Problem()
    plan = kernel.plan(problem.batch)
    wanted = kernel.run(problem.q, nhd(problem), plan)
    fused = numpy.full((3, Q_HEADS + 2 * KV_HEADS, DIM), numpy.nan, numpy.float16)
    fused[:, :Q_HEADS] = problem.q
    behind = numpy.full((3, 2 * Q_HEADS, DIM), 7, numpy.float16)
    heads_first = numpy.zeros((Q_HEADS, 3, DIM), numpy.float16).swapaxes(0, 1)
    for out in (behind[:, Q_HEADS:], heads_first):
        assert kernel.run(fused[:, :Q_HEADS], nhd(problem), plan, out=out) is out
        assert (out == wanted).all()
    assert (behind[:, :Q_HEADS] == 7).all()


def test_layers_may_lie_differently_under_one_plan(kernel):
    problem = Problem()
    plan = kernel.plan(problem.batch)
    wanted = kernel.run(problem.q, nhd(problem), plan)
    for lay in [*LAYOUTS, *reversed(LAYOUTS)]:
        assert (kernel.run(problem.q, lay(problem), plan) == wanted).all()


def test_a_larger_batch_lies_otherwise():
    """With heads before tokens, the distance of heads depends on the number of tokens."""
    kernel = attn.compile(spec(kv=[attn.Packed()]), device="host")
    rng, plan = numpy.random.default_rng(0), None
    for tokens in (8, 30, 5):
        q = rng.standard_normal((2, Q_HEADS, DIM)).astype(numpy.float16)
        k, v = rng.standard_normal((2, KV_HEADS, tokens, DIM)).astype(numpy.float16).swapaxes(1, 2)
        starts = {"kv.start": [0, 3, tokens], "q_start": [0, 1, 2]}
        batch = {"q": q, "kv.k": k, "kv.v": v, **starts}
        if plan is None:
            plan = kernel.plan(batch)
        else:
            plan.update(batch)
        dense = numpy.ascontiguousarray(k), numpy.ascontiguousarray(v)
        assert (kernel.run(q, (k, v), plan) == kernel.run(q, dense, plan)).all()
        kernel.run(q, (k, v), plan)


def test_codes_with_metadata_by_token_lie_densely():
    store = attn.Paged(key="int8", value="int8")
    sample = attn.sample(spec(kv=[store]), batch=1, kv_len=(40,))
    kernel = attn.compile(spec(kv=[store]), device="host")
    plan = kernel.plan(sample)
    parts = {name.partition(".")[2]: sample[name] for name in sample if name.startswith("kv.")}
    parts = {name: parts[name] for name in ("k_pages", "v_pages", "k_meta", "v_meta")}
    kernel.run(sample["q"], parts, plan)
    parts["k_pages"] = numpy.ascontiguousarray(swap(parts["k_pages"])).swapaxes(1, 2)  # tokens first
    with pytest.raises(attn.TensorError, match="kv.k_pages: expected a contiguous tensor"):
        kernel.run(sample["q"], parts, plan)


# --- attend --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
def test_parts_of_a_fused_projection(causal):
    rng = numpy.random.default_rng(3)
    qkv_of_all = rng.standard_normal((2, 50, 3, 8, 64)).astype(numpy.float16)
    q, k, v = (qkv_of_all[:, :, i] for i in range(3))
    wanted = attn.attend(*(numpy.ascontiguousarray(t) for t in (q, k, v)), causal=causal)
    out = numpy.zeros((2, 50, 2, 8, 64), numpy.float16)[:, :, 1]
    assert (attn.attend(q, k, v, causal=causal) == wanted).all()
    assert attn.attend(q, k, v, causal=causal, out=out) is out
    assert (out == wanted).all()


def test_unbind_and_split_of_pytorch():
    torch = pytest.importorskip("torch")
    fused = torch.randn(2, 50, 3, 8, 64, dtype=torch.bfloat16)
    q, k, v = fused.unbind(2)
    wanted = attn.attend(*(t.contiguous() for t in (q, k, v)), causal=True)
    assert torch.equal(attn.attend(q, k, v, causal=True), wanted)
    grouped = torch.randn(70, (8 + 2 + 2) * 64, dtype=torch.bfloat16)
    q, k, v = (t.unflatten(1, (-1, 64)) for t in grouped.split([512, 128, 128], dim=1))
    starts = [0, 30, 70]
    wanted = attn.attend(*(t.contiguous() for t in (q, k, v)), causal=True, cu_seqlens=starts)
    assert torch.equal(attn.attend(q, k, v, causal=True, cu_seqlens=starts), wanted)


def test_a_slice_of_a_cache_that_ends_with_it():
    q, k, v = qkv()
    for part in (slice(30, None), slice(None, 40), slice(10, 60)):
        wanted = attn.attend(q, k[:, part].copy(), v[:, part].copy())
        assert (attn.attend(q, k[:, part], v[:, part]) == wanted).all()


# --- Tables --------------------------------------------------------------------------------------------------


def lists_of(problem):
    counts = [-(-length // 16) for length in problem.lengths]
    return {
        "kv.indptr": numpy.cumsum([0, *counts]),
        "kv.indices": numpy.concatenate([row[:n] for row, n in zip(problem.table, counts, strict=True)]),
        "kv.last_page_len": [(length - 1) % 16 + 1 for length in problem.lengths],
    }


def batch_of(problem, **tables):
    data = {name: problem.batch[name] for name in ("q", "kv.k_pages", "kv.v_pages")}
    return data | {f"kv.{name}": table for name, table in tables.items()}


@pytest.mark.parametrize("integers", ["int64", "int32", "list", "torch"])
def test_page_lists_are_tables(kernel, integers):
    problem = Problem()
    wanted = kernel.run(problem.q, nhd(problem), kernel.plan(problem.batch))
    lists = {name: numpy.asarray(values) for name, values in lists_of(problem).items()}
    if integers == "list":
        lists = {name: values.tolist() for name, values in lists.items()}
    elif integers == "torch":
        torch = pytest.importorskip("torch")
        lists = {name: torch.from_numpy(values) for name, values in lists.items()}
    else:
        lists = {name: values.astype(integers) for name, values in lists.items()}
    batch = batch_of(problem) | lists
    assert (kernel.run(problem.q, nhd(problem), kernel.plan(batch)) == wanted).all()
    del batch["kv.last_page_len"]
    batch["kv.lengths"] = problem.lengths
    assert (kernel.run(problem.q, nhd(problem), kernel.plan(batch)) == wanted).all()


WRONG_LISTS = {
    "without indices": ({"indices": None}, "kv.indices: expected beside kv.indptr, got none"),
    "without two": (
        {"indices": None, "last_page_len": None},
        "kv.indices, kv.last_page_len: expected beside kv.indptr, got none",
    ),
    "with a table": (
        {"block_table": [[0]]},
        "kv.block_table: expected page lists, or a block table and lengths, got both",
    ),
    "with lengths": ({"lengths": [1, 1, 1]}, "kv.last_page_len: expected page lists, or"),
    "falling": (
        {"indptr": [0, 3, 1, 8]},
        "kv.indptr: expected offsets that rise from 0 to at most the 8 entries of kv.indices",
    ),
    "too many": ({"indptr": [0, 1, 4, 9]}, "kv.indptr: expected offsets that rise from 0"),
    "full": (
        {"last_page_len": [5, 17, 16]},
        "kv.last_page_len: expected 3 numbers from 1 to the 16 tokens of a page",
    ),
    "none": ({"last_page_len": [5, 0, 16]}, "kv.last_page_len: expected 3 numbers from 1"),
    "outside": ({"indices": [0, 1, 2, 3, 4, 5, 6, 99]}, "kv.block_table"),
    "floats": ({"indices": [0.5] * 8}, "kv.indices: expected integers"),
}


@pytest.mark.parametrize("case", WRONG_LISTS)
def test_wrong_page_lists_are_refused(kernel, case):
    changes, message = WRONG_LISTS[case]
    problem = Problem()
    batch = batch_of(problem) | lists_of(problem)
    for name, value in changes.items():
        batch[f"kv.{name}"] = value
        if value is None:
            del batch[f"kv.{name}"]
    with pytest.raises(attn.PlanError) as error:
        kernel.plan(batch)
    assert message in str(error.value)


def test_all_missing_tables_are_named_at_once(kernel):
    with pytest.raises(attn.PlanError, match="tensors 'kv.block_table', 'kv.lengths' are missing"):
        kernel.plan(batch_of(Problem()))
