# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The `mlir` examples in the dialects' .td files parse and verify.

An example is what stands between blank lines of a block: operations, or a type or attribute on each line. Operations stand
in a function. Values that it does not define are operands of whatever type attn-opt says that it expects; what a type
alias stands for, unless the block says so itself, is in ALIASES.
"""

import re
import subprocess

import pytest
from attnlab import ROOT, program

ALIASES = {
    "q": "tensor<?x32x128xbf16>",
    "lse": "tensor<?x32xf32>",
    "rows": "tensor<?x?x8x128xbf16>",
    "slots": "tensor<?xi32>",
    "state": "!attn.state<heads = 32, value_dim = 128>",
    "dense": "!attn.kv<dense, heads = 8, dim = 128, key = bf16, value = bf16>",
    "cache": "!attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>",
    "latents": "!attn.kv<paged<64>, heads = 1, dim = 576, key = bf16, value = first<512>>",
    "of_class": "!attn.kv<paged<16>, heads = ?, dim = 128, key = bf16, value = bf16>",
    "codes": "!attn.kv<paged<16>, heads = 8, dim = 128, key = !attn.quantized<i8, per = 128>, value = !attn.quantized<i4, per = 64>>",
    "keys": "!tile.shared<key 64, feature 128, bf16>",
    "ring": "!tile.ring<2, <key 64, feature 128, bf16>>",
}
FILES = sorted((ROOT / "include/attn").rglob("*.td"))
OTHER_TYPE = re.compile(r"use of value '(%\w+)' expects different type than prior uses: '(.*)' vs 'none'")


def examples(path):
    """(line, text) of each."""
    text = path.read_text()
    for block in re.finditer(r"^( *)```mlir\n(.*?)^ *```$", text, flags=re.M | re.S):
        line = text.count("\n", 0, block.start(2)) + 1
        for part in re.split(r"(\n\s*\n)", block[2]):
            if part.strip():
                yield line, part.strip("\n")
            line += part.count("\n")


EXAMPLES = [(path.name, line, text) for path in FILES for line, text in examples(path)]


def parse(text):
    result = subprocess.run(
        [program("attn-opt"), "-"], input=text, capture_output=True, text=True, timeout=60
    )
    return result.returncode == 0, result.stderr


def defined(text):
    """The values that an example defines: results, and the arguments of its blocks, which stand in them or in front."""
    results = re.findall(r"^ *(%[\w, %]+?)(?::\d+)? =", text, flags=re.M)
    arguments = re.findall(r"\^\w+\((.*?)\):", text, flags=re.S)
    arguments += re.findall(r"\(([^()]*)\) \{$", text, flags=re.M)
    return set(re.findall(r"%\w+", " ".join(results) + " " + " ".join(arguments)))


def program_of(text, types):
    aliases = "".join(
        f"!{name} = {ALIASES[name]}\n"
        for name in ALIASES
        if not re.search(rf"^ *!{name} =", text, flags=re.M)
    )
    if re.match(r" *[!#]", text):
        attributes = ", ".join(f"a{i} = {line.strip()}" for i, line in enumerate(text.splitlines()))
        return f"{aliases}func.func private @example() attributes {{{attributes}}}\n"
    arguments = ", ".join(f"{name}: {type}" for name, type in types.items())
    return f"{aliases}func.func @example({arguments}) {{\n{text}\n  return\n}}\n"


def check(text):
    """What attn-opt says is wrong with an example; empty where nothing is."""
    own = defined(text)
    types = {name: "none" for name in re.findall(r"%\w+", text) if name not in own}
    for _ in range(len(types) + 1):
        right, errors = parse(program_of(text, types))
        if right:
            return ""
        expected = OTHER_TYPE.search(errors)
        if not expected or types.get(expected[1]) != "none":
            break
        types[expected[1]] = expected[2]
    return f"{errors}\n{program_of(text, types)}"


def test_there_are_some():
    assert len(EXAMPLES) > 30 and {name[:4] for name, _, _ in EXAMPLES} == {"Attn", "Tile"}


@pytest.mark.parametrize("text", [pytest.param(text, id=f"{name}-{line}") for name, line, text in EXAMPLES])
def test_example(text):
    assert not check(text)


@pytest.mark.parametrize(
    "text,said",
    [
        ("%s = attn.parts %q kv_heads 8 : !q -> !attn.state<heads = 16, value_dim = 128>, 3", "expected"),
        ("%s = attn.merge %a : !attn.state<heads = 32, value_dim = 128>", "expected"),
        ("!attn.kv<paged<12>, heads = 8, dim = 128, key = bf16, value = bf16>", "page size"),
        ("attn.write %o to %row : ...", "expected"),
    ],
)
def test_wrong_examples_are_found(text, said):
    assert said in check(text)
