# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Repeated calls: they take the short way to a launch, and notice every change.

Forward calls and calls that autograd records are in one file, since the latter are forward calls first, and both are
watched and compared in the same way.
"""

import gc
import os
import subprocess
import sys
import threading
import weakref

import numpy
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import attn  # noqa: E402
from attn import _attn  # noqa: E402
from attn.run import attention, direct, torch_gradients  # noqa: E402
from attn.run.launches import beside_pools, form_of  # noqa: E402
from fresh_process import PYTHON  # noqa: E402
from gradient_tensors import error  # noqa: E402

pytestmark = pytest.mark.skipif(
    not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), reason="this PyTorch's tensors are read by Python"
)
TOLERANCE = 8e-3


@pytest.fixture
def anew(monkeypatch):
    """Return a function that gives the steps that took the long way, "forward", "record" or "backward", and clears
    them."""
    done = []

    def watched(module, name, what):
        ours = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *args, **named: done.append(what) or ours(*args, **named))

    watched(attention, "attend_now", "forward")
    watched(torch_gradients, "attend_now", "forward")
    watched(torch_gradients, "attend", "record")
    watched(torch_gradients.Differentiable, "gradients", "backward")
    attention._launches.clear()
    torch_gradients._known.clear()

    def take():
        taken = list(done)
        done.clear()
        return taken

    return take


def qkv(batch=2, rows=7, tokens=9, heads=4, kv_heads=2, dim=16, dtype=torch.bfloat16):
    shapes = (rows, heads), (tokens, kv_heads), (tokens, kv_heads)
    return tuple(torch.randn(batch, *shape, dim).to(dtype) for shape in shapes)


def reference(*tensors, **options):
    return attn.attend(*(tensor.detach() for tensor in tensors), reference=True, **options)


def check(*tensors, **options):
    found = attn.attend(*tensors, **options)
    wanted = reference(*tensors, **options)
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    assert error(found.detach(), wanted) <= TOLERANCE


def check_gradients(tensors, d_out=None, wanted=(0, 1, 2), **options):
    """Compare gradients of those `tensors` that require one; `wanted` are their indices."""
    asked = [tensors[i] for i in wanted]
    out = attn.attend(*tensors, **options)
    d_out = torch.randn(out.shape).to(out.dtype) if d_out is None else d_out
    found = torch.autograd.grad(out, asked, d_out)
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    out = attn.attend(*exact, **options, reference=True)
    for one, other in zip(
        found, torch.autograd.grad(out, [exact[i] for i in wanted], d_out.double()), strict=True
    ):
        assert one.shape == other.shape and error(one, other) <= TOLERANCE


# --- Forward -------------------------------------------------------------------------------------------------


def test_a_call_like_one_before_is_only_launched(anew):
    for options in ({}, {"causal": True, "window": 4}, {"scale": 0.25, "softcap": 5.0}):
        check(*qkv(), **options)
        assert anew() == ["forward"] + ["record"]  # by the reference
        check(*qkv(), **options)
        assert anew() == ["record"]


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 6},
        {"batch": 7, "rows": 2},
        {"tokens": 8},
        {"heads": 2},
        {"kv_heads": 4},
        {"dim": 32},
        {"dtype": torch.float16},
    ],
    ids=str,
)
def test_other_shapes_and_dtypes_are_new(anew, change):
    check(*qkv())
    anew()
    check(*qkv(**change))
    assert anew() == ["forward", "record"]
    check(*qkv())
    check(*qkv(**change))
    assert anew() == ["record", "record"]


@pytest.mark.parametrize(
    "change",
    [
        {"causal": True},
        {"scale": 1.0},
        {"scale": 1},
        {"softcap": 2.0},
        {"return_lse": True},
        {"see": attn.causal()},
    ],
    ids=str,
)
def test_other_options_are_new(anew, change):
    q, k, v = qkv()
    attn.attend(q, k, v)
    anew()
    attn.attend(q, k, v, **change)
    assert anew() == ["forward"]
    found = attn.attend(q, k, v, **change)
    assert anew() == []
    wanted = reference(q, k, v, **change)
    pairs = zip(found, wanted, strict=True) if "return_lse" in change else [(found, wanted)]
    assert all(error(one, other) <= TOLERANCE for one, other in pairs)


def test_what_is_refused_is_refused_again(anew):
    q, k, v = qkv()
    attn.attend(q, k, v, causal=True)
    for _ in range(2):
        for options in ({"causal": "yes"}, {"window": 3}, {"layout": "sbhd"}, {"window": 3, "nonsense": 1}):
            with pytest.raises(attn.SpecError if "layout" not in options else attn.TensorError):
                attn.attend(q, k, v, **options)
        with pytest.raises(attn.TensorError):
            attn.attend(q, k, v.float())


def test_strides(anew):
    """Each set of strides takes the long way once; results are those of dense tensors."""
    q, k, v = qkv(rows=9, kv_heads=4)
    packed = torch.stack((q, k, v), 2)
    room = [torch.zeros(2, 12, 4, 16, dtype=torch.bfloat16) for _ in range(2)]
    for part, given in zip(room, (k, v), strict=True):
        part[:, :9] = given
    ways = [
        (q, k, v),
        packed.unbind(2),
        (q, room[0][:, :9], room[1][:, :9]),
        tuple(tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in (q, k, v)),
    ]
    wanted = attn.attend(q, k, v, causal=True)
    attention._launches.clear()
    anew()
    for way in ways:
        assert torch.equal(attn.attend(*way, causal=True), wanted)
    assert anew() == ["forward"] * len(ways)
    for way in ways:
        assert torch.equal(attn.attend(*way, causal=True), wanted)
    assert anew() == []


def test_results_lie_as_before(anew):
    """Results have the layout of earlier calls: a view in the other layout, and memory in its own order."""
    q, k, v = (tensor.transpose(1, 2) for tensor in qkv(rows=9))
    for tensors in ((q, k, v), tuple(tensor.contiguous() for tensor in (q, k, v))):
        first = attn.attend(*tensors, layout="bhsd", return_lse=True)
        assert "forward" in anew()
        again = attn.attend(*tensors, layout="bhsd", return_lse=True)
        assert not anew()
        for one, other in zip(first, again, strict=True):
            assert one.stride() == other.stride() and torch.equal(one, other)
            assert one.data_ptr() != other.data_ptr()


def test_a_query_that_is_copied_goes_the_long_way(anew):
    q, k, v = qkv(rows=9)
    other = q.transpose(1, 2).contiguous().transpose(1, 2)
    k, v = (tensor[:, :, :1] for tensor in (k, v))
    wanted = attn.attend(q, k.contiguous(), v.contiguous())
    for _ in range(2):
        assert torch.equal(attn.attend(other, k.contiguous(), v.contiguous()), wanted)


def test_misaligned_memory_is_copied_in_each_call(anew):
    q, k, v = qkv()
    attn.attend(q, k, v)
    odd = torch.empty(q.numel() + 1, dtype=q.dtype)[1:].view(q.shape)
    for _ in range(2):
        check(odd.copy_(q), k, v)
        q = torch.randn(q.shape).to(q.dtype)


def test_tables_are_read_in_each_call(anew):
    """Lists, arrays and tensors may change between calls, and are read in each."""
    q, k, v = qkv()
    for table in ([9, 5], numpy.array([9, 5], numpy.int32), torch.tensor([9, 5]), torch.tensor([9, 5]).int()):
        for lengths in ((9, 5), (3, 8), (9, 5)):
            table[0], table[1] = lengths
            check(q, k, v, kv_lengths=table)
            check_gradients([tensor.requires_grad_() for tensor in qkv()], kv_lengths=table)
    attn.attend(q, k, v, kv_lengths=table)
    anew()
    attn.attend(q, k, v, kv_lengths=table)
    assert anew() == []


def test_packed_sequences(anew):
    tensors = [torch.randn(12, 2, 16).to(torch.bfloat16).requires_grad_() for _ in range(3)]
    for starts in ([0, 5, 12], [0, 6, 12], [0, 5, 12]):
        check(*tensors, cu_seqlens=starts, causal=True)
        check_gradients(tensors, cu_seqlens=starts, causal=True)


def test_equal_visibilities_are_one(anew):
    q, k, v = qkv()
    attn.attend(q, k, v, see=attn.causal() & attn.recent(4))
    anew()
    attn.attend(q, k, v, see=attn.causal() & attn.recent(4))
    assert anew() == []
    check(q, k, v, see=attn.causal() & attn.recent(5))


def test_sink_logits(anew):
    q, k, v = qkv()
    sinks = torch.randn(4)
    for given in (None, sinks, sinks + 1):
        check(q, k, v, sink_logits=given)
    anew()
    attn.attend(q, k, v, sink_logits=sinks)
    assert anew() == []
    with pytest.raises(attn.TensorError):
        attn.attend(q, k, v, sink_logits=sinks.double())


def test_plans_that_others_take_over_are_made_again(anew):
    first = qkv(rows=1, tokens=30)
    check(*first, causal=True)
    for tokens in range(31, 31 + 2 * direct._MOST_PLANS):
        check(*qkv(rows=1, tokens=tokens), causal=True)
    anew()
    check(*first, causal=True)
    assert "forward" in anew()


def test_calls_in_use_keep_their_plans(anew):
    """A short launch counts as a use, as a call that goes the long way does."""
    first = qkv(rows=1, tokens=60)
    attn.attend(*first, causal=True)
    for tokens in range(61, 61 + 2 * direct._MOST_PLANS):
        attn.attend(*qkv(rows=1, tokens=tokens), causal=True)
        anew()
        attn.attend(*first, causal=True)
        assert anew() == []


def test_memory_is_bounded(anew):
    q, k, v = qkv()
    for i in range(140):
        attn.attend(q, k, v, scale=0.1 + i / 64)
    assert len(attention._launches) <= 128


# --- Calls that autograd records -----------------------------------------------------------------------------


def leaves(**shape):
    return [tensor.requires_grad_() for tensor in qkv(**shape)]


def test_gradients_of_calls_like_ones_before_are_only_launched(anew):
    for _ in range(2):
        tensors = leaves()
        attn.attend(*tensors, causal=True).backward(torch.randn(2, 7, 4, 16).to(torch.bfloat16))
    anew()
    check_gradients(leaves(), causal=True)
    assert anew() == ["record", "backward"]  # by the reference


def test_some_inputs_alone_require_a_gradient(anew):
    for _ in range(2):
        for chosen in ((0, 1, 2), (0,), (1,), (2,), (0, 2)):
            tensors = [tensor.requires_grad_() if i in chosen else tensor for i, tensor in enumerate(qkv())]
            check_gradients(tensors, wanted=chosen)
            check_gradients(leaves(), wanted=chosen)
            out = attn.attend(*tensors)
            out.sum().backward()
            assert [tensor.grad is not None for tensor in tensors] == [i in chosen for i in range(3)]


def test_recording_begins_and_ends(anew):
    tensors = leaves()
    for _ in range(2):
        assert attn.attend(*tensors).requires_grad
        with torch.no_grad():
            assert not attn.attend(*tensors).requires_grad
        with torch.inference_mode():
            assert attn.attend(*tensors).is_inference()
        assert not attn.attend(*(tensor.detach() for tensor in tensors)).requires_grad
    anew()
    with torch.inference_mode():
        made = qkv()
        check(*made)
    assert error(attn.attend(*made), reference(*made)) <= TOLERANCE


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_gradients_of_results_that_lie_otherwise(anew, layout):
    for _ in range(2):
        tensors = leaves()
        if layout == "bhsd":
            tensors = [tensor.detach().transpose(1, 2).requires_grad_() for tensor in tensors]
        shape = tensors[0].shape
        values = torch.randn(shape).to(torch.bfloat16)
        ways = [
            values,
            values.transpose(1, 2).contiguous().transpose(1, 2),
            torch.stack((values, values), -1)[..., 0],
            torch.ones((), dtype=torch.bfloat16).expand(shape),
            torch.empty(values.numel() + 1, dtype=torch.bfloat16)[1:].view(shape).copy_(values),
        ]
        for d_out in ways:
            check_gradients(tensors, d_out, layout=layout)
        attn.attend(*tensors, layout=layout).sum().backward()


def test_inputs_that_lie_otherwise(anew):
    for _ in range(2):
        packed = torch.randn(2, 9, 3, 4, 16).to(torch.bfloat16)
        tensors = [tensor.detach().requires_grad_() for tensor in packed.unbind(2)]
        check_gradients(tensors, causal=True)
        swapped = [
            tensor.transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for tensor in qkv(rows=9)
        ]
        check_gradients(swapped, causal=True)
        storage = torch.randn(2 * 9 * 4 * 16 + 8).to(torch.bfloat16)
        far = storage[8:].view(2, 9, 4, 16).requires_grad_()
        check_gradients([far, *tensors[1:]], causal=True)


def test_gradients_of_lse(anew):
    tensors = leaves()
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    for pick in (
        lambda o, s: s.sum(),
        lambda o, s: o.double().sum() + s.sum(),
        lambda o, s: o.double().sum(),
    ) * 2:
        found = torch.autograd.grad(pick(*attn.attend(*tensors, return_lse=True)), tensors)
        wanted = torch.autograd.grad(pick(*attn.attend(*exact, return_lse=True, reference=True)), exact)
        assert all(error(one, other) <= TOLERANCE for one, other in zip(found, wanted, strict=True))


def test_sinks_have_gradients(anew):
    for needed in (True, False, True):
        tensors, sinks = leaves(), torch.randn(4, requires_grad=needed)
        exact = [
            tensor.detach().double().requires_grad_(tensor.requires_grad) for tensor in (*tensors, sinks)
        ]
        attn.attend(*tensors, sink_logits=sinks).sum().backward()
        attn.attend(*exact[:3], sink_logits=exact[3], reference=True).sum().backward()
        for one, other in zip((*tensors, sinks), exact, strict=True):
            assert (one.grad is None) == (other.grad is None)
            assert one.grad is None or error(one.grad, other.grad) <= TOLERANCE


def test_the_same_bits(anew):
    """Gradients have the same bits whether they take the short or the long way."""
    tensors = leaves(batch=1, rows=70, tokens=70)
    d_out = torch.randn(1, 70, 4, 16).to(torch.bfloat16)

    def run():
        return torch.autograd.grad(attn.attend(*tensors, ordered=True), tensors, d_out)

    first = run()
    anew()
    assert all(torch.equal(one, other) for one, other in zip(first, run(), strict=True))
    assert anew() == []


def test_determinism_may_be_asked_for_between_the_passes(anew, monkeypatch):
    kernels = []
    compile_asked = torch_gradients.compile_asked
    monkeypatch.setattr(
        torch_gradients,
        "compile_asked",
        lambda *given: kernels.append(given[1].ordered) or compile_asked(*given),
    )
    tensors = leaves(rows=600, tokens=600, batch=1)
    try:
        for deterministic in (False, True, False, True):
            torch.use_deterministic_algorithms(deterministic)
            attn.attend(*tensors).sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
    assert kernels == [None, True]


def test_tensors_that_change_before_backward(anew):
    for _ in range(3):
        q, k, v = leaves()
        out = attn.attend(q, k, v)
        with torch.no_grad():
            k.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


def test_backward_twice(anew):
    for _ in range(3):
        tensors = leaves()
        out = attn.attend(*tensors)
        first = torch.autograd.grad(out.sum(), tensors, retain_graph=True)
        again = torch.autograd.grad(out.sum(), tensors)
        assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.grad(out.sum(), tensors)
        (d_q,) = torch.autograd.grad(
            attn.attend(*tensors).float().square().sum(), tensors[:1], create_graph=True
        )
        with pytest.raises(attn.TensorError, match="second derivatives"):
            d_q.sum().backward()


def test_checkpoints_and_hooks_of_saved_tensors(anew):
    checkpoint = torch.utils.checkpoint.checkpoint
    tensors = leaves()
    wanted = torch.autograd.grad(attn.attend(*tensors, causal=True).float().square().sum(), tensors)
    for reentrant in (False, True) * 2:
        out = checkpoint(lambda *given: attn.attend(*given, causal=True), *tensors, use_reentrant=reentrant)
        for tensor in tensors:
            tensor.grad = None
        out.float().square().sum().backward()
        assert all(torch.equal(tensor.grad, other) for tensor, other in zip(tensors, wanted, strict=True))
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: packed.append(1) or x.clone(), lambda x: x):
        out = attn.attend(*tensors, causal=True)
    found = torch.autograd.grad(out.float().square().sum(), tensors)
    assert len(packed) == 5 and all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


def test_transforms_and_forward_mode_are_refused_as_ever(anew):
    q, k, v = qkv()
    attn.attend(q, k, v)
    attn.attend(*leaves())
    total = lambda q: attn.attend(q, k, v).float().sum()  # noqa: E731
    for transform in (torch.func.grad, torch.func.vmap):
        with pytest.raises(attn.TensorError, match="does not support"):
            transform(total)(q)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(q, torch.ones_like(q))
        with pytest.raises(attn.TensorError, match="does not support"):
            attn.attend(dual, k, v)


def test_compiled_code_sees_an_operator(anew):
    tensors = leaves()
    wanted = attn.attend(*tensors)
    compiled = torch.compile(lambda *given: attn.attend(*given), backend="eager", fullgraph=True)
    assert torch.equal(compiled(*tensors), wanted) and torch.equal(compiled(*tensors), wanted)


def test_subclasses_and_other_libraries(anew):
    class Named(torch.Tensor):
        pass

    q, k, v = qkv(dtype=torch.float16)
    wanted = attn.attend(q, k, v)
    for _ in range(2):
        assert torch.equal(attn.attend(q.as_subclass(Named), k, v).as_subclass(torch.Tensor), wanted)
        found = attn.attend(q.numpy(), k.numpy(), v.numpy())
        assert isinstance(found, numpy.ndarray) and (found == wanted.numpy()).all()
        assert torch.equal(attn.attend(torch.nn.Parameter(q, requires_grad=False), k, v), wanted)


def test_threads(anew):
    """Calls of several threads that share a plan have separate results."""
    problems = [leaves(rows=7 + i % 2) for i in range(8)]
    d_outs = [torch.randn(tensors[0].shape).to(torch.bfloat16) for tensors in problems]

    def run(i):
        out = attn.attend(*problems[i], causal=True, ordered=True)
        return out.detach(), *torch.autograd.grad(out, problems[i], d_outs[i])

    wanted, failures = [run(i) for i in range(8)], []

    def work(i):
        try:
            for _ in range(20):
                assert all(torch.equal(one, other) for one, other in zip(run(i), wanted[i], strict=True))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_no_memory_is_held(anew):
    """Prepared launches keep no tensor alive."""
    for _ in range(2):
        tensors = leaves()
        out = attn.attend(*tensors)
        out.sum().backward()
        watched = [weakref.ref(each) for each in (*tensors, out, *(tensor.grad for tensor in tensors))]
        del tensors, out
        gc.collect()
        assert all(each() is None for each in watched)


def test_forests_are_not_kept():
    """Forests of earlier calls are released, and equal forests are separate."""
    gone = []
    for _ in range(200):
        forest = attn.Forest([0, 3, 5, 7], [-1, 0, 0])
        gone.append(weakref.ref(forest))
        tensors = [torch.randn(7, 2, 16).half() for _ in range(3)]
        assert torch.equal(attn.attend(*tensors, forest=forest), attn.attend(*tensors, forest=forest))
    del forest
    gc.collect()
    assert sum(each() is not None for each in gone) <= 130


def test_launches_that_cannot_be():
    """A launch whose tensors are not among the given, made and kept ones is refused."""
    q, k, v = qkv()
    attn.attend(q, k, v)
    call = next(iter(direct._calls.values()))
    given = dict(owner=call, plan=call.plan._native, clock=iter(range(9)), likes=[], device=q.device, kept=[])
    given |= dict(places=[0, 1], nbytes=[8, 8], strides=[None, None], results=0)
    launches = _attn.Launches()
    for wrong, why in (
        ({"places": [0, 3]}, "places"),
        ({"results": (0, 3)}, "results"),
        ({"kept": [q], "results": 3}, "results"),
    ):
        with pytest.raises(_attn.Failure, match=why):
            launches.add((q, k, v), (), lambda wrong=wrong: _attn.Launch(**given | wrong))
    with pytest.raises(_attn.Failure, match="as many sizes"):
        _attn.Launch(**given | {"nbytes": [8]})
    with pytest.raises(ZeroDivisionError):
        launches.add((q, k, v), (), lambda: 1 // 0)
    launches.add((q, k, v), (), lambda: None)
    assert len(launches) == 0


def test_a_pytorch_whose_tensors_python_reads():
    """All calls take the long way."""
    code = """
import torch
del torch.Tensor.__dlpack_c_exchange_api__
import attn
from attn.run import attention
tensors = [torch.randn(2, 9, 4, 16).half().requires_grad_() for _ in range(3)]
exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
wanted = torch.autograd.grad(attn.attend(*exact, reference=True).sum(), exact)
for _ in range(2):
    found = torch.autograd.grad(attn.attend(*tensors).sum(), tensors)
    assert all((one - other).norm() < 2e-3 * other.norm() for one, other in zip(found, wanted))
assert len(attention._launches) == 0
"""
    environment = os.environ | {"PYTHONPATH": str(PYTHON)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_memory_is_made_beside_pools():
    """Kept memory is made in a thread of its own: this one may allocate from the pool of a CUDA graph."""
    names = []
    made = beside_pools(lambda: names.append(threading.current_thread().name) or torch.zeros(3))
    assert torch.equal(made, torch.zeros(3)) and names != [threading.current_thread().name]
    with pytest.raises(ZeroDivisionError):
        beside_pools(lambda: 1 // 0)


def test_forms_are_on_the_cpu():
    """A form takes no memory of a GPU, whose allocator may serve a CUDA graph."""
    given = torch.empty(2, 197, 12, 64, device="meta").transpose(1, 2)
    like = form_of(given)
    assert like.device.type == "cpu" and like.untyped_storage().nbytes() < 8000
    assert torch.empty_like(like, device="meta").stride() == given.stride()
