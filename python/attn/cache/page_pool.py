# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pages that the lists of many requests share, managed where attention reads them: on the device, in the order of a stream.

A list is what one KV head keeps of a request in a layer. Its tokens of many bits fill pages from the left end of its row of
the page table on, those of few bits from the right end; both are pages of one pool.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from .. import _attn
from ..compiler.artifacts import load_native
from ..compiler.requests import form_of, request_for
from ..errors import OutOfPages, PlanError, expected
from ..memory.devices import device_name, failed, get_device, stream_number
from ..memory.views import Binding, check, view_of
from .integers import items, whole
from .operations import manage_text
from .pages import memory_of

_MOST_PAGES = 1 << 29
_MOST_ENTRIES = (1 << 31) - 1


@dataclass(frozen=True)
class PageStatus:
    """What became of a PagePool.manage.

    done   whether lists have the pages that their tokens take; where not, nothing was changed
    asked  pages that lists lacked
    there  pages that were there for them: free ones, and those that other lists gave back
    unfit  lists whose tokens are negative or take more pages than a row of the table has columns
    """

    done: bool
    asked: int
    there: int
    unfit: int


class PagePool:
    """`pages` pages for the lists of `requests` requests, `lists` of them to a request (layers times KV heads, in the order
    that the caller likes).

    columns      pages that a list may hold at once, at its left and right end together
    page_tokens  tokens of a page at the left end, and at the right end: powers of two up to 256
    device       as of attn.compile; tensors are PyTorch's where it is imported, else NumPy's
    checked      compiled with the detectors of a host device that has them (attn.check's)

    Nothing here waits for the device but `status` and `require_done`, and `manage` allocates nothing: it may be captured with
    the launches around it. Errors: PlanError, DeviceError, CompileError.
    """

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
        self._bindings = {name: Binding(name, "i32", dims, True) for name, dims in shapes.items()}
        place = get_device(device)
        request = request_for(
            manage_text(*self.page_tokens), target=place.target, form=form_of(place), checked=checked
        )
        try:
            self._native = _attn.PageManager(
                load_native(request, place)[0], lists=requests * lists, columns=columns, pages=pages
            )
        except _attn.Failure as failure:
            raise failed(failure, PlanError) from None
        self.reset()

    @property
    def table(self) -> Any:
        """int32 [requests, lists, columns]: the pages of each list, from the left end on and from the right end on; -1 in
        columns between them. To be read."""
        return self._tensors["table"]

    @property
    def counts(self) -> Any:
        """int32 [requests, lists, 2]: pages of each list at the left and at the right. To be read."""
        return self._tensors["counts"]

    @property
    def tokens(self) -> Any:
        """int32 [requests, lists, 2]: tokens of each list at the left and at the right, that `manage` makes room for. To be
        written, on the device: a request that ends has 0, one that is forked as many as the other."""
        return self._tensors["tokens"]

    def reset(self) -> None:
        """All pages are free, no list has tokens."""
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
        """Lets every list hold the pages that its tokens take: those it has beyond go to the free list, those it lacks come
        from there, and pages that stay are not moved. All of it or, where pages run out, nothing: `status` says which.

        tokens  int32 [requests, lists, 2] on the device, in place of `self.tokens`, which it does not change
        stream  where the launches go, by default PyTorch's current one

        Neither allocates nor waits. Errors: TensorError for another tensor than that.
        """
        number = stream_number(self.device, stream)
        keep: list = []
        given = self._tensors if tokens is None else self._tensors | {"tokens": tokens}
        addresses = {}
        for name, tensor in given.items():
            address, signature = view_of(name, tensor, number, keep)
            binding = self._bindings[name]
            check(binding._replace(written=name != "tokens"), signature, {}, self.device)
            addresses[name] = address
        try:
            self._native.launch(**addresses, stream=number)
        except _attn.Failure as failure:
            raise failed(failure, PlanError) from None

    def status_words(self) -> Any:
        """int32 [4] on the device: done (1) or not (0), asked, there, unfit, as of PageStatus. What is to depend on whether
        there were enough pages, in a captured step, reads the first."""
        return self._tensors["status"]

    def status(self) -> PageStatus:
        """Of the last `manage`. Waits for the device."""
        words = self._tensors["status"]
        done, asked, there, unfit = (int(word) for word in words.tolist())
        return PageStatus(bool(done), asked, there, unfit)

    def free_pages(self) -> int:
        """That no list holds. Waits for the device."""
        return int(self._tensors["span"][1])

    def require_done(self) -> None:
        """OutOfPages, or PlanError where lists do not fit their rows, unless the last `manage` was done. Waits for the
        device."""
        found = self.status()
        if found.unfit:
            left, right = self.page_tokens
            raise PlanError(
                f"tokens: expected lists of 0 to {self.columns} pages, of {left} tokens at the left and {right} at the right, "
                f"got {found.unfit} lists that take more, or are negative; nothing was changed"
            )
        if not found.done:
            raise OutOfPages(
                f"pages: {found.asked} asked for, {found.there} of {self.pages} were there; nothing was changed"
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
        whole("page_tokens", tokens, 1)
        if tokens & (tokens - 1) or tokens > 256:
            nearest = min(256, 1 << (int(tokens).bit_length() - 1))
            raise expected(PlanError, "page_tokens", "powers of two from 1 to 256", tokens, nearest=nearest)
    return int(found[0]), int(found[1])
