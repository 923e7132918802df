"""Rows that come once: pipes and standard input, in the format that their first bytes show."""

import bz2
import gzip
import io
import lzma
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from scipy import io as scipy_io
from scipy import sparse

import fastsketch as fs
from fastsketch.data import SourceError, open_rows
from tests.data.sources.helpers import ROWS, all_rows, svmlight, table

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no named pipes")


def npy(rows):
    file = io.BytesIO()
    np.save(file, rows)
    return file.getvalue()


def market(rows):
    file = io.BytesIO()
    scipy_io.mmwrite(file, sparse.coo_array(rows), precision=17)
    return file.getvalue()


FORMATS = {"npy": npy, "svmlight": svmlight, "csv": table, "tsv": lambda rows: table(rows, "\t"), "mtx": market}
PACKED = {"": bytes, "gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


@pytest.fixture
def pipe(tmp_path):
    """A function that gives the name of a pipe through which some bytes will come, a few at a time."""
    threads = []

    def made(content, step=1000):
        path = tmp_path / f"pipe{len(threads)}"
        os.mkfifo(path)

        def write():
            try:
                with path.open("wb", buffering=0) as file:
                    for k in range(0, len(content), step):
                        file.write(content[k : k + step])
            except BrokenPipeError:
                pass

        threads.append(threading.Thread(target=write, daemon=True))
        threads[-1].start()
        return path

    yield made
    for thread in threads:
        thread.join(10)


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_through_a_pipe(pipe, name, packed):
    source = open_rows(pipe(PACKED[packed](FORMATS[name](ROWS))), n_features=7 if name == "svmlight" else None)
    assert not source.repeatable
    assert source.feature_names == (tuple(f"c{k}" for k in range(7)) if name in ("csv", "tsv") else None)
    assert len(source.parts(100)) == 1
    assert np.array_equal(all_rows(source), ROWS)
    if name != "mtx":  # which is held
        with pytest.raises(SourceError, match="can be read only once"):
            list(source)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (npy(ROWS)[:-5], "is cut short: it ends in row 89 of 90"),
        (npy(ROWS) + b"x", "goes on after the 90 rows that its header states"),
        (npy(ROWS)[:20], "is no .npy file"),
        (npy(np.asfortranarray(ROWS)), "column by column"),
        (npy(ROWS * 1j), "must hold real numbers"),
        (b"PK\x03\x04abcdefgh", "is an archive .* save it to a file first"),
        (b"PAR1abcdefgh", "is a Parquet file"),
        (svmlight(ROWS), "how wide its rows are must be known"),
        (gzip.compress(table(ROWS))[:-20], "cut short, near byte"),
        (b"a,b\n1,2\n3\n", "line 3: there are 1 columns"),
    ],
)
def test_what_is_wrong_with_a_stream(pipe, content, message):
    with pytest.raises(SourceError, match=rf"pipe0.*{message}"):
        list(open_rows(pipe(content)))


def cli(*arguments, **options):
    command = [sys.executable, "-m", "fastsketch", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False, timeout=120, **options)


@pytest.mark.parametrize("name", ["npy", "csv"])
def test_standard_input_of_a_command(tmp_path, name):
    done = cli("sketch", "-", "-l", 4, "-o", "a.fsk", input=FORMATS[name](ROWS), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert fs.load(tmp_path / "a.fsk").n_rows == len(ROWS)
    assert np.array_equal(fs.load(tmp_path / "a.fsk").sketch(), fs.FrequentDirections(4).update(ROWS).sketch())
    done = cli("sketch", "-", "-l", 4, "-o", "a.fsk", "--resume", input=npy(ROWS), cwd=tmp_path)
    assert done.returncode == 2 and b"--resume: - is no file" in done.stderr


def test_substituted_processes_and_quoted_globs(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(table(ROWS)))
    (tmp_path / "b.csv").write_bytes(table(ROWS))
    python = f"{sys.executable} -m fastsketch"
    for what, count in [("<(zcat a.csv.gz)", 90), ("'*.csv*'", 180), (".", 180)]:
        command = f"cd {tmp_path} && {python} sketch {what} -l 4 -o ../o.fsk"
        done = subprocess.run(["bash", "-c", command], capture_output=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        assert fs.load(tmp_path / "../o.fsk").n_rows == count


def test_two_passes_need_rows_that_can_be_read_again(pipe):
    with pytest.raises(ValueError, match="passes must be 1: the rows of .* can be read only once"):
        fs.run(fs.FrequentDirections(4), pipe(table(ROWS)), passes=2)
