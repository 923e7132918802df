"""Low-rank models of tables with ids: the model of the matrix, asked by ids."""

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.data import Triples

M, N = 30, 20
RNG = np.random.default_rng(0)
TRUTH = 3 + RNG.standard_normal((M, 2)) @ RNG.standard_normal((2, N))
ROWS, COLUMNS = np.nonzero(RNG.random((M, N)) < 0.5)
VALUES = TRUTH[ROWS, COLUMNS]
MATRIX = sparse.csr_array((VALUES, (ROWS, COLUMNS)), shape=(M, N))
KINDS = {
    "strings": (lambda i: f"user {i:02d}", lambda j: f"item {j:02d}"),
    "integers": (lambda i: 3 * i - 7, lambda j: j + 100),
    "mixed": (lambda i: (i, "user"), lambda j: f"item {j:02d}"),
}


def table(kind="strings", seed=1):
    """The entries of MATRIX in another order; ids in ascending order are its rows and columns."""
    row, column = KINDS[kind]
    order = np.random.default_rng(seed).permutation(len(VALUES))
    users, items = [row(int(i)) for i in ROWS[order]], [column(int(j)) for j in COLUMNS[order]]
    return Triples(users, items, values=VALUES[order])


@pytest.fixture(scope="module")
def plain():
    return fs.LowRankModel(2).fit(MATRIX)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_model_of_the_matrix(plain, kind):
    row, column = KINDS[kind]
    model = fs.LowRankModel(2).fit(table(kind))
    assert np.array_equal(model.factors()[0], plain.factors()[0])
    for found in (model, fs.from_bytes(model.to_bytes()), model.copy()):
        assert list(found.row_ids) == [row(i) for i in range(M)]
        pairs = [row(3), row(5), row(99)], [column(4), column(99), column(2)]
        assert np.array_equal(found.predict(*pairs), plain.predict([3, 5, -1], [4, -1, 2]))
        assert np.array_equal(found.predict_block([row(3)]), plain.predict_block([3]))
        items, scores = found.recommend([row(7), row(99)], 4)
        expected, same = plain.recommend([7, -1], 4)
        assert items.tolist() == [[column(j) for j in line] for line in expected.tolist()]
        assert np.array_equal(scores, same)
        assert found.similar(row(3), 2)[0].tolist() == [row(i) for i in plain.similar(3, 2)[0].tolist()]
        assert found.similar(column(3), 2, axis=1)[0].tolist() == [
            column(j) for j in plain.similar(3, 2, axis=1)[0].tolist()
        ]


def test_what_is_seen_or_not_allowed(plain):
    model = fs.LowRankModel(2).fit(table())
    users = ["user 09", "nobody", "user 02", "user 09"]
    items, _ = model.recommend(users, N, exclude=table())
    expected = plain.recommend(
        [9, -1, 2, 9], N, exclude=sparse.vstack([MATRIX[[9]], sparse.csr_array((1, N)), MATRIX[[2, 9]]])
    )
    assert items.tolist() == [[f"item {j:02d}" if j >= 0 else None for j in line] for line in expected[0].tolist()]
    few = model.recommend(users[:1], 3, allow=["item 03", "item 01", "item 03"])[0]
    assert set(few[0]) == {"item 01", "item 03", None}
    whole = model.recommend(model.row_ids, 3, exclude=MATRIX)[0]  # a matrix has the rows of the model
    assert whole[9].tolist() == items[0].tolist()[:3]


def test_new_ones_are_folded_in(plain):
    model = fs.LowRankModel(2).fit(table())
    new = model.fold_in({"x": {"item 01": 3.0, "item 02": 4.0, "unknown": 1.0}, "y": {"item 05": 2.0}})
    entries = sparse.csr_array(([3.0, 4.0, 2.0], ([0, 0, 1], [1, 2, 5])), shape=(2, N))
    expected = plain.fold_in(entries)
    assert list(new.ids) == ["x", "y"]
    assert np.array_equal(new.factors, expected.factors)
    assert np.array_equal(new.predict(["y"], ["item 03"]), expected.predict([1], [3]))
    items = new.recommend(3, exclude={"x": ["item 00"]}, allow=[f"item {j:02d}" for j in range(4)])[0]
    assert items.tolist()[0] == [
        f"item {j:02d}" for j in expected.recommend(3, exclude=sparse.csr_array(([1], ([0], [0])), shape=(2, N)),
                                                    allow=range(4))[0][0]
    ]  # fmt: skip
    films = model.fold_in({"user 01": {"film": 3.0}, "user 02": {"film": 1.0}}, axis=1)
    assert list(films.ids) == ["film"]
    assert films.recommend(2, exclude={"user 01": ["film"]})[0].shape == (1, 2)
    with pytest.raises(KeyError, match="new has ids that the model does not know: 'z'"):
        new.predict(["z"], ["item 03"])


def test_matrices_may_be_given_ids(plain):
    names = [f"item {j}" for j in range(N)]
    model = fs.LowRankModel(2).fit(MATRIX, column_ids=names)
    assert model.row_ids is None
    assert model.recommend([3], 2)[0].tolist() == [[names[j] for j in plain.recommend([3], 2)[0][0]]]
    assert fs.from_bytes(model.to_bytes()).predict([3], ["item 4"]) == plain.predict([3], [4])
    for ids, match in (
        (names[:-1], "column_ids must have 20 ids, got 19"),
        (["a"] * N, "column_ids must be different"),
    ):
        with pytest.raises(ValueError, match=match):
            fs.LowRankModel(2).fit(MATRIX, column_ids=ids)
    assert fs.LowRankModel(2).fit(MATRIX, column_ids=names).fit(MATRIX).column_ids is None  # a fit forgets


def test_validation_and_weights():
    held = Triples(["user 01", "cold"], ["item 03", "item 04"], values=[3.0, 2.0])
    known = Triples(["user 01"], ["item 03"], values=[3.0])
    rest = [(i, j, v) for i, j, v in zip(ROWS, COLUMNS, VALUES, strict=True) if (i, j) != (1, 3)]
    train = Triples.of([(f"user {i:02d}", f"item {j:02d}", v) for i, j, v in rest])
    model = fs.LowRankModel(2).fit(train, validation=held)
    assert "cold" in model.row_ids
    assert model.facts()["validation"] is not None
    assert fs.LowRankModel(2).fit(train, validation=known).row_ids == fs.LowRankModel(2).fit(table()).row_ids
    weight = RNG.random(len(rest))
    weighted = fs.LowRankModel(2).fit(train, sample_weight=weight)
    cells = tuple(np.array([line[:2] for line in rest]).T)
    x, w = (sparse.csr_array((values, cells), shape=(M, N)) for values in ([line[2] for line in rest], weight))
    assert np.array_equal(weighted.factors()[0], fs.LowRankModel(2).fit(x, sample_weight=w).factors()[0])


def test_a_data_frame_is_not_taken_for_a_matrix():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"u": ["a", "b", "a"], "i": ["x", "y", "y"], "r": [1.0, 2.0, 3.0]})
    model = fs.LowRankModel(1).fit(frame, columns=("u", "i", "r"))
    assert model.shape == (2, 2)
    numbers = pd.DataFrame(
        {"userId": [1, 2, 1], "movieId": [1, 2, 2], "rating": [1.0, 2.0, 3.0], "timestamp": [1, 2, 3]}
    )
    for narrow in (frame, numbers, numbers[["userId", "movieId", "rating"]]):
        with pytest.raises(ValueError, match="may be a table of users, items and values, or a matrix"):
            fs.LowRankModel(1).fit(narrow)
    assert fs.LowRankModel(1).fit(numbers.to_numpy()).shape == (3, 4)
    wide = pd.DataFrame(TRUTH)
    assert fs.LowRankModel(1).fit(wide).shape == (M, N)


def test_what_is_refused_changes_nothing():
    model = fs.LowRankModel(2).fit(table())
    before = model.to_bytes()
    twice = Triples(["a", "b", "a"], ["x", "x", "x"], values=[1, 2, 3])
    for call, error, match in (
        (lambda: model.fit(twice), ValueError, r"X holds the pair \(a, x\) more than once"),
        (lambda: model.fit(Triples([], [])), ValueError, "at least one observation"),
        (lambda: model.fit(table(), row_ids=["a"]), ValueError, "for matrices"),
        (lambda: model.fit(table(), validation=MATRIX), TypeError, "validation must be a table"),
        (lambda: model.fit(MATRIX, validation=table()), TypeError, "validation must be a matrix"),
        (lambda: model.fit(table(), sample_weight=[1.0]), ValueError, "each of the"),
        (lambda: model.predict([3], ["item 01"]), TypeError, "rows must be strings"),
        (lambda: model.predict([None], ["item 01"]), ValueError, "missing"),
        (lambda: model.predict(["user 01"], ["item 01", "item 02"]), ValueError, "same shape"),
        (lambda: model.similar("nobody"), KeyError, "nobody"),
        (lambda: model.recommend(["user 01"], allow=["x"]), KeyError, "allow has ids"),
        (lambda: fs.LowRankModel(2).fit(MATRIX).fold_in({"a": {"x": 1}}), ValueError, "without ids"),
        (lambda: fs.LowRankModel(2).fit(MATRIX).recommend([1], exclude=table()), ValueError, "exclude is a table"),
    ):
        with pytest.raises(error, match=match):
            call()
    assert model.to_bytes() == before
    labels = Triples(["a", "b"], ["x", "y"], values=[1.0, -1.0])
    assert fs.LowRankModel(1, loss="logistic").fit(labels).predict("a", "x").tolist() == [1.0]


def test_ids_of_strangers():
    model = fs.LowRankModel(2).fit(table())
    state, arrays = model._state()
    for about, changed in (
        ({"ids": {"row": "integers", "column": "strings"}}, {}),
        ({"ids": {"row": "strings"}}, {}),
        ({"ids": {"side": "strings"}}, {}),
        ({"ids": {}}, {}),
        ({}, {"row_ids_ends": arrays["row_ids_ends"][:-1]}),
        ({}, {"row_ids": arrays["row_ids"][:-1]}),
    ):
        stranger = fs.LowRankModel(2)
        with pytest.raises((ValueError, TypeError, LookupError)):
            stranger._built(stranger.parameters, {}, {**state, **about}, {**arrays, **changed}, trusted=False)
