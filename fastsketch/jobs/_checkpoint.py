"""The checkpoint folder of ``fs.run``, which holds a state file for each finished model of consecutive parts.

The name of a state file says which node it holds, how many rows the model has learned, and a checksum.
"""

import contextlib
import errno
import re
import zlib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NamedTuple, Self

from fastsketch._core.warning import warn_caller
from fastsketch._frame.loading import from_bytes
from fastsketch.data.files._lock import locked
from fastsketch.data.files._replacing import remove_stale_temporary_files, replacing
from fastsketch.data.files._state import StateError
from fastsketch.data.files._untrusted import open_within
from fastsketch.jobs._job_folder import JobFolder
from fastsketch.jobs._manifest import MANIFEST, Identity, read_manifest
from fastsketch.jobs._parts import JobNode
from fastsketch.jobs._tree import Span

# Names of node files, and of temporary files that become node files. No other file in the folder is touched.
_NODE = re.compile(r"node-([0-9]{1,4})-([0-9]{1,4})-([0-9]{1,18})-([0-9]{1,19})-([0-9a-f]{8})\.fsk")
_TEMPORARY = re.compile(r"\.(node-[-0-9a-f]+\.fsk)\..*\.tmp", re.DOTALL)


class Entry(NamedTuple):
    """Identity of a saved model: its position in the merge tree, pass, number of rows, and checksum.
    All of them are encoded in the name of the model's file.
    """

    pass_number: int  # of the pass, from 1
    level: int  # in the binary merge tree; 0 is one part
    position: int  # within its level
    rows: int  # that the model has learned
    crc32: int  # of the numbers above and the content, so that a renamed or foreign file is recognised

    @property
    def file(self) -> str:
        """Name of the file in which the model of this entry is saved."""
        return f"node-{self.pass_number}-{self.level}-{self.position}-{self.rows}-{self.crc32:08x}.fsk"

    def with_checksum(self, content: bytes) -> "Entry":
        """Return a copy whose checksum is that of these numbers and of the file's content."""
        return self._replace(crc32=zlib.crc32(content, zlib.crc32(repr(self[:-1]).encode())))

    def covers(self, other: "Entry") -> bool:
        """Return True if this saved model has learned all rows of `other`, which is then superfluous.

        Of two files of the same node of the merge tree, the one with more rows covers the other.
        """
        if self.pass_number != other.pass_number or (self.level, self.rows) < (other.level, other.rows):
            return False
        return self.position == other.position >> self.level - other.level


class Checkpoint(JobFolder):
    """Folder in which a job of ``fs.run`` saves its finished models, so that an interrupted job can resume.

    While a checkpoint is open, no other job can write to the folder.
    """

    @classmethod
    @contextlib.contextmanager
    def open(cls, folder: Path, job: Identity, *, resume: bool) -> Generator[Self]:
        """Lock the checkpoint folder and start or resume a job in it for a ``with`` block.

        Raise LockHeld if another job uses the folder. After an error, an empty folder is removed.
        """
        folder.mkdir(exist_ok=True)
        try:
            with locked(folder / MANIFEST), cls(folder).opened(job, resume=resume) as self:
                yield self
        except BaseException:
            with contextlib.suppress(OSError):
                folder.rmdir()  # succeeds only if it is empty
            raise

    def read_nodes(self, pass_number: int, check: Callable[[Entry, Any], object]) -> list[tuple[Entry, bytes]]:
        """Return the saved models of a pass as a list of (Entry, bytes of the model), in the order of their rows.
        Models of which all rows are in a larger one are left out.

        A file that cannot be used is skipped with a warning. `check` is called with an entry and its model. It raises
        StateError unless the model fits the job.
        """
        nodes: list[tuple[Entry, bytes]] = []
        for entry in list_entries(self.path):
            if entry.pass_number != pass_number or any(other.covers(entry) for other, _ in nodes):
                continue
            try:
                with open_within(self.path, entry.file) as file:
                    content = file.read()
                if entry.with_checksum(content) != entry:
                    raise StateError("it is not the one that was written")
                model = from_bytes(content)
                if model.n_rows != entry.rows:
                    raise StateError(f"it has {model.n_rows} rows, and its name says {entry.rows}")
                check(entry, model)
            except (OSError, StateError) as error:
                warn_caller(f"{self.path / entry.file} cannot be used, its parts are learned again: {error}")
                continue
            nodes.append((entry, content))
        return sorted(nodes, key=lambda pair: pair[0].position << pair[0].level)

    def write_node(self, pass_number: int, span: Span, node: JobNode) -> None:
        """Write the model of one or more parts to a file of the folder, atomically.

        Files of models whose parts it includes are deleted afterwards. OSError names the folder.
        """
        content = node.as_bytes()
        entry = Entry(pass_number, span.level, span.position, node.n_rows, 0).with_checksum(content)
        try:
            with replacing(self.path / entry.file, follow_links=False) as out:
                out.write(content)
        except OSError as error:  # its message does not name the disk that is full
            reason = f"the checkpoint cannot be written ({error.strerror or error}); what it has stays"
            raise OSError(error.errno, reason, str(self.path)) from error
        for other in list_entries(self.path):
            if other != entry and entry.covers(other):
                (self.path / other.file).unlink(missing_ok=True)

    def describe_finished(self) -> str:
        """Return a text on how many rows are saved and how to resume, for an error message; "" if nothing is saved."""
        largest: list[Entry] = []
        for entry in list_entries(self.path):
            if not any(other.covers(entry) for other in largest):
                largest.append(entry)
        if not largest:
            return ""
        pass_number = largest[0].pass_number
        n_rows = sum(entry.rows for entry in largest if entry.pass_number == pass_number)
        pass_text = "" if pass_number == 1 else f" in pass {pass_number}"
        saved_text = f"the partial result of {n_rows:,} rows{pass_text} is in {self.path}"
        return f"{saved_text}; the same job with resume continues from it"

    def clear(self) -> None:
        """Delete the saved models of an earlier job, and temporary files.

        The folder may hold other files, which are kept. Raise FileExistsError if a manifest.json of something else is
        there.
        """
        entries = list_entries(self.path)
        if not entries and (self.path / MANIFEST).exists():
            try:
                read_manifest(self.path)
            except StateError:
                words = "it is no manifest of a checkpoint: name another folder"
                raise FileExistsError(errno.EEXIST, words, str(self.path / MANIFEST)) from None
        for entry in entries:
            (self.path / entry.file).unlink(missing_ok=True)
        self.prepare()

    def prepare(self) -> None:
        """Delete temporary files that killed processes have left in the folder."""
        for match in map(_TEMPORARY.fullmatch, _file_names(self.path)):
            if match:
                remove_stale_temporary_files(self.path / match[1])


def list_entries(folder: Path) -> list[Entry]:
    """Parse the file names of all saved models in a folder. Return their entries, the largest first."""
    matches = [match for match in map(_NODE.fullmatch, _file_names(folder)) if match]
    entries = [
        Entry(int(match[1]), int(match[2]), int(match[3]), int(match[4]), int(match[5], 16)) for match in matches
    ]
    return sorted(
        (entry for entry, match in zip(entries, matches, strict=True) if entry.file == match[0]), reverse=True
    )


def _file_names(folder: Path) -> list[str]:
    """Return the names of the files in a folder, and an empty list if there is no such folder."""
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []
