# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies of kernels, descriptions and owners of pages: the same object, one compiled again, or an error that says why."""

import copy
import io
import pickle

import attn
import numpy
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from attn.memory import devices  # noqa: E402
from attn.run import kernels  # noqa: E402
from kernel_problem import Problem, spec  # noqa: E402


@pytest.fixture
def kernel():
    return attn.compile(spec(), device="host")


def pickled(value):
    return pickle.loads(pickle.dumps(value))


def test_a_copy_of_a_kernel_is_the_kernel(kernel):
    assert copy.copy(kernel) is kernel and copy.deepcopy([kernel])[0] is kernel


def test_a_pickled_kernel_is_found_in_memory_or_made_again(kernel):
    problem = Problem()
    plan = kernel.plan(problem.batch)
    expected = kernel.run(problem.q, (problem.k, problem.v), plan)
    assert pickled(kernel) is kernel
    content = pickle.dumps(kernel)
    kernels.clear_kernels()
    again = pickle.loads(content)
    assert again is not kernel and again.key == kernel.key and again.device == "host"
    found = again.run(problem.q, (problem.k, problem.v), again.plan(problem.batch))
    assert numpy.array_equal(found, expected)
    assert pickle.loads(content) is again is attn.compile(spec(), device="host")


def test_sizes_of_windows_survive():
    """Sizes of windows are kept, although they are no part of the compiled code."""
    small, large = (attn.compile(spec(see=attn.window(size)), device="host") for size in (37, 90))
    for made in (small, large):
        found = pickled(made)
        assert (found.text, found.ends, found.key) == (made.text, made.ends, made.key)
        assert pickled(made) is found
    assert small.ends != large.ends and small.key == large.key


def test_a_module_with_a_kernel_is_copied_and_saved(kernel):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    module = torch.nn.Linear(2, 2)
    module.kernel = kernel
    assert copy.deepcopy(module).kernel is kernel
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    found = torch.load(file, weights_only=False)
    assert found.kernel is kernel and torch.equal(found.weight, module.weight)


def test_a_kernel_on_a_device_of_the_callers_own():
    kernel = attn.compile(spec(), device=devices.checked_host(), checked=True)
    assert copy.deepcopy(kernel) is kernel
    with pytest.raises(TypeError, match=r"device object of the caller's own.* pickle its attn\.Spec"):
        pickle.dumps(kernel)


def test_a_score_function_travels_with_its_description():
    """Functions are traced, so a lambda can be pickled with its description."""
    described = spec(score=lambda s, h, qi, ki: s * 2.0 + qi)
    for found in (pickled(described), copy.deepcopy(described)):
        assert found == described and found.mlir() == described.mlir()
    kernel = attn.compile(described, device="host")
    assert pickled(kernel) is kernel


def test_a_forest_stays_read_only():
    forest = attn.Forest([0, 3, 5], [-1, 0])
    for found in (pickled(forest), copy.deepcopy(forest), copy.copy(forest)):
        assert found == forest and hash(found) == hash(forest)
        assert not any(each.flags.writeable for each in (found.node_start, found.parent, found.pos0))


def holders():
    """Return owners of memory or pages of a device, by their name in the error."""
    kernel = attn.compile(spec(device_plan=True), device="host")
    plan = kernel.plan(Problem().batch)
    yield "Plan", plan, "Kernel.plan"
    cache = attn.PagedCache(
        layers=1, pages=8, page_size=4, kv_heads=1, head_dim=16, dtype="float16", device="host"
    )
    yield "PagedCache", cache, "PagedCache.fork"
    node = cache.add()
    change = cache.append(node, 3)
    yield "CacheChange", change, "append"
    change.write(0, *(numpy.zeros((3, 1, 16), numpy.float16) for _ in range(2)))
    yield "CacheLayer", cache.layer(0), "PagedCache.layer"
    yield "CacheBatch", cache.batch([(node, 3)]), "PagedCache.batch"
    pages = attn.Spec(
        q_heads=1,
        kv_heads=1,
        head_dim=16,
        dtype="float16",
        kv=[attn.Paged(page_size=4)],
        see=attn.causal(),
        device_plan=True,
    )
    planner = attn.compile(pages, device="host").device_planner(cache.batch([(node, 3)]), tokens=8)
    yield "DevicePlanner", planner, "Kernel.device_planner"
    yield "DevicePlan", planner.plan(), "DevicePlanner.plan"
    pool = attn.PagePool(pages=8, requests=1, lists=2, columns=4, device="host")
    yield "PagePool", pool, "another PagePool"


def test_what_owns_memory_says_what_to_do_instead():
    for name, held, instead in holders():
        for way in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError) as error:
                way({"held": held} if way is not copy.copy else held)
            assert str(error.value).startswith(f"attn's {name} cannot be copied or pickled: "), name
            assert instead in str(error.value)
