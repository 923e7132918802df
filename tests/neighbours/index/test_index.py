"""What an index answers, against a dict of rows: adding, removing, generations, kept rows, refusals."""

import copy
import pickle
import threading

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.neighbours.codes._search import METRICS
from fastsketch.neighbours.index import _contents, _segment_room
from tests.neighbours.index.toy import toy

D = 8
RNG = np.random.default_rng(0)
ROWS, QUERIES = RNG.standard_normal((600, D)), RNG.standard_normal((7, D))
LEARNED = fs.SketchHash(8).update(RNG.standard_normal((400, 16)) * np.geomspace(2, 0.2, 16))
REAL = [metric for metric in METRICS if metric != "hamming"]


@pytest.fixture(params=[70, 1 << 20])
def segment_rows(request, monkeypatch):
    """Most rows of a segment."""
    monkeypatch.setattr(_segment_room, "SEGMENT_ROWS", request.param)
    monkeypatch.setattr(_contents, "SEGMENT_ROWS", request.param)
    return request.param


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
def test_answers_are_those_of_the_encoder(metric, segment_rows):
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


def test_hamming_and_faiss(segment_rows):
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


def test_ties_go_to_the_lower_id(segment_rows):
    rows = np.repeat(ROWS[:3], 40, axis=0)
    ids = np.random.default_rng(1).permutation(len(rows)) * 11
    for kept in (None, "float32"):
        distances, found = fresh(toy(), rows, ids, rows=kept).search(ROWS[:3], k=40, oversample=1)
        for number in range(3):
            assert (np.diff(distances[number]) == 0).all()
            assert found[number].tolist() == np.sort(ids[40 * number : 40 * number + 40]).tolist()


@pytest.mark.parametrize("seed", range(12))
def test_any_order_of_calls_gives_what_a_fresh_index_gives(seed, segment_rows, tmp_path):
    """Rows added with their own or given ids, removed, added again; compacted, saved, read, copied in between."""
    rng = np.random.default_rng([seed, segment_rows])
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
                index.compact()
            case 1:
                index.save(tmp_path / "index")
            case 2:
                index.save(tmp_path / "index")
                index = fs.CodeIndex.load(tmp_path / "index", memory_map=bool(rng.integers(2)))
            case 3:
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


def test_rows_alone_take_the_bytes_of_their_codes(tmp_path):
    index = fresh(toy(), ROWS, None)
    about = index.facts()
    width = -(-index.encoder.width // 4) * 4
    assert about["n_bytes"] == -(-len(ROWS) // 16) * 16 * width + 8 * len(ROWS)
    assert (
        fresh(toy(), ROWS, np.random.default_rng(0).permutation(600)).facts()["n_bytes"] == about["n_bytes"] + 4 * 600
    )
    # neither a search nor a save makes anything beside them
    index.search(QUERIES)
    assert index.facts()["n_bytes"] == about["n_bytes"]
    index.save(tmp_path / "index")
    mapped = fs.CodeIndex.load(tmp_path / "index")
    mapped.search(QUERIES)
    assert mapped.facts()["n_bytes"] == index.facts()["n_bytes"] == about["n_bytes"]
    assert repr(index).endswith("600 rows>") and about["kind"] == "CodeIndex" and about["n_removed"] == 0


# -- generations -------------------------------------------------------------------------------------------------------
def test_generations_are_searched_together(segment_rows):
    old, new = toy(), toy(seed=1, offset=False)
    index = fresh(old, ROWS[:300], None)
    index.renew(new)
    index.add(ROWS[300:])
    index.remove([5, 400])
    assert [(one["n_rows"], one["n_removed"], one["current"]) for one in index.generations] == [
        (299, 1, False),
        (299, 1, True),
    ]
    parts = [(old, np.setdiff1d(np.arange(300), [5])), (new, np.setdiff1d(np.arange(300, 600), [400]))]
    found = [e.search(QUERIES, e.encode(ROWS[ids]), k=20, ids=ids) for e, ids in parts]
    distances, ids = (np.concatenate(part, axis=1) for part in zip(*found, strict=True))
    order = np.lexsort((ids, distances), axis=1)[:, :20]
    assert same(index.search(QUERIES, k=20), [np.take_along_axis(part, order, axis=1) for part in (distances, ids)])
    exact = np.linalg.norm(ROWS[index.search(QUERIES, k=1)[1][:, 0]] - QUERIES, axis=1)
    assert np.allclose(index.search(QUERIES, k=1)[0][:, 0], exact, atol=0.35)  # in the units of the rows


@pytest.mark.parametrize("source", ["kept", "array", "callable", "decoded"])
def test_reencode(source, segment_rows):
    old, new = toy(), toy(seed=1)
    rows = ROWS.astype(np.float32)
    index = fresh(old, rows[:300], np.arange(300)[::-1], rows="float32" if source == "kept" else None)
    index.remove([5, 6])
    index.renew(new)
    index.add(rows[300:])
    by_id = np.concatenate([rows[:300][::-1], rows[300:]])
    given = {"array": by_id, "callable": lambda ids: by_id[ids]}.get(source)
    index.reencode(given, decoded=source == "decoded")
    if source == "decoded":
        by_id[:300] = old.decode(old.encode(by_id[:300]))
    wanted = fresh(new, by_id, None, rows=index.rows)
    wanted.remove([5, 6])
    assert same(index.search(QUERIES, rescore=False), wanted.search(QUERIES, rescore=False))
    assert [one["current"] for one in index.generations] == [True] and len(index) == 598
    before = index.ids
    assert (index.compact().ids == before).all() and index.facts()["n_removed"] == 0


def test_a_model_that_has_learned_on():
    rows = RNG.standard_normal((500, 16)) * np.geomspace(2, 0.2, 16)
    model = fs.SketchHash(8).update(rows[:200])
    index = fs.CodeIndex(model)
    index.add(rows[:200])
    first = index.encoder
    model.update(rows[200:])
    assert index.encoder is first and index.renew(model).encoder == model.encoder(factors=True) != first
    index.add(rows[200:])
    assert index.renew(first).encoder == first and len(index.generations) == 2
    assert fs.CodeIndex(fs.SketchQuantizer(16).update(rows)).n_features == 16


# -- codes that were made elsewhere -----------------------------------------------------------------------------------
def test_codes_are_known_by_their_fingerprint(segment_rows):
    old, new = toy(), toy(seed=1)
    index = fresh(old, ROWS[:100], None, rows="float16")
    index.renew(new)
    index.add_codes(new.encode(ROWS[100:200]), fingerprint=new.fingerprint, rows=ROWS[100:200])
    codes, numbers = old.encode(ROWS[200:300]), np.arange(300, 200, -1)
    ids = index.add_codes(codes, numbers, fingerprint=old.fingerprint, rows=ROWS[200:300])
    assert ids[0] == 300 and [one["n_rows"] for one in index.generations] == [200, 100]
    assert index.search(ROWS[[250]], k=1)[1].item() == 250 and index.search(ROWS[[150]], k=1)[1].item() == 150
    assert index.add(ROWS[:1]).tolist() == [301]
    before = index.ids
    with pytest.raises(ValueError, match="codes are of another model"):
        index.add_codes(new.encode(ROWS), fingerprint=toy(seed=2).fingerprint, rows=ROWS)
    with pytest.raises(ValueError, match="codes must have 6 bytes"):
        index.add_codes(np.zeros((3, 4), np.uint8), fingerprint=new.fingerprint, rows=ROWS[:3])
    with pytest.raises(ValueError, match="needs the rows of the codes"):
        index.add_codes(new.encode(ROWS), fingerprint=new.fingerprint)
    with pytest.raises(ValueError, match="rows must be as many"):
        index.add_codes(new.encode(ROWS), fingerprint=new.fingerprint, rows=ROWS[:3])
    with pytest.raises(ValueError, match="keeps none"):
        fresh(old, ROWS, None).add_codes(old.encode(ROWS), fingerprint=old.fingerprint, rows=ROWS)
    with pytest.raises(TypeError, match="fingerprint must be a string"):
        index.add_codes(new.encode(ROWS), fingerprint=None, rows=ROWS)
    assert (index.ids == before).all()


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
    (lambda i: i.add(ROWS[:1] * 1e5), ValueError, 'row 0 has one that is too large: keep them as rows="float32"'),
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
    (lambda i: i.reencode("rows.npy"), TypeError, "rows must be the rows .* got 'rows.npy'"),
    (lambda i: i.search(QUERIES, k=100, rescore=ROWS[:9]), ValueError, "rescore must have a row for every id"),
    (lambda i: i.search(QUERIES, rescore=lambda ids: ROWS[:1]), ValueError, "rescore must return 40 rows|must return"),
    (lambda i: i.search(QUERIES, rescore=lambda ids: ROWS[ids] * np.nan), ValueError, "of the ids from"),
    (lambda i: i.search(QUERIES, oversample=0.5), ValueError, "oversample"),
    (lambda i: i.renew(toy(5)), ValueError, "rows of 8 features, got 5"),
    (lambda i: i.renew("hash"), TypeError, "model must be a hash"),
    (lambda i: i.reencode(ROWS, decoded=True), ValueError, "decoded=True is for an index without rows"),
    (lambda i: i.reencode(decoded=1), TypeError, "decoded"),
    (lambda i: i.renew(toy(seed=3)).reencode(ROWS[:9]), ValueError, "rows must have a row for every id"),
    (lambda i: i.to_faiss(), ValueError, "no signs"),
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
    with pytest.raises(ValueError, match="rescore=True needs kept rows"):
        index.search(QUERIES, rescore=True)
    with pytest.raises(ValueError, match="reencode needs the rows"):
        index.reencode()
    with pytest.raises(ValueError, match="2 generations"):
        both = fresh(LEARNED, RNG.standard_normal((9, 16)), None)
        both.renew(LEARNED.copy().update(RNG.standard_normal((900, 16))))
        both.add(RNG.standard_normal((9, 16)))
        both.to_faiss()


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
    with pytest.warns(UserWarning, match='rows="float16" keeps these rows with errors of .*% of their distances'):
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
            index.compact()
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_one_thread_at_a_time_changes_it():
    index, inside, go = fresh(toy(), ROWS, None), threading.Event(), threading.Event()

    def rows(ids):
        inside.set()
        go.wait(30)
        return ROWS[ids]

    index.renew(toy(seed=1))
    thread = threading.Thread(target=index.reencode, args=(rows,))
    thread.start()
    inside.wait(30)
    with pytest.raises(RuntimeError, match="being changed by another thread"):
        index.add(ROWS)
    assert len(index.search(QUERIES)[1]) == len(QUERIES)
    go.set()
    thread.join()
    assert [one["n_rows"] for one in index.generations] == [600]


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


def test_ids_that_are_strings(segment_rows, tmp_path):
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
    for again in (fs.CodeIndex.load(tmp_path / "index"), pickle.loads(pickle.dumps(index)), index.copy().compact()):
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
