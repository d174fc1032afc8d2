"""Annotations over REST: kept once, checked against the results, and in the reports again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.api.app import create_app
from orchestrator.application import add_annotations
from tests.integration.test_api_ingest import TEXT, URL

FALSE = {"kind": "conclusion", "text": "All 3 tests pass.", "author": "R. Eader"}
FIX = {
    "kind": "fix",
    "title": "The mask is where the query is",
    "author": "W. Riter",
    "at": "2026-01-18",
    "cell": "gcp-l4",
    "files": ["src/a.py"],
    "problem": "It was on the CPU.",
    "before": "mask()",
    "after": "mask(device)",
    "commit": "abc1234",
}


def ingested(api):
    return api.client.post(f"{URL}&name=moe.txt", content=TEXT.encode()).json()["run"]


@pytest.fixture
def run(api):
    return ingested(api)


@pytest.fixture(scope="module")
def untouched(shared_api):
    return ingested(shared_api)


def post(api, run: str, *annotations: object, status: int = 201):
    answer = api.client.post(f"/api/v1/runs/{run}/annotations", json={"annotations": annotations})
    assert answer.status_code == status, answer.text
    return answer


def listed(api, run: str):
    return api.client.get(f"/api/v1/runs/{run}/annotations").json()["items"]


def published(tmp_path: Path, run: str, cell: str = "") -> str:
    return (tmp_path / "runs" / run / "report" / cell / "SUMMARY.md").read_text()


def test_a_finished_run_is_published_again_with_what_was_written(api, run, tmp_path):
    assert "The mask is where" not in published(tmp_path, run, "gcp-l4")
    answer = post(api, "latest", FIX, FALSE)
    fix, false = answer.json()["items"]
    assert answer.headers["Location"] == f"/api/v1/runs/{run}/annotations"
    assert fix == FIX | {"at": "2026-01-18T00:00:00Z", "text": "", "doubts": []}
    assert (false["at"], false["cell"]) == ("2026-03-01T12:00:00Z", "")
    assert [doubt["level"] for doubt in false["doubts"]] == ["error"]
    assert listed(api, run) == [fix, false]
    page = published(tmp_path, run, "gcp-l4")
    assert "The mask is where the query is" in page
    assert "W. Riter" in page
    summary = published(tmp_path, run)
    assert "All 3 tests pass." in summary
    assert false["doubts"][0]["message"].split(":")[-1].strip()[:20] in summary


def test_the_same_again_is_stored_once(api, run):
    first = post(api, run, FALSE, FIX).json()
    api.clock.move(days=1)
    again = post(api, run, FALSE, FIX, status=200)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.json() == first
    more = post(api, run, FALSE, FALSE | {"author": "Another"}).json()
    assert [one["author"] for one in more["items"]] == ["R. Eader", "Another"]
    assert len(listed(api, run)) == 3


def test_a_run_that_is_not_over_takes_them_too(api, tmp_path):
    run = str(api.launch()["id"])
    note = {"kind": "note", "text": "It is slow today.", "author": "R. Eader", "cell": "here"}
    post(api, run, note)
    assert [one["text"] for one in listed(api, run)] == ["It is slow today."]
    assert not (tmp_path / "runs" / run / "report").exists()
    page = api.client.get(f"/api/v1/runs/{run}/reports/platform.md?cell=here").text
    assert "It is slow today." in page


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"cell": "gcp-l5"}, "/annotations/1/cell"),
        ({"author": ""}, "/annotations/1/author"),
        ({"kind": "fxi"}, "/annotations/1/kind"),
        ({"at": "soon"}, "/annotations/1/at"),
        ({"text": "x" * 70_000}, "/annotations/1/text"),
        ({"text": "a\x00b"}, "/annotations/1/text"),
        ({"files": ["a", "b\nc"]}, "/annotations/1/files/1"),
        ({"wrong": 1}, "/annotations/1/wrong"),
    ],
)
def test_one_bad_annotation_refuses_all(shared_api, untouched, change, pointer):
    answer = post(shared_api, untouched, FIX, FALSE | change, status=422)
    assert [fault["pointer"] for fault in answer.json()["errors"]] == [pointer]
    assert listed(shared_api, untouched) == []


def test_there_is_an_end_to_them(api, run, monkeypatch):
    monkeypatch.setattr(add_annotations, "MOST_OF_A_RUN", 3)
    many = [FALSE | {"text": f"Note {number}."} for number in range(4)]
    post(api, run, *many[:2])
    post(api, run, many[2])
    assert "3 annotations" in post(api, run, many[3], status=409).json()["detail"]
    assert len(listed(api, run)) == 3
    post(api, run, many[2], status=200)


def test_reports_that_cannot_be_written_do_not_lose_what_was_said(api, run):
    def full(evidence):
        raise OSError("no space left on device")

    app = create_app(replace(api.context, publish=full), guard=None)
    client = api.speak(app)
    path = f"/api/v1/runs/{run}/annotations"
    assert client.post(path, json={"annotations": [FIX]}).status_code == 201
    assert len(listed(api, run)) == 1
