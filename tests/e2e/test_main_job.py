"""The main job on this computer: launched by curl, by the CLI against `serve`, by the CLI alone."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import httpx
import pytest

from tests.accounts import ACCOUNT, beside_account, needs_account, open_folder
from tests.e2e.home import a_home, eventually
from tests.e2e.payloads import Steps, matrix
from tests.ssh_hosts import free_port

EXPECTED = {"passed": 16, "failed": 2, "skipped": 2}


@pytest.fixture
def steps(tmp_path):
    return Steps(tmp_path / "steps", tests=20, seconds=0.02)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Its controller is started by the first command, and stays for all tests."""
    with a_home(tmp_path_factory.mktemp("main") / "home") as home:
        yield home


def told(run: dict) -> dict:
    """What must be the same however a run was launched."""
    [cell] = run["cells"]
    jobs = {job["id"]: (job["outcome"], job["reason"], job["counts"]) for job in cell["jobs"]}
    return {
        "outcome": run["outcome"],
        "cells": [(cell["id"], cell["outcome"], cell["reason"], cell["counts"])],
        "jobs": jobs,
        "artifacts": sorted(artifact["name"] for artifact in cell["artifacts"]),
    }


@needs_account
def test_three_ways_to_launch_give_the_same_results(tmp_path):
    with a_home(tmp_path / "home") as home, open_folder() as folder:
        three_ways(home, Steps(folder / "steps", tests=20, seconds=0.02), tmp_path)


def three_ways(home, steps, tmp_path):
    file = matrix(tmp_path / "m.yaml", steps.folder)
    alone = json.loads(home.seatrial("run", str(file), "--json", status=1))
    assert {k: v for k, v in alone["cells"][0]["counts"].items() if v} == EXPECTED
    home.stop()

    port = free_port()
    words = home.command("serve", "--port", str(port), "--local-jobs-as", ACCOUNT)
    serve = subprocess.Popen(
        beside_account(tmp_path / "beside", *words),
        env=home.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        eventually(lambda: httpx.get(f"{url}/healthz").status_code == 200)
        token = (home.path / "token").read_text()
        home.environment |= {"SEATRIAL_URL": url, "SEATRIAL_TOKEN": token}
        served = json.loads(home.seatrial("run", str(file), "--json", status=1))
        curled = by_curl(url, token, file, steps.folder, tmp_path)
    finally:
        serve.terminate()
        serve.wait(300)
    assert told(served) == told(alone)
    assert told(curled) == told(alone)


def by_curl(url: str, token: str, file: Path, payload: Path, scratch: Path) -> dict:
    """As a person with tar and curl would do it."""
    archive = scratch / "payload.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(payload, arcname=".")
    digest = subprocess.check_output(["sha256sum", archive], text=True).split()[0]
    auth = ["-sS", "--fail-with-body", "-H", f"Authorization: Bearer {token}"]
    put = ["curl", *auth, "-T", str(archive), f"{url}/api/v1/payloads/{digest}"]
    subprocess.run(put, check=True, capture_output=True)
    body = scratch / "body.json"
    body.write_text(json.dumps({"matrix": file.read_text(), "payload": digest}))
    post = [
        *("curl", *auth, "-H", "Idempotency-Key: once", "-H", "Content-Type: application/json"),
        *("-d", f"@{body}", f"{url}/api/v1/runs"),
    ]
    first = json.loads(subprocess.check_output(post))
    again = json.loads(subprocess.check_output(post))
    assert again["id"] == first["id"]
    show = ["curl", *auth, f"{url}/api/v1/runs/{first['id']}"]

    def finished() -> bool:
        return json.loads(subprocess.check_output(show))["state"] == "finished"

    eventually(finished)
    return json.loads(subprocess.check_output(show))


def test_every_number_of_the_report_is_in_the_database(home, steps, tmp_path):
    file = matrix(tmp_path / "m.yaml", steps.folder)
    out = home.seatrial("run", str(file), status=1)
    report = Path(re.fullmatch(r"report: (.+)", out.splitlines()[-1])[1])
    text = report.read_text("utf-8")
    run = home.json("show", report.parent.parent.name)
    [cell] = run["cells"]
    counts = cell["counts"]
    judged = counts["passed"] + counts["failed"] + counts["error"]
    assert f"{counts['passed']}/{judged} | {counts['skipped']} |" in text
    assert f"{100 * counts['passed'] / judged:.1f}%" in text
    page = (report.parent / "here" / "SUMMARY.md").read_text("utf-8")
    events = [json.loads(x) for x in (report.parent / "here/events.jsonl").read_text().splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    calls = [e["data"] for e in events if e["kind"] == "test" and e["data"].get("when") == "call"]
    assert sum(call["outcome"] == "passed" for call in calls) == counts["passed"]
    row = "| steps | {passed} | {failed} | {error} | {skipped} |".format(**counts)
    assert row in page


def test_watch_logs_and_show_from_a_second_terminal(home, tmp_path):
    steps = Steps(tmp_path / "slow", tests=20, seconds=0.7)
    run = home.launch(matrix(tmp_path / "m.yaml", steps.folder))
    eventually(lambda: home.tests_stored(run) > 2)
    shown = home.json("show", run)
    assert shown["state"] == "running"
    follow = subprocess.Popen(
        home.command("logs", run, "-f"), env=home.environment, stdout=subprocess.PIPE, text=True
    )
    watched = home.seatrial("watch", run, status=1)
    assert watched.splitlines()[-1].startswith("report: ")
    log, _ = follow.communicate(timeout=300)
    assert "2 failed, 16 passed, 2 skipped" in log
    assert log == home.seatrial("logs", run)


def test_cancel_keeps_what_is_finished(home, tmp_path):
    steps = Steps(tmp_path / "slow", tests=2000, seconds=0.1)  # longer than any cancel takes
    run = home.launch(matrix(tmp_path / "m.yaml", steps.folder))
    eventually(lambda: home.tests_stored(run) > 2)
    home.seatrial("cancel", run)
    home.seatrial("watch", run, status=1)
    shown = home.json("show", run)
    [cell] = shown["cells"]
    assert cell["counts"]["passed"] >= 2
    assert cell["counts"]["missing"] > 0
    begun = sum(steps.begun().values())
    stored = cell["counts"]["passed"] + cell["counts"]["failed"] + cell["counts"]["skipped"]
    assert begun - 1 <= stored <= begun


def test_an_interrupt_detaches_and_the_run_goes_on(home, tmp_path):
    before = {run["id"] for run in home.json("runs")}
    steps = Steps(tmp_path / "slow", tests=20, seconds=0.5)
    file = matrix(tmp_path / "m.yaml", steps.folder)
    run = subprocess.Popen(
        home.command("run", str(file)),
        env=home.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    begun = []
    eventually(lambda: begun.extend({one["id"] for one in home.get("/runs")["items"]} - before)
               or begun)  # fmt: skip
    eventually(lambda: home.tests_stored(begun[0]) > 1)
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=300)
    assert run.returncode == 130
    assert "seatrial watch" in said
    assert "seatrial cancel" in said
    home.seatrial("watch", begun[0], status=1)
    assert set(steps.begun().values()) == {1}


def test_serve_takes_over_when_a_background_controller_s_runs_are_finished(home, steps, tmp_path):
    run = home.launch(matrix(tmp_path / "m.yaml", steps.folder))
    background = home.controller_pid()
    log = tmp_path / "served.log"
    words = home.command("serve", "--port", str(free_port()))
    with log.open("wb") as file:
        serve = subprocess.Popen(words, env=home.environment, stdout=file, stderr=file)
    try:
        eventually(lambda: home.controller_pid() == serve.pid)
        eventually(lambda: "Seatrial answers at" in log.read_text())
        said = f"held by process {background}, a background controller: waiting until its runs are"
        assert log.read_text().count(said) == 1
        assert "meanwhile no run of `provider: local` begins in this home" in log.read_text()
        assert json.loads(home.seatrial("show", run, "--json"))["state"] == "finished"
        again = subprocess.run(words, env=home.environment, capture_output=True, text=True)
        assert (again.returncode, f"process {serve.pid} (serve)" in again.stderr) == (2, True)
    finally:
        serve.terminate()
        serve.wait(300)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_controller_started_in_the_background_is_one_and_no_child(home, steps, tmp_path):
    run = home.launch(matrix(tmp_path / "m.yaml", steps.folder))
    stat = Path(f"/proc/{home.controller_pid()}/stat").read_text().rsplit(")", 1)[1].split()
    assert int(stat[3]) == home.controller_pid(), "a session of its own"
    assert home.path.stat().st_mode & 0o077 == 0
    assert (home.path / "controller.sock").stat().st_mode & 0o777 == 0o600
    for number in (0, 1, 2):
        link = Path(f"/proc/{home.controller_pid()}/fd/{number}").readlink()
        assert str(link) in ("/dev/null", str(home.path / "controller.log"))
    home.seatrial("watch", run, status=1)
