# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients on the device against those of the float64 reference: dq, and each region's dk and dv."""

import os
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from attnlab import Problem, attn_run, program, ptxas
from safetensors.numpy import load_file, save_file
from tensorlab import generate, launch

DEVICE = os.environ.get("ATTN_DEVICE", "host")

POINTS = {
    "causal": (Problem(4, 2, 64, 64, "bf16", "packed", "causal"), 1),
    "full": (Problem(2, 2, 64, 64, "f16", "dense", "all"), 1),
    "window": (Problem(4, 1, 64, 64, "bf16", "dense", "window(40)"), 1),
    "streaming": (Problem(3, 1, 64, 64, "f16", "packed", "sink(20) | recent(50)"), 1),
    "sinks": (Problem(4, 2, 64, 64, "bf16", "packed", "causal", sinks=True), 1),
    "values-wider": (Problem(6, 2, 48, 80, "f16", "packed", "causal"), 1),
    "values-narrower": (Problem(4, 4, 128, 40, "bf16", "dense", "causal"), 1),
    "long-tiles": (Problem(4, 2, 64, 48, "bf16", "packed", "causal"), 2),  # two exchanges, of 128 rows
    "long-heads": (Problem(2, 1, 128, 128, "bf16", "packed", "causal"), 1),
    "soft-cap": (Problem(4, 2, 64, 64, "f16", "packed", "causal", softcap=True), 1),
    "wide-group": (Problem(16, 1, 128, 128, "bf16", "packed", "causal"), 1),
    "uneven-group": (Problem(6, 2, 64, 64, "bf16", "dense", "sink(9) | window(50)"), 1),
    "uneven-panels": (Problem(6, 2, 96, 96, "bf16", "packed", "causal"), 1),
    "seven-heads": (Problem(14, 2, 128, 64, "f16", "dense", "causal"), 1),
    "padded-key-tiles": (Problem(4, 2, 96, 128, "f16", "dense", "causal"), 3),
    "padded-key-tiles-three-heads": (Problem(3, 1, 96, 64, "bf16", "packed", "window(30)"), 2),
    "three-heads": (Problem(6, 2, 128, 128, "bf16", "packed", "causal"), 1),
    "five-heads": (Problem(10, 2, 128, 128, "bf16", "dense", "causal"), 2),
    "five-heads-short": (Problem(10, 2, 64, 64, "bf16", "packed", "window(30)"), 3),
    "six-heads": (Problem(12, 2, 128, 96, "f16", "packed", "causal"), 2),
    "twelve-heads": (Problem(12, 1, 64, 64, "f16", "packed", "all"), 1),
    "keys-of-three-panels": (Problem(4, 2, 192, 128, "bf16", "packed", "causal"), 1),
    "keys-of-three-panels-five-heads": (Problem(5, 1, 192, 96, "f16", "dense", "window(30)"), 2),
    "five-heads-capped": (Problem(5, 1, 64, 64, "bf16", "packed", "causal", softcap=True), 1),
}
DIMS = ["--dim=batch=3", "--dim=q_len=1..150", "--dim=kv_len=1..200"]


# Separate launches for rows and tokens, one that adds to both in an order (of plain scores), and in any order.
FORMS = pytest.mark.parametrize("ordered", ["apart", True, False], ids=["apart", "in-order", "fused"])
MARKS = {"apart": 'attn.ordered = "apart"', True: "attn.ordered", False: "attn.ordered = false"}


def marked(text, ordered=False):
    """Return the text with a request for the backward pass of its function."""
    head, brace, body = text.rpartition("}\n")[0].partition(" {\n")
    assert brace
    return f"{head} attributes {{attn.backward, {MARKS[ordered]}}}{brace}{body}}}\n"


def in_form(text, ordered):
    """Return the text of gradients, with a fixed order or without."""
    return text.replace("attn.backward", f"attn.backward, {MARKS[ordered]}")


def backward(problem, ordered=False):
    return marked(problem.text(), ordered)


@FORMS
@pytest.mark.parametrize("name", POINTS)
def test_gradients_are_those_of_the_reference(tmp_path, name, ordered):
    problem, seed = POINTS[name]
    file = tmp_path / "backward.mlir"
    file.write_text(backward(problem, ordered))
    status, report, errors = attn_run(file, "--check", f"--device={DEVICE}", f"--seed={seed}", *DIMS)
    assert status == 0, (errors, report)


FEW_TOKENS = ["--dim=batch=1", "--dim=q_len=1", "--dim=kv_len=2"]


@FORMS
@pytest.mark.parametrize("seed", [31, 99])
def test_rows_of_two_tokens_are_as_exact_as_their_output(tmp_path, ordered, seed):
    """The terms of dq or dk nearly cancel in these draws, so the rounding of the given output remains."""
    file = tmp_path / "two.mlir"
    file.write_text(backward(Problem(1, 1, 64, 64, "bf16", "packed", "causal"), ordered))
    status, report, errors = attn_run(file, "--check", f"--device={DEVICE}", f"--seed={seed}", *FEW_TOKENS)
    assert status == 0, (errors, report)


@FORMS
def test_rows_of_one_token_have_rounded_zeros(tmp_path, ordered):
    """The terms of dq cancel, but for the rounding of their sums."""
    file = tmp_path / "one.mlir"
    file.write_text(backward(Problem(12, 3, 64, 128, "f16", "packed", "all"), ordered))
    tensors = generate(file, tmp_path, "--dim=batch=2", "--dim=q_len=20", "--dim=kv_len=1")
    tensors["dlse"][:] = 0
    for name in ("kv.v", "o"):
        tensors[name] *= np.float16(1024)
    status, found, report, errors = launch(file, tmp_path, tensors)
    assert status == 0 and found["dq"].any(), (errors, report)


def test_a_wrong_output_is_not_rounded(tmp_path):
    """Gradients from an output that no forward pass gives are past their tolerance."""
    file = tmp_path / "two.mlir"
    file.write_text(backward(Problem(1, 1, 64, 64, "f16", "packed", "causal")))
    tensors = generate(file, tmp_path, *FEW_TOKENS)
    assert launch(file, tmp_path, tensors)[0] == 0
    tensors["o"] *= np.float16(1.1)
    status, _, report, _ = launch(file, tmp_path, tensors)
    assert status == 1 and not report["passed"]


@pytest.mark.parametrize("name", ["causal", "streaming", "soft-cap"])
def test_mma_makes_the_same(tmp_path, name):
    file = tmp_path / "mma.mlir"
    file.write_text(backward(POINTS[name][0]))
    status, report, errors = attn_run(
        file, "--check", f"--device={DEVICE}", "--schedule=mma", "--seed=1", *DIMS
    )
    assert status == 0, (errors, report)


WIDE = {
    "causal": Problem(2, 1, 256, 256, "bf16", "packed", "causal"),
    "three-heads": Problem(3, 1, 192, 192, "f16", "dense", "window(30)"),
    "keys": Problem(4, 2, 256, 128, "bf16", "packed", "causal", softcap=True),
    "values": Problem(2, 2, 136, 256, "f16", "packed", "sink(9) | window(50)"),
    "panels": Problem(4, 1, 224, 200, "bf16", "dense", "all"),
    "sinks": Problem(2, 2, 200, 200, "bf16", "packed", "causal", sinks=True),
    "eight-heads": Problem(8, 1, 256, 256, "f16", "dense", "causal"),
    "five-heads": Problem(5, 1, 256, 64, "bf16", "packed", "all"),
    "three-panels": Problem(4, 2, 192, 192, "bf16", "packed", "causal"),
    "keys-of-five-panels": Problem(2, 1, 320, 128, "bf16", "packed", "causal"),
}


@pytest.mark.parametrize(("schedule", "ordered"), [("mma", False), *(("wgmma", each) for each in MARKS)])
@pytest.mark.parametrize("name", WIDE)
def test_keys_and_values_of_wide_heads_have_kernels_of_their_own(tmp_path, name, schedule, ordered):
    file = tmp_path / "wide.mlir"
    file.write_text(backward(WIDE[name], ordered))
    dims = ["--dim=batch=2", "--dim=q_len=1..80", "--dim=kv_len=1..150"]
    options = [f"--device={DEVICE}", f"--schedule={schedule}", "--seed=3"]
    status, report, errors = attn_run(file, "--check", *options, *dims)
    assert status == 0, (errors, report)


@pytest.mark.parametrize(("target", "ordered"), [("sm_80", False), *(("sm_90a", each) for each in MARKS)])
@pytest.mark.parametrize("name", WIDE)
def test_nothing_is_spilled_of_wide_heads(tmp_path, name, target, ordered):
    check_spills(tmp_path, backward(WIDE[name], ordered), target)


@pytest.mark.parametrize("group", [1, 2, 3, 5, 6, 7, 12, 16])
def test_wgmma_multiplies_for_every_group(tmp_path, group):
    """If the heads of a group do not fill the lines of a walked tile, parts of it alternate."""
    problem = Problem(2 * group, 2, 64, 64, "bf16", "packed", "causal")
    for ordered, kernels in (("apart", ("_rows", "_tokens")), (True, ("_tokens",)), (False, ("_tokens",))):
        file, ptx = tmp_path / "kinds.mlir", tmp_path / "kinds.ptx"
        file.write_text(backward(problem, ordered))
        options = ["--target=sm_90a", "--schedule=wgmma", "--emit=ptx", "-o", str(ptx)]
        result = subprocess.run(
            [program("attn-opt"), str(file), *options], capture_output=True, text=True, timeout=120
        )
        assert result.returncode == 0, result.stderr
        assert "mma instead of wgmma" not in result.stderr
        bodies = {part.partition("(")[0]: part for part in ptx.read_text().split(".visible .entry ")[1:]}
        for held in kernels:
            (text,) = (body for name, body in bodies.items() if held in name)
            assert "wgmma.mma_async" in text and "mma.sync.aligned" not in text


REGIONS = """
!q = tensor<?x4x64xbf16>
!lse = tensor<?x4xf32>
!context = !attn.kv<packed, heads = 2, dim = 64, key = bf16, value = bf16>
!response = !attn.kv<dense, heads = 2, dim = 64, key = bf16, value = bf16>
func.func @shared(%q: !q {attn.name = "q"}, %context: !context {attn.name = "context", attn.dims = ["groups", "context_len"]},
                  %response: !response {attn.name = "response"}) -> (!q, !lse) attributes {attn.backward} {
  %o, %lse = attn.attend %q over (%context see all), (%response see window(70)) : !q, !context, !response -> !q, !lse
  return %o, %lse : !q, !lse
}
"""


@FORMS
def test_regions_that_rows_share(tmp_path, ordered):
    """Five responses of two prompts: the tokens of a prompt get the sum over the rows of all its
    responses."""
    file = tmp_path / "shared.mlir"
    file.write_text(in_form(REGIONS, ordered))
    dims = ["--dim=batch=5", "--dim=groups=2", "--dim=context_len=90", "--dim=q_len=1..60", "--dim=kv_len=60"]
    status, _, errors = attn_run(file, "--check", f"--device={DEVICE}", "--seed=2", *dims)
    assert status == 0, errors


# Slopes by head from a table, a soft sign, the larger of two and a mask: each has a derivative of its own.
REGION = """
!q = tensor<?x4x64xf16>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = f16, value = f16>
func.func @scores(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}, %slopes: tensor<4xf32> {attn.name = "slopes"}) -> !q {
  %one = arith.constant 1.0 : f32
  %low = arith.constant -0.5 : f32
  %hidden = arith.constant 0xFF800000 : f32
  %o = attn.attend %q over (%kv see causal) score {
    ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
      %slope = attn.read %slopes[%head] : tensor<4xf32>
      %back = arith.subi %k_pos, %q_pos : i32
      %distance = arith.sitofp %back : i32 to f32
      %biased = math.fma %distance, %slope, %s : f32
      %size = math.absf %biased : f32
      %more = arith.addf %size, %one : f32
      %soft = arith.divf %biased, %more : f32
      %sum = arith.addf %soft, %s : f32
      %bounded = arith.maximumf %sum, %low : f32
      %far = arith.constant -100 : i32
      %near = arith.cmpi sgt, %back, %far : i32
      %t = arith.select %near, %bounded, %hidden : f32
      attn.yield %t : f32
    } : !q, !kv -> !q
  return %o : !q
}
"""


@FORMS
def test_score_regions_have_slopes(tmp_path, ordered):
    file = tmp_path / "scores.mlir"
    file.write_text(marked(REGION, ordered))
    status, report, errors = attn_run(file, "--check", f"--device={DEVICE}", "--seed=4", *DIMS)
    assert status == 0, (errors, report)


# A table that each head reads at two indices, of rows or not, and one without gradients, over regions of both
# stores.
TABLES = """
!q = tensor<?x4x64xf16>
!context = !attn.kv<packed, heads = 2, dim = 64, key = f16, value = f16>
!response = !attn.kv<dense, heads = 2, dim = 64, key = f16, value = f16>
func.func @tables(%q: !q {attn.name = "q"}, %context: !context {attn.name = "context", attn.dims = ["groups", "context_len"]},
                  %response: !response {attn.name = "response"}, %scales: tensor<4x150xf32> {attn.name = "scales"},
                  %slopes: tensor<4xf32> {attn.name = "slopes"}) -> !q attributes {attn.backward = ["scales"]} {
  %zero = arith.constant 0 : i32
  %o = attn.attend %q over (%context see all), (%response see window(70)) score {
    ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
      %of_head = attn.read %scales[%head, %zero] : tensor<4x150xf32>
      %of_row = attn.read %scales[%head, %q_pos] : tensor<4x150xf32>
      %slope = attn.read %slopes[%head] : tensor<4xf32>
      %both = arith.mulf %of_head, %of_row : f32
      %scaled = arith.mulf %s, %both : f32
      %soft = math.tanh %scaled : f32
      %sum = arith.addf %soft, %slope : f32
      attn.yield %sum : f32
  } : !q, !context, !response -> !q
  return %o : !q
}
"""


@pytest.mark.parametrize("schedule", ["mma", "wgmma"])
def test_tables(tmp_path, schedule):
    file = tmp_path / "tables.mlir"
    file.write_text(TABLES)
    dims = ["--dim=batch=3", "--dim=groups=1", "--dim=context_len=90", "--dim=q_len=1..60", "--dim=kv_len=60"]
    options = [f"--device={DEVICE}", f"--schedule={schedule}", "--seed=6"]
    status, report, errors = attn_run(file, "--check", *options, *dims)
    assert status == 0, (errors, report)


# Slopes of rows that see only the first tokens, far away: the factor of a row's ds is some thousands for all
# of them.
FAR = """
!q = tensor<?x4x64xbf16>
!lse = tensor<?x?xf32>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = bf16, value = bf16>
func.func @far(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}, SINKS%slopes: tensor<4xf32> {attn.name = "slopes"})
    -> (!q, !lse) attributes {attn.backward = ["slopes"]} {
  %o, %lse = attn.attend %q over (%kv see sink(50) & causal) LOGITS score {
    ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
      %slope = attn.read %slopes[%head] : tensor<4xf32>
      %back = arith.subi %q_pos, %k_pos : i32
      %distance = arith.sitofp %back : i32 to f32
      %small = arith.constant 1.0e-4 : f32
      %near = arith.mulf %distance, %small : f32
      %biased = math.fma %near, %slope, %s : f32
      attn.yield %biased : f32
  } : !q, !kv TYPE -> !q, !lse
  return %o, %lse : !q, !lse
}
"""


@pytest.mark.parametrize("schedule", ["mma", "wgmma"])
@pytest.mark.parametrize("sinks", [False, True], ids=["plain", "sinks"])
def test_tables_far_from_the_first_token(tmp_path, schedule, sinks):
    """The result is as exact as near the first token: the rounding of outputs is not multiplied by the
    distance."""
    file = tmp_path / "far.mlir"
    words = {
        "SINKS": '%logits: tensor<4xf32> {attn.name = "sink_logits"}, ',
        "LOGITS": "sinks %logits",
        "TYPE": ", tensor<4xf32>",
    }
    text = FAR
    for place, word in words.items():
        text = text.replace(place, word if sinks else "")
    file.write_text(text)
    dims = ["--dim=batch=2", "--dim=q_len=20..60", "--dim=kv_len=4000..6000"]
    options = [f"--device={DEVICE}", f"--schedule={schedule}", "--seed=2"]
    status, report, errors = attn_run(file, "--check", *options, *dims)
    assert status == 0, (errors, report)


@pytest.mark.parametrize("schedule", ["mma", "wgmma"])
@pytest.mark.parametrize("text", [backward(POINTS["sinks"][0], True), TABLES], ids=["sinks", "tables"])
def test_gradients_are_the_same_bits_in_every_run(tmp_path, text, schedule):
    """20 runs have equal bits, each with blocks and threads in another order."""
    file = tmp_path / "again.mlir"
    file.write_text(text)
    more = ["--dim=groups=2", "--dim=context_len=40"] if text == TABLES else []
    dims = ["--dim=batch=3", "--dim=q_len=1..60", "--dim=kv_len=60", *more]
    options = [f"--device={DEVICE}", f"--schedule={schedule}", "--repeat=20", "--shuffle"]
    status, _, errors = attn_run(file, *options, *dims)
    assert status == 0, errors


@pytest.mark.parametrize("name", ["causal", "five-heads-short", "six-heads", "eight-heads", "three-panels"])
def test_blocks_that_add_to_the_same_rows_wait_for_each_other(tmp_path, name):
    """Tiles of rows of one task begin elsewhere than those of the next."""
    problem = WIDE[name] if name in WIDE else POINTS[name][0]
    file = tmp_path / "order.mlir"
    file.write_text(backward(replace(problem, see="causal"), ordered=True))
    dims = ["--dim=batch=3", "--dim=q_len=150..270", "--dim=kv_len=400"]
    repeats = 2 if name in WIDE else 6
    status, _, errors = attn_run(file, f"--device={DEVICE}", f"--repeat={repeats}", "--shuffle", *dims)
    assert status == 0, errors


def gradients(file, folder, tensors, *options):
    """Return the kernels' results for these tensors, unchecked."""
    save_file(tensors, folder / "in.safetensors")
    files = ["--inputs", folder / "in.safetensors", "--outputs", folder / "out.safetensors"]
    status, _, errors = attn_run(file, f"--device={DEVICE}", *files, *options)
    assert status == 0, errors
    return load_file(folder / "out.safetensors")


@FORMS
def test_a_sequence_is_nobody_elses_matter(tmp_path, ordered):
    """NaNs in the incoming gradients of the first sequence stay in it, and change no bit of the second."""
    file = tmp_path / "two.mlir"
    file.write_text(backward(Problem(4, 2, 64, 64, "f16", "packed", "causal"), ordered))
    tensors = generate(file, tmp_path, "--dim=batch=2", "--dim=q_len=70", "--dim=kv_len=90")
    right = gradients(file, tmp_path, tensors)
    tensors["do"][:70] = np.nan
    spoiled = gradients(file, tmp_path, tensors)
    for name, begin in {"dq": 70, "kv.dk": 90, "kv.dv": 90}.items():
        assert np.isnan(spoiled[name][:begin]).any()
        assert np.isfinite(right[name]).all()
        assert np.array_equal(spoiled[name][begin:], right[name][begin:])


@pytest.mark.parametrize(
    ("schedule", "ordered"), [("mma", True), ("wgmma", "apart"), ("wgmma", True), ("wgmma", False)]
)
def test_what_lies_behind_a_sequence_stays_there(tmp_path, schedule, ordered):
    """NaNs in the rows and tokens of the second sequence lie in the last tiles of the first, where all
    weights are zero."""
    file = tmp_path / "behind.mlir"
    file.write_text(backward(Problem(4, 2, 64, 64, "f16", "packed", "causal"), ordered))
    tensors = generate(file, tmp_path, "--dim=batch=2", "--dim=q_len=70", "--dim=kv_len=90")
    options = [f"--schedule={schedule}"]
    right = gradients(file, tmp_path, tensors, *options)
    for name, begin in {"q": 70, "do": 70, "o": 70, "lse": 70, "dlse": 70, "kv.k": 90, "kv.v": 90}.items():
        tensors[name][begin:] = np.nan
    spoiled = gradients(file, tmp_path, tensors, *options)
    for name, end in {"dq": 70, "kv.dk": 90, "kv.dv": 90}.items():
        assert np.array_equal(spoiled[name][:end], right[name][:end])
        assert np.isnan(spoiled[name][end:]).any()


def test_a_head_of_the_group_counts(tmp_path):
    """Without the incoming gradients of one query head, the keys of its group get less, and other keys the
    same."""
    file = tmp_path / "heads.mlir"
    file.write_text(backward(Problem(6, 2, 64, 64, "f16", "dense", "causal")))
    tensors = generate(file, tmp_path, "--dim=batch=1", "--dim=q_len=40", "--dim=kv_len=40")
    all_heads = gradients(file, tmp_path, tensors)
    tensors["do"][:, 1] = 0
    tensors["dlse"][:, 1] = 0
    without = gradients(file, tmp_path, tensors)
    assert (without["dq"][:, 1] == 0).all()
    for name in ("kv.dk", "kv.dv"):
        assert not np.array_equal(without[name][:, :, 0], all_heads[name][:, :, 0])
        assert np.array_equal(without[name][:, :, 1], all_heads[name][:, :, 1])


def check_spills(tmp_path, text, target="sm_90a"):
    file, ptx = tmp_path / "spills.mlir", tmp_path / "spills.ptx"
    file.write_text(text)
    command = [program("attn-opt"), str(file), f"--target={target}", "--emit=ptx", "-o", str(ptx)]
    subprocess.run(command, check=True, timeout=120)
    for kernel in ptxas(ptx, target):
        assert (kernel.spill_stores, kernel.spill_loads) == (0, 0), kernel


WINDOW = "sink(4) | window(64)"


@pytest.mark.parametrize("dims", [(64, 64), (96, 96), (128, 128), (192, 128)])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("see", "softcap"), [("causal", False), (WINDOW, False), ("causal", True)])
@FORMS
def test_nothing_is_spilled(tmp_path, dims, target, see, softcap, ordered):
    problem = Problem(8, 2, *dims, "bf16", "packed", see, softcap=softcap)
    check_spills(tmp_path, backward(problem, ordered), target)


@pytest.mark.parametrize("dims", [(64, 64), (96, 96), (112, 112), (128, 128)])
@pytest.mark.parametrize("see", ["all", WINDOW])
def test_nothing_is_spilled_where_rows_are_gathered(tmp_path, dims, see):
    """Stationary rows, of groups of three heads."""
    check_spills(tmp_path, backward(Problem(6, 2, *dims, "bf16", "packed", see), "apart"))


@pytest.mark.parametrize(
    "dims", [(64, 64), (64, 48), (128, 64), (128, 128), (192, 32), (192, 64), (192, 96), (192, 128)]
)
def test_nothing_is_spilled_without_a_mask(tmp_path, dims):
    check_spills(tmp_path, backward(Problem(8, 2, *dims, "bf16", "packed", "all")))


@pytest.mark.parametrize("value_dim", [48, 80, 96])
def test_nothing_is_spilled_beside_slopes(tmp_path, value_dim):
    problem = Problem(8, 2, 128, value_dim, "bf16", "packed", "causal", softcap=True)
    check_spills(tmp_path, backward(problem, ordered=False))


@pytest.mark.parametrize("text", [REGIONS, TABLES], ids=["regions", "tables"])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_nothing_is_spilled_by_several_regions(tmp_path, text, target):
    check_spills(tmp_path, text.replace("64", "128"), target)


def test_dims_that_do_not_fit_are_refused(tmp_path):
    file = tmp_path / "large.mlir"
    file.write_text(backward(Problem(2, 1, 256, 256, "bf16", "packed", "causal")))
    status, _, errors = attn_run(file, "--device=host", "--target=sm_86", "--dim=batch=1")
    assert status == 2
    assert "no schedule of a backward pass for dim 256 and value dim 256" in errors
