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
from dataclasses import dataclass

import numpy

from . import _attn
from .cache_batch import CacheBatch
from .devices import device_name, failed
from .errors import OutOfPages, PlanError, TensorError, expected
from .pages import Run, Shape, dtype_of_cache, look_rows, take_heads
from .plan import Plan
from .slots import Look
from .tables import int32_array

_MOST = (1 << 31) - 1


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

    Memory is PyTorch's where it was imported, else NumPy's (bfloat16 as uint16 bits, or ml_dtypes'). One thread at a
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
            _whole(name, value, 1)
        self.layers, self.kv_heads, self.head_dim, self.page_size = layers, kv_heads, head_dim, page_size
        self.value_dim = head_dim if value_dim is None else _whole("value_dim", value_dim, 1)
        self.draft_page = page_size if draft_page is None else _whole("draft_page", draft_page, 1)
        self.device = device_name(device)
        self._dtype = dtype_of_cache(dtype)
        if bool(classes) == (pages is not None):
            raise PlanError("pages: give either pages, or classes that have each their own")
        if pages is not None:
            classes = [CacheClass(name="kv", pages=pages, heads=kv_heads)]
        self._classes = [_checked(head_class, layers) for head_class in classes]
        self._own_stores = pages is None
        torch = sys.modules.get("torch")
        try:
            self._native = _attn.Cache(
                page_tokens=page_size,
                draft_page=0 if self.draft_page == page_size else self.draft_page,
                classes=[(c.name, c.pages, c.recent, c.sink, c.draft) for c in self._classes],
            )
        except _attn.Failure as failure:
            raise failed(failure, PlanError) from None
        self._runs = [self._allocate(head_class, torch) for head_class in self._classes]
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
        return self._change(self._native.branch, _node(node), _whole("children", children, 1))

    def prune(self, *nodes: int) -> None:
        """Removes nodes with all that is below them; of a sequence it frees all pages."""
        self.apply(prune=nodes)

    def fork(self, leaf: int) -> int:
        """A second leaf with the same tokens; both go on as sequences. Copies the last partial page, at once."""
        twin, movement = self._change(self._native.fork, _node(leaf))
        self._moved(movement)
        return twin

    def evict(self, node: int) -> None:
        """Says that rows will come only below this node: streaming classes give back what those do not see."""
        self._change(self._native.evict, _node(node))

    def speculate(self, leaf: int, parents: Sequence[int]) -> CacheChange:
        """Gives a leaf a tree of speculated tokens: the token before each, or -1. Rows of the change are the tokens in
        the order given. The leaf cannot change before `commit`."""
        return self._moved(self._change(self._native.speculate, _node(leaf), _integers("parents", parents)))

    def commit(self, leaf: int, token: int) -> None:
        """Keeps of a draft the path that ends with `token` (-1: nothing), moved behind the leaf's own tokens, at once,
        and drops the rest. Never out of pages."""
        self._moved(self._change(self._native.commit, _node(leaf), _whole("token", token, -1)))

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
        nodes = [_node(append)] if isinstance(append, (int, numpy.integer)) else _integers("append", append)
        counts = (
            [tokens] * len(nodes) if isinstance(tokens, (int, numpy.integer)) else _integers("tokens", tokens)
        )
        if len(counts) != len(nodes):
            raise PlanError(
                f"tokens: expected one number, or one for each of {len(nodes)} nodes, got {len(counts)}"
            )
        for count in counts:
            _whole("tokens", count, 0)
        children, movement = self._change(
            self._native.apply,
            prune=_integers("prune", prune),
            append=list(zip(nodes, (int(count) for count in counts), strict=True)),
            branch=[tuple(_integers("branch", part)) for part in branch],
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
                    run.move(movement, index, run.first, run.layers, None, self._stream())
        return change

    def _stream(self, stream: object = None) -> int:
        if self.device == "host" or isinstance(stream, int):
            return stream or 0
        torch = sys.modules["torch"]
        return (stream or torch.cuda.current_stream(int(self.device.partition(":")[2]))).cuda_stream

    # --- Questions -------------------------------------------------------------------------------------------

    def batch(
        self,
        requests: Sequence[int | tuple],
        *,
        classes: Sequence[int] | None = None,
        ends: Sequence[int] | None = None,
    ) -> CacheBatch:
        """The query rows of a step: a node stands for its last token (decoding), (node, rows) for its last rows (a
        chunk of a prompt), (node, rows, True) for these and all tokens of its draft. `classes`: of each KV head,
        where the kernel has head classes. `ends`: sizes of windows and sinks instead of the compiled ones."""
        return CacheBatch(self, requests, classes, ends)

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
        return self._ask(self._native.contains, _node(node))

    def tokens(self, node: int) -> int:
        """Of the sequence that ends with the node: its own and those above it."""
        return self._ask(self._native.position, _node(node)) + self._ask(self._native.tokens, _node(node))

    def own_tokens(self, node: int) -> int:
        return self._ask(self._native.tokens, _node(node))

    def draft_tokens(self, node: int) -> int:
        return self._ask(self._native.draft_tokens, _node(node))

    def parent(self, node: int) -> int | None:
        return self._ask(self._native.parent, _node(node))

    def children(self, node: int) -> list[int]:
        return self._ask(self._native.children, _node(node))

    @property
    def sequences(self) -> list[int]:
        """Nodes without a parent."""
        return self._native.roots()

    def free_pages(self, head_class: str | None = None) -> int:
        """Of the pool of a class."""
        names = [c.name for c in self._classes]
        if head_class is not None and head_class not in names:
            raise expected(PlanError, "head_class", f"one of {', '.join(names)}", head_class)
        return self._native.free_pages(names.index(head_class) if head_class is not None else 0)

    def slots(self, node: int, head_class: int = 0) -> numpy.ndarray:
        """Where the node's own tokens lie in each layer: page * page_size + place in the page, int64; -1 where a
        streaming class has given a token back."""
        found = numpy.full(self.own_tokens(node), -1, numpy.int64)
        for first, count, page, place in self._ask(self._native.places, _node(node), head_class):
            begin = page * self.page_size + place
            found[first : first + count] = numpy.arange(begin, begin + count)
        return found

    def __repr__(self) -> str:
        pools = ", ".join(
            f"{c.name} {self._native.free_pages(i)} of {c.pages} pages free"
            for i, c in enumerate(self._classes)
        )
        return f"<attn.PagedCache of {self.layers} layers on {self.device}: {len(self.sequences)} sequences, {pools}>"


class CacheChange:
    """New tokens, for which there is room and whose keys and values are still to be written: all layers before the
    next change."""

    def __init__(self, cache: PagedCache, movement: _attn.Movement):
        self._cache = cache
        self._movement = movement
        self._missing = set(range(cache.layers)) if movement.rows else set()

    @property
    def rows(self) -> int:
        """New tokens."""
        return self._movement.rows

    def slots(self, head_class: int = 0) -> numpy.ndarray:
        """Where the row of each new token goes, for those who write themselves: page * page_size + place in the page,
        int64; -1 where the class does not keep it."""
        found = numpy.full(self.rows, -1, numpy.int64)
        for of_class, row, page, place, count in self._movement.writes:
            if of_class == head_class:
                begin = page * self._cache.page_size + place
                found[row : row + count] = numpy.arange(begin, begin + count)
        return found

    def write(
        self, layer: int, k: object, v: object, *, classes: Sequence[int] | None = None, stream: object = None
    ) -> None:
        """Writes a layer's new keys and values, [rows, kv_heads, head_dim] and [rows, kv_heads, value_dim], contiguous
        and where the cache is. `classes`: of each KV head in this layer, where classes have stores of their own."""
        self._cache.layer(layer)
        self._write(int(layer), 1, k, v, (), classes, stream)

    def write_all(
        self, k: object, v: object, *, classes: Sequence[int] | None = None, stream: object = None
    ) -> None:
        """The same for all layers at once: [layers, rows, kv_heads, head_dim]."""
        self._write(0, self._cache.layers, k, v, (self._cache.layers,), classes, stream)

    def skip(self) -> None:
        """Says that the caller writes the keys and values itself, to `slots` of `cache.layer(i).k` and `.v`."""
        self._missing.clear()
        self._settle()

    def _settle(self) -> None:
        if not self._missing and self._cache._unwritten is self:
            self._cache._unwritten = None

    def _write(self, first: int, layers: int, k, v, front: tuple, classes, stream) -> None:
        cache, keep = self._cache, []
        done = sorted(set(range(first, first + layers)) - self._missing)
        if self.rows and done:
            raise PlanError(f"layer: the keys and values of this change were written before in layers {done}")
        number = cache._stream(stream)
        heads = self._heads(first, layers, classes)
        moves = []
        for index, of_class in enumerate(heads):
            looks = []
            for name, tensor, dim in (("k", k, cache.head_dim), ("v", v, cache.value_dim)):
                sizes = (*front, self.rows, cache.kv_heads, dim)
                shape = cache._runs[index][0].shape
                found = look_rows(name, tensor, sizes, shape, number, keep)
                if of_class is not None:
                    tensor = take_heads(name, tensor, of_class, len(front) + 1)
                    keep.append(tensor)
                    found = look_rows(name, tensor, (*sizes[:-2], len(of_class), dim), shape, number, keep)
                looks.append(found)
            for run in cache._runs[index]:
                begin, end = max(first, run.first), min(first + layers, run.first + run.layers)
                if begin < end:
                    size = [self.rows * n * (begin - first) for n in run.token_bytes]
                    moves.append(
                        (
                            run,
                            index,
                            begin,
                            end - begin,
                            [(at[0] + n, at[1]) for at, n in zip(looks, size, strict=True)],
                        )
                    )
        for run, index, begin, count, rows in moves:
            run.move(self._movement, index, begin, count, tuple(rows), number)
        self._missing -= set(range(first, first + layers))
        self._settle()

    def _heads(self, first: int, layers: int, classes: Sequence[int] | None) -> list[list[int] | None]:
        """Of each class its KV heads, in order; None: all of them."""
        cache = self._cache
        if not cache._own_stores:
            if classes is not None:
                raise PlanError("classes: this cache has one store for all heads")
            return [None]
        if classes is None:
            raise PlanError(
                "classes: expected the class of each KV head, since classes have stores of their own"
            )
        classes = int32_array("classes", classes).tolist()
        found = [[h for h, c in enumerate(classes) if c == i] for i in range(len(cache._classes))]
        for layer in range(first, first + layers):
            legal = [c.heads[layer] for c in cache._classes]
            if len(classes) != cache.kv_heads or [len(heads) for heads in found] != legal:
                text = ", ".join(f"{n} of {c.name}" for n, c in zip(legal, cache._classes, strict=True))
                raise expected(
                    PlanError,
                    "classes",
                    f"the classes of {cache.kv_heads} heads, {text} in layer {layer}",
                    classes,
                )
        return found


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
        run = self._run(head_class)
        return run.k[self.index - run.first]

    def values(self, head_class: int = 0) -> object:
        run = self._run(head_class)
        return run.v[self.index - run.first]

    def _looks(self, plan: Plan) -> list[Look]:
        """Keys and values of each operand of the plan's kernel."""
        batch = plan.batch
        if type(batch) is not CacheBatch or batch.cache is not self.cache:
            raise TensorError(
                "operands: this layer is of another cache than the one that the plan was made from"
            )
        operands = batch._made[plan.kernel][2]
        found = self._found.get(operands)
        if found is None:
            found = self._found[operands] = [
                of_part
                for head_class, _, _, page in operands
                for of_part in self._run(head_class).looks_at(self.index, page)
            ]
        return found


def _whole(name: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, numpy.integer)) or not least <= value <= _MOST:
        nearest = least if not isinstance(value, int) or value < least else _MOST
        raise expected(PlanError, name, f"a whole number from {least} to {_MOST}", value, nearest=nearest)
    return int(value)


def _node(node: object) -> int:
    if isinstance(node, bool) or not isinstance(node, (int, numpy.integer)):
        raise expected(PlanError, "node", "a node, as add, branch and fork give it", node)
    return int(node)


def _integers(name: str, values: object) -> list[int]:
    try:
        values = list(values)
    except TypeError:
        raise expected(PlanError, name, "a sequence of whole numbers", values) from None
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (int, numpy.integer)):
            raise expected(PlanError, name, "whole numbers", value)
    return [int(value) for value in values]


def _checked(head_class: CacheClass, layers: int) -> CacheClass:
    if not isinstance(head_class, CacheClass):
        raise expected(PlanError, "classes", "attn.CacheClass(name=..., pages=..., heads=...)", head_class)
    heads = head_class.heads
    heads = [heads] * layers if isinstance(heads, int) else _integers("heads", heads)
    if len(heads) != layers:
        raise PlanError(f"heads: expected a number, or one for each of {layers} layers, got {len(heads)}")
    for value in heads:
        _whole("heads", value, 0)
    _whole("pages", head_class.pages, 1)
    from dataclasses import replace

    return replace(head_class, heads=tuple(heads))
