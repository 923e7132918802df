"""HDF5, AnnData and Zarr whose parts are of another kind or length, or lie elsewhere."""

import json
import shutil
from pathlib import Path

import numpy as np

from fastsketch.data import open_rows
from tests.reliability.structures import (
    FILL,
    Case,
    changed,
    chosen,
    dense,
    edited,
    extreme,
    same,
    sketching,
    triples_of,
)


def virtual(home, name, file, key, shape, kind):
    import h5py

    layout = h5py.VirtualLayout(shape, kind)
    layout[...] = h5py.VirtualSource(file, key, shape)
    home.create_virtual_dataset(name, layout)


def elsewhere(rng, home, name, x):
    """A data set whose entries are not here, or not where it says."""
    import h5py

    folder = Path(home.file.filename).parent
    with h5py.File(folder / "other.h5", "w") as other:
        other["y"] = x
    how = rng.integers(7)
    if how == 0:
        home[name] = h5py.ExternalLink("other.h5", "/y")
    elif how == 1:
        home[f"{name} link"], home[name] = (
            h5py.ExternalLink("other.h5", "/y"),
            h5py.SoftLink(f"{home.name}/{name} link"),
        )
    elif how == 2:
        home[name] = h5py.SoftLink(f"{home.name}/{name}")
    elif how == 3:
        home.create_dataset(name, x.shape, x.dtype, external=[(str(folder / "other.h5"), 0, max(1, x.nbytes))])
    elif how == 4:
        virtual(home, name, "other.h5", "y", x.shape, x.dtype)
    elif how == 5:
        virtual(home, name, ".", chosen(rng, [f"{home.name}/{name}", "gone"]), x.shape, x.dtype)
    else:
        virtual(home, f"{name} too", ".", f"{home.name}/{name}", x.shape, x.dtype)
        virtual(home, name, ".", f"{home.name}/{name} too", x.shape, x.dtype)


def hdf5(rng, folder):
    """Data sets of all kinds and places."""
    import h5py

    path, x = folder / "x.h5", rng.standard_normal((int(rng.integers(4, 30)), 3))
    here, how = True, rng.integers(9)
    with h5py.File(path, "w", libver=chosen(rng, ["earliest", "latest"])) as file:
        if how < 3:
            options = [{}, {"chunks": (4, 2)}, {"chunks": (4, 2), "compression": "gzip", "shuffle": True}]
            file.create_dataset("x", data=x, **chosen(rng, options))
        elif how == 3:
            x = (x * 10).astype(chosen(rng, ["i1", ">i4", "u2", "?", ">f4", "f2"]))
            file["x"] = x
        elif how == 4:  # what holds no rows
            here = False
            file["x"] = chosen(rng, [x.astype("c16"), x.astype("S8"), x[:, 0], x[0, 0], x[None], x.view("f8,f8,f8")])
        elif how == 5:
            x = np.full(x.shape, 2.5)
            file.create_dataset("x", x.shape, chunks=(4, 2), fillvalue=2.5)
        elif how == 6:
            file["a/y"] = x
            file["a/b"] = file["a"]  # a group within itself
            file["x"] = h5py.SoftLink("/a/b/b/y")
        elif how == 7:
            file["a/y"] = x
            virtual(file, "x", chosen(rng, [".", "x.h5"]), "a/y", x.shape, x.dtype)
        else:
            here = False
            elsewhere(rng, file, "x", x)
    damaged = rng.random() < 0.6
    if damaged:
        content = path.read_bytes()
        path.write_bytes(edited(rng, content, [[(0, min(len(content), 4096))]]))

    def right(found):
        if not damaged:
            return here and same(found, x)
        with h5py.File(path) as file:
            return same(found, np.nan_to_num(file["x"][()].astype(np.float64), nan=FILL, posinf=np.inf, neginf=-np.inf))

    return Case(path, lambda: dense(path, key="x", fill=FILL), right, sketching(path, "--set", "key=x"))


def sparse_rows(path, **options):
    """Triples of all rows, and how many rows there are."""
    found, n = {}, 0
    for rows in open_rows(path, fill=FILL, **options):
        found.update(triples_of(rows, n))
        n += rows.shape[0]
    return found, n


def cells_as_they_are(parts, shape, encoding):
    """Triples of CSR parts, by the rules of the format alone; None where one is broken."""
    whole = (
        encoding.startswith("csr")
        and len(shape) == 2
        and all(isinstance(size, int) for size in shape)
        and set(parts) == {"indptr", "indices", "data"}
        and all(part.ndim == 1 for part in parts.values())
        and parts["indptr"].dtype.kind in "iu"
        and parts["indices"].dtype.kind in "iu"
        and parts["data"].dtype.kind in "fiub"
    )
    if not whole or len(parts["indptr"]) != shape[0] + 1 or len(parts["indices"]) != len(parts["data"]):
        return None
    ends, found = parts["indptr"].tolist(), {}
    if ends[0] != 0 or ends != sorted(ends) or ends[-1] > len(parts["data"]):
        return None
    for row in range(shape[0]):
        for k in range(ends[row], ends[row + 1]):
            place, value = (row, int(parts["indices"][k])), float(parts["data"][k])
            if not 0 <= place[1] < shape[1]:
                return None
            found[place] = found.get(place, 0.0) + (FILL if value != value else value)
    return {place: value for place, value in found.items() if value}, shape[0]


def h5ad(rng, folder):
    """The parts of CSR cells."""
    import h5py
    from scipy import sparse

    rows = sparse.csr_array(rng.random((12, 5)) * (rng.random((12, 5)) < 0.4))
    parts = {"indptr": rows.indptr.astype("i8"), "indices": rows.indices.astype("i8"), "data": rows.data}
    shape, encoding, away = [12, 5], "csr_matrix", None
    for _ in range(rng.integers(1, 3)):
        name, how = chosen(rng, list(parts) or ["data"]), rng.integers(9)
        if how < 3 and name in parts and parts[name].dtype.kind == "i" and parts[name].size:
            parts[name].flat[rng.integers(parts[name].size)] = extreme(rng, 4) if how else int(rng.integers(0, 6))
        elif how == 3 and name in parts:
            kind = chosen(rng, ["f4", "f8", "u1", "u8", "S3", "?", "c8", "i2", ">i4"])
            with np.errstate(all="ignore"):
                parts[name] = (
                    parts[name].astype(kind) + (0.7 if kind == "f4" else 0) if kind != "S3" else np.array([b"a"])
                )
        elif how == 4 and name in parts:
            parts[name] = chosen(
                rng, [parts[name][:-1], np.resize(parts[name], parts[name].size + 1), parts[name][:, None]]
            )
        elif how == 5:
            shape[rng.integers(len(shape))] = extreme(rng, 12)
        elif how == 6:
            shape, encoding = chosen(
                rng,
                [([12.0, 5.5], encoding), ([12], encoding), (shape, "csc_matrix"), (shape, ""), ([12, 5, 1], encoding)],
            )
        elif how == 7:
            parts.pop(name, None)
        else:
            away = name
    path = folder / "x.h5ad"
    with h5py.File(path, "w") as file:
        home = file.create_group("X")
        home.attrs.update({"encoding-type": encoding, "shape": np.array(shape)})
        for name, part in parts.items():
            if name == away and part.dtype.kind != "S":
                elsewhere(rng, home, name, part)
            else:
                home[name] = part
        file["var/_index"] = [f"g{k}" for k in range(5)]
        if rng.random() < 0.1:
            del file["var/_index"]
            elsewhere(rng, file["var"], "_index", np.arange(5))
            away = "data"
    expected = None if away in parts else cells_as_they_are(parts, shape, encoding)
    return Case(path, lambda: sparse_rows(path), lambda found: found == expected, sketching(path))


def zarr(rng, folder):
    """What describes an array, and its chunks."""
    import zarr as library

    path, x = folder / "x.zarr", rng.standard_normal((20, 6))
    shutil.rmtree(path, ignore_errors=True)
    options = chosen(rng, [{}, {"compressors": None}, {"shards": (10, 6)}, {"zarr_format": 2}])
    key = chosen(rng, [None, "a/b"])
    if key is not None:
        library.create_group(str(path), zarr_format=options.get("zarr_format", 3))
    library.create_array(str(path), name=key, data=x, chunks=(5, 6), **options)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    about = [file for file in files if file.name in ("zarr.json", ".zarray", ".zgroup")]
    if rng.random() < 0.6:
        file = chosen(rng, about)
        tree = json.loads(file.read_text())
        for _ in range(rng.integers(1, 3)):
            changed(rng, tree)
        file.write_text(json.dumps(tree))
    else:
        file = chosen(rng, files)
        content = file.read_bytes()
        how = rng.integers(4)
        if how == 0:
            file.write_bytes(edited(rng, content, [[(0, len(content))]]))
        elif how == 1:
            file.write_bytes(content[: rng.integers(len(content))])
        elif how == 2:
            file.unlink()
            file.mkdir()
        else:
            file.write_bytes(chosen(rng, files).read_bytes())

    def right(found):
        whole = library.open(store=str(path), mode="r")
        whole = np.asarray((whole if key is None else whole[key])[:], np.float64)
        return same(found, np.where(np.isnan(whole), FILL, whole))

    return Case(
        path, lambda: dense(path, key=key, fill=FILL), right, sketching(path, *(["--set", f"key={key}"] if key else []))
    )
