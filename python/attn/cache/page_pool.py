# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pages that the lists of many requests share, managed on the device, in the order of a stream.

The tokens that one KV head keeps of a request in a layer are a list. Its tokens of many bits fill pages from the left
end of its row of the page table, those of few bits from the right end; both are pages of one pool.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from ..errors import OutOfPages, PlanError, TensorError, Uncopied, expected
from ..memory.devices import device_name, get_device
from ..memory.page_sizes import check_page_size
from ..memory.views import Binding
from .integers import items, whole
from .operations import compact_text, manage_text
from .pages import memory_of
from .table_operation import TableOperation

_MOST_PAGES = 1 << 29
_MOST_ENTRIES = (1 << 31) - 1


@dataclass(frozen=True)
class PageStatus:
    """The result of a PagePool.manage.

    done   whether lists have the pages that their tokens need; if not, nothing was changed
    asked  pages that lists lacked
    there  pages available for them: free ones, and those that other lists gave back
    unfit  lists whose tokens are negative, or need more pages than a row of the table has columns
    """

    done: bool
    asked: int
    there: int
    unfit: int


@dataclass(frozen=True)
class PageMoves:
    """The result of PagePool.compact, in tensors on the device that its next call of this kind changes.

    source  int32 [requests, lists, moves]: slots (page * page_tokens + index in the page) whose tokens move; -1 after the last
    target  int32 [requests, lists, moves]: the slots that they move to. No slot is in both, and none is twice in one
    status  int32 [1]: the number of lists that did not change
    """

    source: Any
    target: Any
    status: Any

    def skipped(self) -> int:
        """Return the number of lists that did not change. Waits for the device."""
        return int(self.status[0])


class PagePool(Uncopied):
    """`pages` pages for the lists of `requests` requests, `lists` lists to a request (layers times KV heads, in the
    caller's order).

    columns      pages that a list may have at once, at its left and right end together
    page_tokens  tokens of a page at the left end, and at the right end, each 1 to 8 or a multiple of 16 up to 2048
    device       as of attn.compile; tensors are PyTorch's if it is imported, else NumPy's
    checked      compiled with the detectors of a host device that has them (attn.check's)

    Only `status`, `free_pages` and `require_done` wait for the device, and `manage` allocates nothing: it may be
    captured with the launches around it. Raises PlanError, DeviceError, CompileError.
    """

    _instead = "launches read its tables; make another PagePool, and copy its tensors"

    def __init__(
        self,
        *,
        pages: int,
        requests: int,
        lists: int,
        columns: int,
        page_tokens: Sequence[int] = (16, 16),
        device: object = None,
        checked: bool = False,
    ):
        sizes = dict(pages=pages, requests=requests, lists=lists, columns=columns)
        for name, size in sizes.items():
            whole(name, size, 1)
        if pages > _MOST_PAGES:
            raise expected(PlanError, "pages", f"at most {_MOST_PAGES}", pages, nearest=_MOST_PAGES)
        if pages < lists:
            legal = f"at least {lists}, a page for each list of one request"
            raise expected(PlanError, "pages", legal, pages, nearest=lists)
        if requests * lists > _MOST_ENTRIES // columns:
            most = max(_MOST_ENTRIES // (requests * lists), 1)
            legal = f"at most {most}: {requests * lists} rows of a table of 2^31 entries"
            raise expected(PlanError, "columns", legal, columns, nearest=most)
        self.pages, self.requests, self.lists, self.columns = pages, requests, lists, columns
        self.page_tokens = _page_tokens(page_tokens)
        self.device = device_name(device)
        torch = sys.modules.get("torch")
        shapes = {
            "table": (requests, lists, columns),
            "counts": (requests, lists, 2),
            "tokens": (requests, lists, 2),
            "free": (pages,),
            "span": (2,),
            "status": (4,),
        }
        self._tensors = {name: memory_of(dims, "i32", self.device, torch) for name, dims in shapes.items()}
        bindings = [Binding(name, "i32", dims, name != "tokens") for name, dims in shapes.items()]
        self._on = (get_device(device), checked)
        self._sizes = (requests * lists, columns)
        self._manage = TableOperation(
            manage_text(*self.page_tokens), bindings, (*self._sizes, pages), *self._on
        )
        self._compactions: dict[tuple[str, int, int], tuple[TableOperation, PageMoves]] = {}
        self.reset()

    @property
    def table(self) -> Any:
        """int32 [requests, lists, columns]: the pages of each list, from the left end and from the right end; -1 in
        columns between them. To be read."""
        return self._tensors["table"]

    @property
    def counts(self) -> Any:
        """int32 [requests, lists, 2]: pages of each list at the left and at the right. To be read."""
        return self._tensors["counts"]

    @property
    def tokens(self) -> Any:
        """int32 [requests, lists, 2]: tokens of each list at the left and at the right, for which `manage` provides
        pages. To be written, on the device: a request that ends has 0, a fork as many as its origin."""
        return self._tensors["tokens"]

    def reset(self) -> None:
        """Free all pages, and empty all lists."""
        contents = {"table": -1, "counts": 0, "tokens": 0}
        for name, value in contents.items():
            self._tensors[name][:] = value
        words = {"free": range(self.pages), "span": (0, self.pages), "status": (1, 0, self.pages, 0)}
        torch = sys.modules.get("torch")
        for name, value in words.items():
            tensor, content = self._tensors[name], numpy.array(value, numpy.int32)
            is_torch = torch is not None and isinstance(tensor, torch.Tensor)
            tensor[:] = torch.from_numpy(content) if is_torch else content

    def manage(self, tokens: object = None, *, stream: object = None) -> None:
        """Give every list the pages that its tokens need: excess pages go to the free list, missing ones come from
        there, and pages that stay are not moved. If pages run out, nothing changes; `status` says which happened.

        tokens  int32 [requests, lists, 2] on the device, instead of `self.tokens`, which it does not change
        stream  the stream of the launches, by default PyTorch's current one

        Neither allocates nor waits. TensorError for a tensor of another form.
        """
        self._manage.launch(self._tensors | ({} if tokens is None else {"tokens": tokens}), stream)

    def compact(
        self, keep: object, *, end: str = "left", moves: int = 1, tokens: object = None, stream: object = None
    ) -> PageMoves:
        """Choose tokens to move so that lists hold only the tokens that stay; changes `tokens`, their number. The
        caller moves keys and values, before the next `manage` frees the excess pages.

        keep    int8 or bool [requests, lists, flags] on the device: for each token of a list, by its index, whether it stays;
                flags is a multiple of 16
        end     "left" or "right": the end of lists to compact; tokens at the other end stay
        moves   the most moves of a list. A list that would need more, has more tokens than flags, or more than its pages hold,
                does not change, and is counted
        tokens  as of `manage`; they are changed

        The first call of an `end`, and of numbers of flags and moves, compiles and allocates. Later calls do neither,
        do not wait, and return the same tensors. Raises TensorError, PlanError.
        """
        if end not in ("left", "right"):
            raise expected(PlanError, "end", "'left' or 'right'", end, nearest="'left'")
        whole("moves", moves, 1)
        flags, shape = _flags(keep), tuple(getattr(keep, "shape", ()))
        if len(shape) != 3 or shape[2] < 1:
            legal = f"int8 or bool [{self.requests}, {self.lists}, flags]"
            raise TensorError(f"keep: expected {legal}, got one of shape {list(shape)}")
        operation, found = self._compaction(end, int(shape[2]), moves)
        found.status[:] = 0
        tensors = {"keep": flags, "from": found.source, "to": found.target, "status": found.status}
        operation.launch(self._tensors | ({} if tokens is None else {"tokens": tokens}) | tensors, stream)
        return found

    def _compaction(self, end: str, flags: int, moves: int) -> tuple[TableOperation, PageMoves]:
        known = (end, flags, moves)
        if known not in self._compactions:
            of_requests, torch = (self.requests, self.lists), sys.modules.get("torch")
            bindings = [
                Binding("table", "i32", (*of_requests, self.columns)),
                Binding("counts", "i32", (*of_requests, 2)),
                Binding("tokens", "i32", (*of_requests, 2), True),
                Binding("keep", "i8", (*of_requests, flags)),
                Binding("from", "i32", (*of_requests, moves), True),
                Binding("to", "i32", (*of_requests, moves), True),
                Binding("status", "i32", (1,), True),
            ]
            text = compact_text(self.page_tokens[end == "right"], end == "right")
            operation = TableOperation(text, bindings, (*self._sizes, flags, moves), *self._on)
            made = (memory_of(each.dims, "i32", self.device, torch) for each in bindings[4:])  # type: ignore[arg-type]
            self._compactions[known] = operation, PageMoves(*made)
        return self._compactions[known]

    def status_words(self) -> Any:
        """Return int32 [4] on the device: done (1) or not (0), asked, there, unfit, as of PageStatus. Work of a
        captured step that depends on whether there were enough pages reads the first word."""
        return self._tensors["status"]

    def status(self) -> PageStatus:
        """Return the status of the last `manage`. Waits for the device."""
        words = self._tensors["status"]
        done, asked, there, unfit = (int(word) for word in words.tolist())
        return PageStatus(bool(done), asked, there, unfit)

    def free_pages(self) -> int:
        """Return the number of pages that no list has. Waits for the device."""
        return int(self._tensors["span"][1])

    def require_done(self) -> None:
        """Raise OutOfPages unless the last `manage` was done, or PlanError if lists do not fit their rows. Waits for
        the device."""
        found = self.status()
        if found.unfit:
            left, right = self.page_tokens
            raise PlanError(
                f"tokens: expected lists of 0 to {self.columns} pages, of {left} tokens at the left and {right} at the right, "
                f"got {found.unfit} lists that take more, or are negative; nothing was changed"
            )
        if not found.done:
            raise OutOfPages(
                f"pages: expected {found.asked} free ones, got {found.there} of {self.pages}; nothing was changed"
            )

    def __repr__(self) -> str:
        return (
            f"<attn.PagePool on {self.device}: {self.pages} pages of {self.page_tokens} tokens for {self.requests} x "
            f"{self.lists} lists>"
        )


def _page_tokens(given: object) -> tuple[int, int]:
    found = items("page_tokens", given)
    if len(found) != 2:
        raise expected(PlanError, "page_tokens", "two numbers, of the left and the right end", given)
    for tokens in found:
        check_page_size(PlanError, "page_tokens", whole("page_tokens", tokens, 1))
    return int(found[0]), int(found[1])


def _flags(keep: object) -> object:
    """Return a bool tensor as its bytes; other tensors unchanged."""
    torch = sys.modules.get("torch")
    if isinstance(keep, numpy.ndarray):
        return keep.view(numpy.int8) if keep.dtype == numpy.bool_ else keep
    if torch is not None and isinstance(keep, torch.Tensor):
        return keep.view(torch.int8) if keep.dtype == torch.bool else keep
    return keep
