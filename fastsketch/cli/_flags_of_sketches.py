"""The arguments of sketch, groups, audit, refine, merge, export and info."""

from typing import Any

from fastsketch.cli._flags import (
    choices,
    common,
    dtype,
    in_parts,
    map_job,
    parameter,
    progress,
    rows,
    source,
)

# Choices are only shown here: the classes check them. A test compares both.
METHODS = ("fd", "pfd", "cfd", "isvd", "rfd", "tfd")
GROUP_METHODS = ("rfd", "fd", "pfd", "cfd", "isvd")
SOLVERS = ("auto", "gram", "svd", "exact")


def add(commands: Any) -> None:
    """Add these commands."""
    _sketch(commands)
    _groups(commands)
    _transform(commands)
    _audit(commands)
    _refine(commands)
    _merge(commands)
    _export(commands)
    _info(commands)


def _sketch(commands: Any) -> None:
    parser = commands.add_parser(
        "sketch",
        help="sketch the rows of files",
        description="Sketch the rows of files in one pass, in constant memory: .npy, scipy .npz, svmlight text, csv, "
        "tsv and Matrix Market (.gz, .bz2, .xz too), Parquet, Arrow, HDF5, Zarr, AnnData; folders and quoted globs of "
        "them; - for standard input.",
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
    source(parser)
    in_parts(parser)
    common(parser, "_commands.sketch")


def _groups(commands: Any) -> None:
    parser = commands.add_parser(
        "groups",
        help="a sketch for each group of rows",
        description="Sketch every group of rows by itself, in one pass over rows that come in any order; the values of "
        "one column say which rows belong together. Groups that do not fit into memory go to temporary files.",
    )
    parser.add_argument("inputs", nargs="+", metavar="INPUT")
    parser.add_argument("--by", required=True, metavar="COLUMN", help="name or position (from 0) of the groups' column")
    parser.add_argument(
        "-o", "--output", required=True, metavar="OUT", help="OUT.fsk, OUT.parquet (a row for each group), or -"
    )
    parameter(parser, "sketch_size", short="-l", type=int, metavar="L", help="rows to keep of a group (default 16)")
    parameter(parser, "method", metavar=choices(GROUP_METHODS), help="member of the family (default rfd)")
    parameter(parser, "alpha0", type=float, metavar="X", help="initial regulariser of rfd (default 0)")
    parameter(parser, "beta", type=float, metavar="X", help="share of the rows that pfd shrinks (default: 0.2)")
    parameter(parser, "buffer_size", type=int, metavar="B", help="rows between shrinks (default: L)")
    parameter(parser, "center", action="store_true", help="subtract the mean of each group, exactly and online")
    dtype(parser)
    parser.add_argument(
        "--max-memory", type=float, default=1000.0, metavar="MB", help="megabytes for the groups (default 1000)"
    )
    parser.add_argument(
        "--temporary-folder", metavar="DIR", help="place for temporary files (default: the folder of the output)"
    )
    source(parser)
    progress(parser)
    common(parser, "_groups.groups")


def _transform(commands: Any) -> None:
    parser = commands.add_parser(
        "transform",
        help="the components of rows, or how unlikely they are, by a sketch or an estimator",
        description="Rows on the principal components that a sketch of 'sketch' has, or a saved estimator; or "
        "for each row one number: its log-density, or its squared Mahalanobis distance.",
    )
    parser.add_argument("model", metavar="SKETCH.fsk")
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help="rows, as for 'sketch'")
    parser.add_argument(
        "-o",
        "--output",
        default="-",
        metavar="OUT",
        help="csv, or .npy or .parquet (a folder) by its name (default: csv on the standard output)",
    )
    parser.add_argument(
        "-k", "--n-components", type=int, metavar="K", help="of a sketch (default: all that it tells from noise)"
    )
    parser.add_argument(
        "--what",
        default="components",
        metavar="{components,scores,distances}",
        help="log-densities, or squared distances, in place of components (default components)",
    )
    parser.add_argument("--beside", metavar="COLUMN", help="name or position of a column of ids, written beside these")
    rows(parser)
    map_job(parser)
    common(parser, "_transforming.transform")


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
    rows(parser)
    progress(parser)
    common(parser, "_commands.audit")


def _refine(commands: Any) -> None:
    parser = commands.add_parser(
        "refine",
        help="read the rows of a sketch once more: nearly exact values",
        description="Read the rows of a sketch once more: its singular values and directions come out nearly exact, as "
        "with 'sketch --passes 2'. Rows that are not those of the sketch are an error.",
    )
    parser.add_argument("model", metavar="SKETCH.fsk")
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help="the rows that the sketch has seen")
    parser.add_argument("-o", "--output", required=True, metavar="OUT.fsk", help="file for the sketch, or -")
    rows(parser)
    progress(parser)
    common(parser, "_commands.refine")


def _export(commands: Any) -> None:
    parser = commands.add_parser(
        "export",
        help="an array of a model as .npy",
        description="Write an array of a model as .npy: the rows of a sketch (sketch), its directions (components), "
        "singular_values, mean or gram; the projection of a hash; components or variances of a quantizer; coef of a "
        "learner; the popularity of items.",
    )
    parser.add_argument("model", metavar="MODEL.fsk")
    parser.add_argument("--array", default="sketch", metavar="NAME", help="what to write (default sketch)")
    parser.add_argument("--group", metavar="KEY", help="whose sketch, of a model of 'groups'")
    parser.add_argument("-o", "--output", required=True, metavar="OUT.npy", help="file for the array, or -")
    common(parser, "_commands.export")


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
