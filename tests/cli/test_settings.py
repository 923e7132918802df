"""--set: every declared parameter, typed by its declaration, and how inputs are read."""

from typing import Any, Literal

import numpy as np
import pytest

import fastsketch as fs
from fastsketch._frame.parameters import described, from_text


@pytest.fixture(autouse=True)
def files(run, tmp_path):
    np.save("rows.npy", np.random.default_rng(0).standard_normal((50, 4)))
    lines = "".join(f"{k % 7},{'ab'[k % 2]},{k}.5,{k % 3}\n" for k in range(60))
    (tmp_path / "t.csv").write_text("x,word,y,group\n" + lines)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ["slover=gram"],
            "FrequentDirections has no parameter 'slover': did you mean 'solver'?; --set help lists them",
        ),
        (["solver=x"], "solver must be one of"),
        (["decay=much"], "--set decay must be a number, got 'much'"),
        (["buffer_size=1.5"], "--set buffer_size must be a whole number, got '1.5'"),
        (["center=maybe"], "--center must be yes or no, got 'maybe'"),
        (["header=perhaps"], "--set header must be yes or no, got 'perhaps'"),
        (["solver"], "--set takes NAME=VALUE, or help, got 'solver'"),
    ],
)
def test_what_cannot_be_set(run, settings, message):
    flags = [part for setting in settings for part in ("--set", setting)]
    assert message in run("sketch", "rows.npy", "-o", "o.fsk", *flags, status=2).err


def test_names_of_reading_and_of_flags_that_are_not(run):
    error = run("audit", "o.fsk", "rows.npy", "--set", "headr=yes", status=2).err
    assert "--set has no parameter 'headr': did you mean 'header'?; --set help lists them" in error
    error = run("sketch", "rows.npy", "-o", "o.fsk", "--solver", "gram", status=2).err
    # from Python 3.14 on without the value
    assert "unrecognized arguments: --solver" in error and "(--set solver=VALUE sets it)" in error


def test_parameters_without_a_flag(run):
    run("sketch", "rows.npy", "-o", "o.fsk", "--set", "compressor=srht", "--set", "sketch-size=4", "--set", "beta=none")
    model = fs.load("o.fsk")
    assert (model.compressor, model.sketch_size, model.beta) == ("srht", 4, None)


@pytest.mark.parametrize(("name", "number"), [(("y", "group"), ("2", "3"))])
def test_columns_by_name_and_by_number_from_0(run, name, number):
    said = []
    for first, second in (name, number):
        run("sketch", "t.csv", "--columns", f"{first},{second}", "-l", 2, "-o", "s.fsk")
        run("learn", "t.csv", "--target", second, "--ignore", first, "--categorical", "word", "-o", "l.fsk")
        metrics = run("predict", "l.fsk", "t.csv", "--what", "metrics", "--target", second, "--json").out
        keep = [fact for fact in metrics.split(", ") if "second" not in fact]
        said.append((fs.load("s.fsk").sketch().tolist(), fs.load("l.fsk").coef.tolist(), keep))
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("text", "annotation", "value"),
    [
        ("3", int | None, 3),
        ("none", int | None, None),
        ("0.5", float, 0.5),
        ("no", bool | None, False),
        ("none", Literal["economic", "none"], "none"),
        ("none", Literal["l1", None], None),
        ("1,5", tuple[float, float] | None, (1.0, 5.0)),
        ('a,"b, c"', Any, ["a", "b, c"]),
        ("a=2,b=0.5", Literal["balanced"] | dict[str, float] | None, {"a": 2.0, "b": 0.5}),
        ("balanced", Literal["balanced"] | dict[str, float] | None, "balanced"),
        (";", str | None, ";"),
    ],
)
def test_values_of_texts(text, annotation, value):
    assert from_text(text, "it", annotation) == value


@pytest.mark.parametrize(
    ("text", "message"), [("=2", "is not NAME=NUMBER"), ("a=x", "must be a number"), ("a=1,", "empty")]
)
def test_texts_that_are_none(text, message):
    with pytest.raises(ValueError, match=message):
        from_text(text, "it", dict[str, float])


def test_documentation_of_each_parameter():
    texts = described(fs.LowRankModel)
    assert set(texts) == set(fs.LowRankModel._declared)
    assert texts["rank"].startswith("rank : int, default 10\n    Largest rank")
    assert texts["max_inner_rank"] == texts["inner_criterion"]  # documented together
    assert "Attributes" not in "".join(described(fs.FrequentDirections).values())


def test_a_number_or_a_word(run):
    run("learn", "t.csv", "--target", "group", "--set", "decay=auto", "-o", "auto.fsk")
    assert fs.load("auto.fsk").decay == "auto"
    run("learn", "t.csv", "--target", "group", "--set", "decay=0.99", "-o", "number.fsk")
    assert fs.load("number.fsk").decay == 0.99
    error = run("learn", "t.csv", "--target", "group", "--set", "decay=fast", "-o", "x.fsk", status=2).err
    assert "--set decay must be a number, got 'fast'" in error
