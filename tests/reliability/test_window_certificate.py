"""Certificates of windows against an oracle in extended precision, on streams whose first rows are of every dtype.

The first rows of a stream are whole numbers or floats of one dtype, in one form (array, list, CSR, frame, file); then
come rows of floats, and some of other dtypes. Windows are saved, loaded, and forget blocks. It is known which rows a
window holds, and what its model promises about them is compared as in test_certificate.py.
"""

import numpy as np
import pytest

import fastsketch as fs
from tests.helpers import METHODS
from tests.reliability.figures import report
from tests.reliability.test_certificate import FAMILIES, LONG, Twin, excess, rows_of, some_weights
from tests.reliability.zoo import FORMS, N_FEATURES, STARTS, float_values, start_values

pytestmark = pytest.mark.skipif(np.finfo(LONG).nmant < 60, reason="long double is no longer than double here")
LATER = ("float64", "float32", "int8", "bool", "longdouble", ">f8")  # dtypes of later rows, most of them float64


def batches(rng, family, first, *, narrow):
    """(values, weights) of the batches of a stream: of the first rows, and of others as their dtypes hold them."""
    rows = rows_of(family, rng, int(rng.integers(1, 200)), N_FEATURES, dtype=np.float32 if narrow else np.float64)
    parts = np.split(rows, np.sort(rng.integers(0, len(rows) + 1, int(rng.integers(1, 6)))))
    kinds = [LATER[int(rng.integers(len(LATER)))] if rng.random() < 0.3 else "float64" for _ in parts]
    if family == "large" and not narrow:
        kinds = ["float64" for _ in parts]  # float32 does not hold these rows
    whole = ("int8", "bool")
    later = [(np.abs(p) % 100 if kind in whole else p).astype(kind) for p, kind in zip(parts, kinds, strict=True)]
    return [(first, None), *((values, some_weights(rng, len(values))) for values in later)]


def twin_of_window(case, folder):
    """The model of a window with the rows that it stands for, the dtype that it is to have, and words for it."""
    rng = np.random.default_rng([12, case])
    form, dtype = STARTS[case % len(STARTS)]
    if form == "frame":
        pytest.importorskip("pandas")
    first, family = start_values(dtype, case, int(rng.integers(1, 40))), FAMILIES[int(rng.integers(len(FAMILIES)))]
    given = [None, None, "float32", "float64"][int(rng.integers(4))]
    used = np.dtype(given or float_values(first).dtype)
    options = {
        "sketch_size": int(rng.integers(2, 10)),
        "method": METHODS[int(rng.integers(len(METHODS)))],
        "solver": ("gram", "svd", "exact", "auto")[int(rng.integers(4))],
        "center": bool(rng.random() < 0.5),
        "dtype": given,
    }
    n_blocks, every = int(rng.integers(2, 5)), int(rng.integers(5, 60))
    window = fs.Window(fs.FrequentDirections(**options), n_blocks, every=every)
    rows, weights, number = [np.empty((0, N_FEATURES))], [np.empty(0)], np.empty(0, int)
    for k, (values, some) in enumerate(batches(rng, family, first, narrow=used == np.float32)):
        make = FORMS[form] if not k else FORMS["CSR" if rng.random() < 0.3 and values.dtype.isnative else "array"]
        window.update(make(values, folder), sample_weight=some)
        some = np.ones(len(values)) if some is None else some
        rows.append(values.astype(used).astype(np.float64)[some > 0])  # a row of weight 0 is none
        weights.append(some[some > 0])
        seen = sum(map(len, rows))
        number = np.concatenate([number, np.arange(len(number), seen) // every])
        if len(window.block_models) > 1 and rng.random() < 0.2:
            begin = next(iter(window.block_models))
            window.forget(begin)
            number[number == begin // every] = -n_blocks  # older than all that it holds
        if rng.random() < 0.3:
            window = fs.from_bytes(window.to_bytes())
    held = number > (len(number) - 1) // every - n_blocks
    twin = Twin({**options, "dtype": used}, N_FEATURES)
    twin.sketch, twin.rows, twin.weights = (
        window.model,
        np.vstack(rows)[held],
        np.concatenate(weights)[held].astype(LONG),
    )
    return twin, used, f"case {case}, {form} of {dtype}, then {family}: {n_blocks} blocks of {every}, {options}"


def test_windows_against_an_oracle_in_long_double(amount, tmp_path):
    n = amount(len(STARTS), 500)
    beyond = wrong = other_dtypes = other_rows = 0
    for case in range(n):
        twin, used, words = twin_of_window(case, tmp_path)
        other_rows += twin.sketch.n_rows != len(twin.rows)
        if not twin.sketch.n_rows:
            continue
        other_dtypes += twin.sketch.resolved["dtype"] != used
        certificate, norm = excess(twin)
        beyond += certificate > 0
        wrong += norm > 0
        if certificate > 0 or norm > 0:
            print(f"\n{words}: {certificate:.3g} and {norm:.3g} units of rounding")
    report(
        "certificates of windows against long double",
        f"{n:,} streams that begin with rows of every dtype",
        beyond_the_certificate=beyond,
        wrong_squared_norm=wrong,
        other_dtypes=other_dtypes,
        other_numbers_of_rows=other_rows,
    )
