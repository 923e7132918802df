"""The arguments of learn, predict and score."""

import argparse
from typing import Any

from fastsketch.cli._flags import (
    choices,
    common,
    dialect,
    listed,
    long,
    map_job,
    or_none,
    parameter,
    seed,
    widths,
    zero_based,
)

# Choices are only shown here: the classes check them. A test compares both.
NEWTON_METHODS = ("rfd", "fd", "pfd", "rp", "oja", "full")
ADAPTIVE_METHODS = ("ada_ffd", "ada_fd", "ada_full", "ada_diag", "fd_son", "ogd", "adam")
ONLINE_LOSSES = ("square", "logistic", "squared_hinge", "huber", "absolute")


def add(commands: Any) -> None:
    """Add these commands."""
    _learn(commands)
    _predict(commands)
    _score(commands)


def _learn(commands: Any) -> None:
    parser = commands.add_parser(
        "learn",
        help="learn a linear model from labelled rows, online",
        description="Learn a linear model from svmlight text or tables, csv (.gz, .bz2, .xz too; - is the standard "
        "input) or Parquet, by sketched online Newton steps, or by adaptive subgradients: each example is predicted, "
        "then learned. Labels may be any text or numbers, as many as there are; 'predict' and 'score' take the model.",
    )
    parser.add_argument("inputs", nargs="+", metavar="TRAIN", help="svmlight text, or csv or Parquet with --target")
    parser.add_argument("-o", "--output", metavar="MODEL.fsk", help="file for the model")
    parser.add_argument("--test", metavar="TEST", help="what 'score' says on these rows, when all is learned")
    parser.add_argument("--regression", action="store_true", help="labels are real targets")
    parser.add_argument(
        "--every", type=int, default=0, metavar="N", help="print loss, accuracy and more every N examples"
    )
    _table(parser)
    parameter(
        parser,
        "method",
        metavar="METHOD",
        help=f"Newton steps, without a step size: {', '.join(NEWTON_METHODS)}; adaptive subgradients: "
        f"{', '.join(ADAPTIVE_METHODS)} (default rfd)",
    )
    parameter(parser, "sketch_size", short="-l", type=int, metavar="L", help="size of the sketch (default 20)")
    parameter(
        parser,
        "loss",
        metavar=choices(ONLINE_LOSSES),
        help="(default logistic; with --regression square)",
    )
    parameter(parser, "loss_scale", type=float, metavar="X", help="factor on every loss (default 1)")
    seed(parser, "of rp and oja")
    _rows(parser.add_argument_group("rows and labels"), parser)
    newton = parser.add_argument_group("Newton steps")
    adaptive = parser.add_argument_group("adaptive subgradients")
    parameter(
        parser,
        "alpha0",
        group=newton,
        type=float,
        metavar="X",
        help="initial regulariser (default: found from the first row by rfd; the other methods need one)",
    )
    parameter(
        parser,
        "constraint",
        group=newton,
        type=or_none,
        metavar="{current,next,both,none}",
        help="examples whose predictions are kept within [-1, 1] (default: none)",
    )
    parameter(
        parser,
        "curvature",
        group=newton,
        metavar="{gradient,loss}",
        help="what H is made of (default: loss for real targets without --alpha0, else gradient)",
    )
    parameter(parser, "beta", group=newton, type=float, metavar="X", help="share that pfd shrinks (default: 0.2)")
    parameter(
        parser,
        "learning_rate",
        group=adaptive,
        type=float,
        metavar="X",
        help="factor on steps (default: by the method)",
    )
    parameter(
        parser,
        "delta",
        group=adaptive,
        type=float,
        metavar="X",
        help="regulariser of H (default: 1e-8 for ada_diag, ogd and adam; else 0.1, or 10 for dual_averaging)",
    )
    parameter(
        parser,
        "form",
        group=adaptive,
        metavar="{mirror_descent,dual_averaging}",
        help="how steps are made (default mirror_descent)",
    )
    parameter(
        parser,
        "penalty",
        group=adaptive,
        type=or_none,
        metavar="{l1,l2,none}",
        help="with --penalty-strength (default: none)",
    )
    parameter(parser, "penalty_strength", group=adaptive, type=float, metavar="X", help="of the penalty (default 0)")
    widths(parser)
    zero_based(parser)
    long(parser)
    common(parser, "_learning.learn_online")


def _rows(group: Any, parser: Any) -> None:
    """What a learner makes of rows and labels."""
    parameter(
        parser,
        "fit_intercept",
        group=group,
        action=argparse.BooleanOptionalAction,
        help="a constant that is learned with the coefficients (default True)",
    )
    parameter(
        parser,
        "scale",
        group=group,
        type=or_none,
        metavar="{moments,none}",
        help="columns by their running moments, or as they are (default moments)",
    )
    parameter(
        parser,
        "calibrate",
        group=group,
        action=argparse.BooleanOptionalAction,
        help="scores that say how likely a label is, learned as rows come (default True)",
    )
    parameter(
        parser,
        "blend",
        group=group,
        action=argparse.BooleanOptionalAction,
        help="with the scores of a diagonal learner (default: where that is another one)",
    )
    parameter(
        parser,
        "classes",
        group=group,
        type=listed,
        metavar="A,B,...",
        help="the labels that there are; others are refused (default: labels are added as they come)",
    )
    parameter(
        parser,
        "class_weight",
        group=group,
        type=_weights,
        metavar="WEIGHTS",
        help="balanced: rare labels weigh more; or A=X,B=Y,...: the weight of each (default: all weigh the same)",
    )
    parameter(
        parser,
        "decay",
        group=group,
        type=float,
        metavar="X",
        help="factor in (0, 1] on what earlier rows have taught, at every new row (default 1)",
    )
    parameter(
        parser,
        "drift",
        group=group,
        type=or_none,
        metavar="{restart,none}",
        help="restart: begin anew where the loss says that the stream has changed (default: none)",
    )
    parameter(
        parser,
        "open_columns",
        group=group,
        action="store_true",
        help="rows of svmlight text of any width: it is not read first to find it",
    )
    parameter(
        parser,
        "hash_bits",
        group=group,
        type=int,
        metavar="N",
        help="names of csv columns become 2^N columns by hashing (default: a vocabulary is kept in the model)",
    )


def _table(parser: Any) -> None:
    """How tables are read."""
    group = parser.add_argument_group("tables")
    group.add_argument("--target", metavar="COLUMN", help="name, or number from 1, of the column of labels")
    dialect(group)
    group.add_argument("--categorical", type=listed, metavar="A,B,...", help="columns whose values are words")
    group.add_argument("--numeric", type=listed, metavar="A,B,...", help="columns whose values are numbers")
    group.add_argument("--ignore", type=listed, metavar="A,B,...", help="columns that are not read")
    group.add_argument(
        "--missing",
        choices=("feature", "refuse"),
        default="feature",
        help="what an empty cell is: something to learn from, or an error (default feature)",
    )


def _weights(text: str) -> str | dict[str, float]:
    """ "balanced", or {label: weight}."""
    if "=" not in text:
        return text  # the class says what is right
    found: dict[str, float] = {}
    for part in text.split(","):
        label, _, weight = part.rpartition("=")
        try:
            found[label.strip()] = float(weight)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{part!r} is not LABEL=WEIGHT") from None
    return found


def _predict(commands: Any) -> None:
    parser = commands.add_parser(
        "predict",
        help="predictions of rows, or of pairs, by a model of 'learn' or 'complete'",
        description="With a model of 'learn': the label, or the value, of every row of svmlight text, csv tables, .npy "
        "and CSR .npz; what stands in the place of labels is not looked at. With one of 'complete': the value of lines "
        "of row id, column id; for unknown ids the biases answer.",
    )
    parser.add_argument("model", metavar="MODEL.fsk")
    parser.add_argument("inputs", nargs="+", metavar="ROWS", help="rows as for 'learn'; pairs as for 'complete'")
    parser.add_argument(
        "-o",
        "--output",
        default="-",
        metavar="OUT",
        help="csv, or .npy or .parquet (a folder) by its name (default: csv on the standard output)",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--probabilities",
        "--proba",
        action="store_true",
        help="a column for each label, with a header; of pairs the probability of +1",
    )
    what.add_argument("--scores", action="store_true", help="raw scores instead of labels")
    parser.add_argument("-r", "--rank", type=int, metavar="R", help="of pairs (default: that of the model)")
    dialect(parser.add_argument_group("tables"))
    zero_based(parser)
    map_job(parser)
    common(parser, "_answering.predict")


def _score(commands: Any) -> None:
    parser = commands.add_parser(
        "score",
        help="how good a model of 'learn' is on labelled rows",
        description="Accuracy, log loss, AUC and the counts of every label taken for every other; for real targets the "
        "mean absolute error, the root mean squared error and R^2. Reads rows as 'learn' does; csv tables need the "
        "column of labels that the model has learned, or --target.",
    )
    parser.add_argument("model", metavar="MODEL.fsk")
    parser.add_argument("inputs", nargs="+", metavar="ROWS", help="labelled rows, as for 'learn'")
    parser.add_argument(
        "--target", metavar="COLUMN", help="name, or number from 1, of the column of labels (default: as learned)"
    )
    dialect(parser.add_argument_group("tables"))
    zero_based(parser)
    map_job(parser, resumed=False)
    common(parser, "_answering.score")
