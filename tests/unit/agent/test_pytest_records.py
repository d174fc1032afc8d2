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


@pytest.mark.parametrize(("when", "reason"), [("start", "wrong_pytest"), ("end", "forged_records")])
def test_only_what_pytest_is_not_started_for_has_no_number(
    tmp_path: Path, when: str, reason: str
) -> None:
    written = tmp_path / "records.jsonl"
    line = {"record": "origins", "when": when, "worker": "", "problems": [SHADOWED]}
    written.write_text(f"{json.dumps(line)}\n")
    writer = EventWriter(
        tmp_path / "events.jsonl",
        reserve=tmp_path / "reserve",
        masker=Masker(()),
        text_bytes=10_000,
    )
    records = SuiteRecords(JsonLinesTail(written), writer, "unit")
    records.begin_process()
    records.drain()
    refusal = records.refusal()
    assert refusal is not None
    assert refusal.reason == reason
