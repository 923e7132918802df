"""Blocks of a page, run as a reader would run them: Python in order, commands in a shell, what is printed compared.

What a comment above a block says is in docs/project/testing.md, under "The site".
"""

import contextlib
import importlib.util
import io
import os
import re
import subprocess
import sys
from dataclasses import dataclass

FENCE = re.compile(r"^((?:<!--(?:(?!-->).)*-->\s*)?)^(```+)([^\n`]*)\n(.*?)^\2$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d*)?(?:e[+-]?\d+)?")


@dataclass
class Block:
    """`printed` is the block without a language that stands right behind, or None; `before` is Python to run first."""

    language: str
    code: str
    printed: str | None = None
    before: str = ""
    needs: tuple[str, ...] = ()
    not_run: str | None = None

    @property
    def stands_alone(self):
        return self.code.startswith(("import ", "from "))

    @property
    def missing(self):
        return [name for name in self.needs if importlib.util.find_spec(name) is None]


def blocks(page):
    """Those of a page's text that have a language."""
    found = list(FENCE.finditer(page))
    out = []
    for this, after in zip(found, [*found, None][1:], strict=True):
        if this[3]:
            near = after is not None and not after[3] and not page[this.end() : after.start()].strip()
            out.append(Block(this[3], this[4], after[4] if near and after is not None else None, **_asked(this[1])))
    return out


def _asked(comment):
    """What a comment above a block asks for."""
    inside = comment.strip().removeprefix("<!--").removesuffix("-->").strip()
    word, _, rest = inside.partition(":")
    if word == "before":
        return {"before": rest}
    if word == "needs":
        return {"needs": tuple(name.strip() for name in rest.split(","))}
    return {"not_run": rest.strip()} if word == "not run" else {}


def run_page(path, folder):
    """Runs the blocks of a page in `folder`, the current one; the namespaces of its Python, and what is missing."""
    scopes, missing, skipped = [], set(), False
    for block in blocks(path.read_text(encoding="utf-8")):
        if block.language == "python" and (block.stands_alone or not scopes):
            scopes.append({"__name__": "page"})
            skipped = False
        skipped = skipped or bool(block.missing)
        missing |= set(block.missing)
        if skipped or block.not_run is not None or block.language not in ("python", "sh"):
            continue
        exec(compile(block.before, f"{path}, before", "exec"), {"__name__": "before"})
        found = shell(block.code, folder) if block.language == "sh" else python(block.code, path, folder, scopes[-1])
        assert block.printed is None or alike(found, block.printed), (
            f"{path.name} prints\n{found}\nand says\n{block.printed}"
        )
    return scopes, missing


def python(code, path, folder, scope):
    """What it prints. A script, which spawns workers, runs in a process of its own."""
    if '__name__ == "__main__"' in code:
        return script(code, folder)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, str(path), "exec"), scope)
    return out.getvalue()


def script(code, folder):
    """What it prints."""
    (folder / "script.py").write_text(code, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    done = subprocess.run([sys.executable, "script.py"], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{code}\n{done.stdout}{done.stderr}"
    return done.stdout


def shell(commands, folder):
    """What commands print; `fastsketch` is this Python's."""
    line = f'set -e\nfastsketch() {{ "{sys.executable}" -m fastsketch "$@"; }}\n{commands}'
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    done = subprocess.run(["sh", "-c", line], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"
    return done.stdout


def alike(found, printed):
    """The same words; numbers within two units of the last digit shown, for processors differ in their last bits."""
    if NUMBER.sub("#", found).split() != NUMBER.sub("#", printed).split():
        return False
    pairs = zip(NUMBER.findall(found), NUMBER.findall(printed), strict=True)
    return all(abs(_value(ours) - _value(shown)) <= 2.01 * _unit(shown) for ours, shown in pairs)


def _value(text):
    return float(text.replace(",", ""))


def _unit(text):
    """One of the last digit of a number with a point; a whole number is exact."""
    digits, _, power = text.partition("e")
    if "." not in digits and not power:
        return 0.0
    return 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
