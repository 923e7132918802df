"""Runs the examples and stores the first picture of each: ``python examples/gallery/store_pictures.py [NAME ...]``.

The pictures in docs/_static/gallery stand where an example is not executed: where its optional package is missing, and
in the quick build.
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


def draw(example):
    """Run an example in the style of the site; its figures stay open."""
    plt.close("all")
    with plt.style.context(str(HERE / "style.mplstyle")), threadpool_limits(1, user_api="blas"):
        runpy.run_path(str(example), run_name="__main__")
        return [plt.figure(number) for number in plt.get_fignums()]


def store(figure, path):
    """Write a figure as PNG with few colours."""
    with plt.style.context(str(HERE / "style.mplstyle")):
        figure.savefig(path)
    with Image.open(path) as picture:
        few = picture.convert("RGB").quantize(COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    few.save(path, optimize=True)


def main(names):
    STORE.mkdir(parents=True, exist_ok=True)
    for example in sorted(HERE.glob("*/plot_*.py")):
        if names and example.stem not in names:
            continue
        start = time.process_time()
        path = STORE / f"{example.stem}.png"
        store(draw(example)[0], path)
        print(f"-- {example.stem}: {time.process_time() - start:.1f} s, {path.stat().st_size / 1000:.0f} KB\n")


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parents[1]))
    main(sys.argv[1:])
