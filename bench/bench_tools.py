"""Timing, tables, data sets: shared by the benches."""

import contextlib
import gzip
import hashlib
import os
import platform
import time
from pathlib import Path

import numpy as np

import store

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("FASTSKETCH_DATA", ROOT.parent / "shared" / "data"))


def header():
    """Where and with what a table was made."""
    import scipy
    import threadpoolctl

    import fastsketch

    pools = ", ".join(
        f"{p['internal_api']} {p['version']} {p.get('architecture', '')} x{p['num_threads']}"
        for p in threadpoolctl.threadpool_info()
        if p["user_api"] == "blas"
    )
    presets = {name: value for name, value in os.environ.items() if name.startswith("OPENBLAS_") and "NUM" not in name}
    return (
        f"fastsketch {fastsketch.__version__}, numpy {np.__version__}, scipy {scipy.__version__}, "
        f"python {platform.python_version()}; {pools}; OPENBLAS presets: {presets or 'none'}"
    )


def seconds(function, clock=time.process_time):
    """Seconds of the processor: what runs in one thread is not slower for others on the machine."""
    start = clock()
    function()
    return clock() - start


def interleaved(functions, repeats=5, clock=time.process_time, name_of_runs=""):
    """{name: (min, median) seconds} of functions run in turn; of the processor, if no other clock is given."""
    times = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            times[name].append(seconds(function, clock))
    store.add_timing(name_of_runs, clock.__name__, times)
    return {name: (min(t), float(np.median(t))) for name, t in times.items()}


# Instructions that both sides of a comparison are held to: ours and faiss's names for them; None: the best.
LEVELS = {"best": (None, None), "AVX2": ("avx2", "AVX2")}


@contextlib.contextmanager
def at_level(ours, theirs):
    """Hold our loops and faiss's, where its build has more than one level, to these instructions."""
    from fastsketch._kernels import level

    try:
        import faiss

        config = getattr(faiss, "SIMDConfig", None)
    except ImportError:
        config = None
    before, config_before = level.current(), config and config.get_level()
    try:
        if ours:
            level.use(ours)
        if config and theirs:
            config.set_level(faiss.to_simd_level(theirs))
        yield
    finally:
        level.use(before)
        if config:
            config.set_level(config_before)


def gemm_rate(dtype, n=1500):
    """Flops per second of a large square gemm: the limit that everything else is measured against."""
    from scipy.linalg import blas

    a = np.asfortranarray(np.random.default_rng(0).standard_normal((n, n)), dtype)
    gemm = blas.dgemm if a.dtype == np.float64 else blas.sgemm
    return 2 * n**3 / min(seconds(lambda: gemm(1.0, a, a)) for _ in range(3))


def table(rows, columns, name="", *, runs=None, note=""):
    """Print a Markdown table and keep it in the record of the command under this name.

    runs: of how many runs a cell is and how they became one, a number or words; note: a sentence under the table.
    """
    rows = list(rows)
    store.add_table(rows, columns, name, runs, note)
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    text = "\n".join(lines)
    print("\n" + (f"{note}\n\n" if note else "") + text + "\n", flush=True)


def read_idx(path):
    with gzip.open(path) as file:
        content = file.read()
    shape = [int.from_bytes(content[4 + 4 * i : 8 + 4 * i], "big") for i in range(content[3])]
    return np.frombuffer(content, np.uint8, offset=4 + 4 * len(shape)).reshape(shape)


def dataset(name):
    """(rows, origin) of a real data set, or None with a word about where it comes from."""
    from scipy import sparse
    from scipy.io import loadmat

    from fastsketch.io import load_svmlight

    origins = {
        "a9a": ("a9a/a9a.gz", "LIBSVM a9a (UCI Adult)"),
        "farm-ads": ("farm-ads/X_raw.npz", "UCI Farm Ads"),
        "Isolet": ("asu-fs/Isolet.mat", "UCI Isolet"),
        "w8a": ("w8a/w8a.gz", "LIBSVM w8a"),
        "madelon": ("asu-fs/madelon.mat", "UCI Madelon"),
        "news20": ("news20/news20.bz2", "LIBSVM news20"),
        "MNIST": ("mnist/train-images-idx3-ubyte.gz", "MNIST"),
    }
    file, origin = origins[name]
    path = located(name, file, origin)
    if path is None:
        return None
    if name in ("a9a", "w8a", "news20"):
        return load_svmlight(path)[0]
    if name == "farm-ads":
        return sparse.csr_array(sparse.load_npz(path))
    if name in ("Isolet", "madelon"):
        return np.ascontiguousarray(loadmat(path)["X"], np.float64)
    return read_idx(path).reshape(-1, 784) / 255.0


def located(name, file, origin):
    """The path of a file of the data folder, its checksum verified, or None with a word about where it comes from."""
    path = DATA / file
    if not path.exists():
        print(f"{name}: absent ({path}); fetch {origin} and set FASTSKETCH_DATA")
        return None
    _check_sum(path, file)
    return path


def _check_sum(path, file):
    manifest = DATA / "MANIFEST.tsv"
    if not manifest.exists():
        return
    for line in manifest.read_text().splitlines()[1:]:
        fields = line.split("\t")
        if fields[1] == file and fields[2] != hashlib.sha256(path.read_bytes()).hexdigest():
            raise SystemExit(f"{path} is not the file that MANIFEST.tsv names")
