"""The ways to principal components that are compared, and a process of its own for each measurement."""

import os
import pickle
import resource
import signal
import time
from typing import NamedTuple

import numpy as np
from scipy import sparse
from sklearn.decomposition import PCA, IncrementalPCA
from sklearn.utils import gen_batches

from bench_tools import resident
from fastsketch.sklearn import SketchedPCA

# Rows of the batches of "partial_fit".
BATCH = 500


class TooSlow(Exception):
    """The time that all batches would take, from those that were done."""


class Found(NamedTuple):
    """What one run gave; `note` says why it gave nothing."""

    seconds: float = np.nan
    megabytes: float = np.nan
    result: object = None
    note: str = ""


# -- ways --------------------------------------------------------------------------------------------------------------
def as_it_comes(rows, k, limit):
    return SketchedPCA(n_components=k).fit(rows)


def by_partial_fit(rows, k, limit):
    return in_batches(SketchedPCA(n_components=k), rows, BATCH, limit)


def gram(rows, k, limit):
    return SketchedPCA(n_components=k, solver="gram").fit(rows)


def incremental(rows, k, limit):
    batch = 5 * rows.shape[1]  # what fit takes
    return in_batches(IncrementalPCA(n_components=k, batch_size=batch), rows, batch, limit)


def incremental_equal(rows, k, limit):
    return in_batches(IncrementalPCA(n_components=k), rows, 2 * (2 * k + 10) - k, limit)


def incremental_200(rows, k, limit):
    return in_batches(IncrementalPCA(n_components=k), rows, 200, limit)


def covariance_eigh(rows, k, limit):
    return PCA(n_components=k, svd_solver="covariance_eigh").fit(rows)


def randomized(rows, k, limit):
    # PCA refuses sparse rows for "randomized": "arpack" is its way for them
    return PCA(n_components=k, svd_solver="arpack" if sparse.issparse(rows) else "randomized", random_state=0).fit(rows)


WAYS = {
    "SketchedPCA, fit": as_it_comes,
    "partial_fit": by_partial_fit,
    "gram": gram,
    "IncrementalPCA": incremental,
    "2 l - k rows": incremental_equal,
    "200 rows": incremental_200,
    "PCA eigh": covariance_eigh,
    "PCA randomized": randomized,
}


OF_NOISE = {
    "PCA arpack": lambda rows, k, limit: PCA(k, svd_solver="arpack", random_state=0).fit(rows),
    "PCA": lambda rows, k, limit: PCA(k, random_state=0).fit(rows),
}


def in_batches(model, rows, batch, limit):
    """fit in batches, as IncrementalPCA's does; given up as soon as the first ones show that it would take too long."""
    parts = list(gen_batches(rows.shape[0], batch, min_batch_size=model.n_components))
    start = time.process_time()
    for done, part in enumerate(parts):
        block = rows[part]
        model.partial_fit(block.toarray() if sparse.issparse(block) and type(model) is IncrementalPCA else block)
        taken = time.process_time() - start
        if done >= 3 and taken / (done + 1) * len(parts) > limit:
            raise TooSlow(taken / (done + 1) * len(parts))
    return model


def fd_with_ledger(rows, size):
    """Plain Frequent Directions on centred rows, its directions by what an in-span ledger says they hold, in NumPy."""
    v, squares, ledger = np.zeros((0, rows.shape[1])), np.zeros(0), np.zeros((0, 0))
    for start in range(0, len(rows), size):
        # new directions and squares of [V sqrt(s2); rows]
        stacked = np.vstack([np.sqrt(squares)[:, np.newaxis] * v, rows[start : start + size]])
        s, vt = np.linalg.svd(stacked, full_matrices=False)[1:]
        vt, lengths = vt[: size - 1], s[: size - 1] ** 2
        delta = s[size - 1] ** 2 if len(s) >= size else 0.0
        # T = V_new V', L <- T L T' + delta I
        turn = vt @ v.T
        ledger = turn @ ledger @ turn.T + delta * np.eye(len(vt))
        v, squares = vt, lengths - delta
    values, turn = np.linalg.eigh(np.diag(squares) + ledger)
    return values[::-1], turn[:, ::-1].T @ v


# -- a process each ----------------------------------------------------------------------------------------------------
def apart(function, *, limit=None, gigabytes=None):
    """Found: function() in a forked process, processor seconds and megabytes beyond what was there.

    The child begins with the rows and the imports of its parent, so its peak beyond its beginning is what the function
    takes; a function that would go over `limit` seconds or `gigabytes` ends with a note.
    """
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        found = Found(note="no result")
        try:
            found = _measured(function, limit, gigabytes)
        except BaseException as error:  # a forked child must not go on as its parent
            found = Found(note=f"{type(error).__name__}: {error}"[:200])
        finally:
            with os.fdopen(send, "wb") as pipe:
                pickle.dump(found, pipe)
            os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        content = pipe.read()
    status = os.waitpid(child, 0)[1]
    if content:
        return pickle.loads(content)  # noqa: S301
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    over = number in (signal.SIGXCPU, signal.SIGKILL)
    return Found(note=f"> {limit:.0f} s" if over else f"ended by signal {number}")


def _measured(function, limit, gigabytes):
    if limit is not None:
        used = int(time.process_time() + limit) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (used, used + 5))
    if gigabytes is not None:
        most = resident("VmSize") + int(gigabytes * 2**30)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    before, start = resident("VmHWM"), time.process_time()
    try:
        read = function()
    except TooSlow as error:
        return Found(note=f"~ {error.args[0]:.0f} s")
    except MemoryError:
        return Found(note=f"> {gigabytes:.0f} GB")
    taken, peak = time.process_time() - start, resident("VmHWM")
    return Found(taken, (peak - before) / 1e6, read() if callable(read) else read)
