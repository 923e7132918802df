"""What the user chose, checked; it never changes after construction."""

from dataclasses import asdict, dataclass, replace

import numpy as np

from fastsketch._validation import as_choice, as_dtype, as_integer, as_real
from fastsketch.sketching._compressor import Compressor
from fastsketch.sketching._layout import SOLVERS
from fastsketch.sketching._rules import RULES, rows_spared

# The share of squared singular values that PFD shrinks; 0.2 is what the RFD paper uses (section 6.2).
DEFAULT_BETA = 0.2


@dataclass(frozen=True)
class SketchConfig:
    """Parameters of a sketch in the order of FrequentDirections; solver may still be "auto"."""

    sketch_size: int
    rule: str = "fd"
    alpha0: float = 0.0
    beta: float | None = None
    buffer_size: int | None = None
    solver: str = "auto"
    center: bool = False
    decay: float = 1.0
    dtype: str | None = None
    compressor: Compressor | None = None

    @classmethod
    def checked(cls, sketch_size, rule, alpha0, beta, buffer_size, solver, center, decay, dtype, compressor=None):
        """Return a config, or raise TypeError / ValueError naming the argument."""
        sketch_size = as_integer(sketch_size, "sketch_size", 2)
        rule = as_choice(rule, "rule", tuple(RULES))
        alpha0 = as_real(alpha0, "alpha0", 0.0, np.finfo(float).max)
        if alpha0 and not RULES[rule].regularises:
            raise ValueError(f"alpha0 belongs to rule='rfd', got alpha0={alpha0:g} with rule={rule!r}")
        if beta is not None:
            if rule != "pfd":
                raise ValueError(f"beta belongs to rule='pfd', got beta={beta!r} with rule={rule!r}")
            beta = as_real(beta, "beta", 0.0, 1.0)
        elif rule == "pfd":
            beta = DEFAULT_BETA
        if not isinstance(center, bool | np.bool_):
            raise TypeError(f"center must be True or False, got {center!r}")
        if buffer_size is not None:
            # a centred block needs room for its correction row
            buffer_size = as_integer(buffer_size, "buffer_size", 1 if center else 0)
        solver = as_choice(solver, "solver", ("auto", *SOLVERS))
        decay = as_real(decay, "decay", 0.0, 1.0, low_open=True)
        dtype = as_dtype(dtype)
        compressor = as_compressor(compressor)
        if compressor is not None and decay != 1.0:
            raise ValueError(f"decay must be 1 with a compressor, which mixes rows of a chunk, got {decay:g}: use fade")
        return cls(
            sketch_size,
            rule,
            alpha0,
            beta,
            buffer_size,
            solver,
            bool(center),
            decay,
            None if dtype is None else dtype.name,
            compressor,
        )

    @property
    def rows_spared(self):
        return rows_spared(self.rule, self.sketch_size, self.beta)

    def plain(self, buffer_size):
        """The same rule for one shrink of settled rows: neither decay nor centring."""
        return replace(self, buffer_size=buffer_size, solver="gram", center=False, decay=1.0, compressor=None)

    def uncompressed(self, buffer_size):
        """The sketch behind a compressor: chunks come centred."""
        return replace(self, buffer_size=buffer_size, center=False, compressor=None)

    def dense(self, buffer_size):
        """The same sketch with a dense buffer of this size."""
        return replace(self, buffer_size=buffer_size, solver="gram")

    def resolved(self, solver, buffer_size=None):
        """The same parameters with the solver that is used, and the buffer size if it is known."""
        return replace(self, solver=solver, buffer_size=self.buffer_size if buffer_size is None else buffer_size)

    def as_dict(self):
        return asdict(self)


def as_compressor(value):
    """None, or a Compressor: given as one, by its kind, or as the dict that a state file holds."""
    if value is None or isinstance(value, Compressor):
        return value
    if isinstance(value, str):
        return Compressor(value)
    if isinstance(value, dict):
        return Compressor(**value)
    raise TypeError(f"compressor must be a Compressor, the name of a kind or None, got {type(value).__name__}")
