"""The arguments of every command. Imports nothing heavy: --help must be quick."""

import argparse
from importlib import import_module

from fastsketch import __version__

RULES = ("fd", "pfd", "cfd", "isvd", "rfd")


def make_parser():
    parser = argparse.ArgumentParser(
        prog="fastsketch", description="Matrix sketches with a guarantee, for rows that do not fit in memory."
    )
    parser.add_argument("--version", action="version", version=f"fastsketch {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _sketch(commands)
    _merge(commands)
    _info(commands)
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
        "sketch", help="sketch the rows of files", description="Sketch the rows of one or several files in one pass. "
        "Reads .npy matrices and svmlight text (.gz, .bz2, .xz too) in constant memory, and scipy CSR .npz."
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
    parser.add_argument("--features", type=int, metavar="D", help="columns of svmlight text (default: found first)")
    parser.add_argument("--zero-based", action="store_true", help="svmlight indices start at 0")
    parser.add_argument("--checkpoint", type=float, default=60.0, metavar="SECONDS",
                        help="keep a partial result this often (default 60, 0: never)")
    parser.add_argument("--resume", action="store_true", help="go on from the partial result of the same command")
    parser.add_argument("--progress", action=argparse.BooleanOptionalAction, default=None,
                        help="progress on standard error (default: on a terminal)")
    _common(parser)
    parser.set_defaults(run=_lazy("_commands", "sketch"))


def _merge(commands):
    parser = commands.add_parser("merge", help="merge sketches of the same parameters into one",
                                 description="Merge sketches of the same parameters into one.")
    parser.add_argument("inputs", nargs="+", metavar="IN.fsk")
    parser.add_argument("-o", "--output", required=True, metavar="OUT.fsk")
    _common(parser)
    parser.set_defaults(run=_lazy("_commands", "merge"))


def _info(commands):
    parser = commands.add_parser("info", help="counts, certificate and spectrum of a sketch",
                                 description="Show the counts, the certificate and the spectrum of a sketch.")
    parser.add_argument("input", metavar="IN.fsk")
    parser.add_argument("--top", type=int, default=10, metavar="K", help="singular values to print (default 10)")
    parser.add_argument("--plot", metavar="OUT.png", help="draw the spectrum (needs the extra 'plot')")
    _common(parser)
    parser.set_defaults(run=_lazy("_commands", "info"))


def _demo(commands):
    parser = commands.add_parser(
        "demo", help="sketch the patches of two photographs (needs the extras 'sklearn' and 'plot')",
        description="Run the main job on real input: every 16 x 16 colour patch of scikit-learn's two sample "
        "photographs as one stream of 768-dimensional rows; compare the certificate with the true error and the speed "
        "with IncrementalPCA; draw the spectrum."
    )
    parser.add_argument("--output", default="demo-output", metavar="DIR", help="folder for results")
    parser.add_argument("-l", "--sketch-size", type=int, default=32, metavar="L", help="rows to keep (default 32)")
    _common(parser)
    parser.set_defaults(run=_lazy("_demo", "demo"))
