"""One sketch a shard, made in worker processes, merged into one; only sketches travel."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

import fastsketch as fs


def shard(seed):
    """The rows of one shard; a real job would read a file here."""
    return np.random.default_rng(seed).standard_normal((2000, 1500)) * np.linspace(2, 0.1, 1500)


def sketch_shard(seed):
    return fs.RobustFrequentDirections(50, solver="gram").update(shard(seed)).to_bytes()


def main():
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        sketches = [fs.from_bytes(content) for content in pool.map(sketch_shard, range(4))]
    merged = fs.merge(sketches)
    rows = np.vstack([shard(seed) for seed in range(4)])
    error = np.linalg.norm(rows.T @ rows - merged.gram(), 2)
    print(f"{merged.n_rows:,} rows; error {error:,.0f}, certificate {merged.error_bound:,.0f}")
    return error, merged.error_bound


if __name__ == "__main__":
    main()
