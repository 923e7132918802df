"""No state file, damaged by chance or crafted by hand, is silently wrong, ends the process or keeps it for ever."""

import collections
import json
import queue
import subprocess
import sys
import threading

from tests.fuzz.folder_targets import genuine_holders, nested, states_within
from tests.reliability.figures import environment, report
from tests.reliability.zoo import SPECIMENS

# Seconds without a word after which a child counts as hanging: a seed takes hundredths.
PATIENCE = 120


class Child:
    """A process that tries seeds one after the other, and says which before it does."""

    def __init__(self, kind, first, last):
        command = [sys.executable, "-m", "tests.reliability.states", kind, str(first), str(last)]
        self.process = subprocess.Popen(
            command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.lines = queue.Queue()
        self.readers = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._keep_errors, daemon=True),
        ]
        for reader in self.readers:
            reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(json.loads(line))
        self.lines.put(None)

    def _keep_errors(self):
        self.errors = self.process.stderr.read()[-2000:]

    def end(self):
        self.process.kill()
        self.process.wait()
        for reader in self.readers:
            reader.join()
        self.process.stdout.close()
        self.process.stderr.close()


def tried(kind, count):
    """Counter of what happened to each seed below `count`; a crash or a hang costs one seed."""
    found, worst, first = collections.Counter(), [], 0
    while first < count:
        child, last = Child(kind, first, count), None
        try:
            while (line := child.lines.get(timeout=PATIENCE)) is not None:
                last = line
                if "found" in line:
                    found[line["found"]] += 1
                    first = line["seed"] + 1
            ending = "crashed" if child.process.wait() < 0 else "broke down"
        except queue.Empty:
            ending = "hung"
        child.end()
        if first < count:
            found[ending] += 1
            worst.append((ending, last, child.errors))
            first += 1
    assert sum(found.values()) == count
    for what in worst[:5]:
        print(what)
    return found


def others(found, *expected):
    """How many seeds had an end that is none of those expected; they are shown."""
    strange = {what: n for what, n in found.items() if what not in expected}
    for what, n in strange.items():
        print(n, what)
    return sum(strange.values())


def test_mutated_state_files(amount):
    count = amount(200, 20_000)
    found = tried("mutated", count)
    assert found["refused"] > count // 2
    report(
        "mutated state files",
        f"{count:,} files of all kinds",
        silently_wrong=found["silently wrong"],
        crashes=found["crashed"] + found["broke down"],
        hangs=found["hung"],
        other_errors=others(found, "refused", "loaded", "silently wrong", "crashed", "broke down", "hung"),
        also={"refused": found["refused"], "loaded": found["loaded"]},
    )


def test_crafted_state_files(amount):
    count = amount(150, 5_000)
    found = tried("crafted", count)
    used = found["used"] + found["used with a clean error"]
    assert found["refused"] > count // 4 and used > count // 8
    report(
        "crafted state files: right checksums, wrong values; read, update, merge, save",
        f"{count:,} files of all kinds",
        crashes=found["crashed"] + found["broke down"],
        hangs=found["hung"],
        other_errors=others(found, "refused", "used", "used with a clean error", "crashed", "broke down", "hung"),
        also={"refused": found["refused"], "used": used},
    )


def test_states_within_states(amount):
    """Whatever stands in the place of a state that another holds: of every kind, and many within each other."""
    found, holders = collections.Counter(), genuine_holders()
    for outer in holders:
        assert states_within(outer)  # the untouched original
        chain = outer
        for _ in range(amount(10, 85)):
            chain = nested(outer, chain)
        inner = [specimen.learned(40).to_bytes() for specimen in SPECIMENS[:: amount(12, 1)]]
        for content in [chain, *(nested(outer, other) for other in [*inner, *holders, b"", b"PK", bytes(10**6)])]:
            try:
                found["loaded" if states_within(content) else "refused"] += 1
            except AssertionError as error:
                found[f"more memory than allowed: {error}"] += 1
            except Exception as error:
                found[f"refused with {type(error).__name__}: {error}"] += 1
    assert found["refused"] > 5 * len(holders) and sum(found.values()) > 8 * len(holders)
    report(
        "states within states: other kinds, nested deep",
        f"{sum(found.values()):,} files of {len(holders)} kinds that hold states",
        other_errors_or_too_much_memory=others(found, "refused", "loaded"),
        also={"refused": found["refused"], "loaded": found["loaded"]},
    )
