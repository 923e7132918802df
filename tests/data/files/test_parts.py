"""Blocks of svmlight text, parsed in parts: the same arrays and the same error whatever the parts and the threads."""

import gzip
import threading
import tracemalloc

import numpy as np
import pytest

import fastsketch as fs
from fastsketch._kernels.io.svmlight import parse_block
from fastsketch.data import SourceError, load_svmlight
from fastsketch.data.files import _svmlight
from fastsketch.data.files._input import InputFile, whole_lines

# Blank ones, comments with colons, queries, numbers that need a full conversion, line ends of both kinds.
ROWS = ["1 {a}:{v} {b}:2", "-1 qid:7 {a}:{v}", "1 {b}:{v}\r", "2.5", "1e-30 {a}:{v}e-40\r"]
KINDS = [*ROWS, "3 # 1:1", "# a: b: c:", ""]


def text_of(n, seed=0):
    rng = np.random.default_rng(seed)
    lines = []
    for kind in rng.integers(0, len(KINDS), n):
        a = int(rng.integers(1, 1000))
        v, b = float(rng.standard_normal()), a + int(rng.integers(1, 1000))
        lines.append(KINDS[kind].format(a=a, b=b, v=repr(v)))
    return ("\n".join(lines) + "\n").encode()


def same(one, other):
    return all(
        np.array_equal(a, b) and np.asarray(a).dtype == np.asarray(b).dtype for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_parts_and_threads_change_nothing(threads):
    text = text_of(3000)
    one = parse_block(text, least=len(text) + 1)
    with fs.thread_limit(threads):
        for least in (1, 7, 100, 3000, len(text) // 2):
            assert same(parse_block(text, least=least), one)
        assert same(parse_block(memoryview(text * 4)), parse_block(text * 4, least=1 << 30))


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize(
    "bad", ["x 1:1", "1 2:1 1:1", "1 3:1e999", "1e999 3:1", "1 1:nan", "1 1:1\r2 1:1", "1e400 1:x"]
)
def test_the_first_error_is_the_one_that_is_told(bad, threads):
    """Others follow it, and precede it within other parts: in the order of the file, not in that of the threads."""
    good = text_of(200).split(b"\n")[:-1]
    for place in (0, 57, 199):
        lines = [*good[:place], bad.encode(), *good[place:], b"1 1:1e999", b"nan", bad.encode()]
        text = b"\n".join(lines) + b"\n"
        with pytest.raises(ValueError, match=f"^line {place + 11}:") as alone:
            parse_block(text, least=1 << 30, first_line=11)
        with fs.thread_limit(threads), pytest.raises(ValueError, match=f"^line {place + 11}:") as parted:
            parse_block(text, least=1, first_line=11)
        assert str(parted.value) == str(alone.value)


def test_a_number_beyond_float64_comes_before_what_is_behind_it():
    text = b"1 1:1\n" * 50 + b"1 1:1e999 2:x\n" + b"1e999\n" * 50
    for least in (1, 1 << 30):
        with pytest.raises(ValueError, match="line 51: the value is beyond the range of float64: '1e999'"):
            parse_block(text, least=least)


def test_lines_longer_than_parts():
    long = b"1 " + b" ".join(b"%d:%d" % (j, j) for j in range(1, 3000)) + b"\n"
    for text in (long, b"2 1:1\n" + long, long + b"2 1:1\n", long * 3, b"\n", b"1\n", b""):
        assert same(parse_block(text, least=1), parse_block(text, least=1 << 30))


def test_a_file_is_the_same_for_every_number_of_threads(tmp_path):
    path = tmp_path / "a.svm"
    path.write_bytes(text_of(4000) * 120)  # three blocks
    assert path.stat().st_size > 8 << 20
    with fs.thread_limit(1):
        rows, labels = load_svmlight(path)
    assert rows.indptr.dtype == rows.indices.dtype == np.int32
    for threads in (2, 3, 8):
        with fs.thread_limit(threads):
            again, other = load_svmlight(path)
        assert same((rows.data, rows.indices, rows.indptr, labels), (again.data, again.indices, again.indptr, other))
    with path.open("ab") as file:
        file.write(b"1 1:1\n" * 1000 + b"1 1:1e999\n" + b"x\n" * 10)
    line = 4000 * 120 + 1001
    for threads in (1, 2, 8):
        with fs.thread_limit(threads), pytest.raises(SourceError, match=f"a.svm: line {line}: the value is beyond"):
            load_svmlight(path)


def test_threads_parse_as_one():
    texts = [text_of(2000, seed) for seed in range(8)]
    alone = [parse_block(text) for text in texts]
    out = [None] * len(texts)

    def work(k):
        out[k] = parse_block(texts[k], least=1000)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(len(texts))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all(map(same, out, alone))


def test_the_bound_on_memory_is_that_of_the_text():
    """A value takes four bytes of text, whatever the parts: text that is nothing but colons has no more than that."""
    text = b"1 " + b":" * 400_000 + b"\n" + b":" * 400_000 + b"\n"
    tracemalloc.start()
    with pytest.raises(ValueError, match="index:value"):
        parse_block(text, least=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3.2 * len(text)


@pytest.mark.parametrize("text", [text_of(250), b"1\n2\n" * 90, b"# nothing\n" * 90, b""])
def test_blocks_of_a_file_are_one_matrix(tmp_path, monkeypatch, text):
    path = tmp_path / "a.svm"
    path.write_bytes(text)
    monkeypatch.setattr(_svmlight, "BLOCK_BYTES", 200)
    rows, labels = load_svmlight(path)
    one = parse_block(text)
    assert same((labels, rows.indptr, rows.indices, rows.data), (one[0], one[1].astype(np.int32), *one[2:4]))


def test_pieces_of_whole_lines(tmp_path):
    """They share one buffer, which a long line enlarges for itself alone."""
    path = tmp_path / "a.txt"
    lines = [b"x" * n for n in (3, 70, 5, 0, 64, 1, 300, 2, 7)]
    path.write_bytes(b"\n".join(lines))
    for block_bytes in (1, 4, 64, 1000):
        with InputFile(path) as file:
            pieces = [(bytes(piece), len(piece.obj)) for piece in whole_lines(file, block_bytes, 1000)]
        assert b"".join(text for text, _ in pieces) == b"\n".join(lines) + b"\n"
        assert all(text.endswith(b"\n") for text, _ in pieces)
        assert all(room <= max(block_bytes, 2 * len(text)) + 1 for text, room in pieces)


def test_as_many_bytes_as_are_asked_for_wherever_a_stream_ends(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"abc") + gzip.compress(b"defghij"))
    with InputFile(path) as file:
        assert [file.read(4) for _ in range(4)] == [b"abcd", b"efgh", b"ij", b""]
