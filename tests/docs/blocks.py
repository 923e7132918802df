"""Blocks of a page, run as a reader would run them: Python in order, commands in a shell, what is printed compared."""

import contextlib
import io
import re
import subprocess
import sys

FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?")


def blocks(page):
    """[(language, code, printed)] of the text of a page; printed is the block without a language right behind, or None."""
    found = list(FENCE.finditer(page))
    out = []
    for this, after in zip(found, [*found[1:], None], strict=True):
        if this[1]:
            near = after is not None and not after[1] and not page[this.end() : after.start()].strip()
            out.append((this[1], this[2], after[2] if near and after is not None else None))
    return out


def run_page(path, folder):
    """Run the blocks of a page in `folder`, which is the current one; returns the namespaces of its Python."""
    scopes = []
    for language, code, printed in blocks(path.read_text(encoding="utf-8")):
        if language == "python":
            if not scopes or code.startswith(("import ", "from ")):
                scopes.append({"__name__": "__main__"})
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(code, str(path), "exec"), scopes[-1])
            found = out.getvalue()
        elif language == "sh":
            found = shell(code, folder)
        else:
            continue
        assert printed is None or alike(found, printed), f"{path.name} prints\n{found}\nand says\n{printed}"
    return scopes


def shell(commands, folder):
    """What commands print; ``fastsketch`` is this Python's."""
    line = f'set -e\nfastsketch() {{ "{sys.executable}" -m fastsketch "$@"; }}\n{commands}'
    done = subprocess.run(["sh", "-c", line], cwd=folder, capture_output=True, text=True)
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
