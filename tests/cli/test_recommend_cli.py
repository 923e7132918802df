"""recommend from the shell: from events, from a model that was saved, and what it says where it cannot."""

import csv
import gzip
import json

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.cli import main

USERS, ITEMS = 60, 24


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two tastes: even users take even items, odd ones odd items."""
    rng = np.random.default_rng(0)
    lines = [(i, j) for i in range(USERS) for j in range(ITEMS) if rng.random() < (0.6 if i % 2 == j % 2 else 0.02)]
    (tmp_path / "e.csv").write_text("".join(f"u {i},item {j}\n" for i, j in lines))
    (tmp_path / "h.csv").write_text("userId;movieId\n" + "".join(f"u {i};item {j}\n" for i, j in lines))
    stars = [(i, j, int(rng.integers(1, 6))) for i, j in lines]
    with gzip.open(tmp_path / "r.tsv.gz", "wt") as file:
        file.write("user\titem\trating\n")
        file.writelines(f"u {i}\titem {j}\t{v}\n" for i, j, v in stars)
    (tmp_path / "new.csv").write_text("p,item 1\np,item 3\nq,item 0\nq,item 2\nq,unheard of\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def works(capsys, *args):
    assert main([*map(str, args)]) == 0, capsys.readouterr().err
    return capsys.readouterr()


def fails(capsys, *args):
    assert main([*map(str, args)]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return said


def found(capsys, *args):
    return json.loads(works(capsys, "recommend", *args, "--json").out)["recommendations"]


def number(name):
    return int(name.split()[1])


def taken(folder, user):
    return {item for name, item in csv.reader((folder / "e.csv").read_text().splitlines()) if name == user}


def test_from_events(folder, capsys):
    out = found(capsys, "e.csv", "u 4", "u 7", "nobody", "-n", 4)
    assert [entry["id"] for entry in out] == ["u 4", "u 7", "nobody"]
    assert [entry["known"] for entry in out] == [True, True, False]
    for entry in out[:2]:
        assert not set(entry["items"]) & taken(folder, entry["id"])
        left = sum(number(item) % 2 == number(entry["id"]) % 2 for item in entry["items"][:3])
        assert left >= min(
            3, ITEMS // 2 - sum(number(i) % 2 == number(entry["id"]) % 2 for i in taken(folder, entry["id"]))
        )
        assert entry["scores"] == sorted(entry["scores"], reverse=True)
    works(capsys, "recommend", "e.csv", "-o", "m.fsk")
    model = fs.load("m.fsk")
    popular = [model.item_ids[int(k)] for k in np.argsort(-model.popularity, kind="stable")]
    assert out[2]["items"] == popular[:4]
    text = works(capsys, "recommend", "e.csv", "u 4", "nobody").out.splitlines()
    assert text[0].startswith("u 4: item ")
    assert text[1].startswith("nobody (unknown: popular items): item ")
    assert len(works(capsys, "recommend", "e.csv").out.splitlines()) == USERS
    again = found(capsys, "e.csv", "u 4", "-n", 30, "--include-seen")[0]["items"]
    assert taken(folder, "u 4") <= set(again)
    assert len(again) == ITEMS
    # a header of a table without values, in any language
    assert found(capsys, "h.csv", "u 4", "-n", 4, "--set", "header=yes")[0]["items"] == out[0]["items"]
    assert found(capsys, "h.csv", "u 4", "-n", 4)[0]["items"] == out[0]["items"]  # names without digits, above ids
    (folder / "w.csv").write_text("who;what\nann;tea\nbob;soap\n")
    said = (
        "w.csv, line 1: 'who', 'what': nothing tells whether this is a header: say --set header=yes or --set header=no"
    )
    assert said in fails(capsys, "recommend", "w.csv", "ann")
    assert found(capsys, "h.csv", "userId", "--set", "header=no")[0]["known"]


def test_a_saved_model_answers(folder, capsys):
    direct = found(capsys, "e.csv", "-n", 4, "u 4")
    facts = json.loads(works(capsys, "recommend", "e.csv", "-o", "m.fsk", "--json").out)
    assert (facts["kind"], facts["n_features"], facts["n_rows"]) == ("SketchedEASE", ITEMS, USERS)
    assert found(capsys, "m.fsk", "u 4", "--events", "e.csv", "-n", 4) == direct
    out = json.loads(works(capsys, "recommend", "m.fsk", "--events", "new.csv", "-n", "3", "--json").out)
    new = out["recommendations"]
    assert [entry["id"] for entry in new] == ["p", "q"]
    assert all(number(item) % 2 == 1 for item in new[0]["items"])
    assert all(number(item) % 2 == 0 for item in new[1]["items"])
    said = works(capsys, "recommend", "m.fsk", "--events", "new.csv", "p", "stranger", "q").err
    assert "1 of 5 events of these users are of items that the model does not know" in said
    one = found(capsys, "m.fsk", "--items", "item 1", "item 3", "-n", 3)[0]
    assert one["items"] == new[0]["items"]
    table = works(capsys, "recommend", "m.fsk", "--events", "new.csv", "-n", 3, "--table", "t.csv").out
    assert "not known" in table
    lines = list(csv.reader((folder / "t.csv").read_text().splitlines()))
    assert lines[0] == ["user", "place", "item", "score"]
    assert [line[:3] for line in lines[1:4]] == [["p", str(k + 1), item] for k, item in enumerate(new[0]["items"])]
    assert works(capsys, "recommend", "m.fsk", "--events", "new.csv", "--table", "-").out.startswith("user,place,")
    # saved and asked in one go; the model knows what its events mean
    assert found(capsys, "r.tsv.gz", "u 4", "--relevant", 4, "-o", "s.fsk") == found(
        capsys, "s.fsk", "u 4", "--events", "r.tsv.gz"
    )
    assert fs.load("s.fsk").notes["events"] == {"relevant": 4.0, "binary": False}


def test_parts_of_a_model(folder, capsys):
    lines = (folder / "e.csv").read_text().splitlines(keepends=True)
    rest = "".join(f"other,item {j}\n" for j in range(ITEMS))  # so that both know all items
    for name, part in (("one", lines[::2]), ("two", lines[1::2])):
        (folder / f"{name}.csv").write_text("".join(part) + rest)
        works(capsys, "recommend", f"{name}.csv", "--binary", "-o", f"{name}.fsk")
    works(capsys, "merge", "one.fsk", "two.fsk", "-o", "m.fsk")
    assert fs.load("m.fsk").notes["events"] == {"relevant": None, "binary": True}
    assert found(capsys, "m.fsk", "--items", "item 1", "item 3", "-n", 3)[0]["known"]
    works(capsys, "recommend", "two.csv", "--relevant", 1, "-o", "two.fsk")
    assert "its events have another meaning" in fails(capsys, "merge", "one.fsk", "two.fsk", "-o", "m.fsk")


def test_values(folder, capsys):
    # values of a pair are added up; every line is one without them
    (folder / "one.csv").write_text("a,x,2\na,y,1\nb,x,1\nb,z,4\nc,y,1\nc,z,1\n")
    (folder / "two.csv").write_text("a,x,1\na,x,1\na,y,1\nb,x,1\nb,z,4\nc,y,1\nc,z,1\n")
    one, two = (found(capsys, name, "a", "--set", "ridge=1") for name in ("one.csv", "two.csv"))
    assert one == two
    assert found(capsys, "one.csv", "--binary", "--set", "ridge=1") == found(
        capsys, "one.csv", "--columns", "0,1", "--set", "ridge=1"
    )
    # a value of 0, or below --relevant, says what has been seen
    (folder / "zero.csv").write_text("a,x,0\na,y,1\nb,x,1\nb,z,4\nc,y,1\nc,z,1\n")
    assert found(capsys, "zero.csv", "a", "--set", "ridge=1")[0]["items"] == ["z"]
    (folder / "minus.csv").write_text("a,x,-1\na,y,1\nb,x,1\nb,z,1\nc,y,1\nc,z,1\n")
    assert "minus.csv: the value -1 of the pair (a, x) is negative" in fails(capsys, "recommend", "minus.csv")
    (folder / "huge.csv").write_text("u,i,1e38\nu,j,3e38\nu,j,3e38\n")
    assert "between 1e-30 and 1e+30 as float32: the pair (u, i) has 1e+38" in fails(capsys, "recommend", "huge.csv")
    assert found(capsys, "minus.csv", "a", "--relevant", 1, "--set", "ridge=1")[0]["items"] == ["z"]
    (folder / "nan.csv").write_text("a,x,1\na,y,nan\n")
    assert "nan.csv, line 2: column 3: the value is missing" in fails(capsys, "recommend", "nan.csv")
    (folder / "kind.csv").write_text("user,item,category\na,x,book\n")
    said = "kind.csv, line 2: column 3 ('category'): 'book' is no finite decimal number (--columns of two "
    assert said in fails(capsys, "recommend", "kind.csv", "--set", "header=yes")
    (folder / "dat").write_text("1::10::5\n")
    assert "tabs, semicolons and commas divide columns" in fails(capsys, "recommend", "dat")
    (folder / "time.csv").write_text("a,x,881250949\na,y,881250950\nb,x,881250951\nb,z,881250952\n")
    without = works(capsys, "recommend", "time.csv", "--columns", "0,1", "--set", "ridge=1").out
    answer = works(capsys, "recommend", "time.csv", "--set", "ridge=1")
    assert (answer.out, "looks like times, and no values" in answer.err) == (without, True)


def test_a_log_with_repeats_counts_pairs_once(folder, capsys):
    lines = [f"u{i % 9},i{i * i % 7}\n" for i in range(40)]
    (folder / "once.csv").write_text("user,item\n" + "".join(sorted(set(lines))))
    (folder / "log.csv").write_text("user,item\n" + "".join(lines))
    once, log = (found(capsys, name, "-n", 3) for name in ("once.csv", "log.csv"))
    assert log == once
    assert found(capsys, "log.csv", "-n", 3, "--binary") == log


def test_what_comes_without_values_counts(folder, capsys):
    """To a model of --relevant: not as a value of 1, which is below it."""
    (folder / "five.csv").write_text("p,item 1,5\np,item 3,5\n")
    (folder / "none.csv").write_text("p,item 1\np,item 3\n")
    works(capsys, "recommend", "r.tsv.gz", "--relevant", 4, "-o", "m.fsk")
    wanted = found(capsys, "m.fsk", "--events", "five.csv")[0]
    assert wanted["known"]
    for args in [
        ("m.fsk", "--events", "none.csv"),
        ("m.fsk", "--items", "item 1", "item 3"),
        ("r.tsv.gz", "--relevant", 4, "--items", "item 1", "item 3"),
        ("r.tsv.gz", "--relevant", 4, "--events", "none.csv"),
    ]:
        assert {**found(capsys, *args)[0], "id": "p"} == wanted, args


@pytest.mark.parametrize("end", ["", ",2024-01-31"])
def test_ids_are_no_header(folder, capsys, end):
    """And a header is no event: without dates below it nothing tells, but for ids that come again."""
    lines = "".join(f"user{i},item{j}{end}\n" for i, j in [(1, 1), (1, 2), (2, 1), (2, 2), (3, 2)])
    for head, flags in (
        ("", ()),
        (
            "uid,sku_name" + (end and ",day") + "\n",
            ()
            if end
            else (
                "--set",
                "header=yes",
            ),
        ),
    ):
        (folder / "ids.csv").write_text(head + lines)
        out = works(capsys, "recommend", "ids.csv", "--set", "ridge=1", "--include-seen", "--json", *flags)
        entries = json.loads(out.out)["recommendations"]
        assert [entry["id"] for entry in entries] == ["user1", "user2", "user3"]
        assert {*entries[0]["items"]} == {"item1", "item2"} and all(entry["known"] for entry in entries)
        assert ("ids.csv, line 1 is taken for a header: 'uid', 'sku_name', 'day'" in out.err) == bool(head and end)
        assert ("holds a date or a time, and no values" in out.err) == bool(end)


def test_a_header_is_never_an_event(folder, capsys):
    """ "Kunde: soap" was recommended, and "Artikel" offered to bob."""
    lines = "anna,soap\nanna,towel\nbob,soap\n"
    (folder / "de.csv").write_text("Kunde,Artikel\n" + lines)
    (folder / "when.csv").write_text("who,product,when\nanna,soap,a\nanna,towel,b\nbob,soap,c\n")
    for name, flags in (("de.csv", ()), ("when.csv", ("--columns", "0,1"))):
        assert f"{name}, line 1: '" in fails(capsys, "recommend", name, *flags)
        with pytest.raises(fs.data.SourceError, match=r"line 1: .* nothing tells .*header=True or header=False"):
            fs.SketchedEASE().update(folder / name)
        entries = found(capsys, name, *flags, "--set", "header=yes", "--include-seen")
        assert [entry["id"] for entry in entries] == ["anna", "bob"]
        assert {item for entry in entries for item in entry["items"]} == {"soap", "towel"}
    model = fs.SketchedEASE().update(fs.data.Triples.of(folder / "de.csv", header=True))
    assert (model.n_rows, list(model.item_ids)) == (2, ["soap", "towel"])
    # with both files in one
    (folder / "two.csv").write_text(f"Kunde,Artikel\n{lines}Kunde,Artikel\n{lines}")
    assert "two.csv, line 5: the header stands there again" in fails(
        capsys, "recommend", "two.csv", "--set", "header=yes"
    )
    # an id where no name could stand, or that comes again
    (folder / "bare.csv").write_text("anna,soap,3\nbob,towel,x\n")
    assert "bare.csv, line 2: column 3: 'x' is no finite" in fails(capsys, "recommend", "bare.csv")
    (folder / "bare.csv").write_text("anna,soap\nanna,towel\nbob,soap\n")
    assert found(capsys, "bare.csv", "anna")[0]["known"]


def test_a_header_that_could_be_ids_is_asked_about(folder, capsys):
    """ "user,item" above ids: the message has the flag that decides; ids that are missing have line and column."""
    (folder / "h.csv").write_text("user,item\nann,tea\nann,milk\nbob,tea\nbob,saw\n")
    for args in (("ann",), ("--items", "tea"), ("-o", "h.fsk")):
        error = fails(capsys, "recommend", "h.csv", *args)
        assert "h.csv, line 1: 'user', 'item': nothing tells whether this is a header: say --set header=yes" in error
    assert not (folder / "h.fsk").exists()
    assert found(capsys, "h.csv", "ann", "--set", "header=yes")[0]["items"] == ["saw"]
    (folder / "gap.csv").write_text("user,item\nann,tea\n,milk\n")
    assert "gap.csv, line 3: column 1 ('user'): an id must not be empty" in fails(
        capsys, "recommend", "gap.csv", "--set", "header=yes"
    )


def test_bad_use_is_named(folder, capsys):
    works(capsys, "recommend", "e.csv", "-o", "m.fsk")
    fs.FrequentDirections(4).update(np.eye(3)).save("fd.fsk")
    fs.SketchedEASE(4, ridge=1.0).update(np.eye(3)).save("bare.fsk")
    for args, said in [
        (("m.fsk", "u 4"), "keeps no users: --events FILE"),
        (("m.fsk", "--events", "new.csv", "--set", "ridge=3"), "--set ridge says how a model is learned"),
        (("m.fsk", "--events", "new.csv", "--binary"), "--binary says how"),
        (("m.fsk", "--events", "new.csv", "-o", "n.fsk"), "m.fsk holds one already"),
        (("m.fsk", "--items", "item 1", "x"), "the model does not know 'x'"),
        (("m.fsk", "u 4", "--items", "item 1"), "goes with neither IDs nor --events"),
        (("e.csv", "-o", "e.csv"), "is also an input"),
        (("e.csv", "--table", "e.csv"), "is also an input"),
        (("e.csv", "u 4", "-o", "-"), "needs --table OUT.csv"),
        (("e.csv", "-n", "0"), "-n must be at least 1"),
        (("e.csv", "--relevant", "nan"), "--relevant must be finite"),
        (("e.csv", "--relevant", "9"), "no event counts"),
        (("fd.fsk",), "FrequentDirections, which recommends nothing"),
        (("bare.fsk", "--items", "a"), "holds no ids"),
        (("none.csv",), "cannot be read"),
        (("e.csv", "--columns", "0,1,2"), "3 columns are needed"),
    ]:
        assert said in fails(capsys, "recommend", *args), args
    model = fs.load("m.fsk")
    for events in (3, {"binary": 1}, {"binary": True, "relevant": "4"}):
        model.notes = {**model.notes, "events": events}
        model.save("damaged.fsk")
        assert "what its events mean" in fails(capsys, "recommend", "damaged.fsk", "--items", "item 1")
    assert not (folder / "n.fsk").exists()
