"""What SketchedRidge is compared with: exact ridges, gradient steps, components, hashed columns, normal equations.

A learner is a function of a task that returns (predictions (n, c), megabytes that it holds while it learns, what it
chose), and ours the shares {coverage: of each target} that its intervals cover; None where it cannot. Choices are made
on the last tenth of the training rows; then all of them are learned.
"""

import warnings
from functools import partial
from itertools import product

import numpy as np
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve

import fastsketch as fs
from regression.sets import loss, within

# Ridges of the rivals, in units of a row's mean sum of squares, descending: every solution begins the next one's.
RIDGES = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03)
SIZE = 128  # rows of a sketch, and components
WIDEST = 5792  # columns whose d x d fits in 256 MB, the default of SketchedRidge
MB = 1 / (1 << 20)
COVERAGES = (0.8, 0.9, 0.95)


def held(x):
    """Return the megabytes of rows."""
    return MB * (x.data.nbytes + x.indices.nbytes + x.indptr.nbytes if sparse.issparse(x) else x.nbytes)


def _mean_square(x):
    return (x.data @ x.data if sparse.issparse(x) else np.vdot(x, x)) / x.shape[0]


# -- exact ridges ------------------------------------------------------------------------------------------------------
def conjugate_gradients(x, y, ridge, tolerance, w=None, most=1000):
    """Return (w, intercepts, passes): plain CG on the centred normal equations, every target with steps of its own."""
    mean, nu = np.asarray(x.mean(axis=0)).ravel(), y.mean(axis=0)

    def times(v):  # (X'X + ridge I) v
        p = x @ v
        p -= mean @ v
        return x.T @ p - np.outer(mean, p.sum(axis=0)) + ridge * v

    z = x.T @ (y - nu) - np.outer(mean, (y - nu).sum(axis=0))
    w = np.zeros_like(z) if w is None else w
    r = z - times(w)
    p, squares, passes = r.copy(), np.sum(r**2, axis=0), 1
    least = tolerance**2 * np.sum(z**2, axis=0)
    while (squares > least).any() and passes < most:
        q = times(p)
        step = squares / np.maximum(np.sum(p * q, axis=0), 1e-300)
        w, r = w + step * p, r - step * q
        squares, before = np.sum(r**2, axis=0), squares
        p, passes = r + squares / np.maximum(before, 1e-300) * p, passes + 1
    return w, nu - mean @ w, passes


def _path(x, y, ridges):
    """Yield (w, intercepts) of every ridge: by one d x d matrix where that fits, else by CG."""
    if x.shape[1] > WIDEST:
        w = None
        for ridge in ridges:
            w, b, _ = conjugate_gradients(x, y, ridge, 1e-2, w)
            yield w, b
        return
    n, mean, nu = x.shape[0], np.asarray(x.mean(axis=0)).ravel(), y.mean(axis=0)
    gram = x.T @ x
    gram = (gram.toarray() if sparse.issparse(gram) else gram) - n * np.outer(mean, mean)
    z = x.T @ y - n * np.outer(mean, nu)
    for ridge in ridges:
        w = cho_solve(cho_factor(gram + ridge * np.eye(len(gram)), overwrite_a=True), z)
        yield w, nu - mean @ w


def chosen_ridge(task, ridges=RIDGES):
    """Return the ridge of the smallest loss on the validation part."""
    part = within(task)
    ridges = [_mean_square(part.x) * ridge for ridge in ridges]
    losses = [loss(part, part.test @ w + b) for w, b in _path(part.x, part.y, ridges)]
    return ridges[int(np.argmin(losses))]


def ridge_in_memory(task):
    """scikit-learn's Ridge on all rows: the limit."""
    from sklearn.linear_model import Ridge

    long = task.x.shape[1] > WIDEST and task.y.shape[1] > 1  # CG of 20 targets: the ridges around the best
    alpha = chosen_ridge(task, (1.0, 0.3, 0.1) if long else RIDGES)
    model = Ridge(alpha).fit(task.x, task.y)
    needs = held(task.x) + (0 if sparse.issparse(task.x) else MB * 8 * task.x.shape[1] ** 2)
    return model.predict(task.test), needs, f"alpha={alpha:.3g}"


def incremental_ridge(task):
    """sklearnex's IncrementalRidge, on dense rows in batches of 1,000."""
    from sklearnex.linear_model import IncrementalRidge

    if sparse.issparse(task.x):
        return None
    alpha = chosen_ridge(task)
    model = IncrementalRidge(alpha=alpha)
    for at in range(0, len(task.x), 1000):
        model.partial_fit(task.x[at : at + 1000], task.y[at : at + 1000])
    return model.predict(task.test), MB * 8 * task.x.shape[1] ** 2, f"alpha={alpha:.3g}"


def normal_equations(task):
    """LinearRegression by X'X and X'y, which chunks can be added to; a ridge of 1e-9 of the trace against rounding."""
    d = task.x.shape[1]
    if d > WIDEST:
        return None
    w, b = next(_path(task.x, task.y, [1e-9 * _mean_square(task.x) * task.x.shape[0]]))
    return task.test @ w + b, MB * 8 * d**2, ""


# -- first components, or hashed columns, then a ridge -----------------------------------------------------------------
def _ridge_of(task, x, test):
    """Return predictions by the exact ridge of other features."""
    ridge = chosen_ridge(task._replace(x=x), RIDGES if x.shape[1] > 2000 else (*RIDGES, 1e-2, 1e-3))
    w, b = next(_path(x, task.y, [ridge]))
    return test @ w + b


def components(task):
    """IncrementalPCA, on sparse rows TruncatedSVD of all of them, then Ridge."""
    from sklearn.decomposition import PCA, IncrementalPCA, TruncatedSVD

    k = min(SIZE, *(side - 1 for side in task.x.shape))
    if sparse.issparse(task.x):
        map_ = TruncatedSVD(k, random_state=0).fit(task.x)
        needs = held(task.x)
    else:
        kind = partial(IncrementalPCA, batch_size=5 * k) if 10 * k < len(task.x) else PCA
        map_ = kind(k).fit(task.x)
        needs = MB * 8 * 6 * k * task.x.shape[1]
    return _ridge_of(task, map_.transform(task.x), map_.transform(task.test)), needs, f"{k} components"


def hashing(task):
    """Columns added up in as many buckets, by signs, as a matrix of their products takes the memory of a sketch."""
    d = task.x.shape[1]
    m = int(np.sqrt(2 * SIZE * d))
    if m >= d:
        return None
    rng = np.random.default_rng(0)
    signs = rng.choice([-1.0, 1.0], d)
    map_ = sparse.csr_array((signs, (np.arange(d), rng.integers(m, size=d))), shape=(d, m))
    return _ridge_of(task, task.x @ map_, task.test @ map_), MB * 8 * m**2, f"{m:,} buckets"


# -- learners that step ------------------------------------------------------------------------------------------------
def _targets(task):
    """Return (a label, or the one real target, of each row; whether answers are scores)."""
    if not task.labelled:
        return task.y[:, 0], False
    return (task.y[:, 0] if task.y.shape[1] == 1 else task.y.argmax(axis=1)), True


def gradient_steps(task):
    """SGDClassifier or SGDRegressor, averaged: scaled columns or not, alpha, first step, passes are chosen."""
    from sklearn.linear_model import SGDClassifier, SGDRegressor
    from sklearn.preprocessing import StandardScaler

    if task.y.shape[1] > 20:
        return None

    def predicted(part, settings):
        targets, scores = _targets(part)
        kind = partial(SGDClassifier, loss="log_loss") if scores else SGDRegressor
        model = kind(average=True, tol=None, random_state=0, **settings).fit(part.x, targets)
        return model.decision_function(part.test) if scores else model.predict(part.test)

    scaler = StandardScaler(with_mean=not sparse.issparse(task.x)).fit(task.x)
    forms = {"as they are": task}
    if sparse.issparse(task.x) or task.x.shape[1] < 2000:  # random features are of one scale
        forms["scaled"] = task._replace(x=scaler.transform(task.x), test=scaler.transform(task.test))
    steps = [{}] if task.labelled else [{"eta0": 0.01}, {"eta0": 0.1}]
    best, least = None, np.inf
    for form, whole in forms.items():
        part = within(whole)
        for alpha, passes, step in product((1e-6, 1e-4, 1e-3), (1, 5), steps):
            settings = {"alpha": alpha, "max_iter": passes, **step}
            with np.errstate(all="ignore"):
                score = loss(part, predicted(part, settings))
            if score < least:  # none that has diverged
                best, least = (form, settings), score
    form, settings = best
    needs = MB * 16 * task.x.shape[1] * task.y.shape[1]
    return predicted(forms[form], settings), needs, f"{form}, {settings}"


def newton(task):
    """fs.SketchedNewton as it comes, one pass."""
    if task.y.shape[1] > 20:
        return None
    targets, scores = _targets(task)
    model = (fs.SketchedNewton() if scores else fs.SketchedNewton(loss="square")).update(task.x, targets)
    predicted = model.decision_function(task.test) if scores else model.predict(task.test)
    return predicted, MB * len(model.to_bytes()), ""


# -- ours --------------------------------------------------------------------------------------------------------------
def ours(task, **parameters):
    """fs.SketchedRidge as it comes or with parameters: one pass."""
    scoring = "log_loss" if task.labelled else "squared_error"  # as of SketchedRidgeClassifier
    return answers(fs.SketchedRidge(scoring=scoring, **parameters).update(task.x, task.y), task)


def fitted(task):
    """fit of the estimators, which reads rows in memory again where X'X is not kept; as it comes."""
    from fastsketch.sklearn import SketchedRidge, SketchedRidgeClassifier

    targets, labelled = _targets(task) if task.labelled else (task.y, False)
    model = (SketchedRidgeClassifier if labelled else SketchedRidge)().fit(task.x, targets).model_
    return None if model.is_exact else answers(model, task)


def answers(model, task):
    """Return what a model answers, takes, has chosen, and the shares that its intervals cover."""
    facts = model.facts()
    chosen = f"ridge={facts['ridge']:.3g}" + ("" if model.is_exact else ", a sketch")
    if facts.get("passes"):
        chosen += f", refined in {facts['passes']} passes"
    covered = {}
    for coverage in COVERAGES:
        ends = model.predict_interval(task.test, coverage=coverage)
        low, high = (end.reshape(task.truth.shape) for end in ends)  # of one target vectors
        covered[str(coverage)] = np.mean((task.truth >= low) & (task.truth <= high), axis=0).tolist()
    return model.predict(task.test), MB * len(model.to_bytes()), chosen, covered


def sketch_alone(task):
    """fs.SketchedRidge with a sketch of dense rows whose exact matrix would fit, too."""
    if sparse.issparse(task.x) or task.x.shape[1] > WIDEST:
        return None
    return ours(task, solver="gram")


LEARNERS = {
    "Ridge, all rows in memory": ridge_in_memory,
    "SketchedRidge()": ours,
    "SketchedRidge(), a sketch": sketch_alone,
    "SketchedRidge().fit": fitted,
    "SGD, tuned": gradient_steps,
    "components, Ridge": components,
    "hashing, Ridge": hashing,
    "SketchedNewton()": newton,
    "normal equations": normal_equations,
    "IncrementalRidge (sklearnex)": incremental_ridge,
}


def learned(learner, task):
    """Return what a learner returns, without the warnings of what stops after a number of passes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return LEARNERS[learner](task)
