"""Sketch, certificate, speed against IncrementalPCA; codes and a search; digits learned; a photograph restored."""

import time
from collections.abc import Callable
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

import fastsketch as fs
from fastsketch._plot import plot_spectrum
from fastsketch.demo._hashing import BITS, hash_patches
from fastsketch.demo._learning import STEPS, learn_digits
from fastsketch.demo._patches import Patches, photographs
from fastsketch.demo._pictures import plot_learning, plot_neighbours, plot_restored
from fastsketch.demo._restoring import restore

SIDE = 16
# Rows that IncrementalPCA is timed on: enough for a steady rate, few enough to keep the demo short.
PEER_ROWS = 20_000


class ShowProgress(Protocol):
    """A function that shows how far the sketch has come."""

    def __call__(self, fraction: float, rows: int, *, final: bool = False) -> None: ...


class Sketched(NamedTuple):
    """Results of the first part of the demo."""

    facts: dict[str, Any]
    model: fs.RobustFrequentDirections
    spectrum: NDArray[np.floating[Any]]  # exact eigenvalues, largest first


def run_demo(
    folder: str | PathLike[str], *, sketch_size: int, say: Callable[[str], None], progress: ShowProgress
) -> dict[str, Any]:
    """Run the demo and write its models and pictures.

    Parameters
    ----------
    folder : str or path
        For the results; made if it does not exist.
    sketch_size : int
    say : callable (str) -> None
        Takes the lines of the report.
    progress : callable (fraction, rows, *, final=False) -> None

    Returns
    -------
    dict
        Every figure of the report by name, and the paths of the files.

    Raises
    ------
    ImportError
        If scikit-learn or matplotlib is missing.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    patches = Patches(photographs(), SIDE)
    n, d = patches.n_rows, patches.n_features
    say(
        f"{n:,} patches of {SIDE} x {SIDE} x 3 pixels: rows of {d} features, {4 * n * d / 1e9:.1f} GB if they were kept"
    )
    sketched = sketch_patches(patches, sketch_size, progress=progress)
    hashed = hash_patches(patches)
    learned = learn_digits()
    restored = restore(patches.images[0])

    sketched.model.save(folder / "patches.fsk")
    hashed.model.save(folder / "hash.fsk")
    np.save(folder / "codes.npy", hashed.codes)
    plot_learning(learned, path=folder / "online.png")
    plot_restored(restored, path=folder / "restored.png")
    plot_neighbours(patches, hashed, path=folder / "neighbours.png")
    truth: list[float] = sketched.spectrum[: 2 * sketch_size].tolist()
    plot_spectrum(sketched.facts, folder / "spectrum.png", truth=truth)
    names = ["patches.fsk", "spectrum.png", "hash.fsk", "codes.npy", "neighbours.png", "online.png", "restored.png"]
    results = {
        **sketched.facts,
        "sketch_bytes": (folder / "patches.fsk").stat().st_size,
        **hashed.facts,
        **learned.facts,
        **restored.facts,
        "files": [str(folder / name) for name in names],
    }
    for line in report_lines(results):
        say(line)
    say(f"written to {folder}: {', '.join(names)}")
    return results


def sketch_patches(patches: Patches, sketch_size: int, *, progress: ShowProgress) -> Sketched:
    """Sketch all patches; the exact moment matrix beside it gives the true error."""
    n, d = patches.n_rows, patches.n_features
    model = fs.RobustFrequentDirections(sketch_size, solver="gram", center=True)
    exact = fs.FrequentDirections(d, method="fd", solver="exact", center=True)
    seconds = 0.0
    for rows in patches.stream():
        start = time.perf_counter()
        model.update(rows)
        seconds += time.perf_counter() - start
        exact.update(rows)  # for the true error; not timed
        progress(model.n_rows / n, model.n_rows)
    progress(1.0, n, final=True)
    truth = exact.gram()
    peer = peer_rate(patches, sketch_size)
    facts = {
        **model.facts(),
        "true_error": float(np.abs(np.linalg.eigvalsh(truth - model.gram())).max()),
        "rows_per_second": n / seconds,
        "incremental_pca_rows_per_second": peer,
        "speed_ratio": n / seconds / peer,
    }
    return Sketched(facts, model, np.linalg.eigvalsh(truth)[::-1])


def peer_rate(patches: Patches, n_components: int) -> float:
    """Rows a second of scikit-learn's IncrementalPCA."""
    model = import_module("sklearn.decomposition").IncrementalPCA(n_components=n_components)
    rows = patches.first(PEER_ROWS)
    step = 5 * rows.shape[1]  # its own default batch size
    start = time.perf_counter()
    for first in range(0, len(rows) - step + 1, step):
        model.partial_fit(rows[first : first + step])
    return (len(rows) // step * step) / (time.perf_counter() - start)


def report_lines(results: dict[str, Any]) -> list[str]:
    """The results as text."""
    size, rows = results["sketch_bytes"], results["sketch_size"]
    kept = 4 * results["n_rows"] * results["n_features"]
    error, bound, squared = results["true_error"], results["error_bound"], results["squared_norm"]
    return [
        f"sketch of {rows} rows      {results['rows_per_second']:12,.0f} rows/s  ({size / 1e3:,.0f} kB, "
        f"{kept / size:,.0f} times smaller)",
        f"IncrementalPCA({rows})       {results['incremental_pca_rows_per_second']:12,.0f} rows/s  "
        f"(timed on {PEER_ROWS:,} rows)   ratio {results['speed_ratio']:.1f}",
        f"certificate            {bound:12.5g}  = {results['relative_error_bound']:.4%} of ||A||_F^2",
        f"true spectral error    {error:12.5g}  = {error / squared:.4%}  "
        f"({'within' if error <= bound else 'BEYOND'} the certificate)",
        f"{BITS}-bit hash (FROSH)     {results['hash_rows_per_second']:12,.0f} rows/s  learned; exact PCA "
        f"{results['exact_pca_rows_per_second']:,.0f} rows/s   ratio {results['hash_speed_ratio']:.1f}",
        f"encoding               {results['encode_rows_per_second']:12,.0f} rows/s  "
        f"({results['code_bytes'] / 1e6:,.1f} MB of codes for {kept / 1e9:.1f} GB of rows)",
        f"search                 {results['search_ms_per_query']:12,.2f} ms a query; of 1,000 found "
        f"{results['true_neighbours_found']:.0%} are among the closest 2% in truth; by estimates, with the query as it "
        f"is, {results['true_neighbours_of_real_queries']:.0%}",
        f"online Newton (RFD)    {results['newton_examples_per_second']:12,.0f} examples/s; mistakes on digits "
        f"{results['newton_online_error']:.2%}, nothing tuned; best first-order learner "
        f"{results['best_first_order_online_error']:.2%}, at the best of {len(STEPS)} step sizes",
        f"restored photograph    {results['absolute_psnr']:12.1f} dB by the absolute loss in "
        f"{results['absolute_seconds']:.1f} s; damaged {results['damaged_psnr']:.1f} dB, square loss "
        f"{results['square_psnr']:.1f} dB",
    ]
