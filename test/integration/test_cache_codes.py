# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantized caches with given tensors: NumPy's result of the definition, rows that are hard to quantize,
requantized against directly quantized rows, whole sectors, and refusals."""

import numpy as np
import pytest
import safetensors.torch
import tensorlab
import torch
from attnlab import CacheProblem, attn_run
from tensorlab import DEVICE


def codes(element, per):
    return f"!attn.quantized<{element}, per = {per}>"


def run(folder, problem, tensors, *options):
    file = folder / "problem.mlir"
    file.write_text(problem.text())
    status, results, report, errors = tensorlab.launch(file, folder, tensors, *options)
    assert status == 0, errors
    return results, report


def generate_any(folder, problem, *options):
    """Generate tensors of any dtype: PyTorch has names for all of them."""
    file = folder / "problem.mlir"
    file.write_text(problem.text())
    saved = folder / "generated.safetensors"
    status, _, errors = attn_run(file, f"--device={DEVICE}", "--save-inputs", saved, *options)
    assert status == 0, errors
    return safetensors.torch.load_file(saved)


def run_any(folder, problem, tensors):
    file, inputs, outputs = (folder / name for name in ("problem.mlir", "in.safetensors", "out.safetensors"))
    file.write_text(problem.text())
    safetensors.torch.save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, inputs)
    status, report, errors = attn_run(
        file, "--inputs", inputs, "--outputs", outputs, "--check", f"--device={DEVICE}"
    )
    assert status == 0, errors
    return safetensors.torch.load_file(outputs), report


def bits(tensor):
    """Return the same memory in NumPy, as integers of 8 or 16 bits."""
    return (
        tensor.view(torch.int16).numpy().view(np.uint16)
        if tensor.itemsize == 2
        else tensor.view(torch.uint8).numpy()
    )


def integers(values):
    return torch.tensor(np.asarray(values, np.int32))


def pools(problem, formats, slots, layers=1):
    """Return an empty packed cache."""
    heads, tensors = problem.heads, {}
    for part, (bits, per), dim in zip("kv", formats, (problem.dim, problem.value_dim), strict=True):
        tensors[f"kv.{part}"] = np.zeros((layers, slots, heads, dim * bits // 8), np.uint8)
        tensors[f"kv.{part}_meta"] = np.zeros((layers, slots, heads, dim // per, 2), np.float16)
    return tensors


def quantized(numbers, bits, per):
    """Return elements and metadata of finite numbers, quantized in float32 step by step."""
    levels = np.float32(2**bits - 1)
    groups = numbers.astype(np.float32).reshape(*numbers.shape[:-1], -1, per)
    low, high = groups.min(-1), groups.max(-1)
    scale = np.maximum(((high - low) * (np.float32(1) / levels)).astype(np.float16), np.float16(6e-8))
    zero = low.astype(np.float16)
    inverse = np.float32(1) / scale.astype(np.float32)
    distance = groups - zero.astype(np.float32)[..., None]
    code = np.rint(distance.astype(np.float64) * inverse[..., None]).clip(0, levels).astype(np.uint8)
    code = code.reshape(*numbers.shape[:-1], -1, 8 // bits)
    packed = sum(code[..., i] << i * bits for i in range(8 // bits)).astype(np.uint8)
    return packed, np.stack([scale, zero], -1)


def numbers_of(packed, meta, bits, per):
    code = np.stack([packed >> i * bits & 2**bits - 1 for i in range(8 // bits)], -1)
    code = code.reshape(*packed.shape[:-1], -1, per).astype(np.float64)
    numbers = code * meta[..., :1].astype(np.float64) + meta[..., 1:].astype(np.float64)
    return numbers.reshape(*packed.shape[:-1], -1)


def test_append_makes_the_codes_of_the_definition(tmp_path):
    formats = (8, 128), (4, 32)
    problem = CacheProblem("append", 2, 128, 128, "f16", "packed", codes("i8", 128), codes("i4", 32))
    rng = np.random.default_rng(3)
    rows = {part: rng.normal(size=(2, 21, 2, 128)).astype(np.float16) for part in "kv"}
    rows["k"] *= np.exp2(rng.integers(-12, 12, size=(2, 21, 2, 1))).astype(np.float16)
    slots = rng.permutation(40)[:21].astype(np.int32)
    slots[4] = -1
    got, _ = run(tmp_path, problem, {**pools(problem, formats, 40, 2), **rows, "slots": slots})
    there = slots >= 0
    for part, (bits, per) in zip("kv", formats, strict=True):
        packed, meta = quantized(rows[part], bits, per)
        assert np.array_equal(got[f"kv.{part}"][:, slots[there]], packed[:, there])
        assert np.array_equal(
            got[f"kv.{part}_meta"][:, slots[there]].view(np.uint16), meta[:, there].view(np.uint16)
        )
        free = np.setdiff1d(np.arange(40), slots)
        assert not got[f"kv.{part}"][:, free].any()


def test_heads_of_a_page_lie_apart(tmp_path):
    """In pages each head has its tokens together, elements and metadata: [pages, heads, page, ...]."""
    problem = CacheProblem("append", 3, 64, 64, "f16", "paged<4>", codes("i8", 32), codes("i8", 64))
    rng = np.random.default_rng(4)
    rows = {part: rng.normal(size=(1, 9, 3, 64)).astype(np.float16) for part in "kv"}
    slots = rng.permutation(20)[:9].astype(np.int32)
    tensors = {"slots": slots, **rows}
    for part, groups in (("k", 2), ("v", 1)):
        tensors[f"kv.{part}_pages"] = np.zeros((1, 5, 3, 4, 64), np.uint8)
        tensors[f"kv.{part}_meta"] = np.zeros((1, 5, 3, 4, groups, 2), np.float16)
    got, _ = run(tmp_path, problem, tensors)
    for part, per in (("k", 32), ("v", 64)):
        stored, meta = quantized(rows[part], 8, per)
        for row, slot in enumerate(slots):
            assert np.array_equal(got[f"kv.{part}_pages"][0, slot // 4, :, slot % 4], stored[0, row])
            assert np.array_equal(got[f"kv.{part}_meta"][0, slot // 4, :, slot % 4], meta[0, row])


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("key", [codes("i4", 64), codes("f8E4M3FN", "token"), codes("f8E5M2", "token")])
def test_hard_rows(tmp_path, dtype, key):
    """Constant rows are restored exactly; NaN and infinite numbers are counted, and stored as 0 and the
    largest."""
    problem = CacheProblem("append", 1, 64, 64, dtype, "packed", key, codes("i8", 64), status=True)
    tensors = generate_any(tmp_path, problem, "--dim=rows=6", "--dim=layers=1", "--dim=tokens=8")
    nan, infinite, one = {"f16": (0x7E00, 0x7C00, 0x3C00), "bf16": (0x7FC0, 0x7F80, 0x3F80)}[dtype]
    for part in "kv":
        rows = bits(tensors[part])
        rows[:] = one
        rows[0, 1, 0, 5], rows[0, 1, 0, 9] = nan, 0x8000 | nan
        rows[0, 2, 0, 7], rows[0, 2, 0, 8], rows[0, 2, 0, 63] = infinite, 0x8000 | infinite, 0
        rows[0, 3] = 0
        rows[0, 4] = 0x8000  # -0
    tensors["slots"] = integers(range(6))
    tensors["status"] = integers([100])
    appended, _ = run_any(tmp_path, problem, tensors)
    assert appended.pop("status")[0] == 100 + 2 * 4
    gather = CacheProblem("gather", 1, 64, 64, dtype, "packed", key, codes("i8", 64))
    got, _ = run_any(tmp_path, gather, {**appended, "slots": tensors["slots"]})
    for part in "kv":
        rows = bits(got[part])[0, :, 0]
        assert (rows[0] == one).all() and (rows[5] == one).all()
        assert not (rows[3] & 0x7FFF).any() and not (rows[4] & 0x7FFF).any()
        assert rows[1][5] & 0x7FFF == 0 and rows[1][9] & 0x7FFF == 0
        if part == "v" or "i4" in key:  # the largest that floats of 8 bits stand for is the largest f32
            assert (rows[2] & 0x7FFF < infinite).all()
    untouched = bits(appended["kv.k"])[:, 6:]
    assert np.array_equal(untouched, bits(tensors["kv.k"])[:, 6:])


@pytest.mark.parametrize("bits,lower", [(8, 4), (8, 2), (4, 2)])
def test_requantized_is_as_good_as_quantized(tmp_path, bits, lower):
    """Grids of integers nest: storing more bits first loses as much as quantizing at once."""
    rng = np.random.default_rng(bits + lower)
    rows = {part: rng.normal(size=(1, 64, 2, 128)).astype(np.float16) for part in "kv"}
    rows["k"][..., :4] *= 8  # outlier channels
    order = {name: np.arange(64, dtype=np.int32) for name in ("slots", "from", "to")}

    def append(width):
        formats = ((width, 128),) * 2
        problem = CacheProblem("append", 2, 128, 128, "f16", "packed", *[codes(f"i{width}", 128)] * 2)
        got, _ = run(tmp_path, problem, {**pools(problem, formats, 64), **rows, "slots": order["slots"]})
        return got

    problem = CacheProblem(
        "requantize",
        2,
        128,
        128,
        "f16",
        "packed",
        *[codes(f"i{bits}", 128)] * 2,
        *[codes(f"i{lower}", 128)] * 2,
    )
    low = {name.replace("kv.", "low."): x for name, x in pools(problem, ((lower, 128),) * 2, 64).items()}
    again, _ = run(tmp_path, problem, {**append(bits), **low, "from": order["from"], "to": order["to"]})
    direct = append(lower)
    for part in "kv":
        errors = [
            np.linalg.norm(
                numbers_of(tensors[f"{name}.{part}"], tensors[f"{name}.{part}_meta"], lower, 128) - rows[part]
            )
            for name, tensors in (("low", again), ("kv", direct))
        ]
        assert errors[0] <= 1.001 * errors[1]


@pytest.mark.skipif(DEVICE != "host", reason="counters are the host device's")
@pytest.mark.parametrize(
    "key,value", [(("i8", 128), ("i8", 128)), (("i8", 128), ("i4", 128)), (("i4", 128), ("i2", 128))]
)
@pytest.mark.parametrize("op", ["append", "move", "gather"])
def test_neighbours_are_written_in_whole_sectors(tmp_path, op, key, value):
    """Tokens of a prompt are adjacent: elements and metadata of eight make whole sectors."""
    problem = CacheProblem(op, 8, 128, 128, "bf16", "paged<16>", codes(*key), codes(*value))
    tensors = generate_any(tmp_path, problem, "--dim=rows=512", "--dim=layers=2", "--dim=pages=66")
    first = np.arange(512)
    lists = {"from": first, "to": first + 512} if op == "move" else {"slots": first + 16}
    tensors.update({name: integers(slots) for name, slots in lists.items()})
    _, report = run_any(tmp_path, problem, tensors)
    assert report["amplification"] <= 1.03
    assert report["sector_efficiency"] >= 0.97


def test_fork_of_a_page(tmp_path):
    """A page that two sequences will write to is copied, elements and metadata alike."""
    problem = CacheProblem("move", 2, 64, 64, "f16", "paged<16>", codes("i4", 16), codes("f8E4M3FN", "token"))
    tensors = generate_any(tmp_path, problem, "--dim=rows=16", "--dim=layers=2", "--dim=pages=5")
    tensors["from"], tensors["to"] = integers(range(16, 32)), integers(range(48, 64))
    got, _ = run_any(tmp_path, problem, tensors)
    assert sorted(got) == ["kv.k_meta", "kv.k_pages", "kv.v_pages", "kv.v_scales"]
    for name, tensor in got.items():
        expected = bits(tensors[name]).copy()
        expected[:, 3] = expected[:, 1]
        assert np.array_equal(bits(tensor), expected)


def refused(tmp_path, problem, change, *words):
    tensors = change(generate_any(tmp_path, problem, "--dim=rows=8", "--dim=layers=2"))
    file, inputs = tmp_path / "problem.mlir", tmp_path / "in.safetensors"
    safetensors.torch.save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, inputs)
    status, report, errors = attn_run(file, "--inputs", inputs, f"--device={DEVICE}")
    assert (status, report) == (2, None)
    for word in words:
        assert word in errors, errors


def test_tensors_refused(tmp_path):
    i8, e4m3 = codes("i8", 64), codes("f8E4M3FN", "head")
    integers = CacheProblem("append", 2, 128, 128, "f16", "paged<16>", i8, i8)
    refused(
        tmp_path,
        integers,
        lambda t: {**t, "kv.k_meta": t["kv.k_meta"][:, :, :, :, :1]},
        "tensor 'kv.k_meta': expected shape [2, 3, 2, 16, 2, 2], got [2, 3, 2, 16, 1, 2]",
    )
    refused(
        tmp_path,
        integers,
        lambda t: {**t, "kv.k_pages": t["kv.k_pages"].view(torch.float16)},
        "tensor 'kv.k_pages': expected u8, got f16",
    )
    refused(
        tmp_path,
        integers,
        lambda t: {name: t[name] for name in t if name != "kv.v_meta"},
        "tensor 'kv.v_meta' is missing",
    )
    floats = CacheProblem("append", 2, 128, 128, "f16", "packed", e4m3, e4m3)
    for wrong in (0, -1, np.inf, np.nan):
        refused(
            tmp_path,
            floats,
            lambda t, wrong=wrong: {**t, "kv.k_scales": torch.full_like(t["kv.k_scales"], wrong)},
            "tensor 'kv.k_scales': expected finite scales above 0, got",
        )
    refused(
        tmp_path,
        floats,
        lambda t: {**t, "kv.v_scales": t["kv.v_scales"][:, :1]},
        "tensor 'kv.v_scales': expected shape [2, 2], got [2, 1]",
    )
    refused(
        tmp_path,
        CacheProblem("requantize", 2, 128, 128, "f16", "packed", i8, i8, codes("i4", 64), codes("i4", 64)),
        lambda t: {**t, "to": torch.full((8,), t["low.k"].shape[1], dtype=torch.int32)},
        "requantize: row 0 writes slot",
    )


def test_few_rows(tmp_path):
    for rows in (0, 1, 7, 9):
        file = tmp_path / "append.mlir"
        file.write_text(CacheProblem(key=codes("i8", 128), value=codes("i2", 64), status=True).text())
        status, report, errors = attn_run(
            file, f"--device={DEVICE}", "--check", f"--dim=rows={rows}", "--dim=layers=1"
        )
        assert status == 0, errors
        assert report["passed"]
