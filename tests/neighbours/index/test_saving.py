"""An index in a folder: whole or not at all, by one writer; interrupted, killed, on a full disk, by threads."""

import errno
import json
import os
import random
import signal
import stat
import subprocess
import sys
import threading
import time
import zlib
from collections import Counter

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.data.files._lock import lock_name
from fastsketch.neighbours.index import IndexConflict, LockHeld, _saving
from fastsketch.neighbours.index import _index_files as _files
from tests.neighbours.index import saver
from tests.neighbours.index.toy import toy
from tests.reliability.figures import environment, report
from tests.reliability.test_interrupts import interrupted, lines_of, moments

POSIX = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs signals of POSIX")
ROWS, QUERIES = saver.ROWS, saver.QUERIES


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "index"


@pytest.fixture
def index():
    made = fs.CodeIndex(toy(), rows="float16")
    made.add(ROWS)
    made.remove([3, 4])
    return made


def content(index):
    """All that an index knows."""
    found = index.search(QUERIES, k=20, rescore=False)
    return (
        index.ids.tolist(),
        [part.tobytes() for part in found],
        index.get(index.ids).tobytes(),
        [{**about, "n_removed": None} for about in index.generations],  # when they are cleared away is no matter
        index._contents.next_id,
    )


def kinds(folder):
    """What kinds of files are there."""
    return Counter(path.name.split("-")[0] for path in folder.iterdir())


# -- there and back ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("memory_map", [True, False])
@pytest.mark.parametrize("rows", [None, "float16", "float32"])
def test_there_and_back(folder, rows, memory_map):
    index = fs.CodeIndex(toy(), rows=rows, metric="inner_product")
    index.add(ROWS[:300], np.arange(300)[::-1])
    index.renew(toy(seed=1, offset=False))
    index.add(ROWS[300:])
    index.remove([5, 400])
    index.save(folder)
    found = fs.CodeIndex.load(str(folder), memory_map=memory_map)
    assert content(found) == content(index) and (found.rows, found.metric) == (rows, "inner_product")
    assert content(fs.load(folder)) == content(index)
    assert isinstance(found._contents.segments[0].codes.data.base, np.memmap) == memory_map
    for one in (found, index):
        assert one.add(ROWS[:2]).tolist() == [600, 601]
        one.reencode(decoded=rows is None).compact()
    assert content(found) == content(index)


def test_a_save_writes_what_is_new(folder, index):
    index.save(folder)
    first = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert kinds(folder) == {"codes": 1, "ids": 1, "rows": 1, "removed": 1, "encoder": 1, "index.fsk": 1}
    index.add(ROWS[:10])
    index.save(folder)
    assert kinds(folder) == {"codes": 2, "ids": 2, "rows": 2, "removed": 1, "encoder": 1, "index.fsk": 1}
    now = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert all(now[name] == when for name, when in first.items() if name != _files.MANIFEST)
    index.remove([7])
    index.save(folder)  # a new bitmap, and nothing else
    again = {path.name for path in folder.iterdir()}
    assert len(again - set(now)) == 1 and len(set(now) - again) == 1
    index.renew(toy(seed=1)).reencode()
    index.save(folder)  # rows and ids are what they were
    assert {name for name in again if name.startswith(("rows", "ids"))} <= {path.name for path in folder.iterdir()}


def test_many_small_saves_leave_few_files(folder):
    index = fs.CodeIndex(toy())
    for start in range(0, 400, 5):
        index.add(ROWS[start : start + 5])
        index.save(folder)
    assert kinds(folder)["codes"] <= 8 and len(fs.load(folder)) == 400
    index.remove(np.arange(390))
    index.save(folder)
    assert kinds(folder) == {"codes": 1, "ids": 1, "encoder": 1, "index.fsk": 1} and len(index) == 10
    assert (folder / next(p.name for p in folder.glob("ids*"))).stat().st_size < 300


def test_the_files_are_plain_arrays(folder, index):
    index.save(folder)
    ids = np.load(next(folder.glob("ids-*.npy")))
    assert ids.tolist() == list(range(len(ROWS)))
    assert (np.load(next(folder.glob("rows-*.npy"))) == ROWS.astype(np.float16)).all()


def test_a_mapped_index_stays_mapped(folder, index):
    index.save(folder)
    found = fs.load(folder)
    found.add(ROWS)
    found.save(folder)
    assert all(isinstance(segment.rows.base, np.memmap) for segment in found._contents.segments)
    index.add(ROWS)
    assert content(found) == content(index)


def test_a_reader_keeps_what_a_writer_replaces(folder, index):
    index.save(folder)
    reader, before = fs.load(folder), content(index)
    index.remove(np.arange(10, 300))
    index.compact().save(folder)
    assert content(reader) == before and content(fs.load(folder)) == content(index)


# -- one writer --------------------------------------------------------------------------------------------------------
def test_what_somebody_else_has_saved_is_not_lost(folder, index):
    index.save(folder)
    other = fs.load(folder)
    other.add(ROWS[:5])
    other.save(folder)
    index.remove([1])
    with pytest.raises(IndexConflict, match="somebody else has saved there since"):
        index.save(folder)
    assert content(fs.load(folder)) == content(other)
    with pytest.raises(IndexConflict, match="is not this one"):
        fs.CodeIndex(toy()).save(folder)
    index.save(folder.with_name("mine"))
    other.save(folder)
    index.save(folder, overwrite=True)
    assert content(fs.load(folder)) == content(index) == content(fs.load(folder.with_name("mine")))
    with pytest.raises(IndexConflict):
        other.save(folder)
    index.save(folder)


def test_another_process_is_at_work(folder, index):
    index.save(folder)
    lock = lock_name(folder / _files.MANIFEST)
    code = "import sys; from pathlib import Path; from fastsketch.data.files._lock import locked\n"
    code += "with locked(Path(sys.argv[1])): print('in', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(folder / _files.MANIFEST)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout.readline().strip() == b"in" and lock.exists()
        with pytest.raises(LockHeld, match=f"being written by another job, process {child.pid}"):
            index.save(folder)
        child.stdin.close()
    index.save(folder)
    assert not lock.exists()


def test_another_thread_is_at_work(folder, index, monkeypatch):
    inside, go, write = threading.Event(), threading.Event(), _saving.write_array

    def slow(*args):
        inside.set()
        go.wait(30)
        return write(*args)

    monkeypatch.setattr(_saving, "write_array", slow)
    thread = threading.Thread(target=index.save, args=(folder,))
    thread.start()
    inside.wait(30)
    with pytest.raises(RuntimeError, match="another thread is saving an index"):
        index.copy().save(folder)
    with pytest.raises(RuntimeError, match="being changed by another thread"):
        index.add(ROWS)
    index.search(QUERIES)
    go.set()
    thread.join()
    assert content(fs.load(folder)) == content(index)


@pytest.mark.parametrize("there", ["file", "folder", "nothing above"])
def test_only_an_index_is_replaced(tmp_path, index, there):
    place = tmp_path / "place"
    if there == "file":
        place.write_text("mine")
    elif there == "folder":
        place.mkdir()
        (place / "thesis.txt").write_text("mine")
    else:
        place = place / "below"
    with pytest.raises(OSError, match="is a file|something else than an index: thesis.txt|above it does not exist"):
        index.save(place)
    assert {"file": place.is_file, "folder": (place / "thesis.txt").exists}.get(there, lambda: True)()


# -- failures ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("there", [True, False])
def test_a_full_disk(folder, index, monkeypatch, there):
    """Whichever file there is no room for: what was there is there, and the index goes on."""
    if there:
        index.save(folder)
        index.remove([9])
        index.add(ROWS[:300])
    before = content(index)
    saved = content(fs.load(folder)) if there else None
    for last in range(20):
        written = []

        def full(file, last=last, written=written, fsync=os.fsync):
            written += [] if stat.S_ISDIR(os.fstat(file).st_mode) else [file]
            if len(written) == last + 1:
                raise OSError(errno.ENOSPC, "No space left on device")
            fsync(file)

        monkeypatch.setattr(os, "fsync", full)
        try:
            index.save(folder)
        except OSError as error:
            assert error.errno == errno.ENOSPC
        else:
            break
        finally:
            monkeypatch.undo()
        assert content(index) == before
        if there:
            assert content(fs.load(folder)) == saved
        else:
            assert not folder.exists()
    assert last > 3 and content(fs.load(folder)) == before
    assert kinds(folder)["rows"] == len(index._contents.segments)


def operations():
    """{name: what changes an index}."""
    return {
        "add": lambda index, folder: index.add(ROWS[:100]),
        "add ids": lambda index, folder: index.add(ROWS[:100], np.arange(2000, 1900, -1)),
        "remove": lambda index, folder: index.remove(np.arange(50, 90)),
        "compact": lambda index, folder: index.compact(),
        "reencode": lambda index, folder: index.reencode(),
        "save": lambda index, folder: index.save(folder),
    }


def prepared(folder, name):
    """An index that was saved, and has changed since."""
    made = fs.CodeIndex(toy(), rows="float16")
    made.add(ROWS)
    made.save(folder)
    made.remove([3, 4])
    made.renew(toy(seed=1))
    made.add(ROWS[:50])
    if name == "save":
        made.add(ROWS[:500])
    return made


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", operations())
def test_interrupts(tmp_path, name, amount):
    """At any line: done or not begun, in memory and in the folder; the next save goes through and clears up."""
    operation, rng, counts = operations()[name], np.random.default_rng(0), Counter()
    done = prepared(tmp_path / "done", name)
    before, saved = content(done), content(fs.load(tmp_path / "done"))
    operation(done, tmp_path / "done")
    after = content(done)
    fresh = prepared(tmp_path / "fresh", name)
    n = lines_of(lambda: operation(fresh, tmp_path / "fresh"))
    for at in moments(n, amount(20, 120), rng):
        folder = tmp_path / f"{at}"
        index = prepared(folder, name)
        counts["interrupts"] += interrupted(lambda index=index, folder=folder: operation(index, folder), at)
        found = content(index)
        counts["half_done"] += found not in (before, after)
        there = content(fs.load(folder))
        counts["lost"] += there not in ((saved, before, after) if name == "save" else (saved,))
        index.save(folder)
        counts["lost"] += content(fs.load(folder)) != found
        counts["left_behind"] += (
            set(kinds(folder)) - {"codes", "ids", "rows", "removed", "encoder", "index.fsk"} != set()
        )
        counts["left_behind"] += kinds(folder)["codes"] != len(index._contents.segments)
    report(
        f"interrupts of the index: {name}",
        f"{counts['interrupts']} at lines",
        **{key: counts[key] for key in ("half_done", "lost", "left_behind")},
    )


@POSIX
def test_killed_while_saving(folder, amount):
    """A process that adds, removes and saves for ever is killed: what it said was saved is there, and nothing half."""
    rng, counts = random.Random(0), Counter()
    kills = amount(5, 20)
    steps = 0
    for _ in range(kills):
        command = [sys.executable, "-m", "tests.neighbours.index.saver", str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(), text=True) as child:
            said = steps
            while said < steps + rng.randrange(1, 6):
                said = int(child.stdout.readline())
            time.sleep(rng.uniform(0, 0.02))
            child.send_signal(signal.SIGKILL)
            rest = child.stdout.read().split()
            said = int(rest[-1]) if rest else said
        counts["files_found"] += sum(path.name.endswith((".tmp", ".lock")) for path in folder.iterdir())
        index = fs.load(folder)
        steps = saver.steps_of(index)
        counts["lost"] += steps not in (said, said + 1)
        counts["other_results"] += content(index) != content(saver.after(steps))
    index.save(folder)
    left = [path.name for path in folder.iterdir() if path.name.endswith((".tmp", ".lock"))]
    counts["left_behind"] += len(left) + (kinds(folder)["codes"] != len(index._contents.segments))
    report(
        "kills while an index is saved",
        f"{kills} kills in {steps} saves",
        also={"files_found": counts["files_found"]},
        **{name: counts[name] for name in ("lost", "other_results", "left_behind")},
    )


# -- what cannot be read -----------------------------------------------------------------------------------------------
def test_no_index(tmp_path):
    with pytest.raises(fs.StateError, match="is no index"):
        fs.load(tmp_path)
    with pytest.raises(fs.StateError, match="no folder of an index"):
        fs.CodeIndex.load(tmp_path / "none")
    fs.SketchHash(2).update(ROWS).save(tmp_path / _files.MANIFEST)
    with pytest.raises(fs.StateError, match="holds a SketchHash"):
        fs.load(tmp_path)


@POSIX
@pytest.mark.parametrize("what", ["codes", "ids", "rows", "removed", "encoder", "index.fsk"])
def test_a_pipe_among_the_files_is_not_waited_for(folder, index, what):
    index.save(folder)
    (path,) = [path for path in folder.iterdir() if path.name.startswith(what)]
    path.unlink()
    os.mkfifo(path)
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits"))
    signal.alarm(20)
    try:
        with pytest.raises(fs.StateError, match=rf"{path.name} is (a pipe|no regular file)"):
            fs.CodeIndex.load(folder)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("what", ["codes", "ids", "rows", "removed", "encoder", "index.fsk"])
@pytest.mark.parametrize("memory_map", [True, False])
def test_damage_is_found(folder, index, what, memory_map):
    index.save(folder)
    (path,) = [path for path in folder.iterdir() if path.name.startswith(what)]
    whole = path.read_bytes()

    def refused(change):
        path.unlink(missing_ok=True)
        if change is not None:
            path.write_bytes(change)
        with pytest.raises(fs.StateError):
            fs.CodeIndex.load(folder, memory_map=memory_map, verify=True)

    refused(None)
    for cut in (0, 1, 60, len(whole) // 2, len(whole) - 1):
        refused(whole[:cut])
    if path.suffix == ".npy":
        refused(whole + b"x")
    # a zip file has bytes that nobody reads: its members are what is held against checksums
    for at in (7, 20, len(whole) // 2, len(whole) - 1) if path.suffix == ".npy" else (len(whole) // 3, len(whole) // 2):
        refused(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    path.write_bytes(whole)
    assert content(fs.load(folder)) == content(index)


def described(folder):
    """The manifest as it is."""
    about, _ = _files.files.read(folder / _files.MANIFEST)
    return about["state"]


def describe(folder, state, **about):
    """Write a manifest."""
    known = {"kind": "CodeIndex", "home": "fastsketch.neighbours.index", "parameters": {}, "notes": {}}
    _files.files.write(folder / _files.MANIFEST, _files.files.pack({**known, **about, "state": state}, {}))


def forged(folder, what, array):
    """A file of an array with the right checksum, as the manifest has it."""
    one = _files.write_array(folder, what, np.asarray(array))
    return [one.file, one.crc32]


def put(*keys, value):
    def change(state, folder):
        where = state
        for key in keys[:-1]:
            where = where[key]
        where[keys[-1]] = value(folder) if callable(value) else value

    return change


N = len(ROWS)
FILES = ("segments", 0, "files")
FORGERIES = [
    (put("metric", value="hamming"), "for codes of a hash"),
    (put("metric", value=[]), "it has metric|not consistent"),
    (put("rows", value="float64"), "rows='float64'"),
    (put("rows", value=None), "a segment must have files of codes, ids"),
    (put("n_features", value=9), "encoder is of 8 features"),
    (put("n_features", value=1 << 40), "n_features must be below"),
    (put("next_id", value=5), r"outside \[0, 5\)"),
    (put("next_id", value=-1), "next_id"),
    (put("next_id", value=1 << 70), "next_id"),
    (put("current", value=1), "current must be"),
    (put("encoders", value=[]), "current must be|out of range|not consistent"),
    (put("encoders", 0, 1, value="0" * 64), "fingerprint differs"),
    (put("encoders", 0, 0, value="../other/encoder-0123456789abcdef.fsk"), "no name of a file"),
    (put("encoders", 0, 0, value="encoder-0123456789abcdef.fsk"), "cannot be read"),
    (put("stamp", value="x"), "no stamp"),
    (put("segments", value={"a": 1}), "not consistent"),
    (put("segments", 0, "n", value=0), "n must be at least 1"),
    (put("segments", 0, "n", value=1 << 40), "n must be below"),
    (put("segments", 0, "n", value=1 << 30), "expected"),
    (put("segments", 0, "n", value=N - 1), "expected"),
    (put("segments", 0, "n", value=True), "integer"),
    (put("segments", 0, "encoder", value=-1), "encoder must be"),
    (put(*FILES, value={}), "a segment must have files"),
    (put(*FILES, "more", value=["x", 1]), "a segment must have files"),
    (put(*FILES, "ids", 0, value="/etc/passwd"), "no name of a file"),
    (put(*FILES, "ids", 0, value="ids-0123456789abcdef.npy"), "is missing"),
    (put(*FILES, "ids", 1, value=-1), "checksum"),
    (put(*FILES, "ids", 1, value=0), "fails its checksum"),
    (put(*FILES, "ids", value=lambda f: forged(f, "ids", np.arange(N) - 1)), "outside"),
    (put(*FILES, "ids", value=lambda f: forged(f, "ids", np.zeros(N, np.int64))), "an id comes twice"),
    (put(*FILES, "ids", value=lambda f: forged(f, "ids", np.arange(N, dtype=np.int32))), "int32"),
    (put(*FILES, "ids", value=lambda f: forged(f, "ids", np.arange(N + 1))), "expected"),
    (put(*FILES, "codes", value=lambda f: forged(f, "codes", np.zeros((N, 5), np.uint8))), "expected"),
    (put(*FILES, "removed", value=lambda f: forged(f, "removed", np.zeros(3, np.uint8))), "expected"),
    (put(*FILES, "rows", value=lambda f: forged(f, "rows", np.full((N, 8), np.nan, np.float16))), "must be finite"),
    (put(*FILES, "rows", value=lambda f: forged(f, "rows", np.zeros((N, 8)))), "float64"),
    (lambda state, folder: state.pop("segments"), "not consistent"),
    (lambda state, folder: state["segments"].append(state["segments"][0]), "an id comes twice"),
    (lambda state, folder: state["encoders"].append(state["encoders"][0]), "two of its encoders are one"),
]


@pytest.mark.parametrize(("change", "message"), FORGERIES)
def test_forgeries_are_refused(folder, index, change, message):
    """Right checksums and wrong content."""
    index.save(folder)
    state = described(folder)
    describe(folder, state)
    fs.load(folder)
    change(state, folder)
    describe(folder, state)
    with pytest.raises(fs.StateError, match=message):
        fs.CodeIndex.load(folder, verify=True)


def test_forged_encoders_and_links(folder, index, tmp_path):
    index.save(folder)
    (path,) = folder.glob("encoder-*")
    about, arrays = _files.files.read(path)
    for change in (
        {"kind": "SketchHash"},
        {"encoder": None},
        {"encoder": {"kind": "os.system", "state": {}}},
        {"encoder": {**about["encoder"], "state": {"top": "x", "offset": True}}},
    ):
        _files.files.write(
            path, _files.files.pack({"kind": about["kind"], "encoder": about["encoder"], **change}, arrays)
        )
        with pytest.raises(fs.StateError, match="holds no encoder"):
            fs.load(folder)
    if hasattr(os, "mkfifo"):
        index.save(folder, overwrite=True)
        (path,) = folder.glob("ids-*")
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(fs.StateError, match="no regular file"):
            fs.load(folder)


def test_a_manifest_that_nobody_can_read_is_replaced_if_that_is_asked_for(folder, index):
    index.save(folder)
    (folder / _files.MANIFEST).write_bytes(b"no zip")
    with pytest.raises(IndexConflict):
        index.save(folder)
    index.save(folder, overwrite=True)
    assert content(fs.load(folder)) == content(index)


def test_a_file_that_was_lost_is_written_again(folder, index):
    index.save(folder)
    next(folder.glob("codes-*")).unlink()
    with pytest.raises(fs.StateError, match="is missing"):
        fs.load(folder)
    index.save(folder)
    assert content(fs.load(folder)) == content(index)


def test_checksums_are_zlibs(folder, index):
    index.save(folder)
    file, crc = described(folder)["segments"][0]["files"]["codes"]
    assert zlib.crc32(np.load(folder / file).tobytes()) == crc and json.dumps(described(folder))
