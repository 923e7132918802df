"""Reading ahead: at most two chunks, in order, errors as they are, and no thread that stays."""

import gc
import threading
import time

import numpy as np
import pytest

from fastsketch.data.sources import _source, open_rows
from fastsketch.data.sources._prefetch import ALIVE, prefetch
from tests.data.sources.helpers import ROWS, all_rows


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("fastsketch-read")]


def numbers(n, made=None, error=None):
    for k in range(n):
        if made is not None:
            made.append(k)
        yield k
    if error is not None:
        raise error


def test_all_items_in_order():
    assert list(prefetch(numbers(100))) == list(range(100))
    assert list(prefetch(numbers(0))) == []
    assert threads() == []


def test_at_most_two_ahead():
    made = []
    items = prefetch(numbers(100, made))
    assert made == [] and threads() == []  # nothing is done before it is asked for
    for k in range(10):
        assert next(items) == k
        time.sleep(0.01)
        assert len(made) <= k + ALIVE
    assert len(made) == 9 + ALIVE
    items.close()
    assert threads() == []
    assert len(made) == 9 + ALIVE


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), MemoryError()])
def test_errors_come_through_after_what_was_made_before(error):
    items = prefetch(numbers(3, error=error))
    assert [next(items) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(type(error)):
        next(items)
    assert threads() == []


def test_whoever_stops_early_leaves_no_thread():
    for k in prefetch(numbers(100)):
        if k == 3:
            break
    gc.collect()
    assert threads() == []
    with pytest.raises(KeyboardInterrupt):  # as if Ctrl-C came while an item is worked on
        for _ in prefetch(numbers(100)):
            raise KeyboardInterrupt
    gc.collect()
    assert threads() == []


def test_what_is_read_is_closed():
    closed = []

    def items():
        try:
            yield from range(100)
        finally:
            closed.append(threading.current_thread().name)

    reading = prefetch(items())
    next(reading)
    reading.close()
    assert [name.partition("_")[0] for name in closed] == ["fastsketch-read"]


def test_sources_read_ahead_on_one_thread(tmp_path, monkeypatch):
    monkeypatch.setattr(_source, "CHUNK_BYTES", 500)
    for k in range(4):
        np.save(tmp_path / f"{k}.npy", ROWS)
    source = open_rows(tmp_path, columns=[3, 1])
    chunks = source.chunks()
    next(chunks)
    assert len(threads()) == 1
    chunks.close()
    assert threads() == []
    found, before = [], []
    for rows in source:  # a chunk holds until the next one is asked for, whatever has been read ahead
        before.append(rows.copy())
        time.sleep(0.001)
        found.append(rows.copy())
    assert np.array_equal(np.vstack(found), np.vstack(before))
    assert np.array_equal(np.vstack(found), np.vstack([ROWS[:, [3, 1]]] * 4))
    assert threads() == []


def test_rows_in_memory_and_small_files_need_no_thread(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", ROWS)
    started = []
    monkeypatch.setattr(threading.Thread, "start", lambda self: started.append(self))
    all_rows(open_rows(ROWS))
    all_rows(open_rows(tmp_path / "a.npy"))
    assert started == []
