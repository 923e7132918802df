"""Run all jobs of the demo, write the files, and then the page."""

import shlex
import time
from collections.abc import Callable
from importlib import import_module
from os import PathLike
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fastsketch as fs
from demo.anomaly import find_anomaly
from demo.components import find_components
from demo.digits import learn_digits
from demo.neighbours import find_neighbours
from demo.page import Section, write_page
from demo.patches import Patches, photographs
from demo.plot import figure, plot_spectrum
from demo.restoring import restore

SIDE = 16
# Patches begin in every STEP-th line of pixels only; the others are similar to them.
STEP = 2
# Rows that IncrementalPCA is timed on: enough for a stable rate, few enough for a short demo.
PEER_ROWS = 20_000
PAGE = "index.html"
FILES = (
    *("patches.fsk", "spectrum.png", "components.png", "hash.fsk", "codes.npy"),
    *("neighbours.png", "anomaly.png", "online.png", "restored.png", PAGE),
)


def run_demo(folder: str | PathLike[str], *, sketch_size: int, say: Callable[[str], object]) -> dict[str, Any]:
    """Run the demo and write its models, pictures and page.

    Parameters
    ----------
    folder : str or path
        For the results; made if it does not exist.
    sketch_size : int
    say : callable (str) -> None
        Takes the lines of the report.

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
    sketched, model, spectrum = sketch_patches(patches, sketch_size, folder)
    sections = [
        sketched,
        find_components(patches, model, folder, spectrum=spectrum),
        find_neighbours(patches, folder),
        find_anomaly(patches.images[0], folder),
        learn_digits(folder),
        restore(patches.images[0], folder),
    ]
    write_page(folder, lead=f"{lead}.", sections=sections, commands=commands(folder))
    results: dict[str, Any] = {"files": [str(folder / name) for name in FILES]}
    for section in sections:
        results |= section.facts
        say(section.title)
        for name, value in section.numbers:
            say(f"  {name:<48}{value:>40}")
    say(f"written to {folder}: {', '.join(FILES)}\nopen {folder / PAGE}")
    return results


def make_room(folder: Path) -> None:
    """Create the folder. OSError if a file of the demo cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryFile(dir=folder):
        pass
    for name in FILES:
        if (folder / name).is_dir():
            raise IsADirectoryError(f"{folder / name} is a folder: the demo writes a file of that name")


def commands(folder: Path) -> list[str]:
    """Return example commands for the models that have been written."""
    sketch, codes = (shlex.quote(str(folder / name)) for name in ("patches.fsk", "codes.npy"))
    return [f"fastsketch info {sketch}", f"fastsketch info {codes}"]


def sketch_patches(
    patches: Patches, sketch_size: int, folder: Path
) -> tuple[Section, fs.FrequentDirections, NDArray[np.floating[Any]]]:
    """Return (results, the sketch of all patches, exact eigenvalues, largest first).

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
    model.save(folder / "patches.fsk")
    truth, peer = exact.gram(), peer_rate(patches, sketch_size)
    spectrum = np.linalg.eigvalsh(truth)[::-1]
    error = float(np.abs(np.linalg.eigvalsh(truth - model.gram())).max())
    n_bytes = (folder / "patches.fsk").stat().st_size
    facts = {
        **model.facts(),
        "true_error": error,
        "rows_per_second": n / seconds,
        "exact_rows_per_second": n / exact_seconds,
        "peer_rows": min(PEER_ROWS, n),
        "incremental_pca_rows_per_second": peer,
        "speed_ratio": n / seconds / peer,
        "sketch_bytes": n_bytes,
    }
    plot_spectrum(facts, folder / "spectrum.png", truth=spectrum[: 2 * sketch_size].tolist())
    bound, squared = facts["error_bound"], facts["squared_norm"]
    section = Section(
        f"A stream of {n:,} rows in {n_bytes / 1e3:,.0f} kB",
        "spectrum.png",
        "Squared singular values of the sketch by their index, a band of the certificate around them, and the exact "
        "values, which run through the band.",
        [
            ("rows", f"{n:,} of {d} numbers"),
            ("rows of the sketch", f"{sketch_size}, {4 * n * d / n_bytes:,.0f} times smaller"),
            ("engine", f"a sketch, solver={model.resolved['solver']!r}; the exact sum is only its rival here"),
            ("certificate", f"{bound:.5g}, {facts['relative_error_bound']:.4%} of the sum of squares"),
            ("true error", f"{error:.5g}, {error / squared:.4%} ({'within' if error <= bound else 'BEYOND'} it)"),
            ("rows a second, one thread", f"{n / seconds:,.0f}"),
            ("the exact sum, rows a second", f"{n / exact_seconds:,.0f}"),
            (f"IncrementalPCA({sketch_size}), rows a second", f"{peer:,.0f}, ratio {n / seconds / peer:.1f}"),
        ],
        "Colour patches of 16 x 16 pixels of two photographs went by once. What is left of them stands for the sums "
        "of all their squares and products. Both errors are shares of the sum of all squares.",
        "The certificate is known without the rows and holds on every stream. Here the exact sum was kept, too, to "
        f"show the true error beside it. IncrementalPCA was timed on {facts['peer_rows']:,} rows; with as many rows it "
        "has the smaller error on rows that come in no order, and no bound.",
        [("how a sketch works", "how/sketch.md"), ("its certificate", "how/certificate.md")],
        facts,
    )
    return section, model, spectrum


def peer_rate(patches: Patches, n_components: int) -> float:
    """Measure the rows per second of scikit-learn's IncrementalPCA on one thread."""
    model = import_module("sklearn.decomposition").IncrementalPCA(n_components=n_components)
    rows = patches.first(PEER_ROWS)
    step = 5 * rows.shape[1]  # its own default batch size
    with fs.thread_limit(1):
        start = time.process_time()
        for first in range(0, len(rows) - step + 1, step):
            model.partial_fit(rows[first : first + step])
        return (len(rows) // step * step) / (time.process_time() - start)
