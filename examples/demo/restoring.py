"""A damaged photograph restored by a low-rank model under the absolute loss."""

import time
from pathlib import Path
from typing import Any, Literal

import numpy as np

import fastsketch as fs
from demo.page import Section
from demo.patches import Image
from demo.plot import figure

DAMAGE = 0.2  # share of pixels that become black or white
RANK = 20
STEP = 2  # every second pixel of the photograph


def restore(image: Image, folder: Path) -> Section:
    """Return a grey photograph, damaged, and restored under the square and the absolute loss."""
    whole: Image = image.mean(axis=2)[::STEP, ::STEP].astype(np.float32)
    rng = np.random.default_rng(0)
    lost = rng.random(whole.shape) < DAMAGE
    damaged: Image = np.where(lost, rng.integers(0, 2, whole.shape), whole).astype(np.float32)
    pictures: dict[str, Image] = {"original": whole, "damaged": damaged}
    facts: dict[str, Any] = {"restored_pixels": whole.size}
    losses: tuple[Literal["square", "absolute"], ...] = "square", "absolute"
    for loss in losses:
        start = time.perf_counter()
        model = fs.LowRankModel(
            RANK,
            loss=loss,
            learning_rate=1.0,
            scaling=False,
            sweeps=1,
            ridge=0.0005,
            bias_ridge=0.01,
            clip=(0, 1),
        )
        model.fit(damaged)
        facts[f"{loss}_seconds"] = time.perf_counter() - start
        pictures[f"{loss} loss"] = model.predict_block(np.arange(len(whole)))
    made, axes = figure(2, 2, figsize=(6.5, 5))
    for (name, picture), cell in zip(pictures.items(), axes.flat, strict=True):
        title = name
        if name != "original":
            decibels = facts[f"{name.split()[0]}_psnr"] = float(-10 * np.log10(np.mean((picture - whole) ** 2)))
            title = f"{name}: {decibels:.1f} dB"
        cell.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        cell.set_title(title, fontsize=10)
        cell.set_axis_off()
    made.suptitle(f"{DAMAGE:.0%} of the pixels lost to black and white, models of rank {RANK}", fontsize=10)
    made.savefig(folder / "restored.png", dpi=120)
    return Section(
        "A photograph restored",
        "restored.png",
        "Four grey pictures of a temple: the original, one with a fifth of its pixels black or white, a blurred and "
        "speckled one by the square loss, and a clear one by the absolute loss.",
        [
            ("damaged", f"{facts['damaged_psnr']:.1f} dB"),
            ("square loss", f"{facts['square_psnr']:.1f} dB"),
            ("absolute loss", f"{facts['absolute_psnr']:.1f} dB"),
            ("seconds", f"{facts['absolute_seconds']:.1f}"),
        ],
        f"{DAMAGE:.0%} of the pixels have become black or white, nobody says which. A low-rank model under the "
        "absolute loss leaves them aside; under the square loss it bends towards them.",
        "Decibels are of the peak against the error, to the original, which the model has not seen. A method made for "
        "pictures would do better: this one knows rows and columns, and nothing of pictures.",
        [("completing a matrix", "jobs/completing.md"), ("ranks and ridges", "jobs/completing.md#ranks-and-ridges")],
        facts,
    )
