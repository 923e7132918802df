"""Learners of other libraries, and ours, behind one door: learn a task in one pass and answer for its test rows.

Seconds are process time of learning alone, on one thread. What a library wants is made outside the clock (CSR or dense
rows, dicts for river, lines of text for Vowpal Wabbit); hashing and parsing within the library are part of its pass.
"""

import time
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import sparse

import fastsketch as fs
from fastsketch import papers
from learning.sets import found_of, subset, task_of, within

RIVER_ROWS = {"news20": 4000, "MNIST": 4000}  # training rows, where all would take minutes an order
STRENGTHS = 10.0 ** np.arange(-4, 5)  # C of LogisticRegression, 1 / alpha of Ridge


class Answer(NamedTuple):
    """predicted: labels or numbers (n,); chances: (n, K), columns as task.classes, or None; seconds: of learning."""

    predicted: np.ndarray
    chances: np.ndarray | None
    seconds: float


class Learner(NamedTuple):
    """learn(task, seed) -> Answer; group: "ours", "peers"; passes: "1", or why it is no learner of one pass."""

    label: str
    learn: object
    group: str = "peers"
    passes: str = "1"
    kinds: str = "labels"  # or "numbers", "both"


class Clock:
    def __enter__(self):
        self._start = time.process_time()
        return self

    def __exit__(self, *_):
        self.seconds = time.process_time() - self._start


def _standard(task):
    """Both parts by a StandardScaler that has seen all training rows."""
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler(with_mean=not sparse.issparse(task.x)).fit(task.x)
    return task._replace(x=scaler.transform(task.x), test=scaler.transform(task.test))


def _max_abs(task):
    from sklearn.preprocessing import MaxAbsScaler

    scaler = MaxAbsScaler().fit(task.x)
    return task._replace(x=scaler.transform(task.x), test=scaler.transform(task.test))


# -- what knows nothing, and the ceiling -------------------------------------------------------------------------------
def constant(task, seed):
    """The commonest label and the shares of all, or the mean."""
    if task.classes is None:
        return Answer(np.full(len(task.truth), task.y.mean()), None, 0.0)
    shares = np.array([np.mean(task.y == label) for label in task.classes])
    predicted = np.full(len(task.truth), task.classes[shares.argmax()])
    return Answer(predicted, np.tile(shares, (len(predicted), 1)), 0.0)


def ceiling(task, seed):
    """LogisticRegression or Ridge until it converges; scaling and strength by the loss on a validation part."""
    if task.held is None:  # every order of the same rows
        return _ceiling(task.name, len(task.y))
    return _ceiling_of(task)


@lru_cache(maxsize=1)
def _ceiling(name, n):
    return _ceiling_of(subset(task_of(name, 0), n))


def _ceiling_of(task):
    scale, strength = _chosen(task.name)
    part = _SCALED[scale](task)
    with Clock() as clock:
        model = _converged(strength, part).fit(part.x, part.y)
    chances = None if task.classes is None else model.predict_proba(part.test)
    return Answer(model.predict(part.test), chances, clock.seconds)


def _unit_rows(task):
    from sklearn.preprocessing import normalize

    return task._replace(x=normalize(task.x), test=normalize(task.test))


_SCALED = {
    "none": lambda task: task,
    "StandardScaler": _standard,
    "MaxAbsScaler": _max_abs,
    "Normalizer": _unit_rows,
}


def _converged(strength, task):
    from sklearn.linear_model import LogisticRegression, Ridge

    if task.classes is None:
        return Ridge(alpha=1 / strength)
    return LogisticRegression(C=strength, max_iter=2000)


@lru_cache(maxsize=1)
def _chosen(name):
    """(scaling, strength) chosen within the training rows of the first split, at most 12,000 of them."""
    from sklearn.metrics import log_loss

    whole = task_of(name, 0)
    part = within(subset(whole, 15_000))
    losses = {}
    for scale in ("none", "MaxAbsScaler", "Normalizer") if sparse.issparse(part.x) else ("StandardScaler",):
        scaled_part = _SCALED[scale](part)
        for strength in STRENGTHS:
            model = _converged(strength, part).fit(scaled_part.x, part.y)
            if part.classes is None:
                loss = np.mean((model.predict(scaled_part.test) - part.truth) ** 2)
            else:
                loss = log_loss(part.truth, model.predict_proba(scaled_part.test), labels=model.classes_)
            losses[scale, strength] = loss
            if loss > 1.02 * min(held for (way, _), held in losses.items() if way == scale):
                break
    best = min(losses, key=losses.get)
    print(f"{name}: ceiling with {best[0]} scaling, C = {best[1]:g}, loss {losses[best]:.4f}", flush=True)
    return best


# -- scikit-learn ------------------------------------------------------------------------------------------------------
def sgd(**parameters):
    """One epoch over the rows in the task's order."""

    def learn(task, seed):
        from sklearn.linear_model import SGDClassifier, SGDRegressor

        if task.classes is None:
            model = SGDRegressor(shuffle=False, random_state=seed, **parameters)
            with Clock() as clock:
                model.partial_fit(task.x, task.y)
            return Answer(model.predict(task.test), None, clock.seconds)
        model = SGDClassifier(shuffle=False, random_state=seed, **parameters)
        with Clock() as clock:
            model.partial_fit(task.x, task.y, classes=task.classes)
        has = hasattr(model, "predict_proba")
        return Answer(model.predict(task.test), model.predict_proba(task.test) if has else None, clock.seconds)

    return learn


# -- AdaGrad, by itself ------------------------------------------------------------------------------------------------
@lru_cache(maxsize=1)
def _adagrad_loop():
    import numba

    @numba.njit
    def loop(data, indices, starts, y, logistic, rate, w, squares):
        d = len(w) - 1
        for t in range(len(y)):
            z = w[d]
            for k in range(starts[t], starts[t + 1]):
                z += data[k] * w[indices[k]]
            slope = -y[t] / (1 + np.exp(y[t] * z)) if logistic else z - y[t]
            for k in range(starts[t], starts[t + 1] + 1):
                last = k == starts[t + 1]  # the intercept
                j = d if last else indices[k]
                g = slope if last else slope * data[k]
                if g != 0:
                    squares[j] += g * g
                    w[j] -= rate * g / (np.sqrt(squares[j]) + 1e-8)

    return loop


def adagrad(rate):
    """The diagonal rule as it is printed, with an intercept; one against the rest where there are more classes."""

    def learn(task, seed):
        csr = sparse.csr_array(task.x)
        parts = csr.data, csr.indices.astype(np.int64), csr.indptr.astype(np.int64)
        if task.classes is None:
            targets = [task.y]
        elif len(task.classes) == 2:
            targets = [np.where(task.y == task.classes[1], 1.0, -1.0)]
        else:
            targets = [np.where(task.y == label, 1.0, -1.0) for label in task.classes]
        loop, labels = _adagrad_loop(), task.classes is not None
        loop(np.ones(1), np.zeros(1, np.int64), np.array([0, 1]), np.ones(1), labels, rate, np.zeros(2), np.zeros(2))
        w = np.zeros((len(targets), csr.shape[1] + 1))
        with Clock() as clock:
            for coef, y in zip(w, targets, strict=True):
                loop(*parts, y, labels, rate, coef, np.zeros_like(coef))
        return answered(task, np.asarray(task.test @ w[:, :-1].T) + w[:, -1], clock.seconds)

    return learn


def answered(task, scores, spent):
    """An answer out of scores (n, 1) or (n, K) of logistic losses, normalised over the classes as is usual."""
    if task.classes is None:
        return Answer(scores[:, 0], None, spent)
    if scores.shape[1] == 1:
        scores = np.hstack([-scores, scores])
    chances = 1 / (1 + np.exp(-np.clip(scores, -700, 700)))
    chances /= np.maximum(chances.sum(axis=1, keepdims=True), 1e-300)
    return Answer(task.classes[scores.argmax(axis=1)], chances, spent)


# -- Vowpal Wabbit -----------------------------------------------------------------------------------------------------
def lines_of(rows):
    """Features of every row as text."""
    csr = sparse.csr_array(rows)
    words = [f"{j}:{v:.9g}" for j, v in zip(csr.indices.tolist(), csr.data.tolist(), strict=True)]
    return ["| " + " ".join(words[a:b]) for a, b in zip(csr.indptr[:-1], csr.indptr[1:], strict=True)]


@lru_cache(maxsize=1)
def _set_lines(name):
    found = found_of(name)
    return np.array(lines_of(found.rows), object), None if found.fixed is None else lines_of(found.fixed[0])


def vowpal(flags):
    """One pass of learn(line); a class against each other one by --oaa where there are more than two."""

    def learn(task, seed):
        import vowpalwabbit

        lines, held = _set_lines(task.name)
        lines, held = lines[task.order], held if task.held is None else lines[task.held]
        many = task.classes is not None and len(task.classes) > 2
        if task.classes is None:
            targets = task.y
        else:
            places = np.searchsorted(task.classes, task.y)
            targets = places + 1 if many else 2 * places - 1
        text = [f"{target:.9g} {line}" for target, line in zip(targets.tolist(), lines, strict=True)]
        logistic = "logistic" in flags
        way = f"--oaa {len(task.classes)}" + " --probabilities" * logistic if many else "--link logistic" * logistic
        model = vowpalwabbit.Workspace(f"--quiet {way} {flags}")
        with Clock() as clock:
            for line in text:
                model.learn(line)
        said = np.array([model.predict(line) for line in held])
        model.finish()
        if task.classes is None:
            return Answer(said, None, clock.seconds)
        if many:
            chosen = said.argmax(axis=1) if logistic else said.astype(int) - 1
            return Answer(task.classes[chosen], said if logistic else None, clock.seconds)
        chances = np.column_stack([1 - said, said]) if logistic else None
        return Answer(task.classes[(said > (0.5 if logistic else 0.0)).astype(int)], chances, clock.seconds)

    return learn


# -- river -------------------------------------------------------------------------------------------------------------
def dicts_of(rows, *, zeros=False):
    """A dict of column and number for each row, with zeros in it if `zeros`."""
    if zeros and not sparse.issparse(rows):  # a deviation needs them
        return [dict(enumerate(row)) for row in rows.tolist()]
    csr = sparse.csr_array(rows)
    places, values = csr.indices.tolist(), csr.data.tolist()
    bounds = csr.indptr.tolist()
    return [dict(zip(places[a:b], values[a:b], strict=True)) for a, b in zip(bounds[:-1], bounds[1:], strict=True)]


def river(scale, adaptive):
    """A linear model with river's defaults, or by AdaGrad, scaled as it goes or not; OneVsRest for more classes."""

    def learn(task, seed):
        from river import linear_model, multiclass, optim, preprocessing

        task = subset(task, RIVER_ROWS.get(task.name, len(task.y)))
        optimiser = optim.AdaGrad(0.1) if adaptive else None
        if task.classes is None:
            model, targets = linear_model.LinearRegression(optimiser), task.y.tolist()
        else:
            model, targets = linear_model.LogisticRegression(optimiser), np.searchsorted(task.classes, task.y).tolist()
            if len(task.classes) > 2:
                model = multiclass.OneVsRestClassifier(model)
            else:
                targets = [bool(target) for target in targets]
        if scale:
            model = preprocessing.StandardScaler() | model
        dicts, held = dicts_of(task.x, zeros=scale), dicts_of(task.test, zeros=scale)
        with Clock() as clock:
            for row, target in zip(dicts, targets, strict=True):
                model.learn_one(row, target)
        if task.classes is None:
            return Answer(np.array([model.predict_one(row) for row in held]), None, clock.seconds)
        places = range(len(task.classes)) if len(task.classes) > 2 else (False, True)
        said = [model.predict_proba_one(row) for row in held]
        chances = np.array([[of.get(place, 0.0) for place in places] for of in said])
        return Answer(task.classes[chances.argmax(axis=1)], chances, clock.seconds)

    return learn


# -- ours --------------------------------------------------------------------------------------------------------------
def ours(model, **parameters):
    def learn(task, seed):
        model(**parameters).update(task.x[:50], task.y[:50])  # compiles, where that is still to be done
        learned = model(**parameters)
        with Clock() as clock:
            learned.update(task.x, task.y)
        if task.classes is None:
            return Answer(learned.predict(task.test), None, clock.seconds)
        try:
            chances = learned.predict_proba(task.test)
        except (AttributeError, TypeError, ValueError):
            chances = None  # its loss has none
        return Answer(learned.predict(task.test), chances, clock.seconds)

    return learn


def by_hand(model, **parameters):
    """Targets -1 and +1 for losses of real targets: a model of each class but the first of two."""

    def learn(task, seed):
        positive = task.classes[1:] if len(task.classes) == 2 else task.classes
        learned = [model(**parameters) for _ in positive]
        with Clock() as clock:
            for one, label in zip(learned, positive, strict=True):
                one.update(task.x, np.where(task.y == label, 1.0, -1.0))
        scores = np.column_stack([one.decision_function(task.test) for one in learned])
        return answered(task, scores, clock.seconds)._replace(chances=None)

    return learn


NEWTON = "SketchedNewton()"
ADAPTIVE = "AdaptiveSubgradient()"
OF_NUMBERS = {NEWTON: "SketchedNewton(loss='square')", ADAPTIVE: "AdaptiveSubgradient(loss='square')"}
CEILING = "LogisticRegression / Ridge, converged"
CONSTANT = "the constant"
LEARNERS = (
    Learner(NEWTON, ours(fs.SketchedNewton), "ours"),
    Learner(ADAPTIVE, ours(fs.AdaptiveSubgradient), "ours"),
    Learner("SketchedNewton, the paper's RFD0, m = 20", by_hand(papers.rfd_son, sketch_size=20), "ours"),
    Learner(OF_NUMBERS[NEWTON], ours(fs.SketchedNewton, loss="square"), "ours", kinds="numbers"),
    Learner(OF_NUMBERS[ADAPTIVE], ours(fs.AdaptiveSubgradient, loss="square"), "ours", kinds="numbers"),
    Learner(CONSTANT, constant, passes="none", kinds="both"),
    Learner(CEILING, ceiling, passes="many", kinds="both"),
    Learner("SGDClassifier, log_loss, average=True", sgd(loss="log_loss", average=True)),
    Learner("SGDClassifier()", sgd()),
    Learner("SGDRegressor, average=True", sgd(average=True), kinds="numbers"),
    Learner("SGDRegressor()", sgd(), kinds="numbers"),
    Learner("AdaGrad, rate 0.1, intercept", adagrad(0.1), kinds="both"),
    Learner("Vowpal Wabbit", vowpal(""), kinds="both"),
    Learner("Vowpal Wabbit, logistic", vowpal("--loss_function logistic")),
    Learner("river, defaults", river(False, False), kinds="both"),
    Learner("river, AdaGrad(0.1)", river(False, True), kinds="both"),
    # where all nonzeros of a column are ones, its running deviation is zero, and so is what comes out
    Learner("river, StandardScaler, then defaults", river(True, False), kinds="both"),
    Learner("river, StandardScaler, then AdaGrad(0.1)", river(True, True), kinds="both"),
)
