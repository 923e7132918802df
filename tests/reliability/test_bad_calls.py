"""One argument of a public call replaced by what it must not be: refused by name, with nothing lost, or accepted."""

import json
import os
import select
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.reliability.figures import environment, report

ROOT = Path(__file__).parents[2]
# Seconds that one call may take; the first also waits for the imports.
LIMIT, START = 30, 120


class Child:
    """A process that makes the calls from `first` on; what it says of each."""

    def __init__(self, first, step):
        command = [sys.executable, "-m", "tests.reliability.bad_calls", str(first), str(step)]
        one_thread = {**environment(), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command, env=one_thread, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0
        )

    def end(self):
        """Its exit status."""
        with self.process:
            return self.process.wait()

    def lines(self):
        """Its lines, read as json; None for a wait that is too long, after which it is killed."""
        assert self.process.stdout is not None
        rest, limit = b"", START
        while True:
            ready, _, _ = select.select([self.process.stdout], [], [], limit)
            if not ready:
                self.process.kill()
                yield None
                return
            chunk = os.read(self.process.stdout.fileno(), 1 << 16)
            if not chunk:
                return
            *whole, rest = (rest + chunk).split(b"\n")
            limit = LIMIT
            yield from map(json.loads, whole)


def made(step):
    """(counts of what became of every step-th call, texts about those that went wrong)."""
    counts, wrong, first = Counter(), [], 0
    while True:
        call: list[Any] | None = None
        child = Child(first, step)
        for line in child.lines():
            if line is None:
                counts["hang"] += 1
                wrong.append(f"hang: {call}")
            elif isinstance(line[0], int):
                call = line
            else:
                counts[line[0]] += 1
                if line[0] not in ("accepted", "refused"):
                    wrong.append(f"{line[0]}: {call[1]}: {line[1]}")
                first, call = call[0] + 1, None
        status = child.end()
        if status == 0:
            return counts, wrong
        if call is None:
            raise RuntimeError(f"the calls could not be made: status {status}")
        if status > 0 or wrong[-1:] != [f"hang: {call}"]:
            counts["crash"] += 1
            wrong.append(f"crash ({status}): {call[1]}")
        first = call[0] + 1


def test_bad_calls(amount):
    counts, wrong = made(amount(577, 11))
    print("", *wrong, sep="\n")
    report(
        "bad calls, over every public callable",
        f"{sum(counts.values()):,} calls",
        crashes=counts["crash"],
        hangs=counts["hang"],
        raw_errors=counts["raw"],
        empty_messages=counts["silent"],
        models_changed_by_a_refusal=counts["changed"],
        wrongly_accepted=counts["wrongly accepted"],
        good_calls_refused=counts["a good call was refused"],
        also={"refused": counts["refused"], "accepted": counts["accepted"]},
    )
