"""The arguments of every command. Imports nothing heavy: --help must be quick."""

import argparse
from typing import Any

from fastsketch.cli._flags import (
    DTYPES,
    Parser,
    choices,
    common,
    dtype,
    long,
    or_none,
    parameter,
    progress,
    renamed,
    seed,
    source,
    zero_based,
)

# Choices are only shown here: the classes check them. A test compares both.
METHODS = ("fd", "pfd", "cfd", "isvd", "rfd", "tfd")
SOLVERS = ("auto", "gram", "svd", "exact")
HASH_METHODS = ("srht", "fd", "exact", "countsketch", "sparse", "gaussian", "sampling", "auto")
NEWTON_METHODS = ("rfd", "fd", "pfd", "rp", "oja", "full")
ITEM_METHODS = ("isvd", "rfd")
ADAPTIVE_METHODS = ("ada_ffd", "ada_fd", "ada_full", "ada_diag", "ada_lr", "radagrad", "fd_son", "ogd", "adam")
ONLINE_LOSSES = ("square", "logistic", "squared_hinge", "huber", "absolute")
LOSSES = (*ONLINE_LOSSES, "hinge", "quantile", "epsilon_insensitive", "poisson")


class _Version(argparse.Action):
    """Print the version and what it computes with."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from fastsketch import show_config

        show_config()
        parser.exit()


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line; every command sets ``run``, and ``parameters`` if it makes a model."""
    parser = Parser(
        prog="fastsketch",
        description="Matrix sketches with a guarantee, binary codes, online learners and low-rank models, for "
        "rows that do not fit in memory.",
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, help="show the version and what it computes with, and exit"
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _sketch(commands)
    _audit(commands)
    _merge(commands)
    _info(commands)
    _hash(commands)
    _encode(commands)
    _search(commands)
    _learn(commands)
    _complete(commands)
    _predict(commands)
    _items(commands)
    _recommend(commands)
    _evaluate(commands)
    _demo(commands)
    _warm_up(commands)
    return parser


# -- sketches ----------------------------------------------------------------------------------------------------------
def _sketch(commands: Any) -> None:
    parser = commands.add_parser(
        "sketch",
        help="sketch the rows of files",
        description="Sketch the rows of one or several files in one pass. "
        "Reads .npy matrices and svmlight text (.gz, .bz2, .xz too) in constant memory, and scipy CSR .npz.",
    )
    parser.add_argument("inputs", nargs="+", metavar="INPUT")
    parser.add_argument("-o", "--output", required=True, metavar="OUT.fsk", help="file for the sketch, or -")
    parameter(
        parser,
        "sketch_size",
        short="-l",
        type=int,
        metavar="L",
        help="rows to keep (default 64; with --tolerance where it starts: 4)",
    )
    parameter(parser, "method", metavar=choices(METHODS), help="member of the family (default rfd)")
    parameter(parser, "alpha0", type=float, metavar="X", help="initial regulariser of rfd (default 0)")
    parameter(
        parser, "beta", type=float, metavar="X", help="share of the rows that pfd and tfd shrink (default: 0.2, 0.45)"
    )
    parameter(
        parser, "buffer_size", type=int, metavar="B", help="rows between shrinks (default: L; 6 L for sparse rows)"
    )
    parameter(parser, "solver", metavar=choices(SOLVERS), help="how a shrink is computed (default auto)")
    parameter(parser, "center", action="store_true", help="subtract the mean, exactly and online")
    parameter(
        parser, "decay", type=float, metavar="X", help="factor in (0, 1] on earlier rows at every new row (default 1)"
    )
    parameter(
        parser,
        "tolerance",
        type=float,
        metavar="X",
        help="a precision instead of a size: rows to keep grow until the certificate is at most this share",
    )
    parameter(
        parser,
        "tolerance_relative_to",
        metavar="{squared_norm,largest_eigenvalue}",
        help="what --tolerance is a share of (default squared_norm)",
    )
    parameter(parser, "max_sketch_size", type=int, metavar="L", help="most rows to keep for --tolerance")
    dtype(parser)
    parser.add_argument(
        "--passes",
        type=int,
        default=1,
        metavar="{1,2}",
        help="2: read the inputs once more (default 1)",
    )
    renamed(parser, {"--rule": "--method"})
    source(parser)
    long(parser)
    common(parser, "_commands.sketch")


def _audit(commands: Any) -> None:
    parser = commands.add_parser(
        "audit",
        help="measure the error of a sketch over its rows",
        description="Measure the spectral error of a sketch by Lanczos steps, a pass over its rows each (mostly 5 to "
        "15, at most 40), beside the bound that its certificate gives. Reads the same files as 'sketch'; writes "
        "nothing. Exit status 1, after the report, if the rows are not those of the sketch or the error is above "
        "the bound.",
    )
    parser.add_argument("model", metavar="SKETCH.fsk")
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help="the rows that the sketch has seen")
    parser.add_argument("--accuracy", type=float, default=0.01, metavar="X", help="of the error (default 0.01)")
    zero_based(parser)
    progress(parser)
    common(parser, "_commands.audit")


def _merge(commands: Any) -> None:
    parser = commands.add_parser(
        "merge",
        help="merge models of the same parameters into one",
        description="Merge models of one kind and of the same parameters into one: sketches, hashes of different "
        "parts, or item models.",
    )
    parser.add_argument("inputs", nargs="+", metavar="IN.fsk")
    parser.add_argument("-o", "--output", required=True, metavar="OUT.fsk")
    common(parser, "_commands.merge")


def _info(commands: Any) -> None:
    parser = commands.add_parser(
        "info",
        help="counts, parameters, certificate and spectrum of a model",
        description="Show the counts and parameters of a model; of a sketch, certificate and spectrum too.",
    )
    parser.add_argument("input", metavar="IN.fsk")
    parser.add_argument(
        "--top", type=int, default=10, metavar="K", help="singular values, and lengths of rows, to print (default 10)"
    )
    parser.add_argument("--plot", metavar="OUT.png", help="draw the spectrum (needs the extra 'plot')")
    common(parser, "_commands.info")


# -- codes -------------------------------------------------------------------------------------------------------------
def _hash(commands: Any) -> None:
    parser = commands.add_parser(
        "hash",
        help="learn binary codes from the rows of files",
        description="Learn hash functions from the rows of one or several files in one pass (FROSH). Reads "
        "the same files as 'sketch'.",
    )
    parser.add_argument("inputs", nargs="+", metavar="INPUT")
    parser.add_argument("-o", "--output", required=True, metavar="MODEL.fsk", help="file for the model")
    parameter(parser, "n_bits", short="-b", type=int, default=64, metavar="R", help="bits of a code (default 64)")
    parameter(parser, "method", metavar=choices(HASH_METHODS), help="how rows are summarised (default srht)")
    parameter(parser, "sketch_size", short="-l", type=int, metavar="L", help="rows of the sketch (default: 2 R)")
    parameter(parser, "block_rows", type=int, metavar="M", help="rows of a block (default: 4 per feature)")
    parameter(
        parser,
        "rotation",
        type=or_none,
        metavar="{random,itq,none}",
        help="itq is learned on a sample of the rows (default itq)",
    )
    seed(parser, "of the random numbers")
    parameter(
        parser,
        "part",
        type=int,
        metavar="N",
        help="number of this part of a job whose models are to be merged (default 0)",
    )
    dtype(parser)
    renamed(parser, {"--bits": "--n-bits", "--sketch": "--method"})
    source(parser)
    long(parser)
    common(parser, "_hashing.hash_rows")


def _encode(commands: Any) -> None:
    parser = commands.add_parser(
        "encode",
        help="binary codes of the rows of files",
        description="Encode the rows of files with a model of 'hash'; codes are packed into an .npy of uint8.",
    )
    parser.add_argument("model", metavar="MODEL.fsk")
    parser.add_argument("inputs", nargs="+", metavar="INPUT")
    parser.add_argument("-o", "--output", required=True, metavar="CODES.npy")
    zero_based(parser)
    progress(parser)
    common(parser, "_hashing.encode")


def _search(commands: Any) -> None:
    parser = commands.add_parser(
        "search",
        help="nearest codes of query rows",
        description="Find the codes nearest to every row of a file, exactly, by Hamming distance.",
    )
    parser.add_argument("model", metavar="MODEL.fsk")
    parser.add_argument("codes", metavar="CODES.npy", help="codes from 'encode'")
    parser.add_argument("queries", metavar="QUERIES", help="rows, as for 'hash'")
    parser.add_argument("-k", type=int, default=10, metavar="K", help="neighbours of a query (default 10)")
    parser.add_argument("-o", "--output", metavar="FOUND.npz", help="arrays 'indices' and 'distances'")
    zero_based(parser)
    parser.add_argument("--show", type=int, default=5, metavar="N", help="queries to print (default 5)")
    common(parser, "_hashing.search")


# -- online learners ---------------------------------------------------------------------------------------------------
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
        help="(default logistic; with --regression square)",
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
    parameter(parser, "learning_rate", group=adaptive, type=float, metavar="X", help="factor on steps")
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


# -- low-rank models ---------------------------------------------------------------------------------------------------
def _steps(text: str) -> int | None:
    return None if text.lower() == "none" else int(text)


def _complete(commands: Any) -> None:
    parser = commands.add_parser(
        "complete",
        help="fit a low-rank model to ratings",
        description="Fit a low-rank model to lines of row id, column id, value: comma- or tab-separated text (.gz, "
        ".bz2, .xz too), with or without a header (its third column is a word without digits); ids may be any text. "
        "Every line has as many columns as the first; those beyond the third are not looked at.",
    )
    parser.add_argument("ratings", metavar="RATINGS.csv")
    parser.add_argument("-o", "--output", required=True, metavar="MODEL.fsk", help="file for the model and the ids")
    parameter(parser, "loss", metavar=choices(LOSSES), help="(default square)")
    parameter(
        parser,
        "loss_parameter",
        type=float,
        metavar="X",
        help="of huber, epsilon_insensitive (default: from the data), quantile (0.5)",
    )
    parameter(parser, "rank", short="-r", type=int, metavar="R", help="at most (default 10)")
    parameter(parser, "refine", metavar="{economic,full,none}", help="coefficients after each rank (default economic)")
    parameter(
        parser,
        "max_refine_steps",
        type=_steps,
        metavar="{N,none}",
        help="Newton steps of that at most (default 2), none: as many as it takes",
    )
    parameter(parser, "learning_rate", type=float, metavar="X", help="share of each step (default 0.7)")
    parameter(parser, "sweeps", type=int, metavar="N", help="fits of both sides at the end (default 4)")
    parameter(
        parser,
        "ridge",
        type=float,
        metavar="X",
        help="penalty on the factors in those fits, in noise levels of the data (default: 1, or by --validation)",
    )
    parameter(
        parser,
        "bias_ridge",
        type=float,
        metavar="X",
        help="observations that biases are shrunk by (default: 3, of labels 2, or by --validation)",
    )
    parameter(parser, "clip", type=float, nargs=2, metavar=("LOW", "HIGH"), help="range of predictions")
    parameter(parser, "dtype", default="float32", metavar=DTYPES, help="of the model (default float32)")
    seed(parser, "of the random numbers")
    parser.add_argument(
        "--validation", type=float, metavar="SHARE", help="of the ratings, held out to choose rank and ridges"
    )
    parser.add_argument(
        "--patience", type=int, metavar="N", help="stop after N ranks without a better validation score"
    )
    renamed(parser, {"--shrink": "--learning-rate"})
    common(parser, "_lowrank.complete")


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


# -- recommending ------------------------------------------------------------------------------------------------------
def _items(commands: Any) -> None:
    parser = commands.add_parser(
        "items",
        help="learn what to recommend from the rows of users",
        description="Learn an item model (EASE from a sketch) from one or several files in one pass: a row is a user, "
        "a column an item, a value how much a user has had of it. Reads the same files as 'sketch'; 'recommend' "
        "takes the model, 'merge' puts models of several parts together. For tables of events (user, item, "
        "value) with ids of their own see 'recommend'.",
    )
    parser.add_argument("inputs", nargs="+", metavar="INPUT")
    parser.add_argument("-o", "--output", required=True, metavar="MODEL.fsk", help="file for the model, or -")
    parameter(parser, "sketch_size", short="-l", type=int, metavar="L", help="rows of the sketch (default 256)")
    parameter(parser, "ridge", type=float, metavar="X", help="(default: chosen on users who are held out)")
    parameter(parser, "method", metavar=choices(ITEM_METHODS), help="member of the family (default isvd)")
    parameter(
        parser,
        "activity_power",
        type=float,
        metavar="X",
        help="a user weighs as the sum of squares of the row to minus this (default 0.5)",
    )
    parameter(
        parser,
        "dropout",
        type=float,
        metavar="X",
        help="share of events that weights are learned to do without (default 0.5)",
    )
    parameter(
        parser, "decay", type=float, metavar="X", help="factor in (0, 1] on earlier rows at every new row (default 1)"
    )
    parameter(parser, "reservoir_size", type=int, metavar="N", help="users held out to choose the ridge (default 500)")
    parameter(parser, "dtype", metavar=DTYPES, help="of the model (default: float32)")
    seed(parser, "of the choice of users held out")
    parser.add_argument("--binary", action="store_true", help="a value above 0 counts as 1")
    parser.add_argument("--names", metavar="NAMES.txt", help="names of the columns, one a line, for 'recommend'")
    source(parser)
    long(parser)
    common(parser, "_items.items")


def _recommend(commands: Any) -> None:
    parser = commands.add_parser(
        "recommend",
        help="best items for users, from their events or from a model",
        description="Learn from lines of user, item and perhaps a value what goes with what (SketchedEASE), and print "
        "the best items for users; or ask a model that was saved by -o, or by 'complete'. Text as for 'complete'; "
        "without a third column every line counts 1, and values of one user and item are added up. A user without "
        "events gets the most popular items, and the line says so. For lists of recommendations a model of ratings is "
        "mostly the wrong tool: 'evaluate' measures it.",
    )
    parser.add_argument("source", metavar="EVENTS.csv|MODEL.fsk", help="events to learn from, or a model")
    parser.add_argument("ids", nargs="*", metavar="ID", help="users (default: all of the file)")
    parser.rest = "ids"
    parser.add_argument("-n", type=int, default=10, metavar="N", help="items of each (default 10)")
    parser.add_argument("--events", metavar="FILE", help="what these users have, if not the file that is learned from")
    parser.add_argument("--items", nargs="+", metavar="ID", help="what one user has, instead of IDs")
    parser.add_argument("--exclude", metavar="PAIRS.csv", help="leave out these pairs of user and item")
    parser.add_argument("--allow", metavar="LIST", help="only these items: one a line, without a header")
    parser.add_argument("--include-seen", action="store_true", help="also what a user has in the events")
    parser.add_argument("--table", metavar="OUT.csv", help="write user, place, item, score there, or to -")
    parser.add_argument("-o", "--output", metavar="MODEL.fsk", help="save the model; alone: and print nothing else")
    parser.add_argument(
        "--model", dest="kind", choices=("item", "ratings", "popularity"), help="what is learned (default item)"
    )
    _events(parser)
    common(parser, "_recommend.recommend")


def _evaluate(commands: Any) -> None:
    parser = commands.add_parser(
        "evaluate",
        help="how good recommendations are on events held out",
        description="Hold out a part of the events, learn from the rest, and hold the recommendations against what was "
        "held out: NDCG, recall, precision, MAP, MRR and coverage of the first K, means over users with their standard "
        "errors, for several models beside a list of the most popular items.",
    )
    parser.add_argument("source", metavar="EVENTS.csv")
    parser.add_argument(
        "--split",
        choices=("random", "leave-one-out", "time", "users"),
        default="random",
        help="what is held out: a share of the events, one of each user, the newest share, or users, who show "
        "80%% of their items (default random)",
    )
    parser.add_argument("--share", type=float, metavar="X", help="of the events, or users, held out (default 0.2)")
    parser.add_argument(
        "--models",
        metavar="A,B",
        help="of item, ratings, popularity (default: all; ratings where there are values)",
    )
    parser.add_argument("-k", type=int, default=20, metavar="K", help="length of the lists that counts (default 20)")
    parser.add_argument(
        "--time-column",
        type=int,
        metavar="C",
        help="number of the column of times, numbers or ISO dates (of --split time, default 4; with it leave-one-out "
        "holds out the newest)",
    )
    _events(parser)
    common(parser, "_evaluate.evaluate")


def _events(parser: Any) -> None:
    """The flags of what reads events, and of what is learned from them."""
    parser.add_argument(
        "--relevant",
        type=float,
        metavar="X",
        help="values from X on count as 1, lower ones as seen and no more (4 for five stars)",
    )
    parser.add_argument("--binary", action="store_true", help="every event counts 1, whatever its value, however often")
    parser.add_argument(
        "--values",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="whether the third column is a value (default: if there is one and it is not that of times)",
    )
    parser.add_argument(
        "--header",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="whether the first line is a header (default: if its third column is a word, or, without values, if it "
        "begins with words like user and item, without digits)",
    )
    item = parser.add_argument_group("item model")
    parameter(
        parser, "sketch_size", short="-l", group=item, type=int, metavar="L", help="directions to keep (default 256)"
    )
    parameter(parser, "ridge", group=item, type=float, metavar="X", help="(default: chosen on users held out)")
    parameter(parser, "method", group=item, metavar="METHOD", help="of the sketch")
    seed(parser, "of what is held out")
    ratings = parser.add_argument_group("model of ratings")
    ratings.add_argument("-r", "--rank", type=int, metavar="R", help="(default 10, or that of the model)")


def _demo(commands: Any) -> None:
    parser = commands.add_parser(
        "demo",
        help="sketch and hash patches of two photographs (needs the extras 'sklearn' and 'plot')",
        description="Run the main job on real input: every 16 x 16 colour patch of scikit-learn's two sample "
        "photographs as one stream of 768-dimensional rows; compare the certificate with the true error and the speed "
        "with IncrementalPCA; draw the spectrum. Then learn binary codes of the patches, search them, and draw the "
        "results.",
    )
    parser.add_argument("--output", default="demo-output", metavar="DIR", help="folder for results")
    parser.add_argument(
        "-l", "--sketch-size", type=int, default=32, metavar="L", help="rows of the sketch (default 32)"
    )
    common(parser, "_commands.demo")


def _warm_up(commands: Any) -> None:
    parser = commands.add_parser(
        "warm-up",
        help="compile what first updates and fits compile, for containers",
        description="Compile the loops that the first update of a SketchedNewton or the first fit of a LowRankModel "
        "compiles, and keep them where numba keeps such things: beside the package if that can be written to, else in "
        "the user's cache folder, or in NUMBA_CACHE_DIR. Run it once where the image of a container is made: its "
        "processes then read them, also where nothing can be written.",
    )
    common(parser, "_warm_up.warm_up")
