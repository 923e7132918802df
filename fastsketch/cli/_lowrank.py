"""complete, predict, recommend: a low-rank model of ratings in text, with the ids that the text uses."""

import csv
import io
import re
import time
from argparse import Namespace
from typing import Any, TypeGuard, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fastsketch._validation import as_integer
from fastsketch.cli._job import given, limited
from fastsketch.cli._output import output_of
from fastsketch.cli._report import report
from fastsketch.io import SourceError, StateError
from fastsketch.io._table import Ids, read_table
from fastsketch.lowrank import LowRankModel
from fastsketch.lowrank._fitted import HistoryLine

Places = NDArray[np.intp]


# -- complete ----------------------------------------------------------------------------------------------------------
def complete(args: Namespace) -> None:
    """Fit a model to (row id, column id, value) lines and save it with the ids."""
    with output_of(args) as out:
        table = read_table(args.ratings, values=True)
        names = [sorted(ids.names) for ids in table[:2]]
        rows, columns = (_places(ids, known) for ids, known in zip(table[:2], names, strict=True))
        shape = len(names[0]), len(names[1])
        x = sparse.coo_array((table.values, (rows, columns)), shape=shape)
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
        model.notes = {"rows": names[0], "columns": names[1]}
        out.save(model)
        facts = model.facts()
        report(
            args,
            {
                **facts,
                "observations": len(table.values),
                "mean_loss": facts["objective"] / facts["n_observations"],
                "seconds": time.perf_counter() - started,
                "output": args.output,
            },
            out,
        )


def _as_line(line: HistoryLine) -> str:
    score = "" if line["validation"] is None else f"  validation {line['validation']:.5f}"
    return f"rank {line['rank']:>4}  objective {line['objective']:.6g}{score}  {line['seconds']:.2f} s"


def _with_ids(message: str, names: list[list[str]]) -> str:
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
        table = read_table(args.pairs, values=False)
        rows, columns = (_places(ids, known) for ids, known in zip(table[:2], names, strict=True))
        with limited(args.threads):
            method = model.predict_proba if args.proba else model.predict
            predicted = method(rows, columns, rank=args.rank)
        with out.writing() as file:
            text = io.TextIOWrapper(file, "utf-8", newline="")
            lines = csv.writer(text, lineterminator="\n")
            shown = (f"{value:.9g}" for value in predicted)
            pairs = [map(ids.names.__getitem__, ids.places.tolist()) for ids in table[:2]]
            lines.writerows(zip(*pairs, shown, strict=True))
            text.flush()
            text.detach()
        unknown = int(((rows < 0) | (columns < 0)).sum())
        report(args, {"pairs": len(predicted), "with_an_unknown_id": unknown, "output": args.output}, out)


def recommend(args: Namespace) -> None:
    """The columns of the highest predictions for each row id."""
    model, names = _with_names(args.model)
    as_integer(args.n, "-n", 1)
    places = _places(Ids(args.ids, np.arange(len(args.ids))), names[0])
    exclude = _known_pairs(args.exclude, names) if args.exclude else None
    with limited(args.threads):
        columns, predictions = model.recommend(places, args.n, exclude=exclude, rank=args.rank)
    found: list[dict[str, Any]] = [
        {
            "id": user,
            "known": bool(place >= 0),
            "columns": [names[1][j] for j in line if j >= 0],
            "predictions": [float(value) for j, value in zip(line, values, strict=True) if j >= 0],
        }
        for user, place, line, values in zip(args.ids, places, columns, predictions, strict=True)
    ]
    if args.json:
        report(args, {"recommendations": found})
        return
    for entry in found:
        shown = "  ".join(
            f"{name} ({value:.4g})" for name, value in zip(entry["columns"], entry["predictions"], strict=True)
        )
        print(f"{entry['id']}{'' if entry['known'] else ' (unknown: by biases)'}: {shown}")


def _with_names(path: str) -> tuple[LowRankModel, list[list[str]]]:
    """A model and the ids of its rows and columns."""
    model = LowRankModel.load(path)
    if "rows" not in model.notes:
        raise SourceError(f"{path} holds no ids: it was not written by 'complete'")
    names: list[list[str]] = []
    for side, size in (("rows", model.n_rows), ("columns", model.n_features)):
        found = model.notes.get(side)
        if not is_names(found) or len(found) != size:
            raise StateError(f"{path} is damaged: the ids of its {side} are not {size} different names")
        names.append(found)
    return model, names


def is_names(value: Any) -> TypeGuard[list[str]]:
    """Whether a note is a list of different strings."""
    if not isinstance(value, list):
        return False
    items = cast(list[Any], value)
    return all(isinstance(item, str) for item in items) and len(set(items)) == len(items)


def _known_pairs(path: str, names: list[list[str]]) -> Any:
    """The pairs of a table that a model knows, as a CSR matrix of its shape."""
    table = read_table(path, values=False)
    rows, columns = (_places(ids, known) for ids, known in zip(table[:2], names, strict=True))
    keep = (rows >= 0) & (columns >= 0)
    ones = np.ones(int(keep.sum()))
    return sparse.csr_array((ones, (rows[keep], columns[keep])), shape=(len(names[0]), len(names[1])))


def _places(ids: Ids, known: list[str]) -> Places:
    """Index of each id, -1 for one that is not known."""
    index = {name: place for place, name in enumerate(known)}
    return np.array([index.get(name, -1) for name in ids.names], np.intp)[ids.places]
