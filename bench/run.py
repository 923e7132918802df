"""Benches of fastsketch: ``python bench/run.py COMMAND``, see ``--help``.

BLAS threads are pinned to one before numpy is imported, but for ``threads``; every ratio compares runs of one process,
interleaved, by their minimum; bench/README.md tells what each command shows.
"""

import os
import sys

if __name__ == "__main__":  # before numpy is imported
    for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        if sys.argv[1:2] == ["threads"]:  # which compares numbers of threads
            os.environ.pop(_name, None)
        else:
            os.environ[_name] = "1"

import argparse  # noqa: E402
import importlib  # noqa: E402
import tempfile  # noqa: E402
from importlib.util import find_spec  # noqa: E402
from pathlib import Path  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
# FOLDER.COMMAND is the function of this name in FOLDER/COMMAND.py, FOLDER.MODULE.COMMAND in FOLDER/MODULE.py.
COMMANDS = {
    "headline.headline": "the README's five jobs, beside other tools and a simple rival, five runs; --only a job",
    "sketching.ffd_real": "Fast Frequent Directions on real sets, beside the exact sum and a sample of rows",
    "sketching.figures": "relative spectral error against sketch size on real data (RFD paper, Figures 1 and 2)",
    "sketching.figures.parts": "relative spectral error of 2, 8 and 32 merged parts beside one pass, on real data",
    "sketching.figures.adversary": "FD, RFD, iSVD and IncrementalPCA where truncation fails, and where it wins",
    "sketching.sparse": "CSR rows against densify + gesdd and IncrementalPCA",
    "sketching.sparse.columns": "CSR rows by width at as many columns that occur: time, read-out, memory",
    "sketching.speed": "rows/s per (d, l, dtype): gram, svd, exact, IncrementalPCA, reference; share of the GEMM limit",
    "sketching.speed.exact": "where the exact accumulator is faster, and what solver='auto' chooses",
    "sketching.stages": "where one shrink's time goes",
    "sketching.tolerance": "the l that a precision ends with and what it costs, beside the smallest l and knowing it",
    "components.components": "SketchedPCA against IncrementalPCA and PCA: variances, time, memory; audits",
    "components.components.noise": "flat noise of 4,000 x 4,000: SketchedPCA().fit beside PCA and IncrementalPCA",
    "components.cells": "generated cells: fastsketch.anndata in memory and from a file, scanpy, Dask, IncrementalPCA",
    "components.wide": "wide rows in files: SketchedPCA by passes, randomized SVD, Krylov, IncrementalPCA, n x n sums",
    "components.tensors": "steps of 4,096 x 4,096 tensors: sketches beside incremental PCAs and a dense covariance",
    "covariance.anomalies": "SketchedCovariance: areas under ROC curves, false alarms, beside IsolationForest",
    "covariance.adbench": "SketchedCovariance on ADBench's sets beside its plain distance and IsolationForest",
    "covariance.covariance": "SketchedCovariance: outliers among normal rows, likelihood of held-out ones",
    "covariance.covariance.covariance_few": "the outliers where rows are few for their columns",
    "hashing.frosh": "FD and FFD against l, d, n and m (FROSH section 5.1), table and picture",
    "hashing.frosh.fwht": "Walsh-Hadamard transforms against a copy and against NumPy",
    "hashing.frosh.srht": "the fused SRHT and other random maps against one read of the rows: time and error",
    "hashing.frosh_printed": "FROSH's Algorithm 1 as printed beside our tree of blocks: variance, rows held, time",
    "hashing.retrieval": "MAP and precision-recall of all hashes on MNIST and SIFT (FROSH section 5.2)",
    "hashing.retrieval.rounds": "MAP after each tenth of MNIST (FROSH Figure 4), and what an anchor keeps of old codes",
    "hashing.retrieval.training": "seconds to learn hash functions (FROSH Table II), beside components of a sample",
    "hashing.retrieval.search": "a million codes against faiss",
    "codes.codes": "recall of nearest neighbours against all bytes of a row: our codes beside faiss's, four sets",
    "regression.ridge": "SketchedRidge on eight sets beside exact Ridge, SGD, components, hashing",
    "learning.alphas": "accuracy of the Newton learners over the grid of alpha0 (RFD paper, Table 2, Figures 3, 4)",
    "learning.batches": "microseconds a row in batches of 1 to 1,000 rows, beside scikit-learn and river",
    "learning.drifting": "decay='auto' on a market row by row, and on test rows of sets that stand still",
    "learning.learners": "accuracy, log loss, seconds of one pass on fifteen sets: ours, other libraries', ceilings",
    "learning.newton": "accuracy and speed of the Newton learners (RFD paper, Tables 2 and 3), grid of alpha0",
    "learning.newton.errors": "error against alpha0 and online error curves (RFD paper, Figures 3 to 11)",
    "learning.newton.cost": "time of an online round against d, nonzeros and sketch size, with exponents",
    "learning.order": "labels that come in runs or sorted: accuracy of learners beside that on shuffled rows",
    "learning.passes": "how often fit learns from few rows: one pass, what held-out rows choose, rivals; eight sets",
    "streams.alarms": "delays of DriftMonitor, ADWIN, KSWIN, PageHinkley and a CUSUM at one rate of false alarms",
    "streams.windows": "windows of blocks beside decay, an exact window and IncrementalPCA: accuracy and cost",
    "streams.windows.changes": "comparisons of sketches beside tests of every column: false alarms, power",
    "adaptive.ftsl": "FTSL beside ADA-FD and ADA-FFD: regret on the stream of section 5.2, losses on fifteen sets",
    "adaptive.networks.cnn": "a small CNN on MNIST: AdaFFD, AdaFD against AdaGrad, Adam, SGD (ADA-FD section 5.4)",
    "adaptive.networks.vgg19": "time and memory of a layer on a frozen VGG19 of random weights (ADA-FD section 5.5)",
    "adaptive.regression": "regret of adaptive subgradients on synthetic data (ADA-FD section 5.2, Figures 1 to 4)",
    "adaptive.regression.classification": "online mistakes and accuracy on MNIST and Isolet (ADA-FD section 5.3)",
    "optimizers.optimizers": "four small networks by SketchedSOAP, AdamW, Muon and others: test loss and seconds",
    "optimizers.optimizers.step_costs": "a whole step of a transformer at 4,096 tokens, beside AdamW and Muon",
    "lowrank.biases": "LowRankModel as it comes against biases tuned alone: stars, few stars, signed links",
    "lowrank.links": "signed links at the paper's setting, rank 40 (GLRL Table 2)",
    "lowrank.paths": "accuracy and error against seconds, rank by rank, ten folds (GLRL Figures 1 and 2)",
    "lowrank.signs": "signed links, logistic loss (GLRL Table 2), settings chosen on training entries",
    "lowrank.stars": "MovieLens, absolute loss (GLRL Table 4), with ADMM and Wiberg's algorithm on what they can",
    "lowrank.stars.wiberg": "seconds and error of Wiberg's linear programs as users and films grow (GLRL Table 4)",
    "lowrank.tables": "tables with gaps: LowRankCompleter beside IterativeImputer and KNNImputer",
    "lowrank.ten_million": "a fit to 10 million observations: seconds and memory",
    "recommending.catalogues": "recommending from sparse catalogues beside other tools: lists, seconds, peak memory",
    "recommending.items": "a million items: rows/s and memory of SketchedEASE, scores against a read of the items",
    "jobs.first": "the first update or fit of every model in fresh processes: fresh home, read-only, four at once",
    "jobs.jobs": "fs.run and fs.map_rows on one and two workers, beside two one-core runs at once; WORK=sketch,items",
    "jobs.memory": "peak memory of a 4 GB file, written to the folder given by --scratch",
    "jobs.memory.cold": "import and --help in fresh processes",
    "jobs.sources": "1 GB as .npy, 10 Parquet files, HDF5, Zarr: open_rows beside plain readers, a sketch behind it",
    "jobs.threads": "n threads against one within a call, beside what gemm gains; two Python threads with a model each",
    "kernels.classes": "the asv classes of benchmarks/, without asv",
    "kernels.levels": "every C loop at every level of instructions; fails if one is slower than the level below it",
    "kernels.processors": "whole calls with AVX-512, AVX2, SSE2; beside the build in the folder FASTSKETCH_OLD",
    "kernels.profile": "where the time inside a call goes: Python, Cython, C and BLAS, with flame graphs (py-spy)",
}
# Of some commands a part can be measured; its results are kept apart.
PARTS = {
    "--only": {"headline": "jobs", "regression": "tau, for the table of sizes"},
    "--sets": {
        "biases": "names of sets",
        "catalogues": "names of sets",
        "cells": "names of cases",
        "wide": "names of cases",
    },
}
JOIN = ("headline", "biases", "cells", "wide", "regression")
KEEP = ("biases", "codes", "learners", "order", "ridge", "regression", "classification", "cnn", "links")
KEEP += ("wiberg", "optimizers", "paths", "errors")


def parser():
    """Return the parser of the command line."""
    out = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = out.add_subparsers(dest="command", required=True)
    for key, text in COMMANDS.items():
        name = key.rpartition(".")[2]
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(module=".".join(key.split(".")[:2]))
        command.add_argument("--quick", action="store_true", help="fewer sizes and repeats")
        command.add_argument("--tiny", action="store_true", help="whether it runs: few rows, once, nothing to report")
        command.add_argument("--out", type=Path, default=ROOT / "bench" / "results", help="folder for results")
        scratch = Path(tempfile.gettempdir())
        command.add_argument("--scratch", type=Path, default=scratch, help="folder for big temporary files")
        for flag, whose in PARTS.items():
            if name in whose:
                command.add_argument(flag, default="", help=f"{whose[name]}, with commas between them")
        if name in JOIN:
            text = "put the tables of a part into the stored result of all, with their own date and machine"
            command.add_argument("--join", action="store_true", help=text)
        if name in KEEP:
            command.add_argument("--keep", action="store_true", help="measure only what is not there yet")
    return out


def measure(args):
    """Run a command and keep its results; return the path of these."""
    import bench_tools
    from store import file_of, recording

    args.quick = args.quick or args.tiny
    bench_tools.tiny = args.tiny
    options = {name: value for name, value in vars(args).items() if name not in ("command", "module", "out", "scratch")}
    with recording(args.command, options, args.out):
        getattr(importlib.import_module(args.module), args.command)(args)
    return args.out / file_of(args.command, options)


def main():
    # the tree's own fastsketch/ may have no compiled kernels: take the installed one
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]
    args = parser().parse_args()
    from bench_tools import header
    from pictured import PICTURED

    print(header())
    result = measure(args)
    if args.command in PICTURED and result.exists() and find_spec("matplotlib"):
        from pictures import picture

        print(picture(result))


if __name__ == "__main__":
    main()
