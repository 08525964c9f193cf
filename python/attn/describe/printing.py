# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints a description as MLIR."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

from .tracing import ARGUMENTS, as_f32

if TYPE_CHECKING:
    from .description import Description
    from .scalars import Program
    from .score import Score


def f32_text(value: float) -> str:
    """Return the shortest decimal that reads back as the same float, with the point that MLIR wants; for infinity and
    NaN the bits."""
    value = as_f32(value)
    if value - value != 0:
        return f"0x{struct.unpack('I', struct.pack('f', value))[0]:08X}"
    text = next(
        text for text in (f"{value:.{digits}g}" for digits in range(1, 10)) if as_f32(float(text)) == value
    )
    mantissa, exponent, power = repr(float(text)).partition("e")
    return mantissa + ("" if "." in mantissa else ".0") + exponent + power


class Names:
    """Makes SSA names and aliases that nothing else has."""

    def __init__(self, taken: tuple[str, ...]) -> None:
        self.taken = set(taken)

    def __call__(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name


def tensor_type(shape: tuple) -> str:
    extents = "x".join("?" if isinstance(extent, str) else str(extent) for extent in shape)
    return f"tensor<{extents}xf32>"


def dims_text(dims: tuple[str, ...]) -> str:
    return ", attn.dims = [" + ", ".join(json.dumps(dim) for dim in dims) + "]" if dims else ""


def spec_text(spec: Description, marks: bool = True) -> str:
    """Return the text of a description: one function. `marks`: with the attributes that hold the requests beside
    results."""
    dtype = {"bfloat16": "bf16", "float16": "f16"}[spec.dtype]
    aliases, ssa = (
        Names(()),
        Names(("q", "o", "lse", *(store.name for store in spec.operands), *dict(spec.tensors))),
    )
    query, output = aliases("query"), "query"
    head = [f"!{query} = tensor<?x{spec.q_heads}x{spec.head_dim}x{dtype}>"]
    if spec.value_dim != spec.head_dim:
        output = aliases("output")
        head.append(f"!{output} = tensor<?x{spec.q_heads}x{spec.value_dim}x{dtype}>")

    arguments = [f'%q: !{query} {{attn.name = "q", attn.dims = ["rows"]}}']
    regions, operands = [], [f"!{query}"]
    stores: dict[str, str] = {}
    for store in spec.operands:
        width = (
            "" if spec.value_dim == spec.head_dim or store.is_latent else f"value_dim = {spec.value_dim}, "
        )
        held = spec.kv_heads if store.head_class is None else "?"
        ragged = "ragged, " if store.ragged and store.kind != "unified" else ""
        key, value = (format.mlir() for format in store.formats())
        if store.is_latent:
            value = f"first<{spec.value_dim}>"
        kv = f"!attn.kv<{store.layout()}, {ragged}heads = {held}, dim = {spec.head_dim}, {width}key = {key}, value = {value}>"
        if kv not in stores:
            stores[kv] = aliases(store.kind)
            head.append(f"!{stores[kv]} = {kv}")
        arguments.append(
            f'%{store.name}: !{stores[kv]} {{attn.name = "{store.name}"{dims_text(store.dims)}}}'
        )
        operands.append(f"!{stores[kv]}")
        only = f" for {class_name(store.head_class)}" if store.head_class else ""
        regions.append(f"(%{store.name} see {store.see.mlir()}{only})")

    attend = f"%q over {', '.join(regions)}"
    if spec.heads:
        values = f"tensor<{spec.kv_heads}xi32>"
        arguments.append(f'%{ssa("classes")}: {values} {{attn.name = "classes"}}')
        operands.append(values)
        see = ", ".join(f"{class_name(name)}: see {see.mlir()}" for name, see in spec.heads.classes)
        attend += f"\n      heads %classes {{{see}}}"
    if spec.scale is not None:
        attend += f" scale {f32_text(spec.scale)}"
    if spec.sink_logits:
        values = f"tensor<{spec.q_heads}xf32>"
        arguments.append(f'%{ssa("sink_logits")}: {values} {{attn.name = "sink_logits"}}')
        operands.append(values)
        attend += " sinks %sink_logits"
    if spec.gate is not None:
        values = f"!{output}" if spec.gate == "elementwise" else f"tensor<?x{spec.q_heads}x{dtype}>"
        arguments.append(f'%{ssa("gate")}: {values} {{attn.name = "gate", attn.dims = ["rows"]}}')
        operands.append(values)
        attend += " gate %gate"
    if spec.output is not None:
        output = aliases("quantized")
        head.append(f"!{output} = tensor<?x{spec.q_heads}x{spec.value_dim}xf8E4M3FN>")
        if spec.output_scales == "tensor":
            arguments.append(f'%{ssa("output_scale")}: tensor<1xf32> {{attn.name = "output_scale"}}')
            operands.append("tensor<1xf32>")
            attend += " output_scale %output_scale"
    for name, shape in spec.tensors:
        dims = dims_text(tuple(extent for extent in shape if isinstance(extent, str)))
        arguments.append(f'%{name}: {tensor_type(shape)} {{attn.name = "{name}"{dims}}}')
    constants = []
    if spec.score:
        constants, region = score_text(spec.score, dict(spec.tensors), ssa)
        attend += " score {\n" + region + "    }"

    of_rows, scaled = (
        f"tensor<?x{spec.q_heads}xf32>",
        spec.output is not None and spec.output_scales == "head",
    )
    types, names = [f"!{output}"], ["%o"]
    if spec.return_lse:
        types.append(of_rows)
        names.append("%lse")
    attended = ", ".join(types)
    if scaled:
        attended += f" output_scales {of_rows}"
        types.append(of_rows)
        names.append(f"%{ssa('output_scales')}")
    results, named = ", ".join(types), ", ".join(names)
    returned = f"({results})" if len(types) > 1 else results
    asked = _marks(spec) if marks else ""
    start = f"func.func @{spec.name}("
    listed = (",\n" + " " * len(start)).join(arguments)
    body = "".join(f"  {line}\n" for line in constants)
    return (
        "\n".join(head)
        + f"\n\n{start}{listed}) -> {returned}{asked} {{\n{body}  {named} = attn.attend {attend}\n"
        + f"      : {', '.join(operands)} -> {attended}\n  return {named} : {results}\n}}\n"
    )


def _marks(spec: Description) -> str:
    """Return the attributes that hold the requests beside results."""
    marks = ["attn.device_plan"] if spec.device_plan else []
    if spec.significance is not None:
        marks.append(f'attn.significance = "{spec.significance}"')
    if spec.significance_rows is not None:
        marks.append(f"attn.significance_rows = {spec.significance_rows} : i32")
    if spec.numerics is not None:
        marks.append(f'attn.numerics = "{spec.numerics}"')
    return f" attributes {{{', '.join(marks)}}}" if marks else ""


def class_name(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else json.dumps(name)


def score_text(score: Score, shapes: dict[str, tuple], ssa: Names) -> tuple[list[str], str]:
    """Return the constants, which precede the operation, and the region."""
    arguments = [ssa(name) for name in ("s", "head", "q_pos", "k_pos")]
    names = [f"%{name}" for name in arguments]
    kinds = ("f32", "i32", "i32", "i32")
    constants = []
    lines = ["^bb0(" + ", ".join(f"{name}: {kind}" for name, kind in zip(names, kinds, strict=True)) + "):"]
    for instruction in score.instructions:
        constant = instruction.op == "arith.constant"
        names.append("%" + ssa(f"c{len(constants)}" if constant else f"v{len(names) - len(ARGUMENTS)}"))
        operands = [names[operand] for operand in instruction.operands]
        (constants if constant else lines).append(
            f"{names[-1]} = {_right_side(instruction, operands, shapes)}"
        )
    lines.append(f"attn.yield {names[score.result]} : f32")
    return constants, "".join(f"    {'  ' if i else ''}{line}\n" for i, line in enumerate(lines))


def program_text(program: Program, end: str) -> str:
    """Return a region: its arguments, its instructions, and the operation that ends it, with `{}` for each result."""
    names = [f"%a{i}" for i in range(len(program.arguments))]
    taken = ", ".join(f"{name}: {kind}" for name, kind in zip(names, program.arguments, strict=True))
    lines = [f"^bb0({taken}):"]
    for instruction in program.instructions:
        names.append(f"%v{len(names) - len(program.arguments)}")
        operands = [names[operand] for operand in instruction.operands]
        lines.append(f"  {names[-1]} = {_right_side(instruction, operands, {})}")
    lines.append("  " + end.format(*(names[result] for result in program.results)))
    return "".join(f"{line}\n" for line in lines)


def _right_side(instruction, operands: list[str], shapes: dict[str, tuple]) -> str:
    op, kind, detail = instruction.op, instruction.type, instruction.detail
    if op == "arith.constant":
        if kind == "i1":
            return f"{op} {'true' if detail else 'false'}"
        return f"{op} {f32_text(detail) if kind == 'f32' else detail} : {kind}"
    if op == "attn.read":
        return f"{op} %{detail}[{', '.join(operands)}] : {tensor_type(shapes[detail])}"
    if op in ("arith.cmpf", "arith.cmpi"):
        predicate, compared = detail
        return f"{op} {predicate}, {', '.join(operands)} : {compared}"
    if op in ("arith.sitofp", "arith.uitofp", "arith.extui", "arith.fptosi"):
        source = detail if detail else "f32"
        return f"{op} {operands[0]} : {source} to {kind}"
    flag = " fastmath<afn>" if op == "math.tanh" and detail else ""
    return f"{op} {', '.join(operands)}{flag} : {kind}"
