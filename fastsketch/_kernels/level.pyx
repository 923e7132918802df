"""The CPU instruction level (such as AVX2) of all C loops, chosen when fastsketch is first used (csrc/fs_level.h)."""

import os


cdef extern from "fs_level.h" nogil:
    int fs_level_best()
    const char *fs_level_name(int level)


cdef int in_force = fs_level_best()


cdef const int* level_at() noexcept:
    return &in_force


def supported():
    """Return the names of the instruction levels that this CPU supports, the lowest first."""
    return tuple(fs_level_name(level).decode() for level in range(fs_level_best() + 1))


def current():
    """Return the name of the instruction level in use."""
    return fs_level_name(in_force).decode()


def use(str name):
    """Set the instruction level, for tests and benchmarks. No kernel may be running in any thread."""
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
