"""The provider's notice, as a machine's own metadata tells it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from runners.agent import preemption_notices
from runners.agent.preemption_notices import Notices

GOES = "2026-11-21T12:00:00Z"
TOKEN = ("PUT", "/latest/api/token", "21600")
ACTION = "/latest/meta-data/spot/instance-action"
PREEMPTED = ("GET", "/computeMetadata/v1/instance/preempted", "Google")
TAKEN = (200, json.dumps({"action": "terminate", "time": GOES}))
Answers = list[tuple[int, str]]


class Metadata(BaseHTTPRequestHandler):
    """What a machine can ask about itself: the answers in their order, the last for ever."""

    answers: Answers
    asked: list[tuple[str, str, str]]

    def do_PUT(self) -> None:
        self.asked.append(("PUT", self.path, self.headers["X-aws-ec2-metadata-token-ttl-seconds"]))
        self._say(200, f"token{len(self.asked)}")

    def do_GET(self) -> None:
        mark = self.headers.get("X-aws-ec2-metadata-token") or self.headers.get("Metadata-Flavor")
        self.asked.append(("GET", self.path, mark or ""))
        self._say(*(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]))

    def _say(self, status: int, text: str) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *words: object) -> None:
        pass


Tell = Callable[[str, Answers], tuple[Notices, list[tuple[str, str, str]]]]


@pytest.fixture
def tell(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tell]:
    """Listen to a cloud that answers so."""
    monkeypatch.setattr(preemption_notices, "_EVERY_S", 0.01)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # which knows nothing of this machine
    made: list[ThreadingHTTPServer] = []

    def begin(cloud: str, answers: Answers) -> tuple[Notices, list[tuple[str, str, str]]]:
        handler = type("Told", (Metadata,), {"answers": answers, "asked": []})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        made.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        listening = Notices(cloud, f"http://127.0.0.1:{server.server_port}/")
        listening.start()
        return listening, handler.asked  # type: ignore[attr-defined]

    yield begin
    for server in made:
        server.shutdown()
        server.server_close()


def heard() -> None:
    """Wait until everybody who listens has heard a notice."""
    for thread in threading.enumerate():
        if thread.name == "notices":
            thread.join(timeout=60)
            assert not thread.is_alive()


@pytest.mark.parametrize(
    ("cloud", "answers", "says", "asked"),
    [
        pytest.param(
            "aws",
            [(404, ""), (404, ""), TAKEN],
            f"the provider takes the machine at {GOES} (terminate)",
            [TOKEN, *[("GET", ACTION, "token1")] * 3],
            id="aws",
        ),
        pytest.param(
            "aws",
            [(401, ""), TAKEN],
            f"the provider takes the machine at {GOES} (terminate)",
            [TOKEN, ("GET", ACTION, "token1"), TOKEN, ("GET", ACTION, "token3")],
            id="aws, whose token expired",
        ),
        pytest.param(
            "gcp",
            [(200, "FALSE\n"), (200, "TRUE\n")],
            "the provider takes the machine at about 20",
            [PREEMPTED, PREEMPTED],
            id="gcp",
        ),
    ],
)
def test_a_notice(tell: Tell, cloud: str, answers: Answers, says: str, asked: object) -> None:
    listening, calls = tell(cloud, answers)
    heard()
    assert (listening.notice or "").startswith(says)
    assert calls == asked
    assert listening.trouble() is None


@pytest.mark.parametrize(
    ("cloud", "bad", "good", "says"),
    [
        ("aws", (500, "no"), TAKEN, "HTTPError: HTTP Error 500"),
        ("aws", (200, "[]"), TAKEN, "ValueError: spot/instance-action is '[]'"),
        ("gcp", (200, "MAYBE"), (200, "TRUE"), "ValueError: instance/preempted is 'MAYBE'"),
    ],
)
def test_metadata_that_does_not_answer_is_told_once_and_asked_again(
    tell: Tell, cloud: str, bad: tuple[int, str], good: tuple[int, str], says: str
) -> None:
    listening, _ = tell(cloud, [bad, bad, good])
    heard()
    assert (listening.trouble() or "").startswith(says)
    assert listening.trouble() is None
    assert listening.notice is not None


def test_nobody_is_asked_where_nothing_can_be_taken() -> None:
    listening = Notices(None, "http://127.0.0.1:9")
    listening.start()
    assert [thread for thread in threading.enumerate() if thread.name == "notices"] == []
    assert (listening.notice, listening.trouble()) == (None, None)
