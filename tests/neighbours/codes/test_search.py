"""Real queries against codes: estimates, metrics, ids, filters, and what is refused."""

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch import reference
from fastsketch.neighbours.codes import _search
from fastsketch.neighbours.codes._blocks import Blocks, CodeRows
from fastsketch.neighbours.codes._code_factors import Minifloat
from fastsketch.neighbours.codes._code_scan import ScoreRule, scan
from fastsketch.neighbours.codes._encoder import Encoder, encoder_state, restore_encoder
from fastsketch.neighbours.codes._layout import Layout
from fastsketch.neighbours.codes._search import estimated_norms
from fastsketch.reference import baselines
from tests.helpers import stream

RNG = np.random.default_rng(3)
ALL = stream("signal", np.random.default_rng(1), 700, 40) * np.linspace(3, 0.2, 40) + np.linspace(-5, 5, 40)
ROWS, QUERIES = ALL[:640], ALL[640:] + 0.1 * RNG.standard_normal((60, 40))
METRICS = ("euclidean", "inner_product", "cosine")
MODEL = fs.SketchHash(24, sketch_size=64, block_rows=100).update(ROWS)
CODES = {factors: MODEL.encode(ROWS, factors=factors) for factors in (False, True)}


def exact(metric, queries=QUERIES, rows=ROWS):
    if metric == "euclidean":
        return np.sqrt(((queries[:, np.newaxis] - rows) ** 2).sum(axis=2))
    products = queries @ rows.T
    if metric == "inner_product":
        return products
    return products / np.linalg.norm(queries, axis=1)[:, np.newaxis] / np.linalg.norm(rows, axis=1)


def nearest_first(metric, values, k):
    return np.argsort(values if metric == "euclidean" else -values, axis=1, kind="stable")[:, :k]


def recall(found, metric="euclidean"):
    true = nearest_first(metric, exact(metric), found.shape[1])
    return np.mean([len(set(a) & set(b)) for a, b in zip(found, true, strict=True)]) / found.shape[1]


def parts(model=MODEL):
    """Signs, squared lengths and corrections of the rows, scores of the queries: in NumPy alone."""
    z = (ROWS - model.mean) @ model.projection
    n2 = ((ROWS - model.mean) ** 2).sum(axis=1)
    f = (z * z).sum(axis=1) / np.abs(z).sum(axis=1)
    return np.where(z > 0, 1.0, -1.0), n2, f, (QUERIES - model.mean) @ model.projection


# -- estimates -----------------------------------------------------------------------------------------------------
def test_estimates_are_what_they_are_said_to_be():
    s, n2, f, z = parts()
    mean, n = MODEL.mean, len(ROWS)
    far = ((QUERIES - mean) ** 2).sum(axis=1)[:, np.newaxis]
    expected = {
        "euclidean": np.sqrt(np.maximum(far + n2 - 2 * (z @ s.T) * f, 0)),
        "inner_product": (QUERIES @ mean)[:, np.newaxis] + (QUERIES @ MODEL.projection @ s.T) * f,
    }
    norms = np.sqrt(n2 + mean @ mean + 2 * f * (s @ (mean @ MODEL.projection)))
    expected["cosine"] = expected["inner_product"] / np.linalg.norm(QUERIES, axis=1)[:, np.newaxis] / norms
    expected["cosine"] = np.clip(expected["cosine"], -1, 1)
    for metric, values in expected.items():
        distances, found = MODEL.search(QUERIES, CODES[True], k=n, metric=metric)
        assert distances.dtype == np.float64 and found.dtype == np.int64
        order = np.diff(distances, axis=1)
        assert (order >= 0).all() if metric == "euclidean" else (order <= 0).all()
        wanted = np.take_along_axis(values, found, axis=1)
        scale = np.abs(wanted).max()
        assert np.allclose(distances**2, wanted**2, rtol=0, atol=scale**2 * 2**-8)


def test_without_factors_only_angles_count():
    s, _, _, z = parts()
    for metric in METRICS[:1]:
        _, found = MODEL.search(QUERIES, CODES[False], k=30, metric=metric)
        order = np.argsort(-(z @ s.T), axis=1, kind="stable")[:, :30]
        assert (found == order).mean() > 0.98  # but for codes that are equal up to rounding


def test_more_is_found_the_more_is_known():
    hamming, real, known = (
        recall(MODEL.search(QUERIES, CODES[factors], metric=metric)[1])
        for factors, metric in ((False, "hamming"), (False, "euclidean"), (True, "euclidean"))
    )
    assert hamming + 0.03 < real < known - 0.03
    for metric in METRICS:
        assert recall(MODEL.search(QUERIES, CODES[True], metric=metric)[1], metric) > hamming + 0.05


def test_hamming_is_as_it_was():
    for factors in (False, True):
        distances, found = MODEL.search(QUERIES, CODES[factors], k=7, metric="hamming")
        expected = fs.hamming_topk(MODEL.encode(QUERIES), CODES[False], k=7)
        assert distances.dtype == np.int32
        assert np.array_equal(distances, expected[0]) and np.array_equal(found, expected[1])


def test_factors_leave_the_bits_alone():
    for model in (MODEL, baselines.LSH(70).update(ROWS), baselines.SGH(10, n_bases=60).update(ROWS)):
        width = -(-model.n_bits // 8)
        for rows in (ROWS, ROWS.astype(np.float32), sparse.csr_array(np.where(ROWS > 1, ROWS, 0))):
            codes = model.encode(rows, factors=True)
            assert codes.shape[1] == width + 4
            assert np.array_equal(codes[:, :width], model.encode(rows))
            assert np.array_equal(codes[:50], model.encode(rows[:50], factors=True))


@pytest.mark.parametrize("model", [MODEL, baselines.LSH(100).update(ROWS)], ids=["orthonormal", "gaussian"])
def test_sparse_rows_and_queries_are_rows_and_queries(model):
    rows, queries = np.where(ROWS > 1, ROWS, 0), np.where(QUERIES > 1, QUERIES, 0)
    for factors in (False, True):
        codes = model.encode(rows, factors=factors)
        # a factor may be rounded the other way
        assert (model.encode(sparse.csr_array(rows), factors=factors) == codes).mean() > 0.99
        for metric in METRICS:
            one = model.search(queries, codes, metric=metric)
            two = model.search(sparse.csr_array(queries), codes, metric=metric)
            assert np.allclose(one[0], two[0], rtol=1e-4, atol=1e-4) and (one[1] == two[1]).mean() > 0.98


def test_lsh_estimates_are_unbiased():
    model = baselines.LSH(4000).update(ROWS)
    for metric in METRICS:
        distances, found = model.search(QUERIES, model.encode(ROWS, factors=True), k=len(ROWS), metric=metric)
        true = np.take_along_axis(exact(metric), found, axis=1)
        assert np.corrcoef(distances.ravel(), true.ravel())[0, 1] > 0.98
        assert abs(np.mean(distances - true)) < 0.02 * np.abs(true).max()


@pytest.mark.parametrize("power", [-90, -20, 20, 90])
def test_units_of_the_rows_change_nothing(power):
    unit = 2.0**power
    model = fs.SketchHash(24, sketch_size=64, block_rows=100).update(ROWS * unit)
    codes = model.encode(ROWS * unit, factors=True)
    assert np.array_equal(codes, CODES[True])
    for metric in METRICS:
        one, two = MODEL.search(QUERIES, codes, metric=metric), model.search(QUERIES * unit, codes, metric=metric)
        factor = {"euclidean": unit, "inner_product": unit * unit, "cosine": 1.0}[metric]
        assert np.array_equal(one[1], two[1]) and np.allclose(one[0] * factor, two[0], rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    "rows", [np.zeros((50, 9)), np.full((50, 9), 1e-100), np.eye(50, 9) * 1e30, ALL[:50, :9] * 1e100]
)
def test_no_distance_is_nan(rows):
    for model in (fs.SketchHash(4), baselines.LSH(12), baselines.PCAHash(9)):
        model.update(rows)
        for factors in (False, True):
            codes = model.encode(rows, factors=factors)
            for metric in METRICS:
                for queries in (rows[:3], np.zeros((1, 9)), np.full((1, 9), 1e35), np.full((1, 9), 1e-40)):
                    distances, _ = model.search(queries, codes, k=50, metric=metric)
                    assert not np.isnan(distances).any()
                    assert metric != "euclidean" or (distances >= 0).all()
                    assert metric != "cosine" or (np.abs(distances) <= 1).all()


def test_decoded_rows_are_near_the_rows():
    model = baselines.ITQ(40).update(ROWS)
    codes = model.encode(ROWS, factors=True)
    decoded = model.encoder(factors=True).decode(codes)
    assert decoded.dtype == np.float32 and decoded.shape == ROWS.shape
    assert np.linalg.norm(decoded - ROWS) < 0.9 * np.linalg.norm(ROWS - ROWS.mean(axis=0))
    for encoder in (model.encoder(), baselines.LSH(8).update(ROWS).encoder(factors=True)):
        with pytest.raises(TypeError, match="cannot be decoded"):
            encoder.decode(codes)


# -- ids, filters, ties --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("metric", [*METRICS, "hamming"])
@pytest.mark.parametrize("factors", [False, True])
def test_ids_and_filters(metric, factors):
    codes = CODES[factors]
    ids = RNG.permutation(10**6)[: len(ROWS)] - 5000
    mask = RNG.random(len(ROWS)) < 0.3
    plain = MODEL.search(QUERIES, codes, k=9, metric=metric)
    for named in (ids, np.sort(ids), ids.tolist(), ids.astype(np.int32)):
        distances, found = MODEL.search(QUERIES, codes, k=9, metric=metric, ids=named)
        assert found.dtype == np.int64 and np.array_equal(distances, plain[0])
        clipped = distances[:, 1:] == (1 if metric == "cosine" else 0)
        rising = np.diff(found, axis=1) > 0
        assert (clipped | (np.diff(distances, axis=1) != 0) | rising).all()
    kept_rows = np.flatnonzero(mask)
    expected = MODEL.search(QUERIES, codes[mask], k=9, metric=metric)
    for allow in (mask, kept_rows, kept_rows[::-1], kept_rows.astype(np.uint8) if len(ROWS) < 256 else mask.tolist()):
        distances, found = MODEL.search(QUERIES, codes, k=9, metric=metric, allow=allow)
        assert np.array_equal(distances, expected[0]) and np.array_equal(found, kept_rows[expected[1]])
    both = MODEL.search(QUERIES, codes, k=9, metric=metric, ids=ids, allow=ids[mask])
    assert np.array_equal(both[0], expected[0]) and np.isin(both[1], ids[mask]).all()
    assert np.array_equal(both[1], MODEL.search(QUERIES, codes, k=9, metric=metric, ids=ids, allow=mask)[1])


@pytest.mark.parametrize("metric", [*METRICS, "hamming"])
def test_ties_go_by_id(metric):
    codes = np.repeat(CODES[True][:3], 20, axis=0)
    ids = RNG.permutation(60)
    distances, found = MODEL.search(QUERIES, codes, k=60, metric=metric, ids=ids)
    for values, names in zip(distances, found, strict=True):
        order = np.lexsort((names, values if metric in ("euclidean", "hamming") else -values))
        assert np.array_equal(order, np.arange(60))
    assert np.array_equal(MODEL.search(QUERIES, codes, k=25, metric=metric, ids=ids)[1], found[:, :25])


def test_hamming_topk_with_ids_and_filter():
    codes = CODES[False]
    ids, mask = np.arange(len(codes))[::-1] * 3, np.arange(len(codes)) % 5 == 0
    distances, found = fs.hamming_topk(codes[:9], codes, k=20, ids=ids, allow=mask)
    all_of_them = np.sort(fs.hamming_distances(codes[:9], codes[mask]), axis=1)[:, :20]
    assert np.array_equal(distances, all_of_them) and np.isin(found, ids[mask]).all()
    assert ((np.diff(distances, axis=1) > 0) | (np.diff(found, axis=1) > 0)).all()
    with pytest.raises(ValueError, match="the 3 codes that are allowed"):
        fs.hamming_topk(codes[:9], codes, k=4, allow=[1, 2, 3])
    with pytest.raises(ValueError, match="allow must hold ids of the codes, got 1"):
        fs.hamming_topk(codes[:9], codes, k=1, ids=ids, allow=[0, 3, 1])


# -- the scan ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("share", [0.01, 0.5, 1.0])
def test_the_scan_is_its_reference(share):
    layout = Layout(7, Minifloat(1, 4), Minifloat(2, 10))
    codes = RNG.integers(0, 256, (3000, layout.width)).astype(np.uint8)
    tables = RNG.standard_normal((3, 7, 16)).astype(np.float32)
    rule = ScoreRule(1.0, -2.0, RNG.standard_normal(3).astype(np.float32), RNG.random(3000).astype(np.float32) + 1)
    allow = None if share == 1 else RNG.random(3000) < share
    scores = reference.code_scores(tables, codes, layout=layout, **rule._asdict())
    for ids in (None, RNG.permutation(3000)):
        expected = reference.least_scores(scores, 11, allow=allow, ids=ids)
        for kind in (CodeRows, Blocks):
            found = scan(tables, kind.from_codes(codes, layout), rule, k=11, allow=allow, ids=ids)
            assert np.array_equal(found[0], expected[0]) and np.array_equal(found[1], expected[1])


@pytest.mark.parametrize("kind", [CodeRows, Blocks])
@pytest.mark.parametrize("width", [1, 3, 4, 5, 20])
def test_codes_that_are_kept(kind, width):
    layout = Layout(2 * width)
    codes = RNG.integers(0, 256, (100, width), dtype=np.uint8)
    for n in (1, 15, 16, 17, 100):
        held = kind.from_codes(codes[:n], layout)
        assert len(held) == n and held.data.shape == kind.shape(n, layout)
        assert np.array_equal(held.read_slice(0, n), codes[:n]) and np.array_equal(
            held.read_slice(n // 2, n), codes[n // 2 : n]
        )
        places = RNG.integers(0, n, 30)
        assert np.array_equal(held.take(places), codes[places])
        assert held.take(places[:0]).shape == (0, width)
    # those of the first are there, whatever is put behind them
    held = kind.empty(60, layout)
    for start in range(0, 60, 7):
        held.write(start, codes[start : start + min(7, 60 - start)])
    first = held.prefix(21)
    held.write(21, codes[50:60])
    assert np.array_equal(first.read_slice(0, 21), codes[:21])
    more = held.copy_with_capacity(21, 90)
    more.write(21, codes[21:90])
    assert np.array_equal(more.read_slice(0, 90), codes[:90]) and more.data.shape == kind.shape(90, layout)


def test_norms_of_codes():
    """Rows, blocks of them, and the squared distance from zero by the reference."""
    encoder = MODEL.encoder(factors=True)
    codes = CODES[True]
    tables, constant = encoder.tables(np.zeros((1, encoder.n_features)), "euclidean")
    square = reference.code_scores(
        tables, codes, layout=encoder.layout, alpha=1.0, beta=-2.0, constant=constant.astype(np.float32)
    )
    found = estimated_norms(encoder, CodeRows.from_codes(codes, encoder.layout))
    assert found.dtype == np.float32 and (square > 0).all()
    assert np.array_equal(found, np.sqrt(square[0].astype(np.float64)).astype(np.float32))
    assert np.array_equal(estimated_norms(encoder, Blocks.from_codes(codes, encoder.layout)), found)
    assert estimated_norms(encoder, CodeRows.from_codes(codes[:0], encoder.layout)).shape == (0,)


# -- encoders ------------------------------------------------------------------------------------------------------
ENCODERS = {
    "sketch": lambda: MODEL.encoder(factors=True),
    "bits": lambda: MODEL.encoder(),
    "lsh": lambda: baselines.LSH(9).update(ROWS).encoder(factors=True),
    "sgh": lambda: baselines.SGH(9, n_bases=30).update(ROWS).encoder(factors=True),
}


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_is_frozen_and_can_be_kept(name):
    encoder = ENCODERS[name]()
    again = restore_encoder(*encoder_state(encoder))
    assert isinstance(again, Encoder) and again == encoder and hash(again) == hash(encoder)
    assert again.fingerprint == encoder.fingerprint and name[:3] != "" and len(encoder.fingerprint) == 64
    codes = encoder.encode(ROWS)
    assert np.array_equal(again.encode(ROWS), codes) and codes.shape == (len(ROWS), encoder.width)
    one, two = encoder.search(QUERIES, codes), again.search(QUERIES, codes)
    assert np.array_equal(one[0], two[0]) and np.array_equal(one[1], two[1])
    assert {other for other in ENCODERS if ENCODERS[other]() == encoder} == {name}


def test_an_encoder_does_not_follow_the_model():
    model = fs.SketchHash(8, block_rows=50).update(ROWS[:200])
    encoder, codes = model.encoder(factors=True), model.encode(ROWS, factors=True)
    model.update(ROWS[200:] * np.linspace(0.1, 3, 40))
    assert np.array_equal(encoder.encode(ROWS), codes)
    assert model.encoder(factors=True) != encoder


def test_a_stranger_is_refused():
    about, arrays = encoder_state(MODEL.encoder(factors=True))
    nan = {**arrays, "mean": np.full(40, np.nan)}
    for state, values, match in [
        ({**about, "kind": "fastsketch.neighbours.Nothing"}, arrays, "no encoder of kind"),
        ({**about, "kind": 3}, arrays, "must be a name"),
        ({**about, "state": {**about["state"], "length": 3.0}}, arrays, "power of two"),
        ({**about, "state": {**about["state"], "factors": 1}}, arrays, "True or False"),
        ({**about, "state": {}}, arrays, "factors"),
        (about, {**arrays, "more": np.ones(2)}, "does not belong"),
        (about, {**arrays, "mean": np.ones(39)}, "shape"),
        (about, nan, "finite"),
        (about, {}, "mean"),
    ]:
        with pytest.raises(ValueError, match=match):
            restore_encoder(state, values)


# -- bad input -----------------------------------------------------------------------------------------------------
NAN_QUERY = QUERIES.copy()
NAN_QUERY[7, 3] = np.nan


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"k": 0}, "k must be at least 1"),
        ({"k": 641}, "at most the 640 codes"),
        ({"k": 2.0}, "k must be an integer"),
        ({"k": 6, "allow": np.arange(5)}, "at most the 5 codes that are allowed, got 6"),
        ({"k": 1, "allow": np.zeros(640, bool)}, "at most the 0 codes that are allowed"),
        ({"k": 1, "allow": []}, "at most the 0 codes that are allowed"),
        ({"allow": [1, 2, 640]}, "allow must hold places of the 640 codes, got 640"),
        ({"allow": [-1, 2]}, "allow must hold places of the 640 codes, got -1"),
        ({"allow": [1, 5, 1]}, "allow must be different, got 1 more than once"),
        ({"allow": [1.5]}, "allow must be integers"),
        ({"allow": np.ones(639, bool)}, "one entry for each of the 640 codes"),
        ({"allow": np.ones((640, 1), int)}, "allow must be a vector"),
        ({"ids": np.arange(639)}, "one entry for each of the 640 codes, got 639"),
        ({"ids": np.arange(640) // 2}, "ids must be different, got 0, 1, 2, .* more than once"),
        ({"ids": np.arange(640.0)}, "ids must be integers"),
        ({"ids": np.full(640, 2**64 - 1, np.uint64)}, "below 2"),
        ({"ids": np.arange(640) + 7, "allow": [7, 6]}, "allow must hold ids of the codes, got 6"),
        ({"ids": (np.arange(640) + 7)[::-1], "allow": [7, 6]}, "allow must hold ids of the codes, got 6"),
        ({"queries": NAN_QUERY}, "queries must be finite: row 7 holds a NaN or an infinity in column 3"),
        ({"queries": QUERIES[:, :5]}, "queries must have 40 columns"),
        ({"metric": "l2"}, "metric must be one of 'euclidean'"),
        ({"codes": CODES[True][:, :5]}, "codes must have 3 bytes, or 7 with factors, as this model makes them, got 5"),
        ({"codes": CODES[True].astype(int)}, "dtype uint8"),
        ({"rescore": ROWS, "oversample": 0.5}, "oversample must be finite and at least 1, got 0.5"),
        ({"rescore": ROWS, "oversample": np.nan}, "oversample must be finite"),
        ({"rescore": ROWS, "oversample": np.inf}, "oversample must be finite"),
        ({"rescore": ROWS, "oversample": "4"}, "oversample must be a number"),
        ({"oversample": 0}, "oversample must be finite"),
        (
            {"rescore": ROWS[:639]},
            r"rescore must have shape \(640, 40\) as the rows that were encoded, got \(639, 40\)",
        ),
        ({"rescore": ROWS[:, :39]}, r"rescore must have shape \(640, 40\)"),
        ({"rescore": sparse.csr_array(ROWS)[:, :39]}, r"rescore must have shape \(640, 40\)"),
        ({"rescore": ROWS.astype(complex)}, "real numbers"),
        ({"rescore": "rows.npy"}, "rescore must be the rows .* or a function of ids that returns them, got 'rows.npy'"),
        ({"rescore": True}, "rescore must be the rows .* got True"),
        (
            {"rescore": np.where(np.arange(640)[:, None] == 11, np.nan, ROWS), "k": 640},
            "rescore must be finite: row 11",
        ),
        ({"rescore": lambda ids: ROWS[ids][:, :3]}, "rescore must return rows of shape"),
        ({"rescore": lambda ids: ROWS[ids][1:]}, "rescore must return rows of shape"),
        ({"rescore": lambda ids: ROWS[ids] * np.nan}, "rows that rescore returned must be finite"),
        ({"rescore": lambda ids: None}, "real numbers|dimensions|rows"),
    ],
)
def test_what_is_refused(given, match):
    given = {"queries": QUERIES, "codes": CODES[True], **given}
    with pytest.raises((TypeError, ValueError), match=match):
        MODEL.search(given.pop("queries"), given.pop("codes"), **given)


def test_codes_of_another_kind_are_refused():
    plain, full = MODEL.encoder(), MODEL.encoder(factors=True)
    with pytest.raises(ValueError, match="codes must have 3 bytes, as this model makes them, got 7"):
        plain.search(QUERIES, CODES[True])
    with pytest.raises(ValueError, match="codes must have 7 bytes, as this model makes them, got 3"):
        full.search(QUERIES, CODES[False])
    with pytest.raises(ValueError, match="no rows"):
        fs.SketchHash(8).search(QUERIES, np.zeros((9, 1), np.uint8))
    with pytest.raises(ValueError, match="no rows"):
        fs.SketchHash(8).encoder()
    with pytest.raises(TypeError, match="factors must be True or False"):
        MODEL.encode(ROWS, factors=1)


# -- queries and rows of any size ----------------------------------------------------------------------------------
LEARNERS = {
    "hash": lambda rows: fs.SketchHash(24, sketch_size=64, block_rows=100).update(rows),
    "quantizer": lambda rows: fs.SketchQuantizer(12).update(rows),
}
FACTORS = {"hash": {"factors": True}, "quantizer": {}}


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", LEARNERS)
@pytest.mark.parametrize("exponent", [-330, -130, 60, 120, 390])
def test_answers_do_not_depend_on_the_unit_of_the_rows(kind, metric, exponent):
    unit = 2.0**exponent
    plain, scaled = (LEARNERS[kind](ROWS * factor) for factor in (1.0, unit))
    expected = plain.search(QUERIES, plain.encode(ROWS, **FACTORS[kind]), metric=metric)
    found = scaled.search(QUERIES * unit, scaled.encode(ROWS * unit, **FACTORS[kind]), metric=metric)
    back = {"euclidean": unit, "inner_product": unit * unit, "cosine": 1.0}[metric]
    assert np.mean(found[1] == expected[1]) > 0.98  # a mean is not summed in quite the same way
    assert np.allclose(found[0] / back, expected[0], rtol=1e-3)


@pytest.mark.parametrize("kind", LEARNERS)
@pytest.mark.parametrize("exponent", [-900, -200, -120, 90, 150, 450, 900])
def test_inner_products_go_by_the_query(kind, exponent):
    model = LEARNERS[kind](ROWS)
    codes = model.encode(ROWS, **FACTORS[kind])
    expected = model.search(QUERIES, codes, metric="inner_product")
    mixed = np.where(np.arange(len(QUERIES))[:, np.newaxis] % 2, QUERIES * 2.0**exponent, QUERIES)
    for asked in (mixed, sparse.csr_array(mixed)):
        found = model.search(asked, codes, metric="inner_product")
        assert np.mean(found[1] == expected[1]) > 0.98
        assert np.allclose(found[0][::2], expected[0][::2], rtol=1e-4)
        assert np.allclose(found[0][1::2] * 2.0**-exponent, expected[0][1::2], rtol=1e-4)


@pytest.mark.parametrize("kind", LEARNERS)
def test_from_far_away_the_direction_decides(kind):
    model = LEARNERS[kind](ROWS)
    codes = model.encode(ROWS, **FACTORS[kind])
    expected = model.search(QUERIES * 2.0**55, codes)
    length = np.linalg.norm(QUERIES * 2.0**55, axis=1)
    assert np.allclose(expected[0][length > 0], length[length > 0, np.newaxis], rtol=1e-6)
    for exponent in (100, 300, 500, 1000):
        found = model.search(QUERIES * 2.0**exponent, codes)
        assert np.mean(found[1] == expected[1]) > 0.98
        if exponent <= 500:
            assert np.allclose(found[0] * 2.0 ** (55 - exponent), expected[0], rtol=1e-6)


def test_wide_numbers_that_no_double_holds_are_refused():
    if np.finfo(np.longdouble).max == np.finfo(np.float64).max:
        pytest.skip("no wider number here")
    with pytest.raises(ValueError, match="queries must be finite: row 0"):
        MODEL.search(np.full((1, 40), np.longdouble("1e4000")), CODES[True])


def test_no_queries():
    for kind, learn in LEARNERS.items():
        model = learn(ROWS)
        for more in ({}, {"rescore": ROWS}):
            found = model.search(ROWS[:0], model.encode(ROWS, **FACTORS[kind]), k=3, **more)
            assert [part.shape for part in found] == [(0, 3), (0, 3)]


@pytest.mark.parametrize("oversample", [1e9, 1e308, 10**400])
def test_candidates_are_at_most_all(oversample):
    found = MODEL.search(QUERIES, CODES[True], k=3, rescore=ROWS, oversample=oversample)
    assert np.array_equal(found[1], nearest_first("euclidean", exact("euclidean"), 3))


@pytest.mark.parametrize("metric", [*METRICS, "hamming"])
def test_many_queries_come_in_pieces(metric, monkeypatch):
    for more in ({}, {"rescore": ROWS}, {"rescore": lambda ids: ROWS[ids]}):
        expected = MODEL.search(QUERIES, CODES[True], metric=metric, **more)
        for n in (1, 7, 59):
            with monkeypatch.context() as patch:
                patch.setattr(_search, "TABLE_BYTES", 0)
                patch.setattr(_search, "CANDIDATE_BYTES", _search.PIECE_BYTES // (n * (40 if more else 10)))
                found = MODEL.search(QUERIES, CODES[True], metric=metric, **more)
            assert found[0].dtype == expected[0].dtype
            assert np.array_equal(found[1], expected[1])
            assert np.allclose(found[0], expected[0], rtol=1e-6)


def test_an_abstract_kind_is_no_encoder():
    with pytest.raises(ValueError, match="no encoder of kind"):
        restore_encoder({"kind": "fastsketch.neighbours.SignEncoder", "state": {}}, {})
