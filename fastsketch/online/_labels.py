"""Class labels of online models: validation, numbering, and counts of the rows of each class.

Classes are numbered in the order of their first rows, so that batches do not matter; the public attribute `classes` is
sorted. Labels are integers (also as floats), bools or strings; True, 1 and 1.0 are the same label.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.sparse import without_long_double
from fastsketch._core.validation import as_real, refuse_final_nul, require_array_like, to_numpy
from fastsketch._kernels.online.few_rows import SINGLE
from fastsketch.data.files import _checks as checks
from fastsketch.online._state_arrays import Counts, Floats

Label = bool | int | float | str
ClassWeight = Literal["balanced"] | dict[Label, float] | None

# From this size on float64 does not distinguish neighbouring integers.
MAX_LABEL = 2**53
# Maximum number of classes that are not given as `classes`: more are probably real targets, and each has a state.
MAX_CLASSES = 1000
# Kinds of numeric labels, for the dtype of `classes`; a later kind can represent the earlier ones.
NUMERIC_KINDS = ("bool", "int", "float")
KINDS = (*NUMERIC_KINDS, "str")
# Up to this number of rows labels are looked up one by one.
MAX_ROWS_BY_LOOKUP = 16
# Expected number of runs in shuffled rows from which on the order of the labels is judged: with fewer, half as many
# runs may be chance. The standard deviation of their number is about sqrt(n) / 2 (Wald and Wolfowitz 1940).
MIN_EXPECTED_RUNS = 50
# Number of rows between two checks of the order of the labels.
ROWS_PER_ORDER_CHECK = 64


class NewClasses(NamedTuple):
    """Classes that appear for the first time in a batch, in the order of their first rows."""

    rows: list[int]
    labels: list[Label]
    kind: str | None = None


NO_NEW_CLASSES = NewClasses([], [])


class ClassTally(NamedTuple):
    """Counts of the rows of each class, and the number of runs, stretches of consecutive rows of one class."""

    rows: list[int]
    runs: int = 0
    last: int | None = None  # class of the last row

    def with_rows(self, numbers: Counts, n_classes: int) -> "ClassTally":
        """Return updated counts that include rows with the given class numbers; this object stays unchanged.

        numbers (n,) are below n_classes.
        """
        rows, runs, last = self.rows.copy(), self.runs, self.last
        if n_classes > len(rows):
            rows += [0] * (n_classes - len(rows))
        if len(numbers) <= MAX_ROWS_BY_LOOKUP:  # much faster than NumPy
            for number in numbers.tolist():
                rows[number] += 1
                runs += number != last
                last = number
            return ClassTally(rows, runs, last)
        rows = (np.bincount(numbers, minlength=n_classes) + rows).tolist()
        runs += int(numbers[0] != last) + int(np.count_nonzero(numbers[1:] != numbers[:-1]))
        return ClassTally(rows, runs, int(numbers[-1]))

    def shuffled_runs(self) -> float:
        """Return the expected number of runs if the rows were shuffled: n + 1 - sum n_c^2 / n."""
        n = sum(self.rows)
        return n + 1 - sum(count * count for count in self.rows) / max(n, 1)

    def is_sorted(self) -> bool:
        """Return True if the labels form fewer than half as many runs as expected for shuffled rows.

        False as long as fewer than FEWEST_RUNS runs are expected.

        The number of runs in shuffled rows varies so little that fewer than one stream in 100,000 is wrongly reported.
        """
        expected = self.shuffled_runs()
        return expected >= MIN_EXPECTED_RUNS and self.runs < expected / 2

    def warning_text(self) -> str:
        """Return the text of the warning that the labels come in long runs."""
        return (
            f"the labels come in runs: {self.runs:,} in {sum(self.rows):,} rows, where shuffled rows have about "
            f"{self.shuffled_runs():,.0f}; what came last counts too much then. Shuffle the rows (fit of the "
            "estimators in fastsketch.sklearn does), or, if their order is that of time, give decay='auto'"
        )


# -- parameters --------------------------------------------------------------------------------------------------------
def as_label(value: Any, what: str) -> Label:
    """Validate a class label, and return it as a Python bool, int, float or str."""
    if isinstance(value, np.generic):
        value = cast(Any, value.item())
    if isinstance(value, str):
        refuse_final_nul([value], what)
        if not value:
            raise ValueError(f"{what} must not be empty")
        return value
    if isinstance(value, int | float):
        if value != value or abs(value) >= MAX_LABEL or value != int(value):
            raise ValueError(f"{what} must be an integer below 2**53 in size, a bool or a string, got {value!r}")
        return value
    raise TypeError(f"{what} must be a number, a bool or a string, got {value!r}")


def as_classes(value: Any, name: str) -> tuple[Label, ...]:
    """Validate at least two distinct labels, all numbers or all strings, and return them as a tuple."""
    if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray | set | frozenset):
        raise TypeError(f"{name} must be a sequence of labels, got {value!r}")
    if isinstance(value, np.ndarray) and value.ndim != 1:
        raise ValueError(f"{name} must be a vector, got shape {cast('NDArray[Any]', value).shape}")
    labels = [as_label(label, f"a label of {name}") for label in cast("Sequence[Any]", value)]
    if len(set(labels)) != len(labels) or len(labels) < 2:
        raise ValueError(f"{name} must be at least two different labels, got {format_labels(labels)}")
    if len({isinstance(label, str) for label in labels}) == 2:
        raise TypeError(f"{name} must be numbers or strings, not both, got {format_labels(labels)}")
    return tuple(labels)


def as_class_weight(value: Any, name: str) -> Any:
    """Validate class weights, and return them: "balanced" or a dict {label: weight}.

    Pairs (label, weight), as in files, are accepted as well.
    """
    if isinstance(value, str):
        if value != "balanced":
            raise ValueError(f"{name} must be 'balanced', a dict of weights by label, or None, got {value!r}")
        return value
    if isinstance(value, Mapping):
        pairs = list(cast("Mapping[Any, Any]", value).items())
    elif isinstance(value, list | tuple):
        pairs = cast("list[Any]", value)
        if not all(isinstance(pair, list | tuple) and len(cast("list[Any]", pair)) == 2 for pair in pairs):
            raise TypeError(f"{name} must be 'balanced', a dict of weights by label, or None, got {value!r}")
    else:
        raise TypeError(f"{name} must be 'balanced', a dict of weights by label, or None, got {value!r}")
    return {as_label(label, f"a label of {name}"): as_real(w, f"{name}[{label!r}]", 0.0, 1e300) for label, w in pairs}


def initial_sign(label: Label) -> float:
    """Return the sign of the learner that is created at the first row, given that row's label: -1 for the labels -1, 0
    and False, which are negative classes by convention, else 1.
    """
    return -1.0 if label in (-1, 0) else 1.0


def sorted_labels(labels: Sequence[Label]) -> list[Label]:
    """Return the labels as a sorted list; they are all numbers or all strings."""
    return sorted(labels, key=lambda label: cast(Any, label))


def format_labels(labels: Sequence[Any]) -> str:
    """Format the first five labels for an error message."""
    return ", ".join(map(repr, labels[:5])) + (", ..." if len(labels) > 5 else "")


# -- labels of a batch -------------------------------------------------------------------------------------------------
def as_labels(targets: ArrayLike, n_rows: int, name: str = "targets") -> NDArray[Any]:
    """Convert targets to an array of labels (numbers, bools or strings) with one entry per row.

    A single row may have a scalar label.

    That numbers are finite integers is checked in ``ClassLabels.read``, for new labels only.
    """
    targets = to_numpy(targets, name)
    require_array_like(targets, name)
    try:
        labels: NDArray[Any] = np.asarray(targets)
    except ValueError as error:
        raise ValueError(f"{name} must be a vector of labels: {error}") from None
    if labels.ndim == 0 and n_rows == 1:
        labels = labels.reshape(1)
    if labels.shape != (n_rows,):
        advice_for_several = (
            "; for several labels a row OneVsRestClassifier or MultiOutputClassifier of scikit-learn make a model each"
        )
        advice = advice_for_several if labels.ndim == 2 and labels.shape[1] > 1 else ""
        raise ValueError(f"{name} must have one entry for each of the {n_rows} rows, got shape {labels.shape}{advice}")
    if labels.dtype.kind == "U" and isinstance(targets, list | tuple):
        return labels_from_objects(list(cast("list[Any]", targets)), name)  # NumPy would convert numbers among strings
    if labels.dtype.kind in "OT":  # T: strings of any length, of NumPy 2
        return labels_from_objects(labels.tolist(), name)
    if labels.dtype.kind not in "fiubU":
        raise TypeError(f"{name} must hold labels (numbers, bools or strings), got dtype {labels.dtype}")
    return without_long_double(labels)


def labels_from_objects(values: list[Any], name: str) -> NDArray[Any]:
    strings = bool(values) and isinstance(values[0], str)
    for row, value in enumerate(values):
        if not isinstance(value, str if strings else int | float | np.number | np.bool_):
            rule = "a string as those before" if strings else "a number or a bool"
            raise TypeError(f"{name}: the label of row {row} must be {rule}, got {value!r}")
    refuse_final_nul(values, name)
    out = np.array(values) if values else np.empty(0)
    if out.dtype.kind not in "fiubU":
        raise TypeError(f"{name} must hold labels (numbers, bools or strings), got dtype {out.dtype}")
    return without_long_double(out)


class ClassLabels:
    """Class labels of a model, given as a parameter or collected while learning.

    The number of a class is its index in `known`.
    """

    __slots__ = ("given", "kind", "known", "numbers", "order", "tally")

    def __init__(
        self,
        known: Sequence[Label] = (),
        tally: ClassTally | None = None,
        *,
        given: bool = False,
        kind: str | None = None,
    ) -> None:
        self.known = list(known)
        self.tally = ClassTally([0] * len(self.known)) if tally is None else tally
        self.given = given  # whether other labels are refused
        self.kind = kind
        for label in self.known:
            self.kind = common_kind(self.kind, kind_of_label(label))
        self.numbers = {label: k for k, label in enumerate(self.known)}
        self.order = self._sorted()  # class numbers in the order of the public `classes`

    def copied(self) -> "ClassLabels":
        """Return an independent copy."""
        out = ClassLabels.__new__(ClassLabels)
        out.known, out.tally, out.given, out.kind = list(self.known), self.tally, self.given, self.kind
        out.numbers, out.order = dict(self.numbers), list(self.order)
        return out

    def _sorted(self) -> list[int]:
        return sorted(range(len(self.known)), key=lambda k: cast(Any, self.known[k]))

    def classes(self) -> NDArray[Any]:
        """Return the labels as a sorted array."""
        dtype = {"bool": np.bool_, "int": np.int64, "float": np.float64}.get(self.kind or "float")
        return np.array([self.known[k] for k in self.order], dtype)

    # -- a batch ---------------------------------------------------------------------------------------------------
    def read(self, targets: ArrayLike, n_rows: int) -> tuple[Counts, NewClasses]:
        """Return (class numbers (n,) of the given labels, the new classes among them).
        The labels of this object do not change.

        New classes are not added, but their rows have the numbers that the classes will get. Raises TypeError or
        ValueError for targets that are not labels.
        """
        candidates: Any = targets
        if 0 < n_rows <= MAX_ROWS_BY_LOOKUP:  # faster than with NumPy
            if type(candidates) is np.ndarray and candidates.dtype.kind in "biufU":
                candidates = candidates.tolist()
            if n_rows == 1:
                is_list_of_one = type(candidates) is list and len(cast("list[Any]", candidates)) == 1
                label = cast(Any, candidates[0] if is_list_of_one else candidates)
                if type(label) in SINGLE and label in self.numbers:
                    return np.array([self.numbers[label]]), NO_NEW_CLASSES
            if isinstance(candidates, list | tuple) and SINGLE.issuperset(map(type, cast("list[Any]", candidates))):
                class_numbers = [self.numbers.get(label, -1) for label in cast("list[Any]", candidates)]
                if len(class_numbers) == n_rows and min(class_numbers) >= 0:
                    return np.array(class_numbers), NO_NEW_CLASSES
        values = as_labels(cast(Any, targets), n_rows)
        kind = "str" if values.dtype.kind == "U" else {"b": "bool", "f": "float"}.get(values.dtype.kind, "int")
        if n_rows and self.kind is not None and (kind == "str") != (self.kind == "str"):
            raise ValueError(
                f"targets: row 0 has the label {values[0].item()!r}, and those before are "
                f"{'strings' if self.kind == 'str' else 'numbers'} ({format_labels(self.known)})"
            )
        numbers = self._look_up_numbers(values)
        unknown = np.flatnonzero(numbers < 0)
        if not len(unknown):
            return numbers, NO_NEW_CLASSES
        new = NewClasses([], [], kind)
        while len(unknown):
            row, number = int(unknown[0]), len(self.known) + len(new.rows)
            value = values[row].item()
            self._validate_new_label(row, value, number)
            numbers[unknown[values[unknown] == value]] = number
            new.rows.append(row)
            new.labels.append(value)
            unknown = unknown[numbers[unknown] < 0]
        return numbers, new

    def _look_up_numbers(self, values: NDArray[Any]) -> Counts:
        """Return the class number of each label, or -1 for a label that is not known."""
        numbers = np.full(len(values), -1)
        if len(self.numbers) <= 4:
            for label, k in self.numbers.items():
                numbers += (values == label) * (k + 1)  # faster than a mask
            return numbers
        labels = sorted(self.numbers)
        sorted_known = np.array(labels)
        positions = np.minimum(np.searchsorted(sorted_known, values), len(sorted_known) - 1)
        number_at_position = np.array([self.numbers[label] for label in labels])
        return np.where(sorted_known[positions] == values, number_at_position[positions], numbers)

    def _validate_new_label(self, row: int, value: Any, n_classes: int) -> None:
        """Raise ValueError unless the label `value` of row `row` can become the class number `n_classes`."""
        what = f"targets: the label of row {row}"
        if isinstance(value, float) and not np.isfinite(value):
            raise ValueError(f"targets must be finite: entry {row} is not")
        if isinstance(value, float) and not value.is_integer():
            real = "real targets need loss='square' (--regression)"
            raise ValueError(f"{what} must be an integer, a bool or a string, got {value!r}: {real}")
        as_label(value, what)
        if self.given:
            raise ValueError(f"targets: row {row} has the label {value!r}, which is not in classes={self.known!r}")
        if n_classes >= MAX_CLASSES:
            raise ValueError(
                f"targets: row {row} has the label {value!r}, after {n_classes} others: are these real targets, which "
                "need loss='square'? If not, give all labels as classes"
            )

    def add(self, new: NewClasses, tally: ClassTally) -> None:
        """Add the new classes that ``read`` reported, and replace the row counts."""
        for label in new.labels:
            self.numbers[label] = len(self.known)
            self.known.append(label)
            self.kind = common_kind(self.kind, cast(str, new.kind))
        self.order = self._sorted() if new.labels else self.order
        self.tally = tally

    def require_comparable(self, new: NewClasses) -> None:
        """Raise ValueError if new classes make the fixed coefficients of ``compare_with`` meaningless.

        This is so if there are more than two classes, or if its positive scores would mean another class.
        """
        labels = [*self.known, *new.labels]
        if len(labels) > 2:
            raise ValueError(
                f"targets: row {new.rows[-1]} has a third label, {labels[2]!r}, and the comparator is of two classes"
            )
        if len(labels) == 2 and (sorted_labels(labels)[-1] == labels[0]) != (initial_sign(labels[0]) > 0):
            raise ValueError(
                f"targets: row {new.rows[-1]} is the first to show that positive scores of the comparator mean "
                f"{sorted_labels(labels)[-1]!r}: give classes to the model"
            )

    def weights(self, numbers: Counts, new: NewClasses, class_weight: ClassWeight) -> Floats:
        """Return the weight (n,) of each row, computed from its class number and `class_weight`.

        "balanced" is n / (k n_c) for n rows so far, n_c of them of this class, and k classes, all including the row.
        """
        if isinstance(class_weight, dict):
            labels = [*self.known, *new.labels]
            return np.array([class_weight.get(label, 1.0) for label in labels], np.float64)[numbers]
        counts, n_seen = self.tally.rows, np.zeros(len(numbers), np.int64)
        is_first = np.zeros(len(numbers), np.int64)
        for k in np.unique(numbers):
            n_before = counts[int(k)] if k < len(counts) else 0
            rows = np.flatnonzero(numbers == k)
            n_seen[rows] = n_before + np.arange(1, len(rows) + 1)
            is_first[rows[0]] = not n_before
        n_classes = sum(count > 0 for count in counts) + np.cumsum(is_first)
        return (sum(counts) + np.arange(1, len(numbers) + 1)) / (n_classes * n_seen)

    def observed_factors(self, class_weight: ClassWeight) -> Floats:
        """Return one factor per class, which converts probabilities learned with class weights to observed frequencies.

        They are in the order of ``classes``, up to a common factor. Losses weighted by w_c are those of a stream in
        which class c is w_c times as frequent, so that p(c | x) is proportional to the learned probability divided by
        w_c (Elkan 2001, Theorem 2, for two classes; Saerens, Latinne and Decaestecker 2002, for more). With "balanced",
        1 / w_c is proportional to the number of rows of the class.
        """
        if class_weight == "balanced":
            return np.array(self.tally.rows, np.float64)[self.order]
        weights = [(class_weight or {}).get(self.known[k], 1.0) for k in self.order]
        if 0.0 in weights:
            label = self.known[self.order[weights.index(0.0)]]
            raise ValueError(
                f"prior='observed': class_weight is 0 for the label {label!r}, of which nothing was learned: give it a "
                "positive weight"
            )
        return 1.0 / np.array(weights)

    # -- files -----------------------------------------------------------------------------------------------------
    def saved(self) -> dict[str, Any]:
        """Return the labels and row counts as a dictionary for JSON."""
        rows, runs, last = self.tally
        return {"known": list(self.known), "kind": self.kind, "counts": list(rows), "runs": runs, "last": last}

    @staticmethod
    def from_state(saved: dict[str, Any], given: tuple[Label, ...] | None) -> "ClassLabels":
        """Restore the labels from a dictionary that ``saved()`` returned; ValueError if it is inconsistent.

        given: the parameter `classes`.
        """
        known = [as_label(label, "a label that it knows") for label in saved["known"]]
        counts = [checks.as_count(count, "rows of a class") for count in saved["counts"]]
        if len(set(known)) != len(known) or len(counts) != len(known):
            raise ValueError(f"it knows {len(known)} labels, and the rows of {len(counts)}: {format_labels(known)}")
        tally = ClassTally(counts, checks.as_count(saved["runs"], "runs of a class"), saved["last"])
        nonempty_classes, n = [k for k, count in enumerate(counts) if count], sum(counts)
        if not len(nonempty_classes) <= tally.runs <= n or (
            tally.last not in nonempty_classes if n else tally.last is not None
        ):
            raise ValueError(
                f"its {n} rows of {len(nonempty_classes)} classes came in {tally.runs} runs, the last of {tally.last}"
            )
        if saved["kind"] not in (None, *KINDS):
            raise ValueError(f"its labels are of the kind {saved['kind']!r}")
        class_labels = ClassLabels(known, tally, given=given is not None, kind=saved["kind"])
        if given is not None and set(known) != set(given):
            raise ValueError(f"it knows the labels {format_labels(known)}, its parameters say {format_labels(given)}")
        return class_labels


def kind_of_label(label: Label) -> str:
    return "str" if isinstance(label, str) else "bool" if isinstance(label, bool) else type(label).__name__


def common_kind(kind: str | None, other_kind: str) -> str:
    """Return the kind that can represent labels of both kinds, "bool", "int", "float" or "str".

    Raises ValueError for strings and numbers together.
    """
    if kind is None or kind == other_kind:
        return other_kind
    if "str" in (kind, other_kind):
        raise ValueError("labels must be numbers or strings, not both")
    return max(kind, other_kind, key=NUMERIC_KINDS.index)
