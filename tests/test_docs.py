"""Docstrings: every public name has one, its parameters stand in it, and an example that runs; a page lists it."""

import ast
import difflib
import doctest
import functools
import importlib
import importlib.util
import inspect
import itertools
import pkgutil
import re
from pathlib import Path

import pytest

import fastsketch
from fastsketch._frame.parameters import Parameter

PAGES = Path(__file__).parents[1] / "docs" / "api"
ROOMS = (*fastsketch._ROOMS, "recommending.ranking", "reference.baselines", "sklearn", "torch", "anndata", "cli")
ROOMS = ("", *(f".{room}" for room in ROOMS))
NEEDS = {"fastsketch.torch": "torch", "fastsketch.anndata": "anndata", "fastsketch.jobs._dask": "dask"}


def is_there(module):
    """Whether what a module needs is installed."""
    return all(importlib.util.find_spec(needed) for room, needed in NEEDS.items() if module.startswith(room))


def modules():
    pytest.importorskip("sklearn")
    for info in pkgutil.walk_packages(fastsketch.__path__, "fastsketch."):
        if is_there(info.name) and "__main__" not in info.name:
            yield importlib.import_module(info.name)


@functools.cache
def public_names():
    """{where it is imported from: it}, each once, under the first of its names; values and rooms are none."""
    pytest.importorskip("sklearn")
    found = {}
    for room in ROOMS:
        home = f"fastsketch{room}"
        if not is_there(home):
            continue
        module = importlib.import_module(home)
        for name in module.__all__:
            item = getattr(module, name)
            known = any(item is other for other in found.values())
            if not (known or name.startswith("_") or inspect.ismodule(item)):
                found[f"{home}.{name}"] = item
    return found


def classes():
    return {name: item for name, item in public_names().items() if inspect.isclass(item)}


# -- examples ------------------------------------------------------------------------------------------------------
def test_examples_run():
    attempted = 0
    for module in modules():
        result = doctest.testmod(module)
        assert result.failed == 0, module.__name__
        attempted += result.attempted
    assert attempted > 500


def test_examples_of_pages_run():
    for page in PAGES.glob("*.rst"):
        assert doctest.testfile(str(page), module_relative=False).failed == 0, page.name


def declared_on_pages():
    """{name: what a page says of it} of types that are no classes, which have no docstring of their own."""
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES.glob("*.rst"))
    return dict(re.findall(r"^\.\. py:data:: (\S+)\n((?:\n|   .*\n)+)", text, re.MULTILINE))


def test_every_public_name_has_an_example():
    declared = declared_on_pages()
    lacking = [name for name, item in public_names().items() if ">>>" not in (declared.get(name) or item.__doc__ or "")]
    assert lacking == []


def test_every_example_is_found():
    """By doctest: in the docstring of a method that is guarded, of a property, of what is imported when it is used."""
    for name, item in public_names().items():
        if inspect.isclass(item) and item.__module__.startswith("fastsketch"):
            known = {test.name for test in doctest.DocTestFinder().find(item, item.__name__) if test.examples}
            for member, value in vars(item).items():
                explained = callable(value) or isinstance(value, property | classmethod)
                if inspect.isfunction(value) and value.__module__ != item.__module__:
                    continue  # a function that several classes share: its module has the example
                if not member.startswith("_") and explained and ">>>" in (value.__doc__ or ""):
                    assert f"{item.__name__}.{member}" in known, f"{name}.{member}"


# -- pages ---------------------------------------------------------------------------------------------------------
def test_every_public_name_has_a_page_and_no_other():
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES.glob("*.rst"))
    listed = re.findall(r"^   (fastsketch\.[\w.]+)$", text, re.MULTILINE) + list(declared_on_pages())
    absent = tuple(room for room in NEEDS if not is_there(room))
    assert len(listed) == len(set(listed))
    assert {name for name in listed if not name.startswith(absent)} == set(public_names())


def test_every_page_is_in_the_index():
    index = (PAGES / "index.rst").read_text(encoding="utf-8").split(".. toctree::")
    pages = {page.stem for page in PAGES.glob("*.rst")} - {"index"}
    assert len(index) == 2
    for part in index:  # the list of names, and the tree
        assert {line.strip() for line in part.splitlines() if line.startswith("   ")} >= pages


# -- docstrings ----------------------------------------------------------------------------------------------------
def first_line(item):
    """Of its own docstring: one inherited from the base class would describe another thing."""
    doc = item.__doc__ if inspect.isclass(item) else inspect.getdoc(item)
    return (doc or "").strip().split("\n")[0]


def is_one_sentence(line):
    """More than two words, a full stop at the end and none before."""
    return len(line.split()) > 2 and line.endswith(".") and ". " not in line


def test_one_sentence():
    assert is_one_sentence("The covariance of a stream, to a certain error.")
    for line in ("", "The covariance of a stream", "The covariance of", "Read: one. Then another.", "A model."):
        assert not is_one_sentence(line)


# First words of the docstrings of functions. A verb that is not among them may be added; anything else is no beginning.
VERBS = """
Accept Adapt Add Adjust Allocate Answer Append Apply Approximate Ask Assign Average Begin Blend Block Bound Bring
Calibrate Call Centre Change Check Choose Classify Clear Clip Close Cluster Collect Combine Compare Compile Complete
Compress Compute Concatenate Convert Copy Count Create Cut Decide Declare Decode Decorate Delay Delete Describe Detect
Determine Discount Dispatch Divide Do Draw Drop Empty Encode End Enlarge Ensure Escape Estimate Evaluate Execute Expand
Express Extend Extract Factorise Feed Fetch Fill Filter Find Finish Fit Flip Fold Forget Format Freeze Give Go Group
Halve Handle Hash Hold Identify Import Improve Include Increase Initialise Install Iterate Join Keep Learn Leave Let
Limit Link List Load Locate Lock Log Look Lower Make Map Mark Match Measure Merge Minimise Mix Monitor Move Multiply
Name Normalise Note Offer Open Orthogonalise Override Overwrite Pack Pad Parse Permute Plan Play Plot Predict Prefetch
Prepare Print Process Project Propagate Provide Put Query Raise Rank Read Rebuild Recommend Record Recover Redirect
Reduce Refine Refit Refuse Reject Release Remove Rename Reorder Repeat Replace Report Rescale Reset Restore Restrict
Resume Retry Return Rotate Round Run Sample Save Say Scale Schedule Score Seal Search See Select Send Serialise Set
Settle Show Shrink Shuffle Silence Simulate Sketch Skip Solve Sort Split Spread Stack Standardise Start Stop Store Strip
Submit Subsample Subtract Sum Summarise Suppress Swap Symmetrise Sync Take Tell Test Track Train Transform Traverse
Truncate Try Undo Unpack Update Use Validate Verify Visit Wait Warn Whiten Wrap Write Yield
"""


def test_docstrings_of_functions_begin_with_a_verb():
    verbs, others = set(VERBS.split()), []
    for path in Path(fastsketch.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            said = (ast.get_docstring(node) or "Return").split()[0].strip(".,:;")
            named = any("property" in ast.unparse(how) for how in node.decorator_list)  # a noun, as of an attribute
            others += [] if named or said in verbs else [f"{path.name}: {node.name}: {said}"]
    assert others == []


def test_public_objects_are_documented():
    for name, item in public_names().items():
        if name in declared_on_pages():
            continue
        assert is_one_sentence(first_line(item)), f"{name}: {first_line(item)!r}"
        if inspect.isclass(item) and not issubclass(item, Exception):
            for member, value in vars(item).items():
                if callable(value) and not member.startswith("_"):
                    assert is_one_sentence(first_line(value)), f"{name}.{member}: {first_line(value)!r}"


def section(doc, title):
    """{name: its description} of a section of a numpydoc docstring; {} if there is none."""
    found = re.search(rf"^{title}\n-+\n(.*?)(?=^\S[^\n]*\n-+\n|\Z)", doc + "\n", re.MULTILINE | re.DOTALL)
    entries = {}
    names = []
    for line in found[1].splitlines() if found else ():
        if line and not line.startswith(" "):
            names = [name.strip(" *") for name in line.split(" : ")[0].split(",")]
            entries.update(dict.fromkeys(names, line.partition(" : ")[2]))
        for name in names:
            entries[name] += line
    return entries


def test_a_section_is_read():
    doc = "One line.\n\nParameters\n----------\na, b : int\n    Two.\n**more\n    All.\n\nReturns\n-------\nint\n"
    assert list(section(doc, "Parameters")) == ["a", "b", "more"]
    assert list(section(doc, "Returns")) == ["int"]
    assert section(doc, "Raises") == {}


# What a method makes, and not people: its constructor takes what they do not have.
MADE_FOR_PEOPLE = {"fastsketch.lowrank.FoldedIn"}


def asked_for(name, item):
    """The arguments of a function, or of a constructor that people call."""
    if inspect.isclass(item) and (
        name in MADE_FOR_PEOPLE
        or inspect.isabstract(item)
        or issubclass(item, BaseException | dict | tuple)
        or getattr(item, "_is_protocol", False)
    ):
        return []
    return [argument for argument in inspect.signature(item).parameters.values() if argument.name != "self"]


def test_parameters_are_documented():
    """Those of functions and constructors, and no others; keywords that are handed on may stand one by one."""
    wrong = {}
    for name, item in public_names().items():
        if name in declared_on_pages():
            continue
        arguments = asked_for(name, item)
        asked = {argument.name for argument in arguments}
        handed_on = {argument.name for argument in arguments if argument.kind is argument.VAR_KEYWORD}
        stated = set(section(inspect.getdoc(item), "Parameters"))
        # those of a record are its attributes
        missing = asked - handed_on - stated - set(section(inspect.getdoc(item), "Attributes"))
        if missing or not (handed_on or stated <= asked):
            wrong[name] = {"not stated": missing, "not asked for": stated - asked}
    assert wrong == {}


# Sentences about one parameter that are nearly the same, and differ for a reason.
MAY_DIFFER = {
    "allow": "items, or columns or rows of any matrix",
    "buffer_size": "0 is allowed on the CPU alone",
    "decay": "the reference methods decay S'S before a round, or H after it",
    "header": "TableRows reads text that is no csv file, too",
    "mask_var": "pca also takes a mask",
    "passes": "each estimator names the one of scikit-learn with the same coefficients",
    "retries": "run counts the losses of a part, map_merge those of a task",
    "rescore": "stored rows, or the rows that are given",
}


def sentences_by_parameter():
    """{parameter: {sentence of six words or more: where it stands}} of all public docstrings."""
    found = {}
    for name, item in public_names().items():
        members = [(name, item)]
        if inspect.isclass(item):
            own = vars(item).items()
            members += [(f"{name}.{key}", value) for key, value in own if callable(value) and not key.startswith("_")]
        for where, member in members:
            for parameter, entry in section(inspect.getdoc(member) or "", "Parameters").items():
                text = " ".join(entry.partition("    ")[2].split())
                for sentence in re.split(r"[.;:] (?=\S)", text.rstrip(".;:")):
                    if len(sentence.split()) >= 6 and not sentence.startswith("As for "):
                        sentence = sentence[0].lower() + sentence[1:]
                        found.setdefault(parameter, {}).setdefault(sentence, []).append(where)
    return found


def test_equal_parameters_have_equal_texts():
    """A parameter that means the same in several classes is explained in the same words."""
    unlike = {}
    for parameter, texts in sentences_by_parameter().items():
        for one, other in itertools.combinations(texts, 2):
            alike = difflib.SequenceMatcher(None, one.split(), other.split(), autojunk=False).ratio()
            if alike >= 0.75:
                unlike.setdefault(parameter, []).append((one, texts[one], other, texts[other]))
    assert {name: pairs for name, pairs in unlike.items() if name not in MAY_DIFFER} == {}
    assert set(MAY_DIFFER) <= set(unlike) or not all(map(is_there, NEEDS)), "a reason is no longer needed"


def test_names_in_docstrings_are_those_of_the_code():
    """What stands in `backticks` in the docstring of a function is in its code, or in that of its class."""
    unknown = []
    for path in Path(fastsketch.__file__).parent.rglob("*.py"):
        homes = [(ast.parse(path.read_text(encoding="utf-8")), set())]
        while homes:
            home, names_of_class = homes.pop()
            for node in ast.iter_child_nodes(home):
                if isinstance(node, ast.ClassDef):
                    homes.append((node, names_in_code(node)))
                elif isinstance(node, ast.FunctionDef) and "`" in (doc := ast.get_docstring(node) or ""):
                    named = set(re.findall(r"(?<!`)`(\w+)`(?!`)", doc))
                    lacking = sorted(named and named - names_of_class - names_in_code(node))
                    unknown += [f"{path.name}: {node.name}: {name}" for name in lacking]
    assert unknown == []


def names_in_code(node):
    """The names and short strings in the code of a function or class."""
    names = set()
    for part in ast.walk(node):
        own = (getattr(part, field, None) for field in ("id", "attr", "arg", "name", "value"))
        names |= {name for name in own if isinstance(name, str) and len(name) < 50}
    return names


def own_members():
    """(name, class, member, as it stands in its class) of what public classes have from this library."""
    for name, item in classes().items():
        for base in item.__mro__:
            if base.__module__.startswith("fastsketch"):
                for member, value in vars(base).items():
                    if not (member.startswith("_") or inspect.isclass(value) or isinstance(value, Parameter)):
                        yield f"{name}.{member}", item, member, value


def test_members_are_documented():
    """Methods with what they ask for; properties in a docstring of their own or among the class's attributes."""
    lacking = []
    for name, cls, member, value in own_members():
        if isinstance(value, property | functools.cached_property):
            if not (inspect.getdoc(value) or member in section(inspect.getdoc(cls), "Attributes")):
                lacking.append(name)
        elif callable(value) or isinstance(value, classmethod | staticmethod):
            doc = inspect.getdoc(getattr(cls, member)) or ""
            asked = inspect.signature(getattr(value, "__func__", value)).parameters
            words = set(re.findall(r"\w+", doc))
            lacking += [f"{name}({argument})" for argument in set(asked) - words - {"self", "cls", "y"}]
            lacking += [] if doc else [name]
    assert sorted(set(lacking)) == []
