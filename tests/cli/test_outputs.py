"""Outputs that are no plain file: nothing is destroyed, and no finished result is lost."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.cli import main

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs links, pipes and devices of POSIX")

ROWS = np.random.default_rng(0).standard_normal((60, 8))

# Every command with an output, without it.
COMMANDS = {
    "sketch": ["sketch", "rows.npy", "-l", "4"],
    "merge": ["merge", "a.fsk", "a.fsk"],
    "encode": ["transform", "h.fsk", "rows.npy"],
    "learn": ["learn", "t.svm", "-l", "3", "--every", "20"],
    "recommend": ["recommend", "r.csv", "-l", "3"],
    "predict rows": ["predict", "s.fsk", "t.svm"],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with the inputs of all commands."""
    folder = tmp_path_factory.mktemp("made")
    np.save(folder / "rows.npy", ROWS)
    lines = [f"{1 if row[0] > 0 else -1} " + " ".join(f"{j + 1}:{v:.6g}" for j, v in enumerate(row)) for row in ROWS]
    (folder / "t.svm").write_text("\n".join(lines) + "\n")
    (folder / "r.csv").write_text("".join(f"u{i % 7},v{i % 5},{i % 3}\n" for i in range(35)))
    fs.SketchHash(4).update(ROWS).save(folder / "h.fsk")
    before = Path.cwd()
    os.chdir(folder)
    try:
        for line in (
            "sketch rows.npy -l 4 -o a.fsk",
            "transform h.fsk rows.npy -o c.npy",
            "learn t.svm -l 3 -o s.fsk --json",
        ):
            assert main(line.split()) == 0
    finally:
        os.chdir(before)
    return folder


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    for file in made.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shell(line):
    """Run a line of bash, where `fastsketch` is the command: (status, standard error)."""
    command = f'fastsketch() {{ "{sys.executable}" -m fastsketch "$@"; }}; {line}'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_standard_output_gets_the_bytes_and_facts_go_to_standard_error(here, capfdbinary, name):
    assert main([*COMMANDS[name], "-o", "out"]) == 0
    plain = capfdbinary.readouterr()
    assert main([*COMMANDS[name], "-o", "-"]) == 0
    found = capfdbinary.readouterr()
    assert same_result(found.out, (here / "out").read_bytes())
    assert len(found.err.splitlines()) == len(plain.out.splitlines()) > 0 and plain.err == b""
    assert not (here / "-").exists() and not list(here.glob("*.lock")) and not list(here.glob(".*"))


def same_result(one, two):
    if one[:2] == b"PK" and b"fastsketch state" not in one:  # .npz: dates may differ
        import io

        a, b = np.load(io.BytesIO(one)), np.load(io.BytesIO(two))
        return all(np.array_equal(a[key], b[key]) for key in b.files)
    if b'"LowRankModel"' in one:  # its history tells the time
        x, y = fs.from_bytes(one), fs.from_bytes(two)
        pairs = list(x.row_ids)[:2], list(x.column_ids)[1:3]
        return np.array_equal(x.predict(*pairs), y.predict(*pairs)) and x.notes == y.notes
    return one == two


@pytest.mark.parametrize("name", COMMANDS)
def test_a_link_stays(here, capfd, name):
    (here / "folder").mkdir()
    (here / "link").symlink_to("folder/real")
    for _ in range(2):  # dangling, then to a file
        assert main([*COMMANDS[name], "-o", "link"]) == 0
        assert (here / "link").is_symlink()
        assert (here / "folder" / "real").stat().st_size > 0
        assert [file.name for file in (here / "folder").iterdir()] == ["real"]
        (here / "folder" / "real").write_bytes(b"x")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_device_stays(here, capfd, name):
    null = Path(os.devnull).stat()
    assert main([*COMMANDS[name], "-o", os.devnull]) == 0
    assert os.path.samestat(null, Path(os.devnull).stat())
    assert capfd.readouterr().out != ""  # the facts
    if Path("/dev/full").exists():
        before = set(here.iterdir())
        assert main([*COMMANDS[name], "-o", "/dev/full"]) == 2
        error = capfd.readouterr().err
        (rescued,) = set(here.iterdir()) - before
        assert "No space left" in error and f"the result has been saved as {rescued.name}" in error
        assert main([*COMMANDS[name], "-o", "out"]) == 0
        assert same_result(rescued.read_bytes(), (here / "out").read_bytes())


def test_shells(here):
    """What main() alone cannot show: redirections, and pipes whose reader goes."""
    main(["sketch", "rows.npy", "-l", "4", "-o", "whole.fsk", "--json"])
    whole = (here / "whole.fsk").read_bytes()
    sketch = "fastsketch sketch rows.npy -l 4"
    # /dev/stdout is the standard output, whatever that is
    assert shell(f"{sketch} -o /dev/stdout > one.fsk")[0] == 0
    status, error = shell(f"echo before > log; {sketch} -o /dev/stdout >> log")
    assert status == 0 and "n rows" in error and (here / "log").read_bytes() == b"before\n" + whole
    assert (here / "one.fsk").read_bytes() == whole and Path("/dev/stdout").is_symlink()
    assert shell(f"{sketch} -o - | cat > two.fsk; exit ${{PIPESTATUS[0]}}")[0] == 0
    assert (here / "two.fsk").read_bytes() == whole
    # a reader that goes: the result is kept, and a file says more than a pipe
    before = set(here.iterdir())
    status, error = shell(f"{sketch} -o - | true; exit ${{PIPESTATUS[0]}}")
    (rescued,) = set(here.iterdir()) - before
    assert status == 141 and rescued.name in error and rescued.read_bytes() == whole and error.count("\n") == 1
    assert shell(f"{sketch} -o three.fsk | true; exit ${{PIPESTATUS[0]}}") == (0, "")
    assert (here / "three.fsk").read_bytes() == whole
    # lines on the way are no reason to give up what is learned
    learn = "fastsketch learn t.svm -l 3 --every 1"
    assert shell(f"{learn} -o four.fsk | head -1; exit ${{PIPESTATUS[0]}}") == (0, "")
    assert fs.load("four.fsk").n_rows == 60
    assert shell(f"{learn} | true; exit ${{PIPESTATUS[0]}}") == (141, "")
    assert shell("fastsketch info a.fsk | true; exit ${PIPESTATUS[0]}") == (141, "")
    assert not list(here.glob(".*")) and not list(here.glob("*.lock"))


def test_a_pipe_with_a_name(here):
    os.mkfifo("pipe")
    assert shell("cat pipe > got.fsk & fastsketch sketch rows.npy -l 4 -o pipe; wait")[0] == 0
    assert fs.load("got.fsk").n_rows == 60 and (here / "pipe").is_fifo()


@pytest.mark.parametrize(
    "output, message",
    [("loop", "circle of links"), ("gone", "whose folder does not exist"), ("none/x.fsk", "folder of the output")],
)
def test_outputs_that_cannot_be_written_are_known_at_once(here, capfd, monkeypatch, output, message):
    (here / "loop").symlink_to("loop")
    (here / "gone").symlink_to("nowhere/x.fsk")
    monkeypatch.setattr(fs.FrequentDirections, "update", None)  # nothing is learned
    assert main([*COMMANDS["sketch"], "-o", output]) == 2
    assert message in capfd.readouterr().err


def test_a_disk_that_is_full_at_the_end_loses_nothing(here, capfd, monkeypatch):
    from fastsketch.data.files import _replacing

    fsync, full = os.fsync, []

    def once(handle):
        if not full:
            full.append(1)
            raise OSError(28, "No space left on device")
        fsync(handle)

    (here / "folder").mkdir()
    monkeypatch.setattr(_replacing.os, "fsync", once)
    assert main([*COMMANDS["sketch"], "-o", "folder/o.fsk"]) == 2
    error = capfd.readouterr().err
    (rescued,) = here.glob("fastsketch-*.fsk")
    assert rescued.name in error and fs.load(rescued).n_rows == 60
    assert list((here / "folder").iterdir()) == []


def test_an_input_is_no_output(made, capsys, monkeypatch):
    monkeypatch.chdir(made)
    Path("link.npy").unlink(missing_ok=True)
    Path("link.npy").symlink_to("rows.npy")
    for command, output in (
        ("sketch", "rows.npy"),
        ("sketch", "link.npy"),
        ("encode", "rows.npy"),
        ("learn", "t.svm"),
        ("recommend", "r.csv"),
        ("predict rows", "s.fsk"),
    ):
        before = Path(output).read_bytes()
        assert main([*COMMANDS[command], "-o", output]) == 2
        assert f"the output {output} is also an input" in capsys.readouterr().err
        assert Path(output).read_bytes() == before
    total = Path("total.fsk")
    total.write_bytes(Path("a.fsk").read_bytes())
    assert main(["merge", "total.fsk", "a.fsk", "-o", "total.fsk"]) == 0  # reads all before it writes
    assert fs.load(total).n_rows == 2 * fs.load("a.fsk").n_rows


def test_a_file_that_is_read_only_stays(made, capsys, monkeypatch):
    monkeypatch.chdir(made)
    kept = Path("kept.fsk")
    kept.write_bytes(b"mine")
    kept.chmod(0o444)
    assert main([*COMMANDS["sketch"], "-o", "kept.fsk"]) == 2
    assert "the output is read-only: kept.fsk" in capsys.readouterr().err
    assert kept.read_bytes() == b"mine"


def test_a_name_without_room_for_its_partial_result(made, capsys, monkeypatch):
    monkeypatch.chdir(made)
    assert main([*COMMANDS["sketch"], "-o", "x" * 246 + ".fsk"]) == 2
    assert "the name of the output is longer than 220 bytes" in capsys.readouterr().err


@pytest.mark.parametrize("stream", [">&-", "2>&-", ">&- 2>&-"])
def test_nobody_listens(made, stream):
    command = f"{sys.executable} -m fastsketch {' '.join(COMMANDS['sketch'])} -o quiet.fsk {stream}"
    found = subprocess.run(["sh", "-c", command], cwd=made, timeout=60, capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, "")
    assert fs.load(made / "quiet.fsk").n_rows == 60


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full disk that every Linux has")
@pytest.mark.parametrize(
    "flags", ["sketch -l 3 -o full.fsk", "sketch -l 3 -o full.fsk --json", "learn -l 2 -o full.fsk"]
)
def test_facts_that_a_full_disk_does_not_take(made, flags):
    command = f"{sys.executable} -m fastsketch {flags} t.svm > /dev/full"
    found = subprocess.run(["sh", "-c", command], cwd=made, timeout=60, capture_output=True, text=True)
    assert found.returncode == 2
    assert found.stderr == "fastsketch: error: [Errno 28] No space left on device; the result is in full.fsk\n"
    assert fs.load(made / "full.fsk").n_rows == 60


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full disk that every Linux has")
@pytest.mark.parametrize("flags", ["--help", "--version", "sketch --help", "learn --set help"])
def test_help_that_a_full_disk_does_not_take(flags):
    command = f"{sys.executable} -m fastsketch {flags} > /dev/full"
    found = subprocess.run(["sh", "-c", command], timeout=60, capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (2, "fastsketch: error: [Errno 28] No space left on device\n")


def test_pipes_as_inputs(made):
    command = f"cat t.svm | {sys.executable} -m fastsketch learn /dev/stdin -o piped.fsk"
    found = subprocess.run(["sh", "-c", command], cwd=made, timeout=60, capture_output=True, text=True)
    assert found.returncode == 2 and "/dev/stdin is no regular file" in found.stderr
    command = command.replace(
        "learn /dev/stdin", "learn /dev/stdin --set n_features=8"
    )  # the width is all that it lacks
    found = subprocess.run(["sh", "-c", command], cwd=made, timeout=60, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert fs.load(made / "piped.fsk").n_rows == 60


@pytest.mark.parametrize("source", ["data", "data/*", "{}/data/"])
def test_an_output_among_its_inputs(tmp_path, monkeypatch, capsys, source):
    """The lock of the output was read as rows."""
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    np.save("data/a.npy", np.eye(4))
    source = source.format(tmp_path)
    assert main(["sketch", source, "-o", "data/out.fsk"]) == 2
    assert f"data/out.fsk would be read with {source}, and so would its lock" in capsys.readouterr().err
    assert main(["sketch", source, "-o", "out.fsk"]) == main(["sketch", "data/*.npy", "-o", "data/out.fsk"]) == 0
