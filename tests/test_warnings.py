"""Warnings name the line of the program that has called the library, however deep within it they are issued."""

import ast
import io
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from scipy import io as scipy_io
from scipy import sparse

import fastsketch as fs
import fastsketch.anndata
import fastsketch.sklearn as S
from fastsketch.data import TableRows, Triples
from fastsketch.sketching._rereading import spectral_norm

try:
    import torch

    from fastsketch.torch import collect
except ImportError:
    torch = None

HOME = Path(fs.__file__).parent
EARLIER = Path(__file__).parent / "data" / "earlier"
# The command line writes warnings to stderr, without a line.
WITHOUT_A_LINE = {"cli/_recommend.py"}


def normal(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def monitor():
    fs.DriftMonitor(every=20).update(np.cumsum(normal(4_000, 4), axis=0))


def monitor_of_sources():
    fs.DriftMonitor(every=20).update(fs.open_rows(np.cumsum(normal(4_000, 4), axis=0)))


def compared():
    fs.compare(*([fs.FrequentDirections(8).update(normal(n, 6, k)) for k in range(6)] for n in (100, 130)))


def refined():
    fs.FrequentDirections(8, solver="gram").update(normal(300, 20)).refine(normal(300, 20, 1))


def audited():
    fs.FrequentDirections(8, solver="gram").update(normal(300, 20)).audit(normal(300, 20, 1))


def audit_that_ends():
    matrix = np.diag(np.linspace(1.0, 1.0 + 1e-9, 2_000))
    spectral_norm(lambda q: matrix @ q, 2_000, accuracy=1e-15, floor=0.0)


def tolerance():
    fs.FrequentDirections(tolerance=0.01, max_sketch_size=12, solver="gram").update(normal(800, 60))


def short_sketch():
    rows = sparse.csr_array((np.random.default_rng(0).random((2_000, 200)) < 0.1).astype(float))
    fs.SketchedEASE(6, kept_events=0, dropout=0.0, ridge=1e-3).update(rows).recommend(rows[:5], 3)


def coarse_rows():
    fs.CodeIndex(fs.SketchQuantizer(4).update(normal(400, 16) + 1e3), rows="float16").add(normal(400, 16) + 1e3)


def few_weighted_rows():
    x = normal(1_000, 30)
    fs.SketchedRidge(decay=0.5, reservoir_size=500).update(x, x[:, 0]).coef()


def earlier_file():
    fs.load(EARLIER / "online-drift-restarted.fsk")


def sorted_labels():
    x = normal(2_000, 3)
    fs.SketchedNewton(3).update(x, np.repeat([-1.0, 1.0], 1_000))


def sorted_labels_of_an_estimator():
    x = normal(2_000, 3)
    S.SketchedNewtonClassifier(3, shuffle=False, epochs=1).fit(x, np.repeat([-1.0, 1.0], 1_000))


def words_that_were_numbers():
    model = fs.SketchedNewton(3).update([{"hour": "3"}, {"hour": "4"}] * 10, [-1, 1] * 10)
    model.predict([{"hour": 3.0}])


def far_off():
    S.SketchedPCA(3, solver="gram").fit(normal(1_000, 100))


def far_off_through_scikit_learn():
    S.SketchedPCA(3, solver="gram").set_output(transform="pandas").fit_transform(normal(1_000, 100))


def uncertain_share():
    _ = S.SketchedPCA(0.9, sketch_size=9, solver="gram").fit(normal(600, 80)).components_


def few_kept_rows():
    S.SketchedCovariance().fit(normal(30, 4)).predict(normal(5, 4))


def empty_column():
    rows = normal(50, 4)
    rows[:, 2] = np.nan
    S.SketchedCovariance(fill="mean").fit(rows)


def equal_rows():
    S.SketchedCovariance().fit(np.ones((50, 4))).mahalanobis(np.ones((2, 4)))


def merged_without_rows():
    S.SketchedCovariance().fit(normal(50, 4)).merge(S.SketchedCovariance(contamination=None).fit(normal(50, 4)))


def times_of_a_frame():
    frame = pd.DataFrame({"user": ["ann", "bob"], "item": ["x", "y"], "at": [1_700_000_001, 1_700_000_002]})
    Triples.of(frame)


def times_of_a_file(folder):
    (folder / "r.csv").write_text("user,item,timestamp\nann,Heat,7\nbob,Heat,8\n")
    Triples.of(folder / "r.csv")


def columns_of_words(folder):
    (folder / "a.csv").write_text("id,x\na7,1\na8,2\n")
    fs.open_rows(folder / "a.csv", columns="numeric")


def columns_of_dates(folder):
    (folder / "t.csv").write_text("when,x\n" + "".join(f"2024-01-{k:02d} 10:00,{k}\n" for k in range(1, 20)))
    list(TableRows(folder / "t.csv").chunks())


def folder_of_a_column(folder):
    (folder / "day=1").mkdir()
    (folder / "day=1" / "part.csv").write_text("1,2\n3,4\n")
    fs.open_rows(folder / "day=1" / "part.csv", header=False)


def genes_by_cells(folder):
    text = io.BytesIO()
    scipy_io.mmwrite(text, sparse.coo_array(np.eye(3, 2)))
    (folder / "matrix.mtx").write_bytes(text.getvalue())
    (folder / "features.tsv").write_text("".join(f"ENSG{k:03}\tname\tGene Expression\n" for k in range(3)))
    (folder / "barcodes.tsv").write_text("cell-0\ncell-1\n")
    fs.open_rows(folder / "matrix.mtx")


def counts():
    return AnnData(np.random.default_rng(0).poisson(3.0, (60, 20)).astype(np.float32))


def components_of_counts():
    fastsketch.anndata.pca(counts(), 3)


def genes_of_counts():
    fastsketch.anndata.highly_variable_genes(counts(), n_top_genes=5)


def nothing_to_resume(folder):
    fs.run(fs.FrequentDirections(5), normal(50, 4), checkpoint=folder / "checkpoint", resume=True)


def damaged_node(folder):
    model, rows = fs.FrequentDirections(5, decay=0.9), normal(50, 4)
    fs.run(model, rows, checkpoint=folder / "checkpoint")
    (node,) = (folder / "checkpoint").glob("node-*")
    node.write_bytes(b"damaged")
    fs.run(model, rows, checkpoint=folder / "checkpoint", resume=True)


def modules_that_are_not_called():
    if torch is None:
        pytest.skip("could not import 'torch'")
    collect(torch.nn.ModuleDict({"unused": torch.nn.Linear(2, 2)}), [], modules="unused")


def tensors_of_a_device():
    if torch is None:
        pytest.skip("could not import 'torch'")

    class Elsewhere(torch.Tensor):
        device = property(lambda self: torch.device("cuda", 0))

    fs.FrequentDirections(4).update(torch.ones(5, 3).as_subclass(Elsewhere))


PROVOKED = {
    "_core/validation.py": [tensors_of_a_device],
    "torch/_collect.py": [modules_that_are_not_called],
    "streams/_drift_monitor.py": [monitor, monitor_of_sources],
    "streams/_compare.py": [compared],
    "sketching/_frequent_directions.py": [refined, audited, tolerance],
    "sketching/_rereading.py": [audit_that_ends],
    "recommending/_sketched_ease.py": [short_sketch],
    "neighbours/_code_index.py": [coarse_rows],
    "ridge/_sketched_ridge.py": [few_weighted_rows],
    "online/_metrics.py": [earlier_file],
    "online/_linear.py": [sorted_labels, sorted_labels_of_an_estimator],
    "online/_row_inputs.py": [words_that_were_numbers],
    "sklearn/_principal_components.py": [uncertain_share],
    "sklearn/_sketched_pca.py": [far_off, far_off_through_scikit_learn],
    "covariance/_mrcd.py": [few_kept_rows],
    "covariance/_missing.py": [empty_column],
    "sklearn/_sketched_covariance.py": [equal_rows, merged_without_rows],
    "data/names/_events.py": [times_of_a_file, times_of_a_frame],
    "data/names/_table_rows.py": [columns_of_dates],
    "data/sources/_table_text.py": [columns_of_words],
    "data/sources/_csv.py": [folder_of_a_column],
    "data/sources/_market.py": [genes_by_cells],
    "anndata/_pca.py": [components_of_counts],
    "anndata/_genes.py": [genes_of_counts],
    "jobs/_manifest.py": [nothing_to_resume],
    "jobs/_checkpoint.py": [damaged_node],
}


def test_every_module_that_warns_is_provoked_and_names_the_caller():
    warning = {path.relative_to(HOME).as_posix(): path.read_text() for path in HOME.rglob("*.py")}
    assert {name for name, text in warning.items() if "warnings.warn(" in text} == {"_core/warning.py"}
    names = {name for name, text in warning.items() if re.search(r"warn_caller\(", text)} - {"_core/warning.py"}
    assert names - WITHOUT_A_LINE == set(PROVOKED)
    assert not any("stacklevel" in text for name, text in warning.items() if name != "_core/warning.py")


@pytest.mark.parametrize(
    ("module", "provoke"), [(module, provoke) for module, several in PROVOKED.items() for provoke in several]
)
def test_warnings_name_the_caller(module, provoke, tmp_path, monkeypatch):
    sites, issue = [], warnings.warn

    def noted(message, category, stacklevel):
        sites.append(Path(sys._getframe(2).f_code.co_filename).relative_to(HOME).as_posix())
        issue(message, category, stacklevel=stacklevel + 1)

    monkeypatch.setattr(warnings, "warn", noted)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        provoke(*([tmp_path] if provoke.__code__.co_argcount else []))
    assert module in sites and len(caught) == len(sites)
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    first, last = next((n.lineno, n.end_lineno) for n in tree.body if getattr(n, "name", "") == provoke.__name__)
    assert all(one.filename == __file__ and first < one.lineno <= last for one in caught)
