# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Keys and values that are stored as codes, decoded by mma: formats and groups of both over stores, heads, dims, masks,
score functions, classes and both numbers of rows; two regions of different formats; through ptxas with instructions that
convert and without; and against the same numbers stored as 16-bit floats.

The combinations are given out in turn: a few to each dim in CI, more with --full.
"""

import itertools
import os

import numpy as np
import pytest
from attnlab import Problem, assert_right, attn_run, check_two_sequences
from kernels import Background, assemble, assert_nothing_spilled
from points import APART, DUO
from safetensors.torch import load_file, save_file

FULL = bool(os.environ.get("ATTN_FULL"))
DEVICE = os.environ.get("ATTN_DEVICE", "host")
STORES = ("dense", "packed", "paged<1>", "paged<8>", "paged<16>", "paged<128>", "paged<16>, ragged")
HEADS = ((8, 2), (28, 4), (4, 4), (8, 1), (40, 8))
DIMS = ((128, 128), (64, 64), (80, 80), (256, 256), (192, 128), (64, 128), (16, 48), (96, 160))
SEES = ("causal", "all", "window(100)", "causal and (sink(4) | recent(64))", DUO, APART)
ROWS = (1, 2, 37)
# A format's name: what a code is, and what shares metadata: g is the least group, G the largest.
PAIRS = (
    "i8G/i4G", "i4g/i2G", "i8g/i8g", "i2G/i8G", "e4m3-head/e4m3-head", "e4m3-token/e4m3-token", "e5m2-token/i4g",
    "e5m2-tensor/e5m2-head", "i4G/", "/i2g", "/e4m3-token", "e4m3-tensor/", "i2g/e5m2-tensor", "i8g/i4g",
)  # fmt: skip
E4M3 = "!attn.quantized<f8E4M3FN, per = head>"
SMALL_FLOATS = {"e4m3": "f8E4M3FN", "e5m2": "f8E5M2"}


def codes(name, dim):
    """The type of a format's name, of as many bits as rows of the dim can have; "" for that of the queries."""
    if not name:
        return ""
    code, _, per = name.partition("-")
    if per:
        return f"!attn.quantized<{SMALL_FLOATS[code]}, per = {per}>" if dim % 16 == 0 else ""
    bits = next(
        (bits for bits in (int(code[1]), 4, 8) if bits >= int(code[1]) and dim * bits % 128 == 0), None
    )
    if bits is None:
        return ""
    groups = [group for group in (16, 32, 64, 128) if dim % group == 0]
    group = dim if code[2] == "G" and dim <= 128 else groups[-1 if code[2] == "G" else 0]
    return f"!attn.quantized<i{bits}, per = {group}>"


def points():
    turn = itertools.count()
    for dims, rows in itertools.product(DIMS, ROWS):
        for _ in range(42 if FULL else 3):
            i = next(turn)
            key, value = (codes(name, dim) for name, dim in zip(PAIRS[i % 14].split("/"), dims, strict=True))
            yield (
                Problem(
                    *HEADS[i % 5],
                    *dims,
                    ("f16", "bf16")[i // 3 % 2],
                    STORES[(i + i // 14) % 7],
                    SEES[(i + i // 6) % 6],
                    softcap=i % 4 == 1,
                    sinks=i % 3 == 0,
                    key=key,
                    value=value,
                ),
                rows,
            )
    # Pages that belong to no head.
    for dims, rows in itertools.product(DIMS, ROWS):
        for _ in range(6 if FULL else 1):
            i = next(turn)
            pair = (*PAIRS, "/")[i % 15].split("/")
            key, value = (codes(name, dim) for name, dim in zip(pair, dims, strict=True))
            store, dtype = f"unified<{(32, 1, 64, 8)[i % 4]}>", ("f16", "bf16")[i % 2]
            see = SEES[i % 6]
            yield (
                Problem(*HEADS[i % 5], *dims, dtype, store, see, sinks=i % 3 == 0, key=key, value=value),
                rows,
            )
    # Regions of different formats: a cache and a draft.
    for dims, rows in itertools.product(((128, 128), (64, 128)), ROWS):
        for _ in range(len(PAIRS) if FULL else 2):
            i = next(turn)
            pairs = PAIRS[i % 14].split("/"), PAIRS[i * 5 % 14].split("/")
            (key, value), (draft_key, draft_value) = (
                [codes(name, dim) for name, dim in zip(pair, dims, strict=True)] for pair in pairs
            )
            yield (
                Problem(
                    *HEADS[i % 5],
                    *dims,
                    ("f16", "bf16")[i % 2],
                    STORES[i % 7],
                    "causal",
                    softcap=i % 3 == 0,
                    draft_store=STORES[i // 2 % 4],
                    key=key,
                    value=value,
                    draft_key=draft_key,
                    draft_value=draft_value,
                ),
                rows,
            )


POINTS = list(points())


def label(point):
    p, rows = point
    see = {DUO: "duo", APART: "apart"}.get(p.see, p.see)

    def short(*formats):
        text = "_".join(format or p.dtype for format in formats)
        return text.replace("!attn.quantized<", "").replace(", per = ", "-").replace(">", "")

    draft = f"-{p.draft_store}-{short(p.draft_key, p.draft_value)}" if p.draft_store else ""
    formats = short(p.key, p.value)
    return (
        f"d{p.dim}_{p.value_dim}-{p.store}-h{p.q_heads}_{p.kv_heads}-{see}-{p.dtype}-{formats}{draft}-r{rows}"
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("formats")


@pytest.fixture(scope="module")
def runs(folder):
    def run(point):
        problem, rows = point
        file = folder / f"{abs(hash(point))}.mlir"
        draft = ("--dim=drafts=2", "--dim=draft_len=41") if problem.draft_store else ()
        return check_two_sequences(file, problem, rows, device=DEVICE, options=draft)

    with Background(run, POINTS) as background:
        yield background


@pytest.mark.parametrize("point", POINTS, ids=label)
def test_formats(runs, point):
    problem = point[0]
    assert_right(runs[point], problem.dtype, max(1, 32 / problem.value_dim), device=DEVICE)


@pytest.mark.skipif(DEVICE != "host", reason="counters exist on the host device only")
@pytest.mark.parametrize("store", ["paged<16>", "dense"])
@pytest.mark.parametrize(
    "pair",
    [
        *("e4m3-head/e4m3-head", "e4m3-token/i8G", "i8G/i8G", "i8G/i4G", "i4G/i2G"),
        *(
            f"{key} {group}/{value} {group}"
            for key, value in (("i8", "i8"), ("i8", "i4"), ("i4", "i2"))
            for group in (16, 32, 64)
        ),
    ],
)
def test_bytes_are_those_of_codes(folder, store, pair):
    """The floor counts the bits of codes and the metadata, and no more is moved; loads of codes, of queries in their
    order and what warps exchange hit all banks."""
    key, value = (
        f"!attn.quantized<{', per = '.join(name.split())}>" if " " in name else codes(name, 128)
        for name in pair.split("/")
    )
    file = folder / "budget.mlir"
    file.write_text(Problem(8, 2, store=store, key=key, value=value).text())
    status, report, errors = attn_run(
        file, "--check", "--device=host", "--dim=batch=3", "--dim=kv_len=800..1500"
    )
    assert status == 0, errors
    assert 1 <= report["amplification"] <= 1.03
    assert report["bank_conflicts"] <= 0.02


# Pairs whose tiles the producers of a wgmma kernel widen: "i4 32" has groups of 32 features.
WIDENED = (
    "e4m3-head/e4m3-head",
    "e5m2-tensor/e4m3-tensor",
    "i8G/i8G",
    "i8G/i4 32",
    "i4G/i2G",
    "i2G/e5m2-head",
)


def widened_points():
    """Pairs, dims and types, each with a store and a mask in turn; all of them with --full."""
    stores, sees = (
        ("paged<16>", "paged<1>", "packed", "dense"),
        ("causal", "causal and (sink(4) | recent(64))"),
    )
    for turn, (pair, dim, dtype) in enumerate(itertools.product(WIDENED, (128, 64), ("f16", "bf16"))):
        if dim == 64 and "i2" in pair:
            continue  # lines of two bits are padded to 32 bytes, more features than these
        for number, (store, see) in enumerate(itertools.product(stores, sees)):
            if FULL or number == turn * 3 % 8:
                yield pair, dim, dtype, store, see


@pytest.mark.parametrize("pair,dim,dtype,store,see", list(widened_points()))
def test_widened(folder, pair, dim, dtype, store, see):
    """Prefill on Hopper: producers widen tiles of codes."""
    key, value = (
        f"!attn.quantized<{', per = '.join(name.split())}>" if " " in name else codes(name, dim)
        for name in pair.split("/")
    )
    file = folder / "widened.mlir"
    file.write_text(Problem(8, 2, dim, dim, dtype, store, see, key=key, value=value).text())
    options = ("--target=sm_90a", "--dim=batch=2", "--dim=q_len=70", "--dim=kv_len=150..400")
    status, report, errors = attn_run(file, "--check", f"--device={DEVICE}", *options)
    assert status == 0, errors
    assert report["passed"] and report["kernel"].endswith("rows128")
    assert report["schedule"] == "wgmma"
    assert DEVICE != "host" or report["bank_conflicts"] <= 0.02


def e4m3_numbers():
    """Return the numbers of the 256 bit patterns, from the definition: sign, four bits of exponent, three of mantissa."""
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
    (Problem(8, 2, *dims, dtype, store, see, key=codes(key, dims[0]), value=codes(value, dims[1])), target)
    for dims, dtype, store, see, (key, _, value), target in [
        ((128, 128), "bf16", "paged<16>", "causal", "e4m3-head/e4m3-head".partition("/"), "sm_90a"),
        ((128, 128), "bf16", "paged<16>", "causal", "e4m3-token/e4m3-token".partition("/"), "sm_80"),
        ((256, 256), "f16", "dense", "causal", "e4m3-head/e4m3-head".partition("/"), "sm_90a"),
        ((256, 256), "bf16", "paged<16>", DUO, "e4m3-head/e4m3-head".partition("/"), "sm_89"),
        ((256, 256), "f16", "paged<16>", "causal", "e4m3-head/".partition("/"), "sm_80"),
        ((192, 192), "bf16", "paged<16>", DUO, "e4m3-token/e4m3-token".partition("/"), "sm_89"),
        ((128, 128), "bf16", "paged<16>", "causal", "i8G/i4G".partition("/"), "sm_90a"),
        ((128, 128), "f16", "paged<1>", DUO, "e4m3-head/e5m2-head".partition("/"), "sm_90a"),
        ((128, 128), "f16", "dense", "window(100)", "i8G/i8G".partition("/"), "sm_90a"),
        ((128, 128), "bf16", "paged<1>", DUO, "i8G/i8G".partition("/"), "sm_90a"),
        ((64, 64), "bf16", "paged<16>", "window(100)", "i4G/i8G".partition("/"), "sm_90a"),
        ((128, 128), "f16", "paged<16>", "causal", "i4G/i2G".partition("/"), "sm_90a"),
        ((128, 128), "bf16", "paged<16>", "causal", "i4g/i2g".partition("/"), "sm_90a"),
        ((64, 64), "f16", "packed", "window(100)", "e5m2-token/".partition("/"), "sm_120a"),
        ((192, 128), "bf16", "paged<1>", "causal", "/i8g".partition("/"), "sm_90a"),
        ((80, 80), "bf16", "paged<16>, ragged", "causal", "e4m3-head/i8G".partition("/"), "sm_100a"),
    ]
]


@pytest.mark.parametrize("case", KERNELS, ids=lambda case: f"{label((case[0], 0))}-{case[1]}")
def test_ptxas(folder, case):
    problem, target = case
    text, kernels = assemble(folder, problem.text(), target)
    small = any("f8E4M3FN" in format for format in (problem.key, problem.value))
    assert ("cvt.rn.f16x2.e4m3x2" in text) == (small and target not in ("sm_80", "sm_89"))
    assert_nothing_spilled(kernels)


@pytest.mark.parametrize("dim", [256, 192])
def test_conversion_by_arithmetic(folder, dim):
    """Chips without an instruction for e4m3 have tiles of their own: of one stage, or of fewer keys."""
    file = folder / "arithmetic.mlir"
    problem = Problem(8, 2, dim, dim, "bf16", "paged<16>", DUO, key=E4M3, value=E4M3)
    file.write_text(problem.text())
    options = ("--target=sm_89", "--dim=batch=2", "--dim=q_len=37", "--dim=kv_len=50..200")
    status, report, errors = attn_run(file, "--check", "--device=host", *options)
    assert status == 0, errors
    assert report["passed"] and report["kernel"].endswith("rows128")


BESIDE = """
!q = tensor<?x8xKEYxbf16>
!o = tensor<?x8xVALUExbf16>
!plain = !attn.kv<paged<16>, heads = 2, dim = KEY, value_dim = VALUE, key = bf16, value = bf16>
!coded = !attn.kv<paged<16>, heads = 2, dim = KEY, value_dim = VALUE, key = !attn.quantized<CODES>, value = !attn.quantized<CODES>>
func.func @beside(%q: !q {attn.name = "q"}, %plain: !plain {attn.name = "plain", attn.dims = ["batch", "new_len"]},
                  %coded: !coded {attn.name = "coded", attn.dims = ["batch", "kv_len"]}) -> !o {
  %o = attn.attend %q over (%coded see all), (%plain see causal) : !q, !coded, !plain -> !o
  return %o : !o
}
"""


BESIDE_DIMS = pytest.mark.parametrize("dims", [(256, 256), (192, 128), (128, 192)])
BESIDE_CODES = pytest.mark.parametrize("codes", ["f8E4M3FN, per = head", "i8, per = 64"])


def beside(dims, codes):
    return BESIDE.replace("KEY", str(dims[0])).replace("VALUE", str(dims[1])).replace("CODES", codes)


@BESIDE_DIMS
@BESIDE_CODES
def test_regions_of_two_formats_where_shared_memory_is_scarce(folder, dims, codes):
    """Rings of both fit 99 KB, if need be in fewer stages."""
    file = folder / "beside.mlir"
    file.write_text(beside(dims, codes))
    options = ("--target=sm_120a", "--dim=q_len=1", "--dim=kv_len=50..200", "--dim=new_len=60")
    status, _, errors = attn_run(file, "--check", "--device=host", "--dim=batch=2", *options)
    assert status == 0, errors


@pytest.mark.parametrize("target", ["sm_89", "sm_120a"])
@BESIDE_DIMS
@BESIDE_CODES
def test_ptxas_takes_regions_of_two_formats(folder, target, dims, codes):
    """Groups of codes beside long keys spill a little where conversions are arithmetic."""
    most = 64 if (target, codes) == ("sm_89", "i8, per = 64") else 0
    for kernel in assemble(folder, beside(dims, codes), target)[1]:
        assert max(kernel.spill_stores, kernel.spill_loads) <= most, kernel


@pytest.mark.parametrize("rows", [1, 3, 37])
@pytest.mark.parametrize("kv_heads", [1, 4])
def test_a_class_without_heads(folder, kv_heads, rows):
    """A store of a class has a scale for each of its heads, and none where it has no head: nobody reads one."""
    file = folder / "no_heads.mlir"
    file.write_text(Problem(8, kv_heads, 64, 64, "f16", "paged<16>", APART, key=E4M3, value=E4M3).text())
    status, report, errors = attn_run(
        file, "--check", "--device=host", "--dim=batch=2", f"--dim=q_len={rows}", "--dim=kv_len=50..200"
    )
    assert status == 0, errors
    assert report["out_of_bounds"] == 0


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
