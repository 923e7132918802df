"""Runs the examples and stores the first picture of each: ``python examples/gallery/store_pictures.py [NAME ...]``.

The pictures in docs/_static/gallery stand where an example is not executed: where its optional package is missing, and
in the quick build. docs/_static/readme.png is the first example's picture, larger.
"""

import runpy
import sys
import time
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
from PIL import Image
from threadpoolctl import threadpool_limits

HERE = Path(__file__).parent
STORE = HERE.parents[1] / "docs" / "_static" / "gallery"
COLOURS = 128  # of a stored picture: small files
LARGEST = 55_000  # bytes; what takes more (photographs) is stored in half the size
FRONT = "plot_drift"  # the picture of the README


def draw(example):
    """Run an example in the style of the site; its figures stay open."""
    plt.close("all")
    with plt.style.context(str(HERE / "style.mplstyle")), threadpool_limits(1, user_api="blas"):
        runpy.run_path(str(example), run_name="__main__")
        return [plt.figure(number) for number in plt.get_fignums()]


def store(figure, path, **how):
    """Write a figure as PNG with few colours."""
    with plt.style.context(str(HERE / "style.mplstyle")):
        figure.savefig(path, **how)
    with Image.open(path) as picture:
        whole = picture.convert("RGB")
    few = whole.quantize(COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    if path.stat().st_size > LARGEST:
        half = whole.resize((whole.width // 2, whole.height // 2), Image.Resampling.LANCZOS)
        half.quantize(COLOURS // 2, dither=Image.Dither.NONE).save(path, optimize=True)


def main(names):
    STORE.mkdir(parents=True, exist_ok=True)
    for example in sorted(HERE.glob("*/plot_*.py")):
        if names and example.stem not in names:
            continue
        start, clock = time.process_time(), time.perf_counter()
        path = STORE / f"{example.stem}.png"
        figure = draw(example)[0]
        store(figure, path)
        if example.stem == FRONT:
            figure.set_size_inches(8, 4)
            store(figure, STORE.parent / "readme.png", dpi=200)
        seconds, waited = time.process_time() - start, time.perf_counter() - clock
        print(f"-- {example.stem}: {seconds:.1f} s, {waited:.0f} s by the clock, {path.stat().st_size / 1000:.0f} KB\n")


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parents[1]))
    main(sys.argv[1:])
