"""Read and write the manifest of a resumable job, a JSON file that describes its model and inputs.

The description holds the model and its parameters, the identity of the inputs, and how the inputs are split into
parts. A resumed job compares its own description with the stored one, and refuses to continue if they differ.
"""

import json
from pathlib import Path
from typing import Any, cast

from fastsketch._core.escaping import escaped
from fastsketch._core.warning import warn_caller
from fastsketch.data.files._input import SourceError
from fastsketch.data.files._replacing import replacing
from fastsketch.data.files._state import SCHEMA, StateError
from fastsketch.data.files._untrusted import open_within
from fastsketch.data.sources import Source

MANIFEST = "manifest.json"
# The name of the manifest in versions that kept a journal. Their folders cannot be resumed.
OLD_MANIFEST = "manifest.jsonl"
# Differences that an error message lists, and characters of a value that it shows.
MAX_LISTED, MAX_SHOWN = 4, 80

Identity = dict[str, Any]


def write_manifest(folder: Path, job: Identity) -> None:
    """Write the description of a new job to the manifest file in a folder."""
    with replacing(folder / MANIFEST, follow_links=False) as out:
        out.write(json.dumps({"schema": SCHEMA, "job": job}).encode())


def read_manifest(folder: Path) -> Identity:
    """Return the description of a job from the manifest file in a folder.

    Raise StateError if the manifest is damaged or not a regular file.
    """
    with open_within(folder, MANIFEST) as file:
        content = file.read()
    try:
        manifest = json.loads(content)
        if manifest["schema"] == SCHEMA and isinstance(manifest["job"], dict):
            return cast("Identity", manifest["job"])
    except (ValueError, TypeError, LookupError, RecursionError):
        pass
    raise StateError(f"{folder / MANIFEST} is damaged, or of another version of fastsketch: start without resume")


def check_same_job(folder: Path, job: Identity) -> None:
    """Raise ValueError that lists the differences, unless the manifest in a folder describes this job."""
    changes = list(dict.fromkeys(describe_differences(job, read_manifest(folder))))
    if changes:
        remainder = f"; and {len(changes) - MAX_LISTED} more" if len(changes) > MAX_LISTED else ""
        raise ValueError(escaped(f"{folder} belongs to another job: {'; '.join(changes[:MAX_LISTED])}{remainder}"))


def can_resume(folder: Path, result: Path | None = None) -> bool:
    """Return True if a folder holds a job to resume; otherwise warn that the job starts from the beginning.

    Callers may pass ``resume=True`` on every run: a job that is killed before its first part is done leaves nothing.

    Parameters
    ----------
    folder : Path
    result : Path, optional
        The output of the job. ValueError if it exists although the folder holds no unfinished job: a finished output
        does not record its inputs, and the new job would replace it.
    """
    if (folder / OLD_MANIFEST).exists():
        raise StateError(f"the job in {folder} was begun by another version of fastsketch: remove that folder")
    has_manifest = (folder / MANIFEST).exists()
    if not has_manifest and result is not None and result.exists():
        raise ValueError(
            f"resume: {folder} holds no unfinished job, and {result} is finished: it would be replaced by a result of "
            "these rows alone; choose another output, or leave resume out to replace it"
        )
    if not has_manifest:
        warn_caller(f"nothing to resume in {folder}: the job begins")
    return has_manifest


# -- descriptions ------------------------------------------------------------------------------------------------------
def as_json(value: Any) -> Any:
    """Return a value as JSON would give it back after it was written and read: tuples become lists."""
    return json.loads(json.dumps(value))


def identity_of(source: Source) -> Identity:
    """Return the JSON values that identify a source's rows (paths, sizes, digests); tuples become lists."""
    return as_json(source.identity())


def check_unchanged(source: Source, earlier_identity: Identity) -> None:
    """Raise SourceError if a source differs from its earlier identity `earlier_identity`."""
    changes = describe_differences(identity_of(source), earlier_identity)
    if changes:
        raise SourceError(f"the rows changed while they were read: {changes[0]}")


def describe_differences(current: Any, stored: Any, name: str = "job", path: str | None = None) -> list[str]:
    """Return a list of phrases, one for each difference between two JSON values; file paths are not compared.

    Parameters
    ----------
    current, stored : JSON values
    name : str
        The key under which the values are stored.
    path : str, optional
        The file that the values describe.

    Returns
    -------
    list of str
    """
    if current == stored:
        return []
    if isinstance(current, dict) and isinstance(stored, dict):
        current_values, stored_values = cast("dict[str, Any]", current), cast("dict[str, Any]", stored)
        path = current_values.get("path", path)
        keys = [key for key in {**current_values, **stored_values} if key != "path"]
        return [
            text
            for key in keys
            for text in describe_differences(current_values.get(key), stored_values.get(key), key, path)
        ]
    if isinstance(current, list) and isinstance(stored, list):
        current_items, stored_items = cast("list[Any]", current), cast("list[Any]", stored)
        if len(current_items) == len(stored_items):
            return [
                text
                for pair in zip(current_items, stored_items, strict=True)
                for text in describe_differences(*pair, name, path)
            ]
        return [f"{name} are {len(current_items)} now and were {len(stored_items)}"]
    if path is not None and name in ("bytes", "digest", "modified"):
        return [f"{path} is not what it was ({name})"]
    return [f"{name} is {_format_value(current)} now and was {_format_value(stored)}"]


def _format_value(value: Any) -> str:
    """Format a JSON value for a message, shortened to 80 characters."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "on", False: "off"}[value]
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."
