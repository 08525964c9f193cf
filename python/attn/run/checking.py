# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check: runs a description's kernel on the host device, with all detectors, and compares it with the float64
reference."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy

from .. import _attn
from ..compiler.requests import source_of
from ..describe.spec import Spec
from ..describe.stores import Unified
from ..errors import CheckError, SpecError, TensorError, expected
from ..memory.devices import checked_host, failed
from ..memory.dtypes import DTYPES, is_dtype, numpy_name, short_name
from ..memory.tensors import as_numpy, from_bfloat16_bits, from_e4m3_bits
from .kernel import Kernel
from .kernels import compile
from .plan import Plan
from .samples import Amplitude, sample

TOLERANCES = {"f16": 1e-3, "bf16": 8e-3, "f8e4m3fn": 6e-2}
# For the output: half of the smallest positive number.
LEAST_ROUNDING = {"f16": 2.0**-25, "bf16": 2.0**-134, "f8e4m3fn": 2.0**-10}
LEAST_NORMAL = {"f8e4m3fn": 2.0**-6}  # Dtypes whose results are often subnormal.
LSE_TOLERANCE = 2e-3
SIGNIFICANCE_TOLERANCE = 1e-2
_LEAST_SIGNIFICANCE = 1e-4


@dataclass(frozen=True)
class CheckReport:
    """The result of `check`. Errors of outputs are the largest over rows and heads, relative to the norm of the
    reference's vector; errors of the LSE are absolute."""

    rel_err: float
    tolerance: float
    worst: str
    """The position of rel_err, and the values there."""
    max_err_lse: float | None
    """None if the description returns no LSE."""
    lse_tolerance: float
    scales_err: float | None
    """The largest error of a scale of the output, relative to it; None if the description returns no scales."""
    scales_tolerance: float
    significance_err: float | None
    """The largest error of a token's significance, relative to its value or to 1e-4 of a row, whichever is more; None
    if the description asks for no significance. The tolerance is SIGNIFICANCE_TOLERANCE."""
    races: int
    uninitialized: int
    out_of_bounds: int
    findings: tuple[str, ...]
    """Reports of the detectors, one line for each location in the kernel."""
    counters: dict[str, Any] = field(repr=False)
    """bytes_read, bytes_written, sector_efficiency, bank_conflicts, flops, ...: as in attn-run's --json."""
    plan: dict[str, Any] = field(repr=False)
    """Statistics of the plan: tasks, cuts, blocks, balance, ..."""
    target: str = "sm_90a"
    schedule: str = "auto"
    seconds: float = 0.0
    """The time of the run alone, on the host device."""

    @property
    def failure(self) -> str:
        """Everything that is wrong; "" if nothing is."""
        wrong = []
        if not self.rel_err <= self.tolerance:
            wrong.append(f"o is past its tolerance at {self.worst}")
        if self.max_err_lse is not None and not self.max_err_lse <= self.lse_tolerance:
            wrong.append(f"lse is {self.max_err_lse:.2e} off")
        if self.scales_err is not None and not self.scales_err <= self.scales_tolerance:
            wrong.append(f"output_scales is {self.scales_err:.2e} off")
        if self.significance_err is not None and not self.significance_err <= SIGNIFICANCE_TOLERANCE:
            wrong.append(f"significance is {self.significance_err:.2e} off")
        if self.races or self.uninitialized or self.out_of_bounds or self.findings:
            wrong.append("the detectors found " + (self.findings[0] if self.findings else "faults"))
        return "; ".join(wrong)

    @property
    def right(self) -> bool:
        """Whether nothing is wrong."""
        return not self.failure

    def __str__(self) -> str:
        lse = "" if self.max_err_lse is None else f", LSE {self.max_err_lse:.2e} ({self.lse_tolerance:.1e})"
        if self.scales_err is not None:
            lse += f", output_scales {self.scales_err:.2e} ({self.scales_tolerance:.1e})"
        if self.significance_err is not None:
            lse += f", significance {self.significance_err:.2e} ({SIGNIFICANCE_TOLERANCE:.1e})"
        return (
            f"error      {self.rel_err:.2e} at the worst row and head (tolerance {self.tolerance:.1e}){lse}\n"
            f"detectors  {self.races} races, {self.uninitialized} uninitialized, {self.out_of_bounds} out of bounds\n"
            f"{'wrong: ' + self.failure if self.failure else 'right: within tolerance of the float64 reference'}"
        )


def check(
    spec: Spec,
    tensors: Mapping[str, Any] | None = None,
    *,
    target: str = "sm_90a",
    schedule: str = "auto",
    strategy: str = "flatten",
    blocks: int = 0,
    seed: int = 0,
    shuffle: bool = False,
    amplitude: Amplitude = 1.0,
    **dims: int | Sequence[int],
) -> CheckReport:
    """Run the kernel of a description on the host device, which watches every access, and compare it with the
    reference.

    tensors    CPU tensors by name: q, kv.k_pages, kv.lengths, ...; by default those of
               `attn.sample(spec, seed=seed, amplitude=amplitude, **dims)`, with sizes from `dims`
    target     the chip that the kernel is compiled for; `schedule`: auto, mma, wgmma
    strategy   and blocks: how the work is divided, see Kernel.plan
    seed       for the tensors, and for the order in which threads run and asynchronous copies take effect; shuffle=True
               makes that order random

    Raises CheckError if something is wrong, with the report as its attribute `report`; SpecError, CompileError,
    PlanError and TensorError if the kernel cannot run. Meant for small problems: a CPU does the work of a GPU.
    """
    if not isinstance(spec, Spec):
        raise expected(SpecError, "spec", "an attn.Spec", spec)
    if tensors is None:
        tensors = sample(spec, seed=seed, amplitude=amplitude, **dims)
    elif dims:
        raise expected(SpecError, next(iter(dims)), "no sizes beside tensors, which have theirs", dims)
    tensors = {name: as_numpy(name, tensor) for name, tensor in tensors.items()}
    device = checked_host(seed=seed, shuffle=shuffle)
    kernel = compile(spec, target=target, schedule=schedule, device=device, checked=True)
    _require(kernel, tensors)
    plan = kernel.plan(tensors, strategy=strategy, blocks=blocks)
    start = time.perf_counter()
    results = _run(spec, kernel, plan, device, tensors)
    out, lse = results["o"], results.get("lse")
    seconds = time.perf_counter() - start
    found = device.report()
    dtype = kernel._tensors["o"].dtype

    try:
        described = {
            name: _described(kernel._tensors[name].dtype if name in kernel._tensors else None, array)
            for name, array in tensors.items()
        }
        text, asks = source_of(spec)
        wanted = _attn.reference(text, described, asks=asks)
    except _attn.Failure as failure:
        raise failed(failure, TensorError) from None
    rel_err, worst = relative_error(
        _doubles(out, dtype), _array(wanted["o"]), LEAST_ROUNDING[dtype], LEAST_NORMAL.get(dtype, 0.0)
    )
    manifest_tolerance = kernel.manifest.get("tolerance") or 0.0
    # With few features a row's output may by chance be small beside its values.
    few = max(1, 32 / spec.value_dim)
    scales = results.get("output_scales")
    names = ("races", "uninitialized", "out_of_bounds")
    report = CheckReport(
        rel_err=rel_err,
        tolerance=max(TOLERANCES[dtype] * few, manifest_tolerance),
        worst=worst,
        max_err_lse=None if lse is None else absolute_error(lse, _array(wanted["lse"])),
        lse_tolerance=max(LSE_TOLERANCE, manifest_tolerance),
        scales_err=None if scales is None else scales_error(scales, _array(wanted["output_scales"])),
        # The largest output is off by about as much as all are, before they are rounded to e4m3.
        scales_tolerance=max(2 * TOLERANCES[short_name(spec.dtype)] * few, manifest_tolerance),
        significance_err=max(
            (significance_error(results[name], _array(wanted[name])) for name in kernel._weighed),
            default=None,
        ),
        **{name: found[name] for name in names},
        findings=tuple(found["findings"]),
        counters={name: value for name, value in found.items() if name not in (*names, "findings", "text")},
        plan=plan.stats,
        target=target,
        schedule=kernel.schedule,
        seconds=seconds,
    )
    if report.failure:
        error = CheckError(f"{spec.name}: {report.failure}\n{report}")
        error.report = report
        raise error
    return report


def _run(spec: Spec, kernel: Kernel, plan: Plan, device: _attn.Device, tensors: dict) -> dict:
    """Run the kernel; return the results. Tensors are in memory of the device: there bounds are exact, alignment is a
    GPU's, and elements that nothing wrote are found."""
    shape = (len(tensors["q"]), spec.q_heads, spec.value_dim)
    results = {"o": numpy.empty(shape, numpy_name(kernel._tensors["o"].dtype))}
    if spec.return_lse:
        results["lse"] = numpy.empty(shape[:2], numpy.float32)
    if kernel._has_scales:
        results["output_scales"] = numpy.empty(shape[:2], numpy.float32)
    results |= {name: numpy.empty(plan._shapes[name], numpy.float32) for name in kernel._weighed}
    if spec.heads and "ordinal_heads" in kernel.slots:
        heads = kernel._native.ordinal_heads(tensors["classes"].tolist())
        tensors = tensors | {"ordinal_heads": numpy.array(heads, numpy.int32)}
    pitches = _pitches(spec)
    memory, strides = [], []
    for name in kernel.slots:
        array = results[name] if name in results else tensors[name]
        pitch = pitches.get(name)
        strides.append((pitch, *array.strides[1:]) if pitch else None)
        image = _spread(array, pitch) if pitch else array
        memory.append(device.allocate(max(image.nbytes, 1), name))
        if name in results:
            memory[-1].poison()
        elif image.nbytes:
            memory[-1].copy_in(image.view(numpy.uint8))
    kernel.launch([m.address for m in memory], [m.nbytes for m in memory], plan, strides=strides)
    for name, m in zip(kernel.slots, memory, strict=True):
        if name in results and results[name].nbytes:
            m.copy_out(results[name].view(numpy.uint8))
    return results


def _pitches(spec: Spec) -> dict[str, int]:
    """Return the bytes from page to page in unified pages, by names of tensors: each tensor has memory of its own here."""
    pitches = {}
    for store in spec.operands:
        if isinstance(store, Unified):
            found = store.description(spec.kv_heads, spec.head_dim, spec.value_dim)
            pitches |= {f"{store.name}.{part}": found.page_bytes for part in found.in_page}
    return pitches


def _spread(array: numpy.ndarray, pitch: int) -> numpy.ndarray:
    """Return the bytes from a tensor's first page to its last, `pitch` bytes apart, with NaN in the gaps."""
    pages = array.reshape(len(array), -1).view(numpy.uint8)
    image = numpy.full((len(array), pitch), 0xFF, numpy.uint8)
    image[:, : pages.shape[1]] = pages
    return image.reshape(-1)[: image.size - pitch + pages.shape[1]]


def relative_error(
    got: numpy.ndarray, wanted: numpy.ndarray, rounding: float = 0.0, least: float = 0.0
) -> tuple[float, str]:
    """Return the largest |got - wanted| / |wanted| over the vectors of one row and head, and a text with its position.
    A vector that is exactly zero must be so in both; equal infinities differ by 0; NaN never passes. Differences up to
    `rounding` count as 0. A vector that is not zero counts as if its features were `least`, at least."""
    if got.size == 0:
        return 0.0, ""
    difference = _difference(got, wanted)
    difference = numpy.where((difference <= rounding) & (wanted != 0), 0.0, difference)
    error = numpy.sqrt((difference**2).sum(axis=-1))
    norm = numpy.sqrt((numpy.where(numpy.isfinite(wanted), wanted, 0) ** 2).sum(axis=-1))
    norm = numpy.where(norm == 0, 0.0, numpy.maximum(norm, least * got.shape[-1] ** 0.5))
    with numpy.errstate(divide="ignore", invalid="ignore"):
        relative = numpy.where(error == 0, 0.0, error / norm)
    row, head = numpy.unravel_index(int(relative.argmax()), relative.shape)
    feature = int(difference[row, head].argmax())
    where = (row, head, feature)
    place = f"row {row}, head {head}: expected {wanted[where]:.9g}, got {got[where]:.9g} at feature {feature}"
    return float(relative[row, head]), place


def absolute_error(got: numpy.ndarray, wanted: numpy.ndarray) -> float:
    """Return the largest |got - wanted|; equal infinities differ by 0, NaN is infinitely far."""
    return float(_difference(got.astype(numpy.float64), wanted).max(initial=0.0))


def scales_error(got: numpy.ndarray, wanted: numpy.ndarray) -> float:
    """Return the largest |got - wanted| / wanted."""
    return float((_difference(got.astype(numpy.float64), wanted) / wanted).max(initial=0.0))


def significance_error(got: numpy.ndarray, wanted: numpy.ndarray) -> float:
    """Return the largest |got - wanted| / wanted, or / 1e-4 if less is wanted."""
    error = _difference(got.astype(numpy.float64), wanted) / numpy.maximum(wanted, _LEAST_SIGNIFICANCE)
    return float(error.max(initial=0.0))


def _difference(got: numpy.ndarray, wanted: numpy.ndarray) -> numpy.ndarray:
    with numpy.errstate(invalid="ignore"):
        difference = numpy.where(got == wanted, 0.0, numpy.abs(got - wanted))
    return numpy.where(numpy.isnan(got) | numpy.isnan(wanted), numpy.inf, difference)


def _require(kernel: Kernel, tensors: Mapping[str, Any]) -> None:
    """Raise a TensorError for a missing tensor that planning does not need."""
    for name in ("q", *kernel._own, *kernel.extras):
        if name not in tensors:
            raise TensorError(f"{name}: expected among the tensors, got {', '.join(tensors) or 'none'}")


def _described(dtype: str | None, array: numpy.ndarray) -> tuple:
    """Return a tensor as the extension takes it: dtype, shape and memory. `dtype`: the description's, if the array may
    hold its bits."""
    found = short_name(array.dtype)
    return dtype if dtype and is_dtype(found, dtype) else found, array.shape, array


def _array(tensor: tuple) -> numpy.ndarray:
    dtype, shape, data = tensor
    return numpy.frombuffer(data, DTYPES[dtype][0]).reshape(shape)


def _doubles(array: numpy.ndarray, dtype: str) -> numpy.ndarray:
    read = {"bf16": from_bfloat16_bits, "f8e4m3fn": from_e4m3_bits}.get(dtype)
    return (read(array) if read else array).astype(numpy.float64)
