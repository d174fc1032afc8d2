"""Every operation of REST has a method of the Python client, which sends what it takes."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from jsonschema import Draft202012Validator

from orchestrator.client.seatrial import Seatrial
from orchestrator.client.transport import Answer, AnswerList, Client
from orchestrator.domain.known_issue import IssueMatch
from orchestrator.domain.lint_findings import ForeignDocument
from tests.unit.cli import runs

ROOT = Path(__file__).parents[2]
DIGEST = "a" * 64
RUN, CELL = "01jc", "gcp l4"
DAY = date(2026, 1, 20)
WITHOUT = {
    "get_health": "`is_healthy` of the connection, which needs no token",
    "get_readiness": "for the probes of a proxy or a cluster",
    "get_metrics": "for Prometheus",
    "get_matrix_schema": "for editors; `seatrial schema` prints the one of its own version",
    "get_payload_schema": "as get_matrix_schema",
    "get_cell_report": "the address that a report's links have; `report` returns the same",
}
"""Operations without a method, and why."""
Call = Callable[[Seatrial, Path], object]
CALLS: dict[str, Call] = {
    "plan": lambda c, _: c.plan({"matrix": "{}"}),
    "launch": lambda c, _: c.launch({"matrix": "{}"}),
    "list_runs": lambda c, _: next(c.runs(limit=1, commit="abc", branch="main", author="me")),
    "cancel": lambda c, _: c.cancel(RUN),
    "plan_again": lambda c, _: c.plan_rerun(RUN, only="failed", hold_minutes=5),
    "rerun": lambda c, _: c.rerun(RUN, only="failed", hold_minutes=5),
    "show_run": lambda c, _: c.run(RUN),
    "stream_events": lambda c, _: opened(c.events(RUN, last="7")),
    "read_log": lambda c, _: c.log(RUN, CELL, after=7),
    "list_tests": lambda c, _: c.tests_after(RUN, CELL, 7, job="a", outcome="failed", limit=1),
    "get_artifact": lambda c, _: opened(c.artifact(RUN, CELL, "a b.txt")),
    "get_report": lambda c, _: c.report(RUN, "platform", "html", cell=CELL),
    "list_report_plots": lambda c, _: c.plots(RUN, "platform", cell=CELL),
    "compare_runs": lambda c, _: c.compare(RUN, RUN, "json"),
    "get_payload": lambda c, _: c.payload(DIGEST),
    "head_payload": lambda c, _: c.has_payload(DIGEST),
    "put_payload_archive": lambda c, file: c.upload_payload(DIGEST, file),
    "put_subject_wheel": lambda c, file: c.upload_subject(DIGEST, file),
    "list_platforms": lambda c, _: c.platforms(),
    "list_tokens": lambda c, _: c.tokens(),
    "create_token": lambda c, _: c.create_token("ci", "run", days=None),
    "revoke_token": lambda c, _: c.revoke_token("t/1"),
    "list_sessions": lambda c, _: c.sessions(),
    "revoke_session": lambda c, _: c.revoke_session("s/1"),
    "ingest": lambda c, file: c.ingest(
        file, platform="p", subject="n@1", environment="e", run=RUN, name="junit.xml"
    ),
    "list_channels": lambda c, _: c.channels(),
    "create_channel": lambda c, _: c.add_channel(
        "room",
        "example/a",
        kind="github",
        lineages=["release@*"],
        allow_private=True,
        token_from="env:TOKEN",
        api_base="https://github.example.org/api/v3",
    ),
    "list_deliveries": lambda c, _: c.deliveries("room"),
    "remove_channel": lambda c, _: c.remove_channel("room"),
    "send_test": lambda c, _: c.test_channel("room", commit="a" * 40),
    "rotate_channel_secret": lambda c, _: c.rotate_channel("room", overlap_hours=1),
    "list_machines": lambda c, _: c.machines(orphans=True),
    "terminate_all": lambda c, _: c.terminate_all(),
    "terminate_machine": lambda c, _: c.terminate_machine("aws", "i-1"),
    "get_access": lambda c, _: c.access(RUN, CELL),
    "get_costs": lambda c, _: c.costs(days=7),
    "get_prices": lambda c, _: c.prices(),
    "refresh_costs": lambda c, _: c.refresh_prices(),
    "lint_documents": lambda c, _: c.lint([ForeignDocument("a.md", "text", 1)], run=RUN),
    "export_run": lambda c, _: opened(c.export(RUN, "junit", cell=CELL)),
    "list_annotations": lambda c, _: c.annotations(RUN),
    "create_annotations": lambda c, _: c.annotate(
        RUN, [{"kind": "note", "text": "words", "author": "me"}]
    ),
    "list_failure_groups": lambda c, _: c.failure_groups(RUN, product="p", runs=9),
    "list_known_tests": lambda c, _: c.known_tests("p", job="unit", contains="a"),
    "list_slowest_tests": lambda c, _: c.slowest_tests(RUN, cell=CELL),
    "get_test_history": lambda c, _: c.test_history(7, limit=9),
    "list_aliases": lambda c, _: c.aliases("p", state="suggested"),
    "match_tests": lambda c, _: c.match_tests(RUN, "latest"),
    "confirm_alias": lambda c, _: c.decide_alias(7, "confirm"),
    "reject_alias": lambda c, _: c.decide_alias(7, "reject"),
    "undo_alias": lambda c, _: c.decide_alias(7, "undo"),
    "list_known_issues": lambda c, _: c.known_issues("p"),
    "create_known_issue": lambda c, _: c.add_known_issue(
        "p",
        "title",
        owner="me",
        expires=DAY,
        match=IssueMatch(exception="OSError"),
        url="https://example.org/1",
        max_failures=7,
    ),
    "expire_known_issue": lambda c, _: c.expire_known_issue("KI-0001"),
    "list_gates": lambda c, _: c.gates(),
    "get_gate": lambda c, _: c.policy("release"),
    "put_gate": lambda c, _: c.set_policy("release", "kind: ReleaseGate"),
    "list_gate_policies": lambda c, _: c.policies("release"),
    "dry_run_gate": lambda c, _: c.try_gate("release", [RUN], policy="{}", name="a.yaml"),
    "list_verdicts": lambda c, _: c.verdicts("release", lineage="nightly"),
    "get_verdict": lambda c, _: c.verdict("V-0001"),
    "get_statement": lambda c, _: c.statement("V-0001"),
    "get_frozen_evidence": lambda c, _: c.frozen_evidence("V-0001"),
    "replay_verdict": lambda c, _: c.replay("V-0001"),
    "evaluate": lambda c, _: c.check_gate("release", [RUN], lineage="nightly", policy="{}"),
    "list_waivers": lambda c, _: c.waivers("release"),
    "create_waiver": lambda c, _: c.request_waiver(
        "release", "platform/a", reason="words", days=7, verdict="V-0001", only_this=True
    ),
    "approve_one_waiver": lambda c, _: c.approve_waiver("W-0001"),
    "list_payload_reviews": lambda c, _: c.payload_reviews(DIGEST),
    "create_payload_review": lambda c, _: c.review_payload(DIGEST, "reviewed", days=7, note="all"),
    "list_approvals": lambda c, _: c.approvals("release"),
    "create_approval": lambda c, _: c.approve("release", "V-0001"),
    "list_keys": lambda c, _: c.keys(),
    "get_keyring": lambda c, _: c.keyring(),
    "rotate_keys": lambda c, _: c.rotate_keys(),
    "retire_signing_key": lambda c, _: c.retire_key("k1"),
    "list_schedules": lambda c, _: c.schedules(),
    "add_schedule": lambda c, _: c.add_schedule(SCHEDULE),
    "replace_schedule": lambda c, _: c.add_schedule(SCHEDULE, replaces=True),
    "show_schedule": lambda c, _: c.schedule("nightly"),
    "remove_schedule": lambda c, _: c.remove_schedule("nightly"),
    "trigger_schedule": lambda c, _: c.trigger_schedule("nightly"),
    "pause_schedule": lambda c, _: c.pause_schedule("nightly"),
    "resume_schedule": lambda c, _: c.resume_schedule("nightly"),
    "list_quarantines": lambda c, _: c.quarantines("p"),
    "create_quarantine": lambda c, _: c.add_quarantine(
        "p", "t.py::a", reason="words", owner="me", days=7, platforms=["a"], returns_after=9
    ),
    "list_quarantine_suggestions": lambda c, _: c.suggested_quarantines("p"),
    "end_one_quarantine": lambda c, _: c.end_quarantine("Q-0001"),
    "get_benchmark_series": lambda c, _: c.benchmark_series(
        "moe/tokens_per_s", product="p", platform="a", runs=9
    ),
    "list_retests": lambda c, _: c.retests(RUN, CELL),
    "add_retest": lambda c, _: c.add_retest(
        RUN, CELL, DIGEST, version="1.0", changed="revision a", times=3
    ),
    "end_retests": lambda c, _: c.end_retests(RUN, CELL),
    "get_bisect_range": lambda c, _: c.bisect_range(RUN, CELL),
    "bisect": lambda c, _: c.bisect(RUN, CELL, minutes=9),
    "plan_bisect": lambda c, _: c.plan_bisect(RUN, CELL, minutes=9),
    "start_confirmation_run": lambda c, _: c.start_confirmation_run(RUN, max_usd=Decimal("5E+1")),
    "preview_prune": lambda c, _: c.preview_prune(days=30),
    "prune_now": lambda c, _: c.prune(days=30),
    "list_audit_entries": lambda c, _: next(
        c.audit_entries(limit=1, since="2026-01-20T00:00:00Z", actor="me", resource="tokens")
    ),
    "export_audit_log": lambda c, _: opened(c.audit_export(actor="me")),
    "verify_audit_log": lambda c, _: c.verify_audit(head=DIGEST),
}
SCHEDULE = {"name": "nightly", "cron": "0 2 * * *", "tz": "Europe/Berlin", "matrix": "{}"}
AS_VALUES = {"read_log": "its bytes and the next offset"}
"""Methods that return what their operation answers in another form."""
COMPOSED = {
    "wait": "run",
    "tests": "tests_after",
    "failing_tests": "tests",
    "run_cost": "costs",
}
"""Methods that ask what another one asks, too."""


def opened(file: AbstractContextManager[Iterator[object]]) -> list[object]:
    with file as pieces:
        return list(pieces)


@cache
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "tests/golden/openapi.json").read_text("utf-8"))
    return found


@cache
def operations() -> dict[str, tuple[str, re.Pattern[str], dict[str, Any]]]:
    """Return method, address and description of each operation."""
    return {
        operation["operationId"]: (method.upper(), _pattern(path), operation)
        for path, methods in document()["paths"].items()
        for method, operation in methods.items()
    }


def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"({\w+})", path)
    return re.compile(
        "".join(_ANY.get(p, r"([^/]+)") if p[:1] == "{" else re.escape(p) for p in parts)
    )


_ANY = {"{benchmark}": "(.+)", "{format}": r"(\w+)"}
"""What a parameter takes, where that is not a part of an address."""


def operation_of(request: httpx.Request) -> str:
    """Return the operation that a request reaches: of two, the one with fewer parameters."""
    path = request.url.raw_path.decode().partition("?")[0]
    found = [
        (pattern.groups, name)
        for name, (method, pattern, _) in operations().items()
        if method == request.method and pattern.fullmatch(path)
    ]
    assert found, f"{request.method} {path} is no operation"
    return min(found)[1]


class Clock:
    """A clock for which nothing waits."""

    def now(self) -> datetime:
        return datetime(2026, 1, 20, tzinfo=UTC)

    def sleep(self, _seconds: float) -> None:
        raise AssertionError("nothing is to be waited for")


class Line:
    """A connection whose controller keeps the requests and answers objects without contents."""

    where, home = "http://here", None

    def __init__(self) -> None:
        self.requests: list[httpx.Request] = []

    def open(self) -> httpx.Client:
        return httpx.Client(transport=httpx.MockTransport(self._answer), base_url=self.where)

    def revive(self) -> None:
        raise AssertionError("it answers")

    def _answer(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        is_run = operation_of(request) == "show_run"
        answer = runs.typical() if is_run else {"items": [{}], "next": None}
        return httpx.Response(200, content=iter([json.dumps(answer).encode()]))


def asked(operation: str, tmp_path: Path) -> tuple[object, httpx.Request]:
    """Return what the method of an operation returns, and its request."""
    line, file = Line(), tmp_path / "file"
    file.write_bytes(b"bytes")
    with Seatrial(line, Clock()) as client:
        returned = CALLS[operation](client, file)
    return returned, line.requests[-1]


def test_every_operation_has_a_method_or_a_reason_for_none() -> None:
    assert CALLS.keys() | WITHOUT.keys() == operations().keys()
    assert not CALLS.keys() & WITHOUT.keys()


def test_every_method_is_looked_at_here() -> None:
    here = "".join(map(inspect.getsource, CALLS.values()))
    made = {name for name, _ in inspect.getmembers(Seatrial, inspect.isfunction)}
    transport = {name for name, _ in inspect.getmembers(Client, inspect.isfunction)}
    own = {name for name in made - transport if not name.startswith("_")}
    assert own - {name for name in own if f"c.{name}(" in here} == COMPOSED.keys()


@pytest.mark.parametrize("operation", CALLS)
def test_a_method_sends_what_its_operation_takes_and_has_the_record_that_it_answers(
    operation: str, tmp_path: Path
) -> None:
    returned, request = asked(operation, tmp_path)
    assert operation_of(request) == operation
    _, _, told = operations()[operation]
    if isinstance(returned, Answer | AnswerList):
        assert returned.kind.__name__ in _records(told)
    else:
        assert operation in AS_VALUES or not _records(told)
    parameters = {one["name"]: one for one in told.get("parameters", ())}
    assert set(request.url.params) <= {n for n, one in parameters.items() if one["in"] == "query"}
    if "Idempotency-Key" in parameters:
        assert request.headers["Idempotency-Key"]
    for name, value in request.url.params.items():
        _check(parameters[name]["schema"], value, is_text=True)
    content = told.get("requestBody", {}).get("content", {})
    if "application/json" in content:
        _check(content["application/json"]["schema"], json.loads(request.content))
    elif content:
        assert request.content == b"bytes"
    else:
        assert request.content in (b"", b"{}")


def _check(schema: dict[str, Any], value: object, *, is_text: bool = False) -> None:
    if is_text:
        kinds = {one.get("type") for one in schema.get("anyOf", [schema])}
        value = json.loads(cast(str, value)) if kinds & {"integer", "boolean"} else value
    whole = schema | {"components": document()["components"]}
    Draft202012Validator(whole).validate(value)


def _records(operation: dict[str, Any]) -> set[str]:
    """Return the names of the records that an operation answers; of a list, its items'."""
    content = next(
        answer.get("content", {}) for status, answer in operation["responses"].items()
        if status.startswith("2")
    )  # fmt: skip
    schema = content.get("application/json", {}).get("schema", {})
    named = {
        one["$ref"].rpartition("/")[2] for one in schema.get("anyOf", [schema]) if "$ref" in one
    }
    return {
        re.sub(r"^(Numbered)?PageResponse_|^ListResponse_", "", one).strip("_") for one in named
    }


def test_no_command_makes_an_address_of_its_own() -> None:
    words = {path.removeprefix("/api/v1").split("/")[1] for path in document()["paths"]}
    address = re.compile(rf"/(api|{'|'.join(map(re.escape, sorted(words)))})\b")
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno}: {node.value}"
        for file in sorted((ROOT / "orchestrator/cli").rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and address.match(node.value)
    ]
    assert not found
