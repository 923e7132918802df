"""State files from strangers, right checksums and wrong content: a StateError that says what is wrong."""

import io
import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import fastsketch as fs
from fastsketch._kernels.online.numbers import ALPHA, DELTA, LOSS, MISTAKES, OLD, RANK, ROUND, ROWS, SCALE, SEEN
from fastsketch.data import StateError
from fastsketch.data.files import _state as files
from tests.reliability.zoo import SPECIMENS

ZOO = {specimen.name: specimen for specimen in SPECIMENS}


def changed(name, change, n=40):
    """Content of a file of the zoo after change(about, arrays)."""
    about, arrays = files.read(io.BytesIO(ZOO[name].learned(n).to_bytes()))
    kept = {key: about[key] for key in ("kind", "home", "parameters", "notes", "state")}
    arrays = {key: array.copy() for key, array in arrays.items()}
    fs.from_bytes(files.pack(kept, arrays))  # untouched it is loaded
    change(kept, arrays)
    return files.pack(kept, arrays)


def put(array, place, value):
    """A change of one entry."""

    def change(about, arrays):
        arrays[array][place] = value

    return change


def parameter(name, value):
    return lambda about, arrays: about["parameters"].update({name: value})


def state(name, value):
    return lambda about, arrays: about["state"].update({name: value})


def shifted(about, arrays):
    """A buffer without room for the row that centring writes before the new ones."""
    arrays["count"][0] = 10
    arrays["buffer"] = np.ones((10, 12))
    arrays["root"] = np.ones(10 - arrays["count"][1])


def backward(about, arrays):
    """Row starts that turn back within their range."""
    arrays["indptr"][1] = arrays["indptr"][-1]


def twice(about, arrays):
    """A column twice in one row."""
    starts = arrays["indptr"]
    row = int(np.flatnonzero(np.diff(starts) >= 2)[0])
    arrays["indices"][starts[row] + 1] = arrays["indices"][starts[row]]


# Entries of `count` of an engine, of a block, of an adaptive model and of a Newton model.
FILL, KEPT, AGE, N_ROWS, EXPONENT, TOP = range(6)
BLOCK_ROWS, PENDING, SHIFTED = range(3)

CASES = [
    ("sketch-csr", put("indices", 0, 15), "column index outside"),
    ("sketch-csr", put("indices", 0, -1), "column index outside"),
    ("sketch-csr", backward, "not in order"),
    ("sketch-csr", twice, "twice"),
    ("sketch-gram-centred-decayed", shifted, "fill must lie in"),
    ("sketch-rfd", put("count", KEPT, 6), "kept must lie in"),
    ("sketch-rfd", put("count", AGE, 17), "age must lie in"),
    ("sketch-rfd", put("count", N_ROWS, -7), "n_rows must lie in"),
    ("sketch-rfd", put("count", N_ROWS, 2**63 - 1), "n_rows must lie in"),
    ("sketch-rfd", put("count", EXPONENT, 3), "exponent must lie in"),
    ("sketch-rfd", put("count", TOP, 2000), "top must lie in"),
    ("sketch-rfd", put("book", 0, -1.0), "shrinkage must lie in"),
    ("sketch-rfd", put("book", 4, -1.0), "rounding must lie in"),
    ("sketch-rfd", put("book", 1, np.nan), "squared_norm must lie in"),
    ("sketch-rfd", put("buffer", (0, 0), np.nan), "finite"),
    ("sketch-rfd", put("buffer", (0, 0), 1e300), "squares"),
    ("sketch-rfd", put("lam", 0, -1.0), "negative"),
    ("sketch-rfd", put("gain", 0, 1e300), "too long"),
    ("sketch-rfd", parameter("sketch_size", 10**7), "sketch_size must be at least"),
    ("sketch-rfd", lambda about, arrays: about["state"]["engine"].update(sketch_size=10**7), "array 'lam'"),
    ("sketch-tolerance", lambda about, arrays: about["state"]["engine"].update(sketch_size=1), "sketch_size must be"),
    ("sketch-tolerance", lambda about, arrays: about["state"]["engine"].update(sketch_size=21), "max_sketch_size"),
    ("sketch-rfd", parameter("center", True), "not consistent"),
    ("sketch-tfd", put("seen", (0, 1), 1e3), "'seen' must be symmetric"),
    ("sketch-tfd", put("leaked", (1, 1), np.inf), "'leaked' must be finite"),
    ("sketch-tfd", put("seen", (1, 1), 1e308), "largest entry of 'seen' must lie in"),
    ("sketch-tfd", put("lost", 0, 1e308), "'lost' must lie in"),
    ("sketch-tfd", put("lost", 0, -1.0), "'lost' must not be negative"),
    ("sketch-tfd", put("lost", 0, np.nan), "'lost' must be finite"),
    ("sketch-tfd", lambda about, arrays: arrays.pop("leaked"), "'leaked' is missing"),
    ("sketch-tfd", lambda about, arrays: arrays.update(seen=np.zeros((4, 4))), "'seen' has shape"),
    ("sketch-pfd", lambda about, arrays: arrays.update(seen=np.zeros((5, 5))), "'seen' does not belong"),
    ("sketch-csr-tfd-centred-decayed", put("leaked", (1, 0), -1e3), "'leaked' must be symmetric"),
    ("sketch-mapped-tfd", put("inner_lost", 0, -1.0), "'lost' must not be negative"),
    ("sketch-exact-float32", put("cov", (0, 0), np.inf), "finite"),
    ("sketch-exact-float32", put("count", KEPT, 1), "not consistent"),
    ("sketch-mapped-srht", put("block_count", PENDING, 40), "pending rows must lie in"),
    ("sketch-mapped-srht", put("block_count", BLOCK_ROWS, 16), "rows of the block must lie in"),
    ("sketch-mapped-srht", put("block_count", BLOCK_ROWS, 9), "pending rows must lie in"),
    ("sketch-mapped-centred", put("block_count", SHIFTED, 0), "shifted"),
    ("sketch-mapped-srht", put("place", 1, -1), "index of the block"),
    ("hash-srht", state("n_features", 400_000_000), "expected"),
    ("hash-srht", state("index", 2**63), "index"),
    ("hash-fd", put("leaf_count", N_ROWS, 16), "rows of the block being filled"),
    ("hash-srht", put("leaf_root", 7, 1.0), "no weight"),
    ("hash-srht", put("reservoir_priority", 0, 2**64 - 1), "order"),
    ("online-rfd-csr", put("0.kept_indices", 0, 99), "column index outside"),
    ("online-rfd-csr", put("0.kept_indptr", 1, 10**6), "not in order|end beyond"),
    ("online-rfd", put("0.count", ROWS, 7), "rows since the last shrink"),
    ("online-rfd", put("0.count", MISTAKES, 41), "mistakes"),
    ("online-plain", put("0.count", ROUND, 2**63 - 1), "n_rows must lie in"),
    ("online-rfd", put("0.scalar", LOSS, -1.0), "cumulative loss must lie in"),
    ("online-ada_ffd", put("0.count", ROUND, 2**63 - 1), "n_rows must lie in"),
    ("online-rfd-csr", put("0.count", SEEN, 99), "slots that have occurred"),
    ("online-fd", put("0.scalar", ALPHA, 0.0), "alpha must lie in"),
    ("online-fd", put("0.count", RANK, 99), "rank must lie in"),
    ("online-fd", put("0.scalar", ALPHA, 0.45), "alpha must lie in"),  # alpha0 is 1: it is put back below a half
    ("online-ada_full", state("sparse", True), "no form for sparse rows"),
    ("online-ada_ffd", put("0.count", RANK, 1), "rows of C must lie in"),
    ("online-ada_ffd", put("0.lam", 0, 0.0), "descending"),
    ("online-ada_ffd", put("0.scalar", SCALE, 0.0), "scale"),
    ("online-ada_ffd", put("0.scalar", DELTA, -1.0), "delta must be positive"),
    ("online-ada-ffd-csr", put("0.count", OLD, 5), "not sparse"),
    ("online-ada-ffd-csr", put("0.kept_indices", 0, 99), "column index outside"),
    ("online-ada_diag", put("0.squares", 0, -1.0), "negative"),
    ("online-ada_diag", put("0.last", 0, 1e9), "ahead of"),
    ("online-ada_full", parameter("sketch_size", 0), "sketch_size"),
    ("completion-low-rank", put("left", (0, 0), np.nan), "finite"),
    ("completion-low-rank", state("selected_rank", 2**62), "ranks"),
    ("hash-lsh", state("n_rows", -1), "at least 0"),
    ("hash-sgh", put("bases", (0, 0), np.inf), "finite"),
]


@pytest.mark.parametrize(("name", "change", "message"), CASES)
def test_what_no_model_can_have_is_refused_by_name(name, change, message):
    n = 45 if name.startswith(("sketch-mapped", "hash-srht", "hash-fd")) else 40
    fs.from_bytes(changed(name, lambda about, arrays: None, n))
    with pytest.raises(StateError, match=message):
        fs.from_bytes(changed(name, change, n))


# Small files that state large sizes: prints the MB of memory touched by each beside that of the imports.
LOAD = """
import resource, sys
import fastsketch as fs
import fastsketch.reference.baselines, fastsketch.online, fastsketch.lowrank, scipy.linalg
def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
for path in sys.argv[1:]:
    before = most()
    try:
        fs.load(path)
    except fs.StateError:
        pass
    print(most() - before)
"""


def wide_and_empty(about, arrays):
    """No row yet: nothing in the file tells how wide rows are, so that this is a model."""
    about["state"]["engine"]["n_features"] = 400_000_000
    arrays["z"] = np.zeros((400_000_000, 0))
    for name in ("indices", "data", "root"):
        arrays[name] = arrays[name][:0]
    arrays["indptr"], arrays["count"][:] = arrays["indptr"][:1], [0, 0, 0, 0, 0, -(2**20)]


SIZES = [
    ("sketch-rfd", lambda about, arrays: about["state"]["engine"].update(n_features=400_000_000)),
    ("sketch-rfd", lambda about, arrays: about["state"]["engine"].update(buffer_size=40_000)),
    ("sketch-rfd", parameter("sketch_size", 40_000)),
    ("sketch-csr", lambda about, arrays: about["state"]["engine"].update(n_features=400_000_000)),
    ("sketch-csr", wide_and_empty),
    ("sketch-mapped-gaussian", lambda about, arrays: about["parameters"]["compressor"].update(block_rows=2**30)),
    ("sketch-mapped-srht", lambda about, arrays: about["parameters"]["compressor"].update(rows_out=2**25)),
    ("hash-srht", state("n_features", 400_000_000)),
    ("hash-srht", parameter("block_rows", 2**30)),
    ("hash-srht", parameter("n_bits", 10**8)),
    ("hash-exact", state("n_features", 40_000)),
    ("hash-lsh", parameter("n_bits", 2**31)),
    ("hash-sgh", parameter("n_bases", 2**31)),
    ("online-rfd", parameter("sketch_size", 10_000)),
    ("online-fd", parameter("sketch_size", 10_000)),
    ("online-ada_fd", parameter("sketch_size", 10_000)),
    ("completion-low-rank", parameter("rank", 2**31)),
]


@pytest.mark.skipif(sys.platform != "linux", reason="memory that was touched is counted on Linux")
def test_small_files_take_little_memory(tmp_path):
    paths = [tmp_path / f"{number}.fsk" for number in range(len(SIZES))]
    for path, (name, change) in zip(paths, SIZES, strict=True):
        path.write_bytes(changed(name, change))
    command = [sys.executable, "-c", LOAD, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    taken = [int(line) for line in done.stdout.split()]
    assert len(taken) == len(SIZES) and max(taken) <= 24, list(zip(taken, SIZES, strict=False))


# -- the header and the archive ----------------------------------------------------------------------------------------
def with_header(text):
    """A sketch whose header has other bytes."""
    old, out = zipfile.ZipFile(io.BytesIO(ZOO["sketch-rfd"].learned().to_bytes())), io.BytesIO()
    with zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "header.npy":
                member = io.BytesIO()
                own = np.lib.format.read_array(io.BytesIO(content)).tobytes()
                np.lib.format.write_array(member, np.frombuffer(text(own), np.uint8))
                content = member.getvalue()
            new.writestr(name, content)
    return out.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        lambda own: b"[" * 100_000,
        lambda own: own.replace(b'"schema": 1', b'"schema": ' + b"2" * 10_000),
        lambda own: own.replace(b'"schema": 1', b'"schema": NaN'),
        lambda own: own.replace(b'"schema": 1', b'"schema": true'),
        lambda own: own.replace(b'"schema": 1', b'"schema": 3, "schema": 1'),
        lambda own: own.replace(b'"sketch_size": 5', b'"sketch_size": Infinity'),
        lambda own: own.replace(b'"sketch_size": 5', b'"sketch_size": ' + b"5" * 4000),
        lambda own: own.replace(b'"alpha0": 0.0', b'"alpha0": NaN'),
        lambda own: own.replace(b'"alpha0": 0.0', b'"alpha0": {"x": [1]}'),
        lambda own: own.replace(b'"kind": "dense"', b'"kind": ["dense"]'),
        lambda own: b"\xff\xfe" + own,
        lambda own: own[:-1],
        lambda own: b"",
        lambda own: json.dumps([json.loads(own)]).encode(),
        lambda own: own.replace(b'"dtype": "<f8"', b'"dtype": "(9,)f8"', 1),
        lambda own: own.replace(b'"dtype": "<f8"', b'"dtype": "|V0"', 1),
        lambda own: own.replace(b'"dtype": "<f8"', b'"dtype": [["a", "<f8"]]', 1),
        lambda own: own.replace(b'"shape": [5', b'"shape": [1e400', 1),
        lambda own: own.replace(b'"shape": [5', b'"shape": [5.0', 1),
        lambda own: own.replace(b'"shape": [', b'"shape": [0, 4611686018427387904, 4611686018427387904, ', 1),
    ],
)
def test_headers_that_are_none(text):
    fs.from_bytes(with_header(lambda own: own))
    with pytest.raises(StateError):
        fs.from_bytes(with_header(text))


def test_notes_may_be_anything_that_json_writes():
    sketch = ZOO["sketch-rfd"].learned()
    sketch.notes.update(score=float("nan"), deep=[[[]]], many=10**30)
    assert np.isnan(fs.from_bytes(sketch.to_bytes()).notes["score"])


def test_members_of_one_name_or_larger_than_the_file():
    content = ZOO["sketch-rfd"].learned().to_bytes()
    out = io.BytesIO(content)
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(out, "a") as archive:
        archive.writestr("lam.npy", b"another")
    with pytest.raises(StateError, match="one name"):
        fs.load(out)
    at = content.rfind(b"buffer.npy") - 46  # the entry in the directory
    larger = bytearray(content)
    larger[at + 20 : at + 28] = (10**9).to_bytes(4, "little") * 2
    with pytest.raises(StateError, match="larger than the file"):
        fs.from_bytes(bytes(larger))


def test_a_header_that_is_too_long_is_not_read(monkeypatch):
    content = ZOO["sketch-rfd"].learned().to_bytes()
    monkeypatch.setattr(files, "LONGEST_HEADER", 300)
    with pytest.raises(StateError, match="damaged: its header claims"):
        fs.from_bytes(content)


# -- lack of memory, and numbers that leave their range ----------------------------------------------------------------
@pytest.mark.parametrize("after", range(6))
def test_lack_of_memory_while_writing_is_that(tmp_path, monkeypatch, after):
    sketch, path = ZOO["sketch-rfd"].learned(), tmp_path / "s.fsk"
    before = sketch.to_bytes()
    path.write_bytes(b"older")
    calls, write = [], np.lib.format.write_array

    def fails(file, array, **options):
        calls.append(1)
        if len(calls) > after:
            file.write(b"half")
            raise MemoryError
        return write(file, array, **options)

    monkeypatch.setattr(np.lib.format, "write_array", fails)
    for use in (sketch.to_bytes, lambda: sketch.save(path)):
        calls.clear()
        with pytest.raises(MemoryError):
            use()
    monkeypatch.undo()
    assert sketch.to_bytes() == before
    assert path.read_bytes() == b"older" and [file.name for file in tmp_path.iterdir()] == ["s.fsk"]


@pytest.mark.parametrize("solver", ["gram", "svd"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_eigensolver_looks_for_the_values_of_infinity(solver, dtype):
    rows = np.random.default_rng(0).standard_normal((40, 12)).astype(dtype)
    sketch = fs.FrequentDirections(5, solver=solver).update(rows)
    sketch._engine.gain[:2] = np.inf
    with pytest.raises(np.linalg.LinAlgError), np.errstate(all="ignore"):
        sketch.update(np.ones((20, 12), dtype))
    with pytest.raises(np.linalg.LinAlgError), np.errstate(all="ignore"):
        sketch.sketch()


LEDGERS = {
    "huge": lambda arrays: arrays["seen"].__imul__(0.0).__iadd__(1e290),
    "huge-leaked": lambda arrays: arrays["leaked"].__imul__(0.0).__iadd__(1e290),
    "indefinite": lambda arrays: arrays["seen"].__imul__(-1e290),
    "more-than-there-is": lambda arrays: arrays["lost"].__iadd__(1e290),
    "short-rows": lambda arrays: arrays["lam"].__imul__(1e-300),
    "long-rows": lambda arrays: arrays["lam"].__iadd__(1e308),
}


@pytest.mark.parametrize("name", ["sketch-tfd", "sketch-csr-tfd-centred-decayed"])
@pytest.mark.parametrize("ledger", LEDGERS)
def test_a_ledger_that_passes_and_cannot_be_harms_nothing(name, ledger):
    """It is read within the intervals, and goes on, is merged, or is undone: whatever is saved is loaded again."""
    model = fs.from_bytes(changed(name, lambda about, arrays: LEDGERS[ledger](arrays)))
    true = ZOO[name].learned()
    for one in (model, true.copy().merge(model), model.copy().merge(true)) if ledger != "long-rows" else (model,):
        for seed in range(3):
            before = one.to_bytes()
            try:
                spectrum = one.spectrum()
                one.update(ZOO[name].rows(seed, 40))
            except np.linalg.LinAlgError:  # what shrinks make of such lengths has left the range
                assert ledger == "long-rows" and one.to_bytes() == before
            else:
                assert np.isfinite(spectrum.values).all() and (np.diff(spectrum.values) <= 0).all()
                assert (spectrum.low <= spectrum.values).all() and (spectrum.values <= spectrum.high).all()
        assert fs.from_bytes(one.to_bytes()).to_bytes() == one.to_bytes()
