"""Convert a function's results for rows to named arrays, and name their columns in a table."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import is_sparse

Fields = dict[str, NDArray[Any]]
Method = Callable[..., Any]

# Kinds of dtype that can be saved without pickle.
KINDS = "biufcSUmM"
# Column names of answers without a name: {method: name}.
WORDS = {
    "encode": "code",
    "predict": "prediction",
    "decision_function": "score",
    "score_samples": "score",
    "predict_proba": "probability",
    "predict_log_proba": "log_probability",
    "apply": "leaf",
}
# Names of several answers that are returned as a tuple: {method: names}.
SEVERAL = {"kneighbors": ("distance", "index"), "search": ("distance", "index")}


class Spec(NamedTuple):
    """The names, dtypes and shapes of a function's results for one row.

    Shapes exclude the axis of rows. A single array has the name "".
    """

    names: tuple[str, ...]
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def row_bytes(self) -> int:
        """Total size in bytes of all results for one row."""
        items = zip(self.dtypes, self.shapes, strict=True)
        return sum(np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64)) for dtype, shape in items)

    def __str__(self) -> str:
        items = zip(self.names, self.dtypes, self.shapes, strict=True)
        return ", ".join(f"{name}{' ' if name else ''}{np.dtype(t)} {(*('n',), *s)}" for name, t, s in items).replace(
            "'n'", "n"
        )


def as_fields(answer: Any, n: int, name: str) -> Fields:
    """Convert a function's `answer` for n rows (an array, a tuple or a mapping) to a dict {name: array}.

    Raises
    ------
    TypeError
        If an array is sparse, masked or of objects.
    ValueError
        If an array does not have n entries.
    """
    several: Mapping[str, Any]
    if isinstance(answer, Mapping):
        several = cast("Mapping[str, Any]", answer)
    elif isinstance(answer, tuple):
        parts = cast("tuple[Any, ...]", answer)
        words = cast("tuple[str, ...]", getattr(parts, "_fields", None) or SEVERAL.get(name, ()))
        if len(words) != len(parts):
            words = tuple(f"{name}_{i}" for i in range(len(parts)))
        several = dict(zip(words, parts, strict=True))
    else:
        several = {"": answer}
    if not several:
        raise ValueError(f"{name} must give at least one array")
    return {str(key): _as_array(value, n, name) for key, value in several.items()}


def _as_array(value: Any, n: int, name: str) -> NDArray[Any]:
    if is_sparse(value):
        raise TypeError(
            f"{name} gives sparse rows, and files of answers hold dense ones: map a function that gives an array"
        )
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name} gives a masked array: fill it first")
    array: NDArray[Any] = np.asarray(value)
    if array.dtype.kind not in KINDS:
        raise TypeError(f"{name} must give numbers or text, got dtype {array.dtype}")
    if array.ndim == 0 or len(array) != n:
        got = "a single value" if array.ndim == 0 else f"{len(array)}"
        raise ValueError(f"{name} must give one answer for each row: got {got} for {n} rows")
    return array


def spec_of(fields: Fields) -> Spec:
    """Return the names, dtypes and row shapes of a dict of result arrays."""
    arrays = fields.values()
    return Spec(tuple(fields), tuple(a.dtype.str for a in arrays), tuple(a.shape[1:] for a in arrays))


# -- names -------------------------------------------------------------------------------------------------------------
def unwrapped(method: Method) -> Method:
    """Return the innermost function of nested ``functools.partial`` objects."""
    while isinstance(method, partial):
        method = cast("Method", method.func)
    return method


def name_of(method: Method) -> str:
    """Return the name of a function or method, for messages and column names."""
    inner = unwrapped(method)
    return str(getattr(inner, "__name__", None) or type(inner).__name__)


def column_names(method: Method, spec: Spec) -> list[list[str]]:
    """Return the table columns for a function's results: a list of names for each array.

    An array of bytes is one column, "code"; one number for each row is "prediction", "score" or the like. Several
    numbers are named after the classes or by ``get_feature_names_out``, otherwise they are numbered from 0.
    """
    inner = unwrapped(method)
    owner, own = getattr(inner, "__self__", None), name_of(method)
    heads: list[list[str]] = []
    for name, dtype, shape in zip(spec.names, spec.dtypes, spec.shapes, strict=True):
        stem = name or WORDS.get(own, own)
        if len(shape) > 1:
            raise ValueError(f"{own} gives rows of shape {shape}: a table takes one number or one row of them each")
        if not shape:
            heads.append([stem])
        elif dtype == "|u1":
            heads.append(["code" if not name and own == "transform" else stem])
        else:
            heads.append(_several_names(owner, own, stem, shape[0]))
    flat = [name for names in heads for name in names]
    if len(set(flat)) < len(flat):
        raise ValueError(f"{own} gives several columns of one name: {sorted({n for n in flat if flat.count(n) > 1})}")
    return heads


def _several_names(owner: Any, own: str, stem: str, width: int) -> list[str]:
    """Return `width` column names for a method's results: class labels, output feature names, or numbered names."""
    if own == "transform" and hasattr(owner, "get_feature_names_out"):
        names = [str(name) for name in owner.get_feature_names_out()]
        if len(names) == width:
            return names
    if own in ("predict_proba", "predict_log_proba", "decision_function"):
        for attribute in ("classes_", "classes"):
            classes = getattr(owner, attribute, None)
            if classes is not None and len(classes) == width:
                return [f"{stem}_{label}" for label in classes]
    return [f"{stem}_{i}" for i in range(width)]
