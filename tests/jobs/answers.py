"""Functions that map jobs run in worker processes: they say what they are asked, and how they came there."""

import os
import signal
import time
from pathlib import Path

import numpy as np


class Watching:
    """Sums of rows; every call leaves a line in `folder`, as does every arrival in a process."""

    def __init__(self, folder, *, pause=0.0, kills=0, rows=2):
        self.folder, self.pause, self.kills, self.width = str(folder), pause, kills, rows

    def __getstate__(self):
        return self.__dict__

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.note("arrived", os.getpid())

    def note(self, name, what):
        with (Path(self.folder) / name).open("a") as file:
            file.write(f"{what}\n")

    def sums(self, rows):
        self.note("calls", f"{rows[0, 0]:.0f}")
        time.sleep(self.pause)
        if self.kills and len(self.read("kills")) < self.kills and rows[0, 0] == 300:
            self.note("kills", "x")
            os.kill(os.getpid(), signal.SIGKILL)
        return rows.sum(axis=1)

    def read(self, name):
        path = Path(self.folder) / name
        return path.read_text().split() if path.exists() else []


def first_column(rows):
    return rows[:, 0]


def two_answers(rows):
    return {"low": rows.min(axis=1), "all": rows[:, :2].astype(np.float32)}


def words(rows):
    return np.array([f"row {value:.0f}" for value in rows[:, 0]], dtype="U12")


def widening(rows):
    return rows[:, : 1 + int(rows[0, 0] >= 400)]


def fewer(rows):
    return rows[:-1, 0]


def objects(rows):
    return np.array([None] * len(rows))


def one_number(rows):
    return 3.0


def sparse_rows(rows):
    from scipy.sparse import csr_array

    return csr_array(rows)
