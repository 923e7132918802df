"""Names that lead elsewhere, what killed writers leave, and files of which only one job may be the writer."""

import errno
import os
import platform
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.data.files import _lock, _replacing
from fastsketch.data.files._lock import LockHeld, lock_name, locked
from fastsketch.data.files._replacing import lock_open_file, regular_target, replacing, temporary_name

POSIX = pytest.mark.skipif(os.name != "posix", reason="needs links, pipes and process numbers of POSIX")


@pytest.fixture
def model():
    return fs.FrequentDirections(4).update(np.arange(20.0).reshape(4, 5))


# -- leftovers -----------------------------------------------------------------------------------------------------
def test_the_next_writer_removes_what_no_living_process_has_locked(tmp_path, model):
    path = tmp_path / "m.fsk"
    mine, left = temporary_name(path), temporary_name(path)
    host = left.name.split(".")[3]
    elsewhere = tmp_path / left.name.replace(host, "00000000")
    others = [tmp_path / left.name.replace(".m.fsk.", ".n.fsk."), tmp_path / ".m.fsk.abc.tmp"]
    for file in (mine, left, elsewhere, *others):
        file.write_bytes(b"x")
    with mine.open("r+b") as file:
        lock_open_file(file)
        model.save(path)
        assert not left.exists()
        assert mine.exists() and elsewhere.exists() and all(file.exists() for file in others)
    model.save(path)
    assert not mine.exists()
    assert fs.load(path).to_bytes() == model.to_bytes()


@POSIX
def test_a_link_in_the_place_of_a_temporary_file_is_not_followed(tmp_path, model):
    precious = tmp_path / "precious"
    precious.write_bytes(b"x")
    temporary_name(tmp_path / "m.fsk").symlink_to(precious)
    model.save(tmp_path / "m.fsk")
    assert precious.read_bytes() == b"x"


@POSIX
def test_a_killed_writer_leaves_nothing_for_long(tmp_path, model):
    code = (
        "import os, signal, sys; from fastsketch.data.files._replacing import replacing\n"
        "with replacing(sys.argv[1]) as file:\n"
        "    file.write(b'half'); file.flush(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    path = tmp_path / "m.fsk"
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == -9
    assert len(list(tmp_path.iterdir())) == 1
    model.save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["m.fsk"]


def test_names_as_long_as_the_system_allows(tmp_path, model):
    path = tmp_path / ("x" * 251 + ".fsk")
    model.save(path)
    assert fs.load(path).n_rows == 4
    assert len(list(tmp_path.iterdir())) == 1


def test_threads_may_write_one_name(tmp_path, model):
    path, errors = tmp_path / "m.fsk", []

    def save():
        try:
            for _ in range(20):
                model.save(path)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=save) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and [file.name for file in tmp_path.iterdir()] == ["m.fsk"]


def test_a_failed_block_leaves_the_old_file(tmp_path):
    path = tmp_path / "m.fsk"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), replacing(path) as file:
        file.write(b"new")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 1
    with pytest.raises(FileNotFoundError, match="the folder does not exist"), replacing(tmp_path / "none" / "m.fsk"):
        pass
    with pytest.raises(IsADirectoryError, match="is a directory"), replacing(tmp_path):
        pass


@POSIX
def test_permissions_stay(tmp_path):
    path = tmp_path / "m.fsk"
    before = os.umask(0o027)
    try:
        with replacing(path) as file:
            file.write(b"1")
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o600)
        with replacing(path) as file:
            assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600  # also while it is written
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(before)


# -- names that lead elsewhere -------------------------------------------------------------------------------------
@POSIX
def test_a_link_stays_and_its_target_is_replaced(tmp_path, model):
    (tmp_path / "folder").mkdir()
    target, link, chain = tmp_path / "folder" / "real.fsk", tmp_path / "link.fsk", tmp_path / "chain.fsk"
    link.symlink_to("folder/real.fsk")
    chain.symlink_to("link.fsk")
    model.save(chain)  # dangling
    assert link.is_symlink() and chain.is_symlink() and fs.load(target).n_rows == 4
    model.update(np.ones((1, 5))).save(link)
    assert link.is_symlink() and fs.load(target).n_rows == 5
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["chain.fsk", "folder", "link.fsk", "real.fsk"]
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="circle of links") as caught:
        model.save(tmp_path / "a")
    assert caught.value.errno == errno.ELOOP


@POSIX
def test_what_is_no_regular_file_is_written_to(tmp_path, model):
    null = Path(os.devnull).stat()
    model.save(os.devnull)
    assert os.path.samestat(null, Path(os.devnull).stat()) and stat.S_ISCHR(null.st_mode)
    pipe, found = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    with replacing(pipe) as file:  # may be seeked in, although a pipe may not
        file.write(b"..lo")
        file.seek(0)
        file.write(b"he")
    reader.join()
    assert found == [b"helo"] and stat.S_ISFIFO(pipe.stat().st_mode)
    if Path("/dev/full").exists():
        with pytest.raises(OSError, match="No space"):
            model.save("/dev/full")


@POSIX
@pytest.mark.skipif(not Path("/dev/fd/1").exists(), reason="no names for descriptors")
def test_an_open_descriptor_is_written_to_as_it_stands(tmp_path, model):
    log = tmp_path / "log"
    log.write_bytes(b"before\n")
    with log.open("ab") as file:
        name = f"/dev/fd/{file.fileno()}"
        assert regular_target(name) is None
        model.save(name)
    assert log.read_bytes() == b"before\n" + model.to_bytes()
    assert [file.name for file in tmp_path.iterdir()] == ["log"]


@POSIX
def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    synchronise, rename, steps = os.fsync, os.replace, []

    def synchronised(number):
        steps.append("folder" if stat.S_ISDIR(os.fstat(number).st_mode) else "file")
        synchronise(number)

    def renamed(*names):
        steps.append("name")
        rename(*names)

    monkeypatch.setattr(os, "fsync", synchronised)
    monkeypatch.setattr(os, "replace", renamed)
    with replacing(tmp_path / "m.fsk") as file:
        file.write(b"content")
    assert steps == ["file", "name", "folder"]


# -- locks ---------------------------------------------------------------------------------------------------------
def write_lock(path, *, pid=1, host=None):
    """The lock file of a process that has ended."""
    host = platform.node() if host is None else host
    lock_name(path).write_text(f"fastsketch lock of process {pid} on {host}\n")


def test_one_at_a_time(tmp_path):
    path = tmp_path / "m.fsk"
    with locked(path):
        with pytest.raises(LockHeld, match=rf"process {os.getpid()}.*another output"), locked(path):
            pass
        assert lock_name(path).exists()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ZeroDivisionError), locked(path):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


HOLD = (
    "import sys, time; from pathlib import Path; from fastsketch.data.files._lock import locked\n"
    "with locked(Path(sys.argv[1])):\n"
    "    print('held', flush=True); time.sleep(600)"
)


def test_another_process_holds_it_until_it_is_killed(tmp_path):
    path = tmp_path / "m.fsk"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE) as other:
        assert other.stdout.readline().strip() == b"held"
        with pytest.raises(LockHeld, match=rf"process {other.pid}:"), locked(path):
            pass
        other.kill()
        other.wait()
    assert lock_name(path).exists()
    with locked(path):
        assert str(os.getpid()) in lock_name(path).read_text()
    assert list(tmp_path.iterdir()) == []


def test_the_lock_of_another_machine_is_respected(tmp_path):
    path = tmp_path / "m.fsk"
    write_lock(path, host="elsewhere")
    with pytest.raises(LockHeld, match=r"on elsewhere.*remove .*m\.fsk\.lock"), locked(path):
        pass
    lock_name(path).write_text("something else")
    with pytest.raises(LockHeld, match="cannot be read"), locked(path):
        pass
    assert lock_name(path).read_text() == "something else"


@POSIX
@pytest.mark.parametrize("kind", ["symbolic link", "hard link", "folder", "pipe"])
def test_what_is_no_lock_file_is_not_written_to(tmp_path, kind):
    path, precious = tmp_path / "m.fsk", tmp_path / "precious"
    precious.write_bytes(b"")
    make = {
        "symbolic link": lambda lock: lock.symlink_to(precious),
        "hard link": lambda lock: lock.hardlink_to(precious),
        "folder": Path.mkdir,
        "pipe": os.mkfifo,
    }
    make[kind](lock_name(path))
    with pytest.raises(LockHeld, match="cannot be read"), locked(path):
        pass
    assert precious.read_bytes() == b"" and lock_name(path).exists()


@POSIX
def test_a_lock_that_was_removed_just_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    path, calls = tmp_path / "m.fsk", []

    def removed_first(file):
        calls.append(file)
        if len(calls) == 1:
            lock_name(path).unlink()
        lock_open_file(file)

    monkeypatch.setattr(_lock, "lock_open_file", removed_first)
    with locked(path):
        assert len(calls) == 2 and str(os.getpid()) in lock_name(path).read_text()


@POSIX
def test_a_lock_that_was_removed_by_hand_is_not_removed_again(tmp_path):
    path = tmp_path / "m.fsk"
    with locked(path):
        lock_name(path).unlink()
        write_lock(path, host="elsewhere")
    assert lock_name(path).exists()


def test_a_file_system_without_locks(tmp_path, monkeypatch, model):
    """Files are written; a job, which nothing would keep from another one's output, is refused."""

    def refuse(_):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(_lock, "lock_open_file", refuse)
    monkeypatch.setattr(_replacing, "lock_open_file", refuse)
    model.save(tmp_path / "m.fsk")
    assert fs.load(tmp_path / "m.fsk").n_rows == 4
    with pytest.raises(OSError, match="cannot be locked .no locks.: choose an output"), locked(tmp_path / "m.fsk"):
        pass
    assert [file.name for file in tmp_path.iterdir()] == ["m.fsk"]


def test_of_many_who_find_a_lock_file_one_gets_in(tmp_path):
    """Threads in step: never two inside, and everyone gets in or is refused."""
    path, inside, most, entered, refused = tmp_path / "m.fsk", [], [], [], []

    def work(barrier):
        barrier.wait()
        try:
            with locked(path):
                inside.append(1)
                most.append(len(inside))
                entered.append(1)
                time.sleep(0.002)
                inside.pop()
        except LockHeld:
            refused.append(1)

    for turn in range(20):
        if turn % 2:
            write_lock(path)
        barrier = threading.Barrier(6)
        threads = [threading.Thread(target=work, args=(barrier,)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert list(tmp_path.iterdir()) == []
    assert max(most) == 1 and len(entered) >= 20 and len(entered) + len(refused) == 120


def test_a_lock_that_could_not_be_removed_is_taken_over(tmp_path, monkeypatch):
    """One failed removal, as of a stale handle of NFS, is no job at work."""
    path = tmp_path / "m.fsk"

    def fails(*_, **__):
        raise OSError(errno.ESTALE, "stale")

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", fails)
        with locked(path):
            pass
    assert lock_name(path).exists()
    with locked(path), pytest.raises(LockHeld), locked(path):
        pass
    assert list(tmp_path.iterdir()) == []
