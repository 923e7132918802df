"""Arrays that other libraries store: HDF5, Zarr, AnnData, dask."""

import json
import pickle
import shutil
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

import fastsketch as fs
from fastsketch.data import SourceError
from fastsketch.data.sources import _source, _stored, open_rows

N, D = 1000, 7


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(_source, "CHUNK_BYTES", 4 * D * 97)


@pytest.fixture
def x():
    return np.random.default_rng(0).standard_normal((N, D)).astype(np.float32)


def dense(rows):
    return rows.toarray() if sp.issparse(rows) else np.array(rows)


def whole(source, start_row=0):
    chunks = [dense(rows) for rows, _ in source.chunks(start_row)]
    return np.concatenate(chunks) if chunks else np.empty((0, source.n_features), source.dtype)


def hold(source, x, n_parts=3, multiple=16):
    """What every source that can be read again holds."""
    assert (source.n_rows, source.n_features, source.dtype) == (*x.shape, x.dtype)
    np.testing.assert_array_equal(whole(source), x)
    assert whole(source).dtype == x.dtype
    for start in (1, 130, 999, 1000):
        np.testing.assert_array_equal(whole(source, start), x[start:])
    assert [position for _, position in source.chunks()][-1] == source.size
    for some in (1, multiple):
        parts = source.parts(4 * D * 150, multiple=some)
        assert len(parts) >= n_parts
        assert all(part.n_rows % some == 0 for part in parts[:-1])
        assert [part.first_row for part in parts] == [0, *np.cumsum([part.n_rows for part in parts])[:-1]]
        parts = [pickle.loads(pickle.dumps(part)) for part in parts]
        np.testing.assert_array_equal(np.concatenate([whole(part) for part in parts]), x)
        np.testing.assert_array_equal(whole(parts[1], 5), whole(parts[1])[5:])
        assert json.dumps(parts[0].identity()) != json.dumps(parts[1].identity())
    np.testing.assert_array_equal(whole(open_rows(source, columns=[2, 0])), x[:, [2, 0]])
    assert whole(open_rows(source, dtype=np.float64)).dtype == np.float64


# HDF5


@pytest.mark.parametrize("held", [0, 1 << 30])
@pytest.mark.parametrize("chunks", [None, (64, 3), (600, 7), (1000, 1)])
def test_rows_of_a_data_set(chunks, held, x, tmp_path, monkeypatch):
    h5py = pytest.importorskip("h5py")
    monkeypatch.setattr(_stored, "HELD_BYTES", held)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("g/x", data=x, chunks=chunks, compression="gzip" if chunks else None)
        file["labels"] = np.arange(N)
        file["names"] = np.array([[b"a", b"b"]])
    hold(open_rows(tmp_path / "x.h5"), x, 2)
    with h5py.File(tmp_path / "x.h5") as file:
        hold(open_rows(file["g/x"]), x, 2)


@pytest.mark.parametrize("dtype", [">f4", "f2", "i2", ">i8", "u1", "?"])
def test_dtypes_of_data_sets(dtype, x, tmp_path):
    h5py = pytest.importorskip("h5py")
    x = (x * 10).astype(dtype)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = x
    source = open_rows(tmp_path / "x.h5", dtype=np.float64)
    np.testing.assert_array_equal(whole(source), x.astype(np.float64))
    assert open_rows(tmp_path / "x.h5").dtype.isnative


def test_a_data_set_that_cannot_be_opened_again_is_read_as_it_is(x):
    h5py = pytest.importorskip("h5py")
    with h5py.File("x", "w", driver="core", backing_store=False) as file:
        file["x"] = x
        source = open_rows(file["x"])
        np.testing.assert_array_equal(whole(source), x)
        kept = file["x"]
    with pytest.raises(SourceError, match="the data set is closed: open its file again"):
        open_rows(kept)


def test_data_sets_that_there_are_not(x, tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["labels"] = np.arange(N)
    with pytest.raises(SourceError, match=r"x\.h5 has no matrix of two dimensions that holds numbers"):
        open_rows(path)
    with h5py.File(path, "a") as file:
        file["one"], file["g/two"] = x, x[:5]
        file["text"] = np.array([["a", "b"]], "S1")
        file["none"] = np.empty((5, 0))
    with pytest.raises(SourceError, match=r"2 matrices: name one of them in key=: 'g/two', 'one'") as e:
        with h5py.File(path, "a") as file:
            del file["none"]
        open_rows(path)
    assert "text" not in str(e.value)
    assert open_rows(path, key="g/two").n_rows == 5
    for key, said in (
        ("labels", "must be a matrix"),
        ("g", "is no matrix that rows can be read of, but a group"),
        ("three", "there is no matrix 'three'; there are: 'g/two', 'one'"),
        ("text", "must hold real numbers"),
    ):
        with pytest.raises(SourceError, match=said):
            open_rows(path, key=key)


def test_an_hdf5_file_that_changes(x, tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=x, maxshape=(None, D), chunks=(50, D))
    source = open_rows(path)
    part = source.parts(4 * D * 150)[2]
    with h5py.File(path, "a") as file:
        file["x"].resize(N + 50, 0)
    for some in (source, part):
        with pytest.raises(SourceError, match="has changed since it was opened"):
            whole(some)
    path.unlink()
    with pytest.raises(SourceError, match="is gone"):
        whole(source)


def damage(path, again):
    """Files that were cut short or have other bits: whatever h5py does of it, a SourceError or rows."""
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    for trial in range(40):
        bad = bytearray(good)
        if trial % 3 == 0:
            bad = bad[: rng.integers(1, len(bad))]
        else:
            for place in rng.integers(0, len(bad) if trial % 2 else 2000, 1 + trial % 5):
                bad[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(bad))
        try:
            again(path)
        except SourceError as error:
            assert path.name in str(error)


def test_damaged_hdf5_files(x, tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=x[:200], chunks=(50, D), compression="gzip")
    damage(path, lambda path: whole(open_rows(path, fill=0.0)))


@pytest.mark.parametrize("length", [0, 3, 5000, 2**64 - 16, 2**64 - 4008])
@pytest.mark.parametrize("user_block", [0, 512])
def test_heaps_in_which_hdf5_would_loop_for_ever(length, user_block, x, tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", userblock_size=user_block) as file:
        file["x"] = x
        layout = h5py.VirtualLayout(x.shape, x.dtype)
        layout[...] = h5py.VirtualSource(".", "x", x.shape)
        file.create_virtual_dataset("v", layout)
    np.testing.assert_array_equal(whole(open_rows(path, key="v")), x)
    content = bytearray(path.read_bytes())
    heap = content.index(b"GCOL")
    free = content.index((4096).to_bytes(8, "little"), heap) + 8  # the first object, and the free space after it
    free += 16 + -(-int.from_bytes(content[free + 8 : free + 16], "little") // 8) * 8
    content[free + 8 : free + 16] = length.to_bytes(8, "little")
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"x\.h5 is damaged: an object of a heap has a length"):
        open_rows(path, key="v")


def test_heaps_whose_lengths_have_four_bytes(x, tmp_path):
    h5py = pytest.importorskip("h5py")
    sizes = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    sizes.set_sizes(8, 4)
    path = tmp_path / "x.h5"
    with h5py.File(h5py.h5f.create(bytes(path), h5py.h5f.ACC_TRUNC, fcpl=sizes)) as file:
        file["X"], file["var/_index"] = x, [f"gene {k}" for k in range(D)]
    assert open_rows(path, key="X").feature_names == tuple(f"gene {k}" for k in range(D))


# Zarr


@pytest.mark.covering(1)
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("chunks", [(64, 3), (600, 7), (1000, 1)])
def test_rows_of_a_zarr_array(version, chunks, x, tmp_path):
    zarr = pytest.importorskip("zarr")
    alone = zarr.create_array(tmp_path / "a.zarr", shape=x.shape, chunks=chunks, dtype="f4", zarr_format=version)
    alone[:] = x
    hold(open_rows(tmp_path / "a.zarr"), x, 2)
    hold(open_rows(alone), x, 2)
    group = zarr.open_group(tmp_path / "g.zarr", mode="w", zarr_format=version)
    group.create_array("q/x", shape=x.shape, chunks=chunks, dtype="f4")[:] = x
    group.create_array("labels", shape=(N,), dtype="i8")
    hold(open_rows(tmp_path / "g.zarr"), x, 2)
    np.testing.assert_array_equal(whole(open_rows(tmp_path / "g.zarr", key="q/x", columns=[1])), x[:, [1]])
    with pytest.raises(SourceError, match=r"labels must be a matrix with at least one column, got shape \(1000,\)"):
        open_rows(tmp_path / "g.zarr", key="labels")
    with pytest.raises(SourceError, match="there is no matrix 'x'; there are: 'q/x'"):
        open_rows(tmp_path / "g.zarr", key="x")
    with pytest.raises(SourceError, match="is an array, and no group"):
        open_rows(tmp_path / "a.zarr", key="x")


def test_shards_and_arrays_in_memory(x, tmp_path):
    zarr = pytest.importorskip("zarr")
    a = zarr.create_array(tmp_path / "s.zarr", shape=x.shape, chunks=(10, D), shards=(100, D), dtype="f4")
    a[:] = x
    source = open_rows(tmp_path / "s.zarr")
    hold(source, x, 5)
    assert all(part.n_rows % 100 == 0 for part in source.parts(4 * D * 150))
    np.testing.assert_array_equal(whole(open_rows(zarr.array(x))), x)


@pytest.mark.parametrize("version", [2, 3])
def test_consolidated_metadata_of_arrays_that_are_gone(version, x, tmp_path):
    """Zarr would read an array whose folder is gone as zeros."""
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(tmp_path / "g.zarr", mode="w", zarr_format=version)
    group.create_array("x", shape=x.shape, dtype="f4")[:] = x
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(str(tmp_path / "g.zarr"))
    np.testing.assert_array_equal(whole(open_rows(tmp_path / "g.zarr")), x)
    shutil.rmtree(tmp_path / "g.zarr" / "x")
    with pytest.raises(SourceError, match="no matrix"):
        open_rows(tmp_path / "g.zarr")


def test_zarr_arrays_that_are_none_or_change(x, tmp_path):
    zarr = pytest.importorskip("zarr")
    path = tmp_path / "x.zarr"
    with pytest.raises(SourceError, match=r"x\.zarr"):
        open_rows(path)
    path.mkdir()
    with pytest.raises(SourceError, match=r"x\.zarr is damaged or no Zarr array"):
        open_rows(path)
    zarr.open_group(path, mode="w")
    with pytest.raises(SourceError, match="no matrix of two dimensions"):
        open_rows(path)
    group = zarr.open_group(path, mode="w")
    for name in "ab":
        group.create_array(name, shape=x.shape, chunks=(50, D), dtype="f4")[:] = x
    with pytest.raises(SourceError, match=r"2 matrices: name one of them in key=: 'a', 'b'"):
        open_rows(path)
    source = open_rows(path, key="a")
    # a chunk that has gone reads as zeros
    chunk = next(file for file in sorted((path / "a" / "c").rglob("*")) if file.is_file())
    chunk.unlink()
    with pytest.raises(SourceError, match="has changed since it was opened"):
        whole(source)
    source = open_rows(path, key="a")
    shutil.rmtree(path)
    with pytest.raises(SourceError, match="gone"):
        whole(source)


# AnnData


@pytest.fixture
def anndata():
    pytest.importorskip("h5py")
    return pytest.importorskip("anndata", exc_type=ImportError)


@pytest.fixture
def cells(x, anndata):
    found = anndata.AnnData(sp.csr_array(sp.random(N, D, 0.3, "csr", np.float32, np.random.default_rng(1))))
    found.var_names = list("abcdefg")
    found.layers["raw_counts"] = x
    found.obsm["X_pca"] = x[:, :3]
    found.raw = found[:, :4].copy()
    return found


@pytest.mark.filterwarnings("ignore")
def test_annotated_matrices(cells, x, anndata, tmp_path):
    path = tmp_path / "x.h5ad"
    cells.write_h5ad(path)
    backed = anndata.read_h5ad(path, backed="r")
    sparse = cells.X.toarray()
    for given in (path, backed, cells):
        source = open_rows(given)
        assert source.sparse
        assert source.feature_names == tuple("abcdefg")
        hold(source, sparse)
        layer = open_rows(given, key="raw_counts")
        assert layer.feature_names == tuple("abcdefg")
        np.testing.assert_array_equal(whole(layer), x)
        np.testing.assert_array_equal(whole(open_rows(given, columns=["c", "a"])), sparse[:, [2, 0]])
        pca = open_rows(given, key="obsm/X_pca")
        assert pca.feature_names is None
        np.testing.assert_array_equal(whole(pca), x[:, :3])
        raw = open_rows(given, key="raw/X")
        assert raw.feature_names == tuple("abcd")
        np.testing.assert_array_equal(whole(raw), sparse[:, :4])
        with pytest.raises(SourceError, match="'nope'"):
            open_rows(given, key="nope")
    with pytest.raises(SourceError, match="to_memory"):
        open_rows(backed[:10])
    np.testing.assert_array_equal(whole(open_rows(cells[5:60])), sparse[5:60])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", ["sparse", "dense"])
@pytest.mark.parametrize("name", ["x.h5", "2.zarr", "3.zarr"])
def test_annotated_matrices_of_any_format_and_name(name, form, cells, x, tmp_path):
    """X is meant, whatever else the file holds."""
    pytest.importorskip("zarr")
    expected = cells.X.toarray() if form == "sparse" else x + 1
    if form == "dense":
        cells.X = expected
    path = tmp_path / name
    if name == "x.h5":
        cells.write_h5ad(path)
    else:
        from anndata import settings

        with settings.override(zarr_write_format=int(name[0])):
            cells.write_zarr(path)
    source = open_rows(path)
    assert source.sparse == (form == "sparse") and source.feature_names == tuple("abcdefg")
    hold(source, expected)
    np.testing.assert_array_equal(whole(open_rows(path, key="X")), expected)
    np.testing.assert_array_equal(whole(open_rows(path, key="raw_counts")), x)
    np.testing.assert_array_equal(whole(open_rows(path, key="obsm/X_pca")), x[:, :3])
    assert open_rows(path, key="raw/X").feature_names == tuple("abcd")
    there = "'X', 'layers/raw_counts', 'obsm/X_pca', 'raw/X'"
    with pytest.raises(SourceError, match=f"there is no matrix 'X_pca'; there are: {there}"):
        open_rows(path, key="X_pca")


@pytest.mark.parametrize("names", ["features/id", "genes"])
def test_cells_in_hdf5_files_of_10x_genomics_are_rows(names, x, tmp_path):
    h5py = pytest.importorskip("h5py")
    counts = sp.csc_array(np.where(x > 1, np.round(10 * x), 0).astype(np.int32).T)  # genes by cells
    with h5py.File(tmp_path / "x.h5", "w") as file:
        group = file.create_group("matrix")
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(counts, name)
        group["shape"], group["barcodes"] = counts.shape, np.arange(N).astype("S18")
        group[names] = [f"ENSG{k}".encode() for k in range(D)]
    source = open_rows(tmp_path / "x.h5")
    assert source.sparse and source.feature_names == tuple(f"ENSG{k}" for k in range(D))
    hold(source, counts.T.toarray())


@pytest.mark.filterwarnings("ignore")
def test_names_that_may_be_missing(cells, tmp_path):
    """AnnData 0.13 writes names as a group: values beside a mask."""
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "x.h5ad"
    cells.write_h5ad(path)
    with h5py.File(path, "a") as file:
        index = file["var"].attrs["_index"]
        del file["var"][index]
        names = file["var"].create_group(index)
        names["values"], names["mask"] = list("abcdefg"), np.zeros(7, bool)
    assert open_rows(path).feature_names == tuple("abcdefg")


@pytest.mark.filterwarnings("ignore")
def test_matrices_by_columns_are_refused(anndata, x, tmp_path):
    anndata.AnnData(sp.csc_array(x)).write_h5ad(tmp_path / "x.h5ad")
    with pytest.raises(SourceError, match=r"stored by columns \(CSC\).*tocsr"):
        open_rows(tmp_path / "x.h5ad")
    np.testing.assert_array_equal(whole(open_rows(anndata.AnnData(sp.csc_array(x)))), x)


@pytest.mark.filterwarnings("ignore")
def test_damaged_annotated_matrices(cells, tmp_path):
    import h5py

    path = tmp_path / "x.h5ad"
    cells.write_h5ad(path)
    good = path.read_bytes()
    faults = {
        "indptr goes backwards": lambda x: x["indptr"].__setitem__(7, 10**6),
        "an index beyond its columns": lambda x: x["indices"].__setitem__(9, D),
        "beyond its entries": lambda x: x["indptr"].__setitem__(slice(N - 4, None), 10**6),
        "lengths": lambda x: x.attrs.__setitem__("shape", [N + 1, D]),
    }
    for said, fault in faults.items():
        path.write_bytes(good)
        with h5py.File(path, "a") as file:
            fault(file["X"])
        with pytest.raises(SourceError, match=said):
            whole(open_rows(path))
    path.write_bytes(good)
    damage(path, lambda path: whole(open_rows(path, fill=0.0)))


# dask


def test_rows_of_dask_arrays(x):
    da = pytest.importorskip("dask.array")
    for chunks in ((130, D), (130, 2), (N, D)):
        source = open_rows(da.from_array(x, chunks=chunks))
        hold(source, x, 2)
    blocks = da.from_array(x, chunks=((0, 10, 500, 0, 490), D))
    hold(open_rows(blocks), x, 3)


def test_dask_arrays_that_are_refused(x):
    da = pytest.importorskip("dask.array")
    some = da.from_array(x, chunks=(130, D))
    with pytest.raises(SourceError, match="must be a matrix"):
        open_rows(some[:, 0])
    with pytest.raises(SourceError, match="real numbers"):
        open_rows(some.astype(complex))
    some = some[some[:, 0] > 0]
    for unknown in (some, some.T):
        with pytest.raises(SourceError, match="compute_chunk_sizes"):
            open_rows(unknown)
    np.testing.assert_array_equal(whole(open_rows(some.compute_chunk_sizes())), x[x[:, 0] > 0])


def test_sparse_dask_arrays(x):
    da = pytest.importorskip("dask.array")
    rows = np.where(x > 0.5, x, 0)
    blocks = da.from_array(rows, chunks=(200, D)).map_blocks(sp.csr_array)
    source = open_rows(blocks)
    assert source.sparse
    np.testing.assert_array_equal(whole(source), rows)


# What they have in common


def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch):
    import sys

    for name in ("h5py", "zarr"):
        monkeypatch.setitem(sys.modules, name, None)
    (tmp_path / "x.h5").write_bytes(b"x")
    (tmp_path / "x.h5ad").write_bytes(b"x")
    (tmp_path / "x.zarr").mkdir()
    for name, extra in (("x.h5", "hdf5"), ("x.h5ad", "hdf5"), ("x.zarr", "zarr")):
        with pytest.raises(ImportError, match=rf"pip install 'fastsketch\[{extra}\]'"):
            open_rows(tmp_path / name)


def test_opening_what_is_known_imports_nothing():
    """An object is known by the name of its class: only what it is of has been imported then."""
    import subprocess
    import sys

    code = (
        "import sys, numpy as np; from fastsketch.data import open_rows; open_rows(np.ones((3, 2)));"
        "print([m for m in ('pandas', 'pyarrow', 'h5py', 'zarr', 'anndata', 'dask', 'polars') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_nan_in_a_data_set_is_named(x, tmp_path):
    h5py = pytest.importorskip("h5py")
    x[613, 4] = np.nan
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = x
    with pytest.raises(SourceError, match=r"x\.h5, /x: .*row 613 .* column 4"):
        whole(open_rows(tmp_path / "x.h5"))
    x[613, 4] = 0
    np.testing.assert_array_equal(whole(open_rows(tmp_path / "x.h5", fill=0)), x)


def test_a_sketch_of_any_of_them(x, tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = x
    model = fs.FrequentDirections(5)
    for rows in open_rows(tmp_path / "x.h5"):
        model.update(rows)
    whole_sketch = fs.FrequentDirections(5).update(x).sketch()
    np.testing.assert_allclose(model.sketch().T @ model.sketch(), whole_sketch.T @ whole_sketch, rtol=1e-4, atol=1e-3)
