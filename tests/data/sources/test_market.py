"""The Matrix Market: what scipy writes is read; what is none is named."""

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


HEADER = "%%MatrixMarket matrix coordinate real general\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello\n", "line 1: it is no header"),
        (HEADER, "cut short: it ends within its header"),
        (HEADER + "2 2\n", "line 2: it should state rows, columns and entries"),
        (HEADER + "2 0 0\n", "line 2: the matrix has no columns"),
        (HEADER + "2 2 1\n", "cut short: it has 0 of 1 entries"),
        (HEADER + "2 2 1\n1 1 3\n2 2 3\n", "more than the 1 entries that line 2 states"),
        (HEADER + "2 2 1\n3 1 3\n", r"entry 1 has the row 3, outside \[1, 2\]"),
        (HEADER + "2 2 1\n0 1 3\n", r"entry 1 has the row 0, outside \[1, 2\]"),
        (HEADER + "2 2 1\n1.5 1 3\n", r"entry 1 has the row 1\.5"),
        (HEADER + "2 2 1\n1e300 1 3\n", r"entry 1 has the row 1e\+300, outside \[1, 2\]"),
        (HEADER.replace("real", "integer") + "2 2 2\n1 1 1e0\n2 1 0.5\n", "entry 2 is 0.5, in a matrix of integers"),
        (HEADER.replace("general", "skew-symmetric") + "2 2 2\n2 1 3\n2 2 3\n", "entry 2 is on the diagonal"),
        (HEADER + "2 2 1\n1 1 x\n", "line 3: column 3: 'x' is no finite"),
        (HEADER + "2 2 1\n1 1 nan\n", "a number is missing"),
        (HEADER + "2 2 1\n1 1\n", "line 3: an entry of this matrix has 3 numbers"),
        (HEADER + "999999999999 2 1\n1 1 1\n", "claims 999,999,999,999 rows in 3 lines"),
        (HEADER.replace("real", "complex") + "1 1 1\n1 1 1 1\n", "must hold real numbers"),
        (HEADER.replace("general", "symmetric") + "1 2 1\n1 1 1\n", "is symmetric, and has the shape"),
    ],
)
def test_what_is_no_matrix(tmp_path, text, message):
    (tmp_path / "a.mtx").write_text(text)
    with pytest.raises(SourceError, match=rf"a\.mtx.*{message}"):
        open_rows(tmp_path / "a.mtx")
