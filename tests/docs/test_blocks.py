"""The rules by which blocks of pages are found, run and compared."""

import pytest

from tests.docs.blocks import alike, blocks, run_page

PAGE = """
<!-- needs: numpy, no_such_package -->

```python
import no_such_package
```

```python
no_such_package.of_it
```

```{toctree}
start
```

<!-- before:
import pathlib
pathlib.Path("made.txt").write_text("7")
-->
```python
import pathlib
print(pathlib.Path("made.txt").read_text(), 0.123)
```

```
7 0.124
```

<!-- not run: it would never end -->
```python
while True:
    pass
```

```sh
cat made.txt
```

```
7
```
"""


def test_blocks_are_found_with_what_is_asked_of_them():
    lacking, after, tree, made, endless, command = blocks(PAGE)
    assert lacking.needs == ("numpy", "no_such_package") and lacking.missing == ["no_such_package"]
    assert not after.stands_alone and after.printed is None and tree.language == "{toctree}"
    assert made.printed == "7 0.124\n" and "made.txt" in made.before
    assert endless.not_run == "it would never end" and command.printed == "7\n"


def test_a_page_is_run_as_far_as_it_can_be(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    scopes, missing = run_page(page, tmp_path)
    assert missing == {"no_such_package"} and len(scopes) == 2 and "pathlib" in scopes[1]


@pytest.mark.parametrize("wrong", ["7 0.126", "8 0.124", "seven 0.124"])
def test_a_page_that_prints_otherwise_fails(tmp_path, monkeypatch, wrong):
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(PAGE.replace("7 0.124", wrong))
    with pytest.raises(AssertionError, match=r"page.md prints\n7 0.123"):
        run_page(page, tmp_path)


def test_numbers_are_compared_to_their_last_digit():
    assert alike("error 1,234.567", "error 1,234.57") and alike("1.4e-12", "1.5e-12")
    assert not alike("error 1,234.5", "error 1,234.8") and not alike("12 rows", "13 rows")
    assert alike("[0.1 0.2  0.]", "[ 0.1 0.2 0. ]".replace("[ ", "[").replace(" ]", "]"))


def test_a_script_is_run_as_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nimport sys\nif __name__ == \"__main__\":\n    print(sys.argv)\n```\n\n```\n['script.py']\n```\n"
    )
    run_page(page, tmp_path)
    page.write_text('```python\nimport sys\nif __name__ == "__main__":\n    sys.exit(3)\n```\n')
    with pytest.raises(AssertionError, match="sys.exit"):
        run_page(page, tmp_path)
