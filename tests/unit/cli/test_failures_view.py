"""What `show` prints of failures and known issues."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from orchestrator.cli.view.failures import SHOWN, failures
from orchestrator.client.transport import read
from orchestrator.domain.run_record import RunResponse
from tests.unit.cli import runs

Json = dict[str, Any]
SIGNATURE = {
    "id": "s1-0123456789ab",
    "kind": "product",
    "exception": "ValidationError",
    "frame": "fp8_training_engine.to_te_recipe",
    "message": "<n> validation error for DelayedScaling",
}

ENDED = {"state": "finished", "finished_at": "2026-01-01T00:00:00Z"}


def group(count: int = 10, **given: Any) -> Json:
    plain = {"signature": SIGNATURE, "count": count, "cells": ["gcp-l4"], "known_issues": []}
    return plain | {"tolerated": 0} | given


def use(state: str, **given: Any) -> Json:
    issue = {
        "id": "KI-0001", "product": "torchbridge", "title": "Scaling", "match": {}, "owner": "me",
        "opened": "2026-01-01", "expires": "2026-02-01", "max_failures": 11,
    }  # fmt: skip
    return {"issue": issue, "state": state, "count": 0} | given


def text(**given: Any) -> str:
    console = Console(width=140, record=True, file=None, force_terminal=False)
    told = failures(read(RunResponse, runs.typical() | given))
    if told is None:
        return ""
    with console.capture() as captured:
        console.print(told)
    return captured.get()


def test_each_signature_has_a_line_with_its_known_issue() -> None:
    shown = text(failure_groups=[group(known_issues=["KI-0001"], tolerated=10), group(1)])
    lines = [line.strip() for line in shown.splitlines()]
    said = "ValidationError at fp8_training_engine.to_te_recipe: <n> validation error"
    assert lines[1] == "failures by signature"
    assert lines[2].startswith(f"10  {said}")
    assert "gcp-l4  KI-0001  s1-0123456789ab" in " ".join(lines[2:])
    partly = text(failure_groups=[group(known_issues=["KI-0001"], tolerated=3)])
    assert "KI-0001 (3 of them)" in " ".join(partly.split())
    both = group(known_issues=["KI-0001"], quarantines=["Q-0002"], tolerated=10)
    assert "KI-0001, Q-0002  s1-" in text(failure_groups=[both])


def test_known_issues_that_need_a_person_are_told() -> None:
    told = text(
        known_issues=[
            use("stale"),
            use("applies", count=3),
            use("expired", count=2, expired_days=5),
            use("expired"),
            use("exceeded", count=12),
        ],
        **ENDED,
    )
    assert [line.strip() for line in told.splitlines()] == [
        "KI-0001 (Scaling) is stale: a test of it ran and nothing matched; it may be fixed",
        "KI-0001 (Scaling) expired 5 days ago: it explains 2 failures no more",
        "KI-0001 (Scaling) allows 11 failures, and 12 fit",
    ]


def test_an_issue_without_a_match_is_told_when_every_test_had_its_turn() -> None:
    quiet = [use("untried"), use("unmatched")]
    assert [line.strip() for line in text(known_issues=quiet, **ENDED).splitlines()] == [
        "KI-0001 (Scaling) says nothing of this run: no test that failed so before ran in its job",
        "KI-0001 (Scaling) has matched no failure so far",
    ]
    assert text(known_issues=[*quiet, use("stale")], state="running", finished_at=None) == ""


def test_many_signatures_are_cut_and_the_cut_is_said() -> None:
    told = text(failure_groups=[group(1)] * (SHOWN + 3))
    assert "and 3 more signatures; --json has them all" in told


def test_nothing_is_printed_where_nothing_failed() -> None:
    assert text() == ""
    assert text(failure_groups=[], known_issues=[use("applies", count=1)]) == ""


def test_what_machines_said_cannot_draw_on_the_terminal() -> None:
    evil = SIGNATURE | {"message": "\x1b[31m[bold]red\nnext line\x07"}
    told = text(failure_groups=[group(1, signature=evil)])
    assert "\x1b" not in told
    assert "\x07" not in told
    assert "[bold]red" in told
