"""A job to be killed: python killed.py FOLDER ENGINE WORKERS; prints the digest of the model when it is done."""

import sys
import threading
from pathlib import Path

import fastsketch as fs
from fastsketch.jobs import _run
from tests.jobs.tasks import Watched

D, ROWS, PART = 24, 2000, 100


def job(folder, engine, workers, *, resume, pause=0.02):
    _run.PART_BYTES, _run.STATES_OF_A_PART = PART * D * 8, 0
    return fs.run(
        fs.FrequentDirections(5, solver="gram"),
        Watched(folder, ROWS, D, pause=pause),
        engine=engine,
        workers=workers,
        checkpoint=Path(folder) / "checkpoint",
        resume=resume,
    )


if __name__ == "__main__":
    threading.Thread(target=lambda: print("begun", flush=True)).start()
    folder, engine, workers = sys.argv[1:]
    resume = (Path(folder) / "checkpoint" / "manifest.json").exists()
    model = job(folder, engine, int(workers), resume=resume)
    model.save(Path(folder) / "done.fsk")
