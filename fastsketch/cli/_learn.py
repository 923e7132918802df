"""The subcommand learn, which learns a linear model from labelled rows and prints its progressive loss."""

import inspect
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast, get_args

from fastsketch._core.losses import LOSSES
from fastsketch._core.validation import as_integer
from fastsketch._frame.parameters import TRUTH
from fastsketch.cli._flags import (
    TABLE_OPTIONS,
    TEXT_OPTIONS,
    Verb,
    as_column,
    flag,
    parameter,
    progress_format,
    split_names,
)
from fastsketch.cli._jobs import learn_rows, refuse_rereading_streams
from fastsketch.cli._labelled import (
    DIALECT_OPTIONS,
    detect_format,
    open_tables_to_learn,
    parse_target,
    require_labels,
    select_number_columns,
)
from fastsketch.cli._output import open_output
from fastsketch.cli._reading import reading_notes
from fastsketch.data.files import SourceError
from fastsketch.data.sources import Source, comes_once, open_rows, rename_beside_in_errors
from fastsketch.data.sources._source import MAX_FEATURES
from fastsketch.jobs._options import Job
from fastsketch.online import AdaptiveSubgradient, SketchedNewton
from fastsketch.ridge import SketchedRidge

LinearLearner = SketchedNewton | AdaptiveSubgradient
# Parameters that --regression sets: the defaults of the regressors in fastsketch.sklearn. A test compares both.
REGRESSION: dict[str, Any] = {"loss": "square"}
# The value of --method for SketchedRidge, which is not an online learner.
RIDGE = "ridge"
# Parameters that hold labels.
LABEL_PARAMETERS = ("classes", "class_weight")
# Entries of ``model.progress`` that the lines of --every show if they are known.
PRINTED_METRICS = ("mean_loss", "error_rate", "log_loss", "auc", "mean_absolute_error", "root_mean_squared_error")


@dataclass(kw_only=True)
class Learn(Verb):
    """Learn a linear model from svmlight text or from tables: csv (also .gz, .bz2, .xz; - is the standard input) or
    Parquet.

    The model takes sketched online Newton steps or adaptive subgradient steps: each example is predicted, then learned.
    Labels may be text or numbers, of any number of classes; 'predict' uses the model. A file that is sorted by label
    must be shuffled first. --method ridge learns real targets from columns of numbers by ridge regression, with a
    penalty that is chosen on held-out rows.

    Parameters
    ----------
    inputs : TRAIN
        svmlight text, or csv or Parquet with --target; the content decides
    output : MODEL.fsk
        file for the model
    target : COLUMN
        of tables: name or number (from 0) of the column of labels or values; of --method ridge also several: A,B
    regression
        targets are real numbers (the default loss is then square)
    every : N
        print loss, accuracy and more every N examples
    categorical : A,B,...
        columns whose values are words
    numeric : A,B,...
        columns whose values are numbers
    ignore : A,B,...
        columns that are left out
    fill : X
        with --method ridge: number that replaces missing values
    method : METHOD
        Newton steps, without a step size: rfd, fd, pfd; adaptive subgradients: ada_ffd, ada_fd, ada_full,
        ada_diag, fd_son, ftfsl, ftsl, ogd, adam; real targets in one pass: ridge (default rfd)
    sketch_size : L
        m, at least 2: the sketch has up to 2 m rows and shrinks to m - 1 (default 20, 128 of SketchedRidge)
    loss : {square,logistic,squared_hinge,huber,absolute}
        logistic and squared_hinge for labels; the others for real targets (default logistic)
    class_weight : WEIGHTS
        balanced: rare labels get more weight; or A=X,B=Y,...: the weight of each (default: equal weights)
    progress : {line,json}
        progress on standard error: a line (default: on a terminal), or lines of JSON
    resume
        continue the same command from OUTPUT.partial, which it has left when it was stopped; if there is none, start;
        refused if OUTPUT is finished

    Examples
    --------
    fastsketch learn customers.csv --target bought -o model.fsk
    fastsketch learn houses.csv --target price --method ridge -o prices.fsk
    """

    MODELS = ("SketchedNewton", "AdaptiveSubgradient", "SketchedRidge")
    SETTABLE = (*TEXT_OPTIONS, *TABLE_OPTIONS, "missing")

    inputs: list[str] = flag(nargs="+")
    output: str | None = flag("-o", "--output")
    target: Any = flag("--target", action="append", type=as_column)
    regression: bool = flag("--regression", action="store_true")
    every: int = flag("--every", type=int, default=0)
    categorical: list[str] | None = flag("--categorical", type=split_names)
    numeric: list[str] | None = flag("--numeric", type=split_names)
    ignore: list[str] | None = flag("--ignore", type=split_names)
    fill: float | None = flag("--fill", type=float)
    method: str | None = parameter("--method")
    sketch_size: str | None = parameter("-l", "--sketch-size")
    loss: str | None = parameter("--loss")
    class_weight: str | None = parameter("--class-weight")
    progress: Any = flag("--progress", type=progress_format)
    resume: bool = flag("--resume", action="store_true")

    def job(self, progress: Any) -> Job:
        """Return the options of the job, which reports its progress to the function `progress`."""
        return Job(resume=self.resume, progress=progress)

    def run(self) -> None:
        """Learn the rows of the inputs, print the progressive loss, and save the model."""
        as_integer(self.every, "--every", 0)
        if self.target is not None:
            if len(self.target) > 1:
                raise ValueError("--target must be given once: several targets, of --method ridge, are --target A,B")
            (self.target,) = self.target
        refuse_rereading_streams(self)
        rows_between_lines = 0 if self.json else self.every
        with name_flags_in_errors():
            if RIDGE in (self.method, self.settings.get("method")):
                (model, source, notes), hidden = self._open_ridge(), () if self.json else ("ridge_path",)
            else:
                (model, source, notes), hidden = self._open_online(), ("error_rate",) if self.regression else ()
            require_labels(source)
            with open_output(self) as out:

                def print_progress(model: Any) -> None:
                    out.print_lines(_format_progress(model.progress, self.regression))

                callback = print_progress if rows_between_lines else None
                facts = learn_rows(
                    self,
                    model,
                    out,
                    source,
                    notes=notes,
                    switches=self._resume_options(),
                    rows_between_calls=rows_between_lines,
                    callback=callback,
                )
                out.report({name: value for name, value in facts.items() if name not in hidden})

    def _open_online(self) -> tuple[Any, Source, dict[str, Any]]:
        """Create an online learner and open its labelled rows; return (learner, source, notes of how rows are read)."""
        if self.fill is not None:
            raise ValueError(f"--fill is of --method {RIDGE}: other methods learn a missing number as such")
        source, notes = self._open_labelled_rows()
        numbers = notes.get("table", {}).get("label_kind", "numeric") == "numeric"
        return create_learner(self, numeric_labels=numbers), source, notes

    def _open_ridge(self) -> tuple[Any, Source, dict[str, Any]]:
        """Create a ridge regression and open its rows with targets; return (model, source, notes of how rows are read).
        The setting ``method`` of this object is removed.
        """
        if self.categorical is not None or self.every or "missing" in self.reading:
            name = "categorical" if self.categorical is not None else "every" if self.every else "missing"
            advice = ": columns are numbers, --ignore A,B leaves others out, and --fill X fills in what is missing"
            raise ValueError(f"{self.flag_of(name)} does not belong to --method {RIDGE}{advice}")
        self.method = None  # it has chosen the class, which has no such parameter
        self.settings.pop("method", None)
        model, reading = SketchedRidge(**self.parameters(SketchedRidge)), self._reading()
        if self.target is None:
            self._refuse_tables()
            return model, open_rows(list(self.inputs), **reading), reading_notes(reading)
        with rename_beside_in_errors("--target"):
            target = parse_target(self.target)
            columns = select_number_columns(
                self.inputs, reading, target, self._columns("numeric"), self._columns("ignore")
            )
            notes = {**reading_notes(reading), "target": target, "columns": columns, "fill": self.fill}
            source = open_rows(list(self.inputs), **reading, fill=self.fill, beside=target, columns=columns)
        return model, source, notes

    # -- rows --------------------------------------------------------------------------------------------------------
    def _reading(self) -> dict[str, Any]:
        """Return the options of ``open_rows`` that the command line sets."""
        return {name: value for name, value in self.reading.items() if name != "missing"}

    def _columns(self, name: str) -> list[str | int] | None:
        """Convert the names or numbers of a flag such as --numeric to columns; None if the flag is not given."""
        columns = getattr(self, name)
        return None if columns is None else [as_column(column) for column in columns]

    def _resume_options(self) -> dict[str, Any]:
        """Return {name: value} of the arguments that must not differ when a job is resumed, except model parameters."""
        names = ("regression", "target", "categorical", "numeric", "ignore", "fill")
        # without n_features, which is found in the rows if it is not set
        reading = {name: value for name, value in self.reading.items() if name != "n_features"}
        return {**{name: getattr(self, name) for name in names}, **reading}

    def _open_labelled_rows(self) -> tuple[Source, dict[str, Any]]:
        """Open the labelled rows of an online learner; return (source, JSON notes of how the rows are read)."""
        if self.target is None:
            self._refuse_tables()
            table_flags = [name for name in ("categorical", "numeric", "ignore") if getattr(self, name) is not None]
            table_flags += [name for name in self.reading if name not in TEXT_OPTIONS]
            if table_flags:
                explanation = f"{self.inputs[0]} is read as svmlight text"
                raise ValueError(f"{self.flag_of(table_flags[0])} is of tables, with --target: {explanation}")
            any_width = TRUTH.get(self.settings.get("open_columns", "no"), False)
            return self._open_svmlight(MAX_FEATURES if any_width else self.reading.get("n_features"))
        for path in self.inputs:
            if not self.reading.get("separator") and detect_format(path) == "svmlight":
                raise ValueError(f"--target is of tables: {path} holds svmlight text, which has its labels in front")
        options = {"header": None, "separator": None, "decimal": ".", "missing": "feature"} | {
            name: value for name, value in self.reading.items() if name in (*DIALECT_OPTIONS, "missing")
        }
        kinds = {name: self._columns(name) or [] for name in ("categorical", "numeric", "ignore")}
        source, table_note = open_tables_to_learn(self.inputs, {**options, **kinds, "label": self.target})
        return source, {"table": table_note}

    def _refuse_tables(self) -> None:
        """Raise ValueError if an input is a table, of which --target must name the column of labels."""
        for path in self.inputs:
            if detect_format(path) == "table":
                raise ValueError(f"{path} is a table: --target names the column of labels")

    def _open_svmlight(self, n_features: int | None) -> tuple[Source, dict[str, Any]]:
        """Open the inputs as svmlight text, with `n_features` columns. Return (source, notes of how the rows are read).

        SourceError for a stream if `n_features` is None, because its rows can be read only once.
        """
        streams = [path for path in self.inputs if comes_once(path)]
        if streams and n_features is None:
            raise SourceError(
                f"{streams[0]} is no regular file, and is read once: how wide its rows are must be known (--set "
                "n_features=N or --set open_columns=yes)"
            )
        options: dict[str, Any] = {**self._reading(), "n_features": n_features}
        return open_rows(list(self.inputs), **options), reading_notes(options)


@contextmanager
def name_flags_in_errors() -> Generator[None]:
    """Replace --columns in the messages of SourceErrors that a ``with`` block raises by --numeric or --ignore."""
    try:
        yield
    except SourceError as error:
        message = str(error).replace("--columns", "--numeric or --ignore")
        hint = " (--ignore A,B leaves columns out)" if "no finite decimal" in message and "--" not in message else ""
        raise SourceError(message + hint) from None


def create_learner(verb: Learn, *, numeric_labels: bool = True) -> LinearLearner:
    """Return a new ``SketchedNewton`` or ``AdaptiveSubgradient``, as --method selects, with the command's parameters.

    Raise ValueError for parameters that this learner does not have. `numeric_labels` says whether labels are numbers;
    otherwise they are words.
    """
    parameters = verb.parameters(SketchedNewton, AdaptiveSubgradient)
    if verb.regression and not numeric_labels:
        raise ValueError(f"--regression needs targets that are numbers, and column {verb.target} of labels holds words")
    if numeric_labels:
        parameters |= {
            name: convert_labels(parameters[name], verb.flag_of(name))
            for name in LABEL_PARAMETERS
            if name in parameters
        }
    method = parameters.get("method")
    newton, adaptive = method_choices(SketchedNewton), method_choices(AdaptiveSubgradient)
    cls = SketchedNewton if method is None or method in newton else AdaptiveSubgradient
    learner_parameters = inspect.signature(cls).parameters
    if method is not None and method not in (*newton, *adaptive):
        raise ValueError(f"--method must be one of {', '.join((*newton, *adaptive, RIDGE))}, got {method!r}")
    for name in parameters:
        if name not in learner_parameters:
            raise ValueError(
                f"{verb.flag_of(name)} does not belong to --method {method or learner_parameters['method'].default}"
            )
    model = cls(**{**(REGRESSION if verb.regression else {}), **parameters})
    kind = LOSSES[model.loss].targets
    if kind == "label" and verb.regression:
        raise ValueError(f"--loss {model.loss} is of labels: it does not go with --regression")
    if kind != "label" and not verb.regression:
        raise ValueError(f"--loss {model.loss} is of real targets: it needs --regression")
    return model


def convert_labels(value: Any, name: str) -> Any:
    """Convert labels in a list, or in the keys of a dict, to float. Return other values unchanged."""
    if not isinstance(value, list | dict):
        return value
    try:
        labels = [float(label) for label in cast("list[str]", value)]
    except ValueError as error:
        raise ValueError(f"{name}: labels are numbers: {error}") from None
    return (
        labels if isinstance(value, list) else dict(zip(labels, cast("dict[str, float]", value).values(), strict=True))
    )


def method_choices(cls: type[LinearLearner]) -> tuple[str, ...]:
    """Return the values that a learner's parameter ``method`` may have."""
    return get_args(inspect.signature(cls).parameters["method"].annotation)


def _format_progress(progress: dict[str, Any], regression: bool) -> str:
    """Format the progressive metrics of a learner as one line of text."""
    metrics = [(name, progress.get(name)) for name in PRINTED_METRICS if not (regression and name == "error_rate")]
    texts = [f"{name.replace('_', ' ')} {value:.5f}" for name, value in metrics if value is not None]
    return "  ".join([f"{progress['n_rows']:>12,} examples", *texts])
