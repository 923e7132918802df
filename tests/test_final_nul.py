"""Strings that end in NUL, which NumPy's arrays of strings do not keep: refused as labels and keys, kept as ids."""

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.data import IdMap, TableRows

S = pytest.importorskip("fastsketch.sklearn")
FORMS_OF_WORDS = {
    "list": list,
    "objects": lambda words: np.array(words, object),
    "pandas": lambda words: pytest.importorskip("pandas").Series(words),
    "strings of pandas": lambda words: pytest.importorskip("pandas").Series(words, dtype="string"),
}


@pytest.mark.parametrize("form", FORMS_OF_WORDS)
@pytest.mark.parametrize("words", [["a", "a\0"], ["a\0", "b"]])
def test_words_that_end_in_nul_are_refused_where_they_become_arrays(form, words, tmp_path):
    """NumPy's arrays of strings do not keep NUL at the end: labels "a" and "a\0" were one class."""
    given, x = FORMS_OF_WORDS[form](words * 30), np.random.default_rng(0).standard_normal((60, 3))
    refused = pytest.raises(ValueError, match=r"'a\\x00'.* ends in NUL")
    for estimator in (S.SketchedNewtonClassifier, S.AdaptiveSubgradientClassifier, S.SketchedRidgeClassifier):
        with refused:
            estimator().fit(x, given)
        with refused:
            estimator().partial_fit(x[:2], ["a", "b"], classes=FORMS_OF_WORDS[form](words))
        with refused:
            estimator(class_weight=dict.fromkeys(words, 1.0)).fit(x, np.repeat(["a", "b"], 30))
    for model in (fs.SketchedNewton, fs.AdaptiveSubgradient):
        for begun in (model(), model(classes=["a", "b"]), model().update(x[:2], ["a", "b"])):
            before = begun.to_bytes()
            for rows in (slice(0, 2), slice(None)):
                with refused:
                    begun.update(x[rows], given[rows])
            assert begun.to_bytes() == before
        for name in ("classes", "class_weight"):
            with refused:
                model(**{name: words if name == "classes" else dict.fromkeys(words, 1.0)})
    with pytest.raises(ValueError, match=r"the keys of groups: 'a\\x00' in row .* ends in NUL"):
        fs.sketch_groups(x, by=given)


def test_labels_of_a_table_that_end_in_nul_are_refused(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"x": [1.0, 2.0], "kind": ["a", "a\0"]}), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"column 'kind', the label: 'a\\x00' in row 1 ends in NUL"):
        list(TableRows(tmp_path / "t.parquet", label="kind").chunks())


def test_ids_and_names_that_end_in_nul_are_kept(tmp_path):
    """Ids and names of columns are no arrays of strings."""
    words = ["a", "a\0", "b"]
    assert list(IdMap(words)) == words and IdMap(words).places(["a\0"]).tolist() == [1]
    shop = fs.SketchedEASE(4, ridge=1.0).update({"u": words[:2], "u\0": words[1:]})
    index = fs.CodeIndex(fs.SketchHash(4).update(np.eye(6)))
    index.add(np.eye(6)[:3], ids=words)
    index.save(tmp_path / "index.fsk")
    fitted = fs.LowRankModel(1).fit({"u": {"a": 1.0, "a\0": 2.0}, "u\0": {"b": 3.0}})
    named = fs.SketchedNewton(3).update([dict.fromkeys(words, 1.0)] * 2, [-1, 1])
    monitor = fs.DriftMonitor().update([dict.fromkeys(words, 1.0)] * 2)
    for model in (shop, fitted, named, monitor):
        for kept in (model, fs.from_bytes(model.to_bytes())):
            held = {fs.SketchedEASE: "item_ids", fs.LowRankModel: "column_ids", fs.SketchedNewton: "vocabulary"}
            assert list(getattr(kept, held.get(type(kept), "feature_names"))) == words
    assert fs.CodeIndex.load(tmp_path / "index.fsk").ids.tolist() == words
