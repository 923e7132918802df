"""Two forms of the tests, a limit on the time of each, signals as a shell gives them, and where real data lie.

What a test tries in the short form it tries on more in the long one. Three things say how much:

- the fixture ``amount``: ``amount(40, 1000)`` is 40 in ``test_x[short]`` and 1000 in ``test_x[long]``;
- the marker ``covering(t)``: of all choices of parameters the short form takes some that have every choice of any t;
- the marker ``long``, which the two above give, on what has no short form.

Hypothesis has more examples in the long form. ``--long`` runs both forms, ``--turn 3/8`` what has its turn of the long
form alone.
"""

import faulthandler
import itertools
import os
import re
import signal
import zlib
from collections import defaultdict

import hypothesis
import pytest
from threadpoolctl import threadpool_limits

from tests.helpers import data_dir

# Seconds that a test may take before it fails, in either form; some more end the process, where nothing else helps.
LIMITS, MORE = (300, 1200), 60
hypothesis.settings.register_profile("short", max_examples=20, deadline=None)
hypothesis.settings.register_profile("long", max_examples=300, deadline=None)


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="the long form, too")
    parser.addoption("--turn", metavar="K/N", help="of the long form alone the tests that have the number K of 0..N-1")


def pytest_configure(config):
    config.addinivalue_line("markers", "long: in the long form alone")
    config.addinivalue_line("markers", "covering(t): the short form has every choice of any t parameters")
    config.stash[STDERR] = os.fdopen(os.dup(2), "w")  # that of the process, before anything captures it
    hypothesis.settings.load_profile("long" if both_forms(config) else "short")
    as_a_shell_does()


STDERR = pytest.StashKey()


def as_a_shell_does():
    """Take signals as they come by default: who starts the tests may ignore some, which children would inherit."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL)


# -- forms -------------------------------------------------------------------------------------------------------------
def both_forms(config):
    """Whether the long form is run."""
    return config.getoption("--long") or config.getoption("--turn") is not None


@pytest.fixture(params=["short", pytest.param("long", marks=pytest.mark.long)])
def amount(request):
    """A function of what the short form tries, and what the long one does."""
    return lambda short, long: long if request.param == "long" else short


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    combined = defaultdict(list)
    for item in items:
        if item.get_closest_marker("covering") and not item.get_closest_marker("long"):
            combined[item.nodeid.partition("[")[0]].append(item)
    for group in combined.values():
        for item in left_over(group, group[0].get_closest_marker("covering").args[0]):
            item.add_marker("long")
    turn = config.getoption("--turn")
    if turn is None and config.getoption("--long"):
        return
    wanted = in_turn(turn) if turn else lambda item: not item.get_closest_marker("long")
    config.hook.pytest_deselected(items=[item for item in items if not wanted(item)])
    items[:] = filter(wanted, items)


def left_over(group, t):
    """Items of a test without which the others have every choice of any t of its parameters."""
    missing = {item: set(itertools.combinations(choices_of(item), t)) for item in group}
    while any(missing.values()):
        covered = missing.pop(max(missing, key=lambda item: len(missing[item])))
        missing = {item: choices - covered for item, choices in missing.items()}
    return list(missing)


def choices_of(item):
    """What each decorator that parametrizes a test gives this one: its values are objects that other items share."""
    named = (mark.args[0] for mark in item.iter_markers("parametrize"))
    names = [tuple(re.split(r"[\s,]+", name)) if isinstance(name, str) else tuple(name) for name in named]
    return sorted((several, *(id(item.callspec.params[name]) for name in several)) for several in names)


def in_turn(turn):
    """A function that says whether an item has the turn "K/N" of the long form."""
    k, n = (int(number) for number in turn.split("/"))

    def wanted(item):
        grows = item.get_closest_marker("long") or getattr(item.obj, "is_hypothesis_test", False)
        return bool(grows) and zlib.crc32(item.nodeid.encode()) % n == k % n

    return wanted


# -- time --------------------------------------------------------------------------------------------------------------
@pytest.hookimpl(wrapper=True)
def limited(item):
    """Fail after some time; end the process, with a traceback, where that is of no use."""
    seconds = LIMITS[item.get_closest_marker("long") is not None]
    has_alarm = hasattr(signal, "SIGALRM")
    faulthandler.dump_traceback_later(seconds + MORE, exit=True, file=item.config.stash[STDERR])
    if has_alarm:
        before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail(f"took more than {seconds} s"))
        signal.alarm(seconds)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
        if has_alarm:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)


pytest_runtest_setup = pytest_runtest_call = pytest_runtest_teardown = limited


@pytest.fixture
def threaded_blas():
    """Threads of BLAS, for what must not depend on them: otherwise the processes of tests have one (run.py)."""
    with threadpool_limits(3, "blas"):
        yield


# -- data --------------------------------------------------------------------------------------------------------------
@pytest.fixture
def dataset():
    """A function that returns the path of a file of the data sets, or skips the test, saying which is absent."""

    def find(name):
        path = data_dir() / name
        if not path.exists():
            pytest.skip(f"data set absent: {name} (set FASTSKETCH_DATA)")
        return path

    return find
