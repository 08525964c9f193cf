# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bad input: exit status 2, a message that names the fault and a legal value, and no output."""

import os
import subprocess

import numpy as np
import pytest
from attnlab import ROOT, Problem, program
from safetensors.numpy import load_file, save_file

DECODE = (ROOT / "examples/01_paged_decode/decode.mlir").read_text()
STREAMING = (ROOT / "examples/06_head_classes/head_classes.mlir").read_text()


def run(name, *arguments, text=None):
    return subprocess.run(
        [program(name), *map(str, arguments)], capture_output=True, text=True, timeout=120, input=text or ""
    )


def refuse(result, *words):
    assert result.returncode == 2, (result.returncode, result.stdout, result.stderr)
    for word in words:
        assert word in result.stderr, result.stderr
    assert result.stdout == ""


# --- text: equal messages from both programs ----------------------------------------------------------------

TEXTS = {
    "malformed": (DECODE.replace("func.func", "func.fun", 1), ["<stdin>:", "error:"]),
    "cut": (DECODE[: len(DECODE) // 2], ["<stdin>:", "error:"]),
    "empty": ("", ["no attention function"]),
    "no attention": ("func.func @f() { return }", ["no attention function"]),
    "heads": (DECODE.replace("32x128", "30x128"), ["multiple of the 8 KV heads, got 30", "24 or 32"]),
    "dim": (DECODE.replace("x128x", "x100x").replace("dim = 128", "dim = 100"), ["got 100", "96 or 104"]),
    "page": (DECODE.replace("paged<16>", "paged<24>"), ["a multiple of 16", "got 24", "16 or 32"]),
    "page too large": (DECODE.replace("paged<16>", "paged<4096>"), ["got 4096", "2048"]),
    "format": (
        DECODE.replace("bf16", "f32"),
        ["f16 or bf16, or quantized as in !attn.quantized<i8, per = 128>"],
    ),
    "name": (DECODE.replace('attn.name = "kv", ', ""), ["attn.name"]),
    "classes": (
        STREAMING.replace("tensor<8xi32>", "tensor<9xi32>"),
        ["tensor<8xi32>", "one element per KV head"],
    ),
    "no classes": (
        STREAMING.replace("retrieval: see all, ", "").replace("streaming: see sink(64) | recent(256)", ""),
        ["from 1 to 16 head classes, got 0"],
    ),
    "classes' name": (
        STREAMING.replace('attn.name = "classes"', 'attn.name = "policy"'),
        ["policy", "classes"],
    ),
}


@pytest.mark.parametrize("case", TEXTS)
@pytest.mark.parametrize("name", ["attn-opt", "attn-run"])
def test_text(name, case, tmp_path):
    text, words = TEXTS[case]
    out = tmp_path / "out"
    options = (
        ["--emit=ptx", "-o", out]
        if name == "attn-opt"
        else ["--device=host", "--json", out, "--outputs", out]
    )
    refuse(run(name, "-", *options, text=text), *words)
    assert not out.exists()


def test_a_table_of_pages_is_nothing_to_run():
    """The result depends on earlier operations: there is nothing to generate."""
    page = ROOT / "test/Dialect/Attn/page-ops.mlir"
    for entry in ("manage", "compact"):
        refuse(run("attn-run", page, f"--entry={entry}"), f"'{entry}' works on page tables", "attn.PagePool")


# --- command line -------------------------------------------------------------------------------------------

COMMANDS = [
    ([], ["expected a file"]),
    (["FILE", "FILE"], ["expected one file"]),
    (["absent.mlir"], ["absent.mlir"]),
    (["FILE", "--chek"], ["no option '--chek'", "did you mean --check?"]),
    (["FILE", "--seed", "x"], ["--seed expects a whole number", "got 'x'"]),
    (["FILE", "--seed"], ["--seed expects"]),
    (["FILE", "--repeat=0"], ["at least 1"]),
    (["FILE", "--blocks=-3"], ["at least 1", "-3"]),
    (["FILE", "--check=yes"], ["takes no value"]),
    (["FILE", "--strategy=by-magic"], ["by-query, by-node", "by-magic"]),
    (["FILE", "--fixed-split=100"], ["fixed split of 100", "64 or 128 would do"]),
    (["FILE", "--device=tpu"], ["host, cuda", "tpu"]),
    (["FILE", "--target=sm_75"], ["sm_80", "sm_75"]),
    (["FILE", "--entry=absent"], ["absent", "decode"]),
    (["FILE", "--dim", "kv_len"], ["NAME=VALUE"]),
    (["FILE", "--dim=kv_len=9..3"], ["3..9"]),
    (["FILE", "--dim=kv_len=-1"], ["got '-1'"]),
    (["FILE", "--dim=batch=0"], ["1 to"]),
    (["FILE", "--dim=kv_lem=3"], ["kv_lem", "kv_len"]),
    (["FILE", "--dim=kv_len=2000000000"], ["too large for this machine"]),
    (["FILE", "--dim=kv_len=@absent.csv:x"], ["absent.csv"]),
    (["FILE", "--inputs=absent.safetensors"], ["absent.safetensors"]),
    (["FILE", "--json=/nonexistent/folder/file"], ["/nonexistent/folder/file"]),
]


@pytest.mark.parametrize(
    "arguments,words", COMMANDS, ids=lambda value: " ".join(value) if value else "nothing"
)
def test_command_line(arguments, words, tmp_path):
    file = tmp_path / "decode.mlir"
    file.write_text(DECODE)
    device = [] if any("--device" in a for a in arguments) else ["--device=host"]
    refuse(run("attn-run", *[str(file) if a == "FILE" else a for a in arguments], *device), *words)


CLASS_COMMANDS = [
    (["--dim=streaming=9"], ["--dim streaming", "at most 8 of the 8 KV heads, got 9"]),
    (["--dim=retrieval=3", "--dim=streaming=6"], ["--dim streaming", "at most 5 of the 8 KV heads, got 6"]),
    (["--dim=retrieval=3", "--dim=streaming=4"], ["classes to 7 of the 8 KV heads"]),
    (["--dim=streaming=1..4"], ["expected a single number"]),
    (["--dim=streeming=1"], ["streeming", "retrieval, streaming"]),
]


@pytest.mark.parametrize("arguments,words", CLASS_COMMANDS, ids=lambda value: " ".join(value))
def test_numbers_of_heads(arguments, words, tmp_path):
    file = tmp_path / "streaming.mlir"
    file.write_text(STREAMING)
    refuse(run("attn-run", file, "--device=host", *arguments), *words)


def test_class_with_the_name_of_a_dimension(tmp_path):
    file = tmp_path / "streaming.mlir"
    file.write_text(STREAMING.replace("streaming:", "kv_len:"))
    refuse(run("attn-run", file, "--device=host", "--dim=kv_len=4"), "kv_len", "rename")


def test_no_driver(tmp_path):
    file = tmp_path / "decode.mlir"
    file.write_text(DECODE)
    result = run("attn-run", file, "--device=cuda")
    if result.returncode == 0:
        pytest.skip("this machine has a GPU and a driver")
    refuse(result, "libcuda", "--device=host")


# --- CSV ----------------------------------------------------------------------------------------------------

TABLES = {
    "no column": (b"a,b\n1,2\n", "c", ["'c'", "a"]),
    "empty": (b"", "a", ["trace.csv"]),
    "only a header": (b"a\n", "a", ["a"]),
    "words": (b"a\n1\nmany\n", "a", ["many"]),
    "negative": (b"a\n-5\n", "a", ["-5"]),
    "short row": (b"a,b\n1,2\n3\n", "b", ["trace.csv"]),
    "binary": (bytes(range(256)) * 3, "a", ["trace.csv"]),
    "huge": (b"a\n99999999999999999999\n", "a", ["99999999999999999999"]),
}


@pytest.mark.parametrize("case", TABLES)
def test_table(case, tmp_path):
    content, column, words = TABLES[case]
    (tmp_path / "trace.csv").write_bytes(content)
    (tmp_path / "decode.mlir").write_text(DECODE)
    spec = f"--dim=kv_len=@{tmp_path / 'trace.csv'}:{column}"
    refuse(run("attn-run", tmp_path / "decode.mlir", "--device=host", spec), *words)


# --- tensors ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """Return a small problem and good tensors for it: 3 sequences, 2 rows each."""
    folder = tmp_path_factory.mktemp("good")
    file = folder / "problem.mlir"
    file.write_text(Problem(8, 2, 64, 64, "f16").text())
    saved = folder / "good.safetensors"
    result = run(
        "attn-run",
        file,
        "--device=host",
        "--save-inputs",
        saved,
        "--dim=batch=3",
        "--dim=kv_len=40",
        "--dim=q_len=2",
    )
    assert result.returncode == 0, result.stderr
    return file, load_file(saved)


def edit(name, change):
    def apply(tensors):
        tensors[name] = change(tensors[name].copy())

    return apply


def put(*index_and_value):
    *index, value = index_and_value

    def change(tensor):
        tensor[tuple(index)] = value
        return tensor

    return change


def rows(*ranges):
    def apply(tensors):
        tensors["kv.rows"] = np.array(ranges, dtype=np.int32)

    return apply


TENSORS = {
    "missing": (lambda t: t.pop("kv.v_pages"), ["kv.v_pages"]),
    "missing table": (lambda t: t.pop("kv.block_table"), ["kv.block_table"]),
    "unknown": (lambda t: t.update(kvv=t["q"]), ["kvv"]),
    "mistyped": (edit("q", lambda x: x.astype(np.float32)), ["q", "f16", "f32"]),
    "mistyped table": (
        edit("kv.block_table", lambda x: x.astype(np.int64)),
        ["kv.block_table", "i32", "i64"],
    ),
    "heads": (edit("q", lambda x: x[:, :4].copy()), ["q", "8", "4"]),
    "rank": (edit("kv.k_pages", lambda x: x.reshape(-1)), ["kv.k_pages"]),
    "page": (edit("kv.k_pages", lambda x: x[:, :8].copy()), ["kv.k_pages", "16", "8"]),
    "pages differ": (edit("kv.v_pages", lambda x: x[:-1].copy()), ["kv.v_pages"]),
    "beyond the table": (edit("kv.lengths", put(1, 5000)), ["kv.lengths", "5000"]),
    "negative length": (edit("kv.lengths", put(1, -1)), ["kv.lengths", "-1"]),
    "page out of range": (edit("kv.block_table", put(1, 1, 999)), ["kv.block_table", "999"]),
    "page negative": (edit("kv.block_table", put(2, 0, -1)), ["kv.block_table", "-1"]),
    "rows overlap": (rows((0, 3), (2, 4), (4, 6)), ["kv.rows"]),
    "rows exceed": (rows((0, 2), (2, 4), (4, 7)), ["kv.rows", "7"]),
    "rows backwards": (rows((2, 0), (2, 4), (4, 6)), ["kv.rows"]),
    "q_start": (edit("q_start", put(1, 5)), ["q_start"]),
    "q_start end": (edit("q_start", put(3, 7)), ["q_start", "7"]),
}


def refuse_tensors(file, tensors, spoil, words, tmp_path):
    """Expect that the good tensors with one spoiled are refused, and that nothing is written."""
    tensors = dict(tensors)
    spoil(tensors)
    bad, out = tmp_path / "bad.safetensors", tmp_path / "out"
    save_file(tensors, bad)
    result = run("attn-run", file, "--device=host", "--inputs", bad, "--outputs", out, "--json", out)
    refuse(result, *words)
    assert os.listdir(tmp_path) == ["bad.safetensors"]


@pytest.mark.parametrize("case", TENSORS)
def test_tensors(good, tmp_path, case):
    refuse_tensors(*good, *TENSORS[case], tmp_path)


@pytest.fixture(scope="module")
def good_classes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good_classes")
    file = folder / "problem.mlir"
    see = "causal heads {retrieval: see all, streaming: see recent(9)}"
    file.write_text(Problem(8, 2, 64, 64, "f16", see=see).text())
    saved = folder / "good.safetensors"
    result = run("attn-run", file, "--device=host", "--save-inputs", saved, "--dim=kv_len=40")
    assert result.returncode == 0, result.stderr
    return file, load_file(saved)


CLASSES = {
    "missing": (lambda t: t.pop("classes"), ["'classes' is missing"]),
    "unknown class": (
        edit("classes", put(1, 2)),
        ["'classes'[1]", "between 0 and 1 (retrieval, streaming), got 2"],
    ),
    "negative class": (edit("classes", put(0, -1)), ["'classes'[0]", "got -1"]),
    "too many heads": (edit("classes", lambda x: np.zeros(3, dtype=np.int32)), ["'classes'", "[2]", "[3]"]),
    "mistyped": (edit("classes", lambda x: x.astype(np.int64)), ["'classes'", "i32", "i64"]),
}


@pytest.mark.parametrize("case", CLASSES)
def test_classes(good_classes, tmp_path, case):
    refuse_tensors(*good_classes, *CLASSES[case], tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"1234567", b"\xff" * 64, b"\x02\0\0\0\0\0\0\0{}", b"\x08\0\0\0\0\0\0\0" + b"[" * 8]
)
def test_safetensors_file(good, tmp_path, content):
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(content)
    refuse(run("attn-run", good[0], "--device=host", "--inputs", bad), "error:")


def test_inputs_and_dims_exclude_each_other(good, tmp_path):
    saved = tmp_path / "in.safetensors"
    save_file(good[1], saved)
    refuse(run("attn-run", good[0], "--device=host", "--inputs", saved, "--dim=batch=3"), "--dim", "--inputs")
