"""Item models of tables with ids: the model of the matrix, asked by ids, with items that come later."""

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.data import Triples
from fastsketch.recommending.ranking import mean_of, ndcg_at, user_split

K, N = 240, 40
USERS, ITEMS = np.nonzero(np.random.default_rng(0).random((K, N)) < 0.15)
ROWS = sparse.csr_array((np.ones(len(USERS)), (USERS, ITEMS)), shape=(K, N))


def table(start=0, stop=K, kind=str):
    part = np.isin(USERS, np.arange(start, stop))
    name = (lambda j: f"item {j:02d}") if kind is str else int
    return Triples([f"user {i}" for i in USERS[part]], [name(j) for j in ITEMS[part]])


def in_order(model, block):
    """Return the columns of a block in the order of the numbers of their items."""
    return np.asarray(block)[..., np.argsort(list(model.item_ids))]


@pytest.mark.parametrize("kind", [str, int])
def test_it_is_the_model_of_the_matrix(kind):
    events = table(kind=kind)
    model = fs.SketchedEASE(16).update(events)
    plain = fs.SketchedEASE(16).update(events.matrix())
    names = list(events.item_ids)
    for found in (model, fs.from_bytes(model.to_bytes()), model.copy()):
        assert list(found.item_ids) == names
        lists, expected = found.recommend(events, 5), plain.recommend(events.matrix(), 5)
        assert lists.items.tolist() == [[names[j] for j in line] for line in expected.items]
        assert np.array_equal(lists.scores, expected.scores)
        near = found.similar_items([names[3]], 4)
        assert near.items.tolist() == [[names[j] for j in plain.similar_items([3], 4).items[0]]]
        why = found.explain({"me": [names[1], names[2]]}, names[3])
        assert set(why.items.tolist()) == {names[1], names[2]}
        assert np.array_equal(found.decision_block(events), plain.decision_block(events.matrix()))
    assert model.recommend(events.matrix()[[0]], 2).items.tolist() == model.recommend(events, 2).items[:1].tolist()


def test_bits_do_not_depend_on_batches():
    whole = fs.SketchedEASE(16).update(table())
    parts = fs.SketchedEASE(16)
    for start in range(0, K, 50):
        parts.update(table(start, start + 50))
    assert list(parts.item_ids) == list(whole.item_ids)
    assert np.array_equal(parts.popularity, whole.popularity)
    assert np.allclose(parts.decision_block(table()), whole.decision_block(table()), atol=1e-6)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("decay", [1.0, 0.99])
def test_items_may_come_later(dense, decay):
    """A model that has seen a column of zeros before is the same."""
    share = 0.6 if dense else 0.1
    rng = np.random.default_rng(1)
    first, then = rng.random((60, 20)) < share, rng.random((60, 26)) < share
    first[:, 5] = then[:, 2] = True  # a user without events has no line
    padded = np.hstack([first, np.zeros((60, 6))])
    model = fs.SketchedEASE(8, decay=decay).update(first if dense else sparse.csr_array(first), item_ids=np.arange(20))
    lines = Triples(*(place.tolist() for place in np.nonzero(then)))
    model.update(lines)
    ids = list(model.item_ids)
    assert sorted(ids) == list(range(26))
    before, after = sparse.csr_array(padded), sparse.csr_array(then[:, ids].astype(float))
    plain = fs.SketchedEASE(8, decay=decay).update(padded if dense else before).update(after)
    assert np.allclose(model.popularity, plain.popularity)
    rows = np.eye(26)
    assert np.allclose(model.decision_block(rows), plain.decision_block(rows), atol=1e-5)


def test_parts_with_other_items_merge():
    parts = [fs.SketchedEASE(64).update(table(start, start + 60)) for start in range(0, K, 60)]
    parts[1].update({"odd": ["only here", "item 03"]})
    before = [part.to_bytes() for part in parts]
    whole = fs.merge(parts)
    assert [part.to_bytes() for part in parts] == before
    assert sorted(whole.item_ids) == [*(f"item {j:02d}" for j in range(N)), "only here"]
    assert whole.n_rows == K + 1
    plain = fs.SketchedEASE(64).update(ROWS)
    found = in_order(whole, whole.popularity)[:N]
    assert np.allclose(np.delete(found, 3), np.delete(plain.popularity, 3), rtol=1e-5)
    with pytest.raises(ValueError, match="only one of the two models has ids"):
        whole.copy().merge(fs.SketchedEASE(64).update(np.ones((2, N + 1))))
    numbers = fs.SketchedEASE(64).update(table(kind=int))
    with pytest.raises(TypeError, match="items must be strings"):
        whole.merge(numbers)
    empty = fs.SketchedEASE(64).merge(whole)
    assert empty.item_ids == whole.item_ids


def test_who_is_not_known():
    model = fs.SketchedEASE(16).update(table())
    popular = [list(model.item_ids)[j] for j in np.argsort(-model.popularity, kind="stable")[:3]]
    found = model.recommend({"new": [], "odd": ["never seen"], "me": ["item 01", "never seen"]}, 3)
    assert found.items[:2].tolist() == [popular, popular]
    assert (found.scores[:2] == 0).all()
    assert found.items[2].tolist() == model.recommend({"me": ["item 01"]}, 3).items[0].tolist()
    few = model.recommend({"me": ["item 01"]}, 3, allow=["item 02", "item 01"], exclude={"me": ["item 05"]})
    assert few.items.tolist() == [["item 02", None, None]]
    assert np.isnan(few.scores[0, 1:]).all()


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_ids_that_are_missing_are_named_and_change_nothing(missing):
    model = fs.SketchedEASE(16).update(table())
    before = model.to_bytes()
    for rows, message in (
        ({"new": ["item 01", missing]}, "items must not be missing: entry 1 is (None|nan)"),
        ({missing: ["item 01"]}, "users must not be missing: entry 0 is (None|nan)"),
    ):
        for call in (model.update, model.recommend, model.decision_block, fs.SketchedEASE(4).update):
            with pytest.raises(ValueError, match=message):
                call(rows)
    assert model.to_bytes() == before


def test_a_user_of_all_items_is_offered_none_unless_seen_ones_count():
    model, every = fs.SketchedEASE(16).update(table()), {"me": [f"item {j:02d}" for j in range(N)]}
    nothing = model.recommend(every, 3)
    assert nothing.items.tolist() == [[None] * 3] and np.isnan(nothing.scores).all()
    scores = model.decision_block(every)[0]
    best = [model.item_ids[int(j)] for j in np.argsort(-scores, kind="stable")[:3]]
    assert model.recommend(every, 3, exclude_seen=False).items.tolist() == [best]


def test_a_log_with_repeats_ranks_as_its_pairs():
    """Few pairs that come very often must not drown the others of a row."""
    rng = np.random.default_rng(0)
    taste = rng.integers(6, size=600)
    had = rng.random((600, 60)) < np.where(taste[:, np.newaxis] == np.arange(60) % 6, 0.5, 0.1)
    split = user_split(sparse.csr_array(had.astype(float)), 0.2, seed=0)
    users, items = split.train.nonzero()
    plays = np.where(rng.random(len(users)) < 0.1, rng.geometric(0.01, len(users)), 1)
    log = fs.SketchedEASE().update(Triples(*(np.repeat(ids, plays) for ids in (users, items))))
    counts = fs.SketchedEASE().update(Triples(users, items, values=plays))
    found = [log_or_counts.recommend(Triples(*split.shown.nonzero()), 10).items for log_or_counts in (log, counts)]
    score, of_counts = (mean_of(ndcg_at(lists, split.hidden[np.diff(split.shown.indptr) > 0])).mean for lists in found)
    assert score > 1.1 * of_counts


def test_counts_and_values():
    twice = fs.SketchedEASE(4, activity_power=0.0).update(Triples(["a", "a", "a"], ["x", "x", "y"]))
    assert dict(zip(twice.item_ids, twice.popularity, strict=True)) == {"x": 1.0, "y": 1.0}
    added = fs.SketchedEASE(4, activity_power=0.0).update(Triples(["a", "a", "a"], ["x", "x", "y"], values=[1, 1, 1]))
    assert added.popularity.tolist() == [4.0, 1.0]
    asked = [twice.decision_block(Triples(["a"] * n, ["x"] * n)) for n in (1, 3)]
    assert np.array_equal(*asked)
    values = fs.SketchedEASE(4, activity_power=0.0).update({"a": {"x": 3, "y": 0.5}})
    assert values.popularity.tolist() == [9.0, 0.25]
    weighted = fs.SketchedEASE(4, activity_power=0.0).update({"a": ["x"], "b": ["y"]}, [1.0, 2.0])
    assert weighted.popularity.tolist() == [1.0, 2.0]
    assert fs.SketchedEASE(4).update(Triples([], [])).n_features is None


def test_data_frames(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"user": [1, 1, 2], "item": ["x", "y", "x"], "n": [1, 2, 3]})
    frame.to_csv(tmp_path / "e.csv", index=False)
    for given in (frame, tmp_path / "e.csv"):
        model = fs.SketchedEASE(4).update(given, columns=("user", "item"))
        assert (model.n_rows, list(model.item_ids)) == (2, ["x", "y"])
    for narrow in (frame, frame[["user", "item"]]):
        with pytest.raises(ValueError, match="may be a table of users"):
            fs.SketchedEASE(4).update(narrow)


def test_what_is_refused_changes_nothing():
    model = fs.SketchedEASE(16).update(table())
    plain = fs.SketchedEASE(16).update(ROWS)
    before = model.to_bytes(), plain.to_bytes()
    for call, error, match in (
        (lambda: model.update({"a": [3]}), TypeError, "items must be strings, as the ids of the model are, got 3"),
        (
            lambda: model.update(Triples(["a"], ["new"], values=[-1])),
            ValueError,
            r"entry 0, the pair \(a, new\), has -1",
        ),
        (lambda: model.update(Triples(["a"], ["new"], values=[1e35])), ValueError, r"the pair \(a, new\) has 1"),
        (lambda: model.update(table(), item_ids=["a"]), ValueError, "for matrices"),
        (lambda: model.update(np.ones((1, 3))), ValueError, "40 columns"),
        (lambda: model.update(ROWS, item_ids=range(N)), ValueError, "item_ids must be those before"),
        (lambda: plain.update(ROWS, item_ids=range(N)), ValueError, "item_ids come too late"),
        (lambda: plain.update(table()), ValueError, "begin with item_ids, or with a table"),
        (lambda: plain.recommend(table()), ValueError, "no ids of items"),
        (lambda: model.recommend(ROWS[:1], exclude={"a": ["item 01"]}), ValueError, "rows must be one too"),
        (lambda: model.similar_items(["zz"]), KeyError, "'zz'"),
        (lambda: model.recommend("user 0"), TypeError, "got 'user 0': the model keeps items and no users; give those"),
        (lambda: model.explain(table(), "item 01"), ValueError, "one row"),
    ):
        with pytest.raises(error, match=match):
            call()
    assert (model.to_bytes(), plain.to_bytes()) == before
    assert model.update(ROWS[:2]).n_rows == K + 2


def test_ids_of_strangers():
    model = fs.SketchedEASE(16).update(table())
    state, arrays = model._state()
    for about, changed in (
        ({"ids": "integers"}, {}),
        ({"ids": "words"}, {}),
        ({}, {"item_ids_ends": arrays["item_ids_ends"][:-1]}),
        ({}, {"item_ids": arrays["item_ids"][:-1]}),
    ):
        with pytest.raises((ValueError, TypeError, LookupError)):
            model._built(model.parameters, {}, {**state, **about}, {**arrays, **changed}, trusted=False)


@pytest.mark.parametrize("names", [["ann"], np.array(["ann", "bob"])])
def test_names_of_users_are_no_events(names):
    model = fs.SketchedEASE(2).update({"ann": ["Heat", "Alien"], "bob": ["Heat"]})
    with pytest.raises(TypeError, match=r"rows must be events, got strings: .*\{user: \[items\]\}"):
        model.recommend(names, 1)


def test_several_files_are_no_table(tmp_path):
    (tmp_path / "matrix.csv").write_text("bread,milk,egg,tea\n" + "0,1,1,0\n" * 30)
    for rows, match in (
        (["a.csv", "b.csv"], "a table is one file"),
        (str(tmp_path / "m?.csv"), "a table is one file"),
        (tmp_path / "matrix.csv", "columns must say which are users"),
    ):
        with pytest.raises(ValueError, match=match):
            fs.SketchedEASE(2).update(rows)
        with pytest.raises(ValueError, match=match):
            fs.LowRankModel(2).fit(rows)
