"""The frame: a model of a few lines has everything that a model of the library has."""

import copy
import inspect
import io
import json
import pickle

import numpy as np
import pytest

import fastsketch as fs
from fastsketch._frame.model import Arrays, MergeableModel
from fastsketch._frame.parameters import choice, flag, float_dtype, integer, parameter, real, seed
from fastsketch._kernels.guard import changes
from fastsketch.cli import main
from fastsketch.data.sources import Source, _source
from fastsketch.data.sources._arrays import ArraySource


class Total(MergeableModel):
    """Weighted sum of rows."""

    width: int = integer(default=2, at_least=1, kw_only=False)
    scale: float = real(default=1.0, low=0.0, low_open=True)
    mode: str = choice(("sum", "mean"), default="sum")
    square: bool = flag(default=False)
    limits: tuple[float, float] | None = parameter(lambda value, name: (float(value[0]), float(value[1])), default=None)
    seed: int = seed(default=0)
    dtype: np.dtype | None = float_dtype(default=None)

    def _check(self):
        if self.square and self.mode == "mean":
            raise ValueError("square goes with mode='sum' alone")

    def _begin(self):
        self._sum, self._n = None, 0

    @changes
    def update(self, rows, sample_weight=None):
        return self._take_rows(rows, sample_weight)

    def _update(self, rows, sample_weight):
        rows = np.atleast_2d(rows)
        if not np.isfinite(rows).all():
            raise ValueError(f"rows must be finite: row {np.argmin(np.isfinite(rows).all(axis=1))} is not")
        weights = np.ones(len(rows)) if sample_weight is None else sample_weight
        self._sum = weights @ rows * self.scale + (0 if self._sum is None else self._sum)
        self._n += len(rows)

    def _state(self):
        return {"n": self._n}, {} if self._sum is None else {"sum": self._sum}

    def _restore(self, state, arrays: Arrays):
        self._n, self._sum = state["n"], arrays.get("sum")

    def _merge(self, other):
        self._sum, self._n = self._sum + other._sum, self._n + other._n

    def _resolved(self):
        return {} if self._sum is None else {"dtype": self._sum.dtype}

    def _facts(self):
        return {"largest": None if self._sum is None else self._sum.max()}

    @property
    def n_rows(self):
        return self._n

    @property
    def n_features(self):
        return None if self._sum is None else len(self._sum)


def learned(**parameters):
    return Total(**parameters).update(np.arange(6.0).reshape(3, 2))


def same(one, two):
    return one.to_bytes() == two.to_bytes()


def test_parameters_are_verbatim_and_make_the_same_model():
    model = learned(scale=2, limits=[1, 2], dtype="float32")
    assert model.scale == 2.0 and model.limits == (1.0, 2.0) and model.dtype == np.float32
    assert type(model)(**model.parameters).parameters == model.parameters
    assert list(model.parameters) == ["width", "scale", "mode", "square", "limits", "seed", "dtype"]
    assert learned().dtype is None and learned().resolved["dtype"] == np.float64
    with pytest.raises(AttributeError, match="scale does not change after construction"):
        model.scale = 3.0


def test_the_constructor_has_its_signature():
    signature = inspect.signature(Total)
    assert [p.name for p in signature.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD] == ["width"]
    assert signature.parameters["scale"].default == 1.0 and signature.parameters["scale"].kind.name == "KEYWORD_ONLY"
    assert Total(5).width == 5


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"scal": 1.0}, TypeError, r"Total\(\) has no parameter 'scal': did you mean 'scale'\?"),
        ({"qqqq": 1.0}, TypeError, r"Total\(\) has no parameter 'qqqq': it has width, scale, mode"),
        ({"rows": 1.0}, TypeError, r"Total\(\) has no parameter 'rows': update takes it$"),
        ({"mode": "median"}, ValueError, r"mode must be one of 'sum', 'mean', got 'median'"),
        ({"scale": 0.0}, ValueError, r"scale must lie in \(0, 1e\+300\], got 0"),
        ({"width": 0}, ValueError, r"width must be at least 1, got 0"),
        ({"seed": 2**64}, ValueError, r"seed must be below 2\*\*64"),
        ({"seed": None}, TypeError, r"seed must be an integer, got None"),
        ({"square": 1}, TypeError, r"square must be True or False, got 1"),
        ({"dtype": "int8"}, ValueError, r"dtype must be float32 or float64, got int8"),
        ({"square": True, "mode": "mean"}, ValueError, r"square goes with"),
    ],
)
def test_wrong_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        Total(**arguments)


def test_too_many_positional_arguments_are_refused():
    with pytest.raises(TypeError, match=r"takes at most 1 positional \(width\), got 2"):
        Total(1, 2.0)
    with pytest.raises(TypeError, match="more than two positional parameters"):

        class Three(MergeableModel, abstract=True):
            a: int = integer(default=0, kw_only=False)
            b: int = integer(default=0, kw_only=False)
            c: int = integer(default=0, kw_only=False)


@pytest.mark.parametrize(
    "twin",
    [
        lambda model: model.copy(),
        copy.copy,
        copy.deepcopy,
        lambda model: pickle.loads(pickle.dumps(model)),
        lambda model: fs.from_bytes(model.to_bytes()),
    ],
    ids=["copy", "copy.copy", "deepcopy", "pickle", "bytes"],
)
def test_twins_are_equal_and_independent(twin):
    model = learned(scale=2.0)
    model.notes = {"from": ["here"]}
    before = model.to_bytes()
    other = twin(model)
    assert same(other, model) and type(other) is Total
    other.update([1.0, 1.0])
    other.notes["from"].append("there")
    assert model.to_bytes() == before and not same(other, model)
    assert same(twin(Total()), Total())


def test_save_and_load(tmp_path):
    model = learned()
    model.save(tmp_path / "total.fsk")
    assert same(fs.load(tmp_path / "total.fsk"), model)
    assert same(Total.load(tmp_path / "total.fsk"), model)
    with pytest.raises(fs.StateError, match="holds a Total, not a FrequentDirections"):
        fs.FrequentDirections.load(tmp_path / "total.fsk")


def test_merging_by_the_frame_alone():
    parts = [Total().update(np.full((2, 3), float(k))) for k in range(5)]
    for engine in ("serial", "threads"):
        out = fs.merge(parts, engine=engine)
        assert out.n_rows == 10 and np.array_equal(out._sum, [20.0] * 3)
    assert same(Total().merge(parts[0]), parts[0]) and same(parts[0].copy().merge(Total()), parts[0])
    before = parts[0].to_bytes()
    for other, message in (
        (Total(scale=2.0).update([1.0, 1.0, 1.0]), "other has scale=2.0, this model has 1.0: they cannot be merged"),
        (Total().update([1.0]), "other has n_features=1, this model has 3"),
    ):
        with pytest.raises(ValueError, match=message):
            parts[0].merge(other)
    with pytest.raises(TypeError, match="other must be a Total, got str"):
        parts[0].merge("no model")
    assert parts[0].to_bytes() == before
    with pytest.raises(ValueError, match="at least one model"):
        fs.merge([])
    with pytest.raises(TypeError, match="models that merge, got int"):
        fs.merge([1, 2])


def test_facts_are_what_info_prints(tmp_path, capsys):
    model = learned(scale=2.0)
    assert model.facts() == {
        "kind": "Total",
        "n_rows": 3,
        "n_features": 2,
        "width": 2,
        "scale": 2.0,
        "mode": "sum",
        "square": False,
        "seed": 0,
        "dtype": "float64",
        "largest": 18.0,
    }
    model.save(tmp_path / "total.fsk")
    assert main(["info", str(tmp_path / "total.fsk"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {**model.facts(), "notes": {}}
    assert main(["info", str(tmp_path / "total.fsk")]) == 0
    assert "kind" in capsys.readouterr().out


def test_repr_shows_what_was_given():
    assert repr(learned(scale=2.0)) == "<Total(scale=2.0): 3 rows of 2 features>"
    assert repr(Total()) == "<Total(): no rows yet>"


def test_models_of_one_name_are_told_apart_by_their_modules():
    ours = fs.FrequentDirections(3).update([[1.0, 2.0]])
    theirs = type("FrequentDirections", (Total,), {"__module__": "elsewhere"})().update([[1.0, 2.0]])
    assert type(fs.from_bytes(ours.to_bytes())) is fs.FrequentDirections
    assert type(fs.from_bytes(theirs.to_bytes())) is type(theirs)


def test_what_would_bypass_the_declarations_is_refused():
    with pytest.raises(TypeError, match="must not define __init__"):
        type("Own", (Total,), {"__init__": lambda self: None})
    with pytest.raises(TypeError, match="Plain.scale is a parameter"):
        type("Plain", (Total,), {"scale": 3.0})
    mixin = type("Mixin", (), {"more": integer(default=7)})
    mixed = type("Mixed", (mixin, Total), {})
    assert mixed(more=8, scale=2.0).parameters["more"] == 8 and mixed().parameters["width"] == 2
    for one, other in ((Total(), mixed()), (mixed(), Total())):
        with pytest.raises(ValueError, match="other has more"):
            one.update([1.0]).merge(other.update([1.0]))


def test_unpickled_arrays_are_their_own():
    model = learned()
    buffers: list[pickle.PickleBuffer] = []
    content = pickle.dumps(model, 5, buffer_callback=buffers.append)
    for held in (buffers, [bytes(buffer) for buffer in buffers]):
        twin = pickle.loads(content, buffers=held)
        assert twin._sum.flags.writeable and not np.shares_memory(twin._sum, model._sum)


@pytest.mark.parametrize("source", [3, None, b"bytes"])
def test_load_names_a_source_that_is_none(source):
    with pytest.raises(TypeError, match="source must be a path or an open binary file"):
        fs.load(source)


def test_a_kind_that_is_not_known_is_a_state_error():
    content = learned().to_bytes().replace(b"Total", b"Totel")
    with pytest.raises(fs.StateError):
        fs.from_bytes(content)


# -- rows of any kind, and the names of their columns ------------------------------------------------------------------
class Pieces(Source):
    """Rows in chunks of three, which may end in an interrupt."""

    def __init__(self, rows, names=None, fails_after=None, counted=True):
        self.name, self.n_rows, self.n_features = "the pieces", len(rows) if counted else None, rows.shape[1]
        self.feature_names, self._rows, self._fails = names, rows, fails_after

    def read(self, start_row=0):
        for start in range(start_row, len(self._rows), 3):
            if self._fails is not None and start >= self._fails:
                raise KeyboardInterrupt
            yield self._rows[start : start + 3], start + 3


ROWS = np.arange(24.0).reshape(12, 2)
AB = ("a", "b")


def named_rows(names, rows=ROWS):
    source = ArraySource(rows)
    source.feature_names = names
    return source


def test_a_source_is_learned_from_whole():
    whole = Total().update(ROWS)
    weights = np.arange(12.0)
    for counted in (True, False):
        assert same(Total().update(Pieces(ROWS, counted=counted)), whole)
        weighted = Total().update(Pieces(ROWS, counted=counted), weights)
        assert same(weighted, Total().update(ROWS, weights))
    assert same(Total().update(Pieces(ROWS), 2.0), Total().update(ROWS, np.full(12, 2.0)))
    model = Total()
    model.notes["mine"] = 1
    notes, guard = model.notes, model._guard
    assert model.update(Pieces(ROWS)).update(ROWS).n_rows == 24
    assert model.notes is notes and model._guard is guard


@pytest.mark.parametrize("begun", [False, True])
def test_a_source_is_learned_from_whole_or_not_at_all(begun):
    bad = ROWS.copy()
    bad[7, 1] = np.nan
    model = Total().update(named_rows(AB)) if begun else Total()
    before, names = model.to_bytes(), model.feature_names
    for source, error, message in (
        (Pieces(ROWS, AB, fails_after=6), KeyboardInterrupt, None),
        (Pieces(bad, AB), ValueError, "the pieces: rows must be finite: row 7 is not"),
        (named_rows(AB, bad), ValueError, "row 7"),  # one chunk: nothing is copied
    ):
        with pytest.raises(error, match=message):
            model.update(source)
        assert model.to_bytes() == before and model.feature_names == names
    for counted in (True, False):
        for n in (11, 13):
            with pytest.raises(ValueError, match="sample_weight must have one entry for each"):
                model.update(Pieces(ROWS, counted=counted), np.ones(n))
    assert model.to_bytes() == before
    if begun:
        with pytest.raises(ValueError, match="the pieces must have 2 columns as the rows before, got 1"):
            model.update(Pieces(ROWS[:, :1]))


@pytest.mark.parametrize(
    "twin",
    [
        lambda model: model.copy(),
        copy.deepcopy,
        lambda model: pickle.loads(pickle.dumps(model)),
        lambda model: fs.from_bytes(model.to_bytes()),
        lambda model: Total().merge(model),
        lambda model: Total().update([0.0, 0.0]).merge(model),
        lambda model: fs.merge([model, Total().update([1.0, 1.0])]),
    ],
    ids=["copy", "deepcopy", "pickle", "bytes", "into an empty one", "into another", "merged"],
)
def test_names_of_columns_go_where_the_state_goes(twin):
    model = Total().update(ROWS)
    assert model.feature_names is None and "feature_names" not in model.facts()
    model.update(named_rows(AB)).update(ROWS)
    assert model.feature_names == AB == twin(model).feature_names
    assert model.facts()["feature_names"] == ["a", "b"]


def test_names_of_columns_are_checked():
    model = Total().update(named_rows(AB))
    before = model.to_bytes()
    for names, message in (
        (("b", "a"), "in their order: column 0 is 'b', it was 'a'; give the columns in that order"),
        (("a", "c"), "column 1 is 'c', it was 'b'; these are not the columns that the model has learned from"),
        (("a", "b", "c"), "the 2 columns that came before, got 3: unknown are 'c': choose them by name"),
        (("b",), "the 2 columns that came before, got 1: missing are 'a'"),
    ):
        with pytest.raises(ValueError, match=message):
            model.update(named_rows(names, np.ones((4, len(names)))))
        if len(names) == 2:
            with pytest.raises(ValueError, match="the columns of other must have the columns that came before"):
                model.merge(Total().update(named_rows(names)))
    assert model.to_bytes() == before


def test_names_in_a_file_are_checked():
    about, arrays = fs.data.files._state.read(io.BytesIO(learned().update(named_rows(AB)).to_bytes()))
    about = {name: about[name] for name in ("kind", "home", "parameters", "notes", "state", "feature_names")}
    assert fs.from_bytes(fs.data.files._state.pack(about, arrays)).feature_names == AB
    for names in (["a"], "ab", [1, 2], {"a": 0, "b": 1}):
        with pytest.raises(fs.StateError, match="feature_names must be"):
            fs.from_bytes(fs.data.files._state.pack({**about, "feature_names": names}, arrays))


def test_tables_have_names():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(ROWS, columns=["a", "b"])
    model = Total().update(table)
    assert model.feature_names == AB and np.array_equal(model._sum, ROWS.sum(axis=0))
    assert Total().update(pd.DataFrame(ROWS)).feature_names is None
    with pytest.raises(TypeError, match="all strings, or none"):
        Total().update(pd.DataFrame(ROWS, columns=["a", 1]))
    with pytest.raises(ValueError, match="column 0 is 'b', it was 'a'"):
        model.update(table[["b", "a"]])


@pytest.mark.parametrize("kind", [fs.FrequentDirections, fs.SketchHash, fs.SketchQuantizer, fs.SketchedEASE])
def test_rows_that_lie_elsewhere_are_read_in_chunks(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(_source, "CHUNK_BYTES", 1600)
    rows = np.random.default_rng(0).random((500, 8))
    np.save(tmp_path / "rows.npy", rows)
    lengths = []

    class Elsewhere:
        shape, ndim, dtype = rows.shape, 2, rows.dtype

        def __getitem__(self, place):
            out = rows[place]
            lengths.append(len(out))
            return out

        def __array__(self, *_, **__):
            raise AssertionError("loaded whole")

    whole = kind(3).update(rows)
    for given in (Elsewhere(), np.load(tmp_path / "rows.npy", mmap_mode="r"), fs.open_rows(tmp_path / "rows.npy")):
        assert same(kind(3).update(given), whole)
    assert sum(lengths) == 500 and max(lengths) <= 25
