# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The newest measurements of `bench gpu` in benchmarks/results: by card and part, each point once."""

import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[1] / "results"
# Peers by the first word of their names in the files.
PEERS = ("cudnn", "flash", "flash4", "flashinfer", "flex")
# Libraries that a session may lack: the key of their versions, and their names in rows.
OPTIONAL = {"flashinfer": "flashinfer", "flash_attn_4": "flash4"}


def short_name(device):
    """Return `H200` for `NVIDIA H200`, `H100` for `NVIDIA H100 80GB HBM3`."""
    return device.removeprefix("NVIDIA ").partition(" ")[0]


def peer(name):
    """Return the peer of a side, by its first word; None if the side is attn in another form."""
    word = name.split(",")[0]
    return word if word in PEERS else None


def peer_title(name, session):
    """Return a peer's title with the version of the session."""
    torch = session["torch"].partition("+")[0]
    cudnn = session["cudnn"]
    return {
        "cudnn": f"cuDNN {cudnn // 10000}.{cudnn // 100 % 100}.{cudnn % 100}",
        "flash": f"PyTorch {torch}'s FlashAttention-2",
        "flash4": f"FlashAttention-4 {session.get('flash_attn_4')}",
        "flashinfer": f"FlashInfer {session['flashinfer']}",
        "flex": f"PyTorch {torch}'s FlexAttention",
    }[name]


def reports(benchmark):
    """Return the contents of all files of a benchmark, by date."""
    found = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    return [report for report in found if report["benchmark"] == benchmark]


@cache
def gpu_files():
    """Return (sessions by id, rows) of each file of `bench gpu`."""
    return [({session["id"]: session for session in of["sessions"]}, of["rows"]) for of in reports("gpu")]


@dataclass(frozen=True)
class Measured:
    """A row of a file, and the session that measured it. `libraries`: the optional ones of all sessions with the point."""

    row: dict
    session: dict
    libraries: frozenset = frozenset()

    @property
    def part(self):
        return self.row["part"]

    @property
    def name(self):
        return self.row["name"]

    @property
    def card(self):
        return short_name(self.session["device"])

    @property
    def date(self):
        return self.session["id"][:10]

    def best_peer(self, times):
        """Return (name, time) of the fastest peer among times by side; None without a peer."""
        found = [(ms, peer(name)) for name, ms in times.items() if peer(name) and ms]
        if not found:
            return None
        ms, name = min(found)
        return name, ms

    def alone(self):
        """Return the best peer alone, and its time over attn's; None without a peer."""
        best = self.best_peer(self.row.get("peers_ms", {}))
        return best and (best[0], best[1], best[1] / self.row["attn"]["run_ms"])

    def sustained(self):
        """Return the best peer's time over attn's, back to back."""
        times = self.row.get("sustained_ms", {})
        best = self.best_peer(times)
        return best and best[1] / times["attn"]

    def peer_title(self):
        return peer_title(self.alone()[0], self.session)


def measured_points(card, part, wanted):
    """Return lists of the wanted rows of each point of a part, on a card, the newest first."""
    found = {}
    for sessions, rows in gpu_files():
        for row in rows:
            measured = Measured(row, sessions[row["session"]])
            if measured.card == card and measured.part == part and wanted(measured):
                found.setdefault(row["key"], []).append(measured)
    return [sorted(rows, key=lambda each: each.session["id"], reverse=True) for rows in found.values()]


def newest(card, part, wanted=lambda measured: True):
    """Return the newest wanted row of each point of a part, on a card, in the order of their first files."""
    return [rows[0] for rows in measured_points(card, part, wanted)]


def newest_of_peers(card, part, wanted=lambda measured: True):
    """Return a wanted row of each point, as `newest`. A run may lack a peer that an older run of the point had. So of every
    peer the newest row counts, and of these the one whose best peer is ahead the most."""
    return [of_peers(rows) for rows in measured_points(card, part, wanted)]


def of_peers(rows):
    """Return one of the rows of a point, which come newest first."""
    libraries = frozenset(key for measured in rows for key in OPTIONAL if measured.session.get(key))
    by_peer = {}
    for measured in rows:
        for name in measured.row.get("peers_ms", {}):
            by_peer.setdefault(peer(name), measured)
    compared = [m for m in by_peer.values() if "run_ms" in (m.row.get("attn") or {}) and m.alone()]
    return replace(min(compared, key=lambda m: m.alone()[2], default=rows[0]), libraries=libraries)
