# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The file of `bench gpu`: rows by key, kept over several runs, each with the session that measured it."""

import json
import sys

from measuring.report import header, save


def refuse(reason, hint):
    print(f"bench gpu: error: {reason}\n  {hint}", file=sys.stderr)
    sys.exit(2)


def read(path):
    """Return the sessions by id and the rows by key of a file that an earlier run wrote."""
    try:
        report = json.loads(path.read_text())
        if report["benchmark"] != "gpu":
            raise ValueError(f"it holds the benchmark '{report['benchmark']}'")
        return {s["id"]: s for s in report["sessions"]}, {r["key"]: r for r in report["rows"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        refuse(
            f"{path} is not a file of this benchmark: {error if str(error) else type(error).__name__}",
            "its rows would be kept and new ones added; name another file with --json",
        )


class Results:
    """Results that are written after every row, so that a run cut short loses nothing."""

    def __init__(self, path, session):
        self.path, self.session = path, session
        self.sessions, self.rows = read(path) if path and path.exists() else ({}, {})
        self.earlier = dict(self.rows)

    def has(self, key):
        """Whether an earlier run measured it, with the same code on the same device."""
        row = self.earlier.get(key)
        if row is None:
            return False
        then = self.sessions[row["session"]]
        return all(then[name] == self.session[name] for name in ("commit", "device"))

    def add(self, row):
        self.rows[row["key"]] = row = {**row, "session": self.session["id"]}
        if self.path:
            used = {r["session"] for r in self.rows.values()}
            sessions = {**self.sessions, self.session["id"]: self.session}
            report = {
                **header("gpu", self.session["device"]),
                "sessions": [s for name, s in sessions.items() if name in used],
                "rows": list(self.rows.values()),
            }
            save(self.path, report)
        return row
