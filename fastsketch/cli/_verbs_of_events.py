"""The verbs of events and ratings, and the rest: declared as those of rows, which stand before them in VERBS."""

from fastsketch.cli._flags import (
    ITEM_ROWS,
    TABLES,
    VERBS,
    Parser,
    as_column,
    events,
    events_columns,
    in_parts,
    output,
    parameter,
    rows,
    settings,
    verb,
)
from fastsketch.cli._verbs import LOSSES

__all__ = ["VERBS"]


# -- recommendations ---------------------------------------------------------------------------------------------------
@verb("complete", "_lowrank.complete", help="fit a low-rank model to ratings")
def _complete(parser: Parser) -> None:
    """Fit a low-rank model to lines of row id, column id, value: comma- or tab-separated text (.gz, .bz2, .xz too), or
    Parquet; ids may be any text. Every line has as many columns as the first; those beyond the third are not looked at.
    The model is of float32, unless --set dtype=float64.

    Examples
    --------
    fastsketch complete ratings.csv -r 2 -o ratings.fsk
    """
    parser.add_argument("ratings", metavar="RATINGS.csv")
    events_columns(parser)
    output(parser, "MODEL.fsk", "file for the model and the ids")
    parameter(
        parser,
        "loss",
        metavar=f"{{{LOSSES},hinge,quantile,epsilon_insensitive,poisson}}",
        help="square for stars and other ratings; huber and absolute where some values are far off; logistic, "
        "squared_hinge and hinge of labels -1 and 1, or 0 and 1; poisson of counts; quantile and epsilon_insensitive "
        "with --set loss_parameter (default square)",
    )
    parameter(parser, "rank", "-r", metavar="R", help="largest rank (default 10)")
    settings(parser, "LowRankModel", reading=TABLES)
    parser.add_argument(
        "--validation", type=float, metavar="SHARE", help="of the ratings, held out to choose rank and ridges"
    )
    parser.add_argument(
        "--patience", type=int, metavar="N", help="stop after N ranks without a better validation score"
    )


@verb("items", "_items.items", help="learn what to recommend from the rows of users")
def _items(parser: Parser) -> None:
    """Learn an item model (EASE from a sketch) from one or several files in one pass: a row is a user, a column an
    item, a value how much a user has had of it. Reads the same files as 'sketch'; 'recommend' takes the model, 'merge'
    puts models of several parts together. For tables of events (user, item, value) with ids of their own see
    'recommend'.

    Examples
    --------
    fastsketch items events.npz -l 4 --ridge 1 -o items.fsk
    """
    parser.add_argument("inputs", nargs="+", metavar="INPUT")
    output(parser, "MODEL.fsk", "file for the model, or -")
    parameter(parser, "sketch_size", "-l", metavar="L", help=ITEM_ROWS)
    parameter(
        parser,
        "ridge",
        metavar="X",
        help="in squared units of the weighted rows (if it is not given: what finds hidden items of a sample of users "
        "best)",
    )
    parser.add_argument("--binary", action="store_true", help="a value above 0 counts as 1")
    parser.add_argument("--names", metavar="NAMES.txt", help="names of the columns, one a line, for 'recommend'")
    rows(parser, "SketchedEASE")
    in_parts(parser)


@verb("recommend", "_recommend.recommend", help="best items for users, from their events or from a model")
def _recommend(parser: Parser) -> None:
    """Learn from lines of user, item and, if there is one, value which items go together (SketchedEASE), and print the
    best items for users; or ask a model that was saved by -o, or by 'complete'. Text as for 'complete'; without a third
    column a user's item counts 1, however often it comes; values of one user and item are added up. A user without
    events gets the most popular items, and the line says so. For lists of recommendations a model of ratings is mostly
    the wrong tool: 'evaluate' measures it.

    Examples
    --------
    fastsketch recommend ratings.csv alice bob -n 3
    """
    parser.add_argument("source", metavar="EVENTS.csv|MODEL.fsk", help="events to learn from, or a model")
    parser.add_argument("ids", nargs="*", metavar="ID", help="users (default: all of the file)")
    parser.add_argument("-n", type=int, default=10, metavar="N", help="items of each (default 10)")
    parser.add_argument("--events", metavar="FILE", help="what these users have, if not the file that is learned from")
    parser.add_argument("--items", nargs="+", metavar="ID", help="what one user has, instead of IDs")
    parser.add_argument("--exclude", metavar="PAIRS.csv", help="leave out these pairs of user and item")
    parser.add_argument("--allow", metavar="LIST", help="only these items: one a line, without a header")
    parser.add_argument("--include-seen", action="store_true", help="also what a user has in the events")
    parser.add_argument("--table", metavar="OUT.csv", help="write user, place, item, score there, or to -")
    output(parser, "MODEL.fsk", "save the model; alone: and print nothing else", default=None)
    parser.add_argument(
        "--model", dest="kind", choices=("item", "ratings", "popularity"), help="what is learned (default item)"
    )
    events(parser)
    settings(parser, "SketchedEASE", "LowRankModel", reading=TABLES)


@verb("evaluate", "_evaluate.evaluate", help="how good recommendations are on events held out")
def _evaluate(parser: Parser) -> None:
    """Hold out a part of the events, learn from the rest, and hold the recommendations against what was held out: NDCG,
    recall, precision, MAP, MRR and coverage of the first K, means over users with their standard errors, for several
    models beside a list of the most popular items.

    Examples
    --------
    fastsketch evaluate ratings.csv --split random
    """
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
        "--models", metavar="A,B", help="of item, ratings, popularity (default: all; ratings where there are values)"
    )
    parser.add_argument("-k", type=int, default=20, metavar="K", help="length of the lists that counts (default 20)")
    parser.add_argument(
        "--time-column",
        type=as_column,
        metavar="C",
        help="name or number (from 0) of the column of times, numbers or ISO dates (of --split time, default 3; with "
        "it leave-one-out holds out the newest)",
    )
    events(parser)
    settings(parser, "SketchedEASE", reading=TABLES)
