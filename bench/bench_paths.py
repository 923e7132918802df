"""What each rank or iteration is worth (GLRL, Figures 1 and 2): errors against seconds."""

import numpy as np

import fastsketch as fs
from bench_lowrank_sets import halves, links_of, matrix, ratings_of, tenths
from bench_signs import BARE as PLAIN
from bench_signs import GREEDY as SIGNS
from bench_stars import BARE, GREEDY, MOST
from bench_tools import table
from fastsketch.reference.baselines import AISImpute, AltMin

LINKS, STARS = "signed links: accuracy, %", "stars, absolute loss: MABS in spreads"


def paths(args):
    """The first split of `signs` and of `stars`, with settings that were chosen there on training entries."""
    panels = {}
    links = links_of("bitcoin-OTC" if args.quick else "Epinions")
    if links is not None:
        panels[LINKS] = _links(links, penalty=2.0 if args.quick else 4.0)
    stars = ratings_of("ML-100K" if args.quick else "ML-1M")
    if stars is not None:
        panels[STARS] = _stars(stars)
    out = [
        [panel, label, len(points), f"{points[-1][0]:.2f}", f"{points[-1][1]:.4g}"]
        for panel, lines in panels.items()
        for label, points in lines.items()
    ]
    table(out, ["what", "method", "points", "s", "at the end"], "main", runs="1 split")
    lines = [
        [panel, label, f"{seconds:.4g}", f"{value:.4g}"]
        for panel, methods in panels.items()
        for label, points in methods.items()
        for seconds, value in points
    ]
    table(lines, ["what", "method", "s", "value"], "curves", runs="1 split")


def _links(found, *, penalty):
    """{method: [(seconds, accuracy)]}."""
    rows, columns, labels, _ = found
    train, test = next(tenths(found, 1))
    x = matrix(found, train)

    def right(z):
        return 100 * np.mean(np.where(z >= 0, 1, -1) == labels[test])  # a tie goes to the more frequent sign

    lines = {}
    for label, most, options in (
        ("GLRL, no update", 40, {**PLAIN, "refine": "none"}),
        ("EGLRL", 40, PLAIN),
        ("GLRL", 40, {**PLAIN, "refine": "full"}),
        ("biases + EGLRL", 20, {**SIGNS, "learning_rate": 0.3}),
    ):
        model = fs.LowRankModel(most, sweeps=0, **options).fit(x)
        lines[label] = [
            (line["seconds"], right(model.decision_function(rows[test], columns[test], rank=line["rank"])))
            for line in model.history
        ]
    for label, model in (
        ("AltMin with biases", AltMin(10, loss="logistic", biases=True, ridge=0.7, max_iterations=40)),
        ("AIS-Impute with biases", AISImpute(penalty, max_rank=30, loss="logistic", biases=True, max_iterations=40)),
    ):
        kept = []
        model.fit(x, callback=lambda line, kept=kept: kept.append((line["seconds"], *line["factors"])))
        level, row, column = model.bias_terms()
        base = level + row[rows[test]] + column[columns[test]]
        lines[label] = [(s, right(base + np.einsum("kq,kq->k", a[rows[test]], b[columns[test]]))) for s, a, b in kept]
    return lines


def _stars(found):
    """{method: [(seconds, error)]}."""
    rows, columns, values, _ = found
    train, test = next(halves(found, 1))
    mean, spread = values[train].mean(), values[train].std()
    x = matrix(found, train, ((values - mean) / spread).astype(np.float32))
    lines = {}
    for label, options in (
        ("printed step", {**BARE, "step_rule": "inverse_sqrt", "step_size": 4.0}),
        ("line search", BARE),
        ("biases + line search", GREEDY),
    ):
        model = fs.LowRankModel(MOST, sweeps=0, **options).fit(x)
        lines[label] = []
        for line in model.history:
            z = model.decision_function(rows[test], columns[test], rank=line["rank"])
            error = np.abs(np.clip(mean + spread * z, 1, 5) - values[test]).mean() / spread
            lines[label].append((line["seconds"], error))
    return lines
