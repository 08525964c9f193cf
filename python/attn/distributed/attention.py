# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.distributed.attend: attention over the rows that ranks share, with gradients."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import Tensor

from ..describe import checks
from ..describe.forest import Forest, check_forest
from ..describe.score import trace
from ..describe.spec import Spec
from ..describe.stores import Packed
from ..describe.visibility import Visibility, sides
from ..errors import Error, GroupError, SpecError, TensorError, closest, expected
from ..forks import make_guard
from ..memory.views import refuse_tangents, refuse_transformed
from ..run.described_calls import Options, score_of, visibility_of
from ..run.torch_rules import differentiable_once
from .forms import AllGather, Form, Heads, Ordered, Ring, union
from .groups import Group, agree, groups_of
from .sequences import Sequences, check_starts
from .splits import Split, check_split
from .steps import Kernels, check_plain

FORMS = ("all_gather", "ring", "heads")
_MOST_CALLS = 16  # Their plans have memory on the GPU.
_known: OrderedDict[tuple, Call] = OrderedDict()
_guard = make_guard()


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    group: Any = None,
    *,
    form: str = "all_gather",
    split: Split | str = "balanced",
    causal: bool = False,
    window: int | None = None,
    window_size: tuple[int, int] | None = None,
    sink: int | None = None,
    see: Visibility | None = None,
    softcap: float | None = None,
    score: Callable | None = None,
    sink_logits: Tensor | None = None,
    scale: float | None = None,
    cu_seqlens: Any = None,
    forest: Forest | None = None,
    return_lse: bool = False,
    ordered: bool = False,
    numerics: str | None = None,
) -> Any:
    """Compute attention of sequences whose rows are shared by the ranks of a group.

    q, k, v     this rank's rows, bfloat16 or float16: [batch, seq, heads, dim] with a part of each sequence, or with
                cu_seqlens or forest [tokens, heads, dim]. The ranks' rows are those of `split`, in its order
    group       a ProcessGroup; a DeviceMesh of one dimension, or of two, [tokens, heads]; None: all processes. The ranks of
                a split count through a mesh, the last dimension fastest
    form        "all_gather": keys and values of all ranks are gathered; "ring": they pass from rank to rank while the part
                before them is computed, so that no rank holds all; "heads": rows are exchanged for heads, before and after
                (Ulysses). A mesh of two dimensions exchanges heads along the last one, and `form` is for the first
    split       a Split, or the name of a method of `split`. Make it once, for `shard`, too
    causal, window, window_size, sink, see, softcap, score, scale    as of attn.attend; a score function that reads no tensors
    sink_logits float32 [q heads], the same on every rank. Its gradient is that of the rank's rows, or heads: add it up over
                ranks, as gradients of weights
    cu_seqlens  offsets of packed sequences in the whole batch, int32 [batch + 1], on the CPU
    forest      an attn.Forest of the whole batch, instead of cu_seqlens
    return_lse  returns (out, lse), lse float32 [batch, seq, heads] or [tokens, heads]
    ordered     True: outputs and gradients are the same bits for any number of ranks. Needs form="all_gather", one
                dimension, and a split with ordered=True; scores are computed once more for gradients
    numerics    "row": each row has the bits of attn.attend(numerics="row") on one GPU, for any split and number of ranks, and
                so those of an engine. Needs "all_gather" or "heads", and no sink_logits, which join a row's result afterwards
                here. Gradients are the same bits in every run; beside ordered=True on any number of ranks, too

    Gradients pass to q, k, v and sink_logits, from `out` and `lse` alike. All ranks call it with the same arguments, except
    for the numbers in tensors. The first call of its kind compares them between ranks, and makes plans; later calls
    communicate tensors alone. A NaN reaches the rows that see it, on any rank, and the rows of the same tile.

    Raises TensorError, SpecError or PlanError before ranks communicate if a rank is alone; otherwise GroupError on every
    rank, which names the rank with the wrong argument, or a rank that failed. No call waits longer than the group's timeout.
    """
    refuse_tangents(q, k, v, sink_logits)
    for name, tensor in (("q", q), ("k", k), ("v", v), ("sink_logits", sink_logits)):
        refuse_transformed(name, tensor)
    if score is not None:
        score = trace(score, ())
    options = dict(
        causal=causal,
        window=window,
        sink=sink,
        see=see,
        softcap=softcap,
        score=score,
        scale=scale,
        window_size=window_size,
    )
    extras = dict(
        form=form, split=split, ordered=ordered, numerics=numerics, cu_seqlens=cu_seqlens, forest=forest
    )
    groups = groups_of(group)
    call = _call(q, k, v, sink_logits, groups, options, extras)
    out, lse = _Attend.apply(call, q, k, v, sink_logits)
    return (out, lse) if return_lse else out


# --- Calls ----------------------------------------------------------------------------------------------------


class Call:
    """A call, prepared for one split and these shapes: a form, and the shapes of its tensors."""

    def __init__(self, form: Form, shape: tuple[int, ...]):
        self.form, self.shape = form, shape

    def packed(self, tensor: Tensor, heads: int) -> Tensor:
        """Return a tensor as the form reads it: rows of all sequences one after the other. `heads`: its dimensions from
        the heads on."""
        return tensor.detach().flatten(0, tensor.ndim - heads - 1)

    def whole(self, tensor: Tensor) -> Tensor:
        """Return a tensor of the form in the order of the caller's."""
        return tensor.view(*self.shape, *tensor.shape[1:])


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, call: Call, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        packed = [call.packed(each, 2) for each in (q, k, v)]
        (out, lse), saved = call.form.forward(packed[0], packed[1], packed[2], sinks)
        ctx.call, ctx.count = call, len(saved)
        # The last three are not read: second derivatives by them are refused.
        ctx.save_for_backward(*saved, *([] if sinks is None else [sinks]), q, k, v)
        return call.whole(out), call.whole(lse)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, tensors: tuple[Tensor, ...], d_out: Tensor, d_lse: Tensor) -> tuple:
        call, tensors = ctx.call, tensors[:-3]
        saved, sinks = tensors[: ctx.count], tensors[ctx.count] if len(tensors) > ctx.count else None
        gradients = call.packed(d_out, 2), call.packed(d_lse, 1)
        d_q, d_k, d_v, d_sinks = call.form.backward(saved, gradients, sinks)
        return None, *(call.whole(each) for each in (d_q, d_k, d_v)), d_sinks


def _call(
    q: Any, k: Any, v: Any, sinks: Any, groups: tuple[Group, Group], options: dict, extras: dict
) -> Call:
    """Return the call for arguments like these. The first one of its kind compares arguments between ranks."""
    key = _key(q, k, v, sinks, groups, options, extras)
    with _guard:
        found = _known.get(key) if key is not None else None
    if found is not None:
        return found
    said: dict[str, object] = {}
    made, problem = None, None
    try:
        made = _Checked(q, k, v, sinks, groups, options, extras)
        said = made.said()
    except Error as error:
        problem = error
    if groups[0].size * groups[1].size > 1:
        try:
            agree(groups[::-1], said, "" if problem is None else str(problem))
        except GroupError as error:
            raise error from problem
    if problem is not None:
        raise problem
    assert made is not None
    call = made.call()
    if key is not None:
        with _guard:
            _known[key] = call
            while len(_known) > _MOST_CALLS:
                _known.popitem(last=False)
    return call


def _key(q: Any, k: Any, v: Any, sinks: Any, groups: tuple, options: dict, extras: dict) -> tuple | None:
    """Return what decides a call; None if it has to be checked anew."""
    try:
        tensors = tuple(
            None if each is None else (tuple(each.shape), each.dtype, each.device)
            for each in (q, k, v, sinks)
        )
        starts = extras["cu_seqlens"]
        if starts is not None:
            starts = numpy.asarray(starts).astype(numpy.int64).tobytes()
        key = (
            tensors,
            groups,
            starts,
            *options.values(),
            *(extras[n] for n in ("form", "split", "ordered", "numerics", "forest")),
        )
        hash(key)
        return key
    except (TypeError, ValueError, AttributeError, RuntimeError):
        return None


class _Checked:
    """The arguments of a call, checked on this rank. Raises TensorError, SpecError or PlanError."""

    def __init__(
        self, q: Any, k: Any, v: Any, sinks: Any, groups: tuple[Group, Group], options: dict, extras: dict
    ):
        self.tokens_group, self.heads_group = groups
        self.form, self.ordered, self.numerics = extras["form"], extras["ordered"], extras["numerics"]
        if self.form not in FORMS:
            nearest = closest(self.form, FORMS) if isinstance(self.form, str) else None
            raise expected(SpecError, "form", " or ".join(FORMS), self.form, nearest=nearest)
        if self.ordered not in (False, True):
            raise expected(SpecError, "ordered", "True or False", self.ordered)
        if self.numerics is not None:
            checks.numerics(self.numerics)
            if self.form == "ring":
                legal = "'all_gather' or 'heads' beside numerics='row', whose rows read all keys at once"
                raise expected(SpecError, "form", legal, self.form, nearest="'all_gather'")
            if sinks is not None:
                raise SpecError("sink_logits: expected none beside numerics='row', got a tensor")
        if self.form == "heads":
            if self.heads_group.size > 1:
                raise SpecError(
                    "form: expected 'all_gather' or 'ring' for the first dimension of a mesh of two, got 'heads'"
                )
            self.tokens_group, self.heads_group = Group(None, 0, 1), self.tokens_group
        if self.ordered and (self.form != "all_gather" or self.heads_group.size > 1):
            raise SpecError("ordered: expected form='all_gather' and a group of one dimension beside it")
        self.ranks = self.tokens_group.size * self.heads_group.size
        self.rank = self.tokens_group.rank * self.heads_group.size + self.heads_group.rank
        self.device = check_plain("q", q).device
        self._read_shapes(q, k, v, sinks, extras)
        self._read_rows(q, extras, options)
        self.spec = self._described(q, options)

    def _read_shapes(self, q: Any, k: Any, v: Any, sinks: Any, extras: dict) -> None:
        packed = extras["cu_seqlens"] is not None or extras["forest"] is not None
        if extras["cu_seqlens"] is not None and extras["forest"] is not None:
            raise TensorError("cu_seqlens: expected None beside forest, which says where nodes begin")
        rank, dims = (3, "[tokens, heads, dim]") if packed else (4, "[batch, seq, heads, dim]")
        for name, tensor in (("q", q), ("k", k), ("v", v)):
            check_plain(name, tensor)
            if tensor.ndim != rank:
                raise TensorError(f"{name}: expected {rank} dimensions, {dims}, got {list(tensor.shape)}")
            if (tensor.dtype, tensor.device) != (q.dtype, q.device):
                raise TensorError(
                    f"{name}: expected {q.dtype} on {q.device} as q, got {tensor.dtype} on {tensor.device}"
                )
        for name, tensor, wanted in (
            ("k", k, (*q.shape[:-2], k.shape[-2], q.shape[-1])),
            ("v", v, (*k.shape[:-1], v.shape[-1])),
        ):
            if tuple(tensor.shape) != tuple(wanted):
                raise TensorError(f"{name}: expected {list(wanted)}, the rows of q, got {list(tensor.shape)}")
        self.heads, self.dims = (q.shape[-2], k.shape[-2]), (q.shape[-1], v.shape[-1])
        if self.heads[1] == 0 or self.heads[0] % self.heads[1]:
            raise expected(TensorError, "q", f"a multiple of the {self.heads[1]} heads of k", self.heads[0])
        of_rank = self.heads_group.size
        if self.heads[0] % of_rank or (self.heads[1] % of_rank and of_rank % self.heads[1]):
            raise TensorError(
                f"group: expected ranks that divide the {self.heads[0]} heads of q, and divide the {self.heads[1]} heads of k "
                f"or are a multiple of them, got {of_rank}; nearest legal: {math.gcd(*self.heads, of_rank)}"
            )
        if sinks is not None and (
            not isinstance(sinks, Tensor)
            or sinks.shape != (self.heads[0],)
            or sinks.dtype != torch.float32
            or sinks.device != q.device
        ):
            raise expected(TensorError, "sink_logits", f"float32 [{self.heads[0]}] on {q.device}", sinks)
        self.has_sinks = sinks is not None

    def _read_rows(self, q: Tensor, extras: dict, options: dict) -> None:
        """Read the whole batch and this rank's part of it."""
        self.see = _visibility(options)
        given = extras["split"]
        if extras["forest"] is not None:
            tokens: Any = check_forest("forest", extras["forest"])
            self.sequences = Sequences.of_forest(tokens)
            if self.ordered and self.see.fixed_term() + "".join(self.see.kinds()) not in ("causal", "all"):
                raise SpecError(
                    "ordered: expected causal=True or all tokens beside forest, got windows or sinks"
                )
        elif extras["cu_seqlens"] is not None:
            tokens = check_starts("cu_seqlens", extras["cu_seqlens"])
            self.sequences = Sequences.of_starts(tokens)
        else:
            if not isinstance(given, Split):
                raise expected(
                    TensorError,
                    "split",
                    "an attn.distributed.Split, which says how long sequences are, for tensors [batch, "
                    "seq, heads, dim]",
                    given,
                    hint="Make it with attn.distributed.split(tokens, ranks, ...)",
                )
            tokens = given.tokens
            self.sequences = Sequences.of_starts(numpy.arange(q.shape[0] + 1) * tokens)
        self.split = check_split(given, tokens, self.ranks, self.see, self.ordered)
        expected_tokens = self.sequences.tokens if q.ndim == 3 else tokens
        if self.split.tokens != expected_tokens:
            raise TensorError(f"split: expected a split of {expected_tokens} rows, got {self.split.tokens}")
        rows = self.split.count(self.rank)
        if q.shape[-3] != rows:
            raise TensorError(
                f"q: expected {rows} rows, this rank's part of {self.split}, got {q.shape[-3]}; attn.distributed.shard cuts a "
                "tensor so"
            )
        self.shape = tuple(q.shape[:-2])

    def _parts(self) -> list[tuple[tuple[int, int], ...]]:
        """Return the rows of each rank in the whole batch; of a dense tensor, those of all sequences."""
        repeats = 1 if len(self.shape) == 1 else self.shape[0]
        length = self.split.tokens
        return [
            tuple((i * length + a, i * length + b) for i in range(repeats) for a, b in part)
            for part in self.split.parts
        ]

    def _described(self, q: Tensor, options: dict) -> Spec:
        return Spec(
            q_heads=self.heads[0] // self.heads_group.size,
            kv_heads=max(self.heads[1] // self.heads_group.size, 1),
            head_dim=self.dims[0],
            value_dim=self.dims[1],
            dtype=str(q.dtype).removeprefix("torch."),
            kv=[Packed()],
            see=self.see,
            score=score_of(_options(options)),
            scale=options["scale"],
            return_lse=True,
            numerics=self.numerics,
        )

    def said(self) -> dict[str, object]:
        """Return the arguments that have to be the same on every rank."""
        batch = {"batch": self.shape[0]} if len(self.shape) == 2 else {}
        starts = self.sequences.q_start
        return batch | {
            "form": self.form,
            "ordered": self.ordered,
            "numerics": self.numerics,
            "heads": self.heads,
            "dims": self.dims,
            "sequences": len(starts) - 1,
            "cu_seqlens": starts.tolist() if len(starts) <= 64 else self.sequences.digest(),
            "positions": self.sequences.digest(),
            "split": repr(self.split),
            "ranges": self.split.parts,
            "sink_logits": self.has_sinks,
            "problem": self.spec.mlir(),
        }

    def call(self) -> Call:
        """Compile, plan and return the call."""
        kernels = Kernels(self.spec, str(self.device), True if self.ordered or self.numerics else None)
        parts, of_heads = self._parts(), self.heads_group.size
        units = [
            union(parts[i : i + of_heads]) if of_heads > 1 else parts[i]
            for i in range(0, len(parts), of_heads)
        ]
        common = kernels, self.sequences, units, self.tokens_group, self.device
        form: Form
        if self.ordered:
            form = Ordered(*common, block=self.split.block, whole_tasks=self.numerics is None)
        else:
            form = (Ring if self.form == "ring" else AllGather)(*common)
        if of_heads > 1:
            first = self.tokens_group.rank * of_heads
            form = Heads(form, parts[first : first + of_heads], self.heads_group, self.device, self.heads)
        return Call(form, self.shape)


def _options(options: dict) -> Options:
    return Options(
        *(options[name] for name in ("causal", "window", "sink", "see", "softcap", "score", "scale")),
        layout="bshd",
        return_lse=True,
        names=(),
    )


def _visibility(options: dict) -> Visibility:
    if options["window_size"] is None:
        return visibility_of(_options(options))
    if any(options[name] is not None for name in ("window", "sink", "see")):
        raise SpecError("window_size: expected instead of window, sink and see, got both")
    return sides(options["causal"], options["window_size"])
