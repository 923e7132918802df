"""The verbs of rows: what each is for, the flags that it has, and examples, which its --help shows.

Nothing heavy is imported, and one verb alone is declared when a command runs. So what a help says of a parameter is
written here; a test holds choices and defaults against the declarations of the models.
"""

from fastsketch.cli._flags import (
    TABLES,
    TEXT,
    OneColumn,
    Parser,
    as_column,
    checkpointed,
    in_parts,
    listed,
    output,
    parameter,
    progress,
    row_by_row,
    rows,
    settings,
    verb,
)

LOSSES = "square,logistic,squared_hinge,huber,absolute"


# -- sketches ----------------------------------------------------------------------------------------------------------
@verb("sketch", "_commands.sketch", help="sketch the rows of files, or every group of them")
def _sketch(parser: Parser) -> None:
    """Sketch the rows of files in one pass, in constant memory: .npy, scipy .npz, svmlight text, csv, tsv and Matrix
    Market (.gz, .bz2, .xz too), Parquet, Arrow, HDF5, Zarr, AnnData; folders and quoted globs of them; - for standard
    input. With --by every group of rows has a separate sketch; rows may be in any order.

    Examples
    --------
    zcat rows.svm.gz | fastsketch sketch - --set n_features=20 -l 8 -o - | fastsketch info -
    fastsketch sketch rows.npy -l 8 --center -o rows.fsk
    fastsketch sketch rows.npy --refine rows.fsk -o refined.fsk
    fastsketch sketch sales.csv --by shop -l 4 -o shops.fsk
    """
    parser.add_argument("inputs", nargs="+", metavar="INPUT")
    output(parser, "OUT.fsk", "file for the sketch, or -")
    text = "most rows that the sketch keeps, at least 2 (default 64, 16 of GroupSketches)"
    parameter(parser, "sketch_size", "-l", metavar="L", help=text)
    parameter(
        parser,
        "method",
        metavar="{fd,pfd,cfd,isvd,rfd,tfd}",
        help="Frequent Directions: robust (rfd), plain (fd), with leading rows that keep their length (pfd, tfd), with "
        "compensated lengths (cfd); iterative SVD, without a guarantee (isvd) (default rfd)",
    )
    parameter(parser, "center", switch=True, help="subtract the mean of all rows, exactly and online")
    parameter(
        parser,
        "tolerance",
        metavar="X",
        help="a precision instead of a size: the sketch grows until its certified error is at most this share of "
        "the sum of squares",
    )
    parser.add_argument(
        "--passes", type=int, default=1, metavar="{1,2}", help="2: read the inputs once more (default 1)"
    )
    parser.add_argument(
        "--refine",
        metavar="SKETCH.fsk",
        help="read the rows of this sketch once more: its singular values and directions come out nearly exact, as "
        "with --passes 2; rows that are not those of the sketch are an error",
    )
    parser.add_argument("--by", type=as_column, metavar="COLUMN", help="name or number (from 0) of the groups' column")
    rows(parser, "FrequentDirections", "GroupSketches")
    in_parts(parser)


@verb("audit", "_commands.audit", help="measure the error of a sketch over its rows")
def _audit(parser: Parser) -> None:
    """Measure the spectral error of a sketch by Lanczos steps, a pass over its rows each (mostly 5 to 15, at most 40),
    beside the bound that its certificate gives. Reads the same files as 'sketch'; writes nothing. Exit status 1, after
    the report, if the rows are not those of the sketch or the error is above the bound.

    Examples
    --------
    fastsketch audit rows.fsk rows.npy
    """
    parser.add_argument("model", metavar="SKETCH.fsk")
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help="the rows that the sketch has seen")
    parser.add_argument("--accuracy", type=float, default=0.01, metavar="X", help="of the error (default 0.01)")
    rows(parser)
    progress(parser)


@verb("watch", "_watching.watch", help="print an alarm when the rows that come in are no longer as they were")
def _watch(parser: Parser) -> None:
    """Print a line of JSON for every change of a stream: where it began, what said it, and which columns carry it. The
    first blocks of rows are the reference, after an alarm the next ones. Reads the same files as 'sketch', and lines of
    a pipe as they come. Exit status 3 if there was an alarm, 0 if not. With --output a later call goes on where this
    one ended.

    Examples
    --------
    fastsketch watch rows.npy --every 50
    cat houses.csv | fastsketch watch - -o houses.fsk
    """
    parser.add_argument("inputs", nargs="+", metavar="INPUT")
    text = "file for the monitor, which goes on from it if it is there"
    output(parser, "MONITOR.fsk", text, default=None)
    parameter(parser, "every", metavar="N", help="rows of a block, many more than rows remember (default 100)")
    parameter(parser, "reference", metavar="N", help="blocks of the reference, at least 10 (default 60)")
    text = "the chance of a false alarm within n blocks is at most n / N (default 10000)"
    parameter(parser, "run_length", metavar="N", help=text)
    rows(parser, "DriftMonitor")


@verb("merge", "_commands.merge", help="merge models of the same parameters into one")
def _merge(parser: Parser) -> None:
    """Merge models of one kind and of the same parameters into one: sketches, hashes of different parts, or item
    models.

    Examples
    --------
    fastsketch sketch more.npy -l 8 --center -o - | fastsketch merge rows.fsk - -o all.fsk
    """
    parser.add_argument("inputs", nargs="+", metavar="IN.fsk")
    output(parser, "OUT.fsk", "file for the model, or -")


@verb("info", "_commands.info", help="counts, parameters, certificate, spectrum and arrays of a model")
def _info(parser: Parser) -> None:
    """Show the counts and parameters of a model or an index; of a sketch, certificate and spectrum too. With --array an
    array of it is written as .npy: the rows of a sketch (sketch), its directions (components), singular_values, mean or
    gram; the projection of a hash; components or variances of a quantizer; coef of a learner; the popularity of items.

    Examples
    --------
    fastsketch info all.fsk --json
    fastsketch info all.fsk --array components -o components.npy
    """
    parser.add_argument("input", metavar="IN.fsk")
    parser.add_argument(
        "--top", type=int, default=10, metavar="K", help="singular values, and lengths of rows, to print (default 10)"
    )
    parser.add_argument("--array", metavar="NAME", help="write this array")
    parser.add_argument("--group", metavar="KEY", help="whose array, of sketches of groups")
    output(parser, "OUT.npy", "file for the array, or -", default=None)


# -- neighbours --------------------------------------------------------------------------------------------------------
@verb("quantize", "_coding.quantize", help="learn codes that find neighbours from the rows of files")
def _quantize(parser: Parser) -> None:
    """Learn codes from the rows of one or several files in one pass: a quantizer, whose codes of a few bytes a row
    estimate distances, or, with --n-bits, binary hash functions (FROSH). Reads the same files as 'sketch'.

    Examples
    --------
    fastsketch quantize rows.npy -b 4 -o words.fsk
    fastsketch quantize rows.npy --n-bits 16 -o hash.fsk
    """
    parser.add_argument("inputs", nargs="+", metavar="INPUT")
    output(parser, "MODEL.fsk", "file for the model")
    parameter(
        parser,
        "n_bytes",
        "-b",
        metavar="N",
        help="bytes of a code, offset included: at least 2; at most what 8 bits for every feature take (default 20)",
    )
    parameter(
        parser, "n_bits", metavar="R", help="learn a hash of R bits, at most the number of features, not a quantizer"
    )
    rows(parser, "SketchQuantizer", "SketchHash")
    in_parts(parser)


@verb(
    "transform",
    "_coding.transform",
    help="components, densities or codes of rows, or the rows of codes",
)
def _transform(parser: Parser) -> None:
    """Write the answer of a model for every row: its principal components, or one number, its score or squared
    Mahalanobis distance (a model of 'sketch', or a saved estimator); its code (a model of 'quantize'), in an .npy of
    uint8 or a column of binary values of Parquet; or the row that a code stands for, in float32.

    Examples
    --------
    fastsketch transform rows.fsk 'rows*.npy' -k 4 -o scores.npy
    fastsketch transform words.fsk rows.npy -o codes.npy
    fastsketch transform words.fsk codes.npy --what rows -o - > decoded.npy
    """
    parser.add_argument("model", metavar="MODEL.fsk")
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help="rows, as for 'sketch'; with --what rows codes")
    parser.add_argument(
        "-k", "--n-components", type=int, metavar="K", help="of a sketch (default: all that it tells from noise)"
    )
    parser.add_argument(
        "--what",
        metavar="{components,scores,distances,codes,rows}",
        help="components, score_samples or squared distances (default components); of a model of 'quantize' codes, or "
        "the rows that codes stand for: of a hash, of codes with --factors (default codes)",
    )
    parser.add_argument(
        "--factors", action="store_true", help="two factors behind each code of a hash, for better distances"
    )
    parser.add_argument(
        "--beside", type=as_column, metavar="COLUMN", help="name or number (from 0) of a column of ids, written too"
    )
    rows(parser)
    row_by_row(parser)


# -- learners ----------------------------------------------------------------------------------------------------------
@verb("learn", "_learning.learn_online", help="learn a linear model from labelled rows, online")
def _learn(parser: Parser) -> None:
    """Learn a linear model from svmlight text or tables, csv (.gz, .bz2, .xz too; - is the standard input) or Parquet,
    by sketched online Newton steps, or by adaptive subgradients: each example is predicted, then learned. Labels may be
    any text or numbers, as many as there are; 'predict' takes the model. Shuffle a file that is sorted by label first.
    --method ridge learns real targets from columns of numbers, by a ridge regression whose penalty is chosen on rows
    held out.

    Examples
    --------
    fastsketch learn customers.csv --target bought -o model.fsk
    fastsketch learn houses.csv --target price --method ridge -o prices.fsk
    """
    parser.add_argument("inputs", nargs="+", metavar="TRAIN", help="svmlight text, or csv or Parquet with --target")
    output(parser, "MODEL.fsk", "file for the model", default=None)
    parser.add_argument("--test", metavar="TEST", help="what 'predict --what metrics' says on these rows, at the end")
    parser.add_argument(
        "--regression", action="store_true", help="labels are real targets (the default loss is then square)"
    )
    parser.add_argument(
        "--every", type=int, default=0, metavar="N", help="print loss, accuracy and more every N examples"
    )
    tables = parser.add_argument_group("tables (columns by name, or number from 0)")
    tables.add_argument(
        "--target",
        type=as_column,
        action=OneColumn,
        metavar="COLUMN",
        help="the column of labels, or of values; of --method ridge several: A,B",
    )
    tables.add_argument("--categorical", type=listed, metavar="A,B,...", help="columns whose values are words")
    tables.add_argument("--numeric", type=listed, metavar="A,B,...", help="columns whose values are numbers")
    tables.add_argument("--ignore", type=listed, metavar="A,B,...", help="columns that are not read")
    text = "with --method ridge: number in the place of what is missing"
    tables.add_argument("--fill", type=float, metavar="X", help=text)
    parameter(
        parser,
        "method",
        metavar="METHOD",
        help="Newton steps, without a step size: rfd, fd, pfd; adaptive subgradients: ada_ffd, ada_fd, ada_full, "
        "ada_diag, fd_son, ogd, adam; real targets in one pass: ridge (default rfd)",
    )
    text = "m, at least 2: the sketch has up to 2 m rows and shrinks to m - 1 (default 20, 128 of SketchedRidge)"
    parameter(parser, "sketch_size", "-l", metavar="L", help=text)
    parameter(
        parser,
        "loss",
        metavar=f"{{{LOSSES}}}",
        help="logistic and squared_hinge of labels, of any kind and number; the others of real targets (default "
        "logistic)",
    )
    parameter(
        parser,
        "class_weight",
        metavar="WEIGHTS",
        help="balanced: rare labels weigh more; or A=X,B=Y,...: the weight of each (default: all weigh the same)",
    )
    settings(parser, "SketchedNewton", "AdaptiveSubgradient", "SketchedRidge", reading=(*TEXT, *TABLES, "missing"))
    checkpointed(parser)


@verb("predict", "_answering.predict", help="predictions of rows, or of pairs, and how good they are")
def _predict(parser: Parser) -> None:
    """Predict, with a model of 'learn', the label, or the value, of every row of svmlight text, tables, .npy and CSR
    .npz; what stands in the place of labels is not looked at. With one of 'complete': the value of lines of row id,
    column id; for unknown ids the biases answer. With --what metrics labelled rows say how good the model is: accuracy,
    log loss, AUC and the counts of every label taken for every other; for real targets the mean absolute error, the
    root mean squared error and R^2.

    Examples
    --------
    fastsketch predict model.fsk customers.csv -o answers.csv
    fastsketch predict model.fsk customers.csv --what metrics
    """
    parser.add_argument("model", metavar="MODEL.fsk")
    parser.add_argument("inputs", nargs="+", metavar="ROWS", help="rows as for 'learn'; pairs as for 'complete'")
    parser.add_argument(
        "--what",
        choices=("labels", "probabilities", "scores", "intervals", "metrics"),
        default="labels",
        help="labels or values; a column for each label, with a header, and of pairs the probability of +1; raw "
        "scores; the ends of intervals that hold nine targets of ten, of --method ridge; or what the labels of the "
        "rows say of them (default labels)",
    )
    parser.add_argument(
        "--target",
        type=as_column,
        metavar="COLUMN",
        help="of --what metrics: name, or number from 0, of the column of labels (default: as learned)",
    )
    parser.add_argument("-r", "--rank", type=int, metavar="R", help="of pairs (default: that of the model)")
    settings(parser, reading=("zero_based", *TABLES))
    row_by_row(parser)
