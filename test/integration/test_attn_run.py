# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Uses of attn-run, and its promises."""

import json
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from attnlab import ROOT, Problem, attn_run, program
from safetensors.numpy import load_file, save_file

DEVICE = os.environ.get("ATTN_DEVICE", "host")
EXAMPLES = sorted((ROOT / "examples").glob("*/*.mlir"))
DECODE = ROOT / "examples/01_paged_decode/decode.mlir"
SHARED = ROOT / "examples/05_shared_prefix/shared_prefix.mlir"
FIELDS_ALWAYS = {
    "rel_err",
    "max_err_lse",
    "compile_ms",
    "run_ms",
    "predicted_ms",
    "device",
    "target",
    "schedule",
    "strategy",
}
FIELDS_HOST = {
    "races",
    "uninitialized",
    "out_of_bounds",
    "bytes_read",
    "bytes_written",
    "bytes_partials",
    "bytes_floor",
    "amplification",
    "sector_efficiency",
    "bank_conflicts",
    "flops",
    "flops_useful",
}


@pytest.fixture
def small(tmp_path):
    """Return an f16 problem (NumPy has no bf16) that runs quickly."""
    file = tmp_path / "small.mlir"
    file.write_text(Problem(8, 2, 64, 64, "f16").text())
    return file


def run(*arguments):
    command = [program("attn-run"), *map(str, arguments), f"--device={DEVICE}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)


def sizes_of(example):
    """Return the sizes of the tensors that an example runs on."""
    lengths = ["q_len=40", "kv_len=40"] if "prefill" in example.stem else ["kv_len=1..600"]
    sizes = [f"--dim={size}" for size in ["batch=3", *lengths]]
    if (forest := example.with_name("trees.json")).exists():
        sizes = [f"--workload={forest}"]
    elif "cache" in example.parent.name or example.stem == "append":
        sizes = ["--dim=layers=3", "--dim=rows=77"]
    return sizes


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_right_out_of_a_file(example, tmp_path):
    """A compiled file contains the problem that it solves; without detectors the report does not mention
    them."""
    file = tmp_path / "compiled"
    target = [] if DEVICE == "host" else ["--target=sm_90a,sm_89,sm_80"]
    command = [program("attn-opt"), example, "--emit=artifact", "--host-code", *target, "-o", file]
    subprocess.run(command, check=True, capture_output=True)
    status, report, errors = attn_run(file, f"--device={DEVICE}", "--check", *sizes_of(example))
    assert status == 0, errors
    assert report["passed"] and report["load_ms"] > 0 and "races" not in report


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_right(example):
    status, report, errors = attn_run(example, f"--device={DEVICE}", "--check", *sizes_of(example))
    assert status == 0, errors
    assert report["passed"]


@pytest.mark.parametrize(("q_len", "schedule"), [(1, "mma"), (40, "mma"), (40, "wgmma")])
def test_maxima_that_grow(tmp_path, q_len, schedule):
    """Accumulators are rescaled only when a row's maximum grows by more than 2^8 after its first tile. Ordinary
    scores never do that; a scale of 4 makes them, and a kernel that then does not rescale overflows."""
    text = Problem(8, 2, 64, 64, "f16").text()
    assert text.count("(%kv see causal)") == 1
    file = tmp_path / "grow.mlir"
    file.write_text(text.replace("(%kv see causal)", "(%kv see causal) scale 4.0"))
    sizes = ["--dim=batch=2", "--dim=kv_len=900", f"--dim=q_len={q_len}"]
    status, report, errors = attn_run(file, f"--device={DEVICE}", "--check", f"--schedule={schedule}", *sizes)
    assert status == 0, errors
    assert report["passed"]


def test_report_has_the_promised_fields():
    status, report, errors = attn_run(DECODE, f"--device={DEVICE}", "--check", "--dim", "kv_len=600")
    assert status == 0, errors
    assert report.keys() >= FIELDS_ALWAYS
    if DEVICE == "host":
        assert report.keys() >= FIELDS_HOST
        assert report["bytes_floor"] > 4 * 600 * 8 * 128 * 2 * 2
        assert report["flops"] >= report["flops_useful"] > 0


def test_json_on_standard_output_is_only_json(small):
    result = run(small, "--json", "-", "--check")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["passed"] is True
    assert "right:" in result.stderr


def test_summary_goes_to_standard_output(small):
    result = run(small, "--check")
    assert result.returncode == 0, result.stderr
    assert "right: within tolerance" in result.stdout


@pytest.mark.skipif(DEVICE != "host", reason="not every GPU has been measured")
def test_prediction_stands_beside_the_time(small):
    def predicted(tokens):
        status, report, errors = attn_run(small, "--device=host", "--dim=batch=1", f"--dim=kv_len={tokens}")
        assert status == 0, errors
        assert report["predicted_for"] == "H200"
        return report["predicted_ms"]

    assert 0 < predicted(100) < predicted(100_000) < 1
    assert "ms on an H200" in run(small).stdout


def attention(tensors):
    """Compute causal attention over a paged f16 cache independently, in NumPy."""
    q = tensors["q"].astype(np.float64)
    k_pages, v_pages = tensors["kv.k_pages"], tensors["kv.v_pages"]
    page, kv_heads = k_pages.shape[1:3]
    group = q.shape[1] // kv_heads
    o = np.zeros((*q.shape[:2], v_pages.shape[-1]))
    lse = np.full(q.shape[:2], -np.inf)
    for s in range(len(tensors["q_start"]) - 1):
        tokens = np.arange(tensors["kv.lengths"][s])
        pages = tensors["kv.block_table"][s][tokens // page]
        k = k_pages[pages, tokens % page].astype(np.float64)
        v = v_pages[pages, tokens % page].astype(np.float64)
        for row in range(tensors["q_start"][s], tensors["q_start"][s + 1]):
            seen = tensors["kv.pos0"][s] + tokens <= tensors["q_pos"][row]
            if not seen.any():
                continue
            for head in range(q.shape[1]):
                scores = k[seen, head // group] @ q[row, head] / np.sqrt(q.shape[2])
                weights = np.exp(scores - scores.max())
                lse[row, head] = scores.max() + np.log(weights.sum())
                o[row, head] = weights @ v[seen, head // group] / weights.sum()
    return o, lse


def test_numpy_agrees(small, tmp_path):
    saved, outputs = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    result = run(
        small,
        "--save-inputs",
        saved,
        "--outputs",
        outputs,
        "--dim=batch=5",
        "--dim=kv_len=0..70",
        "--dim=q_len=0..5",
    )
    assert result.returncode == 0, result.stderr
    o, lse = attention(load_file(saved))
    got = load_file(outputs)
    norm = np.linalg.norm(o, axis=-1)
    error = np.linalg.norm(got["o"].astype(np.float64) - o, axis=-1)
    assert np.all(error <= 1e-3 * norm)
    assert np.array_equal(np.isneginf(lse), np.isneginf(got["lse"]))
    finite = np.isfinite(lse)
    assert np.abs(got["lse"][finite] - lse[finite]).max() <= 2e-3


def test_saved_inputs_run_again(small, tmp_path):
    saved = tmp_path / "in.safetensors"
    first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    result = run(small, "--save-inputs", saved, "--outputs", first, "--dim=kv_len=50..90")
    assert result.returncode == 0, result.stderr
    result = run(small, "--inputs", saved, "--outputs", second, "--check")
    assert result.returncode == 0, result.stderr
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.skipif(DEVICE != "host", reason="only the host device has a scheduler to shuffle")
@pytest.mark.parametrize("shape", [("kv_len=700",), ("q_len=37", "kv_len=200")], ids=["decode", "prefill"])
def test_bits_do_not_depend_on_scheduling(small, tmp_path, shape):
    saved = tmp_path / "in.safetensors"
    variants = [[], ["--seed=1"], ["--shuffle"], ["--shuffle", "--seed=2"], ["--repeat=2"]]
    outputs, counters = [], []
    for i, variant in enumerate([*variants, "one core"]):
        out, report = tmp_path / f"{i}.safetensors", tmp_path / f"{i}.json"
        source = ["--inputs", saved] if i else ["--save-inputs", saved, *[f"--dim={d}" for d in shape]]
        one_core = variant == "one core"
        command = (["taskset", "-c", "0"] if one_core else []) + [
            program("attn-run"),
            str(small),
            "--device=host",
        ]
        command += [] if one_core else variant
        result = subprocess.run(
            [*command, *map(str, source), "--outputs", str(out), "--json", str(report)],
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, result.stderr
        outputs.append(out.read_bytes())
        values = json.loads(report.read_text())
        counters.append({name: values[name] for name in FIELDS_HOST})
    assert all(output == outputs[0] for output in outputs)
    assert all(counter == counters[0] for counter in counters)


def test_a_wrong_result_exits_with_1(small, tmp_path):
    """A NaN in q makes the result NaN, which never passes, whatever the reference says."""
    saved, spoilt, report = (tmp_path / name for name in ("in.safetensors", "nan.safetensors", "run.json"))
    assert run(small, "--save-inputs", saved).returncode == 0
    tensors = load_file(saved)
    tensors["q"][0, 0, 0] = np.nan
    save_file(tensors, spoilt)
    result = run(small, "--inputs", spoilt, "--check", "--json", report)
    assert result.returncode == 1, (result.stdout, result.stderr)
    assert "wrong: o is past its tolerance at row 0, head 0" in result.stdout
    values = json.loads(report.read_text())
    assert values["passed"] is False and values["rel_err"] is None


def test_entry_picks_one_of_several(small, tmp_path):
    both = tmp_path / "both.mlir"
    text = small.read_text()
    both.write_text(text + text[text.index("func.func") :].replace("@attention", "@other"))
    result = run(both)
    assert result.returncode == 2 and "--entry" in result.stderr and "'other'" in result.stderr
    result = run(both, "--entry=other", "--check")
    assert result.returncode == 0 and result.stdout.startswith("other:"), result.stderr


def test_number_of_blocks_moves_only_rounding(small):
    for blocks in (1, 3, 40):
        status, report, errors = attn_run(
            small, f"--device={DEVICE}", "--check", f"--blocks={blocks}", "--dim=batch=2", "--dim=kv_len=900"
        )
        assert status == 0, errors
        assert report["blocks"] <= blocks


def test_strategy_moves_only_rounding():
    """One prompt before every sequence: the strategy decides how often it is read, and the result does not
    change."""
    sizes = ["--dim=batch=6", "--dim=context_len=900", "--dim=kv_len=20..60"]
    read = {}
    for strategy in ("by-query", "by-node", "by-node-chunk", "flatten"):
        status, report, errors = attn_run(
            SHARED, f"--device={DEVICE}", "--check", f"--strategy={strategy}", *sizes
        )
        assert status == 0, errors
        assert report["strategy"] == strategy
        read[strategy] = report.get("bytes_read")
    if DEVICE == "host":
        assert read["by-query"] > 3 * read["flatten"]
        assert read["by-query"] > 3 * max(read["by-node"], read["by-node-chunk"])


@pytest.mark.parametrize("tokens", [40, 3000], ids=["nothing to merge", "merged"])
@pytest.mark.parametrize(
    "schedule", [["mma", "--dim=q_len=1"], ["auto", "--dim=q_len=40"]], ids=lambda s: s[0]
)
def test_recorded_launch_gives_the_same_bits(small, tmp_path, tokens, schedule):
    saved, outputs = tmp_path / "in.safetensors", []
    for replay in ([], ["--replay", "--repeat=2"]):
        outputs.append(tmp_path / f"{len(outputs)}.safetensors")
        made = (
            ["--inputs", saved] if replay else ["--save-inputs", saved, f"--dim=kv_len={tokens}", schedule[1]]
        )
        result = run(small, *made, *replay, f"--schedule={schedule[0]}", "--check", "--outputs", outputs[-1])
        assert result.returncode == 0, result.stderr
    assert outputs[0].read_bytes() == outputs[1].read_bytes()


@pytest.mark.parametrize("q_len", [1, 6])
def test_fixed_split_makes_bits_independent_of_neighbours(small, tmp_path, q_len):
    """The first two of five sequences, alone and among the others, on any number of blocks."""
    saved, alone, out = (tmp_path / name for name in ("in.safetensors", "two.safetensors", "out.safetensors"))
    sizes = ["--dim=batch=5", "--dim=kv_len=700..1500", f"--dim=q_len={q_len}"]
    assert run(small, "--save-inputs", saved, *sizes).returncode == 0
    tensors = load_file(saved)
    rows = tensors["q_start"][2]
    two = dict(tensors, q_start=tensors["q_start"][:3])
    two |= {name: tensors[name][:rows] for name in ("q", "q_pos")}
    two |= {name: tensors[name][:2] for name in ("kv.lengths", "kv.pos0", "kv.rows", "kv.block_table")}
    save_file({name: np.ascontiguousarray(tensor) for name, tensor in two.items()}, alone)

    def bits(inputs, *options):
        result = run(small, "--inputs", inputs, "--outputs", out, "--check", *options)
        assert result.returncode == 0, result.stderr
        return [load_file(out)[name][:rows].tobytes() for name in ("o", "lse")]

    split = "--fixed-split=256"
    runs = [
        bits(saved, split),
        bits(alone, split),
        bits(saved, split, "--blocks=7"),
        bits(alone, split, "--blocks=3"),
    ]
    assert all(run == runs[0] for run in runs)
    assert bits(saved, "--blocks=7") != bits(alone, "--blocks=3")  # otherwise the test is empty


def test_fixed_split_makes_bits_independent_of_strategy(tmp_path):
    """Six sequences read their prompt together, or each separately."""
    saved, outputs = tmp_path / "in.safetensors", []
    sizes = ["--dim=batch=6", "--dim=context_len=900", "--dim=kv_len=0..60"]
    assert run(SHARED, "--save-inputs", saved, *sizes).returncode == 0
    for options in (["by-query", "--blocks=9"], ["by-node"], ["flatten"], ["flatten", "--blocks=50"]):
        outputs.append(tmp_path / f"{len(outputs)}.safetensors")
        result = run(
            SHARED,
            "--inputs",
            saved,
            "--fixed-split=256",
            "--check",
            "--outputs",
            outputs[-1],
            "--strategy",
            *options,
        )
        assert result.returncode == 0, result.stderr
    assert all(output.read_bytes() == outputs[0].read_bytes() for output in outputs)


def test_lengths_from_a_trace(small, tmp_path):
    """Use Azure's trace if the data directory has it, else a similar one."""
    data = os.environ.get("ATTN_DATA_DIR")
    trace = Path(data) / "azure/AzureLLMInferenceTrace_code.csv" if data else tmp_path / "trace.csv"
    if not data:
        trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,480,10\n,318,8\n")
    result = run(small, "--check", "--dim=batch=4", f"--dim=kv_len=@{trace}:ContextTokens")
    assert result.returncode == 0, result.stderr


def test_every_target_runs_on_host(small):
    if DEVICE != "host":
        pytest.skip("the GPU decides the target")
    for target in ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"):
        status, report, errors = attn_run(small, "--device=host", f"--target={target}", "--check")
        assert status == 0, errors
        assert report["target"] == target


def test_help_says_what_there_is():
    result = run("--help")
    assert result.returncode == 0
    for option in ("--entry", "--strategy", "--dim", "--inputs", "--json", "--shuffle", "--repeat"):
        assert option in result.stdout


@pytest.mark.skipif(DEVICE != "host", reason="the host device counts")
def test_warpgroups_without_rows_compute_nothing():
    """A group of four heads: 16 rows fill one of Hopper's two warpgroups, 32 both."""
    flops = {}
    for rows in (16, 32):
        options = [f"--dim=q_len={rows}", "--dim=batch=1", "--dim=kv_len=512", "--schedule=wgmma", "--check"]
        status, report, errors = attn_run(ROOT / "examples/02_prefill/prefill.mlir", *options)
        assert status == 0, errors
        flops[rows] = report["flops"]
    assert flops[32] == 2 * flops[16]


@pytest.mark.parametrize("name", ["attn-run", "attn-plan", "attn-workload", "attn-opt"])
def test_every_program_says_its_version(name):
    result = subprocess.run([program(name), "--version"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0 and result.stderr == ""
    assert re.fullmatch(name + r" \d+\.\d+\.\d+( \(LLVM [\d.]+\))?\n", result.stdout)


@pytest.mark.skipif(DEVICE != "host", reason="counters exist on the host device only")
def test_a_missed_budget_is_said_and_is_no_mistake(small):
    """Far more blocks than work: the others read only that they have none."""
    result = run(small, "--check", "--dim=batch=1", "--dim=kv_len=512", "--blocks=2000")
    assert result.returncode == 0, result.stderr
    assert re.search(r"times the floor \(budget 1\.03: missed\)", result.stdout)
    assert "reference; a budget is missed" in result.stdout
    result = run(small, "--check", "--dim=batch=1", "--dim=kv_len=100", "--blocks=2000")
    assert "(budget 1.03 is for lengths from 512 on" in result.stdout and "missed" not in result.stdout
    result = run(small, "--check", "--dim=batch=1", "--dim=kv_len=2048")
    assert "(budget 1.03)" in result.stdout and "missed" not in result.stdout
    sizes = ["--dim=batch=1", "--blocks=2000"]
    assert attn_run(small, *sizes, "--dim=kv_len=512")[1]["missed_budgets"][0] == "amplification"
    assert attn_run(small, *sizes, "--dim=kv_len=100")[1]["missed_budgets"] is None
