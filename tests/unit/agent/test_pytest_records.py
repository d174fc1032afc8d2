"""Which records of a suite count."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runners.agent.events import EventWriter
from runners.agent.evidence_text import Masker
from runners.agent.pytest_records import SuiteRecords
from runners.agent.tail_json_lines import JsonLinesTail

SHADOWED = {"reason": "wrong_pytest", "module": "", "file": "x.py", "what": "w", "fix": "f"}


def _records(tmp_path: Path, written: Path) -> SuiteRecords:
    writer = EventWriter(
        tmp_path / "events.jsonl",
        reserve=tmp_path / "reserve",
        masker=Masker(()),
        text_bytes=10_000,
    )
    return SuiteRecords(JsonLinesTail(written), writer, "unit")


@pytest.mark.parametrize(("when", "reason"), [("start", "wrong_pytest"), ("end", "forged_records")])
def test_only_what_pytest_is_not_started_for_has_no_number(
    tmp_path: Path, when: str, reason: str
) -> None:
    written = tmp_path / "records.jsonl"
    line = {"record": "origins", "when": when, "worker": "", "problems": [SHADOWED]}
    written.write_text(f"{json.dumps(line)}\n")
    records = _records(tmp_path, written)
    records.begin_process()
    records.drain()
    refusal = records.refusal()
    assert refusal is not None
    assert refusal.reason == reason


def test_skipped_subtests_are_told_once_with_their_tests(tmp_path: Path) -> None:
    report = {"record": "report", "from": "", "pid": 1, "when": "call", "duration": 0.1}
    reports = [
        {**report, "nodeid": "t::a", "outcome": "skipped", "subtest": "s"},
        {**report, "nodeid": "t::a", "outcome": "skipped", "subtest": "s"},
        {**report, "nodeid": "t::a", "outcome": "passed", "subtest": "s"},
        {**report, "nodeid": "t::b", "outcome": "skipped"},
    ]
    written = tmp_path / "records.jsonl"
    lines = [json.dumps({**line, "seq": number}) for number, line in enumerate(reports, 1)]
    written.write_text("\n".join(lines) + "\n")
    records = _records(tmp_path, written)
    records.begin_process()
    records.drain()
    told = [
        line for line in (tmp_path / "events.jsonl").read_text().splitlines() if '"log"' in line
    ]
    assert len(told) == 1
    assert "skipped subtests: 2, of tests: 1 (t::a)" in told[0]
