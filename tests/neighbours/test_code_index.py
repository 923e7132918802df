"""What an index answers, against a dict of rows: adding, removing, stored rows, ids, files, refusals, faiss."""

import copy
import pickle
import threading
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.data.files import _state as state
from fastsketch.neighbours.codes._search import METRICS
from tests.neighbours.toy import toy
from tests.reliability.figures import report
from tests.reliability.test_interrupts import interrupted, moments, places_of

D = 8
RNG = np.random.default_rng(0)
ROWS, QUERIES = RNG.standard_normal((600, D)), RNG.standard_normal((7, D))
LEARNED = fs.SketchHash(8).update(RNG.standard_normal((400, 16)) * np.geomspace(2, 0.2, 16))
REAL = [metric for metric in METRICS if metric != "hamming"]


def same(one, two):
    """Whether two answers have the same bits."""
    return all((a == b).all() for a, b in zip(one, two, strict=True))


def fresh(encoder, x, ids, **parameters):
    """An index of these rows alone."""
    index = fs.CodeIndex(encoder, **parameters)
    index.add(x, ids)
    return index


# -- answers -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("metric", REAL)
def test_answers_are_those_of_the_encoder(metric):
    encoder = toy()
    index = fresh(encoder, ROWS, None, metric=metric)
    assert same(index.search(QUERIES, k=9), encoder.search(QUERIES, encoder.encode(ROWS), k=9, metric=metric))
    wanted = encoder.search(QUERIES, encoder.encode(ROWS), k=9, metric=metric, rescore=ROWS)
    assert same(index.search(QUERIES, k=9, rescore=ROWS), wanted)
    assert same(index.search(QUERIES, k=9, rescore=lambda ids: ROWS[ids]), wanted)
    kept = fresh(encoder, ROWS, None, metric=metric, rows="float32")
    exact = encoder.search(QUERIES, encoder.encode(ROWS), k=9, metric=metric, rescore=ROWS.astype(np.float32))
    assert same(kept.search(QUERIES, k=9), exact)
    assert same(kept.search(QUERIES, k=9, rescore=False), index.search(QUERIES, k=9))


def test_hamming_and_faiss():
    rows = RNG.standard_normal((300, 16))
    index = fresh(LEARNED, rows, np.arange(300) + 7, metric="hamming")
    assert index.encoder.width == 1  # factors are of no use there
    distances, ids = index.search(rows[:5], k=300)
    assert same((distances, ids - 7), fs.hamming_topk(LEARNED.encode(rows[:5]), LEARNED.encode(rows), k=300))
    index.remove(ids[0, :3])
    faiss = pytest.importorskip("faiss")
    both = index.to_faiss(), fresh(LEARNED, rows, np.arange(300) + 7).to_faiss()
    assert isinstance(both[0], faiss.IndexBinaryIDMap2) and (both[0].ntotal, both[1].ntotal) == (297, 300)
    found, _ = both[0].search(LEARNED.encode(rows[:5]), 297)
    assert (np.sort(found, axis=1) == index.search(rows[:5], k=297)[0]).all()


def test_ties_go_to_the_lower_id():
    rows = np.repeat(ROWS[:3], 40, axis=0)
    ids = np.random.default_rng(1).permutation(len(rows)) * 11
    for kept in (None, "float32"):
        distances, found = fresh(toy(), rows, ids, rows=kept).search(ROWS[:3], k=40, oversample=1)
        for number in range(3):
            assert (np.diff(distances[number]) == 0).all()
            assert found[number].tolist() == np.sort(ids[40 * number : 40 * number + 40]).tolist()


@pytest.mark.parametrize("seed", range(12))
def test_any_order_of_calls_gives_what_a_fresh_index_gives(seed, tmp_path):
    """Rows added with their own or given ids, removed, added again; saved, read, copied in between."""
    rng = np.random.default_rng(seed)
    kept, metric = [None, "float32", "float16"][seed % 3], REAL[seed % 2]
    encoder, model = toy(offset=seed % 2 == 0), {}
    index = fs.CodeIndex(encoder, rows=kept, metric=metric)
    for step in range(26):
        n = 60 if step == 25 else int(rng.integers(0, 40))
        rows = rng.standard_normal((n, D))
        if rng.random() < 0.3:
            ids = index.add(rows)
        else:
            free = np.setdiff1d(np.arange(800), list(model))
            ids = index.add(rows, rng.choice(free, n, replace=False))
        model |= dict(zip(ids.tolist(), rows, strict=True))
        gone = rng.choice(sorted(model), min(len(model), int(rng.integers(0, 30))), replace=False)
        index.remove(gone)
        for one in gone.tolist():
            del model[one]
        match int(rng.integers(0, 6)):
            case 0:
                index.save(tmp_path / "index")
            case 1:
                index.save(tmp_path / "index")
                index = fs.CodeIndex.load(tmp_path / "index")
            case 2:
                index = pickle.loads(pickle.dumps(index)) if step % 2 else copy.copy(index)
        assert len(index) == len(model) and sorted(index.ids.tolist()) == sorted(model)
    wanted = fresh(encoder, np.array([*model.values()]), np.array([*model]), rows=kept, metric=metric)
    assert same(index.search(QUERIES, k=20), wanted.search(QUERIES, k=20))
    some = np.sort(rng.choice(list(model), 30, replace=False))
    allowed = index.search(QUERIES, k=20, allow=some)
    assert same(allowed, wanted.search(QUERIES, k=20, allow=some)) and np.isin(allowed[1], some).all()
    assert same(allowed, index.search(QUERIES, k=20, allow=np.isin(index.ids, some)))
    assert (index.get(some) == wanted.get(some)).all()
    assert index.contains([*some, 801 + 10**6]).tolist() == [True] * 30 + [False]


def test_ids_that_a_removed_row_had_may_come_again():
    index = fresh(toy(), ROWS[:50], np.arange(50)[::-1])
    index.remove(np.arange(10))
    index.add(ROWS[100:110], np.arange(10))
    index.remove([3])
    index.add(ROWS[200:201], [3])
    assert len(index) == 50 and 3 in index and 50 not in index and -1 not in index and "a" not in index
    assert (index.get([3]) == toy().decode(toy().encode(ROWS[200:201]))).all()
    assert (index.get([4]) == toy().decode(toy().encode(ROWS[104:105]))).all()
    assert index.add(ROWS[:1]).tolist() == [50]


def test_sparse_rows_and_queries():
    sparse = pytest.importorskip("scipy.sparse")
    rows = ROWS * (RNG.random(ROWS.shape) < 0.4)
    dense = fresh(toy(), rows, None, rows="float32")
    index = fresh(toy(), sparse.csr_array(rows), None, rows="float32")
    assert same(index.search(sparse.csr_array(QUERIES)), dense.search(QUERIES))
    assert same(index.search(QUERIES, rescore=sparse.csr_array(rows)), dense.search(QUERIES, rescore=rows))


def test_an_index_takes_the_bytes_of_codes_and_ids(tmp_path):
    index = fresh(toy(), ROWS, None)
    about = index.facts()
    width = -(-index.encoder.width // 4) * 4  # codes are stored in fours of bytes
    capacity = 1024
    assert about["n_bytes"] == capacity * (width + 8)
    shuffled = fresh(toy(), ROWS, np.random.default_rng(0).permutation(600))
    assert shuffled.facts()["n_bytes"] == about["n_bytes"] + 4 * 600
    index.search(QUERIES)
    assert index.facts()["n_bytes"] == about["n_bytes"]
    index.save(tmp_path / "index")
    loaded = fs.CodeIndex.load(tmp_path / "index")
    assert loaded.facts()["n_bytes"] == -(-len(ROWS) // 16) * 16 * width + 8 * len(ROWS)
    assert repr(index).endswith("600 rows>") and about["kind"] == "CodeIndex" and about["n_rows"] == 600


def test_an_index_does_not_follow_its_model():
    rows = RNG.standard_normal((500, 16)) * np.geomspace(2, 0.2, 16)
    model = fs.SketchHash(8).update(rows[:200])
    index = fresh(model, rows[:200], None)
    encoder = index.encoder
    model.update(rows[200:])
    index.add(rows[200:])
    assert index.encoder is encoder != model.encoder(factors=True)
    assert same(index.search(rows[:3]), fresh(encoder, rows, None).search(rows[:3]))


def test_a_copy_is_independent():
    index = fresh(toy(), ROWS[:100], None, rows="float32")
    other = index.copy()
    index.add(ROWS[100:110])
    other.add(ROWS[200:210])
    assert same(index.search(QUERIES), fresh(toy(), ROWS[:110], None, rows="float32").search(QUERIES))
    expected = fresh(toy(), np.concatenate([ROWS[:100], ROWS[200:210]]), None, rows="float32")
    assert same(other.search(QUERIES), expected.search(QUERIES))


# -- codes that were made elsewhere -----------------------------------------------------------------------------------
def test_codes_are_known_by_their_fingerprint():
    encoder, other = toy(), toy(seed=2)
    index = fresh(encoder, ROWS[:100], None, rows="float16")
    codes, numbers = encoder.encode(ROWS[200:300]), np.arange(300, 200, -1)
    ids = index.add_codes(codes, numbers, fingerprint=encoder.fingerprint, rows=ROWS[200:300])
    assert ids[0] == 300 and index.search(ROWS[[250]], k=1)[1].item() == 250
    assert index.add(ROWS[:1]).tolist() == [301]
    before = index.ids
    with pytest.raises(ValueError, match="codes are of another model"):
        index.add_codes(other.encode(ROWS), fingerprint=other.fingerprint, rows=ROWS)
    with pytest.raises(ValueError, match="codes must have 6 bytes"):
        index.add_codes(np.zeros((3, 4), np.uint8), fingerprint=encoder.fingerprint, rows=ROWS[:3])
    with pytest.raises(ValueError, match="needs the rows of the codes"):
        index.add_codes(encoder.encode(ROWS), fingerprint=encoder.fingerprint)
    with pytest.raises(ValueError, match="rows must be as many"):
        index.add_codes(encoder.encode(ROWS), fingerprint=encoder.fingerprint, rows=ROWS[:3])
    with pytest.raises(ValueError, match="stores none"):
        fresh(encoder, ROWS, None).add_codes(encoder.encode(ROWS), fingerprint=encoder.fingerprint, rows=ROWS)
    with pytest.raises(TypeError, match="fingerprint must be a string"):
        index.add_codes(encoder.encode(ROWS), fingerprint=None, rows=ROWS)
    assert (index.ids == before).all()


# -- columns with names ------------------------------------------------------------------------------------------------
def test_columns_of_data_frames_are_held_against_those_of_the_model():
    pandas = pytest.importorskip("pandas")
    names = [f"x{j}" for j in range(8)]
    frame = pandas.DataFrame(ROWS, columns=names)
    index = fs.CodeIndex(fs.SketchQuantizer(4).update(frame), rows="float32")
    index.add(frame)
    wanted = index.search(QUERIES), index.ids
    assert index.feature_names == tuple(names)
    assert fs.from_bytes(index.to_bytes()).feature_names == tuple(names)
    swapped, renamed = frame[names[::-1]], frame.rename(columns={"x3": "y"})
    for wrong in (swapped, renamed):
        with pytest.raises(ValueError, match="must have the columns that came before"):
            index.add(wrong)
        with pytest.raises(ValueError, match="queries must have the columns that came before"):
            index.search(wrong[:3])
    assert same(index.search(QUERIES), wanted[0]) and (index.ids == wanted[1]).all()
    first = fs.CodeIndex(toy(), rows="float32")
    first.add(frame)
    assert first.feature_names == tuple(names)
    with pytest.raises(ValueError, match="column 0 is 'x7'"):
        first.search(swapped)


# -- units -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("model", [fs.SketchQuantizer(4), fs.SketchHash(8)], ids=["quantizer", "hash"])
@pytest.mark.parametrize("unit", [2.0**-60, 2.0**-20, 2.0**20, 2.0**60])
def test_float16_rows_of_any_unit(model, unit):
    rows = np.random.default_rng(3).standard_normal((400, 16)) * np.geomspace(2, 0.2, 16)
    index, scaled = (fresh(model.copy().update(rows * by), rows * by, None, rows="float16") for by in (1.0, unit))
    distances, ids = index.search(rows[:20])
    found, same_ids = scaled.search(rows[:20] * unit)
    assert (same_ids == ids).all() and (found == distances * unit).all()
    assert (scaled.get([3, 5]) == index.get([3, 5]) * unit).all()


# -- files -------------------------------------------------------------------------------------------------------------
def test_a_file_is_one_that_fs_load_reads(tmp_path):
    index = fresh(toy(), ROWS, None, rows="float16")
    index.remove([3])
    path = tmp_path / "index.fsk"
    index.save(path)
    assert path.is_file() and path.read_bytes() == index.to_bytes() == fs.load(path).to_bytes()
    before = path.read_bytes()
    index.add(ROWS[:3])
    index.save(path)
    assert fs.load(path).n_rows == 602 and path.read_bytes() != before
    with pytest.raises(fs.StateError, match="holds a CodeIndex, not a SketchHash"):
        fs.SketchHash.load(path)
    LEARNED.save(path)
    with pytest.raises(fs.StateError, match="holds a SketchHash, not a CodeIndex"):
        fs.CodeIndex.load(path)


def crafted(about, arrays):
    """(what is wrong, header, arrays) of files that no index wrote."""

    def changed(**values):
        return {**about, "state": {**about["state"], **values}}

    def other(**values):
        return {**arrays, **values}

    nan = arrays["rows"].copy()
    nan[0, 0] = np.nan
    yield "an id twice", about, other(ids=np.zeros_like(arrays["ids"]))
    yield "an id below 0", about, other(ids=arrays["ids"] - 5)
    yield "ids above the next", changed(next_id=3), arrays
    yield "no next id", changed(next_id=None), arrays
    yield "fewer codes", about, other(codes=arrays["codes"][:-1])
    yield "wider codes", about, other(codes=np.zeros((len(arrays["ids"]), 9), np.uint8))
    yield "ids of floats", about, other(ids=arrays["ids"].astype(float))
    yield "rows with a NaN", about, other(rows=nan)
    yield "rows of another type", about, other(rows=arrays["rows"].astype(np.float32))
    yield "no rows", about, {name: array for name, array in arrays.items() if name != "rows"}
    yield "an array too many", about, other(more=arrays["ids"])
    yield "no encoder", changed(encoder=None), arrays
    yield "an unknown encoder", changed(encoder={"kind": "fastsketch.neighbours.Nothing", "state": {}}), arrays
    yield "names that are missing", changed(names="strings"), arrays
    yield "an unknown metric", {**about, "parameters": {"metric": "near", "rows": "float16"}}, arrays
    yield "a metric of hashes", {**about, "parameters": {"metric": "hamming", "rows": "float16"}}, arrays
    yield "unknown rows", {**about, "parameters": {"metric": "euclidean", "rows": "int8"}}, arrays
    yield "names of columns", {**about, "feature_names": ["a"]}, arrays


def test_crafted_files_are_refused():
    quantizer = fs.SketchQuantizer(8).update(ROWS)
    about, arrays = fresh(quantizer, ROWS, None, rows="float16")._file_contents()
    assert fs.from_bytes(state.pack(about, arrays)).n_rows == 600  # as it was written
    for what, header, some in crafted(about, arrays):
        with pytest.raises(fs.StateError):
            fs.from_bytes(state.pack(header, some))
            print(what)


OPERATIONS = {
    "add": lambda index, path: index.add(ROWS[:200]),
    "add ids": lambda index, path: index.add(ROWS[:50], np.arange(2000, 2050)),
    "remove": lambda index, path: index.remove(np.arange(50, 90)),
    "save": lambda index, path: index.save(path),
}


def prepared(path):
    """An index that was saved, and has changed since."""
    index = fresh(toy(), ROWS, None, rows="float16")
    index.save(path)
    index.remove([3, 4])
    index.add(ROWS[:50])
    return index


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", OPERATIONS)
def test_interrupts(tmp_path, name, amount):
    """At any place a call is done or not begun, in memory and in the file, and the next save goes through."""
    operation, rng, counts = OPERATIONS[name], np.random.default_rng(0), Counter()
    done = prepared(tmp_path / "done")
    before, saved = done.to_bytes(), fs.load(tmp_path / "done").to_bytes()
    operation(done, tmp_path / "done")
    after, once_more = done.to_bytes(), prepared(tmp_path / "fresh")
    n = places_of(lambda: operation(once_more, tmp_path / "fresh"))
    for at in moments(n, amount(20, 120), rng):
        path = tmp_path / f"{at}"
        index = prepared(path)
        counts["interrupts"] += interrupted(lambda index=index, path=path: operation(index, path), at)
        found, stored = index.to_bytes(), fs.load(path).to_bytes()
        counts["half_done"] += found not in (before, after)
        counts["lost"] += stored not in ((saved, before) if name == "save" else (saved,))
        index.save(path)
        counts["lost"] += fs.load(path).to_bytes() != found
    counts["left_behind"] = len([file for file in tmp_path.iterdir() if not file.name.isalnum()])
    report(
        f"interrupts of the index: {name}",
        f"{counts['interrupts']} at places",
        **{key: counts[key] for key in ("half_done", "lost", "left_behind")},
    )


# -- faiss -------------------------------------------------------------------------------------------------------------
def generated(kind, rng, n, d):
    """Rows (n, d) and queries (100, d), float32, of which quantizers become unlike."""
    if kind == "clusters":
        middles = 2 * rng.standard_normal((50, d))
        rows = middles[rng.integers(0, 50, n)] + 0.3 * rng.standard_normal((n, d))
        return rows, rows[:100] + 0.1 * rng.standard_normal((100, d))
    if kind == "heavy":
        rows = rng.standard_t(3, (n + 100, d)) * np.geomspace(2, 0.2, d) + 5
    else:
        rows = rng.standard_normal((n + 100, d)) * np.geomspace(3, 0.1, d)
    if kind == "unit":
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows[:n], rows[n:]


SETTINGS = [
    ("decay", 64, 16), ("decay", 128, 20), ("decay", 30, 5), ("decay", 200, 64), ("clusters", 64, 16),
    ("clusters", 33, 33), ("heavy", 48, 12), ("heavy", 128, 32), ("unit", 96, 16), ("unit", 64, 7),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "d", "n_bytes"), SETTINGS)
@pytest.mark.parametrize("metric", ["euclidean", "inner_product"])
def test_faiss_ranks_codes_of_a_quantizer_as_this_library_does(kind, d, n_bytes, metric):
    pytest.importorskip("faiss")
    rows, queries = (part.astype(np.float32) for part in generated(kind, np.random.default_rng(d), 3000, d))
    model = fs.SketchQuantizer(n_bytes).update(rows)
    codes, encoder = model.encode(rows), model.encoder()
    if encoder.norm is not None and metric == "inner_product":
        with pytest.raises(ValueError, match="rows of one length"):
            model.to_faiss(codes, metric=metric)
        return
    scores, found = model.to_faiss(codes, metric=metric).search(queries, 10)
    tables, _ = encoder.tables(queries.astype(np.float64), metric)
    nibbles, offsets = encoder.layout.nibbles(codes), encoder.layout.offsets(codes)
    wanted = sum(tables[:, j].astype(np.float64)[:, nibbles[:, j]] for j in range(nibbles.shape[1]))
    if metric == "euclidean" and offsets is not None:
        wanted -= 0.5 * offsets
    # of heavy tails the terms of a float32 sum are much larger than the spread of the sums
    rounding = 1e-5 * wanted.std() + 4 * np.finfo(np.float32).eps * np.abs(tables).max()
    assert np.abs(np.take_along_axis(wanted, found, 1) - scores).max() < rounding
    # the same ten but for ties: each is as good as the tenth best, up to rounding
    tenth = np.sort(wanted, axis=1)[:, -10:-9]
    assert (np.take_along_axis(wanted, found, 1) >= tenth - rounding).all()


@pytest.mark.parametrize("n_lists", [None, 8])
def test_rows_added_to_an_index_of_faiss_are_encoded_here(n_lists):
    faiss = pytest.importorskip("faiss")
    rows = (RNG.standard_normal((1000, 32)) * np.geomspace(3, 0.1, 32)).astype(np.float32)
    model = fs.SketchQuantizer(10).update(rows)
    codes = model.encode(rows)
    whole, grown = model.to_faiss(codes, n_lists=n_lists), model.to_faiss(codes[:600], n_lists=n_lists)
    grown.add(rows[600:])
    for index in (whole, grown):
        if n_lists:
            faiss.downcast_index(index.index).nprobe = n_lists
    answers = [index.search(rows[:50], 10) for index in (whole, grown)]
    assert grown.ntotal == 1000 and np.allclose(answers[0][0], answers[1][0], rtol=1e-5)
    assert np.mean(answers[0][1] == answers[1][1]) > 0.99  # ties may change places
    with pytest.raises(TypeError, match="add rows"):
        grown.add_with_ids(rows[:2], np.arange(2))
    with pytest.raises(ValueError, match="codes must have 10 bytes"):
        model.to_faiss(codes[:, :4])
    with pytest.raises(ValueError, match="n_lists must"):
        model.to_faiss(codes[:3], n_lists=4)


def test_an_index_of_a_quantizer_in_faiss_keeps_its_ids():
    faiss = pytest.importorskip("faiss")
    rows = (RNG.standard_normal((500, 32)) * np.geomspace(3, 0.1, 32)).astype(np.float32)
    index = fs.CodeIndex(fs.SketchQuantizer(12).update(rows))
    index.add(rows, np.arange(500)[::-1] + 7)
    index.remove([8, 100])
    other = index.to_faiss()
    assert isinstance(other, faiss.IndexIDMap2) and other.ntotal == 498
    with pytest.raises(TypeError, match="added to the CodeIndex"):
        other.add_with_ids(rows[:2], np.arange(2))
    assert (np.sort(other.search(rows[:40], 5)[1]) == np.sort(index.search(rows[:40], 5)[1])).mean() > 0.99
    with pytest.raises(ValueError, match="got 'cosine'"):
        fresh(index.encoder, rows, None, metric="cosine").to_faiss()
    with pytest.raises(ValueError, match="codes of a SketchQuantizer or of a hash"):
        fresh(toy(), ROWS, None).to_faiss()


def test_offsets_that_are_no_sum_over_nibbles_are_not_handed_to_faiss():
    pytest.importorskip("faiss")
    rows = RNG.standard_normal((2000, 64)) * np.geomspace(3, 0.05, 64)
    encoder = fs.SketchQuantizer(16).update(rows).encoder()
    assert encoder.layout.offset.n_bytes == 1
    layout = replace(encoder.layout, offset=replace(encoder.layout.offset, mantissa_bits=3))
    other = type(encoder)(encoder.mean, encoder.basis, encoder.books, encoder._rule, layout, length=encoder.length)
    with pytest.raises(ValueError, match="3 bits of mantissa in 1 bytes, which is no linear scale"):
        fresh(other, rows, None).to_faiss()


# -- refusals ----------------------------------------------------------------------------------------------------------
NAN = ROWS[:50].copy()
NAN[49, 2] = np.nan
REFUSED = [
    (lambda i: i.add(NAN), ValueError, "row 49 holds a NaN"),
    (lambda i: i.add(np.ones((2, 5))), ValueError, "8 columns"),
    (lambda i: i.add(ROWS[:2], [1, 700]), ValueError, "ids must be new: 1 in the index"),
    (lambda i: i.add(ROWS[:3], [900, 901, 900]), ValueError, "ids must be different, got 900 more than once"),
    (lambda i: i.add(ROWS[:3], [900, 901]), ValueError, "one entry for each of the 3 rows"),
    (lambda i: i.add(ROWS[:1], [-1]), ValueError, r"\[0, 2\*\*62\), got -1"),
    (lambda i: i.add(ROWS[:1], [1 << 62]), ValueError, r"\[0, 2\*\*62\)"),
    (lambda i: i.add(ROWS[:1], np.array([1 << 63], np.uint64)), ValueError, r"\[0, 2\*\*62\)"),
    (lambda i: i.add(ROWS[:1], [0.5]), TypeError, "ids must be integers"),
    (lambda i: i.add(ROWS[:1], [True]), TypeError, "np.flatnonzero"),
    (lambda i: i.add(ROWS[:1] * 1e5), ValueError, 'row 0 has one that is too large: store them as rows="float32"'),
    (lambda i: i.remove([3, 600]), IndexError, "ids must be in the index: 600 not found"),
    (lambda i: i.remove([3, 3]), ValueError, "got 3 more than once"),
    (lambda i: i.remove([[3]]), ValueError, "must be a vector"),
    (lambda i: i.remove(np.ma.array([3])), TypeError, "masked"),
    (lambda i: i.get([600]), IndexError, "600 not found"),
    (lambda i: i.search(QUERIES, k=601, pad=False), ValueError, "at most the 600"),
    (lambda i: i.search(QUERIES, k=3, allow=[1, 2], pad=False), ValueError, "at most the 2"),
    (lambda i: i.search(QUERIES, pad=1), TypeError, "pad must be True or False"),
    (lambda i: i.add(ROWS[:1], ["a"]), TypeError, "ids must be integers, as those of the index are, got strings"),
    (lambda i: i.search(QUERIES, allow=[*range(20), 600]), IndexError, "allow must be in the index: 600"),
    (lambda i: i.search(QUERIES, allow=[1, 1]), ValueError, "allow must be different"),
    (lambda i: i.search(QUERIES, allow=np.ones(9, bool)), ValueError, "each of the 600 rows"),
    (lambda i: i.search(QUERIES, allow=np.ma.ones(600)), TypeError, "masked"),
    (lambda i: i.search(NAN), ValueError, "queries must be finite: row 49"),
    (lambda i: i.search(QUERIES[:, :5]), ValueError, "queries must have 8 columns"),
    (lambda i: i.search(QUERIES, rescore=ROWS[:, :5]), ValueError, "rescore must have shape"),
    (lambda i: i.search(QUERIES, rescore="rows.npy"), TypeError, "rescore must be the rows .* got 'rows.npy'"),
    (lambda i: i.search(QUERIES, k=100, rescore=ROWS[:9]), ValueError, "rescore must have a row for every id"),
    (lambda i: i.search(QUERIES, rescore=lambda ids: ROWS[:1]), ValueError, "rescore must return 40 rows|must return"),
    (lambda i: i.search(QUERIES, rescore=lambda ids: ROWS[ids] * np.nan), ValueError, "of the ids from"),
    (lambda i: i.search(QUERIES, oversample=0.5), ValueError, "oversample"),
]


@pytest.mark.parametrize(("call", "kind", "message"), REFUSED)
def test_what_is_refused_changes_nothing(call, kind, message):
    index = fresh(toy(), ROWS, None, rows="float16")
    before = index.search(QUERIES), index.ids
    with pytest.raises(kind, match=message):
        call(index)
    assert same(index.search(QUERIES), before[0]) and (index.ids == before[1]).all()


def test_what_makes_no_index():
    with pytest.raises(TypeError, match="model must be a hash, a quantizer"):
        fs.CodeIndex(fs.FrequentDirections(4))
    with pytest.raises(ValueError, match="seen no rows"):
        fs.CodeIndex(fs.SketchHash(8))
    with pytest.raises(ValueError, match="rows must be one of"):
        fs.CodeIndex(toy(), rows="float64")
    with pytest.raises(ValueError, match="metric must be one of"):
        fs.CodeIndex(toy(), metric="manhattan")
    with pytest.raises(ValueError, match="metric='hamming' is for codes of a hash"):
        fs.CodeIndex(toy(), metric="hamming")
    index = fresh(toy(), ROWS, None)
    with pytest.raises(ValueError, match="rescore=True needs stored rows"):
        index.search(QUERIES, rescore=True)


@pytest.mark.parametrize("model", [fs.SketchQuantizer(4), fs.SketchHash(8)], ids=["quantizer", "hash"])
def test_rows_that_float16_keeps_coarsely_are_warned_of(model, recwarn):
    rows = np.random.default_rng(3).standard_normal((400, 16)) * np.geomspace(2, 0.2, 16)
    far = rows + 1000.0
    learned = model.copy().update(far)
    for quiet in (
        fresh(learned, far, None, rows="float32"),
        fresh(model.copy().update(rows), rows, None, rows="float16"),
    ):
        assert len(quiet) == 400
    assert not recwarn.list
    index = fs.CodeIndex(learned, rows="float16")
    with pytest.warns(UserWarning, match='rows="float16" stores these rows with errors of .*% of their distances'):
        index.add(far[:1])  # one row, beside the mean of the model
    index.add(far[1:])
    index = fs.CodeIndex(learned, rows="float16")
    with pytest.warns(UserWarning, match='rows="float32"'):
        index.add_codes(index.encoder.encode(far), fingerprint=index.encoder.fingerprint, rows=far)
    assert not recwarn.list  # said once


def test_an_empty_index(tmp_path):
    index = fs.CodeIndex(toy(), rows="float16")
    assert len(index) == 0 and index.ids.shape == (0,) and index.get([]).shape == (0, D)
    index.remove([])
    assert index.add(np.empty((0, D))).shape == (0,)
    with pytest.raises(ValueError, match="at most the 0"):
        index.search(QUERIES, pad=False)
    assert (index.search(QUERIES)[1] == -1).all() and np.isposinf(index.search(QUERIES)[0]).all()
    index.save(tmp_path / "index")
    index = fs.load(tmp_path / "index")
    index.add(ROWS[:3])
    assert len(index) == 3


# -- threads -----------------------------------------------------------------------------------------------------------
def test_searches_go_on_while_rows_come_and_go(tmp_path):
    index = fresh(toy(), ROWS, None, rows="float32")
    wanted, wrong, done = index.search(QUERIES, k=5), [], threading.Event()

    def look():
        while not done.is_set():
            try:
                wrong.extend([] if same(index.search(QUERIES, k=5), wanted) else ["another answer"])
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for step in range(30):
        ids = index.add(ROWS[:40] + 100)
        index.remove(ids)
        if step % 5 == 0:
            index.save(tmp_path / "index")
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_one_thread_at_a_time_changes_it():
    index, inside, go = fresh(toy(), ROWS, None), threading.Event(), threading.Event()
    encode = type(index.encoder).encode

    def slow(rows):
        inside.set()
        go.wait(30)
        return encode(index.encoder, rows)

    index.encoder.encode = slow
    thread = threading.Thread(target=index.add, args=(ROWS[:9],))
    thread.start()
    inside.wait(30)
    with pytest.raises(RuntimeError, match="being changed by another thread"):
        index.add(ROWS)
    assert len(index.search(QUERIES)[1]) == len(QUERIES) and len(index) == 600
    go.set()
    thread.join()
    assert len(index) == 609


def test_an_addition_that_fails_changes_nothing():
    index = fresh(toy(), ROWS, None, rows="float32")
    before, content = index.search(QUERIES), index.to_bytes()
    late = np.random.default_rng(1).standard_normal((40_000, D))
    late[39_999, 3] = np.inf
    with pytest.raises(ValueError, match="row 39999"):
        index.add(late)
    assert same(index.search(QUERIES), before) and index.to_bytes() == content


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("rescore", [False, True])
def test_answers_that_are_too_few_are_filled_up(metric, rescore):
    encoder = fs.SketchHash(8).update(ROWS) if metric == "hamming" else toy()
    index = fs.CodeIndex(encoder, rows="float16", metric=metric)
    index.add(ROWS[:4])
    distances, ids = index.search(QUERIES, 6, rescore=rescore)
    expected = index.search(QUERIES, 4, rescore=rescore)
    assert same((distances[:, :4], ids[:, :4]), expected) and distances.dtype == expected[0].dtype
    end = np.inf if metric == "euclidean" or (metric == "hamming" and rescore) else -np.inf
    assert (ids[:, 4:] == -1).all() and (distances[:, 4:] == (2**31 - 1 if distances.dtype == np.int32 else end)).all()
    assert index.search(QUERIES, 3, allow=[1, 2])[1][:, 2].tolist() == [-1] * 7


def test_ids_that_are_strings(tmp_path):
    names = [f"row {i}" for i in range(300)]
    index, plain = (fs.CodeIndex(toy(), rows="float16") for _ in range(2))
    assert index.add(ROWS[:200], names[:200]).tolist() == names[:200]
    assert index.add(ROWS[200], names[200]).tolist() == names[200:201]
    index.add(ROWS[201:300], np.array(names[201:]))
    plain.add(ROWS[:300])

    def agree(one):
        for options in ({}, {"rescore": False}, {"rescore": lambda some: ROWS[[names.index(name) for name in some]]}):
            mine, theirs = one.search(QUERIES, 9, **options), plain.search(QUERIES, 9, **{**options, "rescore": ROWS})
            if options.get("rescore") is False:
                theirs = plain.search(QUERIES, 9, rescore=False)
            elif not options:
                theirs = plain.search(QUERIES, 9)
            assert np.array_equal(mine[0], theirs[0])
            assert mine[1].tolist() == [[names[i] for i in line] for line in theirs[1]]

    agree(index)
    index.save(tmp_path / "index")
    for again in (fs.CodeIndex.load(tmp_path / "index"), pickle.loads(pickle.dumps(index)), index.copy()):
        agree(again)
        assert again.ids.tolist() == names
    index.remove(["row 3", "row 7"])
    assert "row 3" not in index and "row 4" in index and 4 not in index
    assert index.contains(["row 3", "row 4", "none"]).tolist() == [False, True, False]
    assert index.add(ROWS[3:4], ["row 3"]).tolist() == ["row 3"]
    assert np.allclose(index.get("row 3"), ROWS[3:4], atol=0.01)
    distances, found = index.search(ROWS[3], 3, allow=["row 3", "row 4"])
    assert found.tolist() == [["row 3", "row 4", None]] and distances[0, 2] == np.inf
    before = index.ids.tolist()
    for call, kind, message in (
        (lambda: index.add(ROWS[:1]), ValueError, "ids of this index are strings: pass one for each row"),
        (lambda: index.add(ROWS[:2], [1, 2]), TypeError, "ids must be strings"),
        (lambda: index.add(ROWS[:2], ["x", "x"]), ValueError, "must be different, got x more than once"),
        (lambda: index.add(ROWS[:2], ["x", "row 5"]), ValueError, "must be new: row 5 in the index already"),
        (lambda: index.add(ROWS[:2], ["x"]), ValueError, "one entry for each of the 2 rows, got 1"),
        (lambda: index.remove("x"), IndexError, "ids must be in the index: x not found"),
        (lambda: index.remove(["row 7"]), IndexError, "ids must be in the index: row 7 not found"),
        (lambda: index.get("x"), IndexError, "x not found"),
        (lambda: index.search(QUERIES, 1, allow=["x"]), IndexError, "allow must be in the index: x not found"),
        (lambda: fs.CodeIndex(toy()).add(ROWS[:2], ["x", 1]), TypeError, "all integers or all strings"),
    ):
        with pytest.raises(kind, match=message):
            call()
    assert index.ids.tolist() == before


def test_ids_in_a_tuple_and_an_answer_that_is_too_long():
    rows = np.random.default_rng(0).standard_normal((40, 8))
    index = fs.CodeIndex(fs.SketchQuantizer(4).update(rows))
    index.add(rows[:2], ("a", "b"))
    assert index.search(rows[:1], 3)[1].shape == (1, 3)
    with pytest.raises(ValueError, match="k must be at most 1,048,576"):
        index.search(rows[:1], 10**9)
