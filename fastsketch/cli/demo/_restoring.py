"""The fourth part of the demo: a damaged photograph restored by a low-rank model under the absolute loss."""

import time
from typing import Any, Literal, NamedTuple

import numpy as np

import fastsketch as fs
from fastsketch.cli.demo._patches import Image

DAMAGE = 0.2  # share of pixels that become black or white
RANK = 20
STEP = 2  # every second pixel of the photograph


class Restored(NamedTuple):
    """Results of this part of the demo."""

    facts: dict[str, Any]
    pictures: dict[str, Image]


def restore(image: Image) -> Restored:
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
    for name, picture in pictures.items():
        if name != "original":
            facts[f"{name.split()[0]}_psnr"] = float(-10 * np.log10(np.mean((picture - whole) ** 2)))
    return Restored(facts, pictures)
