"""Two projects of one port: one full of things that have marked names, one with nothing."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from sqlalchemy import MetaData, select
from starlette.testclient import TestClient

from benchmarks.dashboard.addresses import MAKERS, Known
from benchmarks.dashboard.fill import fill
from benchmarks.dashboard.plans import BENCHMARK, PRODUCT
from benchmarks.dashboard.sizes import Size
from orchestrator.application.browser_sessions import begin_session_at_issuer, cookie_of
from orchestrator.application.context import SignInPorts
from orchestrator.application.ports.identity_provider import IssuedIdentity
from orchestrator.application.tokens import create_token
from orchestrator.bootstrap.projects import PortApplications
from orchestrator.domain.caller_identity import Scope
from tests.integration.api_context import ALL_DAY, BEGIN, MATRIX, Desk, Slots, desk

API = "/api/v1"
CANARY = "canary"
TINY = Size("tiny", 3, 3, 24, 2, 2, 3, 40, 2)
HOST = "localhost"
_WORD = re.compile(r"[A-Za-z0-9]{6,}")
_DIGITS = re.compile(r"(?=.*[0-9])(?=.*[a-z])[a-z0-9]{16,}")
_POLICY = """\
apiVersion: seatrial/v1
kind: ReleaseGate
metadata: {name: canarygate, product: canaryproduct, owner: canaryowner}
spec:
  platforms: [{id: here}]
  jobs: [{id: unit}]
"""
ROLES = ("read", "run", "gate", "admin", "person")
"""Tokens of the four scopes, and somebody who signed in at the issuer with the highest."""


@dataclass
class Project:
    """One of the projects, and what speaks to the port as one of its callers."""

    name: str
    desk: Desk
    whole: PortApplications

    def caller(self, role: str) -> TestClient:
        """A client with a token of a scope, or with a session of the issuer."""
        client = self.desk.speak(self.whole.application, base=f"http://{HOST}")
        client.follow_redirects = False
        if role == "person":
            somebody = IssuedIdentity(
                issuer="https://issuer.example",
                subject="ann",
                display_name="Ann",
                groups=("all",),
                id_token="id",
            )
            session = begin_session_at_issuer(self.desk.context, somebody)
            client.cookies.set(cookie_of(HOST), session.secret)
        else:
            scope = Scope(role)
            _, secret = create_token(self.desk.context, f"{self.name} {role}", scope, days=1)
            client.headers["Authorization"] = f"Bearer {secret}"
        return client

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """Every row of every table."""
        engine = self.desk.database.sessions.engine
        known = MetaData()
        with engine.connect() as connection:
            known.reflect(connection)
            return {
                name: sorted(map(tuple, connection.execute(select(table))), key=repr)
                for name, table in known.tables.items()
            }


def words(text: str) -> set[str]:
    """What a text has of ids, digests, secrets and marked names."""
    found = set(_WORD.findall(text))
    return {one for one in found if CANARY in one or _DIGITS.fullmatch(one)}


@contextmanager
def two_projects(home: Path, slots: Slots, *, full: str) -> Iterator[tuple[Project, Project]]:
    """The project of the port's home and a further one, of which the named one is full.

    Yields:
        The empty one and the full one.
    """
    with ExitStack() as stack:
        desks = {
            name: stack.enter_context(desk(home / name, stack.enter_context(slots.fresh())))
            for name in ("first", "further")
        }
        for name, one in desks.items():
            sign_in = SignInPorts(
                ALL_DAY,
                roles=(("all", Scope.ADMIN),),
                project=name,
                mark="further." if name == "further" else "",
            )
            near = {kind: one.context.traits[kind] for kind in ("fake", "local")}
            janitor = replace(one.context.janitor, project=name, traits=near)
            one.context = replace(
                one.context, sign_in=sign_in, project=name, janitor=janitor, traits=near
            )
        whole = PortApplications.from_contexts(
            [one.context for one in desks.values()], (HOST,), None
        )
        made = {name: Project(name, one, whole) for name, one in desks.items()}
        yield next(one for name, one in made.items() if name != full), made[full]


@dataclass
class Full:
    """What there is in a project that is full."""

    ids: dict[str, str]
    """A value for each parameter of a route, by its name."""
    pages: list[str]
    """The address of every page."""


def fill_up(project: Project) -> Full:
    """Fill a project by what people do, and by what REST takes under marked names."""
    one = project.desk
    fill(cast(Any, SimpleNamespace(context=one.context, database=one.database)), TINY, now=BEGIN)
    admin = project.caller("admin")
    sent = {
        "tokens": {"name": "canarytoken", "scope": "run"},
        "channels": {
            "name": "canarychannel",
            "kind": "webhook",
            "target": "https://canaryhost.example/canarypath",
        },
    }
    made = {}
    for noun, body in sent.items():
        answer = admin.post(f"{API}/{noun}", json=body)
        assert answer.status_code == 201, answer.text
        made[noun] = answer.json()
    answer = admin.put(f"{API}/gates/canarygate", json={"policy": _POLICY})
    assert answer.status_code in (200, 201), answer.text
    matrix = MATRIX.replace("nightly", "canarymatrix").replace("proof", "canarysubject")
    launched = admin.post(
        f"{API}/runs", json={"matrix": matrix}, headers={"Idempotency-Key": "canary-1"}
    )
    assert launched.status_code == 202, launched.text
    project.caller("person")
    known = Known(one.database.stores, random.Random(1))
    run, cell = known.logged()
    return Full(_ids(project, made, known, run, cell), _pages(known))


def _ids(
    project: Project, made: dict[str, Any], known: Known, run: str, cell: str
) -> dict[str, str]:
    admin = project.caller("admin")

    def first(path: str, key: str) -> str:
        items = admin.get(f"{API}/{path}").json()["items"]
        return str(items[0][key])

    stores = project.desk.database.stores
    digest = getattr(stores.runs.get(run), "payload_digest", "")
    same = {
        run: ("run_id", "run", "base", "head", "old_run", "new_run"),
        digest: ("sha256", "payload"),
        str(known.tests[0]): ("test_id", "test"),
        known.verdicts[0]: ("verdict_id", "verdict"),
        first("known-issues", "id"): ("issue_id", "issue"),
        first("waivers", "id"): ("waiver_id", "waiver"),
        first("quarantines", "id"): ("quarantine_id", "quarantine"),
        "canarymachine": ("machine_id", "machine"),
        "canarygate": ("name", "gate"),
        known.metrics[0]: ("benchmark", "metric"),
    }
    return {
        **{name: one for one, names in same.items() for name in names},
        "cell": cell,
        "token_id": made["tokens"]["id"],
        "session_id": first("sessions", "id"),
        "key_id": first("keys", "id"),
        "channel": "canarychannel",
        "provider": "fake",
        "alias_id": "1",
        "schedule": stores.schedules.list()[0].name,
        "signature": known.signatures[0],
        "product": PRODUCT,
        "job": BENCHMARK,
        "kind": "summary",
        "format": "md",
        "line": "1",
    }


def _pages(known: Known) -> list[str]:
    return [make(known) for makers in MAKERS.values() for make in makers]
