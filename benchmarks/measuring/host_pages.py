# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bytes that the kernels of pages move, counted by the host device: Llama-3.1-8B's 256 lists of each of 128 requests."""

from measuring.report import import_attn

COUNTERS = ("bytes_read", "bytes_written", "sector_efficiency", "races", "uninitialized", "out_of_bounds")


def page_rows(requests=128, lists=256):
    """Yield a row for each step: the first tokens of all lists, a token more at either end of each, nothing new."""
    import numpy

    attn = import_attn()
    from attn import _attn

    device = _attn.Device.host(checked=True)
    pool = attn.PagePool(
        pages=requests * lists * 4,
        requests=requests,
        lists=lists,
        columns=64,
        page_tokens=(32, 64),
        device=device,
        checked=True,
    )
    tokens = numpy.asarray(pool.tokens)
    first = numpy.random.default_rng(0).integers(1, 64, tokens.shape)
    for name, more in (("first tokens", first), ("a token each", 1), ("nothing", 0)):
        tokens += numpy.asarray(more, numpy.int32)
        device.reset_report()
        pool.manage()
        pool.require_done()
        report = device.report()
        # Every step needs the pages and tokens of each list, and changed pages, there and in the ring.
        floor = requests * lists * 16 + 12 * pool.status().asked
        yield {
            "problem": f"manage_pages {requests} x {lists} lists",
            "shape": [name],
            "status": int(not report["clean"]),
            "bytes_floor": floor,
            "asked": pool.status().asked,
            **{counter: report[counter] for counter in COUNTERS},
        }


def page_line(row):
    """Format a row as text."""
    moved = row["bytes_read"] + row["bytes_written"]
    return (
        f"{row['problem']:<52}{row['shape'][0]:<34}{'-':>9}{moved / row['bytes_floor']:>9.3f}{row['sector_efficiency']:>9.3f}"
        f"{'-':>8}{'-':>8}{row['races'] + row['uninitialized'] + row['out_of_bounds']:>7}"
    )
