"""Which code a stored result is of: a digest of each module of the library that a command loaded.

Comments, docstrings and the layout of lines do not count. The digest of a compiled module is that of its .pyx file and
of the declarations that all compiled modules share (.pxd, csrc), whether it uses them or not.
"""

import ast
import hashlib
import io
import re
import subprocess
import sys
import tokenize
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "fastsketch"
C_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


def loaded():
    """Return {module: digest} of the modules of the library that this process has loaded."""
    names = sorted(name for name in sys.modules if name.split(".")[0] == "fastsketch")
    return {name: digest for name in names if (digest := digest_of(name))}


def changed(modules):
    """Return the subpackages of {module: digest} whose code is another one now, or is gone."""
    other = {name for name, digest in modules.items() if digest_of(name) != digest}
    return sorted({name.split(".")[1] if "." in name else name for name in other})


def commit():
    """Return the commit of this tree, with "+" where files differ from it; None where there is no git."""
    try:
        done = [
            subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=True).stdout.strip()
            for words in (("rev-parse", "--short=12", "HEAD"), ("status", "--porcelain", "--", "fastsketch", "csrc"))
        ]
    except (OSError, subprocess.CalledProcessError):
        return None
    return done[0] + ("+" if done[1] else "")


@cache
def digest_of(name):
    """Return the digest of the source of a module in this tree, or None if it has none."""
    path = ROOT.joinpath(*name.split("."))
    for source in (path / "__init__.py", path.with_suffix(".py")):
        if source.exists():
            return _short(_python(source.read_text(encoding="utf-8")))
    source = path.with_suffix(".pyx")
    return _short(_cython(source.read_text(encoding="utf-8")) + _shared()) if source.exists() else None


@cache
def _shared():
    """Return what all compiled modules are made of besides their own file."""
    declarations = [_cython(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.pxd"))]
    c = [path for path in sorted((ROOT / "csrc").rglob("*")) if path.suffix in (".c", ".h")]
    return "\n".join([*declarations, *(" ".join(C_COMMENT.sub(" ", p.read_text(encoding="utf-8")).split()) for p in c)])


def _python(text):
    """Return Python without comments, docstrings and layout."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node
        ):
            del node.body[0]
    return ast.dump(tree)


def _cython(text):
    """Return Cython without comments, strings that stand alone, and layout but indentation."""
    ignored = {tokenize.COMMENT, tokenize.NL}
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in ignored]
    kept, line = [], []
    for token in tokens:
        if token.type in (tokenize.INDENT, tokenize.DEDENT):
            kept.append(tokenize.tok_name[token.type])
        elif token.type != tokenize.NEWLINE:
            line.append(token)
        else:
            if [part.type for part in line] != [tokenize.STRING]:
                kept.append(" ".join(part.string for part in line))
            line = []
    return "\n".join(kept)


def _short(text):
    return hashlib.sha256(text.encode()).hexdigest()[:12]
