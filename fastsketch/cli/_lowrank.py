"""complete, predict, recommend: a low-rank model of ratings in text, with the ids that the text uses."""

import bz2
import csv
import gzip
import io
import lzma
import sys
import time

import numpy as np
from scipy import sparse

from fastsketch._validation import as_integer
from fastsketch.cli._job import limited, load_model, report, writable
from fastsketch.io._replacing import replacing
from fastsketch.io._sources import SourceError
from fastsketch.lowrank import LowRankModel

OPEN = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def complete(args):
    """Fit a model to (row id, column id, value) lines and save it with the ids."""
    writable(args.output)
    ids, values = read_table(args.ratings, 3)
    names = [np.unique(column) for column in ids]
    rows, columns = (np.searchsorted(known, column) for known, column in zip(names, ids, strict=True))
    shape = len(names[0]), len(names[1])
    x = sparse.coo_array((values, (rows, columns)), shape=shape)
    model = LowRankModel(
        min(args.rank, *shape),
        args.loss,
        args.refine,
        loss_parameter=args.loss_parameter,
        shrink=args.shrink,
        sweeps=args.sweeps,
        ridge=args.ridge,
        clip=None if args.clip is None else tuple(args.clip),
        dtype=args.dtype,
        seed=args.seed,
    )

    def tell(line):
        score = "" if line["validation"] is None else f"  validation {line['validation']:.5f}"
        print(f"rank {line['rank']:>4}  objective {line['objective']:.6g}{score}  {line['seconds']:.2f} s", flush=True)

    started = time.perf_counter()
    try:
        with limited(args.threads):
            model.fit(x, validation=args.validation, patience=args.patience, callback=None if args.json else tell)
    except ValueError as error:
        raise ValueError(_with_ids(str(error), names)) from None
    model.notes = {"rows": names[0].tolist(), "columns": names[1].tolist()}
    model.save(args.output)
    best = next(line for line in model.history_ if line["rank"] == model.rank_ or line is model.history_[-1])
    report(
        args,
        {
            "rows": shape[0],
            "columns": shape[1],
            "observations": len(values),
            "loss": model.loss,
            "rank": model.rank_,
            "mean_loss": best["objective"] / len(values),
            "validation": best["validation"],
            "seconds": time.perf_counter() - started,
            "output": args.output,
        },
    )


def _with_ids(message, names):
    """An entry that an error names by its indices, by its ids."""
    import re

    found = re.search(r"entry \((\d+), (\d+)\)", message)
    if found is None:
        return message
    i, j = int(found[1]), int(found[2])
    return message.replace(found[0], f"the pair ({names[0][i]}, {names[1][j]})")


def predict(args):
    """Predictions for (row id, column id) lines; an id that is not known is answered by the biases."""
    writable(args.output)
    model, names = _with_names(args.model)
    ids, _ = read_table(args.pairs, 2)
    places = [_places(column, known) for column, known in zip(ids, names, strict=True)]
    with limited(args.threads):
        predicted = model.predict(*places, rank=args.rank)
    with replacing(args.output) as file:
        text = io.TextIOWrapper(file, "utf-8", newline="")
        lines = csv.writer(text, lineterminator="\n")
        lines.writerows(zip(*(column.tolist() for column in ids), (f"{value:.9g}" for value in predicted), strict=True))
        text.flush()
        text.detach()
    unknown = int(((places[0] < 0) | (places[1] < 0)).sum())
    report(args, {"pairs": len(predicted), "with_an_unknown_id": unknown, "output": args.output})


def recommend(args):
    """The columns of the highest predictions for each row id."""
    model, names = _with_names(args.model)
    as_integer(args.n, "-n", 1)
    users = np.array(args.ids)
    places = _places(users, names[0])
    exclude = None
    if args.exclude:
        ids, _ = read_table(args.exclude, 2)
        pairs = [_places(column, known) for column, known in zip(ids, names, strict=True)]
        keep = (pairs[0] >= 0) & (pairs[1] >= 0)
        seen = sparse.coo_array((np.ones(keep.sum()), (pairs[0][keep], pairs[1][keep])), shape=model.shape_)
        exclude = seen.tocsr()
    with limited(args.threads):
        columns, predicted = model.recommend(places, args.n, exclude=exclude, rank=args.rank)
    found = [
        {
            "id": str(user),
            "known": bool(place >= 0),
            "columns": [str(names[1][j]) for j in line if j >= 0],
            "predictions": [float(value) for j, value in zip(line, values, strict=True) if j >= 0],
        }
        for user, place, line, values in zip(users, places, columns, predicted, strict=True)
    ]
    if args.json:
        report(args, {"recommendations": found})
        return
    for entry in found:
        shown = "  ".join(
            f"{name} ({value:.4g})" for name, value in zip(entry["columns"], entry["predictions"], strict=True)
        )
        print(f"{entry['id']}{'' if entry['known'] else ' (unknown: by biases)'}: {shown}")


def _with_names(path):
    model = load_model(path, (LowRankModel,))
    if "rows" not in model.notes:
        raise SourceError(f"{path} holds no ids: it was not written by 'complete'")
    return model, [np.array(model.notes[name], dtype=str) for name in ("rows", "columns")]


def _places(ids, known):
    """Index of each id, -1 for one that is not known."""
    at = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    return np.where(known[at] == ids, at, -1)


def read_table(path, width):
    """(ids of the first two columns, as text; values of the third if width is 3) of comma- or tab-separated lines.

    A first line whose value is no number is a header; further columns are ignored. "-" is standard input.
    """
    lines = [[], []], []
    with _text(path) as file:
        start = file.readline()
        delimiter = "\t" if "\t" in start else ";" if ";" in start and "," not in start else ","
        for number, fields in enumerate(csv.reader(_chain(start, file), delimiter=delimiter), 1):
            if not fields:
                continue
            if len(fields) < width:
                raise SourceError(f"{path}, line {number}: {width} columns are needed, there are {len(fields)}")
            if width == 3:
                try:
                    lines[1].append(float(fields[2]))
                except ValueError:
                    if number == 1:
                        continue
                    raise SourceError(f"{path}, line {number}: {fields[2]!r} is no number") from None
            lines[0][0].append(fields[0].strip())
            lines[0][1].append(fields[1].strip())
    if not lines[0][0]:
        raise SourceError(f"{path} holds no lines")
    return [np.array(column, dtype=str) for column in lines[0]], np.array(lines[1], np.float64)


def _chain(first, rest):
    yield first
    yield from rest


def _text(path):
    if path == "-":
        return sys.stdin
    suffix = path[path.rfind(".") :] if "." in path else ""
    try:
        return OPEN.get(suffix, open)(path, "rt", encoding="utf-8", newline="")
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}") from error
