"""Entry point of ``python -m fastsketch``, the command line."""

import sys

from fastsketch.cli import main

sys.exit(main())
