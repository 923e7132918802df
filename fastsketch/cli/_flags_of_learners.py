"""The arguments of learn, predict and score."""

from typing import Any

from fastsketch.cli._flags import (
    choices,
    common,
    long,
    or_none,
    parameter,
    renamed,
    seed,
    source,
)

# Choices are only shown here: the classes check them. A test compares both.
NEWTON_METHODS = ("rfd", "fd", "pfd", "rp", "oja", "full")
ADAPTIVE_METHODS = ("ada_ffd", "ada_fd", "ada_full", "ada_diag", "ada_lr", "radagrad", "fd_son", "ogd", "adam")
ONLINE_LOSSES = ("square", "logistic", "squared_hinge", "huber", "absolute")


def add(commands: Any) -> None:
    """Add these commands."""
    _learn(commands)
    _predict(commands)


def _learn(commands: Any) -> None:
    parser = commands.add_parser(
        "learn",
        help="learn a linear model from labelled rows, online",
        description="Learn a linear model from svmlight text (.gz, .bz2, .xz too) by sketched online Newton steps, or "
        "by adaptive subgradients: each example is predicted, then learned.",
    )
    parser.add_argument("inputs", nargs="+", metavar="TRAIN.svm")
    parser.add_argument("-o", "--output", metavar="MODEL.fsk", help="file for the model")
    parser.add_argument("--test", metavar="TEST.svm", help="accuracy (or error, with --regression) on these rows")
    parser.add_argument("--regression", action="store_true", help="labels are targets, not the two signs")
    parser.add_argument("--every", type=int, default=0, metavar="N", help="print loss and error rate every N examples")
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
        help="(default squared_hinge; with --regression square)",
    )
    parameter(parser, "loss_scale", type=float, metavar="X", help="factor on every loss (default 1)")
    seed(parser, "of rp, oja, ada_lr and radagrad")
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
        help="examples whose predictions are kept within [-1, 1] (default current)",
    )
    parameter(parser, "beta", group=newton, type=float, metavar="X", help="share that pfd shrinks (default: 0.2)")
    parameter(parser, "learning_rate", group=adaptive, type=float, metavar="X", help="factor on steps (default 0.1)")
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
    renamed(
        parser,
        {
            "--eta": "--learning-rate",
            "--strength": "--penalty-strength",
            "--sketch": "--method",
            "--projection": "--constraint",
        },
    )
    source(parser)
    long(parser)
    common(parser, "_learning.learn_online")


def _predict(commands: Any) -> None:
    parser = commands.add_parser(
        "predict",
        help="predictions of pairs by a model of 'complete'",
        description="Predict the value of lines of row id, column id; for unknown ids the biases answer.",
    )
    parser.add_argument("model", metavar="MODEL.fsk")
    parser.add_argument("pairs", metavar="PAIRS.csv")
    parser.add_argument("-o", "--output", required=True, metavar="OUT.csv", help="row id, column id, prediction")
    parser.add_argument("-r", "--rank", type=int, metavar="R", help="default: that of the model")
    parser.add_argument("--proba", action="store_true", help="probabilities of +1 instead of labels (loss logistic)")
    common(parser, "_lowrank.predict")
