"""Lines that outlive a kill: added one by one, each checked, each on the disk before anything relies on it.

A line is the crc32 of its text, a blank, and JSON. The first says which job it is of. A kill may tear the last line,
which then counts for nothing; any other line that is damaged is an error.
"""

import json
import os
import re
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from fastsketch.data.files._replacing import replacing
from fastsketch.data.files._state import SCHEMA, StateError
from fastsketch.data.files._untrusted import is_link, open_within

JournalLine = dict[str, Any]


def begin(path: Path, job: JournalLine, lines: Iterable[JournalLine] = ()) -> None:
    """Write a new journal of a job with these lines; until it is complete the old one stays."""
    with replacing(path, follow_links=False) as out:
        out.writelines(map(_written, [{"schema": SCHEMA, "job": job}, *lines]))


def add_line(path: Path, content: JournalLine) -> None:
    """Add a line, and return when it is on the disk."""
    with open_within(path.parent, path.name, "ab") as file:
        file.write(_written(content))
        os.fsync(file.fileno())


def contents(path: Path) -> tuple[JournalLine, list[JournalLine]]:
    """Return (the job of a journal, the lines after the first); a torn last one is cut off.

    StateError if the journal is damaged, or is no file that can be added to.
    """
    with open_within(path.parent, path.name, "r+b") as file:
        content = file.read()
    whole, _, torn = content.rpartition(b"\n")
    lines = whole.split(b"\n") if whole else []
    said = [_said(line) for line in lines]
    if said and said[-1] is None:  # space that was given to the file, but not yet filled
        torn = lines[-1] + b"\n" + torn
        said.pop()
    if None in said or not said:
        number = said.index(None) + 1 if said else 1
        raise StateError(f"{path}, line {number} is damaged: start without resume")
    if torn:
        with open_within(path.parent, path.name, "r+b") as file:
            file.truncate(len(content) - len(torn))
            os.fsync(file.fileno())
    head, *rest = cast("list[JournalLine]", said)
    if head.get("schema") != SCHEMA or not isinstance(head.get("job"), dict):
        raise StateError(f"{path} is that of another version of fastsketch: start without resume")
    return head["job"], rest


def is_foreign(path: Path) -> bool:
    """Tell whether a file is there that was never a journal, not even a damaged one."""
    if is_link(path):
        return True
    try:
        with open_within(path.parent, path.name) as file:
            start = file.read(10)
    except FileNotFoundError:
        return False
    except StateError:  # no regular file
        return True
    return re.match(rb"[0-9a-f]{8} \{|\0|$", start) is None


def _written(content: JournalLine) -> bytes:
    text = json.dumps(content, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _said(line: bytes) -> JournalLine | None:
    """Return the content of a line, empty if it is no object; None if it is damaged."""
    crc, _, text = line.partition(b" ")
    try:
        content = json.loads(text) if int(crc, 16) == zlib.crc32(text) else None
    except (ValueError, RecursionError):
        return None
    return cast("JournalLine", content) if content is None or isinstance(content, dict) else {}
