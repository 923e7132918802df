"""DFROSH with joblib: one task a part, merged here."""

from typing import Any

from common import PARTS, part
from joblib import Parallel, delayed

import fastsketch as fs


def learn(index):
    with fs.thread_limit(1):
        return fs.SketchHash(64, part=index).update(part(index)).seal()


if __name__ == "__main__":
    models: Any = Parallel(n_jobs=2)(delayed(learn)(index) for index in range(PARTS))
    model = fs.merge(models)
    print(model, model.encode(part(0)[:1]).tobytes().hex())
