"""Runs as a controller shows them, made up for the tests of the command line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

LAUNCHED = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
NOW = LAUNCHED + timedelta(seconds=100)
RUN_ID = "01jq8x5w3e7t9r2k4m6n8p0zab"
Json = dict[str, Any]


def at(seconds: float) -> str:
    """A moment after the launch."""
    return (LAUNCHED + timedelta(seconds=seconds)).isoformat()


def counts(**figures: int) -> Json:
    names = ["passed", "failed", "error", "skipped", "xfailed", "xpassed", "missing", "not_run"]
    return {name: figures.get(name, 0) for name in names}


def job(name: str, **given: Any) -> Json:
    """A job that was not started, unless something else is given."""
    plain: Json = {
        "id": name, "kind": "suite", "title": name, "outcome": None, "reason": "", "detail": "",
        "degraded": None, "counts": counts(), "checks": [], "metrics": [], "started_at": None,
        "duration_s": None, "timeout_s": 600.0, "current": "",
    }  # fmt: skip
    return plain | given


def cell(name: str, state: str = "queued", **given: Any) -> Json:
    """A cell whose counts are its jobs'."""
    jobs = given.get("jobs", [])
    total = {key: sum(j["counts"][key] for j in jobs) for key in counts()}
    plain: Json = {
        "id": name, "platform": {"id": name, "provider": "local"}, "environment": "image",
        "state": state, "entered_at": at(0), "outcome": None, "reason": "", "detail": "",
        "counts": total, "jobs": jobs, "attempts": [] if state == "queued" else [attempt(1)],
        "transitions": [], "leases": [], "probed": {}, "notices": [], "artifacts": [],
    }  # fmt: skip
    return plain | given


def attempt(number: int) -> Json:
    return {"id": f"a{number}", "cell_id": "c", "number": number, "opened_at": at(0)}


def run(*cells: Json, **given: Any) -> Json:
    total = {key: sum(c["counts"][key] for c in cells) for key in counts()}
    plain: Json = {
        "id": RUN_ID,
        "state": "running",
        "outcome": None,
        "subject": {"name": "torchbridge", "version": "0.4.40"},
        "matrix": "release",
        "cost_usd": "0",
        "counts": total,
        "payload": "0" * 64,
        "rerun_of": None,
        "created_at": at(0),
        "finished_at": None,
        "cancel_requested_at": None,
        "cells": list(cells),
    }
    return plain | given


def passed(name: str, tests: int = 48, seconds: float = 31.4) -> Json:
    return job(
        name,
        outcome="passed",
        counts=counts(passed=tests),
        started_at=at(3),
        duration_s=seconds,
    )


def going(name: str, **given: Any) -> Json:
    """A suite in the middle."""
    figures = counts(passed=30, failed=1, missing=17)
    current = "suites/test_moe.py::TestRouting::test_every_assignment_is_counted[top2-bf16]"
    plain = {"counts": figures, "started_at": at(58), "current": current}
    return job(name, **(plain | given))


def checked(name: str, **given: Any) -> Json:
    """A demo that is over."""
    checks = [{"job": name, "name": f"part {n}", "outcome": "passed"} for n in range(8)]
    plain = {"kind": "demo", "outcome": "passed", "checks": checks, "duration_s": 3.2}
    return job(name, **(plain | given))


def typical() -> Json:
    """Three cells: one is done, one is in the middle, one waits."""
    done = cell("local-cpu", "done", outcome="passed", jobs=[passed("moe"), checked("moe-demo")])
    middle = cell(
        "gcp-l4",
        "running",
        entered_at=at(28),
        jobs=[
            checked("moe-demo", started_at=at(50)),
            going("moe"),
            job("moe-throughput", kind="benchmark"),
        ],
    )
    waiting = cell("aws-a10g", jobs=[job("moe"), job("moe-demo", kind="demo")])
    return run(done, middle, waiting, cost_usd="0.1234")
