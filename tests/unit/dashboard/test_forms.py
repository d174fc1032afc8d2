"""What stands in a form, and what is wrong with it."""

from __future__ import annotations

from datetime import date

from orchestrator.dashboard.forms import Form
from orchestrator.domain.document_problems import InvalidDocumentError, Problem


def test_what_is_sensible_is_taken() -> None:
    form = Form(
        {"a": " one ", "b": "x, y,,z", "c": "https://t.example/1", "d": "2026-03-01", "e": "12"}
    )
    assert (form.filled("a"), form.names("b"), form.url("c")) == (
        "one",
        ("x", "y", "z"),
        "https://t.example/1",
    )
    assert (form.day("d"), form.number("e", least=1, most=30)) == (date(2026, 3, 1), 12)
    assert (form.word("none"), form.is_refused) == ("", False)


def test_what_is_not_is_told_at_its_field() -> None:
    values = {"a": "", "b": "x\ny", "c": "javascript:alert(1)", "d": "soon", "e": "²", "f": "31"}
    form = Form({**values, "g": "x" * 301})
    form.filled("a")
    form.word("b")
    form.url("c")
    form.day("d")
    assert form.number("e", least=1, most=30) == 1
    form.number("f", least=1, most=30)
    form.word("g")
    assert set(form.mistakes) == {*values, "g"}
    assert form.is_refused


def test_what_an_operation_found_stands_at_its_field_too() -> None:
    form = Form({"signature": "s1-x", "title": "t"})
    problems = [Problem(("match", "signature"), "is unknown"), Problem(("match",), "says nothing")]
    form.refuse(InvalidDocumentError("the known issue", problems))
    assert form.mistakes == {"signature": "is unknown"}
    assert form.problem == "match: says nothing"
