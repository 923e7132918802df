"""One state file for each kind of model and each form that its state has, and what these models say.

    python -m tests.golden

writes all of them by the library as it is: on purpose, when the format changes before the first release. After it files
are only added, beside the older ones, which readers accept for ever.
"""

import json
import shutil
from pathlib import Path

import numpy as np

import fastsketch as fs
from tests.reliability.zoo import SPECIMENS, dense_rows

FOLDER = Path(__file__).parent / "data" / "golden"
ANSWERS, INDEX, ESTIMATOR = FOLDER / "answers.json", FOLDER / "codes-index.fsk", FOLDER / "estimator.fsk"
NAMES = (
    "groups-fd",
    "sketch-rfd",
    "sketch-svd-float32",
    "sketch-exact-centred-decayed",
    "sketch-csr-tfd-centred-decayed",
    "sketch-mapped-centred",
    "sketch-named",
    "second-pass-tfd-centred",
    "hash-srht",
    "hash-lsh",
    "hash-pca",
    "hash-itq",
    "hash-sgh",
    "quantizer-anchored",
    "online-classes-decay-auto",
    "online-named",
    "online-ada-ffd-csr",
    "online-adam",
    "online-real-by-loss",
    "completion-low-rank-by-ids",
    "gaps-expecting",
    "ease-chosen-decayed",
    "ease-by-ids",
    "ridge-csr",
    "ridge-two-decayed",
    "window-sketch",
    "window-hash",
    "monitor",
)
ZOO = {specimen.name: specimen for specimen in SPECIMENS if specimen.name in NAMES}
# Figures that follow the last bits of a state smoothly, by the first word of a name.
SAID = {
    "groups": lambda m, reads: [m.squared_norms, *(model.singular_values for model in m.values())],
    "sketch": lambda m, reads: [m.shrinkage, m.squared_norm, m.singular_values],
    "second": lambda m, reads: [np.linalg.norm(reads["finish"](m), axis=1)],
    "hash": lambda m, reads: [m.decision_function(dense_rows(9, 5))],
    "quantizer": lambda m, reads: [m.variances, reads["decoded"](m)],
    "online": lambda m, reads: [reads["coef"](m), reads["scores"](m)],
    "completion": lambda m, reads: [reads["predict"](m)],
    "gaps": lambda m, reads: [reads["filled"](m)],
    "ease": lambda m, reads: [reads["scores"](m)],
    "ridge": lambda m, reads: [reads["predict"](m), m.coef(2.0)],
    "window": lambda m, reads: [next(iter(reads.values()))(m)],
    "monitor": lambda m, reads: [m.evidence if m.armed else 0.0, [alarm.row for alarm in m.alarms]],
}

# Files of a form that is no longer written, by what is now: they load, and learn on as they did.
EARLIER = {
    "online-real-running-scales": "online-real-by-loss",
    "online-named-followed": "online-named",
    "ridge-csr-no-weight-norm": "ridge-csr",
    "ridge-two-decayed-no-weight-norm": "ridge-two-decayed",
    "completion-low-rank-without-tolerance": "completion-low-rank-by-ids",
    "quantizer-anchored-weighted-sample": "quantizer-anchored",
    "ease-chosen-decayed-no-popularity-power": "ease-chosen-decayed",
    "ease-by-ids-no-popularity-power": "ease-by-ids",
    "monitor-variance-share": "monitor",
    "monitor-no-directions": "monitor",
}


def path_of(name):
    """The file of a model."""
    return FOLDER / f"{name}.fsk"


def learned(name):
    """The model that a file was written from."""
    return ZOO[name].learned(16 if name.startswith("completion") else 47)


def says(name, model):
    """Figures of a model, and of what it becomes with more rows, where it learns on; the model is changed."""
    specimen = ZOO[EARLIER.get(name, name)]
    said = SAID[name.partition("-")[0]]
    now = said(model, specimen.reads)
    if hasattr(model, "update") and name != "hash-sgh":  # which learns from one batch
        now += said(specimen.learn(model, specimen.rows(1, 20)), specimen.reads)
    return [np.ravel(figures).tolist() for figures in now]


def index():
    """An index of codes with a row removed."""
    made = fs.CodeIndex(learned("hash-srht"), rows="float32")
    made.add(dense_rows(2))
    made.remove([3])
    return made


def found(index):
    """(distances, ids) of the neighbours of rows."""
    return [part.tolist() for part in index.search(dense_rows(2)[:5], k=3)]


def estimator():
    """An estimator, whose file has that of a model in it."""
    from fastsketch.sklearn import SketchedPCA

    return SketchedPCA(3).fit(dense_rows(2))


def write():
    """Put new files in the place of all there are."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    answers = {}
    for name in NAMES:
        model = learned(name)
        model.save(path_of(name))
        answers[name] = says(name, model)
    index().save(INDEX)
    estimator().save(ESTIMATOR)
    answers[INDEX.name], answers[ESTIMATOR.name] = found(index()), estimator().singular_values_.tolist()
    lines = (f"{json.dumps(name)}: {json.dumps(figures)}" for name, figures in answers.items())
    ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    write()
