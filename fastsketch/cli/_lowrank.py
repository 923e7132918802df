"""complete, predict: a low-rank model of ratings in text, with the ids that the text uses."""

import time
from argparse import Namespace
from typing import Any

from scipy import sparse

from fastsketch.cli._flags import parameters_of
from fastsketch.cli._output import output_of
from fastsketch.cli._reading import columns_of, dialect_of
from fastsketch.cli._user_events import ids_of, places_of
from fastsketch.data.files._table import as_dialect
from fastsketch.data.names._events import read_events
from fastsketch.data.names._id_map import ids_of_text
from fastsketch.lowrank import LowRankModel
from fastsketch.lowrank._fitted import HistoryLine


# -- complete ----------------------------------------------------------------------------------------------------------
def complete(args: Namespace) -> None:
    """Fit a model to (row id, column id, value) lines and save it with the ids."""
    with output_of(args) as out:
        dialect = as_dialect(**dialect_of(args))
        table = read_events(args.ratings, dialect, columns=columns_of(args), values=True)
        names = [sorted(set(ids)) for ids in table[:2]]
        rows, columns = (places_of(ids, known) for ids, known in zip(table[:2], names, strict=True))
        shape = len(names[0]), len(names[1])
        assert table.values is not None  # asked for
        x = sparse.coo_array((table.values, (rows, columns)), shape=shape)
        parameters: dict[str, Any] = {"dtype": "float32", **parameters_of(args, LowRankModel)}
        model = LowRankModel(**parameters)
        if model.rank > min(shape):
            parameters["rank"] = min(shape)
            model = LowRankModel(**parameters)
        started = time.perf_counter()

        def say(line: HistoryLine) -> None:
            out.say(_as_line(line))

        try:
            model.fit(
                x,
                row_ids=names[0],
                column_ids=names[1],
                validation=args.validation,
                patience=args.patience,
                callback=None if args.json else say,
            )
        except KeyboardInterrupt as stop:
            stop.add_note("nothing has been saved: a fit of a low-rank model has no partial result")
            raise
        out.save(model)
        facts = model.facts()
        facts |= {"observations": len(table.lines), "mean_loss": facts["objective"] / facts["n_observations"]}
        out.report({**facts, "seconds": time.perf_counter() - started})


def _as_line(line: HistoryLine) -> str:
    score = "" if line["validation"] is None else f"  validation {line['validation']:.5f}"
    return f"rank {line['rank']:>4}  objective {line['objective']:.6g}{score}  {line['seconds']:.2f} s"


# -- predict -----------------------------------------------------------------------------------------------------------
def predict(args: Namespace, model: LowRankModel) -> None:
    """Write predictions for (row id, column id) lines; for an id that is not known the biases answer."""
    if len(args.inputs) > 1 or args.what in ("scores", "metrics"):
        raise ValueError("a model of 'complete' predicts the values of the pairs of one file")
    with output_of(args, ".csv") as out:
        sides = ids_of(model, args.model)
        known = {str(name) for side in sides for name in side}
        dialect = as_dialect(**dialect_of(args))._replace(known=known)
        table = read_events(args.inputs[0], dialect, values=False)
        asked = [ids_of_text(side, ids) for side, ids in zip(sides, table[:2], strict=True)]
        method = model.predict_proba if args.what == "probabilities" else model.predict
        predicted = method(*asked, rank=args.rank)
        out.write_csv(zip(*table[:2], (f"{value:.9g}" for value in predicted), strict=True))
        rows, columns = (side.places(values) for side, values in zip(sides, asked, strict=True))
        unknown = int(((rows < 0) | (columns < 0)).sum())
        out.report({"pairs": len(predicted), "with_an_unknown_id": unknown})
