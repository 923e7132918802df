"""The command line: ``fastsketch sketch | hash | encode | search | learn | complete | predict | recommend | ...``.

Exit status 0: done; 1: interrupted; 2: wrong usage, or an input that cannot be used (one line says which and why).
"""

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    from fastsketch.cli._parser import make_parser

    arguments = make_parser().parse_args(argv)
    try:
        arguments.run(arguments)
    except KeyboardInterrupt:
        print("fastsketch: interrupted", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of our output has gone.
        sys.stderr.close()
        return 1
    except (ValueError, TypeError, OSError, OverflowError, ImportError, MemoryError) as error:
        # one line, whatever a name or a library put into the message
        print(f"fastsketch: error: {' '.join(str(error).split()) or type(error).__name__}", file=sys.stderr)
        return 2
    return 0
