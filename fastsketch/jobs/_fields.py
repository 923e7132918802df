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
DEFAULT_NAMES = {
    "encode": "code",
    "predict": "prediction",
    "decision_function": "score",
    "score_samples": "score",
    "predict_proba": "probability",
    "predict_log_proba": "log_probability",
    "apply": "leaf",
}
# Names of several answers that are returned as a tuple: {method: names}.
TUPLE_NAMES = {"kneighbors": ("distance", "index"), "search": ("distance", "index")}


class Spec(NamedTuple):
    """Description of a function's results for one row: names, dtypes and shapes. Output files are created from it.

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
        """Format names, dtypes and shapes for a message."""
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
    values_by_name: Mapping[str, Any]
    if isinstance(answer, Mapping):
        values_by_name = cast("Mapping[str, Any]", answer)
    elif isinstance(answer, tuple):
        values = cast("tuple[Any, ...]", answer)
        names = cast("tuple[str, ...]", getattr(values, "_fields", None) or TUPLE_NAMES.get(name, ()))
        if len(names) != len(values):
            names = tuple(f"{name}_{i}" for i in range(len(values)))
        values_by_name = dict(zip(names, values, strict=True))
    else:
        values_by_name = {"": answer}
    if not values_by_name:
        raise ValueError(f"{name} must give at least one array")
    return {str(key): _as_array(value, n, name) for key, value in values_by_name.items()}


def _as_array(value: Any, n: int, name: str) -> NDArray[Any]:
    """Convert one result of a function for n rows to an array. TypeError or ValueError if it cannot be saved."""
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
        found = "a single value" if array.ndim == 0 else f"{len(array)}"
        raise ValueError(f"{name} must give one answer for each row: got {found} for {n} rows")
    return array


def spec_of(fields: Fields) -> Spec:
    """Return the names, dtypes and row shapes of a dict of result arrays."""
    arrays = fields.values()
    return Spec(tuple(fields), tuple(a.dtype.str for a in arrays), tuple(a.shape[1:] for a in arrays))


# -- names -------------------------------------------------------------------------------------------------------------
def unwrap_partial(method: Method) -> Method:
    """Return the innermost function of nested ``functools.partial`` objects."""
    while isinstance(method, partial):
        method = cast("Method", method.func)
    return method


def name_of(method: Method) -> str:
    """Return the name of a function or method, for messages and column names."""
    inner = unwrap_partial(method)
    return str(getattr(inner, "__name__", None) or type(inner).__name__)


def column_names(method: Method, spec: Spec) -> list[list[str]]:
    """Return the table columns for a function's results: a list of names for each array.

    An array of bytes is one column, "code"; one number for each row is "prediction", "score" or the like. Several
    numbers are named after the classes or by ``get_feature_names_out``, otherwise they are numbered from 0.
    """
    inner = unwrap_partial(method)
    owner, method_name = getattr(inner, "__self__", None), name_of(method)
    names_by_array: list[list[str]] = []
    for name, dtype, shape in zip(spec.names, spec.dtypes, spec.shapes, strict=True):
        stem = name or DEFAULT_NAMES.get(method_name, method_name)
        if len(shape) > 1:
            raise ValueError(
                f"{method_name} gives rows of shape {shape}: a table takes one number or one row of them each"
            )
        if not shape:
            names_by_array.append([stem])
        elif dtype == "|u1":
            names_by_array.append(["code" if not name and method_name == "transform" else stem])
        else:
            names_by_array.append(_numbered_or_class_names(owner, method_name, stem, shape[0]))
    flat = [name for names in names_by_array for name in names]
    if len(set(flat)) < len(flat):
        raise ValueError(
            f"{method_name} gives several columns of one name: {sorted({n for n in flat if flat.count(n) > 1})}"
        )
    return names_by_array


def _numbered_or_class_names(owner: Any, method_name: str, stem: str, width: int) -> list[str]:
    """Return `width` column names for the results of a method: the names of classes if they are known, else numbered
    ones.

    These are the names of ``get_feature_names_out``, `stem` with the class labels, or `stem` with numbers from 0.
    """
    if method_name == "transform" and hasattr(owner, "get_feature_names_out"):
        names = [str(name) for name in owner.get_feature_names_out()]
        if len(names) == width:
            return names
    if method_name in ("predict_proba", "predict_log_proba", "decision_function"):
        for attribute in ("classes_", "classes"):
            classes = getattr(owner, attribute, None)
            if classes is not None and len(classes) == width:
                return [f"{stem}_{label}" for label in classes]
    return [f"{stem}_{i}" for i in range(width)]
