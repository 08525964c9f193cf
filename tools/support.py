# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes docs/support.md and the matrix in README.md: which descriptions the compiler takes for which GPU.

python tools/support.py [FOLDER]    writes FOLDER/docs/support.md and FOLDER/README.md; by default of this checkout

Each description is compiled by attn-opt as far as kernels of tiles, where instructions, registers and shared memory are
chosen and what does not fit is refused.
"""

import concurrent.futures
import os
import re
import subprocess
import sys
from pathlib import Path

import attn

ROOT = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("ATTN_BUILD", ROOT / "build"))
sys.path.append(str(ROOT / "benchmarks"))

from measuring.generated import replace_section  # noqa: E402
from measuring.newest import gpu_files, short_name  # noqa: E402

# Cards of each target, by NVIDIA's table of compute capabilities.
CARDS = {
    "sm_80": "A100",
    "sm_86": "A10, RTX 3090",
    "sm_89": "L4, L40S, RTX 4090",
    "sm_90a": "H100, H200",
    "sm_100a": "B200",
    "sm_120a": "RTX 5090",
}
PLAIN = {"q_heads": 32, "kv_heads": 8, "head_dim": 128, "dtype": "bfloat16", "see": attn.causal()}
DIMS = [(32, 32), (64, 64), (80, 80), (96, 96), (128, 128), (192, 128), (192, 192), (256, 256)]
FORMATS = ["int8", "int4", "int2", "fp8_e4m3", "fp8_e5m2", "mxfp8", "mxfp4", "nvfp4"]
SINK_AND_WINDOW = attn.causal() & (attn.sink(64) | attn.recent(256))


def dim_name(dims):
    return str(dims[0]) if dims[0] == dims[1] else f"{dims[0]}/{dims[1]}"


# Of each group, rows: a name, and what it adds to PLAIN over one dense operand.
GROUPS = {
    "dtype": {name: {"dtype": name} for name in ("bfloat16", "float16")},
    "head dim, of keys and of values": {
        dim_name(dims): {"head_dim": dims[0], "value_dim": dims[1]} for dims in DIMS
    },
    "store": {
        "`Dense()`": {},
        "`Packed()`": {"kv": attn.Packed()},
        "`Paged()`": {"kv": attn.Paged()},
        "`Paged(ragged=True)`": {"kv": attn.Paged(ragged=True)},
        "`Unified()`": {"kv": attn.Unified(key="int8", value="int8")},
    },
    "format of keys and values, in pages": {
        f"`{name}`": {"kv": attn.Paged(key=name, value=name)} for name in FORMATS
    },
    "visibility": {
        "`all_tokens()`": {"see": attn.all_tokens()},
        "`causal()`": {},
        "`window(1024)`": {"see": attn.window(1024)},
        "`causal() & chunk(1024)`": {"see": attn.causal() & attn.chunk(1024)},
        "`causal() & (sink(64) \\| recent(256))`": {"see": SINK_AND_WINDOW},
    },
    "scores": {
        "soft cap": {"score": lambda s, h, qi, ki: 30.0 * attn.math.tanh(s / 30.0)},
        "sink logits": {"sink_logits": True},
    },
}
ASKS = {"forward": "F", "gradients": "G", "plan made on the GPU": "P"}


def text(added, asked):
    named = PLAIN | added
    named["kv"] = [named.get("kv", attn.Dense())]
    if asked == "plan made on the GPU":
        named["device_plan"] = True
    mlir = attn.Spec(**named).mlir()
    if asked == "gradients":  # the function's body begins at the first line that ends so
        mlir = mlir.replace(") {\n", ") attributes {attn.backward} {\n", 1)
        assert "attn.backward" in mlir, mlir
    return mlir


def renamed(mlir, index):
    """A description whose function and types have names of their own in a file of several."""
    for alias in re.findall(r"^!(\w+) = ", mlir, flags=re.M):
        mlir = re.sub(rf"!{alias}\b", f"!{alias}_{index}", mlir)
    return mlir.replace("@attention(", f"@attention_{index}(")


def compile_all(texts, target):
    """Whether the compiler takes each description for a target. One that it refuses is found by halving the file."""
    command = [BUILD / "bin" / "attn-opt", "-", f"--target={target}", "--emit=tile", "-o", os.devnull]
    file = "\n".join(map(renamed, texts, range(len(texts))))
    if subprocess.run(command, input=file, capture_output=True, text=True).returncode == 0:
        return [True] * len(texts)
    if len(texts) == 1:
        return [False]
    half = len(texts) // 2
    return compile_all(texts[:half], target) + compile_all(texts[half:], target)


def answers():
    """Whether the compiler takes a description: by group, row, what is asked, and target."""
    asked = [(group, row, what) for what in ASKS for group, rows in GROUPS.items() for row in rows]
    texts = [text(GROUPS[group][row], what) for group, row, what in asked]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        said = list(pool.map(lambda target: compile_all(texts, target), CARDS))
    return {
        (*question, target): takes
        for target, of_target in zip(CARDS, said, strict=True)
        for question, takes in zip(asked, of_target, strict=True)
    }


def measured():
    """Names of the cards of which benchmarks/results has a file."""
    return {short_name(session["device"]) for sessions, _ in gpu_files() for session in sessions.values()}


def card_names(target, cards):
    return ", ".join(f"**{card}**" if card in cards else card for card in CARDS[target].split(", "))


def table(said):
    cards = measured()
    lines = [
        "| | " + " | ".join(f"{target}<br>{card_names(target, cards)}" for target in CARDS) + " |",
        "|---|" + "---|" * len(CARDS),
    ]
    for group, rows in GROUPS.items():
        lines.append(f"| **{group}** |" + " |" * len(CARDS))
        for row in rows:
            cells = [
                " ".join(letter for what, letter in ASKS.items() if said[group, row, what, target]) or "no"
                for target in CARDS
            ]
            lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return lines


def short_table(said):
    """A line for each group: the rows that the compiler takes on every target, and after "not" the targets that refuse."""
    cards = measured()
    lines = ["| | forward | gradients | plan made on the GPU |", "|---|---|---|---|"]
    lines.append(
        "| GPU | " + ", ".join(f"{card_names(target, cards)} ({target})" for target in CARDS) + " | | |"
    )
    for group, rows in GROUPS.items():
        cells = []
        for what in ASKS:
            named = []
            for row in rows:
                refused = [target for target in CARDS if not said[group, row, what, target]]
                if len(refused) < len(CARDS):
                    named.append(row + (f" (not {', '.join(refused)})" if refused else ""))
            cells.append(", ".join(named) or "no")
        cells[1:] = ["as forward" if cell == cells[0] else cell for cell in cells[1:]]
        lines.append(f"| {group} | " + " | ".join(cells) + " |")
    return lines


PAGE = """# What runs on which GPU

`tools/support.py` writes this page: it asks the compiler for each description and each target. A description has 32 query
heads, 8 KV heads of 128 features in bf16 and one operand, `Dense()`, that rows see causally, unless its row says otherwise.
F: forward. G: gradients. P: the plan of a batch may be made on the GPU (`device_plan=True`). "no": the compiler refuses all
three, before anything runs. Of the cards in **bold**, `benchmarks/results` has measurements. On the others nothing was
measured: their kernels run on the host device in the tests and are assembled by `ptxas`.

[Features that meet in one kernel](compositions.md) has the pairs of features. All of it needs Linux on x86-64; a GPU needs
NVIDIA's driver and no CUDA toolkit.

"""


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    said = answers()
    (folder / "docs").mkdir(exist_ok=True)
    (folder / "docs" / "support.md").write_text(PAGE + "\n".join(table(said)) + "\n")
    readme = (ROOT / "README.md").read_text()
    (folder / "README.md").write_text(replace_section(readme, "support", short_table(said)))


if __name__ == "__main__":
    main()
