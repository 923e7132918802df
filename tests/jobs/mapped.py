"""A map job to be killed: python mapped.py FOLDER ENGINE WORKERS."""

import sys
from pathlib import Path

import fastsketch as fs
from tests.jobs.answers import Watching

PART, PARTS = 100, 12


def job(folder, engine, workers, *, resume, pause=0.0, suffix=".npy"):
    folder = Path(folder)
    return fs.map_rows(
        Watching(folder, pause=pause).sums,
        folder / "rows.npy",
        output=folder / f"out{suffix}",
        engine=engine,
        workers=workers,
        part_bytes=PART * 4 * 8,
        resume=resume,
    )


if __name__ == "__main__":
    print("begun", flush=True)
    folder, engine, workers = sys.argv[1:]
    resume = (Path(folder) / "out.npy.partial" / "manifest.json").exists()
    print(job(folder, engine, int(workers), resume=resume, pause=0.1).n_kept, flush=True)
