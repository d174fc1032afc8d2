"""The provider's notice in an attempt: jobs stopped at once, evidence kept and closed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.integration.agent_machine import Machine, command

STUBBORN = """
import os, pathlib, signal, time


def test_quick():
    pass


def test_stubborn():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pathlib.Path(os.environ["SEATRIAL_ARTIFACTS"], "half.txt").write_text("half a result")
    time.sleep(600)
"""


@pytest.fixture
def noticed() -> Iterator[tuple[threading.Event, str]]:
    """A cloud that takes the machine as soon as this is set, and where its metadata are."""
    taken = threading.Event()

    class Metadata(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"TRUE" if taken.is_set() else b"FALSE")

        def log_message(self, *words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield taken, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_notice_ends_the_attempt(
    machine: Machine, lean: str, payload: Path, noticed: tuple[threading.Event, str]
) -> None:
    """Finished tests keep their result; the running one has none, and nobody is patient with it."""
    (payload / "test_it.py").write_text(STUBBORN)
    taken, url = noticed
    folder = machine.prepare(
        payload, python=lean, preemption="gcp", metadata_url=url,
        jobs=[{}, command("echo", "next")], limits={"kill_grace_s": 600, "deadline_s": 600},
    )  # fmt: skip
    machine.start(folder)
    machine.follow(folder, until='"nodeid":"test_it.py::test_stubborn"')
    taken.set()
    evidence = machine.wait(folder)
    assert (evidence.end["outcome"], evidence.end["reason"]) == ("stopped", "preempted")
    says = "the provider takes the machine at about 20"
    assert evidence.end["detail"].startswith(says)
    assert [one for one in evidence.messages("warning") if one.startswith(says)]
    assert evidence.finished()["cause"] == "stopped"
    assert evidence.of("phase", "demo") == []
    called = {one["nodeid"] for one in evidence.reports() if one["when"] == "call"}
    assert called == {"test_it.py::test_quick"}
    kept = machine.bundle(folder)
    assert kept["suite.half.txt"] == b"half a result"
    assert b"collected 2 items" in kept["suite.txt"]
    assert {one["name"] for one in evidence.of("artifact")} == set(kept)
