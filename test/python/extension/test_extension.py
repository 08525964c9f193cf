# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn._attn: results, and descriptions of itself."""

import ctypes
import gc

import numpy as np
import pytest

_attn = pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")

from extension_problem import DECODE, Problem, bfloat16, widen  # noqa: E402


@pytest.fixture(scope="module")
def device():
    return _attn.Device.host()


@pytest.fixture(scope="module")
def compiled():
    return _attn.compile(DECODE)


@pytest.fixture(scope="module")
def kernel(device, compiled):
    return _attn.Kernel(compiled.artifact, device)


def test_computes_what_the_reference_says(kernel):
    problem = Problem()
    plan = kernel.plan(kernel.batch(problem.tensors()))
    assert kernel.slots == plan.slots == ("q", "kv.k_pages", "kv.v_pages", "o", "lse")
    assert plan.nbytes == tuple(problem.sizes())
    plan.run(problem.addresses(), problem.sizes())
    problem.check()


def test_checked_code_gives_the_same_bits_and_clean_detectors(kernel):
    plain, checked = Problem(), Problem()
    kernel.plan(kernel.batch(plain.tensors())).run(plain.addresses(), plain.sizes())
    device = _attn.Device.host(checked=True, seed=7, shuffle=True)
    instrumented = _attn.Kernel(_attn.compile(DECODE, checked=True).artifact, device)
    assert instrumented.checked and not kernel.checked
    instrumented.plan(instrumented.batch(checked.tensors())).run(checked.addresses(), checked.sizes())
    np.testing.assert_array_equal(plain.o, checked.o)
    report = device.report()
    assert report["clean"] and report["bytes_read"] > 0 and report["findings"] == []
    device.reset_report()
    assert device.report()["bytes_read"] == 0


def test_detectors_see_memory_that_nobody_wrote():
    device = _attn.Device.host(checked=True)
    kernel = _attn.Kernel(_attn.compile(DECODE, checked=True).artifact, device)
    problem = Problem()
    plan = kernel.plan(kernel.batch(problem.tensors()))
    queries = device.allocate(problem.q.nbytes, "queries")
    plan.run([queries.address, *problem.addresses()[1:]], problem.sizes())
    report = device.report()
    assert report["uninitialized"] > 0 and not report["clean"] and "unwritten" in report["text"]


def test_sizes_of_windows_are_run_time_values(kernel):
    problem = Problem()
    plan = kernel.plan(kernel.batch(problem.tensors(), ends=[8]))
    plan.run(problem.addresses(), problem.sizes())
    narrow = problem.o.copy()
    kernel.plan(kernel.batch(problem.tensors())).run(problem.addresses(), problem.sizes())
    assert (narrow[0] != problem.o[0]).any()
    with pytest.raises(_attn.Failure, match="expected 1 sizes"):
        kernel.batch(problem.tensors(), ends=[1, 2])


def test_updates_grow_where_they_must(kernel):
    problem = Problem()
    batch = kernel.batch(problem.tensors())
    plan = kernel.plan(batch)
    problem.lengths[:] += 1
    assert plan.update(kernel.batch(problem.tensors()))
    assert plan.stats()["extended"] == 1
    plan.run(problem.addresses(), problem.sizes())
    problem.check()
    more = Problem(pages=1000)
    more.q = np.repeat(more.q, 50, axis=0)
    more.o = np.zeros_like(more.q)
    more.lse = np.zeros((150, 4), np.float32)
    more.table = np.random.default_rng(1).integers(0, 1000, (150, 6)).astype(np.int32)
    more.lengths = np.full(150, 96, np.int32)
    assert not plan.update(kernel.batch(more.tensors()))
    assert plan.rows == 150
    plan.run(more.addresses(), more.sizes())
    more.check()


def test_plans_grow_in_few_words(device):
    """A plan that grows by some tokens gives the bits of an update with the same tables, both where tasks are extended
    and where they are made anew."""
    packed = "!attn.kv<packed, heads = 2, dim = 64, key = bf16, value = bf16>"
    text = DECODE.replace("!attn.kv<paged<16>, heads = 2, dim = 64, key = bf16, value = bf16>", packed)
    kernel = _attn.Kernel(_attn.compile(text).artifact, device)
    rng = np.random.default_rng(7)
    q = bfloat16(rng.standard_normal((3, 4, 64)))

    def batch(tokens, apart):
        tables = {
            "kv.lengths": [tokens] * 3,
            "kv.start": [0, apart, 2 * apart, 3 * apart],
            "q_start": range(4),
        }
        shapes = {"q": (3, 4, 64), "kv.k": (3 * apart, 2, 64), "kv.v": (3 * apart, 2, 64)}
        return kernel.batch(
            {name: ("bf16", shape, None) for name, shape in shapes.items()}
            | {name: ("i32", (len(table),), np.array(table, np.int32)) for name, table in tables.items()}
        )

    grows, told = kernel.plan(batch(70, 70)), kernel.plan(batch(70, 70))
    before = 70
    for tokens, apart in ((71, 71), (73, 80), (73, 90), (700, 700), (701, 701)):
        assert grows.grow(tokens - before, apart) == told.update(batch(tokens, apart))
        before = tokens
        k, v = (bfloat16(rng.standard_normal((3 * apart, 2, 64))) for _ in range(2))
        results = []
        for plan in (grows, told):
            o, lse = np.zeros((3, 4, 64), np.uint16), np.zeros((3, 4), np.float32)
            buffers = [q, k, v, o, lse]
            plan.run([array.ctypes.data for array in buffers], [array.nbytes for array in buffers])
            results.append((o, lse))
        assert (results[0][0] == results[1][0]).all() and (results[0][1] == results[1][1]).all()
        assert results[0][0].any()
    with pytest.raises(_attn.Failure, match="expected at most the 701 tokens"):
        grows.grow(1, 701)
    assert grows.grow(1, 702)


def test_a_batch_that_grew_is_another_for_other_plans(device):
    text = DECODE.replace("paged<16>", "packed")
    kernel = _attn.Kernel(_attn.compile(text).artifact, device)
    tables = {"kv.lengths": [9], "kv.start": [0, 9], "q_start": [0, 1]}
    shapes = {"q": (1, 4, 64), "kv.k": (9, 2, 64), "kv.v": (9, 2, 64)}
    batch = kernel.batch(
        {name: ("bf16", shape, None) for name, shape in shapes.items()}
        | {name: ("i32", (len(table),), np.array(table, np.int32)) for name, table in tables.items()}
    )
    first, second = kernel.plan(batch), kernel.plan(batch)
    first.grow(1, 10)
    for call in (lambda: second.run([0] * 5, [0] * 5), lambda: second.grow(1, 11)):
        with pytest.raises(_attn.Failure, match="has changed since it was planned"):
            call()
    with pytest.raises(_attn.Failure, match="packed store"):
        kernel_of_pages = _attn.Kernel(_attn.compile(DECODE).artifact, device)
        kernel_of_pages.plan(kernel_of_pages.batch(Problem().tensors())).grow(1, 100)


def test_tensor_maps_follow_addresses(device):
    """Prefill on Hopper reads through tensor maps, which must follow the tensors of another layer."""
    text = DECODE.replace("4x64", "4x128").replace("dim = 64", "dim = 128")
    kernel = _attn.Kernel(_attn.compile(text).artifact, device)
    assert '"map"' in kernel.manifest
    rng = np.random.default_rng(5)
    table = np.arange(16, dtype=np.int32).reshape(1, 16)

    def layer():
        shapes = [(256, 4, 128), (16, 16, 2, 128), (16, 16, 2, 128)]
        return [bfloat16(rng.standard_normal(shape)) for shape in shapes]

    names = ("q", "kv.k_pages", "kv.v_pages")
    layers = [layer(), layer()]
    tables = {
        "q_start": np.array([0, 256], np.int32),
        "kv.block_table": table,
        "kv.lengths": np.array([256], np.int32),
    }
    described = {name: ("bf16", array.shape, None) for name, array in zip(names, layers[0], strict=True)}
    plan = kernel.plan(kernel.batch({**described, **tables}))
    o, lse = np.zeros((256, 4, 128), np.uint16), np.zeros((256, 4), np.float32)
    for arrays in layers:
        buffers = [*arrays, o, lse]
        plan.run([array.ctypes.data for array in buffers], [array.nbytes for array in buffers])
        given = {name: ("bf16", array.shape, array) for name, array in zip(names, arrays, strict=True)}
        dtype, shape, content = _attn.reference(text, {**given, **tables})["o"]
        exact = np.frombuffer(content).reshape(shape)
        error = np.linalg.norm(widen(o) - exact, axis=-1) / np.linalg.norm(exact, axis=-1)
        assert error.max() <= 8e-3


def test_strategies_move_only_rounding(kernel):
    for strategy in ("auto", "flatten", "by-query", "by-node", "by-node-chunk"):
        problem = Problem()
        kernel.plan(kernel.batch(problem.tensors()), strategy=strategy).run(
            problem.addresses(), problem.sizes()
        )
        problem.check()


def test_fixed_plans_refuse_what_does_not_fit(kernel):
    problem = Problem()
    plan = kernel.plan(kernel.batch(problem.tensors()), blocks=4)
    plan.fix()
    problem.lengths[:] -= 1
    plan.update(kernel.batch(problem.tensors()))
    plan.run(problem.addresses(), problem.sizes())
    before = problem.o.copy()
    with pytest.raises(_attn.Failure):
        plan.update(kernel.batch({**problem.tensors(), "kv.block_table": np.zeros((3, 4000), np.int32)}))
    problem.o[:] = 0
    plan.run(problem.addresses(), problem.sizes())  # as it was
    assert (problem.o == before).all() and before.any()


def test_buffers_may_share_one_tensor(kernel):
    problem = Problem()
    both = np.concatenate([problem.k, problem.v])
    plan = kernel.plan(kernel.batch(problem.tensors()))
    address, half = both.ctypes.data, problem.k.nbytes
    addresses = [
        problem.q.ctypes.data,
        address,
        address + half,
        problem.o.ctypes.data,
        problem.lse.ctypes.data,
    ]
    sizes = problem.sizes()
    sizes[1] = both.nbytes  # overlaps the values
    plan.run(addresses, sizes)
    problem.check()


def test_diagnostics_carry_the_place():
    with pytest.raises(_attn.Failure) as caught:
        _attn.compile(DECODE.replace("causal", "nonsense"), name="mine")
    assert caught.value.kind == "input"
    assert caught.value.message.startswith("mine:6:43: error:")
    assert caught.value.args == ("input", caught.value.message) and str(caught.value) == caught.value.message
    assert "remark: schedule" in _attn.compile(DECODE).remarks[0]


def test_every_level_can_be_printed():
    for level in ("problem", "online", "tile", "machine", "ptx", "manifest"):
        assert _attn.emit(DECODE, level).strip()
    assert b"attn.attend" in _attn.emit(DECODE, "problem")
    assert _attn.check(DECODE) == _attn.emit(DECODE, "problem").decode()


def test_build_info_names_the_build():
    info = _attn.build_info()
    assert info["host_target"].startswith("x86-64-v")
    assert len(info["producer"].rsplit(" ", 1)[1]) == 16, "the linker's build id"
    assert _attn.targets() == ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"]


def test_views_copy_nothing():
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    view = _attn.View(array[::2, 1:])
    assert (view.shape, view.strides, view.dtype, view.contiguous) == ((2, 5), (12, 1), "f32", False)
    assert view.address == array[::2, 1:].ctypes.data and view.nbytes == 40 and view.device == "cpu"
    assert _attn.View(b"abc").readonly and _attn.View(array).contiguous
    with pytest.raises(_attn.Failure, match="format"):
        _attn.View(np.zeros(3, complex))
    with pytest.raises(TypeError):
        _attn.View(3)


def test_views_of_torch_keep_it_alive():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    tensor = torch.full((3, 5), 2.0, dtype=torch.bfloat16)
    view = _attn.View(tensor.T)
    assert (view.dtype, view.shape, view.strides, view.address) == ("bf16", (5, 3), (1, 5), tensor.data_ptr())
    del tensor
    gc.collect()
    assert ctypes.c_uint16.from_address(view.address).value == 0x4000
    with pytest.raises(_attn.Failure, match="dtype"):
        _attn.View(torch.zeros(3, dtype=torch.complex64))
