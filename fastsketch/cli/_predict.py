"""The subcommand predict, which writes a model's predictions for rows or prints its metrics on labelled rows."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.escaping import escaped
from fastsketch.cli._flags import TABLE_OPTIONS, PartsVerb, as_column, flag
from fastsketch.cli._jobs import write_results_of_rows
from fastsketch.cli._labelled import (
    as_list,
    detect_format,
    open_unlabelled_numbers,
    parse_target,
    reopen_tables,
    require_labels,
)
from fastsketch.cli._output import Output, open_output
from fastsketch.cli._reading import load_model, open_columns, remembered_reading
from fastsketch.data.files import StateError
from fastsketch.data.sources import Source, naming, rename_beside_in_errors
from fastsketch.data.sources._source import MAX_FEATURES
from fastsketch.jobs._mapping import require_same_columns
from fastsketch.online import AdaptiveSubgradient, SketchedNewton
from fastsketch.ridge import SketchedRidge

LinearLearner = SketchedNewton | AdaptiveSubgradient
# Rows that are predicted at a time for metrics.
ROWS_AT_A_TIME = 4096
# Number of labels up to which the confusion matrix is printed.
MAX_PRINTED_LABELS = 20


@dataclass(kw_only=True)
class Predict(PartsVerb):
    """Predict the label or value of every row with a model of 'learn'.

    Rows are svmlight text, tables, .npy or CSR .npz, and are read as those that were learned; labels in them are
    ignored. --what metrics measures the model on labelled rows: accuracy, log loss, AUC and the confusion matrix; for
    real targets mean absolute error, root mean squared error and R^2.

    Parameters
    ----------
    model : MODEL.fsk
    inputs : ROWS
        rows as for 'learn'
    output : OUT
        csv, or .npy or .parquet (a folder) by its name (default: csv on the standard output)
    what
        labels or values; a column of probabilities for each label; raw scores; the ends of intervals that contain
        nine targets of ten, of --method ridge; or metrics on labelled rows (default labels)
    target : COLUMN
        of --what metrics: name or number (from 0) of the column of labels (default: as learned)

    Examples
    --------
    fastsketch predict model.fsk customers.csv -o answers.csv
    fastsketch predict model.fsk customers.csv --what metrics
    """

    SETTABLE = ("zero_based", *TABLE_OPTIONS)

    model: str = flag()
    inputs: list[str] = flag(nargs="+")
    output: str | None = flag("-o", "--output", default="-")
    what: str = flag("--what", choices=("labels", "probabilities", "scores", "intervals", "metrics"), default="labels")
    target: Any = flag("--target", type=as_column)

    def run(self) -> None:
        """Write the predictions for all rows of the inputs, or print metrics."""
        model: Any = load_model(self.model, LinearLearner | SketchedRidge, ": models of 'learn' predict")
        if model.n_rows == 0:
            raise StateError(f"{self.model} holds a model that has seen no rows")
        if self.what == "metrics":
            self._print_metrics(model)
            return
        if self.target is not None:
            raise ValueError("--target names labels, which --what metrics alone looks at")
        column_names, method = self._columns_and_method(model)
        write_results_of_rows(self, method, self._open_rows(model, labelled=False), ".csv", column_names)

    def _columns_and_method(self, model: Any) -> tuple[list[str], Callable[[Any], NDArray[Any]]]:
        """Return (column names of the output, method of the model that computes the output from rows).

        There are no column names for labels.
        """
        if isinstance(model, SketchedRidge):
            heads = [name for name in as_list(model.notes.get("target")) if isinstance(name, str)]
            if self.what == "labels":
                return heads, model.predict
            if self.what == "intervals":
                return [f"{name} {end}" for end in ("lower", "upper") for name in heads], partial(interval_ends, model)
            raise ValueError(f"--what {self.what}: the model is a ridge regression, and predicts real values")
        if self.what == "labels":
            return [], model.predict
        if self.what == "intervals":
            raise ValueError("--what intervals is of --method ridge, which holds rows out to measure residuals on")
        names = [] if model.classes is None else list(map(format_label, model.classes))
        if self.what == "scores":
            return names if len(names) > 2 else ["score"], model.decision_function
        if not names:
            raise ValueError(f"--what probabilities: the model predicts real values (its loss is {model.loss!r})")
        return names, model.predict_proba

    @rename_beside_in_errors("--target")
    def _open_rows(self, model: Any, *, labelled: bool) -> Source:
        """Open the inputs of the command, in the way in which the training rows were read, and return them as a source.
        The source has labels only if `labelled` is true.
        """
        notes: dict[str, Any] = model.notes
        if "table" in notes:
            return reopen_tables(self.inputs, notes, self.reading, self.target, labelled=labelled)
        options = {**remembered_reading(notes), **self.reading}
        ridge = isinstance(model, SketchedRidge)
        target = notes.get("target") if self.target is None else parse_target(self.target)
        names = None if model.feature_names is None else list(model.feature_names)
        if target is None and names is None:
            if detect_format(self.inputs[0]) == "table":
                raise ValueError(f"{self.inputs[0]} is a table, and the model was learned from svmlight text")
            return open_columns(self.inputs, {**options, "n_features": model.n_features or MAX_FEATURES}, None)
        if labelled and target is None:
            raise ValueError(f"{self.inputs[0]} is a table: --target names the column of targets")
        options |= {"beside": target if labelled else None}
        options |= {"fill": notes.get("fill")} if ridge else {}
        if names is not None:
            return open_columns(self.inputs, options, names)
        columns: Any = notes.get("columns")
        if labelled:
            return open_columns(self.inputs, {**options, "columns": columns}, None)
        return open_unlabelled_numbers(self.inputs, options, model.n_features, columns, target)

    # -- metrics -------------------------------------------------------------------------------------------------------
    def _print_metrics(self, model: Any) -> None:
        """Print the metrics of a model on the labelled rows of the inputs."""
        if self.output != "-" or self.resume or self.workers != "auto":
            raise ValueError(
                "--what metrics is printed, by one process: no --output, --resume or --workers goes with it"
            )
        self.output = None
        source = self._open_rows(model, labelled=True)
        require_labels(source)
        require_same_columns(model.predict, source)
        with open_output(self) as out:
            started = time.perf_counter()
            facts = compute_metrics(model, source)
            seconds = time.perf_counter() - started
            counts = None if self.json else facts.pop("confusion", None)
            out.report(facts | {"seconds": seconds, "rows_per_second": facts["examples"] / seconds})
            if counts is not None:
                _print_confusion(counts, out)


def interval_ends(model: SketchedRidge, rows: Any) -> NDArray[Any]:
    """Return the prediction intervals of rows as one array: columns of lower ends, then columns of upper ends."""
    return np.column_stack(model.predict_interval(rows))


def compute_metrics(model: Any, source: Source) -> dict[str, Any]:
    """Predict the labelled rows of a source, and return {name: metric}, computed with scikit-learn."""
    try:
        metrics = import_module("sklearn.metrics")
    except ImportError as error:
        raise ImportError("--what metrics needs scikit-learn: pip install 'fastsketch[sklearn]'") from error
    blocks: list[tuple[NDArray[Any], ...]] = []
    for one_source in source.each():
        row = 0
        for rows, labels, _ in one_source.chunks_beside():
            for start in range(0, len(labels), ROWS_AT_A_TIME):
                rows_slice = slice(start, start + ROWS_AT_A_TIME)
                with naming(one_source, row + start):
                    blocks.append(_predict_for_metrics(model, rows[rows_slice], labels[rows_slice]))
            row += len(labels)
    if not blocks:
        raise ValueError(f"{source.name} holds no rows")
    arrays = [np.concatenate(columns) for columns in zip(*blocks, strict=True)]
    if getattr(model, "classes", None) is None:
        return regression_metrics(metrics, *arrays)
    return classification_metrics(metrics, model.classes, *arrays)


def _predict_for_metrics(model: Any, rows: Any, labels: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Predict labelled rows, and return the tuple of arrays from which metrics are computed.

    For a classifier these are the class indices of labels and predictions, the predicted probabilities of the true
    classes, and the scores; for a regression the targets and the predictions.
    """
    classes = getattr(model, "classes", None)
    if classes is None:
        return np.asarray(labels, np.float64), model.predict(rows)  # a table of text gives words
    truth = class_indices(labels, classes)
    probabilities = model.predict_proba(rows)[np.arange(len(truth)), truth]
    return truth, class_indices(model.predict(rows), classes), probabilities, model.decision_function(rows)


def classification_metrics(
    metrics: Any, classes: NDArray[Any], truth: NDArray[Any], predicted: Any, probabilities: Any, scores: Any
) -> dict[str, Any]:
    """Return the metrics of a classifier as a dict: number of examples, accuracy, log loss, AUC and confusion matrix.

    Parameters
    ----------
    metrics : module
        ``sklearn.metrics``.
    classes : ndarray (k,)
    truth, predicted : ndarray (n,)
        Indices of the true and the predicted classes.
    probabilities : ndarray (n,)
        Predicted probabilities of the true classes.
    scores : ndarray (n,) or (n, k)
        Scores of the second of two classes, or of each class. The AUC of several classes is the mean of the AUCs of
        one class against all others, over classes with and without rows.
    """
    n, names = len(truth), list(map(format_label, classes))
    columns: dict[int, Any] = {1: scores} if scores.ndim == 1 else {k: scores[:, k] for k in range(len(classes))}
    binary_scores = {k: column for k, column in columns.items() if 0 < np.count_nonzero(truth == k) < n}
    areas = [metrics.roc_auc_score(truth == k, column) for k, column in binary_scores.items()]
    smallest_probability = np.finfo(np.float64).eps  # as scikit-learn clips probabilities, so that the loss is finite
    counts = metrics.confusion_matrix(truth, predicted, labels=range(len(classes)))
    return {
        "examples": n,
        "accuracy": metrics.accuracy_score(truth, predicted),
        "log_loss": float(-np.log(np.clip(probabilities, smallest_probability, 1.0)).mean()),
        "auc": float(np.mean(areas)) if areas else None,
        "confusion": {
            name: dict(zip(names, line, strict=True)) for name, line in zip(names, counts.tolist(), strict=True)
        },
    }


def regression_metrics(metrics: Any, targets: NDArray[Any], predictions: NDArray[Any]) -> dict[str, Any]:
    """Return the metrics of a regression as a dict: mean absolute error, root mean squared error and R^2.
    They are averaged over targets.

    r2 is None if a target is constant.
    """
    varies = bool((np.ptp(targets, axis=0) > 0).all())
    return {
        "examples": len(targets),
        "mean_absolute_error": metrics.mean_absolute_error(targets, predictions),
        "root_mean_squared_error": metrics.root_mean_squared_error(targets, predictions),
        "r2": metrics.r2_score(targets, predictions) if varies else None,
    }


def format_label(label: Any) -> str:
    """Format a class label as text; floats have at most nine digits."""
    return f"{label:.9g}" if isinstance(label, float) else str(label)


def class_indices(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.intp]:
    """Return the index of each label in the sorted classes.

    Raise ValueError that names the first label that is not among them.
    """
    indices = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
    unknown = classes[indices] != labels
    if unknown.any():
        row = int(np.argmax(unknown))
        known_classes = ", ".join(map(format_label, classes[:10])) + (", ..." if len(classes) > 10 else "")
        raise ValueError(
            f"row {row} has label {format_label(labels[row])}, which the model has never seen: it knows {known_classes}"
        )
    return indices


def _print_confusion(confusion: dict[str, dict[str, int]], out: Output) -> None:
    """Print the confusion matrix, unless it has more than MAX_SHOWN_LABELS labels."""
    if len(confusion) > MAX_PRINTED_LABELS:
        return
    out.print_lines("confusion: a line for each label, a column for what it was taken for")
    confusion = {escaped(name): line for name, line in confusion.items()}
    width = max(max(map(len, confusion)), *(len(f"{n:,}") for line in confusion.values() for n in line.values())) + 2
    out.print_lines(" " * width + "".join(f"{name:>{width}}" for name in confusion))
    for name, line in confusion.items():
        out.print_lines(f"{name:>{width}}" + "".join(f"{n:>{width},}" for n in line.values()))
