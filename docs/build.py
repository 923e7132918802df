"""Builds the site: `build.py` runs the gallery, `build.py --quick` shows its stored pictures; both check every link.

The installed fastsketch is described, wherever the source tree lies. A warning is an error.
"""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import check_pages

DOCS = Path(__file__).resolve().parent
HTML = check_pages.HTML
MADE = (DOCS / "_build", DOCS / "gallery", DOCS / "api" / "generated")


def main():
    began = time.perf_counter()
    quick = "--quick" in sys.argv[1:]
    for folder in MADE:  # a page of an earlier build would count as one of this
        shutil.rmtree(folder, ignore_errors=True)
    # -P: not the tree's own fastsketch/, which has no compiled kernels unless it was installed in place
    command = [sys.executable, "-P", "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    command += ["-D", f"plot_gallery={int(not quick)}", str(DOCS), str(HTML)]
    status = subprocess.run(command, check=False).returncode
    found = list(check_pages.faults(HTML))
    print("\n".join(found))
    print(f"{HTML / 'index.html'}: {len(found)} faults of pages, {time.perf_counter() - began:.0f} s")
    return status or bool(found)


if __name__ == "__main__":
    sys.exit(main())
