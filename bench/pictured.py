"""What is drawn of each command's result: bars of columns by row, or lines over a size, from named tables."""

import re
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Bars:
    """Horizontal bars: a label of some columns, a series for each column of numbers, or for each value of `by`."""

    table: str
    label: tuple
    values: tuple
    axis: str = ""
    title: str = ""
    where: dict = field(default_factory=dict)  # {column: values that are kept}
    by: str = ""
    each: str = ""  # a panel for each value of this column
    part: int = 0  # of cells like "1 / 2 / 3"
    ours: str = ""  # what a label has that is drawn in colour, where there is one series
    log: bool = False
    least: float | None = None
    mark: float | None = None  # a line across, as a target
    across: int = 1  # panels side by side

    def names(self):
        return {*self.label, *self.values, *filter(None, (self.by, self.each))}

    def series(self, rows, columns, value):
        out = {}
        for row in rows:
            label = ", ".join(row[name] for name in self.label if row[name])
            for name in self.values:
                found = value(row[name], self.part)
                if found:
                    out.setdefault(row[self.by] if self.by else name, []).append((label, *found))
        return out


@dataclass(frozen=True)
class Lines:
    """Lines over a column of sizes; the lines are columns (`values`) or the values of a column (`by`).

    With `spread_over` sizes are in the names of the columns that it matches, and a line is a row, named by `label`.
    """

    table: str
    x: str = ""
    values: tuple = ()
    by: tuple = ()
    label: tuple = ()
    spread_over: str = ""
    axis: str = ""
    along: str = ""
    title: str = ""
    where: dict = field(default_factory=dict)
    each: str = ""
    part: int = 0
    log: str = ""
    least: float | None = None
    height: float = 3.0
    across: int = 3

    def names(self):
        return {*filter(None, (self.x, self.each)), *self.values, *self.by, *self.label}

    def series(self, rows, columns, value):
        out = {}
        if self.spread_over:
            at = [(size_of(found), name) for name in columns if (found := re.fullmatch(self.spread_over, name))]
            for row in rows:
                points = [(size, *found) for size, name in at if (found := value(row[name], self.part))]
                out[", ".join(row[name] for name in self.label)] = points
            return {name: points for name, points in out.items() if points}
        for row in rows:
            size = value(row[self.x])
            for name in self.values:
                found = value(row[name], self.part)
                if size and found:
                    line = ", ".join(row[key] for key in self.by) if self.by else name
                    out.setdefault(line, []).append((size[0], *found))
        return out


def size_of(found):
    """Return the number in the first group of a column's name; 2^14 is a power."""
    base, _, power = found[1].replace(",", "").partition("^")
    return float(base) ** float(power) if power else float(base)


RECOMMENDERS = (
    "popularity",
    "item-knn",
    "PureSVD",
    "EASE, exact",
    "implicit ALS, as it comes",
    "implicit ALS, tuned",
    "cmfrec CMF_implicit, as it comes",
    "cmfrec CMF_implicit, tuned",
    "SketchedEASE, l = 64, as it comes",
    "SketchedEASE, l = 256, as it comes",
)
CODES = ("SketchQuantizer", "OPQ", "PQ", "PCA, SQ4", "PCA, RaBitQ", "SketchHash, Hamming")
PCA = ("SketchedPCA, fit", "partial_fit", "gram", "IncrementalPCA", "PCA eigh", "PCA randomized")
PICTURED = {
    "headline": [
        Bars("components", ("tool",), ("worst error, %",), each="set", ours="Sketched", across=2,
             axis="worst error of ten variances, %"),
        Bars("learning", ("tool",), ("log loss",), each="set", ours="Sketched|Adaptive", across=2, axis="log loss"),
    ],
    "ffd_real": [
        Bars("summary", ("way",), ("least", "median", "most"), each="sets", log=True, mark=1, across=1,
             axis="error over that of Frequent Directions"),
    ],
    "anomalies": [
        Bars("areas", ("area under the ROC curve",), ("SketchedCovariance()", "IsolationForest"), least=0.4,
             axis="area under the ROC curve"),
    ],
    "covariance_few": [
        Bars("outliers", ("estimator",), ("beyond 1%, median of 5 seeds (range)",), each="d", mark=1, ours="auto|gram",
             axis="% of normal rows beyond the 1% threshold", title="few rows, d ="),
    ],
    "moved": [
        Bars("still", ("set",), ("nats, the most",), mark=50, title="Nats at which a model warns: 50",
             axis="nats gained by a calibration that forgets, the most of three orders"),
    ],
    "alarms": [
        Bars("delays", ("rows", "change"), ("DriftMonitor, as it comes", "DriftMonitor", "CUSUM of columns, directions",
             "river ADWIN", "river PageHinkley", "river KSWIN"), title="Rows from a change to its alarm",
             axis="median; no bar: no alarm in three of five streams"),
    ],
    "sketch_defaults": [
        Bars("error-each", ("set", "l"), ("error of A'A, validation",), by="candidate", log=True, axis="relative error",
             title="The method of FrequentDirections"),
    ],
    "hash_defaults": [Bars("means", ("candidate",), ("mean MAP, validation",), ours="as it comes", axis="mean MAP")],
    "online_defaults": [
        Bars("means", ("candidate",), ("mean error, %, validation",), ours=r"^[A-Za-z]+$|comes", axis="mean error, %"),
    ],
    "regression_defaults": [
        Bars("means", ("candidate",), ("mean R^2, validation",), ours=r"^[A-Za-z]+$|comes", axis="mean R^2", least=-1),
    ],
    "small": [
        Bars("main", ("what",), ("ms", "that, ms"), axis="ms, or us a row of CSR", log=True,
             title="Small and single calls"),
    ],
    "lowrank_defaults": [
        Bars("own", ("set", "loss", "rank"), ("as it comes, validation", "other ridge, validation",
             "other bias_ridge, validation", "sweeps=0, validation"), axis="RMSE, mean absolute error or mean deviance",
             title="LowRankModel: the best other value of a parameter"),
    ],
    "speed": [
        Lines("main", "l", ("gram rows/s", "svd rows/s", "exact rows/s", "IncrementalPCA rows/s (batch)"),
              where={"d": ("2048",), "dtype": ("float64",)}, log="xy", axis="rows a second", along="sketch size l",
              title="Dense rows of 2,048 float64 features, one core", across=1),
    ],
    "exact": [
        Lines("main", "d", ("gram rows/s", "exact rows/s"), each="l", axis="rows a second", along="d", title="l =",
              across=4, height=2.3, least=0),
    ],
    "stages": [
        Bars("main", ("d", "l", "dtype"), ("Gram, ms", "tridiagonal, ms", "divide and conquer, ms", "back, ms",
             "rotate, ms"), axis="milliseconds of a shrink", title="Where a shrink's time goes"),
    ],
    "sparse": [
        Bars("main", ("d", "density", "l"), ("CSR rows/s", "densify + gram", "densify + gesdd", "IncrementalPCA"),
             axis="rows a second", title="CSR rows: d, density, l", log=True),
    ],
    "figures": [
        Lines("main", "m", ("FD", "CFD", "RFD", "PFD 0.2", "PFD 0.6"), each="set", log="y", along="sketch size m",
              axis="spectral error", across=3, height=2.6),
    ],
    "parts": [Bars("main", ("set",), ("one pass", "2 parts", "8 parts", "32 parts"), ours="one pass",
              axis="spectral error", title="Merged parts beside one pass")],
    "adversary": [
        Bars("main", ("stream",), ("FD", "RFD", "iSVD", "IncrementalPCA", "FD's bound"), log=True,
             axis="covariance error / ||A||_F^2", title="Where truncation wins, and where it fails"),
    ],
    "tracked": [
        Bars("k10", ("stream",), ("FD and ledger", "PFD 0.45", "TFD 0.45"), log=True,
             axis="worst relative error of ten eigenvalues, %", title="k = 10, l = 30"),
    ],
    "tolerance": [
        Bars("main", ("set",), ("smallest l", "l in use"), where={"tolerance": ("0.005",)},
             axis="rows of the sketch", title="Tolerance 0.5% of the squared norm"),
    ],
    "components": [
        Bars("seconds", ("set",), PCA, log=True, axis="seconds of the processor, k = 10",
             title="Ten principal components", where={"set": ("MNIST", "Isolet", "news20, dense", "sift5k",
             "temple, patches", "a9a", "w8a", "news20", "farm-ads", "slow drift", "30 factors")}),
    ],
    "routes": [
        Bars("main", ("rows", "components", "way"), ("model, s", "measured, s"), log=True, axis="seconds",
             title="What the model says, and what is measured"),
    ],
    "covariance": [
        Bars("outliers", ("estimator",), ("beyond 1%, median of 3 seeds (range)",), each="d", mark=1, ours="auto|gram",
             where={"rows": ("20000",)}, axis="% of normal rows beyond the 1% threshold", title="20,000 rows, d ="),
    ],
    "frosh": [
        Lines("main", "value", ("relative error",), by=("method",), each="varied", log="xy", across=3,
              axis="relative error", title="Error against"),
        Lines("main", "value", ("ms",), by=("method",), each="varied", log="xy", across=3, axis="milliseconds",
              title="Time against"),
    ],
    "retrieval": [
        Lines("curves", "recall", ("precision",), by=("method",), each="set", along="recall", axis="precision",
              across=2, where={"method": ("LSH", "PCA", "OSH", "FROSH", "FROSH, itq", "ITQ", "faiss ITQ",
              "PCA of 2,000 rows, itq")}),
        Bars("main", ("method",), ("MAP, 64 bits",), each="set", ours="FROSH", across=2, axis="MAP, 64 bits"),
    ],
    "rounds": [
        Lines("main", label=("method",), spread_over=r"round (\d+)", each="set", where={"bits": ("64",)},
              along="tenths of the set", axis="MAP, 64 bits", across=2),
    ],
    "training": [
        Bars("main", ("method",), ("32 bits, ms", "128 bits, ms"), each="set", across=2, log=True, axis="milliseconds"),
    ],
    "samples": [
        Bars("main", ("stream",), ("FROSH", "exact PCA", "2,000 rows", "2,000 by length"), axis="MAP of rare queries",
             where={"queries": ("rare",)}, title="Codes of 64 bits, itq"),
        Bars("main", ("stream",), ("MAP, rare",), by="learned from", axis="MAP of rare queries",
             where={"rotation": ("itq",), "learned from": ("FROSH", "exact PCA", "2,000 rows", "2,000 by length")},
             title="Codes of 64 bits, itq"),
    ],
    "search": [
        Bars("main", ("codes x bits",), ("ms a query", "faiss"), each="queries at once", across=2,
             axis="milliseconds a query", title="queries at once:"),
    ],
    "codes": [
        Lines(name, label=("method",), spread_over=r"(\d+) bytes", along="bytes a row", axis="recall@10, raw",
              title=name, across=2, least=0, where={"method": CODES})
        for name in ("sift5k-0", "mnist", "patches", "generated")
    ],
    "encoding": [
        Bars("main", ("d", "instructions"), ("SketchQuantizer", "PQ", "OPQ", "PCA, SQ4"), where={"bytes": ("16",)},
             axis="million rows a second", title="16 bytes a row: d, instructions"),
    ],
    "scan": [
        Bars("main", ("beside", "instructions"), ("our rate / faiss's",), by="queries at once", log=True, mark=1,
             where={"threads": ("1",)}, axis="our rate over faiss's",
             title="A million codes; one query at once, and 100"),
    ],
    "ridge": [
        Bars("loss", ("set",), ("Ridge, all rows in memory", "SketchedRidge()", "SketchedRidge().fit",
             "SGD, tuned", "components, Ridge", "hashing, Ridge", "SketchedNewton()"),
             axis="wrong labels, or 1 - R2", title="Ridge regression in one pass"),
    ],
    "learners": [
        Bars("accuracy", ("set",), ("SketchedNewton()", "AdaptiveSubgradient()", "SGD, average=True", "Vowpal Wabbit",
             "river", "ceiling"), axis="accuracy of one pass, %", least=40, title="Rows as they come, one pass"),
    ],
    "columns": [
        Lines("main", "d", ("us a row", "peak, MB"), log="x", along="columns d, of which at most 20,000 occur", least=0,
              axis="us a row; MB at the most", across=1, title="A sketch of CSR rows by its width"),
    ],
    "order": [
        Bars("sets", ("set",), ("sorted",), by="learner", axis="accuracy after rows sorted by label, %",
             title="Rows sorted by label, one pass"),
    ],
    "sorted_splits": [Bars("main", ("learner",), ("all",), by="shuffled by", axis="points of accuracy",
                      title="Isolet sorted by label less shuffled, by fit")],
    "passes": [
        Bars("main", ("learner",), ("wrong, %",), each="set", ours="Sketched|Adaptive", axis="wrong, %", across=2),
    ],
    "online": [
        Bars("main", ("method",), ("accuracy, %",), least=70, ours="Sketched", across=2, axis="accuracy, %",
             title="a9a"),
        Bars("main", ("method",), ("examples/s",), log=True, ours="Sketched", across=2, axis="examples a second"),
    ],
    "newton": [
        Lines("alpha0", label=("method",), spread_over=r"alpha0 = ([\d.e+-]+)", each="set", log="x", along="alpha0",
              axis="accuracy, %", across=2, height=2.2),
    ],
    "errors": [
        Lines("curves", "examples", ("online error",), by=("method",), each="set", log="xy", along="examples",
              axis="online error", across=3, height=2.5),
        Bars("main", ("method",), ("online error, best",), each="set", ours="RFD", across=2, axis="online error, %"),
    ],
    "alphas": [
        Lines("grid", label=("method",), spread_over=r"alpha0 = ([\d.e+-]+)", each="set", log="x", along="alpha0",
              axis="accuracy, %", across=2, height=2.2, where={"method": ("rfd", "fd", "pfd", "ADAGRAD")}),
    ],
    "frosh_printed": [Bars("main", ("method", "r"), ("share of the best variance",), each="set", ours="the library",
                           across=2, axis="share of the best variance")],
    "cost": [Bars("main", ("what grows", "method"), ("exponent",), ours="Sketched|ADA-FFD", mark=1, axis="exponent",
             title="How the time of a round grows")],
    "batches": [Bars("main", ("model",), ("1", "10", "1,000"), log=True, ours="Sketch|Frequent|Ada|ADA",
                axis="microseconds a row", title="A row in batches of 1, 10 and 1,000")],
    "width": [
        Lines(name, label=("learner",), spread_over=r"d = (2\^\d+)", log="xy", along="columns d", title=title,
              axis="examples a second", across=2, height=3.4)
        for name, title in (("few", "1,300 active columns"), ("many", "100,000 active columns"))
    ],
    "drift": [
        Bars("main", ("learner",), ("still", "slow", "fast", "abrupt"), axis="% of predictions that were wrong",
             title="Streams whose truth moves"),
    ],
    "many": [Bars("main", ("set", "threads"), ("examples/s",), by="learner", axis="examples a second",
             title="Many classes: set, threads")],
    "names": [Bars("learning", ("learning",), ("rows/s",), ours="Sketched|ada_diag", log=True, axis="rows a second",
              title="Rows with names")],
    "regression": [
        Lines("curves", "rounds", ("ADA-FULL, mirror_descent", "ADA-FFD, mirror_descent", "ADA-FD, mirror_descent",
              "ADA-DIAG, mirror_descent", "ADAM, mirror_descent", "OGD, mirror_descent"), along="rounds", axis="regret",
              title="Synthetic regression, best step sizes", across=1),
        Bars("main", ("method",), ("regret",), each="form", ours="ADA-F", across=2, axis="regret"),
    ],
    "classification": [
        Bars("main", ("method", "form"), ("test accuracy, %",), each="set", ours="ADA-F", across=2, least=50,
             axis="test accuracy, %"),
    ],
    "cnn": [Bars("main", ("optimizer",), ("test accuracy, %",), each="set", across=2, ours="AdaF",
                 axis="test accuracy, %", title="6,000 images,")],
    "vgg19": [Bars("main", ("optimizer",), ("ms a step",), ours="AdaF", axis="milliseconds a step",
              title="Ten classes on 2,048 numbers of VGG19")],
    "optimizers": [
        Bars("net", ("optimizer",), ("loss at 0.0003", "loss at 0.001", "loss at 0.003"), axis="test loss",
             title="Pixels"),
        Bars("transformer", ("optimizer",), ("loss at 0.003",), ours="Sketched", least=2, axis="test loss, nats a byte",
             title="Bytes"),
    ],
    "step_costs": [
        Bars("main", ("optimizer",), ("with forward and backward",), each="batch", ours="Sketched", across=1,
             axis="ms a step"),
    ],
    "ratings": [
        Bars("main", ("method",), ("RMSE",), each="set", ours="LowRank", across=2, least=0.85, axis="RMSE, stars"),
    ],
    "stars": [
        Bars("main", ("method",), ("MABS, spreads",), each="set", ours="GLRL", across=2, least=0.55,
             axis="absolute error, spreads"),
    ],
    "signs": [
        Bars("main", ("method",), ("accuracy, %",), each="set", ours="GLRL|LowRank", across=2, least=92,
             axis="accuracy, %"),
    ],
    "refinement": [
        Bars("main", ("refine", "steps"), ("test, log loss",), each="way", across=2, least=0.14,
             where={"set": ("bitcoin-OTC",)}, axis="log loss of tests"),
    ],
    "wiberg": [Lines("main", "ratings", ("s, processor",), by=("method",), along="ratings", axis="seconds", log="xy",
               title="Fits of half of them", where={"method": ["biases alone", "GLRL, line search", "ADMM", "Wiberg"]}),
    ],
    "links": [
        Bars("main", ("method",), ("accuracy, %", "paper, %"), each="set", across=2, least=75, axis="%",
             title="rank 40:"),
    ],
    "paths": [
        Lines("curves", "s", ("value",), by=("method",), each="what", log="x", along="seconds", across=2, least=least,
              where={"what": [f"{name}, {part}: {figure}" for name in names for part in ("training", "test")]})
        for figure, names, least in (("accuracy, %", ("Epinions", "Slashdot"), 75),
                                     ("error, spreads", ("ML-100K", "ML-1M"), 0.45))
    ],
    "products": [Bars("main", ("loop",), ("ns a nonzero and vector",), by="dtype", axis="ns a nonzero and vector",
                 title="Loops of a rank, ML-1M")],
    "ten_million": [Bars("main", ("model",), ("MB of input", "MB beside it"), axis="MB", title="Ten million entries")],
    "ranking": [
        Bars("ml-100k-users", ("method",), ("NDCG@20, +- over 3 splits",), ours="Sketched", across=2, axis="NDCG@20",
             where={"method": RECOMMENDERS}, title="ML-100K, users held out"),
        Bars("ml-100k-users", ("method",), ("s, fit",), ours="Sketched", across=2, log=True, axis="seconds to fit",
             where={"method": RECOMMENDERS}),
    ],
    "catalogues": [
        Bars("gowalla", ("method",), ("NDCG@20",), ours="SketchedEASE, as", across=2, axis="NDCG@20", title="Gowalla"),
        Bars("epinions", ("method",), ("NDCG@20, +- over 2 splits",), ours="SketchedEASE, as", across=2, axis="NDCG@20",
             title="Epinions"),
    ],
    "arpack": [
        Bars("main", ("set",), ("fit, s", "arpack, s"), log=True, where={"k": ("10",)}, axis="seconds of the processor",
             title="Ten principal components"),
    ],
    "memory": [Bars("main", ("GB of file",), ("MB before", "MB above"), axis="MB",
               title="A file of so many GB, l = 128")],
    "cold": [Bars("main", ("command",), ("min ms",), ours="fastsketch", axis="milliseconds, fresh processes",
             title="Imports")],
    "servers": [Bars("main", ("setting",), ("of the best",), ours="defaults", axis="of the best setting's time",
                title="Eight Python threads, a sketch each")],
    "hashthreads": [Bars("main", ("BLAS setting",), ("s",), ours="default", axis="seconds",
                    title="Eight Python threads, a hash each")],
    "widehash": [Bars("main", ("rows", "m"), ("l d, MB", "more while learning, MB", "more with the read-out, MB"),
                 axis="MB", title="FROSH of 25,600 columns: rows, m")],
    "first": [
        Bars("main", ("first update or fit",), ("CPU s",), ours=".", axis="processor seconds, imports included", mark=2,
             title="First updates in fresh processes"),
    ],
    "processors": [
        Bars("main", ("what",), ("AVX-512, new", "AVX2", "SSE2"), axis="as named", log=True, title="Whole calls"),
    ],
    "sources": [
        Bars("main", ("set",), ("plain reader, 8 MB a time", "`open_rows`"), log=True,
             axis="GB a second of the processor", title="Rows from files"),
        Bars("main", ("set", "way"), ("GB/s of CPU time",), log=True, ours="open_rows|sketch",
             axis="GB a second of the processor", title="Rows from files"),
    ],
    "items": [
        Bars("main", ("what",), ("measured",), where={"what": ("project, ms", "best 1, ms", "read items, ms",
             "best 64, ms", "gemm 64, ms")}, axis="milliseconds", ours="best", title="A million items"),
    ],
    "jobs": [
        Bars("main", ("work",), ("one worker", "two processes", "two threads", "two workers of Dask"), mark=0.95,
             axis="share of the rate of two one-core runs side by side", title="Jobs on two cores"),
        Bars("main", ("work",), ("processes, 1", "processes, 2", "threads, 2", "dask, 2"), mark=0.95,
             axis="share of the rate of two one-core runs side by side", title="Jobs on two cores"),
    ],
    "threads": [
        Bars("main", ("what",), ("of gemm's",), mark=90, axis="% of gemm's gain by two threads", ours=".",
             title="Two threads within a call"),
    ],
    "fwht": [
        Bars("main", ("shape", "dtype"), ("of a copy",), where={"between": ("rows",)}, mark=50, ours=".",
             axis="% of the speed of a copy", title="Transforms along the rows"),
    ],
    "srht": [
        Bars("main", ("map",), ("ms",), where={"dtype": ("float64",), "q of 4 d rows": ("64",), "centred": ("",)},
             ours="srht", axis="milliseconds", title="70,000 x 784 float64, q = 64"),
    ],
}  # fmt: skip
