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

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy

from . import _attn
from .cache_batch import CacheBatch
from .cache_change import CacheChange
from .devices import device_name, failed, stream_number
from .errors import OutOfPages, PlanError, TensorError, expected
from .integers import integers, items, node_number, whole
from .pages import Run, Shape, dtype_of_cache
from .plan import Plan
from .slots import NOTHING, Look


@dataclass(frozen=True, kw_only=True)
class CacheClass:
    """A head class with a store of its own, shown by an operand Paged(head_class=name).

    pages   of its pool
    heads   KV heads of it in each layer: a number, or one for each layer
    recent  tokens that it keeps at distance 0 <= q - k < recent, and the first `sink`; 0: it keeps all
    draft   tokens that the ring of an unbranched sequence has room for beyond `recent`
    """

    name: str
    pages: int
    heads: int | Sequence[int]
    recent: int = 0
    sink: int = 0
    draft: int = 0


class PagedCache:
    """Pages for `layers` layers, and who holds which.

    pages         of the pool; a page holds `page_size` tokens, in every layer
    kv_heads, head_dim, value_dim, dtype    as in the Spec
    draft_page    chains of drafts begin at multiples of it. By default page_size: drafts and nodes are one operand.
                  1 wastes no slot; drafts are then an operand of their own, Paged(page_size=1)
    classes       head classes with stores of their own (CacheClass), instead of `pages`
    device        as of attn.compile

    What a streaming class gives back at the next change to a node, rows of the change before may still see: run them
    first. Memory is PyTorch's where it was imported, else NumPy's (bfloat16 as uint16 bits, or ml_dtypes'). One thread at a
    time. Errors: PlanError, OutOfPages, TensorError, each before anything has changed.
    """

    def __init__(
        self,
        *,
        layers: int,
        kv_heads: int,
        head_dim: int,
        pages: int | None = None,
        page_size: int = 16,
        value_dim: int | None = None,
        dtype: object = "bfloat16",
        draft_page: int | None = None,
        classes: Sequence[CacheClass] = (),
        device: object = None,
    ):
        for name, value in dict(
            layers=layers, kv_heads=kv_heads, head_dim=head_dim, page_size=page_size
        ).items():
            whole(name, value, 1)
        if page_size & (page_size - 1) or page_size > 256:
            nearest = min(256, 1 << (page_size.bit_length() - 1))
            raise expected(PlanError, "page_size", "a power of two from 1 to 256", page_size, nearest=nearest)
        self.layers, self.kv_heads, self.head_dim, self.page_size = layers, kv_heads, head_dim, page_size
        self.value_dim = head_dim if value_dim is None else whole("value_dim", value_dim, 1)
        self.draft_page = page_size if draft_page is None else whole("draft_page", draft_page, 1)
        self.device = device_name(device)
        self._dtype = dtype_of_cache(dtype)
        classes = items("classes", classes)
        if bool(classes) == (pages is not None):
            raise PlanError("pages: give either pages, or classes that have each their own")
        if pages is not None:
            classes = [CacheClass(name="kv", pages=pages, heads=kv_heads)]
        self._classes = [_checked(head_class, layers) for head_class in classes]
        self._own_stores = pages is None
        torch = sys.modules.get("torch")
        self._runs = [self._allocate(head_class, torch) for head_class in self._classes]
        try:
            self._native = _attn.Cache(
                page_tokens=page_size,
                draft_page=0 if self.draft_page == page_size else self.draft_page,
                classes=[(c.name, c.pages, c.recent, c.sink, c.draft) for c in self._classes],
            )
        except _attn.Failure as failure:
            raise failed(failure, PlanError) from None
        except (TypeError, OverflowError):
            raise PlanError(
                "classes: names are text, and pages, recent, sink and draft whole numbers"
            ) from None
        self._layers: dict[int, CacheLayer] = {}
        self._unwritten: CacheChange | None = None

    def _allocate(self, head_class: CacheClass, torch: object) -> list[Run]:
        """Layers in a row with as many heads share a tensor."""
        shape = Shape(
            head_class.pages, self.page_size, self.head_dim, self.value_dim, self._dtype, self.device
        )
        runs, first = [], 0
        for layer in range(1, self.layers + 1):
            if layer == self.layers or head_class.heads[layer] != head_class.heads[first]:
                runs.append(Run(first, layer - first, head_class.heads[first], shape, torch))
                first = layer
        return runs

    # --- Changes ---------------------------------------------------------------------------------------------

    def add(self) -> int:
        """An empty sequence: a node without a parent."""
        return self._change(self._native.create_root)

    def append(self, nodes: int | Sequence[int], tokens: int | Sequence[int] = 1) -> CacheChange:
        """Room for new tokens at the ends of leaves: as many at each, or a number for each. Rows of the change are
        the tokens of the first node, then those of the second, and so on."""
        _, change = self.apply(append=nodes, tokens=tokens)
        return change

    def branch(self, node: int, children: int = 2) -> list[int]:
        """New empty children that share all tokens of the node, which grows no more while it has any. No copies."""
        return self._change(self._native.branch, node_number(node), whole("children", children, 1))

    def prune(self, *nodes: int) -> None:
        """Removes nodes with all that is below them; of a sequence it frees all pages."""
        self.apply(prune=nodes)

    def fork(self, leaf: int) -> int:
        """A second leaf with the same tokens; both go on as sequences. Copies the last partial page, at once."""
        twin, movement = self._change(self._native.fork, node_number(leaf))
        self._moved(movement)
        return twin

    def evict(self, node: int) -> None:
        """Says that rows will come only below this node: streaming classes give back what those do not see."""
        self._change(self._native.evict, node_number(node))

    def speculate(self, leaf: int, parents: Sequence[int]) -> CacheChange:
        """Gives a leaf a tree of speculated tokens: the token before each, or -1. Rows of the change are the tokens in
        the order given. The leaf cannot change before `commit`."""
        return self._moved(
            self._change(self._native.speculate, node_number(leaf), integers("parents", parents))
        )

    def commit(self, leaf: int, token: int) -> None:
        """Keeps of a draft the path that ends with `token` (-1: nothing), moved behind the leaf's own tokens, at once,
        and drops the rest. Never out of pages."""
        self._moved(self._change(self._native.commit, node_number(leaf), whole("token", token, -1)))

    def apply(
        self,
        *,
        prune: Sequence[int] = (),
        append: int | Sequence[int] = (),
        tokens: int | Sequence[int] = 1,
        branch: Sequence[tuple[int, int, int]] = (),
    ) -> tuple[list[int], CacheChange]:
        """All of it or nothing: prune nodes first; append `tokens` to nodes; branch (node, children, tokens of each
        child). Gives the children, and the change with the rows of appends, then those of children."""
        nodes = (
            [node_number(append)] if isinstance(append, (int, numpy.integer)) else integers("append", append)
        )
        counts = (
            [tokens] * len(nodes) if isinstance(tokens, (int, numpy.integer)) else integers("tokens", tokens)
        )
        if len(counts) != len(nodes):
            raise PlanError(
                f"tokens: expected one number, or one for each of {len(nodes)} nodes, got {len(counts)}"
            )
        for count in counts:
            whole("tokens", count, 0)
        children, movement = self._change(
            self._native.apply,
            prune=integers("prune", prune),
            append=list(zip(nodes, (int(count) for count in counts), strict=True)),
            branch=[tuple(integers("branch", part)) for part in items("branch", branch)],
        )
        return children, self._moved(movement)

    def _change(self, call, *arguments: object, **named: object):
        if self._unwritten is not None:
            missing = sorted(self._unwritten._missing)
            raise PlanError(
                f"cache: the keys and values of the last change were not written in layers {missing}; write them, or "
                "say change.skip() where your own code does"
            )
        return self._ask(call, *arguments, **named)

    @staticmethod
    def _ask(call, *arguments: object, **named: object):
        try:
            return call(*arguments, **named)
        except _attn.Failure as failure:
            raise (
                failed(failure, PlanError) if failure.kind != "memory" else OutOfPages(failure.message)
            ) from None
        except (TypeError, OverflowError) as error:
            raise PlanError(f"cache: {str(error).partition(chr(10))[0]}") from None

    def _moved(self, movement: _attn.Movement) -> CacheChange:
        """What needs no new tokens happens at once, in all layers."""
        change = CacheChange(self, movement)
        if movement.rows > 0:
            self._unwritten = change
        elif movement.copies:
            for index, runs in enumerate(self._runs):
                for run in runs:
                    run.move(movement, index, run.first, run.layers, None, stream_number(self.device, None))
        return change

    # --- Questions -------------------------------------------------------------------------------------------

    def batch(
        self,
        requests: Sequence[int | tuple],
        *,
        classes: Sequence[int] | None = None,
        ends: Sequence[int] | None = None,
        max_pages: int = 0,
    ) -> CacheBatch:
        """The query rows of a step: a node stands for its last token (decoding), (node, rows) for its last rows (a
        chunk of a prompt), (node, rows, True) for these and all tokens of its draft. `classes`: of each KV head,
        where the kernel has head classes. `ends`: sizes of windows and sinks instead of the compiled ones.
        `max_pages`: columns of block tables, for plans that are fixed and whose sequences grow (a longer run of tokens
        is cut into several instances); 0: as many as the longest run has pages."""
        return CacheBatch(self, requests, classes, ends, max_pages)

    def layer(self, index: int) -> CacheLayer:
        """Keys and values of a layer, as Kernel.run takes them. Nothing is copied."""
        try:
            return self._layers[index]
        except (KeyError, TypeError):
            pass
        if not isinstance(index, (int, numpy.integer)) or not 0 <= index < self.layers:
            nearest = min(max(index, 0), self.layers - 1) if isinstance(index, int) else 0
            raise expected(
                PlanError, "layer", f"a number from 0 to {self.layers - 1}", index, nearest=nearest
            )
        return self._layers.setdefault(int(index), CacheLayer(self, int(index)))

    def contains(self, node: int) -> bool:
        """Whether the node lives: numbers of pruned nodes never name another one."""
        return self._ask(self._native.contains, node_number(node))

    def tokens(self, node: int) -> int:
        """Of the sequence that ends with the node: its own and those above it."""
        return self._ask(self._native.position, node_number(node)) + self._ask(
            self._native.tokens, node_number(node)
        )

    def own_tokens(self, node: int) -> int:
        """Of the node alone."""
        return self._ask(self._native.tokens, node_number(node))

    def draft_tokens(self, node: int) -> int:
        """Of the node's draft; 0 where it has none."""
        return self._ask(self._native.draft_tokens, node_number(node))

    def parent(self, node: int) -> int | None:
        """The node above; None of a sequence."""
        return self._ask(self._native.parent, node_number(node))

    def children(self, node: int) -> list[int]:
        """The nodes right below."""
        return self._ask(self._native.children, node_number(node))

    @property
    def sequences(self) -> list[int]:
        """Nodes without a parent."""
        return self._native.roots()

    def free_pages(self, head_class: str | None = None) -> int:
        """Of the pool of a class."""
        names = [c.name for c in self._classes]
        if head_class is not None and not (isinstance(head_class, str) and head_class in names):
            raise expected(PlanError, "head_class", f"one of {', '.join(names)}", head_class)
        return self._native.free_pages(names.index(head_class) if head_class is not None else 0)

    def slots(self, node: int, head_class: int = 0) -> numpy.ndarray:
        """Where the node's own tokens lie in each layer: page * page_size + place in the page, int64; -1 where a
        streaming class has given a token back."""
        found = numpy.full(self.own_tokens(node), -1, numpy.int64)
        for first, count, page, place in self._ask(self._native.places, node_number(node), head_class):
            begin = page * self.page_size + place
            found[first : first + count] = numpy.arange(begin, begin + count)
        return found

    def __repr__(self) -> str:
        pools = ", ".join(
            f"{c.name} {self._native.free_pages(i)} of {c.pages} pages free"
            for i, c in enumerate(self._classes)
        )
        return f"<attn.PagedCache of {self.layers} layers on {self.device}: {len(self.sequences)} sequences, {pools}>"


class CacheLayer:
    """Keys and values of one layer, for Kernel.run in place of all operands."""

    def __init__(self, cache: PagedCache, index: int):
        self.cache = cache
        self.index = index
        self._found: dict[tuple, list[Look]] = {}

    def _run(self, head_class: int) -> Run:
        return next(run for run in reversed(self.cache._runs[head_class]) if run.first <= self.index)

    @property
    def k(self) -> object:
        """[pages, page_size, kv_heads, head_dim], the pages themselves; of several classes the first's."""
        return self.keys()

    @property
    def v(self) -> object:
        """[pages, page_size, kv_heads, value_dim]"""
        return self.values()

    def keys(self, head_class: int = 0) -> object:
        """Of a class with a store of its own."""
        run = self._run(head_class)
        return run.k[self.index - run.first]

    def values(self, head_class: int = 0) -> object:
        """Of a class with a store of its own."""
        run = self._run(head_class)
        return run.v[self.index - run.first]

    def _looks(self, plan: Plan) -> list[Look]:
        """Keys and values of each operand of the plan's kernel."""
        batch = plan.batch
        if type(batch) is not CacheBatch or batch.cache is not self.cache:
            raise TensorError(
                "operands: this layer is of another cache than the one that the plan was made from"
            )
        _, prepared, operands = batch._made[plan.kernel]
        if prepared is not plan._prepared:
            raise PlanError("plan: its batch has changed since it was planned; call plan.update() first")
        found = self._found.get(operands)
        if found is None:
            found = self._found[operands] = [
                of_part
                for operand in operands
                for of_part in (
                    (NOTHING, NOTHING)
                    if operand is None
                    else self._run(operand[0]).looks_at(self.index, operand[3])
                )
            ]
        return found


def _checked(head_class: CacheClass, layers: int) -> CacheClass:
    if not isinstance(head_class, CacheClass):
        raise expected(PlanError, "classes", "attn.CacheClass(name=..., pages=..., heads=...)", head_class)
    heads = head_class.heads
    heads = [heads] * layers if isinstance(heads, int) else integers("heads", heads)
    if len(heads) != layers:
        raise PlanError(f"heads: expected a number, or one for each of {layers} layers, got {len(heads)}")
    for value in heads:
        whole("heads", value, 0)
    whole("pages", head_class.pages, 1)
    return replace(head_class, heads=tuple(heads))
