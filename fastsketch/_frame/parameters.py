"""Declared parameters: the type, default and check of a constructor's argument in one line of its class.

    class Mean(Model):
        scale: float = real(default=1.0, low=0.0)

declares the argument ``scale`` of ``Mean(scale=1.0)`` and the read-only attribute ``Mean.scale``. Type checkers read
the annotation (PEP 681), ``constructor`` builds the constructor, and the command line takes its flags from the
declarations: ``from_text`` parses the text of a value, ``described`` returns the docstring of each parameter.
"""

import csv
import difflib
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from functools import partial
from inspect import Parameter as Argument
from inspect import Signature, get_annotations, getdoc, signature, unwrap
from itertools import repeat
from operator import attrgetter, methodcaller
from types import FunctionType, UnionType
from typing import Any, Final, TypeVar, cast, get_args

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import as_choice, as_dtype, as_flag, as_integer, as_real, as_seed

Check = Callable[[Any, str], Any]
Owner = TypeVar("Owner")

# Names of parameters in other libraries, and ours, of which the first that exists is suggested.
OTHER_LIBRARY_NAMES: Final = {
    "alpha": ("alpha0", "ridge", "penalty_strength"),
    "eta0": ("learning_rate",),
    "max_iter": ("epochs", "sweeps"),
    "n_iter": ("epochs", "sweeps"),
    "n_factors": ("rank",),
    "n_components": ("rank", "sketch_size"),
}
# Marks an argument without a default, which must be given.
REQUIRED: Final = object()


class Parameter(property):
    """Declared argument of a model's constructor. It is also the read-only attribute of the same name."""

    def __init__(
        self,
        check: Check,
        default: Any,
        positional: bool = False,
        fixed: bool = False,
        reads: str | None = None,
        choices: tuple[str | None, ...] = (),
    ) -> None:
        self.check = check
        self.choices = choices
        self.reads = reads  # the method of the model that returns the attribute, if that is not the argument itself
        self.default = default  # as check returns it
        self.positional = positional
        self.fixed = fixed  # not an argument: a subclass has fixed the value

    def __set_name__(self, owner: type, name: str) -> None:
        value = attrgetter(f"_values.{name}") if self.reads is None else methodcaller(self.reads)
        super().__init__(value, partial(_refuse_change, name))
        # other attributes are described by the class
        self.__doc__ = f"The parameter {name}, as it was given." if self.reads is None else None


def _refuse_change(name: str, instance: Any, value: Any) -> None:
    """Raise AttributeError, because parameters of a model cannot be assigned. This is the setter of every parameter."""
    raise AttributeError(f"{name} does not change after construction: make a new {type(instance).__name__}")


# What follows are field specifiers in the sense of PEP 681: hence `default`, `kw_only` and `init` by these names, and
# the return type Any, which lets the annotation of the class speak.


def parameter(check: Check, *, default: Any = REQUIRED, reads: str | None = None, kw_only: bool = True) -> Any:
    """Return a Parameter: the declaration of a constructor argument that a given function validates.

    check(value, name) returns the value to store, or raises.

    reads: the method of the model that returns the attribute, if that is not the argument itself.
    """
    return Parameter(check, default, not kw_only, reads=reads)


def integer(
    *, default: Any = REQUIRED, at_least: int = 0, below: int = 1 << 62, kw_only: bool = True, init: bool = True
) -> Any:
    """Return a Parameter: the declaration of an integer constructor argument in [at_least, below)."""
    return Parameter(partial(as_integer, minimum=at_least, below=below), default, not kw_only, not init)


def real(
    *,
    default: Any = REQUIRED,
    low: float = 0.0,
    high: float = 1e300,
    low_open: bool = False,
    high_open: bool = False,
    kw_only: bool = True,
) -> Any:
    """Return a Parameter: the declaration of a float constructor argument in [low, high].

    `low_open` and `high_open` exclude the ends.
    """
    check = partial(as_real, low=low, high=high, low_open=low_open, high_open=high_open)
    return Parameter(check, default, not kw_only)


def choice(choices: tuple[str | None, ...], *, default: Any = REQUIRED, init: bool = True) -> Any:
    """Return a Parameter: the declaration of a constructor argument that is one of several strings, or perhaps None."""

    def check(value: Any, name: str) -> str | None:
        return None if value is None and None in choices else as_choice(value, name, choices)

    check_text = check if None in choices else partial(as_choice, choices=choices)
    return Parameter(check_text, default, fixed=not init, choices=choices)


def flag(*, default: Any = REQUIRED) -> Any:
    """Return a Parameter: the declaration of a boolean constructor argument."""
    return Parameter(as_flag, default)


def seed(*, default: Any = 0) -> Any:
    """Return a Parameter: the declaration of a constructor argument that is a random seed, an integer in [0, 2**64)."""
    return Parameter(as_seed, default)


def float_dtype(*, default: Any = None) -> Any:
    """Return a Parameter: the declaration of a dtype argument, float32, float64, or None for that of the first rows."""
    return Parameter(as_dtype, default)


# -- declarations of a class -------------------------------------------------------------------------------------------
def declare_parameters(cls: Any, *, abstract: bool) -> None:
    """Create the keyword constructor of a class from its declared parameters, and store these in ``cls._declared``.

    The constructor validates its arguments with ``cls._set_up``. An abstract class without parameters gets none.
    """
    own_parameters = _own_parameters(cls)
    if "__init__" in vars(cls):
        raise TypeError(f"{cls.__name__} must not define __init__: declare its parameters")
    inherited = {name: item for base in reversed(cls.__mro__) for name, item in _own_parameters(base).items()}
    for name in inherited:
        if name in vars(cls) and name not in own_parameters:
            raise TypeError(f"{cls.__name__}.{name} is a parameter: declare it to give it another default")
    declared = {**inherited, **own_parameters}
    cls._declared = dict(sorted(declared.items(), key=lambda item: not item[1].positional))  # as in the signature
    if own_parameters or not abstract:
        cls.__init__ = constructor(cls, cls._declared)
    bare_names(cls)


def _own_parameters(cls: type) -> dict[str, Parameter]:
    """Return the parameters that a class itself declares, without those of its bases."""
    return {name: value for name, value in vars(cls).items() if isinstance(value, Parameter)}


# -- constructors --------------------------------------------------------------------------------------------------
def constructor(cls: type, all_declared: Mapping[str, Parameter]) -> Any:
    """Return an ``__init__`` method for a model class, whose signature has the declared parameters.

    It passes the arguments by name to ``_set_up``, or raises TypeError naming what is unknown, missing or superfluous.
    """
    declared = {name: item for name, item in all_declared.items() if not item.fixed}
    positional = [name for name, item in declared.items() if item.positional]
    if len(positional) > 2:
        raise TypeError(f"{cls.__name__} has more than two positional parameters: {', '.join(positional)}")

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        owner = cast("type[Any]", self.__class__)
        name = owner.__name__
        if len(args) > len(positional):
            allowed = (
                f"at most {len(positional)} positional ({', '.join(positional)})" if positional else "keywords alone"
            )
            raise TypeError(f"{name}() takes {allowed}, got {len(args)}")
        arguments_given = dict(zip(positional, args, strict=False))
        for key, value in kwargs.items():
            if key not in declared:
                raise TypeError(unknown_keyword(f"{name}()", key, declared, owner))
            if key in arguments_given:
                raise TypeError(f"{name}() got {key!r} twice")
            arguments_given[key] = value
        for key, item in declared.items():
            if item.default is REQUIRED and key not in arguments_given:
                raise TypeError(f"{name}() needs {key}")
        self._set_up(arguments_given)

    arguments = [Argument("self", Argument.POSITIONAL_ONLY)]
    for name, item in sorted(declared.items(), key=lambda entry: not entry[1].positional):
        kind = Argument.POSITIONAL_OR_KEYWORD if item.positional else Argument.KEYWORD_ONLY
        default = Argument.empty if item.default is REQUIRED else item.default
        arguments.append(Argument(name, kind, default=default, annotation=annotation_of(cls, name)))
    # required keywords may follow optional ones, required positional ones may not; the declarations are in that order
    __init__.__signature__ = Signature(arguments)  # type: ignore[attr-defined]
    __init__.__qualname__ = f"{cls.__qualname__}.__init__"
    __init__.__module__ = cls.__module__
    return __init__


def bare_names(cls: type[Owner]) -> type[Owner]:
    """Decorate a class so that error messages of inherited methods do not contain the names of base classes."""
    for base in cls.__mro__[1:]:
        for method in vars(base).values() if base.__module__.startswith("fastsketch.") else ():
            function = unwrap(getattr(method, "__func__", method))
            if isinstance(function, FunctionType):
                function.__qualname__ = function.__name__
    return cls


def annotation_of(cls: type, name: str) -> Any:
    """Return the type annotation of an attribute, from the class or the first base that has one."""
    for base in cls.__mro__:
        declared = get_annotations(base)
        if name in declared:
            return declared[name]
    return Argument.empty


def unknown_keyword(callable_name: str, key: str, parameters: Mapping[str, Any], owner: type | None = None) -> str:
    """Return the error message for an unknown keyword argument, with a suggestion of the most similar one.

    It names the method of `owner` that takes the keyword, or the most similar known one, or if `owner` is given and
    nothing is similar, all known ones.
    """
    message = f"{callable_name} has no parameter {key!r}"
    if owner is not None and (method := _method_with_parameter(owner, key)):
        return f"{message}: {method} takes it"
    similar = [name for name in OTHER_LIBRARY_NAMES.get(key, ()) if name in parameters] or difflib.get_close_matches(
        key, parameters, 1, 0.65
    )
    if similar:
        return f"{message}: did you mean {similar[0]!r}?"
    return message if owner is None else f"{message}: it has {', '.join(parameters)}"


def _method_with_parameter(owner: type, key: str) -> str | None:
    """Return the name of the first public method of a class that has a parameter `key`, for an error message. Return
    None if none has.
    """
    for base in owner.__mro__:
        for name, method in vars(base).items():
            function = unwrap(getattr(method, "__func__", method))
            if (
                isinstance(function, FunctionType)
                and not name.startswith("_")
                and key in signature(function).parameters
            ):
                return name
    return None


# -- values ------------------------------------------------------------------------------------------------------
# Types that json writes unchanged.
JSON: Final = frozenset({bool, int, float, str, type(None)})


def plain(value: Any) -> Any:
    """Convert a value for JSON: dtypes to names, dataclasses to dicts, NumPy values to Python values."""
    if isinstance(value, np.dtype):
        return value.name
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value)
        if not all(map(isinstance, items, repeat(str))):
            return [[plain(key), plain(item)] for key, item in items.items()]  # pairs: other keys keep their type
        return {str(key): item if type(item) in JSON else plain(item) for key, item in items.items()}
    if isinstance(value, list | tuple):
        return [item if type(item) in JSON else plain(item) for item in cast("list[Any]", value)]
    if isinstance(value, np.generic | np.ndarray):
        return cast("NDArray[Any]", value).tolist()
    return value


def equal_in_type_and_value(a: Any, b: Any) -> bool:
    """Return True if two parameter values are equal and of the same type, unlike == for which 1 equals True."""
    return type(a) is type(b) and bool(a == b)


# -- parameters as text ------------------------------------------------------------------------------------------------
TRUTH: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
NUMBERS: Final = {int: "a whole number", float: "a number"}


def from_text(text: str, name: str, annotation: Any) -> Any:
    """Parse text, for example from the command line, as a value of the annotated type.

    The parameter's own check follows later.

    "none" is None, "yes" and "no" are True and False, sequences and pairs have commas between their items, and a dict
    is A=X,B=Y with numbers X, Y.

    Raises
    ------
    ValueError
        If the text does not match the type.
    """
    kinds = _allowed_types(annotation)
    if text in kinds:  # one of several words
        return text
    if text == "none" and kinds & {None, type(None)}:
        return None
    if str in kinds:
        return text
    if bool in kinds:
        if text.lower() not in TRUTH:
            raise ValueError(f"{name} must be yes or no, got {text!r}")
        return TRUTH[text.lower()]
    for kind, words in NUMBERS.items():
        if kind in kinds:
            return _number(text, name, kind, words)
    if dict in kinds:
        return _numbers_by_name(text, name) if "=" in text else text
    if tuple in kinds:
        return tuple(_number(item, name, float, "numbers between commas") for item in text.split(","))
    return names_in(text, name) if list in kinds or annotation is Any else text


def names_in(text: str, name: str) -> list[str]:
    """Split text at commas into a list of names; a name that contains commas is in double quotes."""
    try:
        (names,) = csv.reader([text], strict=True, skipinitialspace=True)
    except (csv.Error, ValueError) as error:
        raise ValueError(f"{name} must be names between commas, got {text!r} ({error})") from None
    names = [item.strip() for item in names]
    if not all(names):
        raise ValueError(f"{name}: names between commas must not be empty, got {text!r}")
    return names


def _allowed_types(annotation: Any) -> set[Any]:
    """Return the set of types and literal values that an annotation allows."""
    kind = getattr(annotation, "__origin__", None)
    if isinstance(kind, type) and kind is not UnionType:  # dict[str, float]; a union is a type from Python 3.14 on
        return {kind}
    parts = get_args(annotation)
    return set[Any]().union(*map(_allowed_types, parts)) if parts else {annotation}


def _number(text: str, name: str, kind: type, words: str) -> Any:
    """Parse text as an int or a float. ValueError says what it must be."""
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{name} must be {words}, got {text!r}") from None


def _numbers_by_name(text: str, name: str) -> dict[str, float]:
    """Parse text of the form A=X,B=Y as a dict of numbers."""
    numbers: dict[str, float] = {}
    for item in names_in(text, name):
        key, _, number = item.rpartition("=")
        if not key.strip():
            raise ValueError(f"{name}: {item!r} is not NAME=NUMBER")
        numbers[key.strip()] = _number(number, f"{name}: {key.strip()}", float, "a number")
    return numbers


def described(item: Any) -> dict[str, str]:
    """Extract the parameter descriptions from a docstring, as a dict {name: text}."""
    _, _, section = (getdoc(item) or "").partition("Parameters\n----------\n")
    texts: dict[str, str] = {}
    names: list[str] = []
    lines = section.splitlines()
    for line, below in zip(lines, [*lines[1:], ""], strict=False):
        if below and set(below) == {"-"}:
            break  # the next section
        if line and not line.startswith(" "):
            names = [name.strip() for name in line.split(" : ")[0].split(",")]
        if line:
            for name in names:
                texts[name] = f"{texts[name]}\n{line}" if name in texts else line
    return texts
