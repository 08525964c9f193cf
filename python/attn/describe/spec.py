# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The description of an attention, from which everything else follows."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..errors import SpecError, closest, expected
from ..forks import cached_property
from ..memory.dtypes import DTypeLike, in_python, storage_name
from ..memory.formats import MIXED, First, part_names
from . import checks
from .classes import HeadClasses
from .stores import Paged, Store, Unified
from .visibility import Visibility, check_visibility


@dataclass(frozen=True, kw_only=True)
class Spec:
    """Describes an attention: query rows attend to KV operands, each with a store and a visibility.

    For every query row and head, over the tokens of all operands together that the row sees:

        s(t) = score(scale * dot(q, k(t))),  lse = log(sum(exp(s)) [+ exp(sink_logit)]),  o = sum(exp(s - lse) * v)

    in f32, on `q [rows, q_heads, head_dim]`. Results are `o [rows, q_heads, value_dim]` and `lse [rows, q_heads]`, f32,
    natural logarithm, -inf for a row that sees nothing. With a gate, o is multiplied by sigmoid(gate). With scales of
    outputs, o is then divided by them.

    q_heads      query heads, a multiple of kv_heads: head h reads KV head h // (q_heads // kv_heads)
    kv_heads     KV heads
    head_dim     features of queries and keys, a multiple of 8 from 8 to 256, or of 32 up to 576
    value_dim    features of values and output, a multiple of 8 from 8 to 256, or of 128 up to 512; by default those of
                 latent operands (`value=attn.first(512)`), else head_dim
    dtype        of queries and output, and of keys and values that are not quantized: "bfloat16" or "float16", or
                 PyTorch's or NumPy's dtype of that name
    kv           the operands, one or more of `Dense`, `Packed`, `Paged`, `Unified`
    see          the visibility of the operands that have none of their own
    heads        head classes, `attn.heads(...)`: KV heads that see less. The class of each head is data of a run
    score        a score function `(s, h, qi, ki, **tensors) -> s`: score, query head, positions of query and key and
                 the tensors by name. Traced here
    tensors      shapes of the f32 tensors that the score function reads: {"slopes": (32,)}. An extent may be the name
                 of a dimension that a run chooses; of an array the shape is taken. Values are data of a run
    sink_logits  whether a learned logit per query head joins the softmax: f32 [q_heads], data of a run
    gate         a tensor of dtype, data of a run, whose sigmoid multiplies o in f32 before it is rounded: "elementwise",
                 `[rows, q_heads, value_dim]`, a number for each feature; or "headwise", `[rows, q_heads]`. The LSE does not
                 change. None: no gate
    output       "fp8_e4m3": o is float8_e4m3fn, in multiples of a float32 tensor `output_scale` [1], data of a run, which is
                 positive: o * (1 / output_scale) in f32, after the gate, clamped to 448 and rounded to nearest even, once.
                 The LSE does not change. None: o has the dtype of queries
    output_scales  of an output in "fp8_e4m3". "tensor": `output_scale`, as above. "head": a result `[rows, q_heads]`, f32, in
                 place of `output_scale`: max(|o|, 1e-10) / 448 over the features of a row and head, of values of up to 256
                 features
    scale        factor of q k^T, positive; by default 1/sqrt(head_dim)
    return_lse   whether the LSE is returned beside the output
    significance  "max", "mean" or "sum": the significance of each token is a result, too: the sum over rows of exp(s - lse),
                 reduced over the query heads that read one KV head; f32, of each operand in the shape of its keys without
                 features, of a paged one `[instances, kv_heads, pages of an instance, page_size]`. All heads see alike
    significance_rows  the number of last rows of each sequence that count; by default all
    device_plan  whether a kernel that makes plans on the device comes with it (Kernel.device_planner)
    numerics     "row": a row's results depend on its query and the keys that it sees, to the last bit, and not on the other
                 rows, their number, the chunk that it comes in, the page size, the blocks of the launch, or who makes the
                 plan. None: the quickest plan, whose splits and merges depend on the whole batch
    name         of the function, and the first part of the names of its kernels

    A Spec is frozen and hashable; equal descriptions are equal, whatever functions their scores came from. Raises
    SpecError, which names the argument, the value that was given, the legal values and the nearest one. (Source:
    include/attn/Dialect/Attn/IR/AttnOps.td.)
    """

    q_heads: int
    kv_heads: int
    head_dim: int
    dtype: DTypeLike
    kv: Sequence[Store]
    value_dim: int | None = None
    see: Visibility | None = field(default=None, repr=False)
    heads: HeadClasses | None = None
    score: Callable | None = None
    tensors: Mapping[str, object] | None = None
    sink_logits: bool = False
    gate: str | None = None
    output: str | None = None
    output_scales: str = "tensor"
    scale: float | None = None
    return_lse: bool = True
    significance: str | None = None
    significance_rows: int | None = None
    device_plan: bool = False
    numerics: str | None = None
    name: str = "attention"

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        put("kv_heads", checks.integer("kv_heads", self.kv_heads, 1, checks.MAX_HEADS))
        put("q_heads", _query_heads(self.q_heads, self.kv_heads))
        put("head_dim", checks.key_features("head_dim", self.head_dim))
        put("value_dim", self._value_dim())
        put("dtype", storage_name("dtype", self.dtype))
        if self.see is not None:
            check_visibility("see", self.see)
        if self.heads is not None and not isinstance(self.heads, HeadClasses):
            hint = "As in attn.heads(retrieval=all_tokens(), streaming=sink(64) | recent(256))"
            raise expected(SpecError, "heads", "head classes", self.heads, hint=hint)
        put("kv", self._operands())
        self._check_visible()
        put("see", None)  # It belongs to the operands now, so that equal descriptions are equal.
        put("sink_logits", checks.boolean("sink_logits", self.sink_logits))
        checks.gate(self.gate)
        checks.output(self.output)
        checks.output_scales(self.output_scales, self.output, self.value_dim)
        self._check_names("kv", [store.name for store in self.operands])
        put("return_lse", checks.boolean("return_lse", self.return_lse))
        put("device_plan", checks.boolean("device_plan", self.device_plan))
        checks.numerics(self.numerics)
        checks.significance(self.significance, self.significance_rows)
        self._check_weighs()
        put("scale", _scale(self.scale))
        checks.name("name", self.name)
        self._trace(put)

    @property
    def operands(self) -> tuple[Store, ...]:
        """The KV operands, each with its name, visibility and dtype."""
        return self.kv  # type: ignore[return-value]

    def mlir(self) -> str:
        """Return the description as MLIR: one function, which `attn-opt` and `attn-run` take."""
        return self._text

    def key(self) -> str:
        """Return a hash of the text, the same in every process: 32 hexadecimal digits."""
        return self._key

    def form(self) -> Spec:
        """Return the description without its sizes, as it is compiled: windows and sinks have sizes 1, 2, 3, ... in the
        order in which sizes appear. Two descriptions of one form share a kernel."""
        return self._form

    def ends(self, canonical: Sequence[int]) -> list[int]:
        """Return this description's sizes instead of its form's sizes, which a manifest lists as `ends`."""
        sizes = {small: size for size, small in self._sizes().items()}
        return [sizes[small] for small in canonical]

    def svg(self, *, q_len: int, kv_len: int | Mapping[str, int]) -> str:
        """Return a picture as SVG text of the tokens that the last `q_len` rows of a sequence see. `kv_len`: its number
        of tokens (one number, or one for each operand by name). All rows of a filled cell see it; some rows of a pale
        cell do."""
        from .pictures import draw

        return draw(self, q_len, kv_len)

    def draw(self, path: str | os.PathLike, *, q_len: int, kv_len: int | Mapping[str, int]) -> Path:
        """Write the picture to an SVG file; returns its path. SpecError for another suffix."""
        path = Path(path)
        if path.suffix != ".svg":
            raise expected(
                SpecError,
                "path",
                "a name that ends with .svg",
                str(path),
                nearest=str(path.with_suffix(".svg")),
            )
        path.write_text(self.svg(q_len=q_len, kv_len=kv_len), encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        """Return the text of the description, for notebooks."""
        import html

        return f"<pre>{html.escape(self.mlir())}</pre>"

    def __repr__(self) -> str:
        parts = [f"{name}={getattr(self, name)!r}" for name in ("q_heads", "kv_heads", "head_dim")]
        if self.value_dim != self.head_dim:
            parts.append(f"value_dim={self.value_dim}")
        parts += [
            f"dtype={self.dtype!r}",
            "kv=[" + ", ".join(_store_text(store) for store in self.operands) + "]",
        ]
        defaults = (
            ("heads", None),
            ("score", None),
            ("tensors", ()),
            ("sink_logits", False),
            ("gate", None),
            ("output", None),
            ("output_scales", "tensor"),
            ("scale", None),
            ("return_lse", True),
            ("significance", None),
            ("significance_rows", None),
            ("device_plan", False),
            ("numerics", None),
            ("name", "attention"),
        )
        parts += [
            f"{name}={getattr(self, name)!r}" for name, default in defaults if getattr(self, name) != default
        ]
        return f"Spec({', '.join(parts)})"

    @cached_property
    def _text(self) -> str:
        from .printing import spec_text

        return spec_text(self)

    @cached_property
    def _plain(self) -> str:
        """The text without the requests beside results, which the compiler takes as data (requests.py)."""
        from .printing import spec_text

        return spec_text(self, marks=False)

    @cached_property
    def _key(self) -> str:
        return hashlib.blake2b(self._text.encode(), digest_size=16).hexdigest()

    @cached_property
    def _form(self) -> Spec:
        sizes = self._sizes()
        if all(size == small for size, small in sizes.items()):
            return self
        heads = self.heads and HeadClasses(
            tuple((name, see.resized(sizes)) for name, see in self.heads.classes)
        )
        kv = [replace(store, see=store.see.resized(sizes)) for store in self.operands]
        return replace(self, kv=kv, heads=heads)

    def _sizes(self) -> dict[int, int]:
        """Number the sizes. Equal sizes stay equal and 0 stays 0: the compiler uses no other property of a size."""
        sees = [store.see for store in self.operands]
        sees += [see for _, see in self.heads.classes] if self.heads else []
        distinct = dict.fromkeys(size for see in sees for size in see.sizes() if size)
        return {0: 0} | {size: i + 1 for i, size in enumerate(distinct)}

    def _value_dim(self) -> int:
        """Return the features of values, which latent operands may give."""
        value_dim = (
            self.value_dim if self.value_dim is None else checks.value_features("value_dim", self.value_dim)
        )
        stores = self.kv if isinstance(self.kv, Sequence) else ()
        for i, store in enumerate(stores):
            if not isinstance(store, Store) or not isinstance(store.value, First):
                continue
            where, features = f"kv[{i}].value", store.value.features
            if features > self.head_dim:
                legal = f"attn.first(n) with n up to {self.head_dim}, the features of the key"
                nearest = checks.nearest_value_features(self.head_dim)
                raise expected(SpecError, where, legal, features, nearest=nearest)
            if value_dim not in (None, features):
                legal = f"attn.first({value_dim}), as many features as elsewhere"
                raise expected(SpecError, where, legal, features, nearest=value_dim)
            value_dim = features
        return checks.value_features("value_dim", self.head_dim) if value_dim is None else value_dim

    def _operands(self) -> tuple[Store, ...]:
        if isinstance(self.kv, Store) or not isinstance(self.kv, Sequence) or isinstance(self.kv, str):
            raise expected(
                SpecError,
                "kv",
                "a list of Dense, Packed, Paged or Unified",
                self.kv,
                hint="As in kv=[attn.Packed()]",
            )
        if not self.kv:
            raise SpecError("kv: expected one or more operands, got none")
        kv: list[Store] = []
        for i, store in enumerate(self.kv):
            if not isinstance(store, Store):
                is_store = isinstance(store, type) and issubclass(store, Store) and store is not Store
                hint = f"Did you mean {store.__name__}()?" if is_store else ""
                raise expected(
                    SpecError, f"kv[{i}]", "Dense(), Packed(), Paged() or Unified()", store, hint=hint
                )
            default = "kv" if len(self.kv) == 1 else f"kv{i}"
            store = store.resolved(name=default, see=self.see, dtype=self.dtype)
            checks.name(f"kv[{i}].name", store.name, tuple(before.name for before in kv))
            if store.see is None:
                hint = "As in see=attn.causal(), of the Spec or of the operand"
                raise expected(SpecError, f"kv[{i}].see", "a visibility", None, hint=hint)
            if store.dtype != self.dtype:
                legal = f"the dtype of the queries, {self.dtype!r}"
                raise expected(SpecError, f"kv[{i}].dtype", legal, store.dtype, nearest=repr(self.dtype))
            if store.key == MIXED and self.dtype != "bfloat16":
                legal = f"'bfloat16' beside key={MIXED!r}, which has features of bf16"
                raise expected(SpecError, "dtype", legal, self.dtype, nearest="bfloat16")
            self._check_class(f"kv[{i}].head_class", store.head_class)
            kv.append(self._settled(f"kv[{i}]", store))
        if self.see is not None and all(store.see is not None for store in self.kv):
            raise SpecError(
                "see: expected None, as every operand has a visibility of its own, which it would not change"
            )
        return tuple(kv)

    def _settled(self, where: str, store: Store) -> Store:
        if not (store.key or isinstance(store.value, str)):
            return store
        from .._attn import Failure

        try:
            return store.settled(self.head_dim, self.value_dim)
        except Failure as failure:
            raise SpecError(f"{where}.{in_python(failure.message)}") from None

    def _check_visible(self) -> None:
        by_class = {name: see.is_empty() for name, see in self.heads.classes} if self.heads else {"": False}
        for store in self.operands:
            classes = [store.head_class] if store.head_class else by_class
            if not store.see.is_empty() and not all(by_class[name] for name in classes):
                return
        given = (
            self.heads if self.heads and all(by_class.values()) else [store.see for store in self.operands]
        )
        raise expected(
            SpecError, "see", "that some rows see something", given, hint="A size of 0 shows nothing"
        )

    def _check_names(self, argument: str, names: Iterable[object]) -> None:
        """Raise a SpecError for the name of a gate or of a scale of outputs, if the description has one."""
        of_output = "output_scales" if self.output_scales == "head" else "output_scale"
        for taken, option in (("gate", self.gate), (of_output, self.output)):
            if option is not None and taken in names:
                asked = "gate=..." if taken == "gate" else "output=..."
                raise SpecError(
                    f"{argument}: expected another name than {taken!r} beside {asked}, whose tensor is called so"
                )

    def _check_weighs(self) -> None:
        """Refuse options that do not go with significance."""
        if self.significance is None:
            return
        for name, asked, legal in (
            ("return_lse", not self.return_lse, "True beside significance: weights are made by the LSE"),
            ("heads", self.heads is not None, "None beside significance: heads that see alike"),
            (
                "gate",
                self.gate is not None,
                "None beside significance: multiply the output by the gate's sigmoid afterwards",
            ),
            ("output", self.output is not None, "None beside significance: quantize the output afterwards"),
        ):
            if asked:
                raise SpecError(f"{name}: expected {legal}")

    def _check_class(self, argument: str, name: str | None) -> None:
        if name is None or (self.heads and name in self.heads.names):
            return
        if not self.heads:
            raise SpecError(
                f"{argument}: expected head classes, as in heads=attn.heads({name}=...), beside {name!r}"
            )
        legal = "one of the head classes " + ", ".join(self.heads.names)
        raise expected(SpecError, argument, legal, name, nearest=closest(name, self.heads.names))

    def _trace(self, put: Callable[[str, object], None]) -> None:
        if self.score is None:
            if not (self.tensors is None or isinstance(self.tensors, (tuple, Mapping)) and not self.tensors):
                raise SpecError("tensors: expected a score function that reads them, got none: score=...")
            put("tensors", ())
            return
        from .score import tensor_shapes, trace

        if isinstance(self.tensors, Mapping):
            self._check_names("tensors", self.tensors)
        names = tuple(store.name for store in self.operands)
        tensors = tensor_shapes(self.tensors, names)
        score = trace(self.score, tensors)
        put("score", score)
        put("tensors", tuple((name, shape) for name, shape in tensors if name in score.reads))


def _query_heads(q_heads: object, kv_heads: int) -> int:
    heads = checks.integer("q_heads", q_heads, 1, checks.MAX_HEADS)
    if heads % kv_heads:
        below = heads // kv_heads * kv_heads
        nearest = f"{below} or {below + kv_heads}" if below else str(kv_heads)
        raise expected(SpecError, "q_heads", f"a multiple of kv_heads, {kv_heads}", heads, nearest=nearest)
    return heads


def _scale(scale: object) -> float | None:
    if scale is None:
        return None
    try:
        number = math.nan if isinstance(scale, (bool, str)) else float(scale)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 2.0**-126 <= number < 2.0**128:
        raise expected(SpecError, "scale", "a positive, finite number, or None for 1/sqrt(head_dim)", scale)
    return number


def _store_text(store: Store) -> str:
    page = f"page_size={store.page_size}, " if isinstance(store, (Paged, Unified)) else ""
    only = ", ragged=True" if store.ragged else ""
    only += f", head_class={store.head_class!r}" if store.head_class else ""
    for part in ("key", "value"):
        for name in part_names(part):
            if (value := getattr(store, name)) is not None:
                only += f", {name}={value!r}"
    dims = f", dims={store.dims!r}" if store.dims != ("batch", "kv_len") else ""
    return f"{type(store).__name__}({page}name={store.name!r}, see={store.see!r}{only}{dims})"
