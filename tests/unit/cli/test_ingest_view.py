"""What an ingested cell looks like on a terminal, and what handing in is refused for."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from orchestrator.cli.view.live_run import summary
from orchestrator.client.transport import read
from orchestrator.domain.run_record import RunResponse
from tests.unit.cli import runs
from tests.unit.cli.test_rented_view import flat, told
from tests.unit.cli.test_view import HOSTILE


def ingested(**more: object) -> runs.Json:
    said: runs.Json = {
        "fingerprint": "f" * 64, "ingested_at": "2026-01-20T00:00:00Z", "sources": [source()],
        "dated_at": "2026-01-19T00:00:00Z", "is_dated": True, "disagreements": [], "repeated": 0,
    }  # fmt: skip
    return {**said, **more}


def source(**more: object) -> runs.Json:
    said: runs.Json = {
        "name": "moe_tests.txt", "digest": "d" * 64, "size_bytes": 9, "state": "read",
        "dialect": "pytest-text 1", "provenance": "parsed-text", "jobs": ["moe"], "named": 48,
        "remarks": ["says X v0.4.5, the subject is 0.4.6", "another"],
    }  # fmt: skip
    return {**said, **more}


def cell(**more: object) -> runs.Json:
    return runs.cell("gcp-l4", state="done", outcome="passed", ingested=ingested(**more))


def test_it_says_where_its_evidence_is_from_and_that_nothing_is_attested():
    text = flat(told(cell(), width=120))
    assert "ingested, parsed-text, of 2026-01-19; nothing is attested" in text
    assert "moe_tests.txt read pytest-text 1; 48 tests; says X v0.4.5" in text
    assert "and 1 more remark" in text


def test_contradictions_stand_out():
    bad = source(name="a.txt", state="inconsistent")
    disputed = {"job": "moe", "nodeid": "t", "sources": [["a", "passed"], ["b", "failed"]]}
    text = flat(told(cell(sources=[bad], repeated=3, disagreements=[disputed]), width=120))
    assert "a.txt INCONSISTENT" in text
    assert "3 tests in more than one file, 1 told differently: the worst counts" in text


@pytest.mark.parametrize(("seconds", "shown"), [(1.2, "1.2s"), (None, "")])
def test_a_run_took_what_its_files_say(seconds, shown):
    """What ingesting took is none of it."""
    found = runs.cell(
        "gcp-l4", state="done", outcome="passed", ingested=ingested(),
        jobs=[runs.job("moe", outcome="passed", duration_s=seconds)],
    )  # fmt: skip
    times = {"created_at": "2026-01-20T00:00:00Z", "finished_at": "2026-01-20T00:00:09Z"}
    over = read(RunResponse, runs.run(found, state="finished", outcome="passed", **times))
    text = flat(summary(over, now=datetime(2026, 1, 21, tzinfo=UTC), width=120).plain)
    head, _, _ = text.partition("gcp-l4")
    assert "9.0s" not in head
    assert shown in head


def test_nobody_said_when():
    assert "not dated" in told(cell(is_dated=False))


@pytest.mark.parametrize("width", [60, 80, 200])
def test_hostile_words_stay_on_their_lines(width):
    evil = "".join(HOSTILE[:8]) + "[bold red]x[/bold red]"
    text = told(cell(sources=[source(name=evil, dialect=evil, remarks=[evil])]), width=width)
    assert "\x1b" not in text
    assert "[bold red]" in flat(text).replace(" ", "") or "[boldred]" in text.replace(" ", "")
