"""What a bench command keeps: whole or not at all, and apart from the results of a part."""

import json
import types
from pathlib import Path

import provenance
import pytest

import bench_tools
import fastsketch as fs
import pages
import store

OPTIONS = {"quick": False}
LINES = [["1", "a | b", ""], ["2,000", "0.5 +- 0.1", "~ 3 s"]]


def kept(folder, options=OPTIONS, command="speed"):
    with store.recording(command, options, folder):
        bench_tools.table(LINES, ["n", "what", "s"], "main", runs=3, note="A word.")
        bench_tools.interleaved({"one": lambda: sum(range(100)), "two": lambda: None}, 4)
    return folder / store.file_of(command, options)


def test_a_record_reads_back_as_it_was_written(tmp_path, capsys):
    record = json.loads(kept(tmp_path).read_text(encoding="utf-8"))
    assert record["command"] == "speed" and record["format"] == store.FORMAT
    (table,) = record["tables"]
    assert table == {"name": "main", "columns": ["n", "what", "s"], "rows": LINES, "runs": 3, "note": "A word."}
    (timing,) = record["timings"]
    assert timing["clock"] == "process_time"
    assert {name: len(seconds) for name, seconds in timing["runs"].items()} == {"one": 4, "two": 4}
    assert record["fastsketch"] and record["versions"]["numpy"] and record["machine"]["processor"]
    assert json.loads(store.text_of(record)) == record
    assert store.faults(record) == []
    printed = capsys.readouterr().out
    assert "A word." in printed and "| 2,000 | 0.5 +- 0.1 | ~ 3 s |" in printed


def test_a_part_takes_the_place_of_its_table_alone(tmp_path, monkeypatch):
    """Its own date and machine stand with the table, and below it on a page; the rest is as it was."""
    with store.recording("headline", OPTIONS, tmp_path):
        for name in ("one", "two"):
            bench_tools.table([["5"]], ["n"], name, runs=5)
    before = json.loads((tmp_path / "headline.json").read_text())
    monkeypatch.setattr(store, "circumstances", lambda: {**before, "date": "2030-01-02", "tables": [], "timings": []})
    for join, file in ((False, "headline.quick.json"), (True, "headline.json")):
        with store.recording("headline", {**OPTIONS, "only": "two", "join": join}, tmp_path):
            bench_tools.table([["7"]], ["n"], "two", runs=3)
        assert {path.name for path in tmp_path.iterdir()} == {"headline.json", file} | {"headline.quick.json"}
    after = store.read(tmp_path / "headline.json")
    assert after["date"] == before["date"] and after["tables"][0] == before["tables"][0]
    assert after["tables"][1]["rows"] == [["7"]] and after["tables"][1]["measured"]["date"] == "2030-01-02"
    origins = [pages.origin_of(pages.Results(tmp_path), "headline", table) for table in after["tables"]]
    assert before["date"] in origins[0] and "2030-01-02" in origins[1] and origins[1].endswith("runs: 3.")


def test_a_page_says_which_code_has_changed_since(tmp_path):
    fs.FrequentDirections(2)
    record = json.loads(kept(tmp_path).read_text(encoding="utf-8"))
    modules = record["code"]["modules"]
    assert {"fastsketch", "fastsketch.sketching", "fastsketch._kernels.level"} <= set(modules)

    def changes():
        return pages.code_changes("{{ speed[d=512].ms }} {{ table speed }}", pages.Results(tmp_path))

    assert changes() == {}
    for name in ("fastsketch.sketching", "fastsketch._kernels.level", "fastsketch.sketching.gone"):
        record["code"]["modules"] = {**modules, name: "0" * 12}
        store.write(record, tmp_path / "speed.json")
        assert changes() == {"speed": [name.split(".")[1]]}
    assert pages.code_changes("no references, speed", pages.Results(tmp_path)) == {}


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ('def f(a):\n    """Text."""\n    return a  # why\n', "def f(a):\n\n    return (a)\n", True),
        ("def f(a):\n    return a + 1\n", "def f(a):\n    return a + 2\n", False),
        ("x = 1\n", "x = 1.0\n", False),
    ],
)
def test_comments_and_docstrings_are_no_code(before, after, same):
    assert (provenance._python(before) == provenance._python(after)) is same
    before, after = (f"cdef int k\n{text}" for text in (before, after.replace("(a)\n", "a\n")))
    assert (provenance._cython(before) == provenance._cython(after)) is same


def test_parts_of_other_code_are_measured_again(tmp_path):
    args = types.SimpleNamespace(out=tmp_path, command="learners", quick=False, keep=True)
    assert store.Parts(args).of("a", lambda: 1) == 1
    assert store.Parts(args).of("a", lambda: 2) == 1
    path = store.partial(args)
    held = json.loads(path.read_text(encoding="utf-8"))
    held["parts"]["a"]["code"]["fastsketch"] = "0" * 12
    path.write_text(json.dumps(held), encoding="utf-8")
    assert store.Parts(args).of("a", lambda: 3) == 3


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
def test_a_command_that_does_not_end_leaves_the_old_file(tmp_path, error):
    path = kept(tmp_path)
    before = path.read_bytes()
    with pytest.raises(error), store.recording("speed", OPTIONS, tmp_path):
        bench_tools.table([["other"]], ["n"], "main")
        raise error
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    with store.recording("speed", OPTIONS, tmp_path):  # the next one begins with nothing of the last
        bench_tools.table([["5"]], ["n"], "main")
    assert json.loads(path.read_text())["tables"][0]["rows"] == [["5"]]


def test_a_command_without_data_leaves_the_old_file(tmp_path):
    path = kept(tmp_path)
    before = path.read_bytes()
    with store.recording("speed", OPTIONS, tmp_path):
        pass
    assert path.read_bytes() == before


def test_a_file_is_replaced_whole(tmp_path, monkeypatch):
    path = kept(tmp_path)
    before = path.read_bytes()

    def full(self, *_, **__):
        with self.open("w") as file:
            file.write("{")
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="no space"):
        kept(tmp_path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_two_commands_at_once_do_not_mix(tmp_path, monkeypatch):
    """The one that ends last is kept, and what it keeps is its own."""
    path = tmp_path / "speed.json"
    monkeypatch.setattr(store.os, "getpid", lambda: 1)
    with store.replacing(path) as first:
        first.write_text("of the first")
        monkeypatch.setattr(store.os, "getpid", lambda: 2)
        with store.replacing(path) as second:
            second.write_text("of the second")
        assert path.read_text() == "of the second"
    assert path.read_text() == "of the first" and list(tmp_path.iterdir()) == [path]


def test_a_folder_that_takes_nothing_is_refused_before_anything_is_measured(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OSError, match="file"), store.recording("speed", OPTIONS, folder):
            raise AssertionError("measured")


@pytest.mark.parametrize("text", ["", '{"format": 1, "comm', "[1]", '{"format": 2}', "\x00"])
def test_a_file_that_is_no_record_is_refused_by_name(tmp_path, text):
    (tmp_path / "speed.json").write_text(text)
    with pytest.raises(ValueError, match="^speed.json is no"):
        store.read(tmp_path / "speed.json")


def test_results_of_a_part_are_kept_apart(tmp_path):
    whole = kept(tmp_path)
    before = whole.read_bytes()
    part = kept(tmp_path, {"quick": True})
    assert part != whole and part.name == "speed.quick.json" and whole.read_bytes() == before
    for command, options in (("samples", {"only": "MNIST"}), ("codes", {"sets": "sift5k"}), ("sources", {"rows": 9})):
        assert store.file_of(command, {"quick": False, **options}) == f"{command}.quick.json"
    assert store.file_of("codes", {"quick": False, "only": "", "sets": "", "keep": True}) == "codes.json"
    args = types.SimpleNamespace(out=tmp_path, command="codes", quick=False, only="ours")
    assert store.partial(args) == tmp_path / "codes.partial.json"


def parts(folder, *, stop=(), keep=True):
    """A command of three parts: (its record or None, the parts that were measured)."""
    done, args = [], types.SimpleNamespace(out=folder, command="links", quick=False, keep=keep)

    def measured(name):
        done.append(name)
        if name in stop:
            raise KeyboardInterrupt
        return {"name": name, "loss": float("inf"), "pair": (1, 0.1)}

    try:
        with store.recording("links", vars(args), folder):
            kept = store.Parts(args)
            found = [kept.of(name, measured, name) for name in "abc"]
            assert found == [{"name": name, "loss": float("inf"), "pair": [1, 0.1]} for name in "abc"]
            store.add_table([["1"]], ["n"], "main", 1, "")
    except KeyboardInterrupt:
        return None, done
    return store.read(folder / "links.json"), done


def test_a_stopped_command_goes_on_at_its_parts(tmp_path):
    assert parts(tmp_path, stop="b") == (None, ["a", "b"])
    assert [file.name for file in tmp_path.iterdir()] == ["links.partial.json"]
    known = json.loads((tmp_path / "links.partial.json").read_text())
    known["parts"]["a"]["seconds"] = 1000.0
    (tmp_path / "links.partial.json").write_text(json.dumps(known))
    record, done = parts(tmp_path)
    assert done == ["b", "c"] and 1000 <= record["seconds"] < 1010
    assert parts(tmp_path)[1] == [] and parts(tmp_path, keep=False)[1] == ["a", "b", "c"]


@pytest.mark.parametrize("text", ["", '{"fastsk', "[1]", '{"parts": {}}', '{"fastsketch": "0.0.1", "parts": {"a": 1}}'])
def test_parts_that_are_torn_or_of_another_version_are_measured_anew(tmp_path, text):
    (tmp_path / "links.partial.json").write_text(text)
    assert parts(tmp_path)[1] == ["a", "b", "c"]


def test_columns_of_the_same_name_are_told_apart():
    assert store.distinct(["a", "ratio", "b", "ratio"]) == ["a", "ratio", "b", "ratio, b"]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda record: record.pop("tables"), "tables"),
        (lambda record: record.update(format=2), "format"),
        (lambda record: record.pop("versions"), "versions"),
        (lambda record: record["tables"][0]["rows"].append(["1"]), "cells"),
        (lambda record: record["tables"][0]["rows"][0].__setitem__(0, 1.5), "text"),
        (lambda record: record["tables"][0]["columns"].__setitem__(1, "n"), "columns"),
        (lambda record: record["tables"].append(dict(record["tables"][0])), "names"),
        (lambda record: record.pop("versions"), "versions"),
        (lambda record: record["tables"][0].pop("columns"), "columns"),
    ],
)
def test_what_is_not_of_the_format_is_found(tmp_path, change, word):
    record = json.loads(kept(tmp_path).read_text())
    change(record)
    assert any(word in fault for fault in store.faults(record))


def test_a_command_in_process(tmp_path, monkeypatch):
    import bench_tools
    from hashing import frosh

    monkeypatch.setattr(bench_tools, "tiny", True)
    with store.recording("fwht", OPTIONS, tmp_path), fs.thread_limit(1):
        frosh.fwht(types.SimpleNamespace(quick=True, scratch=tmp_path))
    record = json.loads((tmp_path / "fwht.json").read_text())
    assert store.faults(record) == [] and record["tables"][0]["rows"]
    pytest.importorskip("matplotlib")
    from pictures import picture

    path = picture(tmp_path / "fwht.json")
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and path.stat().st_size < 60_000


def test_samples_of_a_profile_are_counted_by_what_was_at_work():
    from kernels.profile import stacks_of

    kernel = "(fastsketch/_kernels/linalg/rows.cpython-311-x86_64-linux-gnu.so)"
    below = "<module> (stream.py:9);sampled (stream.py:7)"
    lines = [f"{below};add_avx2 {kernel} 2", f"{below};add_avx2 {kernel} 3", f"{below};dgemm_ (libblas.so.3) 1"]
    found = stacks_of("\n".join([*lines, "<module> (stream.py:1) 50"]))
    assert sum(found.values()) == 6
    assert {frames[-1]: n for frames, n in found.items()} == {("add_avx2", "rows.pyx"): 5, ("dgemm_", "libblas"): 1}


def test_a_flame_graph_is_as_wide_as_shares():
    from xml.etree import ElementTree

    from kernels.profile import FILLS, WIDTH, flame_graph

    call, loop = ("<work>", "stream.py"), ("add_avx2", "rows.pyx")
    picture = ElementTree.fromstring(
        flame_graph({(call,): 1, (call, loop): 3, (call, ("idle", "libc")): 0.001}, "a & b")
    )
    boxes = [group.find("{*}rect").attrib for group in picture.findall(".//{*}g")]
    assert [float(box["width"]) for box in boxes] == [WIDTH, round(WIDTH * 3000 / 4001, 1)]
    assert [box["fill"] for box in boxes] == [FILLS["Python"], FILLS["C"]]
    assert float(boxes[1]["y"]) > float(boxes[0]["y"])
    assert picture.find(".//{*}title").text == "<work> (stream.py), 100.0%"
