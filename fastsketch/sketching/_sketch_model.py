"""The parameters and the state of a sketch, and how a file holds them."""

from copy import deepcopy
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fastsketch._core.validation import MOST_SIZE, as_choice, as_dtype, as_integer
from fastsketch._frame.model import Arrays, MergeableModel
from fastsketch._frame.parameters import choice, flag, float_dtype, integer, parameter, real
from fastsketch.data.files import _checks as checks
from fastsketch.sketching._engines import (
    AnyEngine,
    EngineSetting,
    MappedEngine,
    Reference,
    SolverName,
    SparseEngine,
    Tolerance,
    kind_for,
)
from fastsketch.sketching._methods import METHODS, MethodName
from fastsketch.sketching._random_maps import Compressor, as_compressor
from fastsketch.sketching._read_out import SketchReadOut
from fastsketch.sketching._second_pass import CERTAIN, validate_refined
from fastsketch.sketching._sized_map import MapKind

MOST = float(np.finfo(np.float64).max)
# l of a sketch that grows to a tolerance: a start costs little where it is too small, and much where it is too large.
START_SIZE = 4


class SketchModel(MergeableModel, abstract=True):
    """Parameters of Frequent Directions (documented there) and the state: an engine with the rows, a last read-out."""

    sketch_size: int = integer(default=64, at_least=2, below=MOST_SIZE, kw_only=False)
    method: MethodName = choice(tuple(METHODS), default="rfd")
    alpha0: float = real(default=0.0, high=MOST)
    beta: float | None = real(default=None, high=1.0)
    buffer_size: int | None = integer(default=None, below=MOST_SIZE)
    solver: SolverName = choice(("auto", "gram", "svd", "exact"), default="auto")
    center: bool = flag(default=False)
    decay: float = real(default=1.0, high=1.0, low_open=True)
    dtype: DTypeLike | None = float_dtype(default=None)
    compressor: Compressor | MapKind | None = parameter(as_compressor, default=None)

    tolerance: float | None = real(default=None, high=1.0, low_open=True, high_open=True)
    tolerance_relative_to: Reference = choice(("squared_norm", "largest_eigenvalue"), default="squared_norm")
    max_sketch_size: int | None = integer(default=None, at_least=2, below=MOST_SIZE)

    def _set_up(self, given: dict[str, Any]) -> None:
        if given.get("tolerance") is not None and "sketch_size" not in given:
            most = given.get("max_sketch_size")
            start = START_SIZE if most is None else min(START_SIZE, as_integer(most, "max_sketch_size", 2))
            given = {**given, "sketch_size": start}
        super()._set_up(given)

    def _check(self) -> None:
        if self.tolerance is None:
            if self.max_sketch_size is not None:
                raise ValueError(f"max_sketch_size belongs to tolerance, got {self.max_sketch_size} without one")
            if self.tolerance_relative_to != "squared_norm":
                raise ValueError(
                    f"tolerance_relative_to belongs to tolerance, got {self.tolerance_relative_to!r} without one"
                )
        elif self.compressor is not None:
            raise ValueError("tolerance does not go with a compressor: its error is not in the certificate")
        elif self.max_sketch_size is not None and self.max_sketch_size < self.sketch_size:
            raise ValueError(
                f"max_sketch_size must be at least sketch_size={self.sketch_size}, got {self.max_sketch_size}"
            )
        if self.alpha0 and not METHODS[self.method].regularises:
            raise ValueError(f"alpha0 belongs to method='rfd', got alpha0={self.alpha0:g} with method={self.method!r}")
        if self.beta is not None and not METHODS[self.method].takes_beta:
            raise ValueError(
                f"beta belongs to method='pfd' or 'tfd', got beta={self.beta!r} with method={self.method!r}"
            )
        if self.center and self.buffer_size == 0:
            raise ValueError("buffer_size must be at least 1 with center=True: a block needs a row for its mean")
        if self.compressor is not None and self.decay != 1.0:
            raise ValueError(
                f"decay must be 1 with a compressor, which mixes rows of a block, got {self.decay:g}: use fade"
            )

    def _begin(self) -> None:
        self._method = method = METHODS[self.method]
        self._setting = EngineSetting(
            self.sketch_size,
            share_lowered=method.share_lowered if self.beta is None else self.beta,
            ledger=method.tracks,
            buffer_size=self.buffer_size,
            solver=self.solver,
            center=self.center,
            decay=self.decay,
            compressor=Compressor(self.compressor) if isinstance(self.compressor, str) else self.compressor,
            tolerance=None
            if self.tolerance is None
            else Tolerance(
                self.tolerance,
                self.tolerance_relative_to,
                counts=method.error_bound(1.0),
                largest=self.max_sketch_size,
                chooses=self.solver == "auto",
            ),
        )
        self._warned = False
        self._engine: AnyEngine | None = None
        self._reading: SketchReadOut | None = None
        # of a second pass, in squared units of the rows: the part of Delta that the kept directions have not lost;
        # upper ends of the leading eigenvalues of A'A, and estimates, which hold until more comes in
        self._regained = 0.0
        self._certain_high: NDArray[np.float64] | None = None
        self._estimates: NDArray[np.float64] | None = None

    # -- the engine ------------------------------------------------------------------------------------------------
    def _seen_engine(self) -> AnyEngine:
        if self._engine is None:
            raise ValueError("the sketch has seen no rows: call update first")
        return self._engine

    def _replace(
        self,
        engine: AnyEngine,
        regained: float,
        certain_high: NDArray[np.float64] | None = None,
        estimates: NDArray[np.float64] | None = None,
    ) -> None:
        """Take another engine, and what is known beside it, all at once."""
        known = regained, certain_high, estimates
        (self._engine, self._reading), (self._regained, self._certain_high, self._estimates) = (engine, None), known

    def _is_exact(self) -> bool:
        return self._seen_engine().setting.solver == "exact"

    @property
    def n_rows(self) -> int:
        """Return the number of rows seen."""
        return 0 if self._engine is None else self._engine.n_rows

    @property
    def n_features(self) -> int | None:
        """Return the number d of columns; None before the first batch."""
        return None if self._engine is None else self._engine.n_features

    def _copied(self) -> Self:
        other = type(self)(**self.parameters)
        other.notes, other._feature_names = deepcopy(self.notes), self._feature_names
        if self._engine is not None:
            certain = [None if array is None else array.copy() for array in (self._certain_high, self._estimates)]
            other._replace(self._engine.clone(), self._regained, *certain)
        return other

    # -- files -----------------------------------------------------------------------------------------------------
    @property
    def _beta(self) -> float | None:
        return self._method.share_lowered if self.beta is None and self._method.takes_beta else self.beta

    def _resolved(self) -> dict[str, Any]:
        out: dict[str, Any] = {"beta": self._beta, "compressor": self._setting.compressor}
        if self.tolerance is None:
            out["tolerance_relative_to"] = None
        engine = self._engine
        if engine is not None:
            out.update(
                solver=engine.setting.solver,
                sketch_size=engine.setting.sketch_size,
                buffer_size=engine.capacity - engine.setting.sketch_size,
                dtype=engine.dtype,
                compressor=engine.compressor,
            )
        return out

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        engine = self._engine
        if engine is None:
            return {"engine": None}, {}
        about = {
            "kind": engine.kind,
            "solver": engine.setting.solver,
            "n_features": engine.n_features,
            "sketch_size": engine.setting.sketch_size,
            "buffer_size": engine.capacity - engine.setting.sketch_size,
            "dtype": engine.dtype.name,
        }
        arrays = engine.arrays()
        if self._regained:
            arrays["regained"] = np.array([self._regained])
        for name, array in (("certain_high", self._certain_high), ("estimates", self._estimates)):
            if array is not None:
                arrays[name] = array
        return {"engine": about}, arrays

    def _validate(self, state: dict[str, Any], arrays: Arrays) -> None:
        about = state["engine"]
        if about is None:
            checks.only(arrays)
            return
        setting = self._setting_of(about)
        engine = kind_for(setting, sparse=about["kind"] == SparseEngine.kind)
        if engine.kind != about["kind"]:
            raise ValueError(
                f"a sketch of these parameters has no {about['kind']!r} rows with solver {setting.solver!r}"
            )
        size = setting.sketch_size  # merges make it larger, a tolerance also smaller
        if self.max_sketch_size is not None and size > self.max_sketch_size:
            raise ValueError(f"its rows have sketch_size={size}, its parameters max_sketch_size={self.max_sketch_size}")
        if size < self.sketch_size and self.tolerance is None:
            raise ValueError(f"sketch_size must be at least that of its parameters, {self.sketch_size}, got {size}")
        for name, given, mine in (
            ("sketch_size", size, None if self.compressor is None else self.sketch_size),
            ("solver", setting.solver, None if self.solver == "auto" else self.solver),
            ("buffer_size", setting.buffer_size, None if setting.solver == "exact" else self.buffer_size),
            ("dtype", as_dtype(about["dtype"]), self.dtype),
        ):
            if mine is not None and given != mine:
                raise ValueError(f"its rows have {name}={given}, its parameters {name}={mine}")
        d = as_integer(about["n_features"], "n_features", 1, checks.MOST_COLUMNS)
        own = {name: array for name, array in arrays.items() if name not in CERTAIN}
        engine.validate(own, setting, d, dtype=as_dtype(about["dtype"]))
        validate_refined(arrays, setting.sketch_size)

    def _setting_of(self, about: dict[str, Any]) -> EngineSetting:
        # the buffer as it was, also where a later version has another default: a resume is to give the same bits
        least = 1 if self.center and self.compressor is None else 0  # centring needs a row of its own
        solver = as_choice(about["solver"], "solver", ("gram", "svd", "exact"))
        size = as_integer(about["sketch_size"], "sketch_size", 2)
        setting = self._setting.of_size(size).resolved(solver)
        buffer_size = as_integer(about["buffer_size"], "buffer_size", least)
        engine = kind_for(setting, sparse=about["kind"] == SparseEngine.kind)
        if not issubclass(engine, MappedEngine) and engine.capacity_for(setting) == size + buffer_size:
            return setting  # which goes on growing as if it had not been saved
        if issubclass(engine, SparseEngine):
            wide = engine.for_features(setting, as_integer(about["n_features"], "n_features", 1))
            if engine.capacity_for(wide) == size + buffer_size:
                return wide
        return setting.resolved(solver, buffer_size)

    def _restore(self, state: dict[str, Any], arrays: Arrays) -> None:
        about = state["engine"]
        self._engine = self._reading = self._certain_high = self._estimates = None
        self._regained = 0.0
        if about is not None:
            setting = self._setting_of(about)
            kind = kind_for(setting, sparse=about["kind"] == SparseEngine.kind)
            engine = kind(setting, about["n_features"], dtype=as_dtype(about["dtype"]))
            engine.restore(arrays)
            self._engine = engine
            if "regained" in arrays:
                self._regained = float(arrays["regained"][0])
            self._certain_high, self._estimates = arrays.get("certain_high"), arrays.get("estimates")
