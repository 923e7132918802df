"""What a test of reliability reports: how much was tried, and how often each thing happened that must never happen."""

import json
import os
import sys
from pathlib import Path


def environment():
    """For a child process that finds the package that is tested here, not the tree's own, which may not be built."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}


def report(what, tried, *, also=None, **never):
    """Print one line of figures, keep it for the table, and fail unless every count in `never` is zero.

    `what` is the row of the table, `tried` a text such as "20,000 files", `never` counts by name of what must not
    happen, `also` further facts that have no target.
    """
    counts = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in never.items())
    facts = "".join(f"; {name.replace('_', ' ')}: {value}" for name, value in (also or {}).items())
    print(f"\n{what}: {tried}: {counts}{facts}", flush=True)
    if path := os.environ.get("FASTSKETCH_FIGURES"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"what": what, "tried": tried, "never": never, "also": also or {}}) + "\n")
    assert never, "a figure without a count that must be zero shows nothing"
    assert not any(never.values()), f"{what}: {counts}"
