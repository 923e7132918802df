"""complete, predict, recommend: a low-rank model of ratings in text, with the ids that the text uses."""

import bz2
import csv
import gzip
import io
import lzma
import re
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fastsketch._validation import as_integer
from fastsketch.cli._job import given, limited
from fastsketch.cli._output import output_of
from fastsketch.cli._report import report
from fastsketch.io import SourceError
from fastsketch.lowrank import LowRankModel
from fastsketch.lowrank._fitted import HistoryLine

OPEN: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}

Ids = NDArray[np.str_]
Places = NDArray[np.intp]


# -- complete ----------------------------------------------------------------------------------------------------------
def complete(args: Namespace) -> None:
    """Fit a model to (row id, column id, value) lines and save it with the ids."""
    with output_of(args) as out:
        ids, values = read_table(args.ratings, 3)
        names = [np.unique(column) for column in ids]
        rows, columns = (np.searchsorted(known, column) for known, column in zip(names, ids, strict=True))
        shape = len(names[0]), len(names[1])
        x = sparse.coo_array((values, (rows, columns)), shape=shape)
        parameters = given(args)
        model = LowRankModel(**parameters)
        if model.rank > min(shape):
            parameters["rank"] = min(shape)
            model = LowRankModel(**parameters)
        started = time.perf_counter()

        def say(line: HistoryLine) -> None:
            out.say(_as_line(line))

        try:
            with limited(args.threads):
                model.fit(x, validation=args.validation, patience=args.patience, callback=None if args.json else say)
        except ValueError as error:
            raise ValueError(_with_ids(str(error), names)) from None
        except KeyboardInterrupt as stop:
            stop.add_note("nothing has been saved: a fit of a low-rank model has no partial result")
            raise
        model.notes = {"rows": names[0].tolist(), "columns": names[1].tolist()}
        out.save(model)
        facts = model.facts()
        report(
            args,
            {
                **facts,
                "observations": len(values),
                "mean_loss": facts["objective"] / facts["n_observations"],
                "seconds": time.perf_counter() - started,
                "output": args.output,
            },
            out,
        )


def _as_line(line: HistoryLine) -> str:
    score = "" if line["validation"] is None else f"  validation {line['validation']:.5f}"
    return f"rank {line['rank']:>4}  objective {line['objective']:.6g}{score}  {line['seconds']:.2f} s"


def _with_ids(message: str, names: list[Ids]) -> str:
    """An entry that an error names by its indices, by its ids."""
    found = re.search(r"entry \((\d+), (\d+)\)", message)
    if found is None:
        return message
    i, j = int(found[1]), int(found[2])
    return message.replace(found[0], f"the pair ({names[0][i]}, {names[1][j]})")


# -- predict and recommend ---------------------------------------------------------------------------------------------
def predict(args: Namespace) -> None:
    """Predictions for (row id, column id) lines; for an id that is not known the biases answer."""
    with output_of(args, ".csv") as out:
        model, names = _with_names(args.model)
        ids, _ = read_table(args.pairs, 2)
        rows, columns = (_places(column, known) for column, known in zip(ids, names, strict=True))
        with limited(args.threads):
            method = model.predict_proba if args.proba else model.predict
            predicted = method(rows, columns, rank=args.rank)
        with out.writing() as file:
            text = io.TextIOWrapper(file, "utf-8", newline="")
            lines = csv.writer(text, lineterminator="\n")
            shown = (f"{value:.9g}" for value in predicted)
            lines.writerows(zip(*(column.tolist() for column in ids), shown, strict=True))
            text.flush()
            text.detach()
        unknown = int(((rows < 0) | (columns < 0)).sum())
        report(args, {"pairs": len(predicted), "with_an_unknown_id": unknown, "output": args.output}, out)


def recommend(args: Namespace) -> None:
    """The columns of the highest predictions for each row id."""
    model, names = _with_names(args.model)
    as_integer(args.n, "-n", 1)
    users = np.array(args.ids)
    places = _places(users, names[0])
    exclude = _known_pairs(args.exclude, names) if args.exclude else None
    with limited(args.threads):
        columns, predictions = model.recommend(places, args.n, exclude=exclude, rank=args.rank)
    found: list[dict[str, Any]] = [
        {
            "id": str(user),
            "known": bool(place >= 0),
            "columns": [str(names[1][j]) for j in line if j >= 0],
            "predictions": [float(value) for j, value in zip(line, values, strict=True) if j >= 0],
        }
        for user, place, line, values in zip(users, places, columns, predictions, strict=True)
    ]
    if args.json:
        report(args, {"recommendations": found})
        return
    for entry in found:
        shown = "  ".join(
            f"{name} ({value:.4g})" for name, value in zip(entry["columns"], entry["predictions"], strict=True)
        )
        print(f"{entry['id']}{'' if entry['known'] else ' (unknown: by biases)'}: {shown}")


def _with_names(path: str) -> tuple[LowRankModel, list[Ids]]:
    """A model and the ids of its rows and columns."""
    model = LowRankModel.load(path)
    if "rows" not in model.notes:
        raise SourceError(f"{path} holds no ids: it was not written by 'complete'")
    return model, [np.array(model.notes[name], dtype=str) for name in ("rows", "columns")]


def _known_pairs(path: str, names: list[Ids]) -> Any:
    """The pairs of a table that a model knows, as a CSR matrix of its shape."""
    ids, _ = read_table(path, 2)
    rows, columns = (_places(column, known) for column, known in zip(ids, names, strict=True))
    keep = (rows >= 0) & (columns >= 0)
    ones = np.ones(int(keep.sum()))
    return sparse.csr_array((ones, (rows[keep], columns[keep])), shape=(len(names[0]), len(names[1])))


def _places(ids: Ids, known: Ids) -> Places:
    """Index of each id, -1 for one that is not known."""
    at = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    return np.where(known[at] == ids, at, -1)


# -- text --------------------------------------------------------------------------------------------------------------
def read_table(path: str, width: int) -> tuple[list[Ids], NDArray[np.float64]]:
    """(ids of the first two columns, as text; values of the third if width is 3) of comma- or tab-separated lines.

    A first line whose value is no number is a header; further columns are ignored. "-" is standard input.
    """
    rows: list[str] = []
    columns: list[str] = []
    values: list[float] = []
    with _text(path) as file:
        try:
            start = file.readline()
        except UnicodeDecodeError:
            raise SourceError(f"{path} is not text: lines of row id, column id and value are needed") from None
        delimiter = "\t" if "\t" in start else ";" if ";" in start and "," not in start else ","
        for number, fields in enumerate(csv.reader(_chain(start, file), delimiter=delimiter), 1):
            if not fields:
                continue
            if len(fields) < width:
                raise SourceError(f"{path}, line {number}: {width} columns are needed, there are {len(fields)}")
            if width == 3:
                try:
                    values.append(float(fields[2]))
                except ValueError:
                    if number == 1:
                        continue
                    raise SourceError(f"{path}, line {number}: {fields[2]!r} is no number") from None
            rows.append(fields[0].strip())
            columns.append(fields[1].strip())
    if not rows:
        raise SourceError(f"{path} holds no lines")
    return [np.array(column, dtype=str) for column in (rows, columns)], np.array(values, np.float64)


def _chain(first: str, rest: TextIO) -> Iterator[str]:
    yield first
    yield from rest


def _text(path: str) -> TextIO:
    if path == "-":
        return sys.stdin
    suffix = path[path.rfind(".") :] if "." in path else ""
    try:
        return OPEN.get(suffix, open)(path, "rt", encoding="utf-8", newline="")
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}") from error
