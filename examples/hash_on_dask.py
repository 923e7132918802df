"""DFROSH on a Dask cluster that this script starts: the bits of one pass over all rows, with any number of workers."""

import dask.array as da
import numpy as np
from dask.delayed import delayed
from dask.distributed import Client, LocalCluster

import fastsketch as fs


def rows(block):
    """A real job would open a file here."""
    return np.random.default_rng(block).standard_normal((2000, 100)) * np.linspace(3, 0.1, 100)


def main():
    parts = [da.from_delayed(delayed(rows)(block), (2000, 100), float) for block in range(6)]
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster):
        data = da.concatenate(parts)
        model = fs.run(fs.SketchHash(32, block_rows=400), data, engine="dask")
        encoder = model.encoder()
        codes = data.map_blocks(encoder.encode, dtype="uint8", chunks=(data.chunks[0], encoder.width)).compute()
    one_pass = fs.SketchHash(32, block_rows=400)
    for block in range(6):
        one_pass.update(rows(block))
    same = np.array_equal(model.projection, one_pass.projection)
    distances, found = one_pass.search(rows(0)[:1], codes, k=3)
    print(
        f"{codes.shape[0]:,} codes of {model.n_bits} bits; as in one pass: {same}; "
        f"nearest to row 0: {found[0].tolist()}, at about {distances[0].round(1).tolist()}"
    )
    return same, found[0, 0]


if __name__ == "__main__":
    main()
