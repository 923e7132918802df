"""The intercept, and features scaled by running moments: as by hand, whatever the batches are."""

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from tests.helpers import papers

D = 30
MAKERS = {
    "newton": lambda **kw: papers.SketchedNewton(3, alpha0=0.1, **kw),
    "newton-square": lambda **kw: papers.SketchedNewton(3, loss="square", **kw),
    "ada-ffd": lambda **kw: papers.AdaptiveSubgradient(3, **kw),
    "ada-diag": lambda **kw: papers.AdaptiveSubgradient(method="ada_diag", **kw),
    "adam": lambda **kw: papers.AdaptiveSubgradient(method="adam", **kw),
}
FORMS = {"dense": np.asarray, "sparse": sparse.csr_array}


def stream(n=120, form="dense", seed=0, density=0.2):
    """Draw rows of features of all sizes, and targets that need an intercept."""
    rng = np.random.default_rng(seed)
    rows = (rng.random((n, D)) < density) * rng.exponential(size=(n, D)) * 10.0 ** rng.integers(-3, 4, D)
    if form == "dense":
        rows = rows + 5.0 * (np.arange(D) < 10)
    y = np.where((rows / rows.std(axis=0)) @ rng.standard_normal(D) > 1.0, 1, -1)
    return FORMS[form](rows), y


def prepared(rows, *, intercept, scale, joining=None):
    """Return the rows as they are to be learned from; joining: how many of them join the moments."""
    n, d = rows.shape
    dense = not sparse.issparse(rows)
    x = rows.copy() if dense else rows.toarray()
    joining = n if joining is None else joining
    lengths = []
    for i in range(n if scale else 0):
        seen = (rows[: min(i + 1, joining)] if dense else rows[: min(i + 1, joining)].toarray()).astype(float)
        if dense:
            spread = seen.std(axis=0)
            flat = (seen == seen[0]).all(axis=0)
            row = np.where(flat, 0.0, (x[i] - seen.mean(axis=0)) / np.where(flat, 1.0, spread))
            if i < joining and row.any():
                lengths.append(row @ row)
            x[i] = row / np.sqrt(np.mean(lengths)) if lengths else row
            continue
        count = (seen != 0).sum(axis=0)
        root = np.sqrt((seen**2).sum(axis=0) / np.maximum(count, 1))
        size = np.where(count > 0, np.where(count > 0, root, 1.0) ** np.sqrt(count / len(seen)), 1.0)
        x[i] = x[i] / size
        square = x[i] @ x[i]
        if square:
            share = (x[i] ** 2 @ count) / len(seen) / square
            if i < joining:
                lengths.append(np.log(square))
            x[i] /= np.exp(((1 - share) * np.log(square) + share * np.mean(lengths)) / 2)
    if intercept:
        x = np.hstack([x, np.ones((n, 1))])
    return x if dense else sparse.csr_array(x)


# -- as by hand --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("options", [(True, None), (False, "moments"), (True, "moments")], ids=str)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", MAKERS)
def test_it_learns_from_prepared_rows(kind, form, options):
    intercept, scale = options
    rows, y = stream(form=form)
    model = MAKERS[kind](fit_intercept=intercept, scale=scale).update(rows, y)
    if not model._model_state.inputs.sparse:  # whatever came
        form, rows = "dense", rows if form == "dense" else rows.toarray()
    x = prepared(rows, intercept=intercept, scale=scale)
    by_hand = MAKERS[kind](fit_intercept=False, scale=None).update(x, y)
    assert model.n_features == D and by_hand.n_features == D + intercept
    assert np.allclose(model.last_scores, by_hand.last_scores, rtol=1e-5, atol=1e-6)
    assert model.coef.shape == (D,) and isinstance(model.intercept, float)
    more, _ = stream(seed=1, form=form)
    together = np.vstack([rows, more]) if form == "dense" else sparse.csr_array(sparse.vstack([rows, more]))
    x = prepared(together, intercept=intercept, scale=scale, joining=len(y))[len(y) :]
    scores = model.decision_function(more)
    assert np.allclose(scores, by_hand.decision_function(x), rtol=1e-5, atol=1e-6)
    # the coefficients are those of the features as they came
    if form == "dense":
        assert np.allclose(more @ model.coef + model.intercept, scores, rtol=1e-8, atol=1e-8)
    else:
        w = model.coef
        lengths = np.ones(len(y))
        if scale:
            count = (rows != 0).sum(axis=0)
            size = np.sqrt((rows**2).sum(axis=0) / np.maximum(count, 1)) ** np.sqrt(count / len(y))
            squares = ((more.toarray() / np.where(count > 0, size, 1.0)) ** 2).sum(axis=1)
            lengths = np.sqrt(squares / np.maximum((x.toarray()[:, :D] ** 2).sum(axis=1), 1e-300))
        expected = more @ w / np.where(lengths > 0, lengths, 1.0) + model.intercept
        assert np.allclose(expected, scores, rtol=1e-8, atol=1e-8)


def test_an_intercept_alone_is_a_column_of_ones_to_the_bit():
    for form in FORMS:
        rows, y = stream(form=form)
        for kind in MAKERS:
            one = MAKERS[kind](fit_intercept=True, scale=None).update(rows, y)
            x = prepared(rows, intercept=True, scale=None)
            two = MAKERS[kind](fit_intercept=False, scale=None).update(x, y)
            assert np.array_equal(np.append(one.coef, one.intercept), two.coef), kind
            assert two.intercept == 0.0 and np.array_equal(one.last_scores, two.last_scores)
            assert np.array_equal(one.decision_function(rows), two.decision_function(x))


@pytest.mark.parametrize("labels", [None, "many"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["newton", "ada-ffd", "ada-diag"])
def test_any_split_and_any_resume_has_the_same_bits(kind, form, labels):
    rows, y = stream(form=form)
    if labels:
        y = np.random.default_rng(1).integers(0, 4, len(y))
    make = lambda: MAKERS[kind](fit_intercept=True, scale="moments")  # noqa: E731
    whole = make().update(rows, y)
    for cuts in (range(1, 120), [1, 2, 60], [119]):
        model, first = make(), 0
        for stop in [*cuts, 120]:
            model.update(rows[first:stop], y[first:stop])
            model = fs.from_bytes(model.to_bytes()) if first % 7 == 0 else model
            first = stop
        assert np.array_equal(model.coef, whole.coef) and np.array_equal(model.intercept, whole.intercept)
        assert model.progress == whole.progress
        assert np.array_equal(model.decision_function(rows), whole.decision_function(rows))
        assert np.array_equal(model._model_state.inputs.moments[:, : model._model_state.n_slots()], _moments(whole))


def _moments(model):
    return model._model_state.inputs.moments[:, : model._model_state.n_slots()]


def test_more_than_two_classes_have_an_intercept_each():
    rows, _ = stream()
    y = np.random.default_rng(1).integers(0, 4, 120)
    model = papers.SketchedNewton(3, fit_intercept=True, scale="moments").update(rows, y)
    assert model.coef.shape == (4, D) and model.intercept.shape == (4,)
    assert np.allclose(rows @ model.coef.T + model.intercept, model.decision_function(rows), atol=1e-8)


# -- what is refused ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["newton", "ada-diag"])
def test_a_refused_row_has_not_joined_the_moments(kind, form):
    rows, y = stream(form=form)
    model = MAKERS[kind](fit_intercept=True, scale="moments").update(rows, y)
    before = model.to_bytes()
    large = rows[:3] * 1.0 if form == "dense" else rows[:3].toarray()
    large[2, 3] = 1e200
    large = FORMS[form](large)
    for given, targets in ((large, y[:3]), (large[[2]], y[:1])):
        with pytest.raises(FloatingPointError, match="the squares of the features left the range of numbers in row 12"):
            model.update(given, targets)
        assert model.to_bytes() == before
    if form == "sparse":  # of dense rows the scores stay finite
        with pytest.raises(FloatingPointError, match="the squares of row 2 leave the range"):
            model.decision_function(large)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("targets", ["labels", "reals"])
@pytest.mark.parametrize("kind", [fs.SketchedNewton, fs.AdaptiveSubgradient])
def test_rows_whose_squares_underflow_are_refused(kind, targets, form):
    """They were scaled to 0, so that the intercept alone answered."""
    rng = np.random.default_rng(0)
    rows, loss = rng.standard_normal((50, 6)), "square" if targets == "reals" else "logistic"
    y = rows @ rng.standard_normal(6)
    y = y if targets == "reals" else np.where(y > 0, 1, -1)
    for factor in (1e-170, 1e-200, 1e-300):
        tiny = FORMS[form](rows * factor)
        one_by_one = kind(loss=loss)
        with pytest.raises(
            FloatingPointError, match="squares of the features left .* scale the features so that"
        ) as all_rows:
            kind(loss=loss).update(tiny, y)
        with pytest.raises(FloatingPointError) as last_row:
            for i in range(50):
                before = one_by_one.to_bytes()
                one_by_one.update(tiny[[i]], y[[i]])
        assert str(last_row.value) == str(all_rows.value)
        assert one_by_one.to_bytes() == before


@pytest.mark.parametrize("kind", [fs.SketchedNewton, fs.AdaptiveSubgradient])
@pytest.mark.parametrize("factor", [2.0**-500, 2.0**500])
def test_dense_rows_of_any_size_within_the_range_have_the_same_scores(kind, factor):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((200, 6))
    y = np.where(rows @ rng.standard_normal(6) > 0, 1, -1)
    usual, scaled = kind(loss="logistic").update(rows, y), kind(loss="logistic").update(factor * rows, y)
    assert np.array_equal(usual.decision_function(rows), scaled.decision_function(factor * rows))


def test_tiny_numbers_beside_others_are_learned():
    """A column of 1e-200, and a first row of nothing else, are no reason to refuse dense rows that vary otherwise."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((50, 3))
    y = np.where(rows[:, 0] > 0, 1, -1)
    rows[:, 2] *= 1e-200
    rows[0] = 1e-200
    model = fs.SketchedNewton(loss="logistic").update(rows, y)
    assert (model.predict(rows[1:]) == y[1:]).mean() > 0.9


def test_a_tiny_sparse_row_is_neither_learned_nor_scored():
    """A sparse row is divided by its length, which underflows."""
    rows, y = stream(form="sparse")
    for factor in (1e-200, 0.0):
        model = fs.SketchedNewton(loss="logistic").update(rows, y)
        before, last = model.to_bytes(), rows[:1] * factor
        if last.data.any():
            with pytest.raises(FloatingPointError, match="the squares of the features left .* in row 121: scale the"):
                model.update(last, y[:1])
            assert model.to_bytes() == before
            with pytest.raises(FloatingPointError, match="the squares of row 0 leave the range of numbers: scale the"):
                model.decision_function(last)
        else:
            assert np.isfinite(model.update(last, y[:1]).decision_function(last)).all()


def test_rows_of_zeros_and_columns_that_never_change():
    rows = np.ones((20, 3)) * [0.1, 0.0, 1e-300]
    for x in (rows, sparse.csr_array(rows)):
        model = papers.SketchedNewton(3, fit_intercept=True, scale="moments").update(x, np.tile([1, -1, -1, -1], 5))
        assert np.isfinite(model.coef).all() and np.isfinite(model.decision_function(x)).all()
        assert (model.predict(x) == -1).all()
    model = papers.SketchedNewton(3, scale="moments").update(sparse.csr_array((5, 3)), [1, 1, -1, -1, -1])
    assert not model.coef.any() and not model.decision_function(np.ones((2, 3))).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s, a: a.pop("moments"), "'moments' is missing"),
        (lambda s, a: a.pop("moment_totals"), "'moment_totals' is missing"),
        (lambda s, a: a.update(moments=a["moments"][:, :3]), "array 'moments' has shape"),
        (lambda s, a: a["moments"].__setitem__((1, 0), np.nan), "must be finite"),
        (lambda s, a: a["moments"].__setitem__((1, 0), -1.0), "sums of squares"),
        (lambda s, a: a["moment_totals"].__setitem__(0, 7.0), "rows of the moments"),
        (lambda s, a: a["moment_totals"].__setitem__(1, -1e6), "lengths of rows"),
    ],
)
@pytest.mark.parametrize("form", FORMS)
def test_files_of_strangers_are_checked(form, change, message):
    rows, y = stream(form=form)
    model = papers.SketchedNewton(3, fit_intercept=True, scale="moments").update(rows, y)
    state, arrays = model._state()
    arrays = {name: array.copy() for name, array in arrays.items()}
    change(state, arrays)
    with pytest.raises(ValueError, match=message):
        type(model)(**model.parameters)._validate(state, arrays)
    plain = papers.SketchedNewton(3, fit_intercept=True, scale=None)
    with pytest.raises(ValueError, match="'moments' does not belong"):
        plain._validate(*model._state())


def test_rows_of_tables_are_answered_linearly():
    # ten numbers, half of them skewed, and a word: divided by their own lengths, rows lost what their numbers say
    rng = np.random.default_rng(0)
    numbers = 20 + 5 * rng.standard_normal((3000, 10))
    numbers[:, ::2] = 10.0 ** rng.uniform(-1, 2, 5) * np.exp(0.16 * (numbers[:, ::2] - 20))
    words = rng.integers(0, 12, 3000)
    scaled = (numbers - numbers.mean(axis=0)) / numbers.std(axis=0)
    y = 50 + 3 * scaled @ rng.standard_normal(10) + 2 * rng.standard_normal(12)[words] + 2 * rng.standard_normal(3000)
    rows = [
        {**{f"n{j}": v for j, v in enumerate(x.tolist())}, "word": f"w{k}"} for x, k in zip(numbers, words, strict=True)
    ]
    design = np.hstack([scaled, np.eye(12)[words]])
    best = np.linalg.lstsq(design[:2000], y[:2000], rcond=None)[0]
    off = fs.SketchedNewton(loss="square").update(rows[:2000], y[:2000]).predict(rows[2000:]) - y[2000:]
    least = design[2000:] @ best - y[2000:]
    assert np.sqrt(np.mean(off**2) / np.mean(least**2)) < 1.25
