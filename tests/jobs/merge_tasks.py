"""Tasks that worker processes import."""

import os
import signal
import time
from pathlib import Path

import numpy as np

import fastsketch as fs

BLOCK, WIDTH, BLOCKS = 80, 20, 12


def rows_of(index):
    return np.random.default_rng(index).standard_normal((BLOCK, WIDTH)) * np.linspace(2, 0.1, WIDTH) + 3


def all_rows():
    return np.vstack([rows_of(index) for index in range(BLOCKS)])


def hash_of_block(item, index):
    return fs.SketchHash(6, block_rows=BLOCK, first_block=item).update(rows_of(item))


def hash_of_part(item, index):
    return fs.SketchHash(6, block_rows=BLOCK, part=index).update(rows_of(item)).seal()


def quantizer_of_part(item, index):
    return fs.SketchQuantizer(6, block_rows=BLOCK, part=index).update(rows_of(item)).seal()


def sketch_of_block(item, index):
    return fs.FrequentDirections(5, solver="gram", center=True).update(rows_of(item))


def note(folder, item):
    with (Path(folder) / "runs").open("a") as file:
        file.write(f"{item}\n")


def killed_once(job, index):
    """The task of item 5 kills its process the first time it runs; every run leaves a line in the folder."""
    folder, item = job
    note(folder, item)
    if item == 5 and not (Path(folder) / "killed").exists():
        (Path(folder) / "killed").touch()
        time.sleep(0.3)  # the other workers are in the midst of theirs
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.05)
    return hash_of_block(item, index)


def always_killed(item, index):
    os.kill(os.getpid(), signal.SIGKILL)


def fails(item, index):
    if item == 3:
        raise KeyError("item three")
    return hash_of_block(item, index)


def no_pickle(item, index):
    return lambda: item


def blas_threads(item, index):
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_info

    with fs.thread_limit(8):
        pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas" and "faiss" not in pool["filepath"]]
        return Count(max(pool["num_threads"] for pool in pools))


class Count:
    """The least that a merge tree needs."""

    def __init__(self, n):
        self.n = n

    def copy(self):
        return Count(self.n)

    def merge(self, other):
        self.n += other.n
        return self


def broken_state(item, index):
    """The model of item 3 comes back with a count that no model has."""
    model = sketch_of_block(item, index)
    if item == 3:
        model._engine.state.n_rows = -7
    return model


def broken_hash(item, index):
    """The model of item 3 comes back with a sample that is out of order."""
    model = fs.SketchHash(6, block_rows=BLOCK, part=index).update(rows_of(item)).seal()
    if item == 3:
        model._summary._current.reservoir.sorted_sample()[1][:2] = [5, 1]
    return model


def users_of(index):
    """CSR rows of users who like a quarter of 40 items each."""
    from scipy import sparse

    rng = np.random.default_rng(index)
    taste = rng.integers(4, size=(BLOCK, 1)) == np.arange(40) % 4
    return sparse.csr_array((rng.random((BLOCK, 40)) < np.where(taste, 0.5, 0.05)).astype(float))


def items_of_block(item, index):
    return fs.SketchedEASE(12).update(users_of(item))


def broken_items(item, index):
    """The model of item 3 comes back with an item that is less popular than nothing."""
    model = items_of_block(item, index)
    if item == 3:
        model._squares[5] = -1.0
    return model
