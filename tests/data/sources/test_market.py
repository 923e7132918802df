"""The Matrix Market: what scipy writes is read; what is none is named."""

import gzip
import io
import pickle

import numpy as np
import pytest
from scipy import io as scipy_io
from scipy import sparse

from fastsketch.data import SourceError, open_rows
from tests.data.sources.helpers import ROWS, all_rows

SQUARE = ROWS[:7]
SYMMETRIC = SQUARE + SQUARE.T
SKEW = SQUARE - SQUARE.T


@pytest.mark.parametrize("form", ["coordinate", "array"])
@pytest.mark.parametrize(
    ("matrix", "symmetry"), [(ROWS, "general"), (SYMMETRIC, "symmetric"), (SKEW, "skew-symmetric")]
)
def test_as_scipy_writes_it(tmp_path, matrix, symmetry, form):
    path = tmp_path / "a.mtx"
    scipy_io.mmwrite(
        path, sparse.coo_array(matrix) if form == "coordinate" else matrix, precision=17, symmetry=symmetry
    )
    assert np.array_equal(all_rows(open_rows(path)), matrix)
    assert open_rows(path).sparse == (form == "coordinate")


def test_patterns_integers_blanks_and_comments(tmp_path):
    path = tmp_path / "a.mtx"
    path.write_text("%%MatrixMarket matrix coordinate pattern general\n% x\n%\n\n 2 3 2 \n1 1\n\n 2\t 3 \n")
    assert np.array_equal(all_rows(open_rows(path)), [[1, 0, 0], [0, 0, 1]])
    path.write_text("%%MatrixMarket MATRIX Coordinate Integer General\r\n2 2 3\r\n2 1 5\r\n1 2 -3\r\n2 1 1\r\n")
    assert np.array_equal(all_rows(open_rows(path)), [[0, -3], [6, 0]])


DENSE = "%%MatrixMarket matrix array real general\n"
HEADER = "%%MatrixMarket matrix coordinate real general\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello\n", "Line 1: Not a Matrix Market file"),
        (HEADER, "Premature EOF"),
        (HEADER + "2 2\n", "Invalid integer value|dimension line"),
        (HEADER + "2 0 0\n", "the matrix has no columns"),
        (HEADER + "2 2x 1\n1 1 1\n", "a line that states rows, columns and entries|nvalid"),
        (HEADER + "2 2 1\n", "Truncated file"),
        (HEADER + "2 2 9\n1 1 3\n", "Truncated file"),
        (HEADER + "2 2 999999999999\n1 1 3\n", "cut short: .* cannot hold 999,999,999,999 entries"),
        (HEADER + "2 2 1\n1 1 3\n2 2 3\n", "Line 4: Too many lines"),
        (HEADER + "2 2 1\n3 1 3\n", "Line 3: Row index out of bounds"),
        (HEADER + "2 2 1\n0 1 3\n", "Line 3: Row index out of bounds"),
        (HEADER + "2 2 1\n1.5 1 3\n", "line 3: an entry of this real matrix has 3 .*'1.5 1 3'"),
        (HEADER.replace("real", "integer") + "2 2 2\n1 1 1\n2 1 0.5\n", "line 4: an entry of this integer matrix"),
        (HEADER.replace("general", "skew-symmetric") + "2 2 2\n2 1 3\n2 2 3\n", "entry on the diagonal"),
        (HEADER + "2 2 1\n1 1 x\n", "line 3: .* 3 finite decimal numbers, got '1 1 x'"),
        (HEADER + "2 2 1\n1 1 0x10\n", "line 3"),
        (HEADER + "2 2 1\n1 1 1_0\n", "line 3"),
        (HEADER + "2 2 1\n1 1 nan\n", "line 3"),
        (HEADER + "2 2 1\n1 1 1e999\n", "beyond the range of float64"),
        (HEADER + "2 2 1\n1 1\n", "line 3"),
        (HEADER + "2 2 1\n1 1 1 1\n", "line 3"),
        (HEADER + "2 2 1\n1 1 1\n\0", "line 4"),
        (HEADER + "2 4294967297 1\n1 1 1\n", "must have fewer than"),
        (HEADER + "999999999999 2 1\n1 1 1\n", "claims 999,999,999,999 rows in"),
        (HEADER.replace("real", "complex") + "1 1 1\n1 1 1 1\n", "must hold real numbers"),
        (HEADER.replace("general", "symmetric") + "1 2 1\n1 1 1\n", "is symmetric, and has the shape"),
        (DENSE + "2 2\n1\n2\n3\n", "Truncated file"),
        (DENSE + "2 2\n1\n2\n3\n4\n5\n", "Line 7: Too many"),
        (DENSE + "999999999 999999999\n1\n", "cut short"),
        (DENSE + "0 3\n1\n2\n3\n", "it has 3 of 0 entries"),
    ],
)
def test_what_is_no_matrix(tmp_path, text, message):
    (tmp_path / "a.mtx").write_text(text)
    with pytest.raises(SourceError, match=rf"a\.mtx.*{message}"):
        open_rows(tmp_path / "a.mtx")


@pytest.mark.parametrize("text", [DENSE + "0 3\n", HEADER + "0 3 0\n"])
def test_a_matrix_without_rows(tmp_path, text):
    (tmp_path / "a.mtx").write_text(text)
    source = open_rows(tmp_path / "a.mtx")
    assert (source.n_rows, source.n_features, list(source)) == (0, 3, [])


def write_10x(folder, prefix="", suffix=""):
    """A matrix of 10x Genomics, genes by cells, with the names beside it; returns (its path, the ids of genes)."""
    pack = gzip.compress if suffix else bytes
    genes = [f"ENSG{k:03}" for k in range(len(ROWS[0]))]
    text = io.BytesIO()
    scipy_io.mmwrite(text, sparse.coo_array(ROWS.T), precision=17)
    texts = {
        "matrix.mtx": text.getvalue(),
        "features.tsv": "".join(f"{gene}\tname\tGene Expression\n" for gene in genes).encode(),
        "barcodes.tsv": b"".join(b"cell-%d\n" % k for k in range(len(ROWS))),
    }
    for name, content in texts.items():
        (folder / f"{prefix}{name}{suffix}").write_bytes(pack(content))
    return folder / f"{prefix}matrix.mtx{suffix}", tuple(genes)


@pytest.mark.parametrize(("prefix", "suffix"), [("", ""), ("", ".gz"), ("GSM1_", ".gz")])
def test_cells_of_10x_genomics_are_rows(tmp_path, prefix, suffix):
    path, genes = write_10x(tmp_path, prefix, suffix)
    with pytest.warns(UserWarning, match=r"matrix\.mtx.* cells are read as rows .*transpose=False"):
        source = open_rows(path)
    assert source.feature_names == genes
    np.testing.assert_array_equal(all_rows(source), ROWS)
    parts = [pickle.loads(pickle.dumps(part)) for part in source.parts(2000)]
    assert len(parts) > 1
    np.testing.assert_array_equal(np.concatenate([all_rows(part) for part in parts]), ROWS)
    stored = open_rows(path, transpose=False)
    assert stored.feature_names is None and stored.identity() != source.identity()
    np.testing.assert_array_equal(all_rows(stored), ROWS.T)


def test_any_matrix_can_be_transposed(tmp_path):
    path, _ = write_10x(tmp_path)
    (tmp_path / "barcodes.tsv").write_text("one\n")  # names of something else
    np.testing.assert_array_equal(all_rows(open_rows(path)), ROWS.T)
    np.testing.assert_array_equal(all_rows(open_rows(path, transpose=True)), ROWS)
    with pytest.raises(TypeError, match="transpose"):
        open_rows(path, transpose=1)
