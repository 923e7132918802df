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
# Each is the function of this name in bench_COMMAND.py, or in the module that stands before the dot.
COMMANDS = {
    "headline": "the README's five jobs, each beside the tools of today and a simple rival, five runs; --only a job",
    "speed": "rows/s per (d, l, dtype): gram, svd, exact, IncrementalPCA, reference; share of the GEMM limit",
    "stages": "where one shrink's time goes",
    "levels": "every C loop at every level of instructions; fails if one is slower than the level below it",
    "processors": "whole calls with AVX-512, AVX2, SSE2; beside the build in the folder FASTSKETCH_OLD, if that is set",
    "anomalies": "SketchedCovariance: areas under ROC curves, shares of false alarms, beside IsolationForest",
    "covariance": "SketchedCovariance: outliers among normal rows, likelihood of held-out ones",
    "covariance.covariance_few": "the outliers where rows are few for their columns",
    "routes": "the coefficients of the model by which SketchedPCA chooses how it finds components",
    "speed.exact": "where the exact accumulator is faster, and what solver='auto' chooses",
    "sparse": "CSR rows against densify + gesdd and IncrementalPCA",
    "sparse.columns": "CSR rows by width at as many columns that occur: time, read-out, memory",
    "figures": "relative spectral error against sketch size on real data (RFD paper, Figures 1 and 2)",
    "figures.parts": "relative spectral error of 2, 8 and 32 merged parts beside one pass, on real data",
    "figures.adversary": "FD, RFD, iSVD and IncrementalPCA where truncation fails, and where it wins",
    "components": "SketchedPCA against IncrementalPCA and PCA: variances, time, memory; an extra pass, audits",
    "components.noise": "flat noise of 4,000 x 4,000: SketchedPCA().fit beside PCA and IncrementalPCA",
    "tolerance": "the l that a precision ends with and what it costs, beside the smallest l and knowing it",
    "sources": "1 GB as .npy, 10 Parquet files, HDF5, Zarr: open_rows beside plain readers, a sketch behind it",
    "memory": "peak memory of a 4 GB file, written to the folder given by --scratch",
    "memory.cold": "import and --help in fresh processes",
    "cold.first": "the first update or fit of every model in fresh processes: fresh home, read-only, four at once",
    "threads": "n threads against one within a call, beside what gemm gains; two Python threads with a model each",
    "frosh.fwht": "Walsh-Hadamard transforms against a copy and against NumPy",
    "frosh.srht": "the fused SRHT against one read of the rows, and other random maps: time and error, heavy rows too",
    "ffd_real": "Fast Frequent Directions on real sets, with seeds of the map, the exact sum and a sample of rows",
    "frosh": "FD and FFD against l, d, n and m (FROSH section 5.1), table and picture",
    "printed.frosh_printed": "FROSH's Algorithm 1 as printed beside our tree of blocks: variance, rows held, time",
    "hashing.retrieval": "MAP and precision-recall of all hashes on MNIST and SIFT (FROSH section 5.2)",
    "hashing.rounds": "MAP after each tenth of MNIST (FROSH Figure 4), and what an anchor keeps of old codes",
    "hashing.training": "seconds to learn hash functions (FROSH Table II), components of a sample beside them",
    "hashing.search": "a million codes against faiss",
    "codes": "recall of nearest neighbours against all bytes of a row: our codes beside faiss's, four sets",
    "newton": "accuracy and speed of the Newton learners (RFD paper, Tables 2 and 3), grid of alpha0",
    "alphas": "accuracy of the Newton learners over the grid of alpha0, five splits (RFD paper, Table 2, Figures 3, 4)",
    "learners": "accuracy, log loss, seconds of one pass on fifteen sets: ours, other libraries', ceilings",
    "ridge": "SketchedRidge on eight sets beside exact Ridge, SGD, components, hashing: loss, intervals, passes",
    "order": "labels that come in runs or sorted: accuracy of learners beside that on shuffled rows",
    "passes": "how often fit learns from few rows: one pass, what held-out rows choose, rivals; eight sets",
    "newton.errors": "error against alpha0 and online error curves (RFD paper, Figures 3 to 11), table and picture",
    "newton.cost": "time of an online round against d, nonzeros and sketch size, with exponents",
    "batches": "microseconds a row in batches of one row up to 1,000, each model, beside scikit-learn and river",
    "drifting": "decay='auto' on a market row by row, and on test rows of sets that stand still",
    "windows": "windows of blocks beside decay, an exact window and IncrementalPCA: jumps, slow drift, seasons; cost",
    "windows.changes": "comparisons of sketches beside tests of every column: false alarms, power on four changes",
    "alarms": "alarms of DriftMonitor beside ADWIN, KSWIN, PageHinkley and a CUSUM at one rate of false alarms: delays",
    "adaptive.regression": "regret of adaptive subgradients on synthetic data (ADA-FD section 5.2, Figures 1 to 4)",
    "adaptive.classification": "online mistakes and accuracy on MNIST and Isolet (ADA-FD section 5.3)",
    "networks.cnn": "a small CNN on MNIST: AdaFFD, AdaFD against AdaGrad, Adam, SGD (ADA-FD section 5.4)",
    "networks.vgg19": "time and memory of a layer on a frozen VGG19 of random weights (ADA-FD section 5.5)",
    "stars.wiberg": "seconds and error of Wiberg's linear programs as users and films grow (GLRL Table 4)",
    "optimizers": "four small networks by SketchedSOAP, AdamW, Muon and others: test loss at equal steps and seconds",
    "optimizers.step_costs": "a whole step of a transformer at 4,096 tokens, beside AdamW and Muon",
    "signs": "signed links, logistic loss (GLRL Table 2), settings chosen on training entries",
    "links": "signed links at the paper's setting, rank 40 (GLRL Table 2)",
    "stars": "MovieLens, absolute loss (GLRL Table 4), with ADMM and Wiberg's algorithm on what they can",
    "paths": "accuracy and error against seconds, rank by rank, ten folds (GLRL Figures 1 and 2), table and picture",
    "biases": "LowRankModel as it comes against biases tuned alone: stars, few stars, signed links; five splits",
    "items": "a million items: rows/s and memory of SketchedEASE, projection, scores against a read of the items",
    "catalogues": "recommending from sparse catalogues, each method in its own process: lists, seconds, peak memory",
    "lowrank_cost.ten_million": "a fit to 10 million observations: seconds and memory",
    "jobs": "fs.run and fs.map_rows on one and two workers, beside two one-core runs at once; WORK=sketch,items",
    "classes": "the asv classes of benchmarks/, without asv",
    "profile": "where the time inside a call goes: Python, Cython, C and BLAS, with flame graphs (py-spy)",
}
# Of some commands a part can be measured; its results are kept apart.
PARTS = {
    "--only": {"headline": "jobs"},
    "--sets": {"biases": "names of sets", "catalogues": "names of sets"},
}
JOIN = ("headline", "biases")
KEEP = ("biases", "codes", "learners", "order", "ridge", "regression", "classification", "cnn", "links")
KEEP += ("wiberg", "optimizers", "paths")


def parser():
    """Return the parser of the command line."""
    out = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = out.add_subparsers(dest="command", required=True)
    for key, text in COMMANDS.items():
        name = key.rpartition(".")[2]
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(module=key.partition(".")[0])
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
        getattr(importlib.import_module(f"bench_{args.module}"), args.command)(args)
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
