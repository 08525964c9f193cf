# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""DuoAttention's gates: one per layer and KV head, near 1 if the head retrieves from anywhere, near 0 if it streams.

A published file has a line per layer and a column per KV head; a JSON file beside it says how the gates were found.
(Source: arXiv 2410.10819.)
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy

from ..errors import SpecError, expected
from .choice import RETRIEVAL, STREAMING, HeadChoice, tokens_of
from .files import replace_file
from .pictures import heat_map

GATES, CONFIG = "full_attention_heads.tsv", "config.json"


class Gates:
    """`values` f64 [layers, kv_heads], and the sizes that they were found for.

    values    anything that NumPy converts to a matrix of numbers
    sink      first tokens that a streaming head sees
    recent    last tokens that it sees
    settings  further entries of `config.json` about how the gates were found

    Raises SpecError, which names layer and head.
    """

    def __init__(
        self,
        values: object,
        *,
        sink: int = 64,
        recent: int = 256,
        settings: Mapping[str, Any] | None = None,
    ):
        try:
            gates = numpy.array(values, numpy.float64)
        except (TypeError, ValueError):
            raise expected(SpecError, "gates", "numbers [layers, kv_heads]", values) from None
        if gates.ndim != 2 or not gates.size:
            raise expected(SpecError, "gates", "numbers [layers, kv_heads]", f"shape {list(gates.shape)}")
        for layer, head in numpy.argwhere(~numpy.isfinite(gates)):
            raise expected(SpecError, f"gates[{layer}][{head}]", "a finite number", float(gates[layer, head]))
        gates.flags.writeable = False
        self.values = gates
        self.sink, self.recent = tokens_of("sink", sink), tokens_of("recent", recent)
        self.settings = dict(settings or {})

    @property
    def layers(self) -> int:
        """The number of layers: lines of the file."""
        return self.values.shape[0]

    @property
    def kv_heads(self) -> int:
        """The number of KV heads: columns of the file."""
        return self.values.shape[1]

    # --- Files -----------------------------------------------------------------------------------------------

    @staticmethod
    def load(path: str | os.PathLike) -> Gates:
        """Load gates from a folder with `full_attention_heads.tsv` and `config.json`, or from a file NAME.tsv. Its
        sizes are in the JSON file beside it (with `config` for `full_attention_heads` in the name); without one they
        are 64 and 256. Numbers are separated by tabs or spaces. Sizes to deploy with take precedence over those that
        the gates were found with. Raises SpecError, which names the line and the head, counted from 0; OSError."""
        path = Path(path)
        if path.is_dir():
            path = path / GATES
        beside = path.with_name(path.name.replace("full_attention_heads.tsv", "config.json"))
        values = _numbers(path)
        if beside == path or not beside.exists():
            return Gates(values)
        settings = _settings(beside)
        sink, recent = (_size(settings, name, beside) for name in ("sink_size", "recent_size"))
        return Gates(values, sink=sink, recent=recent, settings=settings)

    def save(self, folder: str | os.PathLike) -> Path:
        """Write both files into a folder, in the published format; makes the folder if there is none. A reader sees the
        old files or the new ones. Returns the folder. Raises OSError."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        text = io.StringIO()
        numpy.savetxt(text, self.values, delimiter="\t")
        settings = self.settings | {"sink_size": self.sink, "recent_size": self.recent}
        for name in ("deploy_sink_size", "deploy_recent_size"):
            if name in settings:
                settings[name] = None
        replace_file(folder / GATES, text.getvalue().encode())
        replace_file(folder / CONFIG, json.dumps(settings).encode())
        return folder

    # --- Choosing heads
    # ------------------------------------------------------------------------------------------

    def select(
        self,
        *,
        sparsity: float | None = None,
        threshold: float | None = None,
        budget: int | None = None,
        tokens: int | None = None,
        token_bytes: int = 512,
    ) -> HeadChoice:
        """Choose the heads that retrieve; the others stream. Gates are clipped to 0 to 1: training may leave some a
        little below 0.

        sparsity     the share of all heads that stream, 0 to 1: heads retrieve from this quantile of the gates on, with n
                     gates those of ranks sparsity * (n - 1) and more, as in DuoAttention. Among equal gates those of earlier
                     layers, then of lower heads, retrieve; or
        threshold    the least gate of a head that retrieves; or
        budget       the most bytes of keys and values of a sequence of `tokens` tokens in all layers. A token takes
                     `token_bytes` in a KV head (128 features of keys and of values in 16 bits: 512). The most heads retrieve that
                     fit

        Raises SpecError.
        """
        if sum(given is not None for given in (sparsity, threshold, budget)) != 1:
            raise SpecError("sparsity, threshold, budget: expected one of the three, as in sparsity=0.5")
        if (tokens is None) != (budget is None):
            raise SpecError("tokens: expected beside budget, and only there")
        if threshold is not None:
            if not _is_number(threshold):
                raise expected(SpecError, "threshold", "a number", threshold)
            classes = numpy.where(self.values.clip(0, 1) >= threshold, RETRIEVAL, STREAMING)
        else:
            count = self._retrieving(sparsity) if budget is None else self._fit(budget, tokens, token_bytes)
            classes = numpy.full(self.values.size, STREAMING)
            classes[numpy.argsort(-self.values.clip(0, 1).reshape(-1), kind="stable")[:count]] = RETRIEVAL
        return HeadChoice(classes.reshape(self.values.shape), sink=self.sink, recent=self.recent)

    def _retrieving(self, sparsity: object) -> int:
        """Return the number of heads from the quantile on, counted by rank, which distinguishes equal gates."""
        if not _is_number(sparsity) or not 0 <= sparsity <= 1:
            nearest = min(max(sparsity, 0.0), 1.0) if _is_number(sparsity) else 0.5
            raise expected(
                SpecError, "sparsity", "a share of the heads from 0 to 1", sparsity, nearest=nearest
            )
        if sparsity in (0, 1):
            return 0 if sparsity else self.values.size
        ranks = numpy.arange(self.values.size)
        return int((ranks >= numpy.quantile(ranks, sparsity)).sum())

    def _fit(self, budget: object, tokens: object, token_bytes: object) -> int:
        tokens, token_bytes = tokens_of("tokens", tokens, 1), tokens_of("token_bytes", token_bytes, 1)
        if isinstance(budget, bool) or not isinstance(budget, (int, numpy.integer)) or budget < 0:
            raise expected(SpecError, "budget", "a number of bytes", budget)
        heads, kept = self.values.size, min(tokens, self.sink + self.recent)
        least = heads * kept * token_bytes
        if budget < least:
            legal = f"the {least} bytes that {heads} streaming heads take, or more"
            raise expected(SpecError, "budget", legal, budget, nearest=least)
        return heads if tokens == kept else min(heads, (budget - least) // ((tokens - kept) * token_bytes))

    # --- Pictures
    # ------------------------------------------------------------------------------------------------

    def svg(self, choice: HeadChoice | None = None) -> str:
        """Return a heat map as SVG text: layers downwards, KV heads to the right, dark for a gate of 1; retrieval heads
        of a choice are framed."""
        return heat_map(self.values, None if choice is None else choice.classes == RETRIEVAL)

    def draw(self, path: str | os.PathLike, choice: HeadChoice | None = None) -> Path:
        """Write the heat map to an SVG file; returns its path. Raises SpecError for another suffix; OSError."""
        path = Path(path)
        if path.suffix != ".svg":
            nearest = str(path.with_suffix(".svg"))
            raise expected(SpecError, "path", "a name that ends with .svg", str(path), nearest=nearest)
        path.write_text(self.svg(choice), encoding="utf-8")
        return path

    def __repr__(self) -> str:
        share = (self.values > 0.5).mean()
        return (
            f"<attn.heads.Gates of {self.layers} layers of {self.kv_heads} KV heads, {share:.0%} above 0.5, "
            f"sink {self.sink}, recent {self.recent}>"
        )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, numpy.floating)) and not isinstance(value, bool) and value == value


def _numbers(path: Path) -> list[list[float]]:
    rows: list[list[float]] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        where = f"{path}:{number}"
        row: list[float] = []
        for head, word in enumerate(line.split()):
            try:
                row.append(float(word))
            except ValueError:
                raise expected(SpecError, f"{where}: head {head}", "a number", word[:40]) from None
        if row and rows and len(row) != len(rows[0]):
            legal = f"a gate for each of {len(rows[0])} heads, as in the first line"
            raise expected(SpecError, where, legal, len(row))
        if row:
            rows.append(row)
    if not rows:
        raise SpecError(f"{path}: expected a line for each layer, got none")
    return rows


def _settings(path: Path) -> dict[str, Any]:
    try:
        settings = json.loads(path.read_text())
    except ValueError as error:
        raise SpecError(f"{path}: expected JSON: {error}") from None
    if not isinstance(settings, dict):
        raise expected(SpecError, str(path), "a JSON object", settings)
    return settings


def _size(settings: dict[str, Any], name: str, path: Path) -> int:
    size = settings.get(f"deploy_{name}")
    return tokens_of(f"{path}: {name}", settings.get(name) if size is None else size)
