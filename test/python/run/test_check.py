# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.check: every example is right under all detectors, and wrong results are found and reported."""

import dataclasses

import attn
import numpy
import pytest

from examples import EXAMPLES, LLAMA, SIZES

pytest.importorskip("attn._attn", reason="the extension is not built")

from attn.run import checking  # noqa: E402

SMALL = {"q_heads": 4, "kv_heads": 2, "head_dim": 64, "dtype": "float16"}


def spec(**given):
    return attn.Spec(**{**SMALL, "kv": [attn.Paged()], "see": attn.causal(), **given})


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_right(name):
    report = attn.check(EXAMPLES[name](), seed=5, **SIZES[name])
    assert report.right and not report.failure
    assert report.races == report.uninitialized == report.out_of_bounds == 0 and not report.findings
    assert 0 < report.rel_err <= report.tolerance
    assert (report.max_err_lse is None) == (name == "03_softcap/softcap")
    assert report.counters["bytes_read"] > 0 and report.plan["tasks"] > 0
    assert "right: within tolerance" in str(report)


@pytest.mark.parametrize("strategy", ["flatten", "by-query", "by-node", "by-node-chunk"])
def test_every_way_to_divide_the_work(strategy):
    assert attn.check(
        EXAMPLES["05_shared_prefix/shared_prefix"](),
        strategy=strategy,
        blocks=3,
        **SIZES["05_shared_prefix/shared_prefix"],
    ).right


@pytest.mark.parametrize("target,schedule", [("sm_80", "auto"), ("sm_90a", "wgmma"), ("sm_120a", "mma")])
def test_targets(target, schedule):
    report = attn.check(
        spec(kv=[attn.Packed()]), target=target, schedule=schedule, q_len=20, kv_len=50, shuffle=True
    )
    assert report.right and report.target == target


def test_your_own_tensors():
    torch = pytest.importorskip("torch")
    described = spec(
        dtype="bfloat16", score=lambda s, h, qi, ki, t: s + t[h, ki], tensors={"t": (4, 40)}, sink_logits=True
    )
    tensors = attn.sample(described, kv_len=(10, 40))
    as_torch = {
        name: torch.from_numpy(t).view(torch.bfloat16) if t.dtype == numpy.uint16 else torch.from_numpy(t)
        for name, t in tensors.items()
    }
    one, two = attn.check(described, tensors), attn.check(described, as_torch)
    assert (one.rel_err, one.worst) == (two.rel_err, two.worst)


def test_sizes_are_no_part_of_what_is_compiled():
    described = [spec(see=attn.sink(n) | attn.window(2 * n)) for n in (3, 4, 9)]
    kernels = [attn.compile(one, device="host") for one in described]
    assert (
        len({kernel.key for kernel in kernels}) == 1 and len({id(kernel._native) for kernel in kernels}) == 1
    )
    assert [kernel.ends for kernel in kernels] == [(3, 6), (4, 8), (9, 18)]
    assert "sink(9) | window(18)" in kernels[2].emit("problem")
    assert attn.compile(described[1], device="host") is kernels[1]
    for one in described:
        assert attn.check(one, kv_len=60, q_len=4).right


def test_a_wrong_result_raises(monkeypatch):
    """A check against another problem's reference raises, as it would if the kernel were wrong."""
    other = spec(see=attn.window(3))
    reference = checking._attn.reference
    monkeypatch.setattr(
        checking._attn, "reference", lambda text, tensors, **asked: reference(other.mlir(), tensors)
    )
    with pytest.raises(attn.CheckError, match="o is past its tolerance at row") as error:
        attn.check(spec(), kv_len=30)
    report = error.value.report
    assert not report.right and report.rel_err > report.tolerance and "wrong: o is past" in str(report)
    assert isinstance(error.value, AssertionError)


def test_a_kernel_that_writes_nothing_is_wrong(monkeypatch):
    """A kernel that writes nothing is wrong also where its results should be zeros."""
    nothing = spec(see=attn.sink(1) & attn.window(1))
    assert attn.check(nothing, kv_len=9).right
    monkeypatch.setattr(checking.Kernel, "launch", lambda *_, **__: None)
    with pytest.raises(attn.CheckError, match="o is past its tolerance"):
        attn.check(nothing, kv_len=9)


def test_faults_make_a_result_wrong():
    right = attn.check(spec(), kv_len=30)
    for fault in ({"races": 1}, {"uninitialized": 2}, {"out_of_bounds": 1}, {"findings": ("race: …",)}):
        wrong = dataclasses.replace(right, **fault)
        assert not wrong.right and "the detectors found" in wrong.failure


def test_errors_of_results():
    wanted = numpy.array([[[3.0, 4.0]], [[0.0, 0.0]]])
    assert checking.relative_error(wanted, wanted) == (0.0, checking.relative_error(wanted, wanted)[1])
    off = wanted.copy()
    off[0, 0, 1] += 0.5
    error, where = checking.relative_error(off, wanted)
    assert error == 0.1 and where == "row 0, head 0: expected 4, got 4.5 at feature 1"
    off[1, 0, 0] = 1e-30  # where the reference is zero, the result must be zero
    assert checking.relative_error(off, wanted)[0] == numpy.inf
    off = wanted.copy()
    off[0, 0, 0] = numpy.nan
    assert checking.relative_error(off, wanted)[0] == numpy.inf
    assert checking.relative_error(wanted[:0], wanted[:0]) == (0.0, "")
    infinite = numpy.array([[-numpy.inf, 1.0]])
    assert checking.absolute_error(infinite, infinite) == 0.0
    assert checking.absolute_error(numpy.array([[0.0, 1.0]]), infinite) == numpy.inf


def test_wrong_arguments_are_refused():
    for given, kind, message in (
        ({"spec": "decode"}, attn.SpecError, "spec: expected an attn.Spec, got 'decode'"),
        ({"kv_len": 4, "tensors": {}}, attn.SpecError, "kv_len: expected no sizes beside tensors"),
        (
            {"tensors": {"q": numpy.zeros((1, 4, 64), numpy.float16)}},
            attn.TensorError,
            "kv.k_pages: expected among",
        ),
        ({"target": "sm_70"}, attn.CompileError, "target: expected"),
        ({"strategy": "by-luck"}, attn.PlanError, "strategy: expected"),
    ):
        with pytest.raises(kind) as error:
            attn.check(**{"spec": spec(), **given})
        assert message in str(error.value)


def test_a_missing_table_is_named():
    tensors = attn.sample(spec())
    del tensors["kv.block_table"]
    with pytest.raises(attn.PlanError, match="kv.block_table"):
        attn.check(spec(), tensors)


def test_llama_decode():
    assert attn.check(
        attn.Spec(**LLAMA, kv=[attn.Paged()], see=attn.causal()), batch=2, kv_len=(50, 200)
    ).right
