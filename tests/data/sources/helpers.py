"""Rows, and texts of them."""

import numpy as np
from scipy import sparse

from fastsketch.data import open_rows

ROWS = np.random.default_rng(0).standard_normal((90, 7)) * (np.random.default_rng(1).random((90, 7)) < 0.8)
ROWS[-1] = 1.5  # text finds its width


def all_rows(source, start_row=0):
    """The rows of a source, dense."""
    parts = [rows.toarray() if sparse.issparse(rows) else np.array(rows) for rows, _ in source.chunks(start_row)]
    return np.vstack(parts) if parts else np.empty((0, source.n_features))


def labelled(path, **options):
    """(CSR rows, labels) of a whole file of svmlight text."""
    chunks = [(rows, labels) for rows, labels, _ in open_rows(path, **options).chunks_beside()]
    return sparse.vstack([rows for rows, _ in chunks], "csr"), np.concatenate([labels for _, labels in chunks])


def svmlight(rows):
    """svmlight text of rows."""
    lines = (" ".join(["1", *(f"{j + 1}:{v!r}" for j, v in enumerate(row) if v)]) for row in rows.tolist())
    return "".join(f"{line}\n" for line in lines).encode()


def table(rows, delimiter=",", names=True):
    """A table of rows, with names c0, c1, ..."""
    lines = [delimiter.join(map(repr, row)) for row in rows.tolist()]
    header = [delimiter.join(f"c{k}" for k in range(rows.shape[1]))] if names else []
    return "".join(f"{line}\n" for line in [*header, *lines]).encode()
