"""Which code a stored result is of: a digest of each module of the library that a command loaded.

Comments, docstrings and the layout of lines do not count. The digest of a compiled module is that of all files that it
is compiled from: its .pyx file, and the declarations and C files that these name, one after the other.
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
KERNELS, CSRC = ROOT / "fastsketch" / "_kernels", ROOT / "csrc"
CIMPORT = re.compile(r"^\s*from fastsketch\._kernels\.([\w.]+) cimport", re.MULTILINE)
HEADER = re.compile(r'"(fs_\w+(?:\.inc)?\.h)"')
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
    return _short("\n".join(_compiled(made) for made in _made_of(source))) if source.exists() else None


def _made_of(path, known=None):
    """Return the files that a module is compiled from, itself first, by the names that they import and include."""
    known = [] if known is None else known
    if path not in known and path.exists():
        known.append(path)
        text = path.read_text(encoding="utf-8")
        named = [KERNELS / (name.replace(".", "/") + ".pxd") for name in CIMPORT.findall(text)]
        named += [CSRC / name for name in HEADER.findall(text)]
        named += [path.with_suffix({".pyx": ".pxd", ".h": ".c"}.get(path.suffix, path.suffix))]
        for other in named:
            _made_of(other, known)
    return known


@cache
def _compiled(path):
    """Return a file that is compiled, without comments and layout."""
    text = path.read_text(encoding="utf-8")
    return _cython(text) if path.suffix in (".pyx", ".pxd") else " ".join(C_COMMENT.sub(" ", text).split())


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
