"""An index in cells: by all of them the answers of one without, by those of the default nearly; saved and refused."""

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.data.files._state import StateError
from fastsketch.neighbours.index import _cells, _contents, _generations, _segment_room
from tests.neighbours.index.toy import toy

RNG = np.random.default_rng(5)
MIDDLES = 2 * RNG.standard_normal((40, 16))


def clustered(n, seed):
    rng = np.random.default_rng(seed)
    return (MIDDLES[rng.integers(0, 40, n)] + 0.6 * rng.standard_normal((n, 16))).astype(np.float32)


ROWS, QUERIES = clustered(6000, 0), clustered(300, 1)
MODELS = {"quantizer": fs.SketchQuantizer(8).update(ROWS), "hash": fs.SketchHash(16).update(ROWS)}


def pair(model, cells=30, **parameters):
    """An index without cells, and one with."""
    plain, cut = fs.CodeIndex(model, **parameters), fs.CodeIndex(model, partitions=cells, **parameters)
    for index in (plain, cut):
        index.add(ROWS)
    return plain, cut.compact()


def same(one, two):
    return all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def share(found, wanted):
    """Mean share of the wanted neighbours that were found."""
    return np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(found[1].tolist(), wanted[1].tolist(), strict=True)])


@pytest.mark.parametrize("metric", ["euclidean", "inner_product", "cosine"])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_by_all_cells_the_answers_are_those_without(model, metric, tmp_path):
    plain, cut = pair(model, metric=metric)
    assert not same([cut.ids], [plain.ids]) and np.array_equal(np.sort(cut.ids), plain.ids)
    assert same(cut.search(QUERIES, probes=30), plain.search(QUERIES))
    # 99% of the neighbours of other rows than it was tried by, within what a sample of 256 can say
    assert all(share(cut.search(QUERIES, k), plain.search(QUERIES, k)) > 0.97 for k in (1, 10, 100))
    for index in (plain, cut):
        index.remove(np.arange(0, 6000, 3))
        index.add(ROWS[:100], np.arange(7000, 7100))
    assert same(cut.search(QUERIES, probes=30), plain.search(QUERIES))
    some = np.arange(1, 6000, 6)
    assert same(cut.search(QUERIES, probes=30, allow=some), plain.search(QUERIES, allow=some))
    cut.save(tmp_path / "index")
    for memory_map in (True, False):
        back = fs.CodeIndex.load(tmp_path / "index", memory_map=memory_map)
        assert back.partitions == 30 and back.facts()["cells"] == cut.facts()["cells"]
        assert same(back.search(QUERIES), cut.search(QUERIES))
        assert same(back.compact().search(QUERIES, probes=30), plain.search(QUERIES))


def test_few_cells_are_looked_at_and_answers_are_full():
    plain, cut = pair(MODELS["quantizer"], rows="float32")
    [[cells, *probes]] = cut.facts()["cells"]
    assert cells == 30 and 1 <= probes[0] <= probes[1] <= probes[2] <= 30 and probes[0] < 15
    assert share(cut.search(QUERIES, probes=1), plain.search(QUERIES)) < share(
        cut.search(QUERIES), plain.search(QUERIES)
    )
    # one cell has some 200 rows: a query looks at all of them where that is too few
    assert same(cut.search(QUERIES, 2000, probes=1), plain.search(QUERIES, 2000))
    assert same(cut.search(QUERIES[:1]), [part[:1] for part in cut.search(QUERIES)])
    assert same(cut.copy().search(QUERIES), cut.search(QUERIES))
    again = plain.search(ROWS[:50], 1)[1]
    assert np.array_equal(cut.search(ROWS[:50], 1)[1], again)
    assert np.array_equal(cut.get(np.arange(50)), ROWS[:50])


def test_cells_by_the_number_of_rows(monkeypatch):
    monkeypatch.setattr(_cells, "LEAST_ROWS", 2500)
    index = fs.CodeIndex(MODELS["quantizer"], partitions="auto")
    index.add(ROWS[:2000])
    assert index.compact().facts()["cells"] == []
    index.add(ROWS[2000:4000])
    assert [cells for cells, *_ in index.compact().facts()["cells"]] == [63]
    assert fs.CodeIndex(MODELS["quantizer"], partitions=100).compact().facts()["cells"] == []


def test_compact_joins_what_saves_leave_apart(monkeypatch, tmp_path):
    for module in (_contents, _segment_room):
        monkeypatch.setattr(module, "SEGMENT_ROWS", 1000)
    plain, cut = fs.CodeIndex(MODELS["quantizer"]), fs.CodeIndex(MODELS["quantizer"], partitions=30)
    for index in (plain, cut):
        index.add(ROWS)
    cut.save(tmp_path / "index")
    assert [cells for cells, *_ in cut.facts()["cells"]] == [30] * 6
    cut.compact().save(tmp_path / "index")
    assert [cells for cells, *_ in cut.facts()["cells"]] == [30]
    assert same(cut.search(QUERIES, probes=30), plain.search(QUERIES))
    for index in (plain, cut):
        index.remove(np.arange(0, 6000, 3))
        index.add(ROWS[:700])
    cut.save(tmp_path / "index")
    assert len(cut.facts()["cells"]) == 2  # what came since is a segment of its own
    back = fs.CodeIndex.load(tmp_path / "index")
    assert same(back.search(QUERIES, probes=30), plain.search(QUERIES))
    monkeypatch.setattr(_contents, "COMPACT_ROWS", 2000)
    assert len(back.compact().facts()["cells"]) == 2  # 4,000 rows that fit in none, and 700
    plain.compact()
    assert len(plain._contents.segments) == 7  # without cells segments stay small, and two of 667 rows do not fit
    assert same(back.search(QUERIES, probes=30), plain.search(QUERIES))


def test_equal_rows_leave_cells_empty():
    model = fs.SketchQuantizer(4).update(ROWS)
    index = fs.CodeIndex(model, partitions=20)
    index.add(np.repeat(ROWS[:3], 50, axis=0))
    index.compact()
    assert index.facts()["cells"][0][0] == 20
    assert index.search(ROWS[:3], 50)[1].tolist() == [list(range(50 * i, 50 * i + 50)) for i in range(3)]


def test_a_model_that_has_moved():
    plain, cut = pair(MODELS["quantizer"])
    moved = fs.SketchQuantizer(8).update(ROWS).update(ROWS @ np.diag(np.linspace(1, 3, 16)).astype(np.float32))
    for index in (plain, cut):
        index.renew(moved).add(ROWS[:3000], np.arange(6000, 9000))
    cut.compact()
    assert len(cut.facts()["cells"]) == 2
    assert same(cut.search(QUERIES, probes=30), plain.search(QUERIES))
    assert share(cut.search(QUERIES), plain.search(QUERIES)) > 0.97
    assert len(cut.reencode(ROWS[np.r_[0:6000, 0:3000]]).facts()["cells"]) == 1
    assert same(cut.compact().search(QUERIES, probes=30), plain.reencode(ROWS[np.r_[0:6000, 0:3000]]).search(QUERIES))


def test_what_is_refused():
    plain, cut = pair(MODELS["quantizer"])
    with pytest.raises(ValueError, match="probes must be at most the 30 cells of a segment, got 31"):
        cut.search(QUERIES, probes=31)
    with pytest.raises(ValueError, match="probes must be at least 1"):
        cut.search(QUERIES, probes=0)
    with pytest.raises(ValueError, match="made with partitions"):
        plain.search(QUERIES, probes=3)
    with pytest.raises(ValueError, match="k must be at most the 6000"):
        cut.search(QUERIES, 6001, probes=3, pad=False)
    for partitions, kind in (("cells", TypeError), (1, ValueError), (_generations.MOST_CELLS + 1, ValueError)):
        with pytest.raises(kind, match="partitions must be"):
            fs.CodeIndex(MODELS["quantizer"], partitions=partitions)
    for model, metric in ((MODELS["hash"], "hamming"), (toy(), "euclidean")):
        with pytest.raises(ValueError, match="partitions needs codes that can be decoded"):
            fs.CodeIndex(model, metric=metric, partitions="auto")


def test_starts_of_cells_that_are_none(tmp_path):
    _, cut = pair(MODELS["quantizer"])
    cells = cut._contents.sealed[0].cells
    for starts in (cells.starts[::-1].copy(), cells.starts + 1):
        broken = cut.copy()
        segment = broken._contents.sealed[0]
        object.__setattr__(segment, "cells", _cells.Cells(cells.middles, starts, cells.probes))
        broken.save(tmp_path / "index", overwrite=True)
        with pytest.raises(StateError, match="its cells must be those of 6000 rows"):
            fs.CodeIndex.load(tmp_path / "index")
        object.__setattr__(segment, "cells", cells)
