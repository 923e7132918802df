"""GIST descriptors (Oliva and Torralba, 2001) of the images of CIFAR-10, the rows of FROSH's experiments on that set.

A grey image is freed of its slow changes and of local contrast, filtered by Gabor functions of four scales and eight
orientations, and the absolute values are averaged over 4 x 4 blocks: 512 numbers. The constants are those of the
authors' published program at their defaults, with 32 x 32 pixels and a border of 16.
"""

from functools import cache

import numpy as np
from scipy import fft

from bench_data import cifar10

SCALES, ORIENTATIONS, BLOCKS = 4, 8, 4
PIXELS, BORDER = 32, 16
CYCLES = 4  # an image: what changes more slowly is taken away
AT_ONCE = 500  # images in memory, spectrum by spectrum


@cache
def cifar10_gist():
    """Return the descriptors of all images, those for tests last, float32 (60000, 512); None if they are absent."""
    found = [cifar10(part) for part in ("train", "test")]
    if None in found:
        return None
    images = np.concatenate([images for images, _ in found])
    grey = images.mean(axis=3, dtype=np.float32)
    return np.concatenate([gist(grey[start : start + AT_ONCE]) for start in range(0, len(grey), AT_ONCE)])


def cifar10_classes():
    """Return the classes of these images, (60000,); None if they are absent."""
    found = [cifar10(part) for part in ("train", "test")]
    return None if None in found else np.concatenate([labels for _, labels in found])


def gist(images):
    """Return the descriptors of grey images (n, 32, 32) in 0 to 255, (n, 512) float32: by scale, orientation, block."""
    border = [(0, 0), (BORDER, BORDER), (BORDER, BORDER)]
    spectra = fft.fft2(np.pad(_evened(images), border, mode="symmetric"))
    out = []
    for gabor in gabors(PIXELS + 2 * BORDER):
        answer = np.abs(fft.ifft2(spectra * gabor))[:, BORDER:-BORDER, BORDER:-BORDER]
        size = PIXELS // BLOCKS
        out.append(answer.reshape(-1, BLOCKS, size, BLOCKS, size).mean(axis=(2, 4)).reshape(len(images), -1))
    return np.concatenate(out, axis=1).astype(np.float32)


@cache
def gabors(n):
    """Return the transfer functions, (32, n, n) float32, of frequencies as fft2 orders them."""
    y, x = np.meshgrid(*(np.fft.fftfreq(n, 1 / n),) * 2, indexing="ij")
    radius, angle = np.hypot(x, y), np.arctan2(y, x)
    out = []
    for scale in range(SCALES):
        peak, sharpness = 0.3 / 1.85**scale, 16 * ORIENTATIONS**2 / 32**2
        for k in range(ORIENTATIONS):
            turn = (angle + np.pi * k / ORIENTATIONS + np.pi) % (2 * np.pi) - np.pi
            out.append(np.exp(-3.5 * (radius / n / peak - 1) ** 2 - 2 * sharpness * np.pi * turn**2))
    return np.array(out, np.float32)


def _evened(images, pad=5):
    """Take away what changes slowly, then divide by what is left of contrast nearby."""
    around = [(0, 0), (pad, pad), (pad, pad)]
    logs = np.pad(np.log1p(images.astype(np.float32)), around, mode="symmetric")
    n = logs.shape[1]
    y, x = np.meshgrid(*(np.fft.fftfreq(n, 1 / n),) * 2, indexing="ij")
    low = np.exp(-(x**2 + y**2) * np.log(2) / CYCLES**2).astype(np.float32)

    def slow(values):
        return fft.ifft2(fft.fft2(values) * low).real

    fast = logs - slow(logs)
    contrast = np.sqrt(np.abs(slow(fast**2)))
    return (fast / (0.2 + contrast))[:, pad:-pad, pad:-pad]
