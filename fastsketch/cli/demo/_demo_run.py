"""All jobs of the demo, one after the other; then its files, and at last the page."""

import shlex
import time
from collections.abc import Callable
from importlib import import_module
from os import PathLike
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

import fastsketch as fs
from fastsketch.cli._plot import figure, plot_spectrum
from fastsketch.cli.demo._anomaly import find_anomaly
from fastsketch.cli.demo._components import find_components
from fastsketch.cli.demo._demo_report import report_lines, sections
from fastsketch.cli.demo._digits import learn_digits
from fastsketch.cli.demo._neighbours import find_neighbours
from fastsketch.cli.demo._page import write_page
from fastsketch.cli.demo._patches import Patches, photographs
from fastsketch.cli.demo._pictures import plot_anomaly, plot_components, plot_learning, plot_neighbours, plot_restored
from fastsketch.cli.demo._restoring import restore

SIDE = 16
# Of the lines in which patches begin, one in so many: the others are much like them.
STEP = 2
# Rows that IncrementalPCA is timed on: enough for a steady rate, few enough to keep the demo short.
PEER_ROWS = 20_000
PAGE = "index.html"
FILES = (
    *("patches.fsk", "spectrum.png", "components.png", "hash.fsk", "codes.npy"),
    *("neighbours.png", "anomaly.png", "online.png", "restored.png", PAGE),
)


class ShowProgress(Protocol):
    """A function that shows how far the sketch has come."""

    def __call__(self, fraction: float, rows: int, *, final: bool = False) -> None: ...


class SketchedPatches(NamedTuple):
    """Results of the first part of the demo."""

    facts: dict[str, Any]
    model: fs.FrequentDirections
    spectrum: NDArray[np.floating[Any]]  # exact eigenvalues, largest first


def run_demo(
    folder: str | PathLike[str], *, sketch_size: int, say: Callable[[str], None], progress: ShowProgress
) -> dict[str, Any]:
    """Run the demo and write its models, pictures and page.

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
    OSError
        If a file cannot be written. This and what is missing are found before the first job.
    """
    folder = Path(folder)
    patches = Patches(photographs(), SIDE, STEP)
    figure(1, 1)
    make_room(folder)
    n, d = patches.n_rows, patches.n_features
    lead = (
        f"{n:,} patches of {SIDE} x {SIDE} x 3 pixels: rows of {d} features, {4 * n * d / 1e9:.1f} GB if they were kept"
    )
    say(lead)
    sketched = sketch_patches(patches, sketch_size, progress=progress)
    components = find_components(patches, sketched.model, spectrum=sketched.spectrum)
    neighbours = find_neighbours(patches)
    anomaly = find_anomaly(patches.images[0])
    learned = learn_digits()
    restored = restore(patches.images[0])

    sketched.model.save(folder / "patches.fsk")
    neighbours.hashes.save(folder / "hash.fsk")
    np.save(folder / "codes.npy", neighbours.codes)
    truth: list[float] = sketched.spectrum[: 2 * sketch_size].tolist()
    plot_spectrum(sketched.facts, folder / "spectrum.png", truth=truth)
    plot_components(components, side=SIDE, path=folder / "components.png")
    plot_neighbours(patches, neighbours, path=folder / "neighbours.png")
    plot_anomaly(anomaly, path=folder / "anomaly.png")
    plot_learning(learned, path=folder / "online.png")
    plot_restored(restored, path=folder / "restored.png")
    results = {**sketched.facts, "sketch_bytes": (folder / "patches.fsk").stat().st_size}
    for part in (components, neighbours, anomaly, learned, restored):
        results |= part.facts
    results["files"] = [str(folder / name) for name in FILES]
    write_page(folder, lead=f"{lead}.", sections=sections(results), commands=commands(folder))
    for line in (*report_lines(results), f"written to {folder}: {', '.join(FILES)}", f"open {folder / PAGE}"):
        say(line)
    return results


def make_room(folder: Path) -> None:
    """Make the folder; raise OSError where something stands in the way of a file."""
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryFile(dir=folder):
        pass
    for name in FILES:
        if (folder / name).is_dir():
            raise IsADirectoryError(f"{folder / name} is a folder: the demo writes a file of that name")


def commands(folder: Path) -> list[str]:
    """Return commands to try with the models that have been written."""
    sketch, codes = (shlex.quote(str(folder / name)) for name in ("patches.fsk", "codes.npy"))
    return [f"fastsketch info {sketch}", f"fastsketch info {codes}"]


def sketch_patches(patches: Patches, sketch_size: int, *, progress: ShowProgress) -> SketchedPatches:
    """Sketch all patches; the exact moment matrix beside it gives the true error.

    Speeds, here and of the peer, are of one thread by its processor time: whatever else runs, they can be compared.
    """
    n, d = patches.n_rows, patches.n_features
    model = fs.FrequentDirections(sketch_size, solver="gram", center=True)
    exact = fs.FrequentDirections(d, method="fd", solver="exact", center=True)
    seconds = exact_seconds = 0.0
    for rows in patches.stream():
        with fs.thread_limit(1):
            start = time.process_time()
            model.update(rows)
            middle = time.process_time()
            exact.update(rows)  # for the true error, and as the simplest rival
        seconds += middle - start
        exact_seconds += time.process_time() - middle
        progress(model.n_rows / n, model.n_rows)
    progress(1.0, n, final=True)
    truth = exact.gram()
    peer = peer_rate(patches, sketch_size)
    facts = {
        **model.facts(),
        "true_error": float(np.abs(np.linalg.eigvalsh(truth - model.gram())).max()),
        "rows_per_second": n / seconds,
        "exact_rows_per_second": n / exact_seconds,
        "peer_rows": min(PEER_ROWS, n),
        "incremental_pca_rows_per_second": peer,
        "speed_ratio": n / seconds / peer,
    }
    return SketchedPatches(facts, model, np.linalg.eigvalsh(truth)[::-1])


def peer_rate(patches: Patches, n_components: int) -> float:
    """Return rows a second of scikit-learn's IncrementalPCA, on one thread."""
    model = import_module("sklearn.decomposition").IncrementalPCA(n_components=n_components)
    rows = patches.first(PEER_ROWS)
    step = 5 * rows.shape[1]  # its own default batch size
    with fs.thread_limit(1):
        start = time.process_time()
        for first in range(0, len(rows) - step + 1, step):
            model.partial_fit(rows[first : first + step])
        return (len(rows) // step * step) / (time.process_time() - start)
