"""fastsketch watch: alarms of rows while they come in."""

# pyright: reportPrivateUsage=false
# (the text below a source is read piece by piece)

import io
import json
import sys
from argparse import Namespace
from typing import Any

from fastsketch.cli._flags import parameters_of
from fastsketch.cli._output import output_of
from fastsketch.cli._reading import load_model, rows_in
from fastsketch.cli._signals import held
from fastsketch.data.sources import naming
from fastsketch.data.sources._select import Derived
from fastsketch.data.sources._streams import Stream
from fastsketch.data.sources._text import TextSource
from fastsketch.streams import DriftMonitor

# The exit status where there was an alarm.
ALARMED = 3


class AsItComes(io.RawIOBase):
    """A stream whose reads end where nothing more has come yet: readers take the end of a read for that of a piece."""

    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self._stream, self._ends = stream, False

    def readable(self) -> bool:
        """See RawIOBase."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer with what is there, waiting for a first byte; every other call says that this is all."""
        if self._ends:
            self._ends = False
            return 0
        part = self._stream.read_some(len(buffer))
        buffer[: len(part)] = part
        self._ends = 0 < len(part) < len(buffer)
        return len(part)


def watch(args: Namespace) -> int:
    """Print alarms as lines of JSON; return a status of its own if there were any."""
    with output_of(args) as out:
        parameters = parameters_of(args, DriftMonitor)
        if out.path is not None and out.path.exists():
            monitor = load_model(str(out.path), DriftMonitor, ": another output is needed for a DriftMonitor")
            for name, value in parameters.items():
                if getattr(monitor, name) != value:
                    raise ValueError(f"{out.path} has {name}={getattr(monitor, name)}, got {value}: name a new file")
        else:
            monitor = DriftMonitor(**parameters)
        source = rows_in(args, monitor.n_features, monitor.feature_names)
        text: Any = source
        while isinstance(text, Derived):
            text = text._of
        if isinstance(text, TextSource) and text._stream is not None:
            vars(text)["_stream"] = AsItComes(text._stream)
        first, before = 0, len(monitor.alarms)
        monitor._name_columns(source)
        try:
            for rows, *_ in source.chunks():
                said = len(monitor.alarms)
                with naming(source, first):
                    monitor.update(rows)
                first += rows.shape[0]
                for alarm in monitor.alarms[said:]:
                    columns = [carried._asdict() for carried in alarm.columns]
                    print(json.dumps(alarm._asdict() | {"columns": columns}), flush=True)
        except KeyboardInterrupt:
            with held():
                out.save(monitor)
            raise
        with held():
            out.save(monitor)
        alarmed = len(monitor.alarms) > before
        if not (alarmed or monitor.armed):
            facts = monitor.facts()
            print(
                f"fastsketch: the last rows were compared with nothing: the reference of {monitor.reference} blocks of "
                f"{facts['rows_in_block']:,} rows is not full: {facts['not_armed_because']} (--reference, --every)",
                file=sys.stderr,
            )
        return ALARMED if alarmed else 0
