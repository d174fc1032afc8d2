"""The Python client against a controller in this process, as its page uses it."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from orchestrator.api.app import create_app
from orchestrator.api.security import token_guard
from orchestrator.application.tokens import create_token
from orchestrator.bootstrap.connect import connect
from orchestrator.client.connection import RemoteConnection
from orchestrator.client.errors import (
    NoControllerError,
    RefusalError,
    SeatrialError,
    UnreadableAnswerError,
    WaitedTooLongError,
)
from orchestrator.client.seatrial import Seatrial
from orchestrator.client.transport import Answer
from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.run_record import RunResponse
from tests.integration.api_context import MANIFEST, Desk, served
from tests.integration.gate_world import MATRIX, POLICY, begun, put, ran
from tests.integration.wheel_making import wheel_bytes

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/python-client.md"
TESTS = {"tests/test_a.py::one": "passed", "tests/test_a.py::two": "failed"}

PRINTED = [
    "at most 0.00 USD",
    "failed",
    "here tests/test_a.py::two tests/test_a.py:3: in one",
    "FAIL: 1 blocking rule is violated: job/unit@here.",
    "{verdict} FAIL",
    "{run} own machine: nothing is charged",
    "True False",
    "read True",
    "revoke_token done",
    "create_token done",
    "True",
    "True",
    "own machine: nothing is charged",
    "True own machine: nothing is charged",
    "True",
    "404 there is no run '0000'; `seatrial runs` lists them",
]
"""What the code of the page prints."""


@pytest.fixture
def url(api: Desk) -> Iterator[str]:
    """A controller's port."""
    with served(api.guarded) as port:
        yield f"http://127.0.0.1:{port}"


def token_of(api: Desk, scope: Scope = Scope.ADMIN) -> str:
    _, secret = create_token(api.context, f"a {scope}", scope, days=1)
    return secret


@pytest.fixture
def seatrial(api: Desk, url: str) -> Iterator[Seatrial]:
    with connect(url, token_of(api)) as client:
        yield client


def begin_project(folder: Path) -> None:
    """A project of another name than the examples', as its person has it."""
    (folder / "tests").mkdir(parents=True)
    (folder / "dist").mkdir()
    subject = 'subject: {name: hull, version: "1.10"'
    matrix = MATRIX.replace("proof", "hull")
    matrix = matrix.replace(subject, f"payload: {{path: .}}\n{subject}, wheel: dist/*.whl")
    policy = POLICY.replace("proof", "hull").replace("name: release", "name: hull")
    (folder / "seatrial.yaml").write_text(matrix, encoding="utf-8")
    (folder / "payload.toml").write_text(MANIFEST.replace("proof", "hull"), encoding="utf-8")
    (folder / "tests/test_a.py").write_text("def test_one(): ...\n", encoding="utf-8")
    (folder / "dist/hull-1.10-py3-none-any.whl").write_bytes(wheel_bytes("hull", "1.10"))
    (folder / "gate.yaml").write_text(policy, encoding="utf-8")


def test_the_code_of_the_page_does_what_it_says_each_time(
    api: Desk,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Twice, where local jobs run as the controller's own user."""
    api.clock.time = datetime.now(UTC)  # the page's dates are counted from today
    alone = replace(api.context, sole_launcher="an admin")
    folder = tmp_path / "hull"
    begin_project(folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SEATRIAL_TOKEN", token_of(api))
    before = sorted(folder.rglob("*"))
    text = PAGE.read_text(encoding="utf-8")
    launch, *others = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    with served(create_app(alone, guard=token_guard(alone))) as port:
        monkeypatch.setenv("SEATRIAL_URL", f"http://127.0.0.1:{port}")
        for verdict in ("V-0001", "V-0002"):
            program: dict[str, Any] = {}
            exec(launch, program)
            run = program["run"].id
            if verdict == "V-0001":
                assert run == ran(api, program["key"], TESTS, **program["order"])
            for block in others:
                exec(block, program)
            told = [line.format(run=run, verdict=verdict) for line in PRINTED]
            assert capsys.readouterr().out.splitlines() == told
    assert len(api.client.get("/api/v1/runs").json()["items"]) == 1, "the key had launched it"
    assert sorted(folder.rglob("*")) == before, "a file in it would be another payload"
    results = tmp_path / "seatrial-results"
    assert "tests/test_a.py::two" in (results / "summary.html").read_text(encoding="utf-8")
    assert (results / "verdict.jsonl").read_text(encoding="utf-8").startswith("{")


class Clock:
    """A clock whose every sleep may have a consequence."""

    def __init__(self, api: Desk) -> None:
        self.api = api
        self.then: list[Any] = []

    def now(self) -> datetime:
        return self.api.clock.now()

    def sleep(self, seconds: float) -> None:
        self.api.clock.move(seconds=seconds)
        if self.then:
            self.then.pop(0)()


class _Secret:
    def __init__(self, text: str) -> None:
        self.text = text

    def get_secret_value(self) -> str:
        return self.text


def waiting(api: Desk, url: str) -> tuple[Seatrial, Clock]:
    clock = Clock(api)
    return Seatrial(RemoteConnection(url, _Secret(token_of(api))), clock), clock


def test_a_run_is_waited_for_until_it_is_finished(api: Desk, url: str) -> None:
    run, _ = begun(api)
    client, clock = waiting(api, url)
    clock.then = [lambda: None, lambda: api.finish(run, "here", outcome=Outcome.PASSED)]
    told: list[RunResponse] = []
    with client:
        found = client.wait(limit_s=60, on_wait=told.append).record
        assert (found.id, found.outcome) == (run, Outcome.PASSED)
        assert [one.is_finished for one in told] == [False]
        assert client.wait(run, limit_s=0, on_wait=told.append).record == found
    assert len(told) == 1


def test_a_wait_ends_at_its_limit_and_the_run_goes_on(api: Desk, url: str) -> None:
    run, _ = begun(api)
    client, clock = waiting(api, url)
    begin = clock.now()
    with client:
        with pytest.raises(WaitedTooLongError, match=f"The time is up; run {run} goes on"):
            client.wait(run, limit_s=10)
        assert not client.run(run).record.is_finished
    assert (clock.now() - begin).total_seconds() == 10


def test_a_launch_with_a_key_is_one_launch_and_without_one_another(seatrial: Seatrial) -> None:
    order = {"matrix": MATRIX}
    first = seatrial.launch(order, key="one").record.id
    assert seatrial.launch(order, key="one").record.id == first
    second = seatrial.launch(order).record.id
    assert [run.record.id for run in seatrial.runs()] == [second, first]
    assert seatrial.cancel(first).record.id == first


@pytest.mark.parametrize("name", ["", " ", "a/b"])
def test_what_names_no_run_is_not_sent(seatrial: Seatrial, name: str) -> None:
    for asked in (seatrial.run, seatrial.cancel, seatrial.wait, seatrial.rerun):
        with pytest.raises(SeatrialError) as refused:
            asked(name)
        assert not isinstance(refused.value, RefusalError)


def test_a_refused_document_has_its_lines(seatrial: Seatrial) -> None:
    order = {"matrix": MATRIX.replace("platforms:", "platfroms:")}
    with pytest.raises(RefusalError) as refused:
        seatrial.launch(order, document="seatrial.yaml")
    assert refused.value.status == 422
    assert refused.value.lines[0].startswith("seatrial.yaml:1:1: platforms: ")
    assert list(seatrial.runs()) == []


def test_the_token_decides(api: Desk, url: str) -> None:
    with connect(url) as stranger, pytest.raises(RefusalError) as unknown:
        stranger.run()
    assert unknown.value.status == 401
    with connect(url, token_of(api, Scope.READ)) as reader:
        assert reader.schedules().records == ()
        with pytest.raises(RefusalError) as refused:
            reader.launch({"matrix": MATRIX})
    assert refused.value.status == 403


def test_no_controller_is_said_after_the_last_try(api: Desk) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # nobody listens, and nobody else can
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        client, clock = waiting(api, url)
        begin = clock.now()
        with client, pytest.raises(NoControllerError, match=f"{url} cannot be reached") as lost:
            client.run()
    assert not lost.value.was_sent
    assert (clock.now() - begin).total_seconds() == pytest.approx(3.7)


def test_an_answer_of_a_newer_controller_has_its_json(api: Desk, seatrial: Seatrial) -> None:
    ran(api)
    shown = seatrial.run().json
    newer = Answer({**shown, "new": 1}, RunResponse)
    assert newer.record == seatrial.run().record
    unknown = Answer({**shown, "outcome": "astonishing"}, RunResponse)
    with pytest.raises(UnreadableAnswerError, match="outcome"):
        _ = unknown.record
    assert unknown.json["outcome"] == "astonishing"


def test_gates_and_their_verdicts(api: Desk, seatrial: Seatrial) -> None:
    run = ran(api)
    put(api)
    assert [one.gate for one in seatrial.gates().records] == ["release"]
    assert seatrial.policies("release").records[0] == seatrial.policy("release").record
    tried = seatrial.try_gate("release", [run]).record
    decided = seatrial.check_gate("release", [run]).record
    assert tried.decision == decided.decision
    assert seatrial.verdict(decided.id).record == decided
    assert [one.id for one in seatrial.verdicts("release").records] == [decided.id]
    assert len(seatrial.keys().records) == 1
    assert seatrial.waivers().records == ()
