"""Asking for a report: what exists, what does not, and in which forms."""

from __future__ import annotations

import json

import pytest

from reports.registry import KINDS, UnknownReportError, render
from tests.unit.reports.stories import release, story


def test_the_kinds():
    assert list(KINDS) == [
        *("summary", "platform", "backend", "results", "cost", "comment", "compare"),
    ]
    assert [name for name, kind in KINDS.items() if kind.per_cell] == ["platform"]
    assert [name for name, kind in KINDS.items() if kind.needs_base] == ["compare"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"kind": "sumary"}, "there is no report 'sumary'; did you mean 'summary'"),
        ({"kind": "platform", "cell": "aws-a10"}, "no cell 'aws-a10'; did you mean 'aws-a10g'"),
        ({"kind": "platform"}, "name one of the run's cells: local-cpu, aws-a10g, gcp-l4"),
        ({"kind": "summary", "cell": "gcp-l4"}, "is of the whole run: name no cell"),
        ({"kind": "summary", "format": "htm"}, "no format 'htm'; did you mean 'html'"),
    ],
)
def test_what_does_not_exist_is_answered_with_what_does(words, message, templates):
    with pytest.raises(UnknownReportError, match=message):
        render(evidence=release(), templates=templates, **words)


def test_the_only_cell_need_not_be_named(templates):
    text = render("platform", story("a10g"), templates=templates)
    assert text == render("platform", story("a10g"), cell="aws-a10g", templates=templates)


def test_json_holds_unrounded_figures_and_says_what_was_not_measured(templates):
    told = json.loads(render("platform", story("a10g"), format="json", templates=templates))
    assert told["suites"]["total"]["rate"]["percent"] == 100 * 175 / 185
    assert told["money"]["rows"][0]["bill"]["total_usd"] == "0.1823"
    assert len(told["metrics"][0]["rows"][0]["cells"][0]["samples"]) == 6
    absent = json.loads(
        render("platform", story("not-available"), format="json", templates=templates)
    )
    assert absent["suites"]["rows"][0]["tally"] == {"not_measured": "never started: not offered"}
