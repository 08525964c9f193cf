# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Versions of engines that were run, others, and older ones."""

import logging

import pytest
from attn.serving import refuse_version

RUN_WITH = ("0.5.23", "0.5.25")


@pytest.mark.parametrize("version", ["0.5.23", "0.5.25", "0.5.25+cpu"])
def test_versions_that_were_run_are_taken(version, caplog):
    assert refuse_version("An engine", version, RUN_WITH) == "" and not caplog.records


@pytest.mark.parametrize(
    "version", ["0.5.24", "0.6", "1.0.0", "0.5.23.post1", "0.1.dev17+gabc", "dev", "unknown"]
)
def test_other_versions_are_warned_of(version, caplog):
    with caplog.at_level(logging.WARNING):
        refused = refuse_version("An engine", version, RUN_WITH)
    assert not refused and f"attn was run with An engine 0.5.23, 0.5.25, not with {version}" in caplog.text


@pytest.mark.parametrize("version", ["0.5.22", "0.5.9+cu130", "0.4.10", "0.5"])
def test_older_versions_are_refused(version):
    assert refuse_version("An engine", version, RUN_WITH) == (
        "attn's backend needs An engine 0.5.23, whose interface of attention backends is another than that of "
        f"{version}; nearest legal: 0.5.23"
    )
