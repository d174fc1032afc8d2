"""The seeds from their folders through the real operation, a database, and out of it again.

What comes out must be the golden documents of `tests/unit/reports/test_seeds.py`, where the same
folders are read in memory, but for what only a controller knows: the run's id, and the bytes of
the events that were made of the files.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.adapters.files.ingest_upload import pack_artifacts
from orchestrator.application.describe_run import evidence_of
from orchestrator.domain.run_record import Evidence
from reports.linter import errors, lint, lint_evidence
from reports.registry import model_of
from tests.integration.api_context import Desk
from tests.unit.reports.transcribed import HANDED_IN

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
SEEDS = {
    "000_results": [("seed-000-results.md", "results", None)],
    "002_summary": [("seed-001.md", "platform", "aws-a10g"), ("seed-002.md", "summary", None)],
    "003_platform": [("seed-003.md", "platform", "gcp-l4")],
    "004_backend": [("seed-004.md", "backend", None)],
}
"""By folder of `tests/golden/transcribed`: the golden documents, their kinds and their cells."""
PLATFORMS = {
    "000_results": ("aws-a10g", "gcp-l4"),
    "002_summary": ("local", "gcp-l4", "aws-a10g", "gcp-tpu-v5e", "aws-mi300x"),
    "003_platform": ("gcp-l4",),
    "004_backend": ("gcp-l4", "aws-a10g"),
}
"""In the order in which they are handed in."""
ONLY_HERE = (
    (re.compile(r"`events\.jsonl` - the events that were made of the files \([^)]+\)"), "EVENTS"),
    (re.compile(r"evidence sha256 [0-9a-f]{64}"), "EVIDENCE"),
)


@pytest.fixture
def api(api: Desk) -> Desk:
    api.clock.time = HANDED_IN
    return api


def hand_in(api: Desk, top: str, scratch: Path) -> str:
    """One command per platform; the first makes the run."""
    run = ""
    for platform in PLATFORMS[top]:
        folder = scratch / platform
        folder.mkdir()
        body = pack_artifacts(GOLDEN / "transcribed" / top / platform, folder).read_bytes()
        into = f"?run={run}" if run else ""
        answer = api.client.post(f"/api/v1/ingest{into}", content=body)
        assert answer.status_code == 201, answer.text
        run = answer.json()["run"]
    return run


def same(text: str, run: str) -> str:
    """Without what only a controller knows."""
    text = text.replace(run, "run-0001")
    for pattern, word in ONLY_HERE:
        text = pattern.sub(word, text)
    return text


@pytest.mark.parametrize("top", SEEDS)
def test_the_golden_documents_come_out_of_the_stores(top: str, api: Desk, tmp_path: Path):
    run = hand_in(api, top, tmp_path)
    stored: Evidence = evidence_of(api.context.stores, run, at=HANDED_IN)
    for golden, kind, cell in SEEDS[top]:
        about = f"?cell={cell}" if cell else ""
        ours = api.client.get(f"/api/v1/runs/{run}/reports/{kind}.md{about}")
        assert ours.status_code == 200, ours.text
        wanted = (GOLDEN / "reports" / golden).read_text("utf-8")
        assert same(ours.text, run).splitlines() == same(wanted, run).splitlines()
        model = model_of(kind, stored, cell=cell)
        assert errors((*lint(model), *lint_evidence(model, stored))) == ()


def test_the_links_of_a_summary_lead_to_the_reports_of_its_cells(api: Desk, tmp_path: Path):
    run = hand_in(api, "002_summary", tmp_path)
    reports = f"/api/v1/runs/{run}/reports"
    for form in ("md", "html"):
        summary = api.client.get(f"{reports}/summary.{form}").text
        targets = re.findall(rf"[(\"]([\w.-]+/SUMMARY\.{form})[)\"]", summary)
        assert len(targets) == len(PLATFORMS["002_summary"])
        for target in targets:
            cell = target.partition("/")[0]
            asked = api.client.get(f"{reports}/platform.{form}?cell={cell}")
            there = api.client.get(f"{reports}/{target}")
            assert (there.status_code, there.text) == (200, asked.text)


def test_every_folder_of_evidence_is_handed_in():
    folders = {path.name for path in (GOLDEN / "transcribed").iterdir() if path.is_dir()}
    assert folders == set(PLATFORMS) == set(SEEDS)
    for top, platforms in PLATFORMS.items():
        inside = {path.name for path in (GOLDEN / "transcribed" / top).iterdir()}
        assert inside == set(platforms)
