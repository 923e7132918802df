"""Sources that worker processes import: they say which part is read, and can stop or kill who reads it."""

import os
import signal
import time
from pathlib import Path

import numpy as np

from fastsketch.data import Source


class Watched(Source):
    """Rows of a seed; every reading of a part leaves a line in `folder`, and `act` may do harm before its last rows."""

    waits = False

    def __init__(self, folder, n_rows, n_features, *, first=0, act="", pause=0.0):
        self.folder, self.n_rows, self.n_features, self.first_row = str(folder), n_rows, n_features, first
        self.dtype, self.size, self.name = np.dtype(float), n_rows, "watched rows"
        self.act, self.pause = act, pause

    def read(self, start_row=0):
        self.note("begin")
        half = self.n_rows // 2
        yield rows_of(self.first_row, half, self.n_features), half
        time.sleep(self.pause)
        self.harm()
        yield rows_of(self.first_row + half, self.n_rows - half, self.n_features), self.n_rows
        self.note("end")

    def note(self, what):
        with (Path(self.folder) / "runs").open("a") as file:
            file.write(f"{what} {self.first_row}\n")

    def harm(self):
        """act: "kill FIRST_ROW TIMES", "raise FIRST_ROW"."""
        kind, *numbers = (self.act or "none").split()
        if kind == "kill" and self.first_row == int(numbers[0]):
            done = Path(self.folder) / "kills"
            times = len(done.read_text()) if done.exists() else 0
            if times < int(numbers[1]):
                done.write_text("x" * (times + 1))
                os.kill(os.getpid(), signal.SIGKILL)
        if kind == "raise" and self.first_row == int(numbers[0]):
            raise KeyError("rows are gone")

    def between(self, start, stop):
        return Watched(
            self.folder,
            stop - start,
            self.n_features,
            first=self.first_row + start,
            act=self.act,
            pause=self.pause,
        )

    def identity(self):
        return {"rows": self.n_rows, "features": self.n_features}


def rows_of(first, n_rows, n_features):
    """Rows that are the same however they are cut."""
    at = np.arange(first, first + n_rows)[:, np.newaxis] + 1
    return np.sin(at * (np.arange(n_features) + 1) ** 1.5) * np.linspace(2, 0.1, n_features) + 0.3


def runs(folder, what="begin"):
    """First rows of the parts that were read, one for each reading."""
    path = Path(folder) / "runs"
    lines = path.read_text().splitlines() if path.exists() else []
    return [int(line.split()[1]) for line in lines if line.startswith(what)]
