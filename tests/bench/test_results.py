"""The results that are kept in the repository."""

import ast
import json
import re

import pytest

import store

RESULTS = sorted(store.RESULTS.glob("[a-z]*.json"))
FULL = [path for path in RESULTS if "." not in path.stem]
WITHOUT = {  # commands without a stored result, and why
    "levels": "a check that needs a machine to itself: it fails, and writes nothing, where others take its time",
    "classes": "asv keeps what these measure",
}
EACH, ALL = 60_000, 3_000_000  # bytes of pictures


def records():
    return [(path, json.loads(path.read_text(encoding="utf-8"))) for path in FULL]


def commands():
    """Names in run.py, which sets numbers of threads where it is imported."""
    for node in ast.parse((store.RESULTS.parent / "run.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "COMMANDS":
            return {key.rpartition(".")[2] for key in ast.literal_eval(node.value)}
    raise AssertionError("no COMMANDS")


def test_every_command_has_a_result():
    kept = {path.stem for path in FULL}
    assert len(commands()) > 50 and commands() - kept == set(WITHOUT), "measure it, or say why not"
    assert kept <= commands(), "a result of no command"


def test_pictures_are_those_that_pages_show():
    from pages import written
    from pictures import PICTURED

    templates = [path.read_text(encoding="utf-8") for path in written().values()]
    shown = {name for template in templates for name in re.findall(r"\{\{ picture (\w+) ", template)}
    assert {path.stem for path in store.RESULTS.glob("*.png") if "." not in path.stem} == shown == set(PICTURED)


def test_every_result_is_of_the_format():
    found = records()
    assert len(found) > 40
    for path, record in found:
        assert store.faults(record) == [], path.name
        assert record["command"] == path.stem
        assert path.read_text(encoding="utf-8") == store.text_of(record), f"{path.name} was not written by store.py"


def test_every_table_says_of_how_many_runs():
    for path, record in records():
        for table in record["tables"]:
            assert table["runs"], f"{path.name}: {table['name']}"


def test_nothing_is_transcribed():
    """A figure without versions is hearsay: every record, and nothing but a record, says what it was measured with."""
    for path, record in records():
        assert record["versions"]["numpy"] and record["machine"]["processor"], path.name
        assert "transcribed" not in path.read_text(encoding="utf-8"), path.name
        assert all(set(table) - {"measured"} == store.KEYS_OF_TABLES for table in record["tables"]), path.name


def test_pictures_are_small():
    sizes = {path.name: path.stat().st_size for path in store.RESULTS.glob("*.png")}
    assert max(sizes.values()) < EACH and sum(sizes.values()) < ALL


def test_results_have_no_title_of_a_film():
    for path in RESULTS:
        assert not re.search(r"\w \((19|20)\d\d\)", path.read_text(encoding="utf-8")), path.name


@pytest.mark.parametrize("path", sorted(store.RESULTS.glob("*.png")), ids=lambda path: path.stem)
def test_what_is_drawn_is_in_the_record(path):
    """Each number of a picture is a cell of the command's tables."""
    from pictures import panels_of, value

    record = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    cells = {cell for table in record["tables"] for row in table["rows"] for cell in row}
    known = {found[0] for cell in cells for part in range(3) if (found := value(cell, part))}
    drawn = [number for _, _, series in panels_of(record) for points in series.values() for _, number, _ in points]
    assert drawn and set(drawn) <= known
