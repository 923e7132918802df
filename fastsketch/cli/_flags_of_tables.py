"""The arguments of what reads tables of ids: complete, items, recommend and evaluate."""

import argparse
from typing import Any

from fastsketch.cli._flags import (
    DTYPES,
    as_column,
    choices,
    common,
    dialect,
    in_parts,
    listed,
    parameter,
    seed,
    source,
)

# Choices are only shown here: the classes check them. A test compares both.
LOSSES = (
    "square",
    "logistic",
    "squared_hinge",
    "huber",
    "absolute",
    "hinge",
    "quantile",
    "epsilon_insensitive",
    "poisson",
)
ITEM_METHODS = ("isvd", "rfd")


def add(commands: Any) -> None:
    """Add these commands."""
    _complete(commands)
    _items(commands)
    _recommend(commands)
    _evaluate(commands)


def _complete(commands: Any) -> None:
    parser = commands.add_parser(
        "complete",
        help="fit a low-rank model to ratings",
        description="Fit a low-rank model to lines of row id, column id, value: comma- or tab-separated text (.gz, "
        ".bz2, .xz too), or Parquet; ids may be any text. Every line has as many columns as the first; those beyond "
        "the third are not looked at.",
    )
    parser.add_argument("ratings", metavar="RATINGS.csv")
    _columns(parser)
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
    common(parser, "_lowrank.complete")


def _steps(text: str) -> int | None:
    return None if text.lower() == "none" else int(text)


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
    in_parts(parser)
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
        type=as_column,
        metavar="C",
        help="name or number (from 1) of the column of times, numbers or ISO dates (of --split time, default 4; with "
        "it leave-one-out holds out the newest)",
    )
    _events(parser)
    common(parser, "_evaluate.evaluate")


def _columns(parser: Any) -> None:
    """What stands where in tables of ids."""
    group = parser.add_argument_group("tables")
    group.add_argument(
        "--columns",
        type=listed,
        metavar="A,B[,C]",
        help="names or numbers (from 0) of the columns of users, items and values (default: the first)",
    )
    dialect(group)


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
    _columns(parser)
    item = parser.add_argument_group("item model")
    parameter(
        parser, "sketch_size", short="-l", group=item, type=int, metavar="L", help="directions to keep (default 256)"
    )
    parameter(parser, "ridge", group=item, type=float, metavar="X", help="(default: chosen on users held out)")
    parameter(parser, "method", group=item, metavar="METHOD", help="of the sketch")
    seed(parser, "of what is held out")
    ratings = parser.add_argument_group("model of ratings")
    ratings.add_argument("-r", "--rank", type=int, metavar="R", help="(default 10, or that of the model)")
