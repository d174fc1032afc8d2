"""Drawn requests to every operation of REST by each role on each database: `make fuzz-rest`.

Schemathesis draws the values by the OpenAPI document, of which it also infers chains: what one
operation answered is asked for by the next one. It comes with a plug-in of pytest, so that it is
installed beside the other packages of tests, and for this command alone.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case
from schemathesis.checks import CHECKS, load_all_checks, not_a_server_error
from schemathesis.core.transport import Response
from schemathesis.generation.stateful import run_state_machine_as_test
from starlette.testclient import TestClient

from orchestrator.adapters.notification_sender import HttpSender
from orchestrator.domain.channel import DeliveryReceipt, DeliveryResult
from orchestrator.store.database import Database, open_database
from tests.integration.api_context import Slots
from tests.integration.project_worlds import ROLES, Full, Project, fill_up, two_projects
from tests.postgres import TEMPLATE, PostgresServer

EXAMPLES = 4
"""Requests to each operation."""
CHAINS, STEPS = 8, 12
"""Chains of requests, and the requests of each at most."""
ENDLESS = "stream_events"
"""It goes on while its run does."""
load_all_checks()
HELD = [
    not_a_server_error,
    *(
        CHECKS.get_one(name)
        for name in (
            "status_code_conformance",
            "content_type_conformance",
            "response_headers_conformance",
            "response_schema_conformance",
            "use_after_free",
        )
    ),
]


@dataclass
class PostgresSlots:
    """Databases of a server, as `Slots` has files."""

    server: PostgresServer
    made: int = 0

    @contextmanager
    def fresh(self) -> Iterator[Database]:
        self.made += 1
        database = open_database(self.server.create(f"roles_{self.made}", TEMPLATE))
        try:
            yield database
        finally:
            database.close()


@pytest.fixture(
    scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.needs_postgres)]
)
def worlds(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, slots: Slots
) -> Iterator[tuple[Project, Project, Full]]:
    """An empty project, a full one, and what there is in that, on each database."""
    places = slots
    if request.param == "postgres":
        places = cast(Slots, PostgresSlots(request.getfixturevalue("postgres_server")))
    home = tmp_path_factory.mktemp("roles")
    with two_projects(home, places, full="first") as (empty, full):
        yield empty, full, fill_up(full)


@dataclass
class Asked:
    """Sends drawn requests as a caller, and holds every answer against the document."""

    client: TestClient
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    """By operation and status."""

    def __call__(self, case: Case) -> Response:
        sent = case.as_transport_kwargs(base_url="http://localhost")
        told = {name: sent[name] for name in ("params", "json") if sent.get(name) is not None}
        headers = {k: v for k, v in sent["headers"].items() if k.lower() != "authorization"}
        answer = self.client.request(
            sent["method"], sent["url"], headers=headers, content=sent.get("data"), **told
        )
        name = case.operation.definition.raw["operationId"]
        self.answers[name, answer.status_code] += 1
        return Response.from_any(answer)


def drawn(count: int) -> settings:
    """The same values in every run, however slow the machine is."""
    return settings(
        max_examples=count,
        stateful_step_count=STEPS,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )


@pytest.mark.parametrize("role", ROLES)
def test_no_drawn_request_breaks_the_document_or_another_project(
    worlds: tuple[Project, Project, Full], role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepted = DeliveryReceipt(result=DeliveryResult.ACCEPTED, response_excerpt="200")
    monkeypatch.setattr(HttpSender, "send", lambda *_, **__: accepted)
    empty, full, told = worlds
    document, ask = full.desk.guarded.openapi(), Asked(full.caller(role))
    schema = schemathesis.openapi.from_dict(with_known(document, told))
    schema = schema.exclude(operation_id=ENDLESS)
    before = empty.rows(), written(full)
    ask_each(schema, ask)
    alone = ask.answers.total()
    ask_in_chains(schema, ask)
    assert empty.rows() == before[0]
    if role == "read":
        assert written(full) == before[1]
    assert full.desk.context.stores.audit.verify().broken_at is None
    paths = document["paths"].values()
    all_of_them = {one["operationId"] for path in paths for one in path.values()}
    assert {name for name, _ in ask.answers} == all_of_them - {ENDLESS}
    statuses = Counter(status for _, status in ask.answers.elements())
    print(
        f"{role}: {alone} answers of {len(all_of_them) - 1} operations and"
        f" {ask.answers.total() - alone} in chains: {dict(statuses)}"
    )


def with_known(document: dict[str, Any], told: Full) -> dict[str, Any]:
    """A document whose parameters are often what there is: else most requests end with 404."""
    made = copy.deepcopy(document)
    for path in made["paths"].values():
        for operation in path.values():
            for one in operation.get("parameters", ()):
                if one["name"] in told.ids:
                    there = {"type": "string", "enum": [told.ids[one["name"]]]}
                    one["schema"] = {"anyOf": [there, one["schema"]]}
    return made


def ask_each(schema: Any, ask: Asked) -> None:
    for found in schema.get_all_operations():
        operation = found.ok()

        @drawn(EXAMPLES)
        @given(case=operation.as_strategy())
        def send(case: Case) -> None:
            case.validate_response(ask(case), checks=HELD)

        send()


def ask_in_chains(schema: Any, ask: Asked) -> None:
    machine = schema.as_state_machine()

    class Chain(machine):  # type: ignore[misc, valid-type]
        def call(self, case: Case, **_: Any) -> Response:
            return ask(case)

        def validate_response(self, response: Response, case: Case, **_: Any) -> None:
            case.validate_response(response, checks=HELD)

    run_state_machine_as_test(Chain, settings=drawn(CHAINS))


def written(project: Project) -> dict[str, list[tuple[Any, ...]]]:
    """Every row but those that a refused or a reading request writes, too."""
    callers = ("token", "session", "audit", "change_mark")
    return {name: rows for name, rows in project.rows().items() if not name.startswith(callers)}
