# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A cache of keys and values in pages, for sequences that grow, branch and speculate.

    cache = attn.PagedCache(layers=32, pages=4096, page_size=16, kv_heads=8, head_dim=128, dtype="bfloat16")
    a, b = cache.add(), cache.add()                     # two empty sequences
    change = cache.append([a, b], [100, 7])             # room for their prompts, in all layers
    batch = cache.batch([(a, 100), (b, 7)])             # all those tokens are query rows
    plan = kernel.plan(batch)
    for i, layer in enumerate(model):
        change.write(i, keys, values)                   # [107, kv_heads, head_dim]
        out = kernel.run(q, cache.layer(i), plan)

A *node* is a number that names a run of tokens; a sequence is a node without a parent. Branching a node
gives children below it, which share its tokens: a tree of any shape. Everything that changes the cache is
all or nothing, and OutOfPages changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from .. import _attn
from ..errors import PlanError
from ..memory.devices import stream_number
from ..run.kernel import Kernel
from .batch import CacheBatch
from .change import CacheChange
from .integers import integers, items, new_tokens, node_number, whole
from .layer import CacheLayer
from .requantize import check_pair, find_requantizer, path_slots
from .state import CacheState
from .steps import CacheSteps


class PagedCache(CacheState):
    """A cache of keys and values in pages, with `layers` layers; it keeps track of each page's owner.

    pages         of the pool; a page holds `page_size` tokens, in every layer
    kv_heads, head_dim, value_dim, dtype    as in the Spec
    key, value, key_group, value_group, key_scales, value_scales    storage formats of keys and values, as of attn.Paged;
                  by default `dtype`. `token_bytes` is the resulting size. `value=attn.first(n)`: a value is the first
                  n features of its token's key (latent attention), and changes write keys alone
    draft_page    chains of drafts begin at multiples of it. By default page_size: drafts and nodes are one operand.
                  1 wastes no slot; drafts are then an operand of their own, Paged(page_size=1)
    classes       head classes with stores of their own (CacheClass), instead of `pages`
    kinds         kinds of layers that differ in heads, dims, formats or window (LayerKind), instead of layers, pages, kv_heads,
                  head_dim, value_dim and formats. Each kind has a kernel and a plan of its own, of one batch
    device        as of attn.compile

    A change to a node frees tokens of streaming classes that rows of the change before may still see: run those rows
    first. Memory is PyTorch's if it was imported, else NumPy's (bfloat16 as uint16 bits, or ml_dtypes'). One thread at
    a time. Raises PlanError, OutOfPages, TensorError, each before anything has changed.
    """

    _layers: dict[int, CacheLayer]
    _holder: CacheSteps | None

    # --- Changes ---------------------------------------------------------------------------------------------

    def add(self) -> int:
        """Add an empty sequence; returns a node without a parent."""
        return self._change(self._native.create_root)

    def append(self, nodes: int | Sequence[int], tokens: int | Sequence[int] = 1) -> CacheChange:
        """Append new tokens to leaves: as many to each, or a number for each. Rows of the change are the tokens of the
        first node, then those of the second, and so on."""
        _, change = self.apply(append=nodes, tokens=tokens)
        return change

    def branch(self, node: int, children: int = 2) -> list[int]:
        """Add empty children that share all tokens of the node; returns them. The node does not grow while it has
        children. Copies nothing."""
        return self._change(self._native.branch, node_number(node), whole("children", children, 1))

    def prune(self, *nodes: int) -> None:
        """Remove nodes with everything below them. Pruning a sequence frees all its pages."""
        self.apply(prune=nodes)

    def fork(self, leaf: int) -> int:
        """Add a second leaf with the same tokens; returns it. Both continue as sequences. Copies the last partial page,
        at once."""
        self._check_written()
        self._compile_moves()
        twin, movement = self._change(self._native.fork, node_number(leaf))
        try:
            self._moved(movement)
        except BaseException:
            self._uncopied = None
            self._native.prune(twin)  # The caller does not know its number.
            raise
        return twin

    def truncate(self, leaf: int, tokens: int) -> None:
        """Remove the last tokens of a leaf; other leaves keep tokens that a fork shares. Frees empty pages, and copies
        the rest of a shared page that is cut, at once."""
        self._check_written()
        self._compile_moves()
        self._moved(self._change(self._native.truncate, node_number(leaf), whole("tokens", tokens, 1)))

    def requantize(self, source: PagedCache, node: int) -> int:
        """Copy the tokens of the sequence that ends with a node of another cache to a new sequence here; returns it.
        The other cache differs only in pages and formats, and stores at least as many bits. Quantized values are
        dequantized and quantized again: grids of integers nest, so it loses as much as quantizing at once. The other
        cache is unchanged."""
        check_pair(source, self)
        source._check_written()
        runs = [list(zip(*of_class, strict=True)) for of_class in zip(source._runs, self._runs, strict=True)]
        for pair in (pair for of_class in runs for pair in of_class if pair[0].heads):
            find_requantizer(*pair)  # A kernel that cannot be compiled is refused before anything changes.
        read = [path_slots(source, node, index) for index in range(len(runs))]
        leaf = self.add()
        try:
            for count in self._steps(len(read[0])):
                self.append(leaf, count).skip()
            written = [self.slots(leaf, index).astype(numpy.int32) for index in range(len(runs))]
            for head_class, a, b in zip(self._classes, read, written, strict=True):
                a[b < 0] = -1  # A token that the class does not keep.
                if (a[b >= 0] < 0).any():
                    raise PlanError(
                        f"source: class {head_class.name} has given back tokens that are kept here"
                    )
            for of_class, a, b in zip(runs, read, written, strict=True):
                for theirs, ours in of_class:
                    if len(a) and ours.heads:
                        find_requantizer(theirs, ours).execute(theirs, a, b)
        except BaseException:
            self.prune(leaf)  # The caller does not know its number.
            raise
        return leaf

    def _steps(self, tokens: int) -> list[int]:
        """Return the steps in which a sequence grows, so that streaming classes keep no more than its last token sees."""
        if not tokens or not any(head_class.recent for head_class in self._classes):
            return [tokens] if tokens else []
        whole, rest = divmod(tokens - 1, self.page_size)
        return [*[self.page_size] * whole, *([rest] if rest else []), 1]

    def rollback(self) -> None:
        """Take back the new tokens of the last change, and the children that came with them, unless keys and values are
        written in every layer. Nodes that the change pruned stay pruned."""
        self._native.roll_back()

    def evict(self, node: int) -> None:
        """Declare that rows will come only below this node: streaming classes free the tokens that those rows do not
        see."""
        self._change(self._native.evict, node_number(node))

    def speculate(self, leaf: int, parents: Sequence[int]) -> CacheChange:
        """Give a leaf a tree of speculated tokens. `parents`: the token before each, or -1. Rows of the change are the
        tokens in the order given. The leaf cannot change before `commit`."""
        given = node_number(leaf), integers("parents", parents)
        return self._moved(self._change(self._native.speculate, *given), draft=given)

    def commit(self, leaf: int, token: int) -> None:
        """Keep the path of a draft that ends with `token` (-1: nothing), append it to the leaf's own tokens at once,
        and drop the rest. Never out of pages."""
        self._check_written()
        self._compile_moves()
        self._moved(self._change(self._native.commit, node_number(leaf), whole("token", token, -1)))

    def apply(
        self,
        *,
        prune: Sequence[int] = (),
        append: int | Sequence[int] = (),
        tokens: int | Sequence[int] = 1,
        branch: Sequence[tuple[int, int, int]] = (),
    ) -> tuple[list[int], CacheChange]:
        """Change all or nothing: prune nodes first; append `tokens` to nodes; branch (node, children, tokens of each
        child). Returns the children, and the change with the rows of appends, then those of children."""
        appends = self._ask(new_tokens, append, tokens)
        branches = [tuple(integers("branch", part)) for part in items("branch", branch)]
        children, movement = self._change(
            self._native.apply, prune=integers("prune", prune), append=appends, branch=branches
        )
        each = [tokens for _, count, tokens in branches for _ in range(count)]
        return children, self._moved(movement, [*appends.pairs, *zip(children, each, strict=True)])

    def _change(self, call, *arguments: object, **named: object):
        self._copy()
        if self._holder is not None and self._holder._unrun:
            raise PlanError(
                f"cache: {self._holder._unrun} new tokens in the tables of a step were not written, and their pages might be "
                "given to others; replay it, or call ran() if launches of your own wrote them"
            )
        if self._native.is_open:
            unwritten = self._unwritten()
            missing = sorted(unwritten._missing) if unwritten else list(range(self.layers))
            raise PlanError(
                f"cache: the keys and values of the last change were not written in layers {missing}; write them, call "
                "change.skip() if your own code writes them, or take its tokens back with cache.rollback()"
            )
        return self._ask(call, *arguments, **named)

    def _check_written(self) -> None:
        if self._holder is not None:
            raise PlanError(
                "cache: new tokens are in the tables of a step that was not run, and might be copied; update and replay it"
            )

    def _moved(
        self,
        movement: _attn.Movement,
        runs: Sequence[tuple[int, int]] = (),
        draft: tuple[int, Sequence[int]] | None = None,
    ) -> CacheChange:
        """Execute a movement without new tokens at once, in all layers. `runs`, `draft`: its new tokens."""
        if not movement.rows and movement.copies:
            self._uncopied = movement
            self._copy()
        return CacheChange(self, movement, runs, draft)

    def _compile_moves(self) -> None:
        """Refuse a cache whose kernels cannot be compiled before anything changes."""
        for index, runs in enumerate(self._runs):
            for run in runs:
                run.prepare(index)

    def _copy(self) -> None:
        """Copy the tokens that the last change moves within the cache. An interrupted copy is repeated: no slot is both
        read and written."""
        if self._uncopied is None:
            return
        for index, runs in enumerate(self._runs):
            for run in runs:
                run.move(self._uncopied, index, run.first, run.layers, None, stream_number(self.device, None))
        self._uncopied = None

    # --- For kernels -----------------------------------------------------------------------------------------

    def batch(
        self,
        requests: Sequence[int | tuple],
        *,
        classes: Sequence[int] | None = None,
        ends: Sequence[int] | None = None,
        max_pages: int = 0,
    ) -> CacheBatch:
        """Return the query rows of a step. A request is a node for its last token (decoding), (node, rows) for its last
        rows (a chunk of a prompt), or (node, rows, True) for these and all tokens of its draft.

        classes    of each KV head, if the kernel has head classes
        ends       sizes of windows and sinks instead of the compiled ones
        max_pages  columns of block tables, for plans that are fixed and whose sequences grow (a longer run of tokens is cut
                   into several instances); 0: as many as the longest run has pages"""
        self._copy()
        return CacheBatch(self, requests, classes, ends, max_pages)

    def steps(
        self,
        kernel: Kernel,
        *,
        sequences: int,
        rows: int,
        tokens: int,
        drafts: int = 0,
        blocks: int = 0,
    ) -> CacheSteps:
        """Prepare steps that are captured once, for a kernel of Spec(device_plan=True): of up to so many sequences,
        query rows, and as many new tokens; sequences of up to `tokens` tokens, and paths of drafts of up to `drafts`.
        The ratio of rows to sequences chooses the kernel. `blocks`: as of Kernel.plan.

        Drafts need an operand Paged(page_size=1) and draft_page=1; each chain of one is a sequence. Refused are head
        classes, kinds of layers, and leaves whose path of nodes does not fill its pages (below a branch; not forks)."""
        return CacheSteps(self, kernel, sequences, rows, tokens, drafts, dict(blocks=blocks))

    def layer(self, index: int) -> CacheLayer:
        """Return keys and values of a layer, as Kernel.run takes them. Nothing is copied."""
        try:
            return self._layers[index]
        except (KeyError, TypeError):
            pass
        index = self._layer_number(index)
        return self._layers.setdefault(index, CacheLayer(self, index))
