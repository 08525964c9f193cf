# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the kernels that change a cache as text. A Shape is everything that decides them."""

from __future__ import annotations

from dataclasses import dataclass

from ..describe.printing import program_text
from ..memory.formats import Format
from .policy import Rule


@dataclass(frozen=True)
class Shape:
    """The shape of a head class's store."""

    pages: int
    page_size: int
    key_dim: int
    value_dim: int
    dtype: str  # Dtype of new tokens: bf16 or f16.
    device: str
    key: Format
    value: Format
    store: str = "paged"  # paged or unified.
    latent: bool = False  # Whether values are the first features of their keys.

    @property
    def norm_dim(self) -> int:
        """The features of a key that a norm is of: of a latent, its value."""
        return self.value_dim if self.latent else self.key_dim

    @property
    def is_plain(self) -> bool:
        return self.key.is_plain and self.value.is_plain


@dataclass(frozen=True)
class Preparation:
    """The norm and the rotation of an append, or neither: everything that decides its kernel beside the Shape."""

    q_heads: int = 0  # 0: there are no queries.
    k_norm: str = ""  # Dtypes of weights; "": there is no norm.
    q_norm: str = ""
    epsilon: float = 0.0
    angles: int = 0  # Half the features that turn; 0: there is no rotation.
    first: int = 0  # The first feature of keys that turns.
    tables: str = ""  # Dtype of cosines and sines.
    interleaved: bool = False
    strided: bool = False  # Whether rows and pages have strides without a norm or a rotation.


def append_text(heads: int, shape: Shape, preparation: Preparation = Preparation()) -> str:
    """Return `attn.append` for this kind of cache: examples/07_cache/append.mlir, prepare.mlir."""
    dims = {"k": shape.key_dim} if shape.latent else {"k": shape.key_dim, "v": shape.value_dim}
    types = {name: f"tensor<?x?x{heads}x{dim}x{shape.dtype}>" for name, dim in dims.items()}
    rows = ", ".join(f'%{name}: {kind} {{attn.name = "{name}"}}' for name, kind in types.items())
    read, kinds = ", ".join(f"%{name}" for name in types), ", ".join(types.values())
    tensors, clauses, result = _clauses(shape, preparation)
    kind = ""
    if not shape.is_plain:
        kind = ", tensor<1xi32>"
        tensors["status"] = "tensor<1xi32>"
        clauses += " status %status"
    arguments = "".join(f', %{name}: {type} {{attn.name = "{name}"}}' for name, type in tensors.items())
    name, returned, arrow = (
        ("%rotated = ", " %rotated : " + result, " -> " + result) if result else ("", "", "")
    )
    return f"""!cache = {_store(heads, shape)}
func.func @append({rows}, %kv: !cache {{attn.name = "kv"}},
                  %slots: tensor<?xi32> {{attn.name = "slots"}}{arguments}){arrow} {{
  {name}attn.append {read} to %kv at %slots{clauses} : {kinds}, !cache, tensor<?xi32>{kind}{arrow}
  return{returned}
}}
"""


def _clauses(shape: Shape, of: Preparation) -> tuple[dict[str, str], str, str]:
    """Return the tensors of a preparation, the clauses that read them, and the type of prepared queries."""
    tensors, text, queries = {}, "", ""
    if of.q_heads:
        dim = 2 * of.angles if shape.latent else shape.key_dim
        queries = tensors["q"] = f"tensor<?x?x{of.q_heads}x{dim}x{shape.dtype}>"
        text += f" query %q : {queries}"
    for name, dtype, word in (("k_norm", of.k_norm, "norm"), ("q_norm", of.q_norm, "query_norm")):
        if dtype:
            tensors[name] = f"tensor<?x{shape.norm_dim}x{dtype}>"
            text += f" {word} %{name} : {tensors[name]}"
            text += f" epsilon {of.epsilon:.9e}" if word == "norm" else ""
    if of.angles:
        tensors["cos"] = tensors["sin"] = table = f"tensor<?x{of.angles}x{of.tables}>"
        tensors["positions"] = "tensor<?xi32>"
        text += f" rotate %cos, %sin at %positions : {table}, {table}, tensor<?xi32>"
        text += f" from {of.first}" if of.first else ""
        text += " interleaved" if of.interleaved else ""
    if of.strided:
        text += " strided"
    return tensors, text, queries


def move_text(heads: int, shape: Shape) -> str:
    """Return `attn.move` for this kind of cache: examples/07_cache/move.mlir."""
    return f"""!cache = {_store(heads, shape)}
!slots = tensor<?xi32>
func.func @move(%kv: !cache {{attn.name = "kv"}}, %from: !slots {{attn.name = "from"}}, %to: !slots {{attn.name = "to"}}) {{
  attn.move %kv from %from to %to : !cache, !slots, !slots
  return
}}
"""


def requantize_text(heads: int, source: Shape, target: Shape) -> str:
    """Return `attn.requantize` between two caches that differ only in formats and pages."""
    status = counts = kind = ""
    if not target.is_plain:
        kind = ", tensor<1xi32>"
        status, counts = ', %status: tensor<1xi32> {attn.name = "status"}', " status %status"
    return f"""!high = {_store(heads, source)}
!low = {_store(heads, target)}
!slots = tensor<?xi32>
func.func @requantize(%kv: !high {{attn.name = "kv"}}, %low: !low {{attn.name = "low"}},
                      %from: !slots {{attn.name = "from"}}, %to: !slots {{attn.name = "to"}}{status}) {{
  attn.requantize %kv at %from to %low at %to{counts} : !high, !slots, !low, !slots{kind}
  return
}}
"""


def _store(heads: int, shape: Shape) -> str:
    apart = shape.value_dim != shape.key_dim and not shape.latent
    value_dim = f"value_dim = {shape.value_dim}, " if apart else ""
    value = f"first<{shape.value_dim}>" if shape.latent else shape.value.mlir()
    return (
        f"!attn.kv<{shape.store}<{shape.page_size}>, heads = {heads}, dim = {shape.key_dim}, {value_dim}"
        f"key = {shape.key.mlir()}, value = {value}>"
    )


def manage_text(left: int, right: int) -> str:
    """Return `attn.manage_pages` for pages of so many tokens at either end."""
    tensors = {"free": "?xi32", "span": "2xi32", "status": "4xi32"}
    words = f"left {left} right {right} free %free span %span status %status"
    return _table_text("manage", "manage_pages", tensors, words)


def compact_text(page: int, right: bool) -> str:
    """Return `attn.compact_tokens` for pages of so many tokens at one end."""
    tensors = {"keep": "?x?xi8", "from": "?x?xi32", "to": "?x?xi32", "status": "1xi32"}
    words = f"{'right ' if right else ''}page {page} keep %keep from %from to %to status %status"
    return _table_text("compact", "compact_tokens", tensors, words)


_DECIDE = "attn.decide leaving demoted {} gone {}, least demoted {} gone {}, lowest gone {}"


def revise_text(left: int, right: int, rule: Rule) -> str:
    """Return `attn.revise_tokens` for pages of so many tokens at either end. SpecError if functions of the rule cannot
    run in a kernel."""
    numbers = ("high", "low", "seen", "prompt")
    tensors = {"table": "?x?xi32"} | dict.fromkeys(numbers, "?xi32")
    tensors |= {"limits": "?x2xf32", "sees": "?x2xi32"}
    tensors |= {"score": "?x?xf32", "position": "?x?xi32", "worth_high": "?x?xf32", "worth_low": "?x?xf32"}
    tensors |= {"done": "4xi32"} | dict.fromkeys(("down_from", "down_to", "move_from", "move_to"), "?xi32")
    words = " ".join(f"{name} %{name}" for name in (*numbers, "limits", "sees", "score", "position"))
    words += (
        " worth %worth_high, %worth_low done %done demote %down_from to %down_to move %move_from to %move_to"
    )
    rank = program_text(rule.ranks(), "attn.rank {}")
    decide = program_text(rule.decisions(), _DECIDE)
    words += f" left {left} right {right} window {rule.window} rows {rule.rows} rank {{\n{rank}}} decide {{\n{decide}}}"
    return _text_of("revise", "revise_tokens", tensors, words)


def _table_text(name: str, operation: str, tensors: dict[str, str], words: str) -> str:
    tensors = {"table": "?x?xi32", "counts": "?x2xi32", "tokens": "?x2xi32"} | tensors
    return _text_of(name, operation, tensors, f"counts %counts of %tokens {words}")


def _text_of(name: str, operation: str, tensors: dict[str, str], words: str) -> str:
    types = {tensor: f"tensor<{dims}>" for tensor, dims in tensors.items()}
    arguments = ", ".join(f'%{tensor}: {kind} {{attn.name = "{tensor}"}}' for tensor, kind in types.items())
    return f"""func.func @{name}({arguments}) {{
  attn.{operation} %table {words}
      : {", ".join(types.values())}
  return
}}
"""
