"""The provider's notice: read off the metadata, jobs stopped at once, evidence kept and closed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.integration.agent_machine import Evidence, Machine, command, lean_python, machine_at

Answer = Callable[["Metadata"], tuple[int, str]]
GOES = "2026-11-21T12:00:00Z"
STUBBORN = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(os.environ["SEATRIAL_ARTIFACTS"], "half.txt").write_text("half a result")
print("working", flush=True)
time.sleep(600)
"""


class Metadata(BaseHTTPRequestHandler):
    """What a machine can ask about itself; the tests decide what it is told."""

    preempted: Answer
    asked: list[tuple[str, str, str]]

    def do_PUT(self) -> None:
        seconds = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
        self.asked.append(("PUT", self.path, seconds))
        self._say(*((200, f"token{len(self.asked)}") if seconds else (400, "")))

    def do_GET(self) -> None:
        mark = self.headers.get("X-aws-ec2-metadata-token") or self.headers.get("Metadata-Flavor")
        self.asked.append(("GET", self.path, mark or ""))
        self._say(*type(self).preempted(self))

    def _say(self, status: int, text: str) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *words: object) -> None:
        pass


class Cloud:
    """A metadata server on this computer."""

    def __init__(self, answer: Answer) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self.noticed = threading.Event()
        handler = type("Told", (Metadata,), {"preempted": answer, "asked": self.asked})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.cloud = self  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def aws(request: Metadata) -> tuple[int, str]:
    noticed = request.server.cloud.noticed.is_set()  # type: ignore[attr-defined]
    return (200, json.dumps({"action": "terminate", "time": GOES})) if noticed else (404, "")


def gcp(request: Metadata) -> tuple[int, str]:
    return 200, "TRUE" if request.server.cloud.noticed.is_set() else "FALSE"  # type: ignore[attr-defined]


@pytest.fixture
def machine(tmp_path: Path):
    with machine_at(tmp_path / "base") as machine:
        yield machine


@pytest.fixture
def cloud() -> Iterator[Callable[[Answer], Cloud]]:
    made: list[Cloud] = []

    def make(answer: Answer) -> Cloud:
        made.append(Cloud(answer))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def payload(tmp_path: Path) -> Path:
    folder = tmp_path / "payload"
    folder.mkdir()
    (folder / "stubborn.py").write_text(STUBBORN)
    return folder


def begin(machine: Machine, payload: Path, tmp_path: Path, **more: Any) -> Path:
    jobs = [command("{python}", "stubborn.py"), {**command("echo", "next"), "id": "next"}]
    python = lean_python(tmp_path / "venv")
    limits = {"kill_grace_s": 30}
    folder = machine.prepare(payload, python=python, jobs=jobs, limits=limits, **more)
    machine.start(folder)
    return folder


def taken(machine: Machine, folder: Path, cloud: Cloud) -> Evidence:
    """Give notice while the first job works; wait for the attempt's end."""
    machine.follow(folder, until='"name":"started"')
    cloud.noticed.set()
    began = time.monotonic()
    evidence = machine.wait(folder)
    assert time.monotonic() - began < 5 + 2 + 8, "a look each 5 s, then no patience with anybody"
    return evidence


@pytest.mark.parametrize(
    ("name", "answer", "says", "before", "look"),
    [
        (
            "aws",
            aws,
            f"the provider takes the machine at {GOES} (terminate)",
            [("PUT", "/latest/api/token", "21600")],
            ("GET", "/latest/meta-data/spot/instance-action", "token1"),
        ),
        (
            "gcp",
            gcp,
            "the provider takes the machine at about 20",
            [],
            ("GET", "/computeMetadata/v1/instance/preempted", "Google"),
        ),
    ],
)
def test_a_notice_ends_the_attempt(
    machine, payload, tmp_path, cloud, monkeypatch, name, answer, says, before, look
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # which knows nothing of this machine
    told = cloud(answer)
    folder = begin(machine, payload, tmp_path, preemption=name, metadata_url=told.url)
    evidence = taken(machine, folder, told)
    assert (evidence.end["outcome"], evidence.end["reason"]) == ("stopped", "preempted")
    assert evidence.end["detail"].startswith(says)
    assert [one for one in evidence.messages("warning") if one.startswith(says)]
    assert evidence.finished("demo")["cause"] == "stopped"
    assert evidence.of("phase", "next") == []
    kept = machine.bundle(folder)
    assert kept["demo.half.txt"] == b"half a result"
    assert b"working" in kept["demo.txt"]
    assert {one["name"] for one in evidence.of("artifact")} == set(kept)
    assert told.asked[: len(before)] == before
    assert set(told.asked[len(before) :]) == {look}


def test_an_expired_token_is_renewed(machine, payload, tmp_path, cloud) -> None:
    def picky(request: Metadata) -> tuple[int, str]:
        old = request.headers["X-aws-ec2-metadata-token"] == "token1"
        return (401, "") if old else (200, json.dumps({"action": "stop", "time": GOES}))

    told = cloud(picky)
    folder = begin(machine, payload, tmp_path, preemption="aws", metadata_url=told.url)
    assert machine.wait(folder).end["reason"] == "preempted"
    assert [verb for verb, _, _ in told.asked] == ["PUT", "GET", "PUT", "GET"]


def test_metadata_that_does_not_answer_spoils_nothing(machine, payload, tmp_path, cloud) -> None:
    """Said once, however often it fails."""
    told = cloud(lambda _: (500, "no"))
    job = command("sleep", "6.5")
    evidence = machine.run(
        payload, python=lean_python(tmp_path / "venv"), jobs=[job],
        preemption="aws", metadata_url=told.url,
    )  # fmt: skip
    assert evidence.end["outcome"] == "completed"
    (said,) = evidence.messages("warning")
    assert said.startswith("the machine's metadata does not answer (HTTPError: HTTP Error 500")
    assert len([verb for verb, _, _ in told.asked if verb == "GET"]) >= 2


def test_nobody_is_asked_where_nothing_can_be_taken(machine, payload, tmp_path, cloud) -> None:
    told = cloud(gcp)
    machine.run(
        payload, python=lean_python(tmp_path / "venv"), jobs=[command("sleep", "1")],
        metadata_url=told.url,
    )  # fmt: skip
    assert told.asked == []


def test_a_suite_goes_on_elsewhere_with_what_has_no_result(machine, tmp_path, cloud) -> None:
    """Finished tests keep their result; the one that was running has none."""
    folder = tmp_path / "suite"
    folder.mkdir()
    (folder / "test_slow.py").write_text(
        "import time\ndef test_quick(): pass\ndef test_slow(): time.sleep(600)\n"
    )
    told = cloud(gcp)
    attempt = machine.prepare(
        folder, python=lean_python(tmp_path / "venv"), preemption="gcp", metadata_url=told.url
    )
    machine.start(attempt)
    machine.follow(attempt, until='"nodeid":"test_slow.py::test_slow"')
    told.noticed.set()
    evidence = machine.wait(attempt)
    assert evidence.end["reason"] == "preempted"
    called = {one["nodeid"] for one in evidence.reports() if one["when"] == "call"}
    assert called == {"test_slow.py::test_quick"}
