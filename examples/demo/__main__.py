"""``python examples/demo``: run the demo and print its report."""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the modules of this folder are the package `demo`

from demo.run import run_demo  # noqa: E402


def main(argv: list[str] | None = None) -> int:
    """Run the demo. Return the exit status: 0, or 2 if a package is missing or a file cannot be written."""
    parser = argparse.ArgumentParser(prog="python examples/demo", description="The main jobs on two photographs.")
    parser.add_argument("--output", default="demo-output", metavar="DIR", help="folder for results")
    parser.add_argument("-l", "--sketch-size", type=int, default=32, metavar="L", help="rows of the sketch")
    parser.add_argument("--json", action="store_true", help="print every figure of the report as JSON")
    args = parser.parse_args(argv)
    try:
        facts = run_demo(args.output, sketch_size=args.sketch_size, say=str if args.json else print)
    except (ImportError, OSError) as error:
        print(f"demo: error: {error}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
