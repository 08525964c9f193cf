# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Repeated runs of a plan: they take the short way to a launch, and notice every change."""

import numpy
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import attn  # noqa: E402
import kernel_problem  # noqa: E402
import oracle  # noqa: E402
from attn.run import kernel  # noqa: E402

pytestmark = pytest.mark.skipif(
    not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), reason="this PyTorch's tensors are read by Python"
)


@pytest.fixture
def run_anew(monkeypatch):
    """Return a function that gives the number of runs that took the long way, and resets it to 0."""
    done = []
    views = kernel.view_of
    monkeypatch.setattr(
        kernel, "view_of", lambda name, *given: (name == "out" and done.append(1)) or views(name, *given)
    )

    def take():
        taken = len(done)
        done.clear()
        return taken

    return take


def assert_near(found, wanted):
    wanted = torch.from_numpy(wanted).double()
    assert (found.double() - wanted).norm() < 1e-3 * wanted.norm()


class Paged:
    """Decoding, with tensors of PyTorch."""

    def __init__(self, **changes):
        self.problem = kernel_problem.Problem()
        self.q, self.k, self.v = (
            torch.from_numpy(each) for each in (self.problem.q, self.problem.k, self.problem.v)
        )
        self.kernel = attn.compile(kernel_problem.spec(**changes), device="host")
        extras = {"sink_logits": ("float32", (4,))} if changes.get("sink_logits") else {}
        self.plan = self.kernel.plan(self.problem.batch | extras)

    def run(self, **named):
        return self.kernel.run(self.q, (self.k, self.v), self.plan, **named)


def test_a_run_like_one_before_is_only_launched(run_anew):
    paged = Paged()
    out, lse = torch.empty_like(paged.q), torch.empty(paged.q.shape[:2])
    for count in (4, 0):
        paged.problem.check(paged.run())
        paged.problem.check(*paged.run(return_lse=True))
        assert paged.run(out=out) is out
        paged.problem.check(out)
        found = paged.run(out=out.zero_(), lse=lse.zero_(), return_lse=True)
        assert found[0] is out and found[1] is lse
        paged.problem.check(out, lse)
        assert run_anew() == count
    paged.q.neg_()
    paged.problem.check(paged.run())  # the problem has the same memory
    assert run_anew() == 0


def test_strides_of_runs(run_anew):
    paged = Paged()
    wanted = paged.run()
    wide = torch.zeros(3, 8, 64, dtype=torch.float16)
    wide[:, ::2] = paged.q
    room = torch.zeros(3, 4, 128, dtype=torch.float16)
    run_anew()
    for count in (1, 1, 0, 0):
        out = room[..., :64] if count == 0 else None
        found = paged.kernel.run(wide[:, ::2], (paged.k, paged.v), paged.plan, out=out)
        assert torch.equal(found, wanted)
        if out is None:
            paged.run(out=room[..., :64])
    assert run_anew() == 3


def test_runs_are_refused_as_ever(run_anew):
    paged, other = Paged(), Paged(see=attn.all_tokens())
    out, lse = torch.empty_like(paged.q), torch.empty(paged.q.shape[:2])
    paged.run()
    paged.run(out=out, lse=lse)
    paged.run(return_lse=True)
    for _ in range(2):
        for named in (
            {"out": paged.q},
            {"lse": lse[:2]},
            {"rows": "all"},
            {"bias": lse},
            {"classes": [0, 0]},
        ):
            with pytest.raises(attn.TensorError):
                paged.run(**named)
        with pytest.raises(attn.PlanError):
            other.kernel.run(paged.q, (paged.k, paged.v), paged.plan)
        for operands in ((), ((paged.k,),), ((paged.k,), (paged.v,)), (paged.k, paged.v), ((paged.v, None),)):
            with pytest.raises(attn.TensorError):
                paged.kernel.run(paged.q, *operands, paged.plan)
        with pytest.raises(attn.TensorError, match="requires a gradient|paged store has no gradients"):
            paged.kernel.run(paged.q.clone().requires_grad_(), (paged.k, paged.v), paged.plan)


def test_runs_of_plans_that_are_updated(run_anew):
    paged = Paged()
    paged.run()
    run_anew()
    for lengths in ([4, 30, 50], [5, 37, 64]):
        paged.problem.lengths = lengths
        paged.plan.update(paged.problem.batch)
        paged.problem.check(paged.run())
    assert run_anew() == 0
    paged.problem.lengths = [4, 30]  # of fewer rows
    batch = paged.problem.batch | {"q": paged.problem.q[:2], "kv.block_table": paged.problem.table[:2]}
    paged.plan.update(batch)
    with pytest.raises(attn.TensorError):
        paged.run()
    found = paged.kernel.run(paged.q[:2], (paged.k, paged.v), paged.plan)
    paged.problem.lengths = [4, 30, 64]
    assert_near(found, paged.problem.expected()[0][:2])


def test_runs_with_sinks(run_anew):
    paged = Paged(sink_logits=True)
    sinks = torch.randn(4)
    wanted = paged.run(sink_logits=sinks)
    assert torch.equal(paged.run(sink_logits=sinks.clone()), wanted) and run_anew() == 1
    assert not torch.equal(paged.run(sink_logits=sinks + 1), wanted)
    for named in ({}, {"sinks": sinks}, {"sink_logits": sinks, "bias": sinks}, {"sink_logits": None}):
        with pytest.raises(attn.TensorError):
            paged.run(**named)


def test_layers_of_a_cache(run_anew):
    """Each layer's launch is found again, and only with pages that are still those of the plan."""
    shape = dict(kv_heads=2, head_dim=64, dtype="float16")
    cache = attn.PagedCache(layers=3, pages=8, device="host", **shape)
    code = attn.compile(kernel_problem.spec(), device="host")
    node = cache.add()
    rows = [torch.randn(3, 20, 2, 64).half() for _ in range(2)]
    cache.append(node, 20).write_all(*rows)
    plan = code.plan(cache.batch([node]))
    q = torch.randn(1, 4, 64).half()
    for count in (1, 0):  # all layers have the same page layout
        for layer in range(3):
            found = code.run(q, cache.layer(layer), plan)
            k, v = (each[layer].numpy() for each in rows)
            assert_near(found[0], oracle.attend(q[0].numpy(), k, v)[0])
        assert run_anew() == count
    other = attn.PagedCache(layers=1, pages=8, device="host", **shape)
    with pytest.raises(attn.TensorError, match="of another cache"):
        code.run(q, other.layer(0), plan)
    cache.prune(node)
    with pytest.raises(attn.PlanError):
        code.run(q, cache.layer(0), plan)


def test_plans_of_the_device(run_anew):
    paged = Paged(device_plan=True)
    planner = paged.kernel.device_planner(paged.problem.batch)
    steps = []
    for lengths in ([5, 37, 64], [3, 30, 50]):
        tables = {
            "kv.lengths": numpy.array(lengths, numpy.int32),
            "kv.block_table": paged.problem.table.copy(),
            "q_start": numpy.arange(4, dtype=numpy.int32),
        }
        memory = numpy.zeros(planner.nbytes // 4, numpy.int32)
        steps.append((lengths, planner.plan(tables, out=memory)))
    for lengths, plan in steps * 2:
        paged.problem.lengths = lengths
        paged.problem.check(paged.kernel.run(paged.q, (paged.k, paged.v), plan))
    assert run_anew() == 1


def test_significance_that_no_description_asks_for_is_refused(run_anew):
    paged = Paged()
    for _ in range(3):
        paged.run()
    with pytest.raises(attn.TensorError, match="this description gives none"):
        paged.run(significance=torch.zeros(3, 2))
