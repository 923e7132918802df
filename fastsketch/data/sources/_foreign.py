"""Import optional packages, and convert the errors of their readers to SourceError."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from fastsketch.data.files._input import SourceError

# The extra that installs a package.
_EXTRAS = {
    "pyarrow": "arrow",
    "h5py": "hdf5",
    "zarr": "zarr",
    "anndata": "anndata",
    "skmisc": "loess",
    "dask": "dask",
    "sklearn": "sklearn",
    "polars": "files",
    "narwhals": "files",
    "fsspec": "files",
}


def needs(package: str, what: str, module: str | None = None) -> Any:
    """Import and return an optional package or one of its modules. If it is missing, ImportError says which extra to
    install.
    """
    try:
        return import_module(module or package)
    except ImportError as error:
        if (error.name or package).split(".")[0] != package:
            raise
        extra = _EXTRAS[package]
        raise ImportError(
            f"reading {what} needs {package}, which is not installed: pip install 'fastsketch[{extra}]'", name=package
        ) from error


@contextmanager
def damaged(name: Path | str, what: str, look: Callable[[], None] | None = None) -> Generator[None]:
    """Convert errors that a file reader raises in a ``with`` block to a SourceError with the name of the file and the
    expected format.

    `look` is called before; it may raise because the file has changed.
    """
    try:
        yield
    except (SourceError, ImportError):
        raise
    except BaseException as error:
        # a panic of polars is a BaseException; interrupts and exits of the interpreter must pass
        if type(error) is MemoryError or not (isinstance(error, Exception) or type(error).__name__ == "PanicException"):
            raise
        if look is not None:
            look()
        of_system = error if isinstance(error, OSError) and type(error) is not OSError else None
        if isinstance(error, BlockingIOError):  # HDF5 locks a file that it writes
            raise SourceError(f"{name} is being written by another process: try again when it is done") from error
        if of_system and of_system.strerror and isinstance(of_system.errno, int):
            raise SourceError(f"{name} cannot be read: {of_system.strerror}") from error
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise SourceError(f"{name} is damaged or no {what}: {said[:300]}") from error
