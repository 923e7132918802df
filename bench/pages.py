"""Pages with figures of stored results: README.md and pages of docs/ are written from templates in bench/templates.

``python bench/pages.py`` writes them, so that a code host shows them as they are; ``--check`` says whether they are up
to date. A reference stands in double braces, names with spaces or signs in double
quotes:

    {{ table speed }}                            the record's only, or "main", table and a line of what it is of
    {{ table speed/stages columns=d,"sum, ms" where dtype=float64 where d=2048 where d=8192 }}
    {{ speed/main[d=2048, l=64].svd rows }}      one cell as it is stored
    {{ a/b[x=1].s / a/b[x=2].s | .1f }}          numbers at the beginning of cells, + - * / ( ), a format
    {{ min(a/b[kind=c].s) }}                     or max: of all rows with such a cell, or of several references
    {{ picture speed "rows a second by size" }}
    {{ hours frosh retrieval }}                  what the commands took together
    {{ verdict frosh-figure-2 }}                 a claim of bench/claims.toml and whether the stored result agrees
    {{ verdict frosh-figure-2 short }}           the same in a few words

A ``where`` or a condition in brackets compares text; on the same column they are alternatives. A page that has single
cells or a picture of another version ends with a line that says so.
"""

import argparse
import ast
import math
import operator
import os
import re
import sys
import tomllib
from pathlib import Path

import provenance
import verdicts

from store import read

ROOT = Path(__file__).resolve().parents[1]
TEMPLATES = ROOT / "bench" / "templates"
FRONT = TEMPLATES / "README.md"
README = ROOT / "README.md"
RESULTS = ROOT / "bench" / "results"
BRACES = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_quoted = r'"[^"]*"'
_words = r"[A-Za-z_][\w@%]*(?:[ -][A-Za-z_][\w@%]*)*"
REFERENCE = re.compile(
    rf"(?P<command>[a-z]\w*)(?:/(?P<name>{_quoted}|[\w-]+))?(?:\[(?P<where>(?:{_quoted}|[^\]\"])*)\])?"
    rf"\.(?P<column>{_quoted}|{_words})"
)
NUMBER = re.compile(r"[<>~]?\s*([-+]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:e[-+]?\d+)?)")
OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


class PageError(ValueError):
    """Error of a reference that no stored result has."""


class Results:
    """Stored records of a folder, read on demand."""

    def __init__(self, folder=RESULTS, version=None):
        self.folder, self.version = Path(folder), version or version_of_library()
        self._records = {}
        self.quoted = set()  # (command, version) of single cells and pictures of a page: no table speaks for them

    def record(self, command):
        if command not in self._records:
            path = self.folder / f"{command}.json"
            if not path.exists():
                raise PageError(f"no stored result of {command!r}")
            self._records[command] = read(path)
        return self._records[command]

    def table(self, command, name=None):
        tables = {table["name"]: table for table in self.record(command)["tables"]}
        if name is None:
            name = next(iter(tables)) if len(tables) == 1 else "main"
        if name not in tables:
            raise PageError(f"{command} has no table {name!r}: {', '.join(tables)}")
        return tables[name]

    def quote(self, command):
        """Remember the version of a result that a page shows without an origin line."""
        self.quoted.add((command, self.record(command)["fastsketch"]))


def version_of_library():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def chosen(table, conditions):
    """Return the rows that match (column, value) pairs."""
    wanted = {}
    for column, value in conditions:
        wanted.setdefault(position(table, column), set()).add(value)
    return [row for row in table["rows"] if all(row[k] in values for k, values in wanted.items())]


def position(table, column):
    if column not in table["columns"]:
        raise PageError(f"table {table['name']!r} has no column {column!r}: {', '.join(table['columns'])}")
    return table["columns"].index(column)


def number(cell):
    found = NUMBER.match(cell)
    if not found:
        raise PageError(f"the cell {cell!r} does not begin with a number")
    return float(found[1].replace(",", ""))


# -- what stands in braces ---------------------------------------------------------------------------------------------


def rendered(text, source, target, results):
    """Return a page with its references replaced; links to pictures are relative to `target`, the path of the page."""

    def place(at):
        return f"{source}:{text.count(chr(10), 0, at) + 1}"

    def replaced(match):
        try:
            return of_braces(" ".join(match[1].split()), target, results)
        except (ValueError, ArithmeticError) as error:
            raise PageError(f"{place(match.start())}: {error}") from None

    outside = BRACES.sub(lambda match: "." * len(match[0]), text)
    if "{{" in outside:
        raise PageError(f"{place(outside.index('{{'))}: braces that are not closed")
    results.quoted.clear()
    page = BRACES.sub(replaced, text)
    other = [(command, version) for command, version in sorted(results.quoted) if version != results.version]
    word = f"another version than {results.version}"
    return page + "".join(f"\n*Of `{command}`: **fastsketch {version}, {word}**.*\n" for command, version in other)


def of_braces(text, target, results):
    kind, _, rest = text.partition(" ")
    if kind == "table":
        return markdown_of(rest, results)
    if kind == "picture":
        return picture(rest, target, results)
    if kind == "hours":
        return f"{sum(results.record(name).get('seconds', 0) for name in rest.split()) / 3600:.1f}"
    if kind == "verdict":
        return verdict(rest, results)
    expression, _, form = pieces(text, "|", 1)
    values, found = {}, []

    def kept(match):
        found.append(match)
        values[f"_{len(values)}"] = cells(match, results)
        return f" _{len(values) - 1} "

    formula = REFERENCE.sub(kept, expression)
    if not found:
        raise PageError(f"{text!r} refers to nothing")
    if formula.strip() == "_0" and not form:
        return escaped(one(values["_0"]))
    try:
        value = evaluated(ast.parse(formula.strip(), mode="eval").body, values)
    except SyntaxError:
        raise PageError(f"{text!r} cannot be read: {formula.strip()!r} is left of it") from None
    if isinstance(value, list):
        value = number(one(value))
    if not math.isfinite(value):
        raise PageError(f"{text!r} is {value}")
    return format(value, form.strip()) if form else shortest(value)


def pieces(text, sign, most):
    """Return (before, sign, after) of the first sign outside of quotes."""
    parts = split(text, sign, most)
    return parts[0].strip(), sign, parts[1] if len(parts) > 1 else ""


def split(text, sign, most=0):
    """Split at a sign (or a regular expression) that is not within quotes or brackets."""
    masked = re.sub(r'"[^"]*"|\[[^\]]*\]', lambda m: "\0" * len(m[0]), text)
    cuts = [m.span() for m in re.finditer(sign if len(sign) > 1 else re.escape(sign), masked)]
    cuts = cuts[:most] if most else cuts
    edges = [0, *(edge for cut in cuts for edge in cut), len(text)]
    return [text[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True)]


def unquoted(text):
    text = text.strip()
    return text[1:-1] if text[:1] == '"' == text[-1:] and len(text) > 1 else text


def condition(text):
    column, sign, value = pieces(text, "=", 1)
    if sign not in text:
        raise PageError(f"{text!r} is not column=value")
    return unquoted(column), unquoted(value)


def cells(match, results):
    """Return the cells that a reference selects."""
    table = results.table(match["command"], match["name"] and unquoted(match["name"]))
    conditions = [condition(part) for part in split(match["where"], ",")] if match["where"] else []
    column = position(table, unquoted(match["column"]))
    rows = chosen(table, conditions)
    if not rows:
        raise PageError(f"no row of {match[0]!r}")
    results.quote(match["command"])
    return [row[column] for row in rows]


def one(found):
    if len(found) != 1:
        raise PageError(f"{len(found)} rows where one is meant")
    if not found[0]:
        raise PageError("the cell is empty")
    return found[0]


def evaluated(node, values):
    if isinstance(node, ast.Name) and node.id in values:
        return values[node.id]
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        left, right = (scalar(evaluated(side, values)) for side in (node.left, node.right))
        return OPERATIONS[type(node.op)](left, right)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -scalar(evaluated(node.operand, values))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
        found = [evaluated(argument, values) for argument in node.args]
        groups = [map(number, filter(None, value)) if isinstance(value, list) else [value] for value in found]
        return {"min": min, "max": max}[node.func.id](x for group in groups for x in group)
    raise PageError(f"{ast.unparse(node)!r} is not understood")


def scalar(value):
    return number(one(value)) if isinstance(value, list) else value


def shortest(value):
    return str(int(value)) if value == int(value) else f"{value:.6g}"


# -- tables and pictures -----------------------------------------------------------------------------------------------


def markdown_of(text, results):
    """Return a stored table as Markdown, with its origin line."""
    words = [word for word in split(text, r"\s+") if word]
    if not words:
        raise PageError("a table of what?")
    command, _, name = words[0].partition("/")
    table = results.table(command, unquoted(name) or None)
    columns, conditions, rest = list(table["columns"]), [], words[1:]
    while rest:
        word = rest.pop(0)
        if word == "where" and rest:
            conditions.append(condition(rest.pop(0)))
        elif word.startswith("columns="):
            columns = [unquoted(part) for part in split(word.removeprefix("columns="), ",")]
        else:
            raise PageError(f"{word!r} is not an option of a table")
    places = [position(table, column) for column in columns]
    rows = [[row[k] for k in places] for row in chosen(table, conditions)]
    if not rows:
        raise PageError(f"no row of {text!r}")
    lines = [[table["columns"][k] for k in places], ["---"] * len(places), *rows]
    body = "\n".join("|" + "|".join(f" {escaped(cell)} " if cell else " " for cell in line) + "|" for line in lines)
    return body.replace(" --- ", "---") + f"\n\n*{origin_of(results, command, table)}*"


def escaped(cell):
    """Return a cell as Markdown shows it: on one line, without column separators or HTML of its own."""
    parts = re.split(r"(`[^`]*`)", " ".join(cell.split()))  # in code < is what it is
    parts[::2] = [re.sub(r"<(?=[A-Za-z/!?])", r"\\<", part) for part in parts[::2]]
    return "".join(parts).replace("|", "\\|")


def origin_of(results, command, table):
    """Return the origin line of a table: version, machine and runs."""
    record = {**results.record(command), **table.get("measured", {})}
    note = f" {table['note']}" if table.get("note") else ""
    version = f"fastsketch {record['fastsketch']}"
    if record["fastsketch"] != results.version:
        version = f"**{version}, another version than {results.version}**"
    blas = sorted({f"{pool['internal_api']} {pool['version']}" for pool in record["blas"]})
    presets = [f"{name}={value}" for name, value in record["presets"].items()]
    machine = f"{record['machine']['processor']} ({record['machine']['instructions']})"
    if (record["machine"].get("load") or 0) > record["machine"]["cores"]:
        machine += f" while other programs ran (load {record['machine']['load']:.0f})"
    origin = f"The command `{command}` measured this table on {record['date']}, with "
    origin += " and ".join([version, *blas, *presets]) + f", on {machine}; runs: "
    runs = table.get("runs")
    return f"{origin}{'not stated' if runs is None else runs}.{note}"


def verdict(text, results):
    name, _, how = text.partition(" ")
    if how not in ("", "short"):
        raise PageError(f"{how!r} is not an option of a verdict")

    def table(reference):
        command, _, title = reference.partition("/")
        results.quote(command)
        return results.table(command, title or None)

    try:
        says, short, details = verdicts.verdict(
            name, table, lambda text: one(cells(REFERENCE.fullmatch(text), results))
        )
    except verdicts.ClaimError as error:
        raise PageError(str(error)) from None
    return short if how else escaped(f"The paper ({says}). **{short.capitalize()}**: {details}.")


def picture(text, target, results):
    found = re.fullmatch(r'(\w+)\s+"([^"]+)"', text.strip())
    if not found:
        raise PageError(f'picture {text!r} is not COMMAND "what it shows"')
    path = results.folder / f"{found[1]}.png"
    if not path.exists():
        raise PageError(f"no picture of {found[1]!r}")
    results.quote(found[1])
    return f"![{found[2]}]({Path(os.path.relpath(path, Path(target).parent)).as_posix()})"


# -- the pages ---------------------------------------------------------------------------------------------------------


def written():
    """Return {path of a page: its template}."""
    found = {path: path.relative_to(TEMPLATES) for path in sorted(TEMPLATES.rglob("*.md"))}
    return {README if path == FRONT else ROOT / "docs" / name: path for path, name in found.items()}


def page(path, results=None):
    """Return the text of a page, or raise a PageError."""
    template = written()[path]
    source = template.relative_to(ROOT).as_posix()
    mark = f"<!-- Made by bench/pages.py from {source}: edit that. -->\n"
    return mark + rendered(template.read_text(encoding="utf-8"), source, path, results or Results())


def code_changes(template, results):
    """Return {command: subpackages that have changed since}, of the commands that a template refers to."""
    words = {word for braces in BRACES.findall(template) for word in re.findall(r"\w+", braces)}
    named = sorted(word for word in words if (results.folder / f"{word}.json").exists())
    modules = {name: results.record(name).get("code", {}).get("modules", {}) for name in named}
    return {name: older for name, found in modules.items() if (older := provenance.changed(found))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if a page is not up to date")
    check, results, stale = parser.parse_args().check, Results(), []
    try:
        texts = {path: page(path, results) for path in written()}
    except PageError as error:
        print(error, file=sys.stderr)
        return 1
    for path, text in texts.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.relative_to(ROOT).as_posix())
            if not check:
                path.write_text(text, encoding="utf-8")
    print("\n".join(f"{name}: {'not up to date' if check else 'written'}" for name in stale) or "all pages: up to date")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
