# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The page sizes of kernels, and the pages that larger blocks of an engine are cut into."""

from __future__ import annotations

from ..errors import Error, expected

LARGEST_PAGE = 2048
"""Tokens of the largest page."""
PAGE_STEP = 16
"""Pages of more than FEW tokens have a multiple of it."""
FEW = 8
LEGAL_PAGES = f"1 to {FEW} or a multiple of {PAGE_STEP} up to {LARGEST_PAGE}"


def is_page_size(tokens: int) -> bool:
    """Return whether kernels read pages of so many tokens."""
    return 1 <= tokens <= FEW or (0 < tokens <= LARGEST_PAGE and tokens % PAGE_STEP == 0)


def nearest_page_sizes(tokens: int) -> str:
    """Return the legal page sizes below and above a number that is none: '16 or 32'."""
    if tokens < 1:
        return "1"
    if tokens > LARGEST_PAGE:
        return str(LARGEST_PAGE)
    below = tokens // PAGE_STEP * PAGE_STEP
    return f"{below or FEW} or {below + PAGE_STEP}"


def check_page_size(kind: type[Error], name: str, tokens: object) -> int:
    """Return the tokens of a page, or raise `kind` with the nearest legal numbers."""
    if isinstance(tokens, bool) or not isinstance(tokens, int):
        raise expected(kind, name, LEGAL_PAGES, tokens, nearest=PAGE_STEP)
    if not is_page_size(tokens):
        raise expected(kind, name, LEGAL_PAGES, tokens, nearest=nearest_page_sizes(tokens))
    return tokens


def page_of(block_size: int) -> int:
    """Return the largest page of a kernel that an engine's blocks are cut into: the block itself if it is a page, or else
    its largest part that is one."""
    sizes = (*range(LARGEST_PAGE, 0, -PAGE_STEP), *range(FEW, 0, -1))
    return next(size for size in sizes if block_size % size == 0)
