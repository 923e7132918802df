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


CODES = ("SketchQuantizer", "OPQ", "PQ", "PCA, SQ4", "PCA, RaBitQ", "SketchHash, Hamming")
PCA = ("SketchedPCA, fit", "partial_fit", "gram", "IncrementalPCA", "PCA eigh", "PCA randomized")
PICTURED = {
    "anomalies": [
        Bars("areas", ("area under the ROC curve",), ("SketchedCovariance()", "IsolationForest"), least=0.4,
             axis="area under the ROC curve"),
    ],
    "alarms": [
        Bars("delays", ("rows", "change"), ("DriftMonitor, as it comes", "DriftMonitor", "CUSUM of columns, directions",
             "river ADWIN", "river PageHinkley", "river KSWIN"), title="Rows from a change to its alarm",
             axis="median; no bar: no alarm in three of five streams"),
    ],
    "speed": [
        Lines("main", "l", ("gram rows/s", "svd rows/s", "exact rows/s", "IncrementalPCA rows/s (batch)"),
              where={"d": ("2048",), "dtype": ("float64",)}, log="xy", axis="rows a second", along="sketch size l",
              title="Dense rows of 2,048 float64 features, one core", across=1),
    ],
    "figures": [
        Lines("main", "m", ("FD", "CFD", "RFD", "PFD 0.2", "PFD 0.6"), each="set", log="y", along="sketch size m",
              axis="spectral error", across=3, height=2.6),
    ],
    "components": [
        Bars("seconds", ("set",), PCA, log=True, axis="seconds of the processor, k = 10",
             title="Ten principal components", where={"set": ("MNIST", "Isolet", "news20, dense", "sift5k",
             "temple, patches", "a9a", "w8a", "news20", "farm-ads", "slow drift", "30 factors")}),
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
    "search": [
        Bars("main", ("codes x bits",), ("ms a query", "faiss"), each="queries at once", across=2,
             axis="milliseconds a query", title="queries at once:"),
    ],
    "codes": [
        Lines(name, label=("method",), spread_over=r"(\d+) bytes", along="bytes a row", axis="recall@10, raw",
              title=name, across=2, least=0, where={"method": CODES})
        for name in ("sift5k-0", "mnist", "patches", "generated")
    ],
    "learners": [
        Bars("accuracy", ("set",), ("SketchedNewton()", "AdaptiveSubgradient()", "SGD, average=True", "Vowpal Wabbit",
             "river", "ceiling"), axis="accuracy of one pass, %", least=40, title="Rows as they come, one pass"),
    ],
    "newton": [
        Lines("alpha0", label=("method",), spread_over=r"alpha0 = ([\d.e+-]+)", each="set", log="x", along="alpha0",
              axis="accuracy, %", across=2, height=2.2),
    ],
    "errors": [
        Lines("curves", "examples", ("online error",), by=("method",), each="set", log="xy", along="examples",
              axis="online error", across=3, height=2.5),
        Bars("main", ("method",), ("online error, best",), where={"m": ("10", "30", "any")}, each="set", ours="RFD",
             across=2, axis="online error, %"),
    ],
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
    "windows": [
        Bars("streams", ("stream", "way"), ("% off the window's variances",), axis="% off the window's variances"),
    ],
    "changes": [
        Bars("main", ("change", "way"), ("% of streams at p <= .05",), axis="% of streams at p <= .05"),
    ],
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
    "stars": [
        Bars("main", ("method",), ("MABS, spreads",), each="set", ours="GLRL", across=2, least=0.55,
             axis="absolute error, spreads"),
    ],
    "signs": [
        Bars("main", ("method",), ("accuracy, %",), each="set", ours="GLRL|LowRank", across=2, least=92,
             axis="accuracy, %"),
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
    "catalogues": [
        Bars("gowalla", ("method",), ("NDCG@20",), ours="SketchedEASE, as", across=2, axis="NDCG@20", title="Gowalla"),
    ],
    "jobs": [
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
}  # fmt: skip
