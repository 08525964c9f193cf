# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `bench host` counts of pages, in small."""

from parts.host_pages import page_line, page_rows


def test_small_tables():
    rows = list(page_rows(requests=3, lists=100))
    assert [row["shape"] for row in rows] == [["first tokens"], ["a token each"], ["nothing"]]
    assert all(
        row["status"] == 0 and row["bytes_floor"] < row["bytes_read"] + row["bytes_written"] for row in rows
    )
    assert rows[0]["asked"] >= 600 and rows[2]["asked"] == 0
    # Three launches read what each list has, and nothing that grows with the table is read.
    assert rows[2]["bytes_read"] < 3 * rows[2]["bytes_floor"]
    assert page_line(rows[1]).endswith(f"{0:>7}")
