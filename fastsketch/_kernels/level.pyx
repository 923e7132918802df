"""Which instructions the C loops use: chosen when fastsketch is first used, the same in all modules (csrc/fs_level.h)."""

import os


cdef extern from "fs_level.h" nogil:
    int fs_level_best()
    const char *fs_level_name(int level)


cdef int in_force = fs_level_best()


cdef const int* level_at() noexcept:
    return &in_force


def supported():
    """Names of the levels that this CPU can run, the lowest first."""
    return tuple(fs_level_name(level).decode() for level in range(fs_level_best() + 1))


def current():
    """The level in force."""
    return fs_level_name(in_force).decode()


def use(str name):
    """Take another level, for tests and benches: no kernel may be at work in any thread. ValueError for none."""
    global in_force
    names = supported()
    if name not in names:
        raise ValueError(f"{name!r} is no level of this CPU, which has {', '.join(names)}")
    in_force = names.index(name)


# what the environment asked for when this was imported
chosen = os.environ.get("FASTSKETCH_LEVEL") or None
if chosen:
    try:
        use(chosen)
    except ValueError as error:
        raise ValueError(f"the environment variable FASTSKETCH_LEVEL: {error}; unset it for the best") from None
