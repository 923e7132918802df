"""Verdicts on the papers' figures: what counts as the same order, and that each claim is on a page and has results."""

import re

import pytest
import verdicts

import pages

PAPERS = pages.TEMPLATES / "papers"


def table(*rows):
    return {"columns": ["set", "method", "error"], "rows": [list(row) for row in rows]}


def order(groups, **more):
    return {"columns": ["error"], "by": "method", "each": ["set"], "best": "smallest", "order": groups, **more}


def test_an_order_holds_beyond_both_spreads_only():
    rows = table(("x", "a", "1.0 +- 0.2"), ("x", "b", "2.0 +- 0.3"), ("x", "c", "1.3 +- 0.2"), ("x", "d", "diverges"))
    assert verdicts.of_order("", order([["a"], ["b", "d"]]), rows) == ("same order", "2 of 2 pairs")
    assert verdicts.of_order("", order([["a"], ["c"]]), rows) == ("level", "0 of 1 pairs, 1 within the spread")
    assert verdicts.of_order("", order([["b"], ["a"]]), rows)[0] == "other order"
    assert verdicts.of_order("", order([["b"], ["a"]], best="largest"), rows)[0] == "same order"
    short, details = verdicts.of_order("", order([["b", "a"], ["c", "d"]]), rows)
    assert (short, details) == ("same order in part", "2 of 4 pairs, 1 within the spread; b behind c (x)")
    assert verdicts.of_order("", order([["b", "a"], ["d"]], most=True), rows)[0] == "same order"
    assert verdicts.of_order("", order([["d", "a"], ["b"]], most=True), rows)[0] == "same order in part"
    with pytest.raises(verdicts.ClaimError, match="no pair"):
        verdicts.of_order("a name", order([["a"], ["e"]]), rows)


def test_pairs_are_formed_within_sets_and_columns():
    rows = {"columns": ["set", "p", "q"], "rows": [["x", "1", "2"], ["y", "4", "3"]]}
    claim = {"columns": ["p", "q"], "each": ["set"], "best": "smallest", "order": [["p"], ["q"]]}
    assert [pair[0::3] for pair in verdicts.pairs(claim, rows)] == [("x", 1), ("y", -1)]
    claim = order([["x"], ["y"]], by="set", each=[], columns=["p", "q"])
    assert [pair[0::3] for pair in verdicts.pairs(claim, rows)] == [("p", 1), ("q", 1)]


def test_numbers_agree_within_both_spreads_together():
    claim = {"numbers": [["a", "1.0 +- 0.1"], ["b", "2.0"]]}
    cells = {"a": "1.3 +- 0.2", "b": "2.5 +- 0.1"}
    assert verdicts.of_numbers(claim, cells.get)[0] == "agrees in part"
    assert verdicts.of_numbers({"numbers": claim["numbers"][:1]}, cells.get)[0] == "agrees within the spread"
    assert verdicts.of_numbers({"numbers": claim["numbers"][1:]}, cells.get)[0] == "other numbers"


def test_every_claim_is_on_a_page_in_full_and_no_verdict_is_written_by_hand():
    texts = {path.name: path.read_text(encoding="utf-8") for path in PAPERS.glob("*.md")}
    shown = re.findall(r"\{\{ verdict ([\w-]+) \}\}", "".join(texts.values()))
    assert sorted(shown) == sorted(verdicts.claims())
    for name, text in texts.items():
        assert not re.search(r"\*\*(Agrees|Does not agree)|\| agrees", text), name


def test_every_claim_has_results():
    results = pages.Results()
    for name in verdicts.claims():
        assert pages.verdict(name, results).startswith("The paper (")
        assert pages.verdict(f"{name} short", results) in (
            *("same order", "same order in most cases", "same order in part", "level", "other order"),
            *("agrees within the spread", "agrees in part", "other numbers"),
        )
    for wrong in ("no-such-claim", "rfd-figure-1 long"):
        with pytest.raises(pages.PageError):
            pages.verdict(wrong, results)
