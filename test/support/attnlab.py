# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Problems as MLIR text, and the programs as functions; the grid, the benchmarks and the fuzzers share them."""

import json
import os
import re
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ATTN_BUILD", ROOT / "build"))
TARGETS = ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a")
TOLERANCE = {"f16": 1e-3, "bf16": 8e-3}
LSE_TOLERANCE = 2e-3
SOFTCAP = 30.0


def program(name):
    path = BUILD / "bin" / name
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: run ./dev build first")
    return str(path)


@dataclass(frozen=True)
class Problem:
    """The problem to compile: everything that changes the kernel. Other sizes are given when it runs."""

    q_heads: int = 32
    kv_heads: int = 8
    dim: int = 128
    value_dim: int = 128
    dtype: str = "bf16"
    store: str = "paged<16>"
    # With head classes: "causal heads {retrieval: see all, ...}"; "... apart" gives each class a store of its
    # own.
    see: str = "causal"
    softcap: bool = False
    approximate: bool = False  # The soft cap uses the hardware's tanh.
    sinks: bool = False  # A learned logit per head.
    draft_store: str = ""  # The store of a second KV argument, which takes the new nodes of a forest.
    key: str = ""  # Storage formats of keys and values; by default `dtype`.
    value: str = ""
    draft_key: str = ""  # Formats of the draft.
    draft_value: str = ""
    significance: str = ""  # The significance of every token: max, mean or sum over the heads of its group.
    significance_rows: int = 0  # The last rows of each sequence that count for it; 0: all.
    output_scales: bool = False  # Outputs in e4m3, with a scale of each row and head.

    @property
    def group(self):
        return self.q_heads // self.kv_heads

    def store_type(self, store, heads, key="", value=""):
        value_dim = "" if self.value_dim == self.dim else f"value_dim = {self.value_dim}, "
        return (
            f"!attn.kv<{store}, heads = {heads}, dim = {self.dim}, "
            f"{value_dim}key = {key or self.dtype}, value = {value or self.dtype}>"
        )

    def text(self):
        query = f"tensor<?x{self.q_heads}x{self.dim}x{self.dtype}>"
        element = "f8E4M3FN" if self.output_scales else self.dtype
        lse = f"tensor<?x{self.q_heads}xf32>"
        names = ["%o", "%lse"]
        results = [f"tensor<?x{self.q_heads}x{self.value_dim}x{element}>", lse]
        attended = ", ".join(results)
        if self.output_scales:
            names, results = [*names, "%scales"], [*results, lse]
            attended += f" output_scales {lse}"
        named, returned = ", ".join(names), ", ".join(results)
        see, _, classes = self.see.partition(" heads ")
        score = constants = argument = heads = sinks = attributes = ""
        stored, kv = self.kv_heads, [("kv", "")]
        if classes.endswith(" apart"):
            classes = classes.removesuffix(" apart")
            stored, kv = "?", [(f"{name}_kv", f" for {name}") for name in re.findall(r"(\w+): see", classes)]
        regions = ", ".join(f"(%{name} see {see}{of_class})" for name, of_class in kv)
        stores = ",\n                     ".join(
            f'%{name}: !cache {{attn.name = "{name}", attn.dims = ["batch", "kv_len"]}}' for name, _ in kv
        )
        operands = "!query" + ", !cache" * len(kv)
        draft = region = ""
        if self.draft_store:
            draft = "!draft = " + self.store_type(
                self.draft_store, self.kv_heads, self.draft_key, self.draft_value
            )
            argument += """,
                     %draft: !draft {attn.name = "draft", attn.dims = ["drafts", "draft_len"]}"""
            region = f", (%draft see {see})"
            operands += ", !draft"
        if classes:
            argument += f""",
                     %classes: tensor<{self.kv_heads}xi32> {{attn.name = "classes"}}"""
            heads = f" heads %classes {classes}"
            operands += f", tensor<{self.kv_heads}xi32>"
        if self.sinks:
            argument += f""",
                     %logits: tensor<{self.q_heads}xf32> {{attn.name = "sink_logits"}}"""
            sinks = " sinks %logits"
            operands += f", tensor<{self.q_heads}xf32>"
        if self.significance:
            rows = (
                f", attn.significance_rows = {self.significance_rows} : i32" if self.significance_rows else ""
            )
            attributes = f'attributes {{attn.significance = "{self.significance}"{rows}}} '
        if self.softcap:
            constants = f"""
  %cap = arith.constant {SOFTCAP} : f32
  %inverse = arith.constant {1 / SOFTCAP!r} : f32"""
            fast = " fastmath<afn>" if self.approximate else ""
            score = f""" score {{
    ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
      %x = arith.mulf %s, %inverse : f32
      %y = math.tanh %x{fast} : f32
      %z = arith.mulf %y, %cap : f32
      attn.yield %z : f32
    }}"""
        return f"""!query = {query}
!cache = {self.store_type(self.store, stored, self.key, self.value)}
{draft}
func.func @attention(%q: !query {{attn.name = "q", attn.dims = ["rows"]}},
                     {stores}{argument}) -> ({returned}) {attributes}{{{constants}
  {named} = attn.attend %q over {regions}{region}{heads}{sinks}{score} : {operands} -> {attended}
  return {named} : {returned}
}}
"""


@dataclass(frozen=True)
class CacheProblem:
    """An operation on a cache."""

    op: str = "append"  # append, move, gather or requantize.
    heads: int = 8
    dim: int = 128
    value_dim: int = 128
    dtype: str = "bf16"  # The dtype of rows, and of caches that are not quantized.
    store: str = "paged<16>"
    key: str = ""  # Storage formats of keys and values; by default `dtype`.
    value: str = ""
    to_key: str = ""  # requantize: formats of the cache that is written.
    to_value: str = ""
    status: bool = False

    def cache(self, key, value):
        value_dim = "" if self.value_dim == self.dim else f"value_dim = {self.value_dim}, "
        return (
            f"!attn.kv<{self.store}, heads = {self.heads}, dim = {self.dim}, {value_dim}"
            f"key = {key or self.dtype}, value = {value or self.dtype}>"
        )

    def text(self):
        keys = f"tensor<?x?x{self.heads}x{self.dim}x{self.dtype}>"
        values = f"tensor<?x?x{self.heads}x{self.value_dim}x{self.dtype}>"
        cache, into = self.cache(self.key, self.value), self.cache(self.to_key, self.to_value)
        arguments = {
            "append": [("k", keys), ("v", values), ("kv", cache), ("slots", "!slots")],
            "move": [("kv", cache), ("from", "!slots"), ("to", "!slots")],
            "gather": [("kv", cache), ("slots", "!slots")],
            "requantize": [("kv", cache), ("low", into), ("from", "!slots"), ("to", "!slots")],
        }[self.op]
        status, type = (" status %status", ", tensor<1xi32>") if self.status else ("", "")
        if self.status:
            arguments = [*arguments, ("status", "tensor<1xi32>")]
        body = {
            "append": f"attn.append %k, %v to %kv at %slots{status} : {keys}, {values}, {cache}, !slots{type}\n  return",
            "move": f"attn.move %kv from %from to %to : {cache}, !slots, !slots\n  return",
            "gather": f"%k, %v = attn.gather %kv at %slots : {cache}, !slots -> {keys}, {values}\n"
            f"  return %k, %v : {keys}, {values}",
            "requantize": f"attn.requantize %kv at %from to %low at %to{status} : {cache}, !slots, {into}, !slots{type}\n"
            "  return",
        }[self.op]
        text = ", ".join(f'%{name}: {type} {{attn.name = "{name}"}}' for name, type in arguments)
        results = f" -> ({keys}, {values})" if self.op == "gather" else ""
        return f"!slots = tensor<?xi32>\nfunc.func @cache_op({text}){results} {{\n  {body}\n}}\n"


def prepared_text(
    heads=2, q_heads=4, dim=64, value_dim=None, dtype="f16", store="paged<16>", key="", value="", angles=16,
    table="f32", weight="f32", interleaved=False, status=False, first=0, latent=False,
):  # fmt: skip
    """Return the text of an append with a norm and a rotation, or strided. `angles`, `weight`, `q_heads`: 0 or "" for none;
    `latent`: values are the first features of keys, and queries the features that turn."""
    value_dim = value_dim or dim
    query_dim = 2 * angles if latent else dim
    rows, values, queries = (
        f"tensor<?x?x{n}x{d}x{dtype}>" for n, d in ((heads, dim), (heads, value_dim), (q_heads, query_dim))
    )
    own = "" if latent or value_dim == dim else f"value_dim = {value_dim}, "
    value = f"first<{value_dim}>" if latent else value or dtype
    cache = f"!attn.kv<{store}, heads = {heads}, dim = {dim}, {own}key = {key or dtype}, value = {value}>"
    tensors = {"k": rows} | ({} if latent else {"v": values}) | {"kv": cache, "slots": "tensor<?xi32>"}
    clauses = ""
    if q_heads:
        tensors["q"] = queries
        clauses += f" query %q : {queries}"
    if weight:
        of = f"tensor<?x{value_dim if latent else dim}x{weight}>"
        tensors["k_norm"] = of
        clauses += f" norm %k_norm : {of} epsilon 1.0e-5"
        if q_heads and not latent:
            tensors["q_norm"] = of
            clauses += f" query_norm %q_norm : {of}"
    if angles:
        of = f"tensor<?x{angles}x{table}>"
        tensors |= {"cos": of, "sin": of, "positions": "tensor<?xi32>"}
        clauses += f" rotate %cos, %sin at %positions : {of}, {of}, tensor<?xi32>"
        clauses += f" from {first}" if first else ""
        clauses += " interleaved" if interleaved else ""
    if not (weight or angles):
        clauses += " strided"
    kind = ""
    if status:
        tensors["status"], kind = "tensor<1xi32>", ", tensor<1xi32>"
        clauses += " status %status"
    arguments = ", ".join(f'%{name}: {type} {{attn.name = "{name}"}}' for name, type in tensors.items())
    name, result, returned = ("%r = ", f" -> {queries}", f" %r : {queries}") if q_heads else ("", "", "")
    read, kinds = ("%k", rows) if latent else ("%k, %v", f"{rows}, {values}")
    return f"""func.func @prepare({arguments}){result} {{
  {name}attn.append {read} to %kv at %slots{clauses} : {kinds}, {cache}, tensor<?xi32>{kind}{result}
  return{returned}
}}
"""


def attn_run(file, *options, timeout=600):
    """Run attn-run with --json; returns (exit status, the JSON object or None, standard error)."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run.json"
        result = subprocess.run(
            [program("attn-run"), str(file), "--json", str(out), *map(str, options)],
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )
        report = json.loads(out.read_text()) if out.exists() else None
        return result.returncode, report, result.stderr


def check_two_sequences(file, problem, rows, lengths=(200, 333), *, device, options=()):
    """Check `problem` on two sequences of these lengths, the longest last: its table and its pages end there. Returns
    the result of attn_run."""
    file.write_text(problem.text())
    table = file.with_suffix(".csv")
    lists = problem.kv_heads if "ragged" in problem.store else 1
    table.write_text("tokens\n" + "".join(f"{length}\n" * lists for length in lengths))
    dims = ("--dim=batch=2", f"--dim=q_len={rows}", f"--dim=kv_len=@{table}:tokens")
    return attn_run(file, "--check", f"--device={device}", *options, *dims, "--seed=1")


def assert_right(result, dtype, slack=1, *, device):
    """Assert that a check passed. `slack`: a factor of the type's tolerance. Only the host device has detectors."""
    status, report, errors = result
    assert status == 0, errors
    assert report["rel_err"] <= TOLERANCE[dtype] * slack
    assert report["max_err_lse"] <= LSE_TOLERANCE
    if device == "host":
        assert (report["races"], report["uninitialized"], report["out_of_bounds"]) == (0, 0, 0)


@dataclass
class Resources:
    """The resources of one kernel, from ptxas -v."""

    kernel: str
    registers: int
    stack: int
    spill_stores: int
    spill_loads: int


def lost_policies(cubin):
    """Return the number of copies to shared memory that ptxas encoded without the policy of the PTX:
    lib/Target/LowerCacheHints.cpp explains when. It reads ELF's sections of instructions, of 16 bytes each, whose
    lowest twelve bits are the operation."""
    sections, size, count = (*struct.unpack_from("<Q", cubin, 0x28), *struct.unpack_from("<HH", cubin, 0x3A))
    lost = 0
    for place in range(sections, sections + size * count, size):
        flags, _, begin, length = struct.unpack_from("<4Q", cubin, place + 8)
        if flags & 4:
            lost += sum(
                first & 0xFFF == 0xDAE
                for first, _ in struct.iter_unpack("<2Q", cubin[begin : begin + length])
            )
    return lost


def ptxas(ptx_file, target):
    """Assemble a PTX file; returns the resources of its kernels. Raises with ptxas's own words on failure."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        command = ["ptxas", "-v", f"-arch={target}", str(ptx_file), "-o", cubin.name]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300)
        made = Path(cubin.name).read_bytes()
    log = result.stdout + result.stderr
    if made and (lost := lost_policies(made)):
        raise RuntimeError(f"{' '.join(command)}\n{lost} copies have lost their policies: no GPU runs them")
    serialised = "instructions are serialized" in log  # ptxas assembles, but runs one wgmma after the other.
    if result.returncode != 0 or serialised:
        raise RuntimeError(f"{' '.join(command)}\n{log}")
    kernels = []
    for part in re.split(r"Compiling entry function ", log)[1:]:
        name = re.match(r"'([^']*)'", part).group(1)
        stack, stores, loads = map(
            int,
            re.search(
                r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", part
            ).groups(),
        )
        registers = int(re.search(r"Used (\d+) registers", part).group(1))
        kernels.append(Resources(name, registers, stack, stores, loads))
    return kernels
