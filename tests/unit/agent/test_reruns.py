"""A test that a plugin of the payload's runs again."""

from __future__ import annotations

import json
from pathlib import Path

from orchestrator.domain.event_facts import fold
from orchestrator.domain.evidence import read_events
from orchestrator.domain.outcome import TestOutcome
from runners.agent.events import EventWriter
from runners.agent.evidence_text import Masker
from runners.agent.pytest_records import SuiteRecords
from runners.agent.tail_json_lines import JsonLinesTail


def report(when: str, outcome: str) -> dict[str, object]:
    told = {"record": "report", "nodeid": "t.py::t", "when": when, "outcome": outcome}
    return {**told, "duration": 0.1, "start": 1.0, "stop": 1.1, "sections": []}


def test_each_earlier_try_becomes_evidence(tmp_path: Path) -> None:
    lines = [
        report("setup", "passed"), report("call", "rerun"), report("setup", "passed"),
        report("call", "rerun"), report("setup", "passed"), report("call", "passed"),
        report("teardown", "passed"),
    ]  # fmt: skip
    written = tmp_path / "records.jsonl"
    written.write_text("".join(json.dumps(line) + "\n" for line in lines))
    events = tmp_path / "events.jsonl"
    writer = EventWriter(events, reserve=tmp_path / "reserve", masker=Masker(()), text_bytes=10_000)
    records = SuiteRecords(JsonLinesTail(written), writer, "unit")
    records.begin_process()
    records.drain()
    read, _ = read_events(events.read_bytes(), after_seq=0)
    facts = fold(read)
    fact = facts.tests["unit", "t.py::t"]
    assert (fact.outcome, fact.final) == (TestOutcome.PASSED, True)
    assert fact.earlier == (TestOutcome.FAILED, TestOutcome.FAILED)
    assert len(facts.notices) == 2
