"""Pruning as a whole: over REST, in pages, beside runs that start, and after a crash."""

from __future__ import annotations

import http.client
import os
import threading
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from sqlalchemy import func, select

from orchestrator.api import prune as rest
from orchestrator.application import prune as pruning
from orchestrator.application.prune import prune, prune_when_due
from orchestrator.domain.retention import KeepRule, PruneReport, RetentionPolicy
from orchestrator.domain.run_record import ArtifactRecord
from orchestrator.store.tables import LeaseRow, TransitionRow
from tests.databases import write_log
from tests.integration import gate_world
from tests.integration.api_context import MATRIX, Desk, archive, served
from tests.integration.dashboard.desk import signed_in
from tests.waiting import until

API = "/api/v1"
NEVER = RetentionPolicy(
    **{name: KeepRule(0, "x") for name in ("logs", "artifacts", "payloads", "history", "caches")}
)


def finished(api: Desk, key: str = "key-1", content: bytes = b"a result", **body) -> str:
    """A finished run with a log, a report, and an artifact of its own and a common one."""
    run = str(api.launch(key, **body)["id"])
    for cell in ("here", "there"):
        agent = api.begin(run, cell)
        write_log(api.database.stores, agent.attempt_id, b"what it said\n")
        files = {"own.txt": run.encode() + content, "common.txt": b"what all have"}
        api.database.stores.results.put_artifacts(
            api.cell_id(run, cell),
            [
                ArtifactRecord(name, size, digest)
                for name, text in files.items()
                for digest, size in [api.context.blobs.put([text])]
            ],
        )
    api.finish(run, "here", "there")
    report = reports(api) / run / "report"
    report.mkdir(parents=True)
    (report / "SUMMARY.md").write_text("a report")
    return run


def reports(api: Desk):
    return api.context.scratch.parent / "runs"


def age_blobs(api: Desk) -> None:
    """As if all of them had been stored two days ago."""
    for path in (api.context.scratch.parent / "blobs").rglob("*"):
        then = path.stat().st_mtime - 2 * 86_400
        os.utime(path, (then, then))


def lines(report) -> dict[str, int]:
    return {line["what"]: line["rows"] for line in report["lines"] if line["rows"]}


def preview(api: Desk, **query) -> dict:
    answer = api.client.get(f"{API}/prune", params=query)
    assert answer.status_code == 200, answer.text
    found: dict = answer.json()
    return found


def removed(api: Desk, **body) -> dict:
    answer = api.client.post(f"{API}/prune", json=body)
    assert answer.status_code == 200, answer.text
    found: dict = answer.json()
    return found


def blobs(api: Desk) -> set[str]:
    return {one.digest for one in api.context.blobs.stored(idle_s=-1)}


def test_a_preview_tells_what_a_prune_then_removes(api: Desk) -> None:
    finished(api)
    age_blobs(api)
    assert lines(preview(api)) == {}
    api.clock.move(days=200)
    young = finished(api, "key-2")
    kept = blobs(api)
    told = preview(api, days=100)
    assert (told["dry_run"], told["is_complete"]) == (True, True)
    assert lines(told) == {
        "logs": 4,
        "artifacts": 4,
        "reports": 1,
        "blobs": 1,
        "idempotency keys": 1,
    }
    assert told["rows"] == 11
    assert told["size_bytes"] > 0
    assert blobs(api) == kept, "a preview removes nothing"
    done = removed(api, days=100)
    assert (done["dry_run"], done["is_complete"]) == (False, True)
    assert lines(done) == lines(told)
    assert len(blobs(api)) == len(kept) - 1, "what both runs have stays"
    again = removed(api, days=100)
    assert lines(again) == {}
    assert api.client.get(f"{API}/runs/{young}/cells/here/log").json()["text"] == "what it said\n"
    assert api.client.get(f"{API}/runs/{young}/cells/here/artifacts/own.txt").status_code == 200


def test_whoever_asks_for_a_pruned_log_learns_when_and_by_which_rule(api: Desk) -> None:
    run = finished(api)
    before = api.client.get(f"{API}/runs/{run}").json()
    assert before["pruned"] == []
    pages = signed_in(api, "read")
    for path in ("log", "log/raw"):  # from now on the controller knows where its lines begin
        assert "what it said" in pages.client.get(f"/runs/{run}/cells/here/{path}").text
    api.clock.move(days=400)
    prune(api.context)
    said = f"of run {run} %s pruned at 2027-04-05 12:00 UTC: kept for %s"
    log = said % ("was", "180 days (SEATRIAL_KEEP_LOGS_DAYS)")
    files = said % ("were", "365 days (SEATRIAL_KEEP_ARTIFACTS_DAYS)")
    for accept in ("application/json", "application/octet-stream"):
        answer = api.client.get(f"{API}/runs/{run}/cells/here/log", headers={"Accept": accept})
        assert (answer.status_code, answer.json()["detail"]) == (410, f"the log {log}")
    answer = api.client.get(f"{API}/runs/{run}/cells/here/artifacts/own.txt")
    assert (answer.status_code, answer.json()["detail"]) == (410, f"the artifacts {files}")
    after = api.client.get(f"{API}/runs/{run}").json()
    assert [part["part"] for part in after["pruned"]] == ["artifacts", "logs"]
    assert after["pruned"][1]["rule"] == "kept for 180 days (SEATRIAL_KEEP_LOGS_DAYS)"
    for cell in (*before["cells"], *after["cells"]):
        for one in cell["artifacts"]:
            one.pop("pruned_at", None)
    assert after["cells"] == before["cells"], "its results stay"
    pages = signed_in(api, "read")  # the first session is over
    for path in (f"/runs/{run}/cells/here/log", f"/runs/{run}/cells/here/log/raw"):
        page = pages.client.get(path)
        assert page.status_code == 410
        assert f"the log {log}" in page.text
    shown = pages.client.get(f"/runs/{run}").text
    assert f"The log {log}." in shown
    assert f"The artifacts {files}." in shown
    assert "own.txt (pruned on 2027-04-05)" in pages.client.get(f"/runs/{run}/cells/here").text


def test_a_report_names_the_files_that_were_pruned(api: Desk) -> None:
    run = gate_world.ran(api)
    record = ArtifactRecord("own.txt", 3, "a" * 64)
    api.database.stores.results.put_artifacts(api.cell_id(run, "here"), [record])
    api.database.stores.leases.gone(f"{run}-lease", at=api.clock.now(), cost_usd=Decimal(0))
    url = f"{API}/runs/{run}/reports/platform.md?cell=here"
    whole = f"{API}/runs/{run}/reports/summary.md"
    assert "pruned" not in api.client.get(url).text + api.client.get(whole).text.lower()
    api.clock.move(days=400)
    prune(api.context)
    assert "pruned on 2027-04-05" in api.client.get(url).text
    said = f"**Pruned**: the artifacts of run {run} were pruned at 2027-04-05 12:00 UTC: kept for"
    assert said in api.client.get(whole).text


def test_a_crash_between_rows_and_blobs_is_made_up_for(api: Desk, monkeypatch) -> None:
    """The rows are given up first: what is left is a blob that nothing refers to."""
    finished(api)
    age_blobs(api)
    api.clock.move(days=400)

    def die(*_: object, **__: object) -> bool:
        raise OSError("power cut")

    with monkeypatch.context() as patch:
        patch.setattr(type(api.context.blobs), "remove", die)
        with pytest.raises(OSError, match="power cut"):
            prune(api.context)
    assert api.database.stores.retention.last() is None
    left = blobs(api)
    report = prune(api.context)
    assert report.is_complete
    assert blobs(api) < left
    assert lines(removed(api)) == {}


def test_a_run_that_starts_meanwhile_keeps_its_payload(api: Desk, monkeypatch) -> None:
    """Launched after the prune has read what is in use, and before it removes the rest."""
    data = archive(marker="one more file")
    [digest, _] = api.context.blobs.put([data])
    api.client.put(f"{API}/payloads/{digest}", content=data)
    finished(api, payload=digest)
    age_blobs(api)
    api.clock.move(days=400)
    store = type(api.database.stores.retention)
    real = store.digests_in_use

    def late(self, **given):
        found = real(self, **given)
        assert digest not in found
        api.launch("key-2", payload=digest)
        return found

    monkeypatch.setattr(store, "digests_in_use", late)
    prune(api.context)
    assert api.context.blobs.has(digest)


def test_a_payload_that_was_pruned_is_asked_for_again(api: Desk) -> None:
    data = archive(marker="one more file")
    [digest, _] = api.context.blobs.put([data])
    url = f"{API}/payloads/{digest}"
    assert api.client.put(url, content=data).status_code in (200, 201)
    run = finished(api, payload=digest)
    age_blobs(api)
    api.clock.move(days=400)
    prune(api.context)
    assert api.client.head(url).status_code == 404
    headers = {"Idempotency-Key": "key-2"}
    body = {"matrix": MATRIX, "payload": digest}
    when = "was pruned at 2027-04-05 12:00 UTC: kept for 365 days (SEATRIAL_KEEP_PAYLOADS_DAYS)"
    for path, sent in (("runs", body), (f"runs/{run}/rerun", {})):
        refused = api.client.post(f"{API}/{path}", json=sent, headers=headers)
        told = refused.json()
        assert (refused.status_code, told["type"]) == (422, "urn:seatrial:problem:payload-missing")
        assert told["detail"] == (
            f"the payload {digest} {when}; `seatrial run` with the same files uploads it again, "
            f"and so does PUT {url}"
        )
    parts = api.client.get(f"{API}/runs/{run}").json()["pruned"]
    assert [part["part"] for part in parts] == ["artifacts", "logs", "payload"]
    page = signed_in(api, "read").client.get(f"/runs/{run}").text
    assert f"The payload of run {run} {when}." in page
    assert api.client.put(url, content=data).status_code in (200, 201)
    parts = api.client.get(f"{API}/runs/{run}").json()["pruned"]
    assert [part["part"] for part in parts] == ["artifacts", "logs"]
    assert api.client.post(f"{API}/runs", json=body, headers=headers).status_code == 202


def test_a_wheel_that_was_pruned_is_asked_for_again(api: Desk) -> None:
    data = b"a wheel"
    [digest, _] = api.context.blobs.put([data])
    matrix = MATRIX.replace('"1.10"}', '"1.10", wheel: ./proof.whl}')
    assert matrix != MATRIX
    run = finished(api, matrix=matrix, subject=digest)
    age_blobs(api)
    api.clock.move(days=400)
    prune(api.context)
    body = {"matrix": matrix, "payload": "builtin", "subject": digest}
    refused = api.client.post(f"{API}/runs", json=body, headers={"Idempotency-Key": "key-2"})
    assert refused.status_code == 422
    assert f"the subject's wheel {digest} was pruned at" in refused.json()["detail"]
    answer = api.client.get(f"{API}/runs/{run}").json()
    assert "subject" in [part["part"] for part in answer["pruned"]]
    assert api.client.put(f"{API}/subjects/{digest}", content=data).status_code == 201
    answer = api.client.get(f"{API}/runs/{run}").json()
    assert "subject" not in [part["part"] for part in answer["pruned"]]


def test_a_wheel_that_is_claimed_while_a_prune_works_is_not_called_pruned(
    api: Desk, monkeypatch
) -> None:
    data = archive(marker="one more file")
    [digest, _] = api.context.blobs.put([data])
    api.client.put(f"{API}/payloads/{digest}", content=data)
    run = finished(api, payload=digest)
    age_blobs(api)
    api.clock.move(days=400)
    real = type(api.context.blobs).remove

    def late(self, asked: str, **given: float) -> bool:
        if asked == digest:
            assert self.claim(digest)
        return bool(real(self, asked, **given))

    monkeypatch.setattr(type(api.context.blobs), "remove", late)
    prune(api.context)
    parts = api.client.get(f"{API}/runs/{run}").json()["pruned"]
    assert [part["part"] for part in parts] == ["artifacts", "logs"]


def test_fewer_days_than_asked_for_stay_those_of_the_policy(api: Desk) -> None:
    rules = {line["what"]: line["rule"] for line in preview(api, days=30)["lines"]}
    assert rules["logs"] == "kept for 30 days (as asked)"
    assert rules["wheels"] == "kept for 14 days (SEATRIAL_KEEP_CACHES_DAYS)"
    unused = "kept for 1 day (from when nothing refers to it; payloads and wheels are kept for %s)"
    assert rules["blobs"] == unused % "30 days (as asked)"
    [blobs_rule] = [one["rule"] for one in preview(api)["lines"] if one["what"] == "blobs"]
    assert blobs_rule == unused % "365 days (SEATRIAL_KEEP_PAYLOADS_DAYS)"


def test_a_prune_that_is_stopped_ends_after_its_current_step(api: Desk) -> None:
    for number in range(3):
        finished(api, f"key-{number}", content=bytes([number]))
    age_blobs(api)
    api.clock.move(days=400)
    report = prune(api.context, is_stopped=lambda: True)
    assert not report.is_complete
    assert sum(line.rows > 0 for line in report.lines) == 1
    assert api.database.stores.retention.last() is None
    assert prune(api.context).is_complete


def test_a_stored_verdict_replays_to_the_same_bytes(api: Desk) -> None:
    gate_world.put(api)
    verdicts = []
    for number in range(3):
        run = gate_world.ran(api, f"key-{number}")
        lease = f"{run}-lease"
        api.database.stores.leases.gone(lease, at=api.clock.now(), cost_usd=Decimal(0))
        verdicts.append(str(gate_world.check(api, f"check-{number}", runs=[run])["id"]))
        api.clock.move(days=1)
    age_blobs(api)
    before = [api.client.get(f"{API}/verdicts/{one}/bundle").content for one in verdicts]
    api.clock.move(days=4000)
    done = removed(api)
    assert lines(done)["logs"] > 0
    assert sum(done["kept"].values()) == 1, "the newest verdict's run"
    for one, bundle in zip(verdicts, before, strict=True):
        again = api.client.get(f"{API}/verdicts/{one}/replay").json()
        assert again["identical"], again
        assert api.client.get(f"{API}/verdicts/{one}/bundle").content == bundle


def test_leases_and_transitions_stay(api: Desk) -> None:
    run = gate_world.ran(api)
    api.clock.move(days=4000)

    def rows() -> list[int]:
        with api.database.sessions.read() as session:
            return [
                session.scalar(select(func.count()).select_from(table)) or 0
                for table in (LeaseRow, TransitionRow)
            ]

    before = rows()
    assert "logs" not in lines(removed(api)), "its machine is not proven gone"
    api.database.stores.leases.gone(f"{run}-lease", at=api.clock.now(), cost_usd=Decimal(0))
    assert "logs" in lines(removed(api))
    assert rows() == before


def test_a_prune_without_time_goes_on_with_the_next_call(api: Desk, monkeypatch) -> None:
    for number in range(3):
        finished(api, f"key-{number}", content=bytes([number]))
    age_blobs(api)
    api.clock.move(days=400)
    monkeypatch.setattr(pruning, "TIME_LIMIT", timedelta(0))
    total, calls = 0, 0
    while True:
        report = prune(api.context, time_limit=timedelta(seconds=-1))
        total, calls = total + report.rows, calls + 1
        if report.is_complete:
            break
        assert report.rows > 0
        assert calls < 99
    assert calls > 3
    assert prune(api.context).rows == 0
    assert total > 9


def test_a_client_that_goes_away_stops_the_prune(api: Desk, monkeypatch) -> None:
    """At the end of the step that it does just then: here the first run's artifacts."""
    for number in range(3):
        finished(api, f"key-{number}", content=bytes([number]))
    age_blobs(api)
    api.clock.move(days=400)
    begun, is_gone, stopped = threading.Event(), threading.Event(), []
    store = type(api.database.stores.retention)
    real = store.drop_artifacts
    passed_on = prune

    def slow(self, *given, **named):
        begun.set()
        assert is_gone.wait(30)
        return real(self, *given, **named)

    def watched(context, *, is_stopped, **given):
        def noted() -> bool:
            if begun.is_set() and is_gone.is_set() and not stopped:
                until(is_stopped)  # the server learns of it a moment later
                stopped.append(True)
            return is_stopped()

        report = passed_on(context, is_stopped=noted, **given)
        reports.append(report)
        return report

    reports: list[PruneReport] = []
    monkeypatch.setattr(store, "drop_artifacts", slow)
    monkeypatch.setattr(rest, "prune", watched)
    with served(api.app) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("POST", f"{API}/prune", "{}", {"Content-Type": "application/json"})
        assert begun.wait(30)
        connection.close()
        is_gone.set()
        until(lambda: reports)
    assert not reports[0].is_complete
    assert {line.what: line.rows for line in reports[0].lines}["artifacts"] == 4
    assert prune(api.context).is_complete, "and the next one need not wait"


def test_what_is_kept_for_ever_is_never_pruned(api: Desk) -> None:
    context = replace(api.context, retention=replace(api.context.retention, policy=NEVER))
    finished(api)
    age_blobs(api)
    api.clock.move(days=4000)
    assert prune(context).rows == 0
    assert prune(context, days=1).rows == 0


def test_blobs_that_nothing_ever_referred_to_go_after_a_day(api: Desk) -> None:
    digest, _ = api.context.blobs.put([b"an upload that was broken off"])
    prune(api.context)
    assert api.context.blobs.has(digest)
    age_blobs(api)
    assert lines(removed(api)) == {"blobs": 1}
    assert not api.context.blobs.has(digest)


def test_a_controller_prunes_once_a_day_by_itself(api: Desk) -> None:
    finished(api)
    last = api.database.stores.retention.last
    prune_when_due(api.context)
    first = last()
    assert first == api.clock.now()
    api.clock.move(hours=23)
    prune_when_due(api.context)
    assert last() == first
    api.clock.move(days=400)
    prune_when_due(api.context)
    assert last() == api.clock.now()
    with api.database.stores.retention.alone():
        api.clock.move(days=2)
        prune_when_due(api.context)
        assert last() == api.clock.now() - timedelta(days=2)
        assert api.client.post(f"{API}/prune", json={}).status_code == 409


def test_wheels_go_once_nobody_can_look_them_up(api: Desk) -> None:
    wheels = api.context.scratch.parent / "wheels"
    wheels.mkdir()
    now = api.clock.now().timestamp()
    for name, days in (("old.tar", 15), ("old.json", 15), ("new.tar", 13)):
        (wheels / name).write_bytes(b"x" * 10)
        os.utime(wheels / name, (now - days * 86_400,) * 2)
    (wheels / "tmpkilled").mkdir()
    (wheels / "tmpkilled" / "part").write_bytes(b"x" * 5)
    os.utime(wheels / "tmpkilled", (now - 15 * 86_400,) * 2)
    line = next(one for one in preview(api)["lines"] if one["what"] == "wheels")
    assert (line["rows"], line["size_bytes"]) == (3, 25)
    removed(api)
    assert [path.name for path in wheels.iterdir()] == ["new.tar"]


def test_copies_for_local_jobs_go_once_they_are_not_used(api: Desk) -> None:
    home = api.context.scratch.parent
    now = api.clock.now().timestamp()
    for kind in ("payloads", "wheels", "agents", "attempts"):
        for name, days in (("old", 15), ("new", 13)):
            folder = home / "work" / kind / name
            folder.mkdir(parents=True)
            (folder / "file").write_bytes(b"x" * 10)
            os.utime(folder, (now - days * 86_400,) * 2)
    line = next(one for one in preview(api)["lines"] if one["what"] == "local copies")
    assert (line["rows"], line["size_bytes"]) == (3, 30)
    assert lines(removed(api)) == {"local copies": 3}
    left = sorted(f"{path.parent.name}/{path.name}" for path in (home / "work").glob("*/*"))
    assert left == ["agents/new", "attempts/new", "attempts/old", "payloads/new", "wheels/new"]
    assert list((home / "tmp").glob("pruned-*")) == []


def test_only_numbers_of_days_are_taken(api: Desk) -> None:
    for days in (0, -1, 40_000, "x"):
        assert api.client.get(f"{API}/prune", params={"days": days}).status_code == 422
        assert api.client.post(f"{API}/prune", json={"days": days}).status_code == 422
