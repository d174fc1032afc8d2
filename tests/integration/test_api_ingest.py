"""Ingest over REST: an archive becomes a finished run, once, or is refused whole."""

from __future__ import annotations

import gzip
import io
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from orchestrator.adapters.files.ingest_upload import FileUploadUnpacker, pack_artifacts
from orchestrator.api.app import create_app
from orchestrator.application.describe_run import evidence_of
from orchestrator.application.finish_ingestion import finish_ingestion, resume_ingestions
from orchestrator.application.ingest_artifacts import IngestOrder, ingest_artifacts
from orchestrator.application.machines import ssh_access
from orchestrator.application.ports.archives import ArchiveLimits
from orchestrator.application.ports.uploads import IntakeFullError
from orchestrator.domain.cell import CellState, RunState
from orchestrator.domain.charges import NOT_STATED
from orchestrator.domain.event_facts import fold
from orchestrator.domain.evidence import read_events
from orchestrator.domain.outcome import Outcome
from orchestrator.store.attempt_evidence import EvidencePosition
from reports.model.values import Absent
from reports.views.money import money_of
from tests.integration.api_context import desk

LOGS = Path(__file__).parents[1] / "golden" / "logs" / "gcp_l4_v046"
URL = "/api/v1/ingest?platform=gcp-l4&subject=torchbridge@0.4.6"
PROOF = "/api/v1/ingest?platform=gcp-l4&subject=proof@1.10"
TEXT = """\
============================= test session starts ==============================
platform linux -- Python 3.10.12, pytest-9.0.2, pluggy-1.6.0 -- /usr/bin/python3
collecting ... collected 2 items

tests/test_moe.py::test_one PASSED [ 50%]
tests/test_moe.py::test_two PASSED [100%]

============================== 2 passed in 0.12s ===============================
"""
NOTES = """\
apiVersion: seatrial/v1
kind: Ingest
"""


@pytest.fixture
def each(tmp_path, database_url):
    """Over a database of each kind."""
    with desk(tmp_path, database_url) as opened:
        yield opened


def tar_of(**files: str | bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            entry = tarfile.TarInfo(name.replace("__", "/").replace("_yaml", ".yaml"))
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def post(api, body: bytes, url: str = URL, status: int = 201):
    answer = api.client.post(url, content=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def show(api, run_id: str):
    return api.client.get(f"/api/v1/runs/{run_id}").json()


def jobs_of(api, run_id: str, cell: int = 0):
    return {job["id"]: job for job in show(api, run_id)["cells"][cell]["jobs"]}


def test_the_logs_of_the_seed_become_a_finished_run(api, tmp_path):
    body = pack_artifacts(LOGS, tmp_path).read_bytes()
    told = post(api, body)
    assert (told["state"], told["outcome"], told["cell"]) == ("finished", "passed", "gcp-l4")
    run = show(api, told["run"])
    assert run["counts"]["passed"] == 185
    [cell] = run["cells"]
    jobs = {job["id"]: job for job in cell["jobs"]}
    suites = {name: job["counts"]["passed"] for name, job in jobs.items() if job["kind"] == "suite"}
    assert suites == {"nvidia-backend": 66, "moe": 48, "fp8-native": 51, "fp8-training": 20}
    demos = {name: len(job["checks"]) for name, job in jobs.items() if job["kind"] == "demo"}
    assert demos == {"flex-attention-demo": 9, "fp8-demo": 8, "moe-demo": 8}
    assert "Falling back" in jobs["flex-attention-demo"]["degraded"]
    assert jobs["fp8-demo"]["degraded"] is None
    metrics = [metric["samples"] for metric in jobs["moe-benchmark"]["metrics"]]
    assert [525_700.0] in metrics
    assert [311_000.0] in metrics
    stamps = [r for s in cell["ingested"]["sources"] for r in s["remarks"] if r.startswith("says")]
    assert stamps == [
        "says KernelPyTorch v0.4.4, the subject is 0.4.6",
        "says KernelPyTorch v0.4.5, the subject is 0.4.6",
    ]
    assert cell["ingested"]["provenance"] == "parsed-text"
    assert cell["attestation"] is None
    assert cell["packages"]["pytest"] == "9.0.2"
    listed = api.client.get("/api/v1/runs").json()["items"]
    assert listed[0]["counts"] == run["counts"]
    again = post(api, body, status=200)
    assert (again["run"], again["replayed"]) == (told["run"], True)
    assert len(api.client.get("/api/v1/runs").json()["items"]) == 1


def test_a_single_file_and_the_same_in_each_archive(api):
    one = post(api, TEXT.encode(), f"{URL}&name=moe.txt")
    packed = post(api, gzip.compress(tar_of(**{"moe.txt": TEXT})), status=200)
    assert packed["run"] == one["run"]
    log = post(api, gzip.compress(TEXT.encode()), f"{URL}&name=moe.txt.gz")
    assert log["run"] != one["run"]
    assert jobs_of(api, log["run"])["moe"]["counts"]["passed"] == 2


def test_the_same_from_many_at_once_makes_one_run(each):
    body = tar_of(**{"moe.txt": TEXT})
    barrier = threading.Barrier(4)

    def one(_: int) -> str:
        barrier.wait()
        answer = each.client.post(URL, content=body)
        assert answer.status_code in (200, 201), answer.text
        assert answer.json()["state"] == "finished"
        return answer.json()["run"]

    with ThreadPoolExecutor(4) as pool:
        runs = set(pool.map(one, range(4)))
    assert len(runs) == 1
    assert show(each, runs.pop())["counts"]["passed"] == 2


def test_a_cell_is_added_to_a_finished_run_and_the_worst_counts(api):
    first = post(api, tar_of(**{"moe.txt": TEXT}))
    failing = TEXT.replace("test_two PASSED", "test_two FAILED").replace(
        "2 passed", "1 failed, 1 passed"
    )
    url = f"/api/v1/ingest?platform=aws-a10g&subject=torchbridge@0.4.6&run={first['run']}"
    second = post(api, tar_of(**{"moe.txt": failing}), url)
    assert second["run"] == first["run"]
    run = show(api, first["run"])
    assert [cell["id"] for cell in run["cells"]] == ["gcp-l4", "aws-a10g"]
    assert run["outcome"] == "failed"
    assert post(api, tar_of(**{"moe.txt": failing}), url, 200)["run"] == first["run"]
    other = tar_of(**{"moe.txt": failing + "\n"})
    refused = post(api, other, url, 409)
    assert "has a cell 'aws-a10g' already, with other evidence" in refused["detail"]
    assert post(api, other, url + "&environment=nightly")["cell"] == "aws-a10g.nightly"
    assert post(api, tar_of(**{"moe.txt": TEXT}), f"{URL}&run={first['run']}", 200)["replayed"]


def test_a_running_run_gets_no_cell(api):
    run = api.launch()["id"]
    refused = post(api, TEXT.encode(), f"{PROOF}&run={run}&name=a.txt", 409)
    assert "a cell can be added once it is finished" in refused["detail"]
    assert post(api, TEXT.encode(), f"{URL}&run=zzz&name=a.txt", 404)


def test_a_launched_run_may_get_an_ingested_cell_and_be_run_again_without_it(api):
    run = api.launch()["id"]
    for cell in ("here", "there"):
        api.begin(run, cell)
    api.finish(run, "here", "there", outcome=Outcome.FAILED)
    post(api, TEXT.encode(), f"{PROOF}&run={run}&name=a.txt")
    assert [cell["id"] for cell in show(api, run)["cells"]] == ["here", "there", "gcp-l4"]
    assert show(api, run)["cells"][0]["ingested"] is None
    again = api.client.post(f"/api/v1/runs/{run}/rerun", headers={"Idempotency-Key": "k"})
    assert again.status_code == 202, again.text
    assert [cell["id"] for cell in again.json()["cells"]] == ["here", "there"]


def test_an_ingested_run_cannot_run_again_nor_be_entered(api):
    run = post(api, TEXT.encode(), f"{URL}&name=a.txt")["run"]
    again = api.client.post(f"/api/v1/runs/{run}/rerun", headers={"Idempotency-Key": "k"})
    assert again.status_code == 409
    assert "was ingested: there is no payload" in again.json()["detail"]
    cell = api.database.stores.cells.of_run(run)[0]
    with pytest.raises(LookupError, match="was ingested: it has no machine"):
        ssh_access(api.context, cell)
    cancelled = api.client.post(f"/api/v1/runs/{run}/cancel", headers={"Idempotency-Key": "c"})
    assert cancelled.json()["cancel_requested_at"] is None


def test_a_platform_without_results(api):
    said = NOTES + (
        "platform: aws-mi300x\nsubject: {name: torchbridge, version: '0.4.6'}\ndate: 2026-03-02\n"
        "outcome: {word: not_available, reason: not_offered, detail: AWS sells none}\n"
        "annotations: [{kind: note, text: 'see the plan'}]\n"
    )
    told = post(api, tar_of(ingest_yaml=said), "/api/v1/ingest")
    assert (told["outcome"], told["cell"]) == ("not_available", "aws-mi300x")
    assert told["ingested"]["dated_at"] == "2026-03-02T00:00:00Z", "begun east of UTC"
    run = show(api, told["run"])
    [cell] = run["cells"]
    assert (cell["reason"], cell["detail"]) == ("not_offered", "AWS sells none")
    [statement] = api.database.stores.annotations.of_run(told["run"])
    assert (statement.cell, statement.author) == ("aws-mi300x", "ingest.yaml")


def test_a_stated_machine_has_its_cost(api):
    said = NOTES + 'machine: {seconds: 300, usd_per_hour: "0.7068", priced: a bill}\n'
    run = post(api, tar_of(**{"moe.txt": TEXT}, ingest_yaml=said))["run"]
    shown = show(api, run)
    assert shown["cost_usd"] == "0.0589"
    assert shown["cells"][0]["leases"][0]["state"] == "stated"
    assert api.client.get("/api/v1/runs").json()["items"][0]["cost_usd"] == shown["cost_usd"]
    spent = api.client.get("/api/v1/costs").json()
    assert [one["total_usd"] for one in spent["runs"]] == [shown["cost_usd"]]
    assert (spent["bill"]["total_usd"], spent["stated_usd"]) == ("0", "0.0589")
    bill = api.client.get("/api/v1/costs", params={"run": run}).json()
    assert (bill["settled"], bill["bill"]["total_usd"]) == (True, "0.0589")
    for told in (bill, bill["platforms"][0]):
        spent_by_phase = {name: usd for name, usd in told["phases"].items() if Decimal(usd)}
        assert spent_by_phase == {"stated": "0.0589"}


def test_the_cost_of_a_run_whose_files_state_none_is_null(api):
    post(api, tar_of(**{"moe.txt": TEXT}, ingest_yaml=NOTES))
    spent = api.client.get("/api/v1/costs").json()
    assert [one["total_usd"] for one in spent["runs"]] == [None]
    assert spent["runs"][0]["no_cost"] == "its cost is not stated"
    assert spent["unknown_cost_runs"] == 1
    assert (spent["bill"]["total_usd"], spent["stated_usd"]) == ("0", "0")


def test_the_cost_of_a_stated_machine_without_a_duration_is_unknown(api):
    said = NOTES + 'machine: {usd_per_hour: "98.32", priced: a bill, machine_id: box}\n'
    run = post(api, tar_of(**{"moe.txt": TEXT}, ingest_yaml=said))["run"]
    shown = show(api, run)
    listed = api.client.get("/api/v1/runs").json()["items"][0]
    bill = api.client.get("/api/v1/costs", params={"run": run}).json()
    spent = api.client.get("/api/v1/costs").json()
    for one in (shown, shown["cells"][0], listed):
        assert (one["cost_usd"], one["no_cost"]) == (None, NOT_STATED)
    for one in (bill, *bill["platforms"]):
        assert (one["bill"], one["no_cost"]) == (None, NOT_STATED)
        assert one["usd_per_validated_test"] is None
    assert [(one["total_usd"], one["no_cost"]) for one in spent["runs"]] == [(None, NOT_STATED)]
    assert spent["unknown_cost_runs"] == 1
    taken = evidence_of(api.database.stores, run, at=api.clock.now())
    [row] = money_of(taken.record.cells[0]).rows
    assert isinstance(row.seconds, Absent)
    assert isinstance(row.bill, Absent)


def test_tests_that_are_only_counted_are_in_every_count(api):
    typed = """\
apiVersion: seatrial/v1
kind: Transcription
of: a report
jobs:
  - {id: fp8, kind: suite, title: FP8, counts: {passed: 10, failed: 2}}
"""
    run = post(api, tar_of(transcription_yaml=typed))["run"]
    shown = show(api, run)
    assert (shown["counts"]["passed"], shown["counts"]["failed"]) == (10, 2)
    assert shown["outcome"] == "failed"
    assert api.client.get("/api/v1/runs").json()["items"][0]["counts"] == shown["counts"]


@pytest.mark.parametrize(
    ("files", "url", "said"),
    [
        ({}, URL, "there is no file in it"),
        ({"a.bin": b"\x00\x01\x02"}, URL, "no result was found in 1 file:"),
        ({"ingest_yaml": NOTES}, URL, "no result was found"),
        (
            {"moe.txt": TEXT},
            "/api/v1/ingest?platform=gcp-l4",
            "no file states the subject",
        ),
        ({"moe.txt": TEXT}, "/api/v1/ingest?subject=a@1", "no file states the platform"),
        (
            {"moe.txt": TEXT},
            "/api/v1/ingest?platform=x&subject=a",
            "not of the form NAME@VERSION",
        ),
        ({"moe.txt": TEXT}, "/api/v1/ingest?platform=a/b&subject=a@1", "cannot be the id"),
        (
            {"moe.txt": TEXT, "ingest_yaml": NOTES + "platform: aws-a10g\n"},
            URL,
            "platform aws-a10g",
        ),
        ({"moe.txt": TEXT, "ingest_yaml": NOTES + "platfrom: x\n"}, URL, "did you mean"),
        (
            {
                "moe.txt": TEXT,
                "ingest_yaml": NOTES + "outcome: {word: errored, reason: boot}\n",
            },
            URL,
            "says that there are no results",
        ),
        ({"moe.txt": TEXT, "ingest_yaml": b"\xff\xfe"}, URL, "is not UTF-8"),
    ],
)
def test_what_is_refused_leaves_nothing(shared_api, files, url, said):
    refused = post(shared_api, tar_of(**files), url, 422)
    assert said in refused["detail"]
    assert shared_api.client.get("/api/v1/runs").json()["items"] == []
    assert not list((Path(str(shared_api.context.blobs._root))).glob("??/*"))


def order(body: Path) -> IngestOrder:
    return IngestOrder(body=body, name="a.txt", platform="gcp-l4", subject="torchbridge@0.4.6")


class PowerCutError(BaseException):
    """The process is no more."""


class CutBlobs:
    """Gives so many bytes out, and then the power fails."""

    def __init__(self, blobs, reads: int) -> None:
        self._blobs = blobs
        self.reads = reads

    def __getattr__(self, name):
        return getattr(self._blobs, name)

    def open(self, digest):
        if self.reads <= 0:
            raise PowerCutError
        self.reads -= 1
        return self._blobs.open(digest)


def test_what_was_cut_off_is_ended_at_the_next_start_or_when_it_is_posted_again(each, tmp_path):
    body = tmp_path / "body"
    body.write_bytes(TEXT.encode())
    cut = replace(each.context, blobs=CutBlobs(each.context.blobs, 0))
    with pytest.raises(PowerCutError):
        ingest_artifacts(cut, order(body))
    [(begun, _)] = each.database.stores.ingests.unfinished()
    assert show(each, begun.run_id)["state"] == "ingesting"
    assert each.database.stores.cells.unfinished() == ()
    resume_ingestions(each.context)
    shown = show(each, begun.run_id)
    assert (shown["state"], shown["outcome"]) == ("finished", "passed")
    assert shown["counts"]["passed"] == 2
    assert each.database.stores.ingests.unfinished() == ()
    assert ingest_artifacts(each.context, order(body)).run_id == begun.run_id


def test_an_ingestion_goes_on_from_where_its_evidence_stops(api, tmp_path):
    body = tmp_path / "body"
    body.write_bytes(TEXT.encode())
    cut = replace(api.context, blobs=CutBlobs(api.context.blobs, 0))
    with pytest.raises(PowerCutError):
        ingest_artifacts(cut, order(body))
    [(begun, _)] = api.database.stores.ingests.unfinished()
    stores = api.database.stores
    kept = {one.name: one.digest for one in stores.results.artifacts(begun.cell_id)}
    whole = b"".join(api.context.blobs.open(kept["events.jsonl"]))
    half = b"".join(whole.splitlines(keepends=True)[:4])
    events, used = read_events(half, after_seq=0)
    assert used == len(half)
    facts, at = fold(events), api.clock.now()
    assert stores.evidence.append(
        begun.attempt_id, EvidencePosition(), at=at, events=half, facts=facts
    )
    finish_ingestion(api.context, begun)
    assert b"".join(stores.evidence.raw_events(begun.attempt_id)) == whole
    assert show(api, begun.run_id)["counts"]["passed"] == 2


def test_bytes_that_are_gone_end_the_ingestion_as_errored(api, tmp_path):
    body = tmp_path / "body"
    body.write_bytes(TEXT.encode())
    cut = replace(api.context, blobs=CutBlobs(api.context.blobs, 0))
    with pytest.raises(PowerCutError):
        ingest_artifacts(cut, order(body))
    [(begun, _)] = api.database.stores.ingests.unfinished()
    for path in api.context.blobs._root.glob("??/*"):
        path.unlink()
    resume_ingestions(api.context)
    [cell] = api.database.stores.cells.of_run(begun.run_id)
    assert (cell.state, cell.outcome) == (CellState.DONE, Outcome.ERRORED)
    assert api.database.stores.runs.get(begun.run_id).state is RunState.FINISHED


def taking(api, intake) -> TestClient:
    """Speaks to an application that unpacks in its own way."""
    return api.speak(create_app(replace(api.context, intake=intake), guard=None))


def test_a_full_disk_is_said_and_leaves_nothing(shared_api):
    class Full(FileUploadUnpacker):
        def open(self, body, name):
            raise IntakeFullError("the controller's disk has no room to unpack this")

    refused = taking(shared_api, Full()).post(f"{URL}&name=a.txt", content=TEXT.encode())
    assert refused.status_code == 507
    refused = refused.json()
    assert "no room to unpack" in refused["detail"]
    assert shared_api.client.get("/api/v1/runs").json()["items"] == []


def test_bombs_are_refused_over_the_wire(shared_api):
    small = taking(shared_api, FileUploadUnpacker(ArchiveLimits(5, 10_000, 10_000, 2)))
    refused = small.post(URL, content=gzip.compress(tar_of(a=bytes(100_000))))
    assert refused.status_code == 422
    assert "nothing was stored" in refused.json()["detail"]
