"""The same bits for rows that are cut in other places, models that go on from a copy, and other numbers of workers.

Models, densities, containers, weights, cuts and numbers are drawn; states are compared byte by byte.
"""

import copy
import inspect
import pickle
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

import fastsketch as fs
from fastsketch._frame.model import MergeableModel
from fastsketch.jobs import _run
from tests.reliability.figures import report
from tests.reliability.zoo import N_FEATURES, SPECIMENS, Specimen, numbers_of

# Models whose last bits depend on where rows are cut, as their documents say: sums of a second pass, of a ridge
# regression and of a table with gaps; a quantizer that is anchored here; a hash that learns from one batch.
SUMS_OF_GAPS = ("gaps-pairs", "gaps-expecting")
CUT = ("second-pass", "ridge", "window-ridge", *SUMS_OF_GAPS, "quantizer-anchored", "hash-sgh")
STREAMS = [s for s in SPECIMENS if not s.name.startswith((*CUT, "completion"))]
STRIDE = 37  # from one model to the next: a few cases are of all kinds
SHARES = (0.02, 0.1, 0.15, 0.2, 0.3, 0.35, 0.6, 1.0)
WAYS = {
    "to_bytes": lambda model, path: fs.from_bytes(model.to_bytes()),
    "save": lambda model, path: model.save(path) or fs.load(path),
    "pickle": lambda model, path: pickle.loads(pickle.dumps(model)),
    "copy": lambda model, path: copy.deepcopy(model) if model.n_rows % 2 else model.copy(),
}


class Case(NamedTuple):
    """A kind of model, and rows for it."""

    rng: np.random.Generator
    specimen: Specimen
    rows: Any  # array or CSR
    weights: Any  # (n,) or None
    words: str


def drawn(case, specimens, least=1):
    """Rows that are as dense in their first part as in the rest, or not."""
    rng = np.random.default_rng(case)
    specimen = specimens[case * STRIDE % len(specimens)]
    n, shares = int(rng.integers(least, 80)), rng.choice(SHARES, 2)
    share = np.where(np.arange(n) < rng.integers(0, n + 1), *shares)[:, np.newaxis]
    rows = rng.standard_normal((n, N_FEATURES)) * (rng.random((n, N_FEATURES)) < share) + 0.0  # no -0, which CSR drops
    if specimen.name.startswith(("ease", "window-ease")):
        rows = np.ceil(np.abs(rows))
    rows = rows.astype(np.float32 if rng.random() < 0.3 else np.float64)
    weights = rng.random(n) * (rng.random(n) < 0.8) * 10.0 ** rng.integers(-3, 3, n) if rng.random() < 0.5 else None
    # names are made of CSR rows
    is_csr = specimen.name.startswith("online-named") or rng.random() < 0.6
    words = f"{specimen.name}, {n} {'CSR' if is_csr else 'dense'} rows, shares {shares.tolist()}, case {case}"
    return Case(rng, specimen, sparse.csr_array(rows) if is_csr else rows, weights, words)


def learned(case, cuts, ways=(), path=None, mixes=False):
    """A model that has seen the rows between the cuts in turn, and went on from a copy, made in one of these ways."""
    rng, specimen, rows, weights, _ = case
    model, parts = specimen.make(), [slice(*ends) for ends in zip(cuts, cuts[1:], strict=False)]
    if specimen.name.startswith("groups"):
        batches = (rows[part] for part in parts)
        return fs.sketch_groups(batches, by=numbers_of(rows, 3), **model.parameters)
    takes_weights = {"more"} & set(inspect.signature(specimen.learn).parameters)
    learner = model._template.model() if isinstance(model, fs.Window) else model
    takes_weights = takes_weights and "sample_weight" in inspect.signature(learner.update).parameters
    for part in parts:
        batch = rows[part]
        if specimen.name.startswith("online-named") and not batch.shape[0]:
            continue  # of no dict at all nobody knows that it has names
        if mixes and part.start and rng.random() < 0.5:  # the container of the first row is that of the model
            batch = batch.toarray() if sparse.issparse(rows) else sparse.csr_array(batch)
        more = {"sample_weight": weights[part]} if takes_weights and weights is not None else {}
        specimen.learn(model, batch, **more)
        if ways:
            model = WAYS[ways[int(rng.integers(len(ways)))]](model, path)
    return model


def cuts_of(rng, n):
    """Where to cut n rows: also nowhere, between all, and into parts without rows."""
    inner = range(1, n) if rng.random() < 0.1 else np.sort(rng.integers(0, n + 1, int(rng.integers(0, 8)))).tolist()
    return [0, *inner, n]


def test_rows_cut_in_other_places(amount):
    n, other = amount(25, 250), []
    for number in range(n):
        case = drawn(number, STREAMS)
        whole = learned(case, [0, case.rows.shape[0]])
        parts = learned(case, cuts_of(case.rng, case.rows.shape[0]), mixes="named" not in case.specimen.name)
        if parts.to_bytes() != whole.to_bytes():
            other.append(case.words)
    print("", *other, sep="\n")
    report("rows cut in other places", f"{n} streams of {len(STREAMS)} models", other_bits=len(other))


def test_cuts_change_the_gaussian_of_a_table_with_gaps_by_rounding_only(amount):
    specimens = [specimen for specimen in SPECIMENS if specimen.name in SUMS_OF_GAPS]
    compared = 0
    for number in range(amount(20, 400)):
        case = drawn(2_000 + number, specimens, least=20)
        whole = learned(case, [0, case.rows.shape[0]])
        parts = learned(case, cuts_of(case.rng, case.rows.shape[0]))
        if not whole._sums.has_entries().all():
            continue  # a column without a number has no mean
        one, other = whole.gaussian(), parts.gaussian()
        unit = whole._sums.unit  # of the sums: columns that only the given Gaussian lets vary have rounding for a scale
        close = {"rtol": 1e-11, "atol": 1e-11, "err_msg": case.words}
        np.testing.assert_allclose(other.location / unit, one.location / unit, **close)
        np.testing.assert_allclose((other.scale / unit) ** 2, (one.scale / unit) ** 2, **close)
        varies = np.ix_(one.scale > 1e-6 * unit, one.scale > 1e-6 * unit)
        np.testing.assert_allclose(other.correlation[varies], one.correlation[varies], **close)
        compared += 1
    assert compared > amount(10, 200)


def test_models_that_go_on_from_a_copy(tmp_path, amount):
    specimens = [s for s in STREAMS if not s.name.startswith("groups")]
    n, other = amount(25, 250), []
    for number in range(n):
        case = drawn(1_000 + number, specimens)
        cuts = cuts_of(case.rng, case.rows.shape[0])
        again = learned(case, cuts, ways=tuple(WAYS), path=tmp_path / "model.fsk")
        if again.to_bytes() != learned(case, cuts).to_bytes():
            other.append(case.words)
    print("", *other, sep="\n")
    report("models that went on from a copy", f"{n} streams, {', '.join(WAYS)}", other_bits=len(other))


def may_run(specimen):
    """Whether parts of rows may be learned side by side."""
    model = specimen.make()
    return isinstance(model, MergeableModel) and hasattr(model, "update") and model._in_order() is None


def test_numbers_of_workers(monkeypatch, amount):
    specimens = [s for s in STREAMS if may_run(s)]
    n, other = amount(25, 250), []
    for number in range(n):
        case = drawn(2_000 + number, specimens, least=20)
        monkeypatch.setattr(_run, "PART_BYTES", int(case.rng.integers(100, 1_000)) * N_FEATURES)
        monkeypatch.setattr(_run, "STATES_OF_A_PART", 0)
        workers = int(case.rng.integers(2, 9))
        engine = "processes" if number % 10 == 9 and amount(False, True) else "threads"
        one = fs.run(case.specimen.make(), case.rows, workers=1)
        many = fs.run(case.specimen.make(), case.rows, workers=workers, engine=engine)
        if many.to_bytes() != one.to_bytes():
            other.append(f"{case.words}, {workers} {engine}")
    print("", *other, sep="\n")
    report("numbers of workers", f"{n} jobs of {len(specimens)} models, 2 to 8 workers", other_bits=len(other))
