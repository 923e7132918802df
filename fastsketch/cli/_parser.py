"""The arguments of every command. Imports nothing heavy: --help must be quick."""

import argparse
from importlib import import_module

from fastsketch import __version__

RULES = ("fd", "pfd", "cfd", "isvd", "rfd")
SKETCHES = ("srht", "fd", "exact", "countsketch", "sparse", "gaussian", "sampling", "auto")
METHODS = ("ada-fd", "ada-ffd", "ada-full", "ada-diag", "ada-lr", "radagrad", "fd-son", "ogd", "adam")


def make_parser():
    parser = argparse.ArgumentParser(
        prog="fastsketch",
        description="Matrix sketches with a guarantee, binary codes, online learners and low-rank models, for "
        "rows that do not fit in memory.",
    )
    parser.add_argument("--version", action="version", version=f"fastsketch {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _sketch(commands)
    _merge(commands)
    _info(commands)
    _hash(commands)
    _encode(commands)
    _search(commands)
    _learn(commands)
    _complete(commands)
    _predict(commands)
    _recommend(commands)
    _demo(commands)
    return parser


def _lazy(module, function):
    def run(arguments):
        getattr(import_module(f"fastsketch.cli.{module}"), function)(arguments)

    return run


def _common(parser):
    parser.add_argument("--threads", type=int, metavar="N", help="at most N BLAS threads")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _sketch(commands):
    parser = commands.add_parser(
        "sketch",
        help="sketch the rows of files",
        description="Sketch the rows of one or several files in one pass. "
        "Reads .npy matrices and svmlight text (.gz, .bz2, .xz too) in constant memory, and scipy CSR .npz.",
    )
    parser.add_argument("inputs", nargs="+", metavar="INPUT")
    parser.add_argument("-o", "--output", required=True, metavar="OUT.fsk", help="file for the sketch")
    parser.add_argument("-l", "--sketch-size", type=int, default=64, metavar="L", help="rows to keep (default 64)")
    parser.add_argument("--rule", choices=RULES, default="rfd", help="member of the family (default rfd)")
    parser.add_argument("--alpha0", type=float, default=0.0, help="initial regulariser of rfd")
    parser.add_argument("--beta", type=float, help="share of rows that pfd shrinks (default 0.2)")
    parser.add_argument("--buffer-size", type=int, metavar="B", help="rows between shrinks (default L; 6 L for CSR)")
    parser.add_argument("--solver", choices=("auto", "gram", "svd", "exact"), default="auto")
    parser.add_argument("--center", action="store_true", help="subtract the mean, exactly and online")
    parser.add_argument("--decay", type=float, default=1.0, help="factor in (0, 1] on earlier rows at every new row")
    parser.add_argument("--dtype", choices=("float32", "float64"), help="default: that of the input")
    _source(parser)
    _long(parser)
    _common(parser)
    parser.set_defaults(run=_lazy("_commands", "sketch"))


def _source(parser):
    parser.add_argument("--features", type=int, metavar="D", help="columns of svmlight text (default: found first)")
    parser.add_argument("--zero-based", action="store_true", help="svmlight indices start at 0")


def _long(parser):
    parser.add_argument(
        "--checkpoint",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="keep a partial result this often (default 60, 0: never)",
    )
    parser.add_argument("--resume", action="store_true", help="go on from the partial result of the same command")
    parser.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="progress on standard error (default: on a terminal)",
    )


def _hash(commands):
    parser = commands.add_parser(
        "hash",
        help="learn binary codes from the rows of files",
        description="Learn hash functions from the rows of "
        "one or several files in one pass (FROSH). Reads what 'sketch' reads.",
    )
    parser.add_argument("inputs", nargs="+", metavar="INPUT")
    parser.add_argument("-o", "--output", required=True, metavar="MODEL.fsk", help="file for the model")
    parser.add_argument("-b", "--bits", type=int, default=64, metavar="R", help="bits of a code (default 64)")
    parser.add_argument("--sketch", choices=SKETCHES, default="srht", help="how rows are summarised (default srht)")
    parser.add_argument("-l", "--sketch-size", type=int, metavar="L", help="default 2 R")
    parser.add_argument("--block-rows", type=int, metavar="M", help="rows of a block (default 4 per feature)")
    parser.add_argument(
        "--rotation",
        choices=("random", "itq", "none"),
        default="itq",
        help="default itq, learned on a sample of the rows",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument(
        "--part", type=int, default=0, metavar="N", help="number of this part of a job whose models are to be merged"
    )
    parser.add_argument("--dtype", choices=("float32", "float64"), help="default: that of the input")
    _source(parser)
    _long(parser)
    _common(parser)
    parser.set_defaults(run=_lazy("_hashing", "hash_rows"))


def _encode(commands):
    parser = commands.add_parser(
        "encode",
        help="binary codes of the rows of files",
        description="Encode the rows of files with a model of 'hash'; codes are packed into an .npy of uint8.",
    )
    parser.add_argument("model", metavar="MODEL.fsk")
    parser.add_argument("inputs", nargs="+", metavar="INPUT")
    parser.add_argument("-o", "--output", required=True, metavar="CODES.npy")
    parser.add_argument("--zero-based", action="store_true", help="svmlight indices start at 0")
    parser.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="progress on standard error (default: on a terminal)",
    )
    _common(parser)
    parser.set_defaults(run=_lazy("_hashing", "encode"))


def _learn(commands):
    parser = commands.add_parser(
        "learn",
        help="learn a linear model from labelled rows, online",
        description="Learn a linear model from "
        "svmlight text (.gz, .bz2, .xz too) by sketched online Newton steps, or by adaptive subgradients: each example "
        "is predicted, then learned.",
    )
    parser.add_argument("inputs", nargs="+", metavar="TRAIN.svm")
    parser.add_argument("-o", "--output", metavar="MODEL.fsk", help="file for the model")
    parser.add_argument("--test", metavar="TEST.svm", help="accuracy (or error, with --regression) on these rows")
    parser.add_argument(
        "--method",
        choices=("newton", *METHODS),
        default="newton",
        help="default newton, which has no step size; the others take --eta and --delta",
    )
    parser.add_argument("-l", "--sketch-size", type=int, default=10, metavar="L", help="default 10")
    parser.add_argument("--eta", type=float, default=0.1, help="step size (default 0.1)")
    parser.add_argument("--delta", type=float, help="regulariser of H (default 1; 1e-8 for ada-diag and adam)")
    parser.add_argument("--form", choices=("cmd", "pds"), default="cmd", help="mirror descent or dual averaging")
    parser.add_argument("--penalty", choices=("l1", "l2"), help="with --strength")
    parser.add_argument("--strength", type=float, default=0.0)
    parser.add_argument(
        "--sketch",
        choices=("rfd", "fd", "pfd", "rp", "oja", "full"),
        default="rfd",
        help="default rfd, which needs no alpha0",
    )
    parser.add_argument(
        "--loss",
        choices=("square", "logistic", "squared_hinge", "huber", "absolute"),
        default="square",
        help="default square",
    )
    parser.add_argument("--alpha0", type=float, default=0.0, help="initial regulariser (default 0)")
    parser.add_argument(
        "--projection",
        choices=("same", "next", "both", "none"),
        default="same",
        help="of predictions to [-1, 1] (default same)",
    )
    parser.add_argument("--regression", action="store_true", help="labels are targets, not the two signs")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of rp and oja")
    parser.add_argument("--every", type=int, default=0, metavar="N", help="print loss and error rate every N examples")
    _source(parser)
    _long(parser)
    _common(parser)
    parser.set_defaults(run=_lazy("_learning", "learn_online"))


def _complete(commands):
    parser = commands.add_parser(
        "complete",
        help="fit a low-rank model to ratings",
        description="Fit a low-rank model to lines of row id, "
        "column id, value: comma- or tab-separated text (.gz, .bz2, .xz too), with or without a header; ids may be any "
        "text.",
    )
    parser.add_argument("ratings", metavar="RATINGS.csv")
    parser.add_argument("-o", "--output", required=True, metavar="MODEL.fsk", help="file for the model and the ids")
    parser.add_argument(
        "--loss",
        choices=("square", "logistic", "huber", "poisson", "l1", "hinge", "quantile", "epsilon_insensitive"),
        default="square",
        help="default square",
    )
    parser.add_argument("--loss-parameter", type=float, metavar="X", help="of huber, quantile, epsilon_insensitive")
    parser.add_argument("-r", "--rank", type=int, default=10, metavar="R", help="at most (default 10)")
    parser.add_argument(
        "--refine",
        choices=("economic", "full", "none"),
        default="economic",
        help="coefficients after each rank (default economic)",
    )
    parser.add_argument("--shrink", type=float, default=0.7, help="part of each step (default 0.7)")
    parser.add_argument("--sweeps", type=int, default=3, metavar="N", help="fits of both sides at the end (default 3)")
    parser.add_argument("--ridge", type=float, default=10.0, help="of those fits (default 10)")
    parser.add_argument("--validation", type=float, metavar="SHARE", help="of the ratings, held out to choose the rank")
    parser.add_argument(
        "--patience", type=int, metavar="N", help="stop after N ranks without a better validation score"
    )
    parser.add_argument("--clip", type=float, nargs=2, metavar=("LOW", "HIGH"), help="range of predictions")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32", help="default float32")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    _common(parser)
    parser.set_defaults(run=_lazy("_lowrank", "complete"))


def _predict(commands):
    parser = commands.add_parser(
        "predict",
        help="predictions of pairs by a model of 'complete'",
        description="Predict the value of lines of row id, column id; unknown ids are answered by the biases.",
    )
    parser.add_argument("model", metavar="MODEL.fsk")
    parser.add_argument("pairs", metavar="PAIRS.csv")
    parser.add_argument("-o", "--output", required=True, metavar="OUT.csv", help="row id, column id, prediction")
    parser.add_argument("-r", "--rank", type=int, metavar="R", help="default: that of the model")
    _common(parser)
    parser.set_defaults(run=_lazy("_lowrank", "predict"))


def _recommend(commands):
    parser = commands.add_parser(
        "recommend",
        help="best columns of rows by a model of 'complete'",
        description="Print the columns of the highest predictions for each row id.",
    )
    parser.add_argument("model", metavar="MODEL.fsk")
    parser.add_argument("ids", nargs="+", metavar="ID")
    parser.add_argument("-n", type=int, default=10, metavar="N", help="columns of each (default 10)")
    parser.add_argument("--exclude", metavar="RATINGS.csv", help="leave out the pairs of this file")
    parser.add_argument("-r", "--rank", type=int, metavar="R", help="default: that of the model")
    _common(parser)
    parser.set_defaults(run=_lazy("_lowrank", "recommend"))


def _search(commands):
    parser = commands.add_parser(
        "search",
        help="nearest codes of query rows",
        description="Find the codes nearest to every row of a file, exactly, by Hamming distance.",
    )
    parser.add_argument("model", metavar="MODEL.fsk")
    parser.add_argument("codes", metavar="CODES.npy", help="what 'encode' wrote")
    parser.add_argument("queries", metavar="QUERIES", help="rows, as for 'hash'")
    parser.add_argument("-k", type=int, default=10, metavar="K", help="neighbours of a query (default 10)")
    parser.add_argument("-o", "--output", metavar="FOUND.npz", help="arrays 'indices' and 'distances'")
    parser.add_argument("--zero-based", action="store_true", help="svmlight indices start at 0")
    parser.add_argument("--show", type=int, default=5, metavar="N", help="queries to print (default 5)")
    _common(parser)
    parser.set_defaults(run=_lazy("_hashing", "search"))


def _merge(commands):
    parser = commands.add_parser(
        "merge",
        help="merge sketches or hashes of the same parameters into one",
        description="Merge sketches, or hashes of different parts, into one.",
    )
    parser.add_argument("inputs", nargs="+", metavar="IN.fsk")
    parser.add_argument("-o", "--output", required=True, metavar="OUT.fsk")
    _common(parser)
    parser.set_defaults(run=_lazy("_commands", "merge"))


def _info(commands):
    parser = commands.add_parser(
        "info",
        help="what a state file holds: counts, certificate, spectrum",
        description="Show the counts of a model; of a sketch, certificate and spectrum too.",
    )
    parser.add_argument("input", metavar="IN.fsk")
    parser.add_argument("--top", type=int, default=10, metavar="K", help="singular values to print (default 10)")
    parser.add_argument("--plot", metavar="OUT.png", help="draw the spectrum (needs the extra 'plot')")
    _common(parser)
    parser.set_defaults(run=_lazy("_commands", "info"))


def _demo(commands):
    parser = commands.add_parser(
        "demo",
        help="sketch and hash patches of two photographs (needs the extras 'sklearn' and 'plot')",
        description="Run the main job on real input: every 16 x 16 colour patch of scikit-learn's two sample "
        "photographs as one stream of 768-dimensional rows; compare the certificate with the true error and the speed "
        "with IncrementalPCA; draw the spectrum. Then learn binary codes of the patches and draw what a search finds.",
    )
    parser.add_argument("--output", default="demo-output", metavar="DIR", help="folder for results")
    parser.add_argument("-l", "--sketch-size", type=int, default=32, metavar="L", help="rows to keep (default 32)")
    _common(parser)
    parser.set_defaults(run=_lazy("_demo", "demo"))
