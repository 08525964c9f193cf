# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Write docs/support.md and the matrix in README.md: which descriptions the compiler takes for which GPU.

python tools/support.py [FOLDER]    writes FOLDER/docs/support.md and FOLDER/README.md; by default of this checkout

attn-opt compiles each description up to kernels of tiles, where it chooses instructions, registers and shared
memory, and refuses kernels that do not fit.
"""

import concurrent.futures
import os
import re
import subprocess
import sys
from pathlib import Path

import attn
from attn.cache.operations import Preparation, Shape, append_text

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
DIMS = [(32, 32), (64, 64), (80, 80), (96, 96), (128, 128), (192, 128), (192, 192), (256, 256), (512, 512)]
FORMATS = ["int8", "int4", "int2", "fp8_e4m3", "fp8_e5m2", "mxfp8", "mxfp4", "nvfp4"]
SINK_AND_WINDOW = attn.causal() & (attn.sink(64) | attn.recent(256))


def dim_name(dims):
    return str(dims[0]) if dims[0] == dims[1] else f"{dims[0]}/{dims[1]}"


# Groups of rows: a name, and its addition to PLAIN over one dense operand.
GROUPS = {
    "dtype": {name: {"dtype": name} for name in ("bfloat16", "float16")},
    "head dim, of keys and of values": {
        dim_name(dims): {"head_dim": dims[0], "value_dim": dims[1]} for dims in DIMS
    },
    "store": {
        "`Dense()`": {},
        "`Packed()`": {"kv": attn.Packed()},
        "`Paged()`": {"kv": attn.Paged()},
        "`Paged(page_size=784)`": {"kv": attn.Paged(page_size=784)},
        "`Paged(ragged=True)`": {"kv": attn.Paged(ragged=True)},
        "`Unified()`": {"kv": attn.Unified(key="int8", value="int8")},
        "`Paged(value=first(512))`, 576 features": {
            "kv": attn.Paged(value=attn.first(512)),
            "kv_heads": 1,
            "head_dim": 576,
        },
        '`Paged(value=first(512), key="fp8_e4m3")`, 576 features': {
            "kv": attn.Paged(value=attn.first(512), key="fp8_e4m3"),
            "kv_heads": 1,
            "head_dim": 576,
        },
        '`Paged(value=first(512), key="fp8_ds_mla")`, 576 features': {
            "kv": attn.Paged(value=attn.first(512), key="fp8_ds_mla"),
            "kv_heads": 1,
            "head_dim": 576,
        },
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
    "output": {
        "`gate='elementwise'`": {"gate": "elementwise"},
        "`gate='headwise'`": {"gate": "headwise"},
        "`output='fp8_e4m3'`": {"output": "fp8_e4m3"},
        "`output_scales='head'`": {"output": "fp8_e4m3", "output_scales": "head"},
    },
}
PLAN = "plan made on the GPU"
WRITE = "new tokens, prepared"
SHORT = ("forward", "gradients", PLAN)  # The README's columns.
ASKS = {"forward": "F", "gradients": "G", PLAN: "P", WRITE: "W"}
# Groups with a column for plans: a plan reads tables and positions, and neither features nor scores.
PLANNED = ("store", "format of keys and values, in pages", "visibility")
# Groups that decide how new tokens are written.
WRITTEN = ("dtype", "head dim, of keys and of values", "format of keys and values, in pages")


def text(added, asked):
    named = PLAIN | added
    if asked == WRITE:
        return write_text(named)
    named["kv"] = [named.get("kv", attn.Dense())]
    if asked == PLAN:
        named["device_plan"] = True
    mlir = attn.Spec(**named).mlir()
    if asked == "gradients":  # the function's body begins at the first line that ends so
        mlir = mlir.replace(") {\n", ") attributes {attn.backward} {\n", 1)
        assert "attn.backward" in mlir, mlir
    return mlir


def write_text(named):
    """Return an append that normalizes and rotates keys and queries."""
    dtype = {"bfloat16": "bf16", "float16": "f16"}[named["dtype"]]
    dims = named["head_dim"], named.get("value_dim", named["head_dim"])
    store = named.get("kv", attn.Paged(dtype=named["dtype"])).description(named["kv_heads"], *dims)
    preparation = Preparation(
        q_heads=named["q_heads"],
        k_norm="f32",
        q_norm="f32",
        epsilon=1e-6,
        angles=dims[0] // 2,
        tables="f32",
    )
    return append_text(
        named["kv_heads"], Shape(0, 16, *dims, dtype, "host", store.key, store.value), preparation
    )


def renamed(mlir, index):
    """Return a description whose function and types have unique names in a file of several."""
    for alias in re.findall(r"^!(\w+) = ", mlir, flags=re.M):
        mlir = re.sub(rf"!{alias}\b", f"!{alias}_{index}", mlir)
    return re.sub(r"@(attention|append)\(", rf"@\1_{index}(", mlir)


def compile_all(texts, target):
    """Return whether the compiler takes each description for a target: all in one file, and one by one if
    that is refused."""
    command = [BUILD / "bin" / "attn-opt", "-", f"--target={target}", "--emit=tile", "-o", os.devnull]
    file = "\n".join(map(renamed, texts, range(len(texts))))
    if subprocess.run(command, input=file, capture_output=True, text=True).returncode == 0:
        return [True] * len(texts)
    if len(texts) == 1:
        return [False]
    return [taken for one in texts for taken in compile_all([one], target)]


def asks_of(group):
    asked = {PLAN: PLANNED, WRITE: WRITTEN}
    return [what for what in ASKS if group in asked.get(what, GROUPS)]


def answers():
    """Return whether the compiler takes a description: by group, row, request and target."""
    files = [(group, what, target) for group in GROUPS for what in asks_of(group) for target in CARDS]

    def ask(file):
        group, what, target = file
        return compile_all([text(added, what) for added in GROUPS[group].values()], target)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        said = zip(files, pool.map(ask, files), strict=True)
        return {
            (group, row, what, target): takes
            for (group, what, target), of_rows in said
            for row, takes in zip(GROUPS[group], of_rows, strict=True)
        }


def measured():
    """Return the newest session of each card in benchmarks/results."""
    sessions = [session for sessions, _ in gpu_files() for session in sessions.values()]
    return {short_name(s["device"]): s for s in sorted(sessions, key=lambda session: session["id"])}


# Kernels whose PTX is printed: forward, gradients, quantized decode.
CODES = {"kv": attn.Paged(key="int4", value="int2")}
PTX_OF = (({}, "forward"), ({}, "gradients"), (CODES, "forward"))


def ptx_version(target):
    """Return the highest version of PTX in these kernels."""
    command = [BUILD / "bin" / "attn-opt", "-", f"--target={target}", "--emit=ptx", "-o", "-"]
    found = []
    for added, asked in PTX_OF:
        run = subprocess.run(command, input=text(added, asked), capture_output=True, text=True, check=True)
        found += re.findall(r"^\.version (\d+)\.(\d+)", run.stdout, flags=re.M)
    return "{}.{}".format(*max((int(major), int(minor)) for major, minor in found))


def cuda_of_ptx():
    """Return the CUDA whose driver first took a version of PTX, by the runtime's own table."""
    source = (ROOT / "runtime/src/cuda/CudaModule.cpp").read_text()
    return dict(re.findall(r'\{"(\d\.\d)", "(\d+\.\d)"\}', source))


def gpu_table():
    """Return a line for each target: its cards, the measured driver, and the driver that its PTX needs."""
    sessions, drivers = measured(), cuda_of_ptx()
    lines = ["| target | cards | measured | PTX | needs a driver of |", "|---|---|---|---|---|"]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        versions = dict(zip(CARDS, pool.map(ptx_version, CARDS), strict=True))
    for target, cards in CARDS.items():
        ran = [
            f"{card}, driver {sessions[card]['driver']}, CUDA {sessions[card]['cuda']}"
            for card in cards.split(", ")
            if card in sessions
        ]
        needs = f"CUDA {drivers[versions[target]]} or later"
        lines.append(f"| {target} | {cards} | {'; '.join(ran) or 'no'} | {versions[target]} | {needs} |")
    return lines


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
                " ".join(letter for what, letter in ASKS.items() if said.get((group, row, what, target)))
                or "no"
                for target in CARDS
            ]
            lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return lines


def short_table(said):
    """Return a line for each group: the rows that the compiler takes, and after "not on" the targets that refuse."""
    cards = measured()
    lines = [
        "| | forward | gradients | forward, planned on the GPU |",
        "|---|---|---|---|",
    ]
    lines.append(
        "| GPU | "
        + ", ".join(f"{card_names(target, cards)} ({target})" for target in CARDS)
        + " | as forward | as forward |"
    )
    for group, rows in GROUPS.items():
        cells = []
        for what in filter(SHORT.__contains__, asks_of(group)):
            named = []
            for row in rows:
                refused = [target for target in CARDS if not said.get((group, row, what, target))]
                if len(refused) < len(CARDS):
                    named.append(row + (f" ({row} not on {', '.join(refused)})" if refused else ""))
            cells.append(", ".join(named) or "no")
        cells[1:] = ["as forward" if cell == cells[0] else cell for cell in cells[1:]]
        cells += ["not checked"] * (len(SHORT) - len(cells))
        lines.append(f"| {group} | " + " | ".join(cells) + " |")
    return lines


PAGE = """# What runs on which GPU

`tools/support.py` writes this page: it asks the compiler for each description and each target. [Features that meet in one
kernel](compositions.md) has pairs of features. Cards that the first table calls measured were run
([results](../benchmarks/RESULTS.md)); for the others, tests run kernels on the host device and assemble them with `ptxas`. A GPU
needs NVIDIA's driver and no CUDA toolkit. "PTX" is the highest version among kernels of attention, gradients and quantized
decode; other kernels [may need less](gpus.md#which-driver).

"""
LETTERS = """A description has 32 query heads, 8 KV heads of 128 features in bf16 and one operand, `Dense()`, that rows see causally, unless
its row says otherwise. **F**: forward. **G**: gradients. **P**: the plan of a batch may be made on the GPU
(`device_plan=True`); this is checked for stores, formats and visibilities alone. **W**: one launch normalizes, rotates and writes new
tokens into pages ([norm and rotation](python/serving.md#norm-and-rotation-on-the-way)). "no": the compiler refuses every one,
before anything runs. Cards in bold were measured.
"""


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    said = answers()
    (folder / "docs").mkdir(exist_ok=True)
    tables = [*gpu_table(), "", LETTERS, *table(said)]
    (folder / "docs" / "support.md").write_text(PAGE + "\n".join(tables) + "\n")
    readme = (ROOT / "README.md").read_text()
    (folder / "README.md").write_text(replace_section(readme, "support", short_table(said)))


if __name__ == "__main__":
    main()
