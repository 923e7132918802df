"""An item model of users' rows in several files: one task a file, in processes, merged; then lists for new users."""

import tempfile
from pathlib import Path

import numpy as np
from scipy import sparse

import fastsketch as fs
from fastsketch.recommending import ranking

N_ITEMS, N_GENRES = 500, 20
SKETCH_SIZE = 48


def users(seed, n=800):
    """CSR rows of n users, who have had some of the items of the genres that they like, and few others."""
    rng = np.random.default_rng(seed)
    likes = rng.random((n, N_GENRES)) < 0.15
    known = 0.9 / np.arange(1, N_ITEMS + 1) ** 0.3
    chance = known * np.where(likes[:, np.arange(N_ITEMS) % N_GENRES], 1.0, 0.1)
    return sparse.csr_array((rng.random((n, N_ITEMS)) < chance).astype(np.float32))


def learn(path, index):
    """The model of one file: what a worker runs. Only models travel, l numbers an item."""
    return fs.SketchedEASE(SKETCH_SIZE).update(sparse.csr_array(sparse.load_npz(path)))


def main():
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"users-{seed}.npz" for seed in range(4)]  # a real job would have them
        for seed, path in enumerate(paths):
            sparse.save_npz(path, users(seed))
        model = fs.map_merge(learn, paths, engine="processes", workers=2)
        model.save(Path(folder) / "items.fsk")
        model = fs.load(Path(folder) / "items.fsk")
    assert isinstance(model, fs.SketchedEASE)

    new = ranking.user_split(users(seed=99), users=300)  # users of no file
    lists = {
        "SketchedEASE": model.recommend(new.shown, 20).items,
        "most popular": ranking.top_items(model.popularity, 20, exclude=new.shown),
    }
    print(f"{model.n_rows:,} users, ridge {model.facts()['ridge']:.0f}")
    scores = {name: ranking.mean_of(ranking.ndcg_at(found, new.hidden)) for name, found in lists.items()}
    for name, score in scores.items():
        print(f"{name}: NDCG@20 {score.mean:.3f} +- {score.standard_error:.3f}")
    return scores


if __name__ == "__main__":
    main()
