"""Other people's readers: their packages where they are needed, and their errors as errors that name the file."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from fastsketch.data.files._input import SourceError

# Which extra brings a package.
_EXTRAS = {"pyarrow": "arrow", "h5py": "hdf5", "zarr": "zarr", "dask": "dask"}


def needs(package: str, what: str, module: str | None = None) -> Any:
    """Return a package that is not always there (or a module of it); ImportError names the extra that brings it."""
    try:
        return import_module(module or package)
    except ImportError as error:
        if (error.name or package).split(".")[0] != package:
            raise
        extra = _EXTRAS[package]
        raise ImportError(
            f"reading {what} needs {package}, which is not installed: pip install 'fastsketch[{extra}]'", name=package
        ) from error


class damaged:  # noqa: N801  it stands in a with statement
    """Errors of any kind that a reader ends in, as SourceError that names the file and what it was to be.

    `look`, if given, is called before: it may find that the file has changed.
    """

    def __init__(self, name: Path | str, what: str, look: Callable[[], None] | None = None) -> None:
        self._name, self._what, self._look = name, what, look

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if (
            not isinstance(error, Exception)
            or isinstance(error, SourceError | ImportError)
            or type(error) is MemoryError
        ):
            return
        if self._look is not None:
            self._look()
        if (
            isinstance(error, OSError)
            and error.strerror
            and isinstance(error.errno, int)
            and type(error) is not OSError
        ):
            raise SourceError(f"{self._name} cannot be read: {error.strerror}") from error
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise SourceError(f"{self._name} is damaged or no {self._what}: {said[:300]}") from error
