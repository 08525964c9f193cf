"""Keys and values that are stored as codes with a scale per KV head: e4m3, decoded by mma. Over stores, heads, dims, masks,
both numbers of rows, keys or values alone or both; through ptxas with the instruction and without; and against the same
numbers stored as 16-bit floats.

CI gives the combinations out in turn; --full takes all.
"""

import itertools
import os
import subprocess

import numpy as np
import pytest
from attnlab import (
    Problem,
    assert_right,
    attn_run,
    check_two_sequences,
    program,
    ptxas,
)
from points import DUO
from safetensors.torch import load_file, save_file
from test_grid import Background

FULL = bool(os.environ.get("ATTN_FULL"))
DEVICE = os.environ.get("ATTN_DEVICE", "host")
E4M3 = "f8E4M3FN"
STORES = ("dense", "packed", "paged<1>", "paged<8>", "paged<16>", "paged<128>", "paged<16>, ragged")
HEADS = ((8, 2), (28, 4), (4, 4), (8, 1), (40, 8))
DIMS = ((128, 128), (64, 64), (80, 80), (256, 256), (192, 128), (64, 128), (16, 48))
SEES = ("causal", "all", "window(100)", "causal and (sink(4) | recent(64))", DUO)
FORMATS = ((E4M3, E4M3), (E4M3, ""), ("", E4M3))
ROWS = (1, 37)


def points():
    turn = itertools.count()
    for dims, rows in itertools.product(DIMS, ROWS):
        for _ in range(len(STORES) * len(HEADS) * len(SEES) if FULL else 3):
            i = next(turn)
            key, value = FORMATS[i % 7 % 3]
            yield (
                Problem(
                    *HEADS[i % 5],
                    *dims,
                    ("f16", "bf16")[i // 3 % 2],
                    STORES[i % 7],
                    SEES[i // 2 % 5],
                    softcap=i % 4 == 1,
                    sinks=i % 3 == 0,
                    key=key,
                    value=value,
                ),
                rows,
            )


POINTS = list(points())


def label(point):
    p, rows = point
    see = {DUO: "duo"}.get(p.see, p.see)
    formats = f"{p.key or p.dtype}_{p.value or p.dtype}"
    return f"d{p.dim}_{p.value_dim}-{p.store}-h{p.q_heads}_{p.kv_heads}-{see}-{p.dtype}-{formats}-r{rows}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("formats")


@pytest.fixture(scope="module")
def runs(folder):
    def run(point):
        problem, rows = point
        file = folder / f"{abs(hash(point))}.mlir"
        return check_two_sequences(file, problem, rows, device=DEVICE)

    background = Background(run, POINTS)
    yield background
    background.close()


@pytest.mark.parametrize("point", POINTS, ids=label)
def test_formats(runs, point):
    problem = point[0]
    assert_right(runs[point], problem.dtype, max(1, 32 / problem.value_dim), device=DEVICE)


@pytest.mark.skipif(DEVICE != "host", reason="counters exist on the host device only")
@pytest.mark.parametrize("store", ["paged<16>", "dense"])
def test_bytes_are_those_of_codes(folder, store):
    """The floor counts a byte per code and the scales, and no more is moved; loads of codes hit all banks."""
    file = folder / "budget.mlir"
    file.write_text(Problem(8, 2, store=store, key=E4M3, value=E4M3).text())
    status, report, errors = attn_run(
        file, "--check", "--device=host", "--dim=batch=3", "--dim=kv_len=800..1500"
    )
    assert status == 0, errors
    assert 1 <= report["amplification"] <= 1.03
    assert report["bank_conflicts"] <= 0.02


def e4m3_numbers():
    """What the 256 codes stand for, from the definition: sign, four bits of exponent, three of mantissa."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    number = np.where(exponent == 0, mantissa * 2.0**-9, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0))
    number[(code & 127) == 127] = np.nan
    return np.where(code & 128, -number, number)


def test_same_numbers_as_floats(folder):
    """With scales that are powers of two, f16 holds the dequantized numbers: the same attention of that store."""
    import torch

    codes, floats = folder / "codes.mlir", folder / "floats.mlir"
    problem = Problem(8, 2, 64, 64, "f16", "paged<16>")
    codes.write_text(Problem(8, 2, 64, 64, "f16", "paged<16>", key=E4M3, value=E4M3).text())
    floats.write_text(problem.text())
    given, out = folder / "given.safetensors", folder / "out.safetensors"
    dims = ("--dim=batch=2", "--dim=q_len=3", "--dim=kv_len=200", f"--device={DEVICE}")
    status, _, errors = attn_run(codes, *dims, f"--save-inputs={given}")
    assert status == 0, errors
    tensors = load_file(given)
    plain = {name: tensor for name, tensor in tensors.items() if "scales" not in name}
    for part in "kv":
        assert tensors[f"kv.{part}_scales"].shape == (2,)
        scales = tensors[f"kv.{part}_scales"] = torch.tensor([2.0**-6, 2.0**-5 if part == "k" else 2.0**-8])
        bits = tensors[f"kv.{part}_pages"].view(torch.uint8).numpy()
        numbers = torch.from_numpy(e4m3_numbers()[bits]) * scales.double()[None, None, :, None]
        plain[f"kv.{part}_pages"] = numbers.half()
    results = []
    for file, inputs in ((codes, tensors), (floats, plain)):
        changed = file.with_suffix(".safetensors")  # what was loaded is mapped
        save_file({name: tensor.contiguous() for name, tensor in inputs.items()}, changed)
        status, _, errors = attn_run(
            file, f"--inputs={changed}", f"--outputs={out}", "--check", f"--device={DEVICE}"
        )
        assert status == 0, errors
        results.append(load_file(out))
    for name, tolerance in (("o", 1e-3), ("lse", 1e-4)):
        a, b = (result[name].double() for result in results)
        assert (a - b).norm() <= tolerance * b.norm()


KERNELS = [
    (Problem(8, 2, *dims, dtype, store, see, key=key, value=value), target)
    for dims, dtype, store, see, (key, value), target in [
        ((128, 128), "bf16", "paged<16>", "causal", FORMATS[0], "sm_90a"),
        ((128, 128), "bf16", "paged<16>", "causal", FORMATS[0], "sm_80"),
        ((256, 256), "f16", "dense", "causal", FORMATS[0], "sm_90a"),
        ((256, 256), "bf16", "paged<16>", DUO, FORMATS[0], "sm_89"),
        ((64, 64), "f16", "packed", "window(100)", FORMATS[1], "sm_120a"),
        ((192, 128), "bf16", "paged<1>", "causal", FORMATS[2], "sm_90a"),
        ((80, 80), "bf16", "paged<16>, ragged", "causal", FORMATS[0], "sm_100a"),
    ]
]


@pytest.mark.parametrize("case", KERNELS, ids=lambda case: f"{label((case[0], 0))}-{case[1]}")
def test_ptxas(folder, case):
    problem, target = case
    source = folder / "kernel.mlir"
    source.write_text(problem.text())
    ptx = source.with_suffix(".ptx")
    command = [program("attn-opt"), str(source), f"--target={target}", "--emit=ptx", "-o", str(ptx)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert ("cvt.rn.f16x2.e4m3x2" in ptx.read_text()) == (target not in ("sm_80", "sm_89"))
    kernels = ptxas(ptx, target)
    assert kernels
    for kernel in kernels:
        assert (kernel.stack, kernel.spill_stores, kernel.spill_loads) == (0, 0, 0), kernel


def test_bad_scales(folder):
    import torch

    file, given = folder / "scales.mlir", folder / "scales.safetensors"
    file.write_text(Problem(8, 2, 64, 64, "f16", "dense", key=E4M3, value=E4M3).text())
    status, _, errors = attn_run(file, "--dim=batch=1", "--dim=kv_len=20", f"--save-inputs={given}")
    assert status == 0, errors
    good = load_file(given)

    def refused(message, **changes):
        tensors = good | {f"kv.{name}_scales": tensor for name, tensor in changes.items()}
        changed = folder / "changed.safetensors"  # what was loaded is mapped
        save_file({name: tensor for name, tensor in tensors.items() if tensor is not None}, changed)
        status, _, errors = attn_run(file, f"--inputs={changed}")
        assert status != 0 and message in errors, errors

    refused("tensor 'kv.k_scales' is missing", k=None)
    refused("tensor 'kv.v_scales': expected shape [2], got [3]", v=torch.ones(3))
    refused("tensor 'kv.v_scales': expected dtype f32, got f16", v=torch.ones(2).half())
    for number in (0.0, -1.0, float("inf"), float("nan")):
        refused("tensor 'kv.k_scales': expected finite scales above 0, got", k=torch.tensor([1.0, number]))
