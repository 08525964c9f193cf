# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps whose plans the device makes: tables of any integers and strides, fewer sequences and rows than there may be."""

import pytest

torch = pytest.importorskip("torch")

from attn import PlanError, TensorError  # noqa: E402
from attn.serving import DevicePlans, Layer  # noqa: E402
from test_serving_steps import OPTIONS, PAGE, Engine, assert_quantized  # noqa: E402


def engine(lengths, sequences=4, pages=5, sizes=(), **options):
    """An engine of test_serving_steps whose plans the device makes."""
    made = Engine(lengths, device_plan=True, **options)
    made.plans = DevicePlans(sequences, pages, "cpu", sizes)
    return made


def check(made, rows, **options):
    found, wanted = made.run(rows, **options)
    torch.testing.assert_close(found, wanted, atol=4e-3, rtol=4e-3)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda each: " ".join(each) or "causal")
def test_chunks_and_decoding_are_as_in_float64(options):
    torch.manual_seed(0)
    made = engine([50, 19, 5], **options)
    for rows in ([32, 0, 3], [14, 16, 1], [1, 1, 1], [1, 1, 0], [2, 1, 0]):
        check(made, rows, pad=2)
    assert [len(each) for each in made.k] == [50, 19, 5]


@pytest.mark.parametrize("scales", ["tensor", "head"])
def test_outputs_in_e4m3(scales):
    torch.manual_seed(0)
    made = engine([50, 19, 5], sizes=(3, 40), output="fp8_e4m3", output_scales=scales, sinks=True)
    for rows in ([32, 0, 3], [14, 16, 1], [1, 1, 1], [1, 1, 0], [2, 1, 0]):
        assert_quantized(*made.run(rows, pad=2))
    for rows in (1, 3):  # copied, and not
        step = made.plans.step([0, *[rows] * 3], [len(each) for each in made.k], made.table)
        q, bits = torch.randn(3, 4, 16, dtype=torch.float16), torch.zeros(rows, 4, 16, dtype=torch.uint8)
        found, of_heads = step.run(made.kernel, q, made.pages, **made.tensors), {}
        if scales == "head":
            found, made_scales = found
            of_heads = {"output_scales": torch.zeros(rows, 4)}
        assert found.dtype == torch.float8_e4m3fn and len(found) == rows
        step.run(made.kernel, q, made.pages, out=bits, **of_heads, **made.tensors)
        assert torch.equal(found.view(torch.uint8), bits)
        assert not of_heads or (torch.equal(made_scales, of_heads["output_scales"]) and made_scales[0].all())


@pytest.mark.parametrize("page", [6, 48, 784])
def test_pages_that_are_no_power_of_two(page):
    torch.manual_seed(0)
    made = engine([page + 5, page, 5], page=page, window=page // 2 + 3)
    for rows in ([page - 1, page - 1, 3], [1, 1, 1], [2, 0, 0], [1, 0, 1], [1, 0, 0]):
        check(made, rows, pad=1)


def test_planners_are_of_sizes_and_are_kept():
    torch.manual_seed(0)
    made = engine([60, 40], sizes=(3, 24))
    addresses = [table.data_ptr() for table in made.plans.tables.values()]
    for rows in ([20, 4], [17, 2], [1, 1], [1, 2], [15, 9]):  # as many as a size, or fewer
        check(made, rows)
    assert [(size, spread) for _, size, spread, _ in made.plans._planned] == [(24, 24), (3, 3)]
    check(made, [6, 20])  # more than the sizes
    assert [size for _, size, _, _ in made.plans._planned] == [24, 3, 32]
    assert addresses == [table.data_ptr() for table in made.plans.tables.values()]


def test_decoding_has_a_kernel_of_its_own():
    torch.manual_seed(0)
    made = engine([40, 30, 20, 10], sizes=(4,))
    check(made, [39, 29, 19, 9])
    step = made.plans.step(torch.arange(5), torch.tensor([39, 29, 19, 9]), made.table, rows=4, longest=1)
    assert (step.size, step.spread) == (4, 1)
    q = torch.randn(4, 4, 16, dtype=torch.float16)
    found = step.run(made.kernel, q, made.pages)
    wanted = [made.reference(q[i : i + 1], made.k[i], made.v[i]) for i in range(4)]
    torch.testing.assert_close(found.double(), torch.cat(wanted), atol=4e-3, rtol=4e-3)


def test_tables_of_64_bits_and_any_strides():
    torch.manual_seed(0)
    made = engine([40, 30])
    check(made, [40, 30])
    wide = torch.full((2, 7, 2), -1, dtype=torch.int64)
    wide[:, : made.table.shape[1], 0] = made.table
    ends = torch.tensor([40, -1, 30, -1])[::2]
    step = made.plans.step(torch.tensor([0, 1, 4]), ends, wide[:, :, 0])  # two columns more than are kept
    q = torch.randn(4, 4, 16, dtype=torch.float16)
    found = step.run(made.kernel, q, made.pages)
    wanted = [made.reference(q[:1], made.k[0], made.v[0]), made.reference(q[1:], made.k[1], made.v[1])]
    torch.testing.assert_close(found.double(), torch.cat(wanted), atol=4e-3, rtol=4e-3)
    assert not step.fault


@pytest.mark.parametrize("sizes", [(2,), (8,)], ids=["as many rows", "padded rows"])
def test_a_page_outside_of_the_pool_is_a_fault_and_results_stay(sizes):
    torch.manual_seed(0)
    made = engine([40, 30], sizes=sizes)
    check(made, [40, 30])
    table = made.table.clone()
    table[1, 1] = 99
    step = made.plans.step([0, 1, 2], [40, 30], table)
    q, out = torch.randn(2, 4, 16, dtype=torch.float16), torch.full((2, 4, 16), 7, dtype=torch.float16)
    step.run(made.kernel, q, made.pages, out=out)
    assert (out == 7).all() and "sequence 1" in step.fault and "99" in step.fault


def test_a_narrower_table_has_no_columns_of_earlier_steps():
    torch.manual_seed(0)
    made = engine([40])
    check(made, [40])
    step = made.plans.step([0, 1], [40], made.table[:1, :1])
    q, out = torch.randn(1, 4, 16, dtype=torch.float16), torch.full((1, 4, 16), 7, dtype=torch.float16)
    step.run(made.kernel, q, made.pages, out=out)
    assert (out == 7).all() and "block_table[0, 1]: expected a page" in step.fault


def test_an_engines_table_is_read_where_it_lies():
    torch.manual_seed(0)
    made = engine([50, 19, 5, 7], sizes=(4,))
    made.plans = DevicePlans(4, made.table.shape[1], "cpu", (4,), in_place=True)
    kept, copied = made.table, made.plans.tables["kv.block_table"]
    for rows in ([40, 10, 1, 1], [1, 1, 1, 1], [1, 0, 2, 0], [1, 1, 0, 1]):
        check(made, rows)
        assert made.step.in_place and not copied.any()
    made.table = kept.clone()  # The engine keeps another table now, in which its pages are in other places.
    kept.fill_(-1)
    check(made, [1, 1, 1, 1])
    assert not made.step.in_place and torch.equal(copied, made.table)
    kept.copy_(made.table)
    made.table, made.k, made.v = kept[:2], made.k[:2], made.v[:2]  # The first of its sequences.
    copied.fill_(-1)
    for rows in ([1, 1], [1, 1], [2, 0]):
        check(made, rows)
        assert made.step.in_place and (copied == -1).all()


@pytest.mark.parametrize("form", ["64 bits", "few rows", "few columns", "strides"])
def test_a_table_that_kernels_cannot_read_is_copied(form):
    torch.manual_seed(0)
    made = engine([50, 19])
    rows, columns = made.table.shape
    made.plans = DevicePlans(4, columns + (form == "few columns"), "cpu", in_place=True)
    wide = torch.full((4, columns + 1), -1, dtype=torch.int64 if form == "64 bits" else torch.int32)
    table = wide[:2, :columns] if form == "strides" else wide.flatten()[: rows * columns].view(rows, columns)
    table = table.clone() if form == "few rows" else table
    table.copy_(made.table)
    made.table = table
    for each in ([40, 10], [1, 1], [2, 0]):
        check(made, each)
        assert not made.step.in_place


def test_a_step_of_no_sequences():
    made = engine([16])
    check(made, [16])
    assert made.plans.step([0], [], torch.zeros(0, 1, dtype=torch.int32)).rows == 0


def test_an_earlier_step_is_refused():
    made = engine([16])
    check(made, [16])
    early = made.step
    made.plans.step([0, 1], [16], made.table)
    with pytest.raises(PlanError, match="a later step's now"):
        early.run(made.kernel, torch.zeros(16, 4, 16, dtype=torch.float16), made.pages)


def test_the_first_table_may_say_how_wide_tables_are():
    torch.manual_seed(0)
    made = engine([50, 19], pages=None)
    assert not made.plans.tables
    check(made, [32, 3])
    assert list(made.plans.tables["kv.block_table"].shape) == [4, made.plans.pages]


def test_steps_of_fewer_sequences_leave_nothing_behind():
    torch.manual_seed(0)
    made = engine([50, 19, 5, 7], sizes=(4,))
    for rows in ([1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1]):
        check(made, rows)
    table = torch.zeros(2, 3, dtype=torch.int64)
    for count in (2, 1, 2):
        made.plans.step(range(count + 1), [1] * count, table[:count])
        starts, lengths = made.plans.tables["q_start"].tolist(), made.plans.tables["kv.lengths"].tolist()
        assert starts == [min(i, count) for i in range(5)] and lengths == [1] * count + [0] * (4 - count)


WRONG = [
    (([0, 1, 2, 3, 4, 5], [1] * 5, [[0]] * 5), r"lengths: .*at most 4.*nearest.*4"),
    (([0, 1], [1, 1], [[0]] * 2), r"q_start: .*\[3\], one more than lengths"),
    (([0, 1], [1], [0]), r"block_table: .*\[1, pages\]"),
    (([0.0, 1.0], [1], [[0]]), r"q_start: .*int32 or int64"),
    ((None, [1], [[0]]), r"q_start: .*int32 or int64, got None"),
    (([0, 1], [[1], [1, 2]], [[0]]), r"lengths: .*int32 or int64, got list"),
]


@pytest.mark.parametrize("tables, said", WRONG)
def test_tables_of_other_forms_are_refused(tables, said):
    with pytest.raises(PlanError, match=said):
        DevicePlans(4, 5, "cpu").step(*tables)


def test_packed_pages_are_refused():
    layer = Layer(q_heads=4, kv_heads=2, head_dim=64, dtype="float16", page_size=16, format="int8")
    pages, kernel = (
        layer.pages(torch.zeros(1, 2, 16, layer.token_bytes, dtype=torch.uint8)),
        engine([16]).kernel,
    )
    step, q = DevicePlans(1, 1, "cpu").step([0, 1], [1], [[0]]), torch.zeros(1, 4, 64, dtype=torch.float16)
    with pytest.raises(PlanError, match=r"pages: expected .*Layer\(device_plan=True\).*got 'int8'"):
        step.run(layer.compile("cpu"), q, pages)
    with pytest.raises(TensorError, match="pages: expected tensors of pages that are not packed"):
        step.run(kernel, q, pages)


def test_sizes_that_cannot_be_are_refused():
    with pytest.raises(PlanError, match="sequences"):
        DevicePlans(0, 5, "cpu")
    made = engine([16], sequences=1, pages=1)
    with pytest.raises(PlanError, match=f"rows: .*at most {PAGE}, the tokens of 1 sequences of 1 pages.*17"):
        made.plans.step([0, 16], [16], [[1]], rows=17).run(
            made.kernel, torch.zeros(17, 4, 16, dtype=torch.float16), made.pages
        )
    rows, few = torch.zeros(16, 4, 16, dtype=torch.float16), torch.zeros(3, 4, 16, dtype=torch.float16)
    step = made.plans.step([0, 16], [16], [[1]])
    with pytest.raises(TensorError, match=r"^q: expected 16 rows or more.*\[3, 4, 16\]"):
        step.run(made.kernel, few, made.pages)
    with pytest.raises(TensorError, match=r"^out: expected 16 rows or more.*\[3, 4, 16\]"):
        step.run(made.kernel, rows, made.pages, out=few)


@pytest.mark.parametrize("sizes", [(), (40,)], ids=["a power of two", "a size"])
def test_a_step_has_as_many_rows_as_tables_have_tokens(sizes):
    """The size of its launches, 32 or 40, would be more."""
    torch.manual_seed(0)
    for rows in ([18], [12, 5]):
        pages = -(-sum(rows) // 6)  # Pages have 6 tokens, so that neither size is whole pages.
        made = engine(rows, sequences=1 if len(rows) == 1 else 2, pages=pages, sizes=sizes, page=6)
        check(made, rows, pad=1)
    with pytest.raises(PlanError, match="rows: .*at most 36, the tokens of 2 sequences of 3 pages.*37"):
        made.plans.step([0, 12, 17], [12, 5], made.table, rows=37).run(
            made.kernel, torch.zeros(37, 4, 16, dtype=torch.float16), made.pages
        )
