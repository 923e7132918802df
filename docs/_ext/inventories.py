"""Where the names of other projects are documented, for links that need no network while the site is built.

`inventories.txt` has a line for each name that our pages mention: project, role, name and the page it stands on.
"""

import zlib
from pathlib import Path

NAMES = Path(__file__).with_name("inventories.txt")
SITES = {
    "python": "https://docs.python.org/3/",
    "numpy": "https://numpy.org/doc/stable/",
    "scipy": "https://docs.scipy.org/doc/scipy/",
    "sklearn": "https://scikit-learn.org/stable/",
    "torch": "https://docs.pytorch.org/docs/stable/",
    "dask": "https://docs.dask.org/en/stable/",
    "pandas": "https://pandas.pydata.org/docs/",
}


def names():
    """Return {project: [(role, name, page)]}."""
    found = {project: [] for project in SITES}
    for line in NAMES.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            project, role, name, page = line.split()
            found[project].append((role, name, page))
    return found


def inventory(project, lines):
    """Return the bytes of an objects.inv, version 2."""
    head = f"# Sphinx inventory version 2\n# Project: {project}\n# Version: \n"
    head += "# The remainder of this file is compressed using zlib.\n"
    body = "".join(f"{name} {role} 1 {page} -\n" for role, name, page in lines)
    return head.encode() + zlib.compress(body.encode())


def mapping(folder):
    """Write inventories into `folder`, and return the value of `intersphinx_mapping`."""
    folder.mkdir(parents=True, exist_ok=True)
    out = {}
    for project, lines in names().items():
        path = folder / f"{project}.inv"
        path.write_bytes(inventory(project, lines))
        out[project] = (SITES[project], str(path))
    return out
