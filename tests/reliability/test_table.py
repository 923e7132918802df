"""The table of docs/reliability.md has a row for each figure that tests report, and no other."""

import ast
import re
from pathlib import Path

from tests.reliability import table

TESTS = Path(__file__).parents[1]


def patterns():
    """Yield a regular expression for each name that a test reports."""
    for path in sorted(TESTS.rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        for call in [call for call in calls if getattr(call.func, "id", "") == "report"]:
            assert table.is_run(path), f"{path} reports, and make reliability does not run it"
            if isinstance(call.args[0], ast.Name):  # what is given by those who call the function
                name = call.args[0].id
                assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
                yield from (
                    re.escape(node.value.value) for node in assigned if getattr(node.targets[0], "id", "") == name
                )
            else:
                parts = getattr(call.args[0], "values", [call.args[0]])
                yield "".join(re.escape(part.value) if isinstance(part, ast.Constant) else ".+" for part in parts)


def test_rows_are_what_tests_report():
    written = table.PAGE.read_text(encoding="utf-8").split(table.START)[1].split(table.END)[0]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in written.splitlines()[2:]]
    reported = list(patterns())
    assert len(reported) > 20 and len(rows) == len(set(rows))
    assert not [row for row in rows if not any(re.fullmatch(pattern, row) for pattern in reported)]
    assert not [pattern for pattern in reported if not any(re.fullmatch(pattern, row) for row in rows)]
