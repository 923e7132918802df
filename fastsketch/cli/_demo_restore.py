"""The fourth part of the demo: a damaged photograph restored by a low-rank model under the l1 loss."""

import time

import numpy as np

import fastsketch as fs

DAMAGE = 0.2  # share of pixels that become black or white
RANK = 20
STEP = 2  # every second pixel of the photograph


def restore(image):
    """(facts, pictures): a grey photograph, damaged, and restored under the square and the l1 loss."""
    whole = image.mean(axis=2)[::STEP, ::STEP].astype(np.float32)
    rng = np.random.default_rng(0)
    damaged = np.where(rng.random(whole.shape) < DAMAGE, rng.integers(0, 2, whole.shape), whole).astype(np.float32)
    pictures, facts = {"original": whole, "damaged": damaged}, {"restored_pixels": whole.size}
    options = {"scaling": False, "sweeps": 1, "ridge": 0.01, "bias_ridge": 0.01, "clip": (0, 1)}
    for loss in ("square", "l1"):
        start = time.perf_counter()
        model = fs.LowRankModel(RANK, loss, **options).fit(damaged)
        facts[f"{loss}_seconds"] = time.perf_counter() - start
        pictures[f"{loss} loss"] = model.predict_block(np.arange(len(whole)))
    for name, picture in pictures.items():
        if name != "original":
            facts[f"{name.split()[0]}_psnr"] = float(-10 * np.log10(np.mean((picture - whole) ** 2)))
    return facts, pictures
