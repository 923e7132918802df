"""All that must hold before a version is tagged: `make release-check`. It uploads nothing, and says what is left to do.

What costs least comes first: what git and the files say, then `.ci/run`, then sdist and wheel as an index takes them
and as a user installs and removes them. docs/project/releasing.md has the rest.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# compiles by Numba too, whose files must not stay
USE = "import numpy as np, fastsketch as fs; fs.SketchedNewton().update(np.eye(8), [0, 1] * 4); print(fs.__version__)"


def main():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    found = list(unready(ROOT, version))
    if not found:
        subprocess.run(["bash", ".ci/run"], cwd=ROOT, check=True)
        with tempfile.TemporaryDirectory() as folder:
            found = list(wrong_with_files(Path(folder), version))
    tag = f"git tag -s v{version} && git push origin v{version}"
    print("\n".join(f"not ready: {fault}" for fault in found) or f"ready: {tag}")
    return bool(found)


def unready(root, version):
    """Yield what git and the files say against a release, a line each."""
    if _said("git", "status", "--porcelain", cwd=root):
        yield "there are changes that are not committed"
    if _said("git", "branch", "--show-current", cwd=root) != "main":
        yield "the branch is not main"
    if _said("git", "tag", "--list", f"v{version}", cwd=root):
        yield f"v{version} has been tagged: raise the version (pyproject.toml, fastsketch/__init__.py, CITATION.cff)"
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", changes, re.MULTILINE):
        yield f"CHANGELOG.md has no heading '## {version} (YEAR-MONTH-DAY)'"
    if not re.search(r"pip install \"?fastsketch", (root / "README.md").read_text(encoding="utf-8")):
        yield "README.md does not say pip install fastsketch (bench/templates/README.md)"


def wrong_with_files(folder, version):
    """Yield what is wrong with a new sdist and wheel, as an index would see them and as a user would."""
    tools, users = _environment(folder / "tools"), _environment(folder / "users")
    _said(tools, "-m", "pip", "install", "-q", "build", "twine", cwd=ROOT)
    _said(tools, "-m", "build", "-o", str(folder / "dist"), cwd=ROOT)
    made = sorted(str(path) for path in (folder / "dist").iterdir())
    print(_said(tools, "-m", "twine", "check", "--strict", *made, cwd=ROOT))
    packages = Path(_said(users, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder))
    _said(users, "-m", "pip", "install", "-q", *(path for path in made if path.endswith(".whl")), cwd=folder)
    if (imported := _said(users, "-c", USE, cwd=folder)) != version:
        yield f"the wheel of {version} says that it is {imported}"
    _said(users, "-m", "pip", "uninstall", "-q", "-y", "fastsketch", cwd=folder)
    yield from (f"an uninstall leaves {path}" for path in packages.glob("fastsketch*/**/*"))


def _environment(folder):
    """Return the Python of a new environment."""
    venv.create(folder, with_pip=True)
    return next(str(path) for name in ("bin/python", "Scripts/python.exe") if (path := folder / name).exists())


def _said(*command, cwd):
    """Return what a command prints; a command that fails ends the check."""
    return subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
