"""How inputs are read, as the flags of every command that reads rows say."""

import json

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.cli import main

ROWS = np.random.default_rng(0).standard_normal((60, 4)).round(6)


@pytest.fixture
def run(capfd, tmp_path, monkeypatch):
    """Runs a command in a folder with a table and gives what it prints as JSON, or its line of error."""
    monkeypatch.chdir(tmp_path)
    np.savetxt("rows.csv", ROWS, delimiter=",", header="a,b,c,d", comments="", fmt="%.6f")

    def run(*command, status=0):
        assert main([str(word) for word in command]) == status
        out, err = capfd.readouterr()
        return json.loads(out) if status == 0 else err

    return run


def test_columns_by_name_or_position(run):
    run("sketch", "rows.csv", "--columns", "d,b", "-l", 2, "-o", "named.fsk", "--json")
    named = fs.load("named.fsk")
    assert named.feature_names == ("d", "b")
    run("sketch", "rows.csv", "--columns", "3,1", "-l", 2, "-o", "placed.fsk", "--json")
    assert np.array_equal(named.sketch(), fs.load("placed.fsk").sketch())
    assert np.allclose(named.sketch().T @ named.sketch(), ROWS[:, [3, 1]].T @ ROWS[:, [3, 1]])
    assert "'e'" in run("sketch", "rows.csv", "--columns", "a,e", "-o", "no.fsk", status=2)
    found = run("audit", "named.fsk", "rows.csv", "--columns", "d,b", "--json")
    assert found["same_rows"]
    assert "column 0" in run("audit", "named.fsk", "rows.csv", "--columns", "b,d", status=2)


def test_columns_named_by_years(run, tmp_path):
    (tmp_path / "land.csv").write_text("land,2019,2020\nA,1,2\nB,3,4\n")
    run("sketch", "land.csv", "--set", "header=yes", "--columns", "2020,1", "-l", 2, "-o", "y.fsk", "--json")
    assert fs.load("y.fsk").feature_names == ("2020", "2019")
    assert "has 3 columns, got position 2021" in run(
        "sketch", "land.csv", "--set", "header=yes", "--columns", 2021, "-o", "n.fsk", status=2
    )
    run("learn", "land.csv", "--target", 2020, "--regression", "--set", "header=yes", "-o", "l.fsk", "--json")
    assert fs.load("l.fsk").notes["table"]["label"] == "2020"


def test_what_is_missing_is_filled(run, tmp_path):
    (tmp_path / "holes.csv").write_text("a,b\n1,2\n,4\n5,\n")
    assert "row 1" in run("sketch", "holes.csv", "-o", "no.fsk", status=2)
    run("sketch", "holes.csv", "--fill", 7, "-l", 2, "-o", "filled.fsk", "--json")
    assert fs.load("filled.fsk").squared_norm == 1 + 4 + 49 + 16 + 25 + 49


def test_the_first_line_is_what_header_says(run, tmp_path):
    (tmp_path / "years.csv").write_text("1,2\n3,4\n5,6\n")
    assert "nothing tells" in run("sketch", "years.csv", "-o", "o.fsk", status=2)
    (tmp_path / "years.csv").write_text("2001,2002\n1,2\n3,4\n")
    assert run("sketch", "years.csv", "-l", 2, "-o", "o.fsk", "--json")["feature_names"] == ["2001", "2002"]
    assert run("sketch", "years.csv", "--set", "header=no", "-l", 2, "-o", "o.fsk", "--json")["n_rows"] == 3
    found = run("sketch", "years.csv", "--set", "header=yes", "-l", 2, "-o", "o.fsk", "--json")
    assert (found["n_rows"], found["feature_names"]) == (2, ["2001", "2002"])


def test_a_data_set_by_its_key(run, tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["train"], file["test"] = ROWS, ROWS[:9]
    assert "'test', 'train'" in run("sketch", "rows.h5", "-o", "no.fsk", status=2)
    assert run("sketch", "rows.h5", "--set", "key=test", "-l", 2, "-o", "o.fsk", "--json")["n_rows"] == 9


def test_of_many_names_the_text_lists_some(run, tmp_path, capfd):
    (tmp_path / "wide.csv").write_text(",".join(f"c{k}" for k in range(30)) + "\n" + ",".join(["1"] * 30) + "\n")
    assert len(run("sketch", "wide.csv", "-l", 2, "-o", "wide.fsk", "--json")["feature_names"]) == 30
    assert main(["info", "wide.fsk"]) == 0
    out = capfd.readouterr().out
    assert "c18, c19, ... (30)\n" in out
    assert "c20" not in out
