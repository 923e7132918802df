"""Real data sets of the benches, below FASTSKETCH_DATA: None where a file is absent, and a line says where it is from.

Checksums are those of MANIFEST.tsv. With ``--tiny`` a set is its first rows, and one that is slow to read is absent.
"""

import gzip
import hashlib
import io
import os
import sys
import zipfile
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np
from scipy import sparse

import bench_tools
import store
from bench_tools import few, rival

DATA = Path(os.environ.get("FASTSKETCH_DATA", bench_tools.ROOT.parent / "shared" / "data"))
TINY_ROWS = 300
sys.path.append(str(bench_tools.ROOT / "examples"))  # benches take photographs and their patches from `demo`


def located(name, file, origin):
    """Return the path of a file of the data folder, its checksum verified, or None."""
    path = DATA / file
    if not path.exists():
        print(f"{name}: absent ({path}); fetch {origin} and set FASTSKETCH_DATA")
        store.add_absent(file)
        return None
    _check_sum(path, file)
    return path


@cache
def _check_sum(path, file):
    manifest = DATA / "MANIFEST.tsv"
    if bench_tools.tiny or not manifest.exists():
        return
    for line in manifest.read_text().splitlines()[1:]:
        fields = line.split("\t")
        if fields[1] == file and fields[2] != hashlib.sha256(path.read_bytes()).hexdigest():
            raise SystemExit(f"{path} is not the file that MANIFEST.tsv names")


def some(n):
    """Indices of the rows of a set of n that are used: all, or with --tiny some of every part."""
    return np.s_[:] if not bench_tools.tiny else np.unique(np.linspace(0, n - 1, TINY_ROWS).astype(int))


# -- rows and labels ---------------------------------------------------------------------------------------------------
def read_idx(path):
    """Return the array of an IDX file, as MNIST has them."""
    with gzip.open(path) as file:
        content = file.read()
    shape = [int.from_bytes(content[4 + 4 * i : 8 + 4 * i], "big") for i in range(content[3])]
    return np.frombuffer(content, np.uint8, offset=4 + 4 * len(shape)).reshape(shape)


def mnist(part="train"):
    """Return (rows of 784 bytes, labels) of a part of MNIST: "train", "t10k", or "all", the two in this order."""
    if part == "all":
        parts = [mnist("train"), mnist("t10k")]
        return None if None in parts else tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    names = ("images-idx3", "labels-idx1")
    paths = [located("MNIST", f"mnist/{part}-{name}-ubyte.gz", "MNIST of LeCun, Cortes and Burges") for name in names]
    if None in paths:
        return None
    images, labels = map(read_idx, paths)
    kept = some(len(images))
    return images[kept].reshape(-1, 784), labels[kept]


SVMLIGHT = {"a9a": "a9a.gz", "a9a.t": "a9a.t.gz", "w8a": "w8a.gz", "mushrooms": "mushrooms.gz", "news20": "news20.bz2"}


def svmlight(name):
    """Return (CSR rows, labels) of a set of LIBSVM; "a9a.t" is the part of a9a for tests."""
    from sklearn.datasets import load_svmlight_file

    path = located(name, f"{name.partition('.')[0]}/{SVMLIGHT[name]}", f"LIBSVM {name}")
    if path is None or (bench_tools.tiny and path.suffix == ".bz2"):
        return None
    rows, labels = load_svmlight_file(str(path))
    kept = some(rows.shape[0])
    return sparse.csr_array(rows[kept]), np.asarray(labels[kept])


def farm_ads():
    """Return (CSR rows, labels -1 and +1) of UCI Farm Ads."""
    path = located("farm-ads", "farm-ads/X_raw.npz", "UCI Farm Ads")
    if path is None:
        return None
    rows, labels = sparse.csr_array(sparse.load_npz(path)), np.load(DATA / "farm-ads" / "y_raw.npy").ravel()
    kept = some(rows.shape[0])
    return rows[kept], np.where(labels[kept] > 0, 1.0, -1.0)


def matlab(name):
    """Return (dense float64 rows, labels) of a set of the ASU repository; some are sorted by label."""
    from scipy.io import loadmat

    path = located(name, f"asu-fs/{name}.mat", f"{name}.mat of the ASU feature selection repository")
    if path is None:
        return None
    found = loadmat(path)
    rows = found["X"].toarray() if sparse.issparse(found["X"]) else found["X"]
    kept = some(len(rows))
    return np.ascontiguousarray(rows[kept], np.float64), found["Y"].ravel()[kept]


def sift5k():
    """Return 5,000 SIFT descriptors, float32 (5000, 128)."""
    path = located("sift5k", "sift5k/sift-dataset-5k.tsv.gz", "the sample data of NGT")
    rows = None if path is None else np.loadtxt(path, dtype=np.float32, max_rows=few(5000, 1000))
    return None if rows is None else rows[:, :128]  # the last column is an id


@cache
def cifar10(part="train"):
    """Return (images (n, 32, 32, 3) uint8, labels of ten classes) of a part of CIFAR-10, "train" or "test", as JPEG."""
    path = located("cifar10", "cifar10/cifar10_jpeg.zip", "CIFAR-10 as JPEG files")
    if path is None or rival("PIL") is None:
        return None
    from PIL import Image

    with zipfile.ZipFile(path) as files:
        names = [name for name in files.namelist() if name.startswith(f"{part}/") and name.endswith(".jpg")]
        names = np.array(names)[some(len(names))]
        images = np.array([np.asarray(Image.open(io.BytesIO(files.read(name))).convert("RGB")) for name in names])
    return images, np.unique([name.split("/")[1] for name in names], return_inverse=True)[1]


def dataset(name):
    """Return the rows of a set: dense float64 of "Isolet", "madelon" and "MNIST" (in [0, 1]), else CSR."""
    if name == "MNIST":
        found = mnist()
        return None if found is None else found[0] / 255.0
    found = matlab(name) if name in ("Isolet", "madelon") else farm_ads() if name == "farm-ads" else svmlight(name)
    return None if found is None else found[0]


# -- ratings and links -------------------------------------------------------------------------------------------------
def movielens_100k():
    """Return the lines (user, item, stars, time) of MovieLens-100K, int64."""
    path = located("ML-100K", "ml-100k/u.data.gz", "MovieLens 100K")
    if path is None:
        return None
    with gzip.open(path, "rt") as file:
        return np.loadtxt(file, dtype=np.int64, max_rows=few(100_000, 2000))


def signed_links(name):
    """Return the lines (from, to, sign) of Epinions, Slashdot or bitcoin-OTC, int64."""
    large = {"Epinions": "epinions/soc-sign-epinions", "Slashdot": "slashdot/soc-sign-Slashdot090221"}
    file = f"{large.get(name, f'signed-small/{name}')}.txt.gz"
    path = located(name, file, f"SNAP soc-sign-{name.lower()}")
    if path is None:
        return None
    with gzip.open(path, "rt") as file:
        parts = [line.replace(",", " ").split()[:3] for line in islice(file, few(10**9, 1500)) if line[0] != "#"]
    return np.array([[int(part) for part in line] for line in parts if len(line) == 3])


def elec():
    """Return (rows (45312, 6), labels 0 and 1) of the New South Wales electricity market, in the order of time."""
    path = located("elec", "elec/elec.csv.gz", "the electricity market of Harries (1999)")
    if path is None:
        return None
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    return table[:, :-1], table[:, -1].astype(int)
