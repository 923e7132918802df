"""Principal components of generated cells by scanpy and fastsketch.anndata, in memory and from a file.

Counts are Poisson variables whose rates are mixtures of 60 expression programs, normalised to 10,000 and logarithmised.
Every run has a process of its own, forked from one that holds the rows of all runs in memory; seconds are of the
processor. scanpy reads a whole file, whose rows then count as its memory, or a chunk at a time by Dask. Bytes read are
those of system calls (rchar of /proc/self/io), which the cache of the system does not hide.
"""

from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import scipy.sparse as sp
from anndata import AnnData
from anndata.experimental import read_elem_lazy
from anndata.io import read_h5ad, sparse_dataset, write_elem
from scipy.linalg.blas import dsyrk
from scipy.sparse.linalg import LinearOperator, eigsh
from sklearn.decomposition import IncrementalPCA

import fastsketch.anndata as fa
from bench_tools import few, rival, table
from components.ways import apart

K, CHUNK, PROGRAMS = 50, 5_000, 60


class Case(NamedTuple):
    """One generated matrix of cells."""

    name: str
    n: int
    d: int
    depth: float  # mean number of counts of a cell
    in_memory: bool = True
    incremental: bool = False
    compared: bool = True  # with scanpy, which holds all cells in memory


CASES = (
    Case("small", 60_000, 2_000, 500.0, incremental=True),
    Case("wide", 60_000, 20_000, 1_500.0),
    Case("middle", 300_000, 2_000, 500.0),
    Case("large", 1_000_000, 2_000, 500.0, in_memory=False),
    Case("huge", 3_000_000, 2_000, 500.0, in_memory=False, compared=False),
)


def chunks(n, d, depth):
    """Yield CSR rows of float32, CHUNK cells at a time."""
    rng = np.random.default_rng(0)
    programs = rng.lognormal(0.0, 1.5, d) * rng.gamma(0.5, 2.0, (PROGRAMS, d))
    programs /= programs.sum(axis=1, keepdims=True)
    for start in range(0, n, CHUNK):
        m = min(CHUNK, n - start)
        shares = rng.gamma(0.3, 1.0, (m, PROGRAMS)) * np.arange(1, PROGRAMS + 1) ** -0.7
        shares *= depth * rng.lognormal(0.0, 0.3, (m, 1)) / shares.sum(axis=1, keepdims=True)
        rows = sp.csr_matrix(rng.poisson(shares @ programs).astype(np.float32))
        totals = np.maximum(np.asarray(rows.sum(axis=1)).ravel(), 1.0)
        rows.data *= np.repeat(1e4 / totals, np.diff(rows.indptr)).astype(np.float32)
        np.log1p(rows.data, out=rows.data)
        yield rows


def write(path, n, d, depth):
    """Write the cells to an .h5ad file, a chunk at a time."""
    empty = AnnData(shape=(n, d))
    with h5py.File(path, "w") as file:
        for name in ("obs", "var"):
            write_elem(file, name, getattr(empty, name))
        for i, rows in enumerate(chunks(n, d, depth)):
            if i == 0:
                write_elem(file, "X", rows)
            else:
                sparse_dataset(file["X"]).append(rows)
        file.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})


def truth_of(path):
    """Return the leading variances in float64, by ARPACK on the covariance or, of wide rows, on its products."""
    with h5py.File(path) as file:
        stored = sparse_dataset(file["X"])
        n, d = stored.shape
        parts = [stored[start : start + CHUNK] for start in range(0, n, CHUNK)] if d > 2_000 else None
        total, sums = np.zeros((0 if parts else d, 0 if parts else d), order="F"), np.zeros(d)
        for start in range(0, n, CHUNK):
            rows = (parts[start // CHUNK] if parts else stored[start : start + CHUNK]).astype(np.float64)
            sums += np.asarray(rows.sum(axis=0)).ravel()
            if not parts:
                # the upper triangle of total += dense.T @ dense
                total = dsyrk(1.0, rows.toarray().T, beta=1.0, c=total, overwrite_c=True)
    mean = sums / n
    if parts:
        whole = sp.vstack(parts, format="csr").astype(np.float64)
        operator = LinearOperator((d, d), dtype=np.float64, matvec=lambda v: _times(whole, mean, v.ravel()))
    else:
        operator = np.triu(total) + np.triu(total, 1).T - n * np.outer(mean, mean)
    values = eigsh(operator, few(K, 5), tol=1e-10, v0=np.ones(d), return_eigenvectors=False)
    return np.sort(values)[::-1] / (n - 1)


def _times(rows, mean, v):
    z = rows @ v - mean @ v
    return rows.T @ z - mean * z.sum()


def bytes_read():
    return int(Path("/proc/self/io").read_text().split()[1])


def measured(way, truth):
    """Return a function for a process of its own: the worst error of a variance, and the bytes read."""

    def function():
        before = bytes_read()
        variance = np.asarray(way(), np.float64)
        read = bytes_read() - before
        return float(np.abs(variance / truth - 1).max()), read

    return function


def ways_of(case, path, adata, scanpy):
    """Return {name: function that returns variances} for a case."""
    k = few(K, 5)

    def ours():
        fa.pca(adata, k)
        return adata.uns["pca"]["variance"]

    def theirs():
        scanpy.pp.pca(adata, k, svd_solver="arpack")
        return adata.uns["pca"]["variance"]

    def theirs_from_file():
        whole = read_h5ad(path)
        scanpy.pp.pca(whole, k, svd_solver="arpack")
        return whole.uns["pca"]["variance"]

    def theirs_by_dask():
        import dask

        with h5py.File(path) as file, dask.config.set(scheduler="synchronous"):
            lazy = AnnData(read_elem_lazy(file["X"], chunks=(few(CHUNK, 100), few(case.d, 150))))
            scanpy.pp.pca(lazy, k, svd_solver="covariance_eigh")
            lazy.obsm["X_pca"] = lazy.obsm["X_pca"].compute()
        return lazy.uns["pca"]["variance"]

    def incremental():
        model = IncrementalPCA(k)
        for start in range(0, adata.n_obs, few(CHUNK, 100)):
            model.partial_fit(adata.X[start : start + few(CHUNK, 100)].toarray())
        return model.explained_variance_

    ways = {}
    if case.in_memory:
        ways = {"scanpy, arpack": theirs} if scanpy else {}
        ways["fastsketch.anndata in memory"] = ours
    if scanpy:
        ways["scanpy, arpack, from .h5ad"] = theirs_from_file
    # scanpy decomposes a matrix of genes x genes; the slowest way is left out where cells are many
    if scanpy and rival("dask") and case.in_memory and case.d <= 2_000:
        ways["scanpy by Dask from .h5ad"] = theirs_by_dask
    ways["fastsketch.anndata from .h5ad"] = lambda: fa.pca(str(path), k).uns["pca"]["variance"]
    if case.incremental:
        ways["IncrementalPCA, without scores"] = incremental
    return ways


def cells(args):
    """Tables of every case, way by way."""
    installed = rival("scanpy")
    names = args.sets.split(",") if args.sets else [case.name for case in CASES[: 1 if args.quick else None]]
    path = Path(args.scratch) / "cells.h5ad"
    for case in (case for case in CASES if case.name in names):
        n, d = few(case.n, 700), few(case.d, 150)
        try:
            write(path, n, d, case.depth)
            truth = apart(lambda: truth_of(path)).result
            scanpy = installed if case.compared else None
            adata = read_h5ad(path) if case.in_memory else None
            lines = []
            for name, way in ways_of(case, path, adata, scanpy).items():
                found = apart(measured(way, truth), limit=LIMIT if way.__name__ == "incremental" else None)
                if found.note:
                    lines.append([name, found.note, *[""] * 3])
                    continue
                error, read = found.result
                share = f"{read / path.stat().st_size:.2f}" if "h5ad" in name else ""
                lines.append([name, f"{found.seconds:.1f}", f"{found.megabytes:.0f}", f"{error:.1e}", share])
            size = path.stat().st_size / 1e6
            note = f"{n:,} generated cells x {d:,} genes, {few(K, 5)} components; the file has {size:,.0f} MB."
            table(lines, COLUMNS, case.name, runs=1, note=note)
            del adata
        finally:
            path.unlink(missing_ok=True)


LIMIT = 100  # seconds of IncrementalPCA
COLUMNS = ["way", "s", "MB", "worst variance", "readings of the file"]
