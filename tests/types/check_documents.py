"""Type checks what a reader copies, as an editor shows it: Python blocks of README.md and docs/, and examples/.

``python tests/types/check_documents.py``: pyright's basic mode. A block that begins with an import stands alone; any
other continues the block before it. Errors carry the line of the page.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFIG = {
    "typeCheckingMode": "basic",
    "pythonVersion": "3.11",
    "reportUnusedExpression": False,  # a page shows a value by naming it, as one does at a prompt
    "extraPaths": [str(ROOT)],
    "executionEnvironments": [
        # a recipe runs where its framework is: Ray, Spark and MPI are not installed for the checks
        {"root": "examples/recipes", "extraPaths": [str(ROOT)], "reportMissingImports": False},
        # scikit-learn has no types: what is guessed of its attributes includes None, which they are before a fit; one
        # example compares with scanpy, which is not installed for the checks
        {
            "root": "examples/gallery",
            "extraPaths": [str(ROOT)],
            "reportMissingImports": False,
            "reportOptionalSubscript": False,
            "reportOptionalOperand": False,
        },
        {"root": "."},
    ],
}


def modules(page):
    """Python modules of one page's text, each padded with empty lines to where its code stands in the page."""
    out = []
    for match in re.finditer(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        code, line = match[1], page.count("\n", 0, match.start(1))
        if not out or code.startswith(("import ", "from ")):
            out.append("")
        out[-1] += "\n" * (line - out[-1].count("\n")) + code
    return out


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pyrightconfig.json").write_text(json.dumps(CONFIG))
        for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))):
            stem = page.relative_to(ROOT).as_posix().replace("/", "_").removesuffix(".md")
            for number, code in enumerate(modules(page.read_text(encoding="utf-8")), 1):
                (folder / f"{stem}_{number}.py").write_text(code, encoding="utf-8")
        count = len(list(folder.glob("*.py")))
        print(f"{count} modules from the code blocks of the documents")
        if not count:
            return "no code block was found"
        shutil.copytree(ROOT / "examples", folder / "examples")
        # no name of a pyright on the path: the one that is installed beside this Python
        command = [sys.executable, "-m", "pyright", "--project", name, "--pythonpath", sys.executable]
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
