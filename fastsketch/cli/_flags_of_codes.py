"""The arguments of hash, quantize, encode and search."""

from typing import Any

from fastsketch.cli._flags import (
    choices,
    common,
    dtype,
    in_parts,
    map_job,
    or_none,
    parameter,
    progress,
    rows,
    seed,
    source,
)

# Choices are only shown here: the classes check them. A test compares both.
HASH_METHODS = ("srht", "fd", "exact", "countsketch", "sparse", "gaussian", "sampling", "auto")
METRICS = ("euclidean", "inner_product", "cosine", "hamming")


def add(commands: Any) -> None:
    """Add these commands."""
    _hash(commands)
    _quantize(commands)
    _encode(commands)
    _decode(commands)
    _search(commands)


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
    source(parser)
    in_parts(parser)
    common(parser, "_coding.hash_rows")


def _quantize(commands: Any) -> None:
    parser = commands.add_parser(
        "quantize",
        help="learn codes that find neighbours from the rows of files",
        description="Learn a quantizer from the rows of one or several files in one pass: codes of a few bytes a row "
        "that estimate distances. Reads the same files as 'sketch'.",
    )
    parser.add_argument("inputs", nargs="+", metavar="INPUT")
    parser.add_argument("-o", "--output", required=True, metavar="MODEL.fsk", help="file for the model")
    parameter(parser, "n_bytes", short="-b", type=int, default=20, metavar="N", help="bytes of a code (default 20)")
    parameter(parser, "method", metavar=choices(HASH_METHODS), help="how rows are summarised (default auto)")
    parameter(parser, "sketch_size", short="-l", type=int, metavar="L", help="rows of the sketch")
    parameter(parser, "block_rows", type=int, metavar="M", help="rows of a block (default: 4 per feature)")
    seed(parser, "of the random numbers")
    parameter(
        parser,
        "part",
        type=int,
        metavar="N",
        help="number of this part of a job whose models are to be merged (default 0)",
    )
    dtype(parser)
    source(parser)
    in_parts(parser)
    common(parser, "_coding.quantize")


def _encode(commands: Any) -> None:
    parser = commands.add_parser(
        "encode",
        help="codes of the rows of files",
        description="Encode the rows of files with a model of 'hash' or 'quantize'; codes are the rows of an .npy of "
        "uint8, or, with -o CODES.parquet, a column of binary values in a folder of files.",
    )
    parser.add_argument("model", metavar="MODEL.fsk")
    parser.add_argument("inputs", nargs="+", metavar="INPUT")
    parser.add_argument("-o", "--output", required=True, metavar="CODES.npy", help="or CODES.parquet, a folder; or -")
    parser.add_argument(
        "--factors", action="store_true", help="two factors behind each code of a hash, for better distances"
    )
    rows(parser)
    map_job(parser)
    common(parser, "_coding.encode")


def _decode(commands: Any) -> None:
    parser = commands.add_parser(
        "decode",
        help="the rows that codes stand for",
        description="What the codes of 'encode' stand for, as the rows of an .npy of float32: of a model of "
        "'quantize', or of 'hash', for codes with --factors.",
    )
    parser.add_argument("model", metavar="MODEL.fsk")
    parser.add_argument("codes", metavar="CODES.npy", help="codes from 'encode'")
    parser.add_argument("-o", "--output", required=True, metavar="ROWS.npy", help="file for the rows, or -")
    progress(parser)
    common(parser, "_decoding.decode")


def _search(commands: Any) -> None:
    parser = commands.add_parser(
        "search",
        help="nearest codes of query rows",
        description="Find the codes nearest to every row of a file: by estimates of the distance between the query "
        "and the row behind a code, or, of a hash, by Hamming distance; exactly, if the rows are there to rescore.",
    )
    parser.add_argument("model", metavar="MODEL.fsk")
    parser.add_argument("codes", metavar="CODES.npy", help="codes from 'encode'")
    parser.add_argument("queries", metavar="QUERIES", help="rows, as for 'hash'")
    parser.add_argument("--ids", metavar="IDS", help="what to call the codes, in their order: .npy, or text with lines")
    parser.add_argument(
        "--rescore", metavar="ROWS.npy", help="the rows behind the codes: the best candidates by exact distance"
    )
    parser.add_argument(
        "--metric", default="euclidean", metavar=choices(METRICS), help="what is near (default euclidean)"
    )
    searched(parser)
    common(parser, "_searching.search")


def searched(parser: Any) -> None:
    """The flags of every search."""
    parser.add_argument("-k", type=int, default=10, metavar="K", help="neighbours of a query (default 10)")
    parser.add_argument(
        "--oversample", type=float, default=4.0, metavar="C", help="rescore C times K candidates (default 4)"
    )
    parser.add_argument("--allow", metavar="IDS", help="find only these ids: .npy, or text with a line for each")
    parser.add_argument("-o", "--output", metavar="FOUND.npz", help="arrays 'indices' and 'distances'")
    rows(parser)
    parser.add_argument("--show", type=int, default=5, metavar="N", help="queries to print (default 5)")
