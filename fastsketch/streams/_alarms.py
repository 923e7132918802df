"""The alarms of a drift monitor."""

from typing import NamedTuple


class Carried(NamedTuple):
    """A column that changed, in an alarm.

    Attributes
    ----------
    column : str or int
        Its name, or number.
    what : {"mean", "variance", "direction"}
        Moment of the column that changed; "direction": the column is a part of the direction whose variance changed.
    before, after : float
        That moment in the reference and since the change; of a direction the variance along it.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((20_000, 8))
    >>> rows[15_000:, 3] += 1.0
    >>> carried = fs.DriftMonitor().update(rows).alarms[0].columns[0]
    >>> carried.column, carried.what, round(carried.before), round(carried.after)
    (3, 'mean', 0, 1)
    """

    column: str | int
    what: str
    before: float
    after: float


class Alarm(NamedTuple):
    """A change of a stream.

    Attributes
    ----------
    row : int
        Number of rows seen when the alarm was raised.
    begin : int
        First row of the block in which the change most likely began.
    score : {"columns", "means", "directions"}
        What deviates most: the mean or variance of one column, the means along leading directions, or the covariances
        of these and the variance outside of them.
    columns : tuple of Carried
        The columns that changed, at most 5, by decreasing deviation. Each deviates at least half as much as the first.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((20_000, 8))
    >>> rows[15_000:, 3] += 1.0
    >>> alarm = fs.DriftMonitor().update(rows).alarms[0]
    >>> alarm.row, alarm.begin
    (15300, 15000)
    """

    row: int
    begin: int
    score: str
    columns: tuple[Carried, ...]
