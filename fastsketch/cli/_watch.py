"""The subcommand watch, which raises drift alarms for a stream of rows."""

# pyright: reportPrivateUsage=false
# (replaces the stream below a source)

import json
import sys
from dataclasses import dataclass
from typing import Any

from fastsketch.cli._flags import RowsVerb, flag, parameter
from fastsketch.cli._output import open_output
from fastsketch.cli._reading import load_model, open_inputs, reading_notes, reading_of_command_line, remembered_reading
from fastsketch.cli._signals import delay_signals
from fastsketch.data.sources import naming
from fastsketch.data.sources._select import Derived
from fastsketch.data.sources._text import TextSource
from fastsketch.streams import DriftMonitor

# The exit status if there was an alarm.
ALARMED = 3


@dataclass(kw_only=True)
class Watch(RowsVerb):
    """Print a line of JSON for every change of a stream: where it began, which statistic detected it, and which columns
    contribute.

    The first blocks of rows are the reference; after an alarm the next blocks are. The inputs are the same as of
    'sketch'; lines of a pipe are read as they arrive. The exit status is 3 if there was an alarm, otherwise 0. With
    --output a later call continues from this one, and reads rows in the same way.

    Parameters
    ----------
    inputs : INPUT
    output : MONITOR.fsk
        file for the monitor; if it exists, the monitor in it continues
    every : N
        rows of a block, many more than the autocorrelation of rows lasts (default 100)
    reference : N
        blocks of the reference, at least 10 (default 60)
    run_length : N
        the chance of a false alarm within n blocks is at most n / N (default 10000)

    Examples
    --------
    fastsketch watch rows.npy --every 50
    cat houses.csv | fastsketch watch - -o houses.fsk
    """

    MODELS = ("DriftMonitor",)

    inputs: list[str] = flag(nargs="+")
    output: str | None = flag("-o", "--output")
    every: str | None = parameter("--every")
    reference: str | None = parameter("--reference")
    run_length: str | None = parameter("--run-length")

    def run(self) -> int:
        """Monitor the rows of the inputs, and print each alarm as a line of JSON.
        Return the exit status: 3 if there were alarms, otherwise 0.
        """
        with open_output(self) as out:
            parameters = self.parameters(DriftMonitor)
            if out.path is not None and out.path.exists():
                monitor = load_model(str(out.path), DriftMonitor, ": another output is needed for a DriftMonitor")
                for name, value in parameters.items():
                    if getattr(monitor, name) != value:
                        current = getattr(monitor, name)
                        raise ValueError(f"{out.path} has {name}={current}, got {value}: name a new file")
            else:
                monitor = DriftMonitor(**parameters)
            source = open_inputs(self, monitor)
            monitor.notes |= reading_notes({**remembered_reading(monitor.notes), **reading_of_command_line(self)})
            text: Any = source
            while isinstance(text, Derived):
                text = text._of
            if isinstance(text, TextSource) and text._stream is not None:
                text._stream.waits = False
            row, n_earlier_alarms = 0, len(monitor.alarms)
            monitor._name_columns(source)
            try:
                for rows, *_ in source.chunks():
                    n_printed = len(monitor.alarms)
                    with naming(source, row):
                        monitor.update(rows)
                    row += rows.shape[0]
                    for alarm in monitor.alarms[n_printed:]:
                        columns = [carried._asdict() for carried in alarm.columns]
                        print(json.dumps(alarm._asdict() | {"columns": columns}), flush=True)
            finally:
                if sys.exception() is None or isinstance(sys.exception(), KeyboardInterrupt):
                    with delay_signals():
                        out.save(monitor)
            alarmed = len(monitor.alarms) > n_earlier_alarms
            if not (alarmed or monitor.armed):
                facts = monitor.facts()
                print(
                    f"fastsketch: the last rows were compared with nothing: the reference of {monitor.reference} "
                    f"blocks of {facts['rows_in_block']:,} rows is not full: {facts['not_armed_because']} "
                    "(--reference, --every)",
                    file=sys.stderr,
                )
            return ALARMED if alarmed else 0
