"""`make papers`: it goes on where it stopped, measures anew what is of another version, and names what it could not."""

import gzip
import re
import sys
from types import SimpleNamespace

import pytest

import bench_data
import bench_tools
import pages
import papers
import run
import store
from hashing import gist

NAMES = {key.rpartition(".")[2] for key in run.COMMANDS}


@pytest.fixture
def started(tmp_path, monkeypatch):
    """A call of the command in a folder: (exit status, what was measured); `answers` says what a command ends with."""

    def call(*words, answers=None):
        done = []

        def measured(name, folder):
            done.append(name)
            answer = (answers or {}).get(name, "")
            if isinstance(answer, BaseException):
                raise answer
            if not answer:
                keep(folder, name)
            return answer

        monkeypatch.setattr(papers, "measured", measured)
        monkeypatch.setattr(sys, "argv", ["papers.py", *words, "--out", str(tmp_path)])
        return papers.main(), done

    return call


def keep(folder, name, version=None, absent=()):
    with store.recording(name, {}, folder) as record:
        store.add_table([["1"]], ["seconds"], None, 1, "")
        for file in absent:
            store.add_absent(file)
        record["fastsketch"] = version or record["fastsketch"]


def test_pages_name_commands_that_are_there():
    for paper in papers.PAPERS:
        named = papers.commands([paper])
        assert len(named) >= 3
        assert set(named) <= NAMES
    assert len(papers.commands()) == sum(len(papers.commands([paper])) for paper in papers.PAPERS)


def test_the_hours_on_the_page_are_those_of_all_commands():
    text = (pages.TEMPLATES / "papers" / "index.md").read_text(encoding="utf-8")
    (named,) = re.findall(r"\{\{ hours ([\w\s]+) \}\}", text)
    assert set(named.split()) == set(papers.commands())


def test_a_result_of_other_code_is_measured_anew(started, tmp_path, capsys):
    first, second, *_ = papers.commands(["glrl"])
    started("glrl")
    for name, modules in ((first, {"fastsketch.sketching": "0" * 12}), (second, None)):
        record = store.read(tmp_path / f"{name}.json")
        record["code"]["modules"] = modules
        if modules is None:  # as results of before were stored
            del record["code"]
        store.write(record, tmp_path / f"{name}.json")
    assert started("glrl") == (0, [first, second])
    out = capsys.readouterr().out
    assert "there is one of other code: sketching" in out and "there is one of code that was not recorded" in out


def test_an_interrupted_run_goes_on(started, tmp_path, capsys):
    first, second, *others = papers.commands(["frosh"])
    assert started("frosh", answers={second: KeyboardInterrupt()}) == (130, [first, second])
    assert f"interrupted in {second}" in capsys.readouterr().err
    keep(tmp_path, others[0], version="0.0.1")
    assert started("frosh", "--list") == (0, [])
    assert f"{others[0]}:" in capsys.readouterr().out
    assert started("frosh") == (0, [second, *others])
    assert "there is one of version 0.0.1" in capsys.readouterr().out
    assert started("frosh") == (0, [])


def test_a_torn_result_is_measured_anew(started, tmp_path):
    first, *_ = papers.commands(["glrl"])
    started("glrl")
    (tmp_path / f"{first}.json").write_text('{"format": 1, "comm')
    assert started("glrl") == (0, [first])


def test_a_result_without_a_set_that_has_come_is_measured_anew(started, tmp_path, monkeypatch, capsys):
    first, *others = papers.commands(["glrl"])
    monkeypatch.setattr(papers, "DATA", tmp_path)
    keep(tmp_path, first, absent=["links.txt", "stars.txt", "links.txt"])
    assert started("glrl") == (0, others)
    (tmp_path / "links.txt").touch()
    assert started("glrl") == (0, [first])
    assert "there is one without links.txt" in capsys.readouterr().out


def test_a_folder_that_cannot_be_made(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setattr(sys, "argv", ["papers.py", "--list", "--out", str(tmp_path / "file" / "below")])
    with pytest.raises(SystemExit):
        papers.main()
    assert "is no folder that can be made" in capsys.readouterr().err


def test_the_run_goes_on_after_a_fault(started, capsys):
    first, second, *_ = wanted = papers.commands(["rfd"])
    answers = {first: "failed with exit status 1", second: "no result: what it needs is absent"}
    assert started("rfd", answers=answers) == (1, wanted)
    assert f"{first}: failed with exit status 1" in capsys.readouterr().err
    assert started("rfd", answers={second: answers[second]}) == (0, [first, second])
    assert f"{second}: no result" in capsys.readouterr().err


def test_long_commands_go_on_within_themselves(tmp_path, monkeypatch):
    lines = []
    monkeypatch.setattr(papers.subprocess, "run", lambda line, **_: lines.append(line) or SimpleNamespace(returncode=1))
    for name in ("links", "vgg19"):
        assert papers.measured(name, tmp_path) == "failed with exit status 1"
    assert [line[-1] == "--keep" for line in lines] == [True, False]


def test_an_unknown_paper(started, capsys):
    with pytest.raises(SystemExit):
        started("rdf")
    assert "no paper rdf: there are rfd, adafd, frosh, glrl" in capsys.readouterr().err


@pytest.fixture
def nothing_read():
    """Forget sets that other tests have read, before and after."""

    def forget():
        for module in (bench_data, gist):
            for function in vars(module).values():
                if hasattr(function, "cache_clear"):
                    function.cache_clear()

    forget()
    yield
    forget()


@pytest.mark.usefixtures("nothing_read")
@pytest.mark.parametrize("name", ["alphas", "figures", "classification", "links", "paths", "retrieval", "training"])
def test_a_command_ends_without_its_sets(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bench_tools, "tiny", False)
    monkeypatch.setattr(bench_data, "DATA", tmp_path / "none")
    path = run.measure(run.parser().parse_args([name, "--tiny", "--out", str(tmp_path)]))
    assert f"absent ({tmp_path / 'none'}" in capsys.readouterr().out
    assert not path.exists()


def test_a_command_goes_on_without_one_of_two_sets(tmp_path, monkeypatch, capsys):
    lines = [f"{row}\t{column}\t{1 if (row + column) % 3 else -1}\n" for row in range(20) for column in range(15)]
    (tmp_path / "slashdot").mkdir()
    with gzip.open(tmp_path / "slashdot" / "soc-sign-Slashdot090221.txt.gz", "wt") as file:
        file.writelines(["# from to sign\n", *lines])
    monkeypatch.setattr(bench_tools, "tiny", False)
    monkeypatch.setattr(bench_data, "DATA", tmp_path)
    path = run.measure(run.parser().parse_args(["links", "--tiny", "--out", str(tmp_path)]))
    assert {row[0] for row in store.read(path)["tables"][0]["rows"]} == {"Slashdot"}
    assert store.read(path)["absent"] == ["epinions/soc-sign-epinions.txt.gz"]
    assert "Epinions: absent" in capsys.readouterr().out


def test_a_command_whose_sets_are_absent_leaves_no_result(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTSKETCH_DATA", str(tmp_path / "none"))
    assert papers.measured("links", tmp_path) == "no result: what it needs is absent"
