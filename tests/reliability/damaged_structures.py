"""Files that are wrong by structure, made one after another by their numbers and read: see structures.py.

Run as a child: python damaged_structures.py FOLDER FIRST STOP, as damaged_inputs.py.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from tests.reliability.arrow_structures import arrow, ids, parquet
from tests.reliability.damaged_inputs import try_all
from tests.reliability.other_structures import index, market
from tests.reliability.stored_structures import h5ad, hdf5, zarr

# {name: (maker, the package that it takes)}.
MAKERS = {
    "Arrow file": (arrow("file"), "pyarrow"),
    "Arrow stream": (arrow("stream"), "pyarrow"),
    "Arrow table": (arrow("table"), "pyarrow"),
    "Arrow reader": (arrow("reader"), "pyarrow"),
    "Feather of ids": (ids, "pyarrow"),
    "Parquet": (parquet, "pyarrow"),
    "HDF5": (hdf5, "h5py"),
    "AnnData": (h5ad, "h5py"),
    "Zarr": (zarr, "zarr"),
    "Matrix Market": (market, None),
    "index": (index, None),
}
NAMES = [name for name, (_, package) in MAKERS.items() if package is None or find_spec(package)]
ABSENT = {package for _, package in MAKERS.values() if package is not None and not find_spec(package)}
for package in {MAKERS[name][1] for name in NAMES} - {None}:
    import_module(package)  # before a case has to be done in time


def case_of(number, folder):
    """(name, Case) of a number."""
    name = NAMES[number % len(NAMES)]
    return name, MAKERS[name][0](np.random.default_rng([11, number]), folder)


def run(folder, first, stop):
    """Cases first, ..., stop - 1."""
    out = str(folder / "out")

    def cases(number):
        name, case = case_of(number, folder)
        command = None if case.command is None or number // len(NAMES) % 4 else case.command
        if command is not None and command[0] == "sketch":
            command = [*command, "-o", out]
        return case.path, name, case.read, case.right, command

    try_all(cases, first, stop)


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
