"""The main jobs on real input: the patches of two photographs as a stream, and handwritten digits."""

import json
import time
from pathlib import Path

import numpy as np

import fastsketch as fs
from fastsketch.cli._commands import describe
from fastsketch.cli._demo_hashing import BITS, hash_patches
from fastsketch.cli._demo_learning import STEPS, learn_digits
from fastsketch.cli._demo_restore import DAMAGE, RANK, restore
from fastsketch.cli._job import finite, limited
from fastsketch.cli._progress import Progress

SIDE = 16
# Rows that IncrementalPCA is timed on: enough for a steady rate, few enough to keep the demo short.
PEER_ROWS = 20_000


def photographs():
    """The two sample photographs that scikit-learn installs, float32 in [0, 1]."""
    try:
        from sklearn.datasets import load_sample_images
    except ImportError as error:
        raise ImportError("the demo needs scikit-learn: pip install 'fastsketch[sklearn,plot]'") from error
    return [np.asarray(image, np.float32) / 255 for image in load_sample_images().images]


def patch_stream(images, side=SIDE):
    """Every side x side colour patch as a row, one line of pixels of one photograph at a time."""
    for image in images:
        height, width, _ = image.shape
        for top in range(height - side + 1):
            strip = np.lib.stride_tricks.sliding_window_view(image[top : top + side], side, axis=1)
            # (side, width - side + 1, 3, side) -> one patch a row
            yield strip.transpose(1, 0, 3, 2).reshape(width - side + 1, side * side * 3)


def demo(args):
    """Sketch, certificate, speed against IncrementalPCA; codes and a search; digits learned; a photograph restored."""
    from sklearn.decomposition import IncrementalPCA

    folder = Path(args.output)
    folder.mkdir(parents=True, exist_ok=True)
    images = photographs()
    d = SIDE * SIDE * 3
    n = sum((image.shape[0] - SIDE + 1) * (image.shape[1] - SIDE + 1) for image in images)
    say = (lambda *_: None) if args.json else print
    say(
        f"{n:,} patches of {SIDE} x {SIDE} x 3 pixels: rows of {d} features, {4 * n * d / 1e9:.1f} GB if they were kept"
    )

    with limited(args.threads):
        progress = Progress("sketch")
        sketch = fs.RobustFrequentDirections(args.sketch_size, solver="gram", center=True)
        exact = fs.FrequentDirections(d, solver="exact", center=True)
        seconds = 0.0
        for rows in patch_stream(images):
            start = time.perf_counter()
            sketch.update(rows)
            seconds += time.perf_counter() - start
            exact.update(rows)  # the truth, for the comparison below; not timed
            progress.show(sketch.n_rows / n, sketch.n_rows)
        progress.show(1.0, n, final=True)
        rate = n / seconds

        truth = exact.gram()
        error = float(np.abs(np.linalg.eigvalsh(truth - sketch.gram())).max())
        facts = describe(sketch)
        peer = _peer_rate(IncrementalPCA(n_components=args.sketch_size), images)

        hashing, model, codes, shown = hash_patches(patch_stream, images, SIDE)
        learning, curves, errors = learn_digits()
        restored, pictures = restore(images[0])

    sketch.save(folder / "patches.fsk")
    model.save(folder / "hash.fsk")
    np.save(folder / "codes.npy", codes)
    from fastsketch.cli._plot import plot_learning, plot_neighbours, plot_restored, plot_spectrum

    plot_learning(
        curves,
        STEPS,
        errors,
        folder / "online.png",
        f"{learning['online_examples']:,} handwritten digits, each against the rest, one pass",
    )

    plot_restored(
        pictures,
        restored,
        folder / "restored.png",
        f"{DAMAGE:.0%} of the pixels lost to black and white, models of rank {RANK}",
    )
    plot_neighbours(
        images,
        shown,
        SIDE,
        folder / "neighbours.png",
        f"{BITS}-bit codes of {n:,} patches: a query and its nearest that do not overlap, Hamming distance",
    )

    plot_spectrum(
        list(sketch.singular_values.astype(float)),
        facts,
        folder / "spectrum.png",
        truth=np.linalg.eigvalsh(truth)[::-1][: 2 * args.sketch_size],
    )
    results = {
        **facts,
        "true_error": error,
        "rows_per_second": rate,
        "incremental_pca_rows_per_second": peer,
        "speed_ratio": rate / peer,
        "sketch_bytes": (folder / "patches.fsk").stat().st_size,
        **hashing,
        **learning,
        **restored,
        "files": [
            str(folder / name)
            for name in (
                "patches.fsk",
                "spectrum.png",
                "hash.fsk",
                "codes.npy",
                "neighbours.png",
                "online.png",
                "restored.png",
            )
        ],
    }
    if args.json:
        print(json.dumps(finite(results)))
        return
    size = results["sketch_bytes"]
    say(
        f"sketch of {args.sketch_size} rows      {rate:12,.0f} rows/s  ({size / 1e3:,.0f} kB, {4 * n * d / size:,.0f} "
        "times smaller)"
    )
    say(
        f"IncrementalPCA({args.sketch_size})       {peer:12,.0f} rows/s  (timed on {PEER_ROWS:,} rows)   "
        f"ratio {rate / peer:.1f}"
    )
    say(f"certificate            {facts['error_bound']:12.5g}  = {facts['relative_error_bound']:.4%} of ||A||_F^2")
    say(
        f"true spectral error    {error:12.5g}  = {error / facts['squared_norm']:.4%}  "
        f"({'within' if error <= facts['error_bound'] else 'BEYOND'} the certificate)"
    )
    say(
        f"{BITS}-bit hash (FROSH)     {hashing['hash_rows_per_second']:12,.0f} rows/s  learned; exact PCA "
        f"{hashing['exact_pca_rows_per_second']:,.0f} rows/s   ratio {hashing['hash_speed_ratio']:.1f}"
    )
    say(
        f"encoding               {hashing['encode_rows_per_second']:12,.0f} rows/s  "
        f"({hashing['code_bytes'] / 1e6:,.1f} MB of codes for {4 * n * d / 1e9:.1f} GB of rows)"
    )
    say(
        f"search                 {hashing['search_ms_per_query']:12,.2f} ms a query; of 1,000 found "
        f"{hashing['true_neighbours_found']:.0%} are among the closest 2% in truth"
    )
    say(
        f"online Newton (RFD0)   {learning['newton_examples_per_second']:12,.0f} examples/s; mistakes on digits "
        f"{learning['newton_online_error']:.2%}, nothing tuned; best first-order learner "
        f"{learning['best_first_order_online_error']:.2%}, at the best of {len(STEPS)} step sizes"
    )
    say(
        f"restored photograph    {restored['l1_psnr']:12.1f} dB by the l1 loss in {restored['l1_seconds']:.1f} s; "
        f"damaged {restored['damaged_psnr']:.1f} dB, square loss {restored['square_psnr']:.1f} dB"
    )
    say(f"written to {folder}: {', '.join(Path(name).name for name in results['files'])}")


def _peer_rate(model, images):
    rows = []
    for batch in patch_stream(images):
        rows.append(batch)
        if sum(map(len, rows)) >= PEER_ROWS:
            break
    rows = np.concatenate(rows)[:PEER_ROWS]
    step = 5 * rows.shape[1]  # its own default batch size
    start = time.perf_counter()
    for first in range(0, len(rows) - step + 1, step):
        model.partial_fit(rows[first : first + step])
    return (len(rows) // step * step) / (time.perf_counter() - start)
