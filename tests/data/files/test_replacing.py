"""Names that lead elsewhere, what killed writers leave, and files of which only one job may be the writer."""

import errno
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.data.files import _lock, _owner
from fastsketch.data.files._lock import LockHeld, lock_name, locked
from fastsketch.data.files._replacing import regular_target, replacing, temporary_name

POSIX = pytest.mark.skipif(os.name != "posix", reason="needs links, pipes and process numbers of POSIX")


@pytest.fixture
def model():
    return fs.FrequentDirections(4).update(np.arange(20.0).reshape(4, 5))


@pytest.fixture
def dead():
    """The owner that a process was which has ended."""
    code = "from fastsketch.data.files import _owner; print(_owner.this_process().mark)"
    mark = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    return _owner.of_mark(mark)


# -- owners --------------------------------------------------------------------------------------------------------
def test_who_lives(dead):
    me = _owner.this_process()
    assert me.may_live() and me.is_here() and _owner.of_mark(me.mark) == me._replace(host="")
    assert not dead.may_live()
    if me.started:
        assert not me._replace(started="1x00000000").may_live()  # the number has been given out again
    assert dead._replace(place="00000000").may_live()  # nobody can tell from here
    for text in ("", "1-2", "x-1-00000000", f"{me.mark}.1"):
        assert _owner.of_mark(text) is None


@POSIX
def test_a_child_that_nobody_has_waited_for_is_dead():
    child = subprocess.Popen([sys.executable, "-c", ""])
    started = _owner._start(child.pid)
    owner = _owner.this_process()._replace(pid=child.pid, started=started or "")
    if started is not None:
        end = time.monotonic() + 60
        while owner.may_live() and time.monotonic() < end:
            time.sleep(0.01)
        assert not owner.may_live()
    child.wait()
    assert not owner.may_live()


# -- leftovers -----------------------------------------------------------------------------------------------------
def test_the_next_writer_removes_what_no_living_process_owns(tmp_path, model, dead):
    path = tmp_path / "m.fsk"
    mine = temporary_name(path)
    left = tmp_path / f".m.fsk.{dead.mark}.00c0ffee.tmp"
    elsewhere = tmp_path / f".m.fsk.{dead._replace(place='00000000').mark}.00c0ffee.tmp"
    others = [tmp_path / f".n.fsk.{dead.mark}.00c0ffee.tmp", tmp_path / ".m.fsk.abc.tmp"]
    for file in (mine, left, elsewhere, *others):
        file.write_bytes(b"x")
    model.save(path)
    assert not left.exists()
    assert mine.exists() and elsewhere.exists() and all(file.exists() for file in others)
    assert fs.load(path).to_bytes() == model.to_bytes()


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
def write_lock(path, owner, key="k"):
    lock_name(path).write_text(_lock._Content(key, owner).text())


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


def test_the_lock_of_a_dead_owner_is_taken_over(tmp_path, dead):
    path = tmp_path / "m.fsk"
    write_lock(path, dead)
    (tmp_path / ".m.fsk.lock.k.claim").write_text(_lock._Content("c", dead).text())  # died while taking it over
    with locked(path):
        assert _lock._read(lock_name(path)).owner.pid == os.getpid()
    assert list(tmp_path.iterdir()) == []


def test_the_lock_of_another_machine_is_respected(tmp_path, dead):
    path = tmp_path / "m.fsk"
    write_lock(path, dead._replace(place="00000000", host="elsewhere"))
    with pytest.raises(LockHeld, match=r"on elsewhere.*remove .*m\.fsk\.lock"), locked(path):
        pass
    lock_name(path).write_text("something else")
    with pytest.raises(LockHeld, match="cannot be read"), locked(path):
        pass
    assert lock_name(path).read_text() == "something else"


@POSIX
def test_a_lock_that_is_released_just_then_is_had(tmp_path, monkeypatch):
    link, calls = os.link, []

    def held_until_now(*names, **options):
        calls.append(names)
        if len(calls) == 1:
            raise FileExistsError
        return link(*names, **options)

    monkeypatch.setattr(os, "link", held_until_now)
    with locked(tmp_path / "m.fsk"):
        assert lock_name(tmp_path / "m.fsk").exists() and len(calls) == 2


def test_a_lock_that_was_removed_by_hand_is_not_removed_again(tmp_path, dead):
    path = tmp_path / "m.fsk"
    with locked(path):
        lock_name(path).unlink()
        write_lock(path, dead._replace(place="00000000"))
    assert lock_name(path).exists()


def test_without_hard_links(tmp_path, monkeypatch, dead):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    test_one_at_a_time(tmp_path)
    test_the_lock_of_a_dead_owner_is_taken_over(tmp_path, dead)


def test_of_many_who_find_a_dead_owner_one_takes_its_place(tmp_path, dead):
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

    for _ in range(20):
        write_lock(path, dead, os.urandom(4).hex())
        barrier = threading.Barrier(6)
        threads = [threading.Thread(target=work, args=(barrier,)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert list(tmp_path.iterdir()) == []
    assert max(most) == 1 and len(entered) >= 20 and len(entered) + len(refused) == 120


@pytest.mark.parametrize("failing", [1, 2, 3, 4])
def test_a_lock_that_could_not_be_removed_is_taken_over_by_its_own_process(tmp_path, monkeypatch, dead, failing):
    """One failed removal, as of a stale handle of NFS, is no job at work, and what it leaves is removed later."""
    path, calls, unlink = tmp_path / "m.fsk", [], os.unlink

    def fails_once(*names, **options):
        calls.append(names)
        if len(calls) == failing:
            raise OSError(errno.ESTALE, "stale")
        return unlink(*names, **options)

    write_lock(path, dead)  # which is taken over by a claim
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", fails_once)
        with locked(path):
            pass
    assert len(calls) >= failing
    with locked(path), pytest.raises(LockHeld), locked(path):
        pass
    left = [name for name in tmp_path.iterdir() if not name.name.endswith(".tmp")]
    assert not left, left
    for name in tmp_path.iterdir():  # temporary files of this process, as if it had ended
        name.rename(name.with_name(name.name.replace(_owner.this_process().mark, dead.mark)))
    with locked(path):
        assert [name.name for name in tmp_path.iterdir()] == [lock_name(path).name]
