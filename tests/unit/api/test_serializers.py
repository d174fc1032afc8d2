"""What `show` prints, made from records."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from pydantic import TypeAdapter

import orchestrator.api.described_records  # noqa: F401 - says how the records are answered
from orchestrator.client.transport import read
from orchestrator.domain.cell import Attempt, Cause, CellState, Run, Transition
from orchestrator.domain.event_facts import CheckFact, MetricFact, Notice
from orchestrator.domain.matrix import Platform
from orchestrator.domain.outcome import Counts, Outcome
from orchestrator.domain.run_record import (
    ArtifactRecord,
    CellRecord,
    JobRecord,
    LeaseRecord,
    RunRecord,
    RunResponse,
    run_answer,
)

AT = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
LEASE = LeaseRecord(
    1, "fake", "north", "gone", "m-1", "", Decimal("0.7000"), 90.0, Decimal("0.0175")
)
JOB = JobRecord(
    id="unit",
    kind="suite",
    title="Unit Tests",
    outcome=Outcome.FAILED,
    reason="tests",
    counts=Counts(passed=2, failed=1, skipped=4),
    checks=(CheckFact("unit", "close", "passed", "1e-7", "", "1e-5"),),
    metrics=(MetricFact(3, "unit", "tokens", (1.0, 2.5), "1/s", "higher", {"batch": 8}),),
)
CELL = CellRecord(
    id="here",
    platform=Platform(id="here", provider="fake", optional=True),
    environment="image",
    state=CellState.DONE,
    entered_at=AT,
    outcome=Outcome.FAILED,
    reason="tests",
    detail="unit: 1 failed",
    jobs=(JOB,),
    attempts=(Attempt("a", "c", 1, AT, Cause(Outcome.ERRORED, "ssh", "cut"), Outcome.ERRORED, AT),),
    transitions=(Transition(AT, 1, "queued", "placing", "admitted"),),
    leases=(replace(LEASE, attempt=1, refusal="capacity: none", machine_id=""), LEASE),
    probed={"os": "Debian", "packages": {"torch": "2.13.0", "odd": 3}},
    notices=(Notice(9, 1_772_366_400.0, "unit", "warning", "the log was cut"),),
    artifacts=(ArtifactRecord("unit.txt", 12, "f" * 64),),
    simulated=True,
)
RUN = Run("run-1", "nightly", "lib", "1.10", "d" * 64, AT)


def shown(*cells: CellRecord, run: Run = RUN) -> dict:
    return json.loads(TypeAdapter(RunResponse).dump_json(run_answer(RunRecord(run, cells, AT))))


def test_a_run_has_the_keys_that_were_promised() -> None:
    run = shown(CELL)
    assert run.keys() >= {"id", "state", "outcome", "subject", "matrix", "cost_usd", "cells"}
    cell = run["cells"][0]
    assert cell.keys() >= {
        *("id", "platform", "environment", "state", "outcome", "reason", "counts", "jobs"),
        *("cost_usd", "attempts", "leases", "packages"),
    }
    assert cell["jobs"][0].keys() >= {
        *("id", "kind", "outcome", "reason", "degraded", "counts", "checks", "metrics"),
    }
    assert list(cell["counts"]) == [
        *("passed", "failed", "error", "skipped", "xfailed", "xpassed", "missing", "not_run"),
    ]


def test_money_is_decimal_text() -> None:
    dear = replace(CELL, leases=(replace(LEASE, cost_usd=Decimal("1E+2")),))
    run = shown(dear)
    assert run["cost_usd"] == "100"
    assert run["cells"][0]["leases"][-1]["price_usd_per_hour"] == "0.7000"


def test_every_lease_is_listed_and_the_last_one_is_the_machine() -> None:
    cell = shown(CELL)["cells"][0]
    assert cell["leases"][-1]["machine_id"] == "m-1"
    assert [lease["refusal"] for lease in cell["leases"]] == ["capacity: none", ""]
    assert cell["cost_usd"] == "0.0350"


def test_times_are_utc_as_the_internet_writes_them() -> None:
    cell = shown(CELL)["cells"][0]
    assert cell["entered_at"] == "2026-03-01T12:00:00.250000Z"
    assert cell["notices"][0]["at"] == "2026-03-01T12:00:00Z"


def test_the_pass_rate_leaves_skips_out() -> None:
    run = shown(CELL)
    assert run["pass_rate"] == run["cells"][0]["pass_rate"] == pytest.approx(2 / 3)
    assert shown(replace(CELL, jobs=()))["pass_rate"] is None


def test_packages_are_names_and_texts_whatever_the_machine_sent() -> None:
    cell = shown(CELL)["cells"][0]
    assert cell["packages"] == {"torch": "2.13.0", "odd": "3"}
    assert shown(replace(CELL, probed={"packages": "lies"}))["cells"][0]["packages"] == {}


def test_a_transition_says_from_where_to_where() -> None:
    assert shown(CELL)["cells"][0]["transitions"] == [
        {
            "at": "2026-03-01T12:00:00.250000Z",
            "attempt": 1,
            "from_state": "queued",
            "to_state": "placing",
            "reason": "admitted",
        }
    ]


def test_an_attempt_says_what_went_wrong_outside_its_jobs() -> None:
    attempt = shown(CELL)["cells"][0]["attempts"][0]
    assert attempt["outcome"] == "errored"
    assert attempt["cause"] == {"outcome": "errored", "reason": "ssh", "detail": "cut"}


def test_a_job_keeps_its_checks_and_samples() -> None:
    job = shown(CELL)["cells"][0]["jobs"][0]
    assert job["checks"][0]["value"] == "1e-7"
    assert job["metrics"][0] == {
        "seq": 3,
        "job": "unit",
        "name": "tokens",
        "samples": [1.0, 2.5],
        "unit": "1/s",
        "direction": "higher",
        "params": {"batch": 8},
        "arm": "",
        "turn": None,
        "readings": {},
    }


def test_what_only_judging_needs_of_a_job_is_not_answered() -> None:
    job = shown(CELL)["cells"][0]["jobs"][0]
    assert not job.keys() & {"unnamed", "turns", "test_set"}


def test_a_client_reads_the_record_that_was_answered() -> None:
    run = run_answer(RunRecord(RUN, (CELL,), AT))
    assert read(RunResponse, shown(CELL)) == run
