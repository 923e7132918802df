"""The experiments of the four papers, one after the other: ``make papers``, or ``python bench/papers.py [PAPER ...]``.

What belongs to a paper stands on its page, docs/papers/PAPER.md, as `bench COMMAND`. Results are kept in a folder of
their own; what is there, of this version and code of the library, is not measured again, so that a run that was
stopped, killed or interrupted goes on where it was, within the longest commands too. A result of another version, or of
code that has changed since, is named and measured anew, and so is one that lacks a set which is there by now. A set
that is absent is named with its origin by the command that wants it, and the run goes on; so it does after a command
that fails, which the last lines name.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

import provenance

import run
from bench_data import DATA
from pages import RESULTS, ROOT, version_of_library
from store import read

PAPERS = ("rfd", "adafd", "frosh", "glrl")


def commands(papers=PAPERS):
    """Return the commands that the pages name, each once, in their order."""
    pages = [(ROOT / "docs" / "papers" / f"{paper}.md").read_text(encoding="utf-8") for paper in papers]
    return list(dict.fromkeys(name for page in pages for name in re.findall(r"`bench (\w+)`", page)))


def seconds(names):
    """Return the seconds that the stored results of so many commands took, as far as they are known."""
    records = [read(path) for path in (RESULTS / f"{name}.json" for name in names) if path.exists()]
    return sum(record.get("seconds", 0) for record in records)


def stale(name, folder):
    """Return why the result of a command is to be measured anew, "absent" where there is none, or nothing."""
    path = folder / f"{name}.json"
    try:
        record = read(path) if path.exists() else None
    except (ValueError, KeyError):  # not a result of ours, or one without a version
        record = None
    if record is None:
        return "absent"
    if record["fastsketch"] != version_of_library():
        return f"there is one of version {record['fastsketch']}"
    if "code" not in record:
        return "there is one of code that was not recorded"
    if older := provenance.changed(record["code"]["modules"]):
        return f"there is one of other code: {', '.join(older)}"
    come = [file for file in record.get("absent", ()) if (DATA / file).exists()]
    return f"there is one without {', '.join(come)}" if come else ""


def measured(name, folder):
    """Run a command; return what there is to say of it, empty where its result is there."""
    command = [sys.executable, ROOT / "bench" / "run.py", name, "--out", folder]
    command += ["--keep"] if name in run.KEEP else []
    code = subprocess.run(command, check=False).returncode
    if code:
        return f"failed with exit status {code}"
    return "" if (folder / f"{name}.json").exists() else "no result: what it needs is absent"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("papers", nargs="*", metavar="PAPER", help=f"some of {', '.join(PAPERS)}; all of them")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "papers", help="folder for results")
    parser.add_argument("--list", action="store_true", help="say what is left and how long it takes, and run nothing")
    args = parser.parse_args()
    unknown = set(args.papers) - set(PAPERS)
    if unknown:
        parser.error(f"no paper {', '.join(sorted(unknown))}: there are {', '.join(PAPERS)}")
    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out {args.out} is no folder that can be made: {error.strerror}")
    wanted, faults = commands(args.papers or PAPERS), {}
    found = {name: stale(name, args.out) for name in wanted}
    left = [name for name in wanted if found[name]]
    print(f"{len(wanted) - len(left)} of {len(wanted)} results are in {args.out}")
    for name in left:
        other = "" if found[name] == "absent" else f"; {found[name]}"
        print(f"  {name}: {seconds([name]) / 60:.0f} min, last time{other}")
    print(f"left: about {seconds(left) / 3600:.1f} h of one core", flush=True)
    for name in [] if args.list else left:
        print(f"\n== {name} ({run_of(name)})", flush=True)
        try:
            faults[name] = measured(name, args.out)
        except KeyboardInterrupt:
            print(f"\ninterrupted in {name}: the same command goes on there", file=sys.stderr)
            return 130
    missing = {name: why for name, why in faults.items() if why}
    for name, why in missing.items():
        print(f"{name}: {why}", file=sys.stderr)
    return int(any("failed" in why for why in missing.values()))


def run_of(name):
    """Return what a command shows, as its help says."""
    return next(text for key, text in run.COMMANDS.items() if key.rpartition(".")[2] == name)


if __name__ == "__main__":
    sys.exit(main())
