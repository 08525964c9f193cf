# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A cache whose tokens ranks share, with the interface of Transformers' caches, and the reading of prompts by parts.

A prompt's rows are where their keys and values will be: each rank takes the rows of its own chunks through the model, so
that nothing but attention communicates. Steps of generation are the same rows on every rank (sharded_steps.py).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache

from ..cache.integers import whole
from ..describe.stores import Paged
from ..distributed.caches import ShardedCache as Shards
from ..distributed.groups import Group, agree, groups_of
from ..distributed.splits import Split, split_of_parts
from ..errors import PlanError, TensorError, Uncopied, expected
from .transformers_cache import PagedLayer
from .transformers_config import CACHE, cache_argument, check_config, check_formats
from .transformers_fallback import NAME

_FORMS = ("all_gather", "ring", "heads")


class ShardedCache(Uncopied, Cache):
    """Keys and values of a model over several ranks, each of which keeps some of the tokens. Every rank runs the model and
    makes the same calls:

        cache = attn.transformers.ShardedCache(model.config, pages=4096, group=mesh)
        cache.read(model, input_ids)                                 # ranks share the rows of the prompt
        model.generate(input_ids, past_key_values=cache)             # a step's rows are the same on every rank

    config     of the model: a decoder with full attention or sliding windows, and keys of its own, in every layer
    pages      of each rank, in every layer; a page holds `page_size` tokens of one rank
    chunk      tokens that lie together on one rank, a multiple of page_size; by default 64 pages. Chunk c of sequence s of
               the batch lies on rank (s + c) modulo the ranks
    group      as of attn.distributed.attend, of one dimension; ranks of tensor parallelism are another dimension of the mesh
    dtype, device, formats    as of PagedCache

    `generate` alone works, too: then every rank takes all rows of the prompt through the model, and attends to its own
    tokens. Beams, assisted generation, head gates and copies are refused. Raises OutOfPages (on every rank, if one has too
    few), PlanError, TensorError, GroupError.
    """

    _instead = (
        "it owns pages of several ranks; read the prompt again, or take attn.transformers.PagedCache on one"
    )

    def __init__(
        self,
        config: object,
        *,
        pages: int,
        group: Any = None,
        chunk: int | None = None,
        page_size: int = 16,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        **formats: object,
    ):
        config = config.get_text_config(decoder=True)
        check_config(config, "ShardedCache")
        self.store = Paged(page_size=page_size, **check_formats(formats, "ShardedCache"))
        self.group, self.ranks = group, _group(group).size
        self.chunk = 64 * page_size if chunk is None else whole("chunk", chunk, 1)
        self._sizes = {
            "layers": config.num_hidden_layers,
            "pages": pages,
            "page_size": page_size,
            "chunk": self.chunk,
            "group": group,
            **formats,
        }
        self._dtype, self._device = dtype, device
        self.pages: Any = None
        """Its attn.distributed.ShardedCache; None until there are keys. Sequences have the numbers of the batch."""
        self.length = 0
        self.shown: list[tuple[int, int]] = []
        """The columns of the batch between which each sequence has tokens; the rest is padding."""
        self.prompt: Prompt | None = None
        """The prompt that is being read by parts."""
        self.step: Any = None
        """The ShardedStep of the forward pass in progress, or of the last one."""
        self.plans: dict[Any, Any] = {}
        super().__init__(layers=[ShardedLayer(self, index) for index in range(config.num_hidden_layers)])

    def begin(self, layer: int, batch: int, key: Tensor, value: Tensor) -> None:
        """Make the pages for `batch` sequences. The first keys and values give the sizes of all layers."""
        shape = {"kv_heads": key.shape[1], "head_dim": key.shape[3], "value_dim": value.shape[3]}
        if self.pages is None:
            dtype, device = self._dtype or key.dtype, self._device or key.device
            self.pages = Shards(**self._sizes, **shape, dtype=dtype, device=device)
            for _ in range(batch):
                self.pages.add()
        held = {name: getattr(self.pages.cache, name) for name in shape}
        if shape != held:
            raise expected(TensorError, f"{CACHE}: layer {layer}", f"{held}, as in layer 0", shape)

    def read(
        self,
        model: nn.Module,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        *,
        form: str = "all_gather",
    ) -> None:
        """Read a prompt without its last column; `generate` with the same arguments goes on from there.

        model           with attn_implementation="attn", the same on every rank, or a part of it by tensor parallelism
        input_ids       [batch, columns], the whole prompt on every rank
        attention_mask  as of the model; padding comes before the tokens of a sequence
        form            as of attn.distributed.attend: "all_gather" has the keys and values of one layer of all ranks in
                        memory, "ring" those of two ranks

        The cache must be empty. A rank takes the rows of its own chunks through the model, and the rows attend to the keys
        and values of all ranks in their 16 bits, whatever the cache's formats. A prompt with fewer chunks than ranks is read
        on every rank. An error empties the cache.
        """
        implementation = model.config.get_text_config(decoder=True)._attn_implementation
        if implementation != NAME:
            raise expected(TensorError, "model", f'attn_implementation="{NAME}"', implementation)
        if form not in _FORMS:
            raise expected(TensorError, "form", " or ".join(_FORMS), form)
        if self.length:
            raise PlanError(
                f"{CACHE}: expected an empty cache, got one with {self.length} columns: reset() it, or give later tokens to the "
                "model itself"
            )
        _check_positions(model.config)
        first = _first_tokens(input_ids, attention_mask)
        columns = input_ids.shape[1] - 1
        if columns == 0:
            return
        decoder = model.base_model
        given = {"use_cache": True, **cache_argument(decoder, self)}
        split, starts = self._split([columns - begin for begin in first])
        try:
            with torch.no_grad():
                if split is None:
                    if attention_mask is not None:
                        shown = given["attention_mask"] = attention_mask[:, :-1]
                        given["position_ids"] = (shown.long().cumsum(1) - 1).clamp(min=0)
                    decoder(input_ids=input_ids[:, :-1], **given)
                    return
                self._compare(input_ids, first, form)
                rows = split.rows(_group(self.group).rank)
                self.prompt = Prompt(split, starts, form)
                decoder(**_rows_of(rows, starts, first, input_ids), **given)
        except BaseException:
            self.reset()
            raise
        self.prompt, self.length = None, columns
        self.shown = [(begin, columns) for begin in first]

    def _split(self, counts: list[int]) -> tuple[Split | None, numpy.ndarray]:
        """Return the rows of each rank, those of its chunks, and the offsets of sequences; None if a rank has none."""
        starts = numpy.concatenate([[0], numpy.cumsum(counts)])
        parts: list[list[tuple[int, int]]] = [[] for _ in range(self.ranks)]
        for sequence, (begin, end) in enumerate(zip(starts.tolist(), starts[1:].tolist(), strict=False)):
            for number, at in enumerate(range(begin, end, self.chunk)):
                parts[(sequence + number) % self.ranks].append((at, min(at + self.chunk, end)))
        return split_of_parts(int(starts[-1]), parts) if all(parts) else None, starts

    def _compare(self, input_ids: Tensor, first: list[int], form: str) -> None:
        """Raise a GroupError on every rank if ranks read different prompts."""
        ids = numpy.ascontiguousarray(input_ids.cpu().numpy().astype(numpy.int64))
        said = {"shape": list(ids.shape), "padding": first, "form": form}
        said |= {"input_ids (SHA-256)": hashlib.sha256(ids.tobytes()).hexdigest()[:16]}
        agree([_group(self.group)], said)

    def reset(self) -> None:
        """Free all pages, on every rank."""
        self.pages, self.prompt, self.step = None, None, None
        self.length, self.shown = 0, []
        self.plans.clear()

    def crop(self, *args: object, **kwargs: object) -> None:
        _refuse("tokens that are taken back, as by assisted generation")

    def reorder_cache(self, beam_idx: Tensor) -> None:
        _refuse("beams")

    def batch_repeat_interleave(self, repeats: int) -> None:
        if repeats != 1:
            _refuse("copies of a sequence")

    def batch_select_indices(self, indices: Tensor) -> None:
        _refuse("a choice of sequences")

    def __repr__(self) -> str:
        return (
            f"<attn.transformers.ShardedCache of {self.length} columns over {self.ranks} ranks: {self.pages}>"
        )


@dataclass(eq=False)
class Prompt:
    """A prompt of which each rank takes its own rows through the model. `starts`: the offsets of sequences in the whole
    batch; `change`: of the cache, from the first layer on."""

    split: Split
    starts: numpy.ndarray
    form: str
    change: Any = None


class ShardedLayer(PagedLayer):
    """A layer of a ShardedCache."""

    is_croppable = False


def _group(given: Any) -> Group:
    """Read a group whose ranks share tokens."""
    tokens, heads = groups_of(given)
    if heads.size > 1:
        hint = "Of a mesh [tokens, heads] give the first dimension: mesh['tokens']"
        raise expected(TensorError, "group", "a group of one dimension", given, hint=hint)
    return tokens


def _refuse(what: str) -> None:
    raise PlanError(
        f"{CACHE}: attn.transformers.ShardedCache does not serve {what}; take attn.transformers.PagedCache on one rank"
    )


def _check_positions(config: Any) -> None:
    """Raise a PlanError for models whose rotations depend on all positions of a forward pass: a part has others."""
    found = getattr(config.get_text_config(decoder=True), "rope_parameters", None) or {}
    for each in (found, *(value for value in found.values() if isinstance(value, dict))):
        kind = each.get("rope_type")
        if kind in ("dynamic", "longrope"):
            raise PlanError(
                f"config: rope_type {kind!r} has other rotations in longer forward passes, and ranks read parts of the prompt; "
                "give the whole prompt to generate"
            )


def _first_tokens(input_ids: Tensor, mask: Tensor | None) -> list[int]:
    """Return the column of each sequence's first token. TensorError for other shapes, and padding that is not before the
    tokens."""
    if not isinstance(input_ids, Tensor) or input_ids.dim() != 2 or 0 in input_ids.shape:
        raise expected(TensorError, "input_ids", "[batch, columns]", input_ids)
    if mask is None:
        return [0] * len(input_ids)
    if not isinstance(mask, Tensor) or mask.shape != input_ids.shape:
        raise expected(TensorError, "attention_mask", f"{list(input_ids.shape)} as input_ids", mask)
    shown = mask.cpu().bool()
    for index, row in enumerate(shown):
        if not row[-1] or (row[1:] < row[:-1]).any():
            raise TensorError(
                f"attention_mask[{index}]: expected padding before the tokens alone: padding_side='left' of the tokenizer"
            )
    return shown.int().argmax(1).tolist()


def _rows_of(
    rows: numpy.ndarray, starts: numpy.ndarray, first: list[int], input_ids: Tensor
) -> dict[str, Tensor]:
    """Return the ids and positions of rows of the packed batch, [1, rows]."""
    sequence = numpy.searchsorted(starts, rows, side="right") - 1
    positions = rows - starts[sequence]
    columns = torch.from_numpy(positions + numpy.array(first)[sequence]).to(input_ids.device)
    ids = input_ids[torch.from_numpy(sequence).to(input_ids.device), columns]
    return {
        "input_ids": ids[None],
        "position_ids": torch.from_numpy(positions).to(input_ids.device)[None],
    }
