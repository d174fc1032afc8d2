"""Runs that a gate can look at: on this computer, attested, with tests."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from orchestrator.domain.attestation import Attestation
from orchestrator.domain.cell import Lease, LeaseState
from orchestrator.domain.outcome import Outcome
from tests.databases import Agent
from tests.integration.api_context import Desk

API = "/api/v1"
POLICY = """\
apiVersion: seatrial/v1
kind: ReleaseGate
metadata: {name: release, product: proof, owner: release-team}
spec:
  platforms:
    - {id: here}
  jobs:
    - {id: unit, on: [here]}
"""
MATRIX = """\
apiVersion: seatrial/v1
kind: Matrix
metadata: {name: nightly}
subject: {name: proof, version: "1.10"}
limits: {max_usd: "9.00"}
platforms:
  - {id: here, provider: local}
jobs:
  - {select: "*", on: all}
"""
ONE = {"tests/test_a.py::one": "passed"}
TRACEBACK = "tests/test_a.py:3: in one\n    lib.work()\nlib/core.py:9: in work\nE   ValueError: 3"


def begun(
    desk: Desk, key: str = "key-1", *, attested: bool = True, **body: object
) -> tuple[str, Agent]:
    """A run whose cell is at work on this computer."""
    run_id = str(desk.launch(key, **{"matrix": MATRIX, **body})["id"])
    agent = desk.begin(run_id, "here")
    leases = desk.database.stores.leases
    lease = Lease(
        id=f"{run_id}-lease",
        attempt_id=agent.attempt_id,
        provider="local",
        place="local",
        state=LeaseState.RESERVED,
        reserved_usd=Decimal(0),
        price_usd_per_hour=Decimal(0),
        reserved_at=desk.clock.now(),
    )
    leases.reserve(lease, run_id=run_id, exclusive=False)
    if attested:
        leases.attest(lease.id, Attestation({}, (), "2.7", simulated=False))
    return run_id, agent


def ran(
    desk: Desk,
    key: str = "key-1",
    tests: Mapping[str, str] = ONE,
    *,
    attested: bool = True,
    **body: object,
) -> str:
    """A finished run with these tests, and a demo that passed."""
    run_id, agent = begun(desk, key, attested=attested, **body)
    failed = "failed" in tests.values()
    words = {name: {"longrepr": TRACEBACK} if w == "failed" else {} for name, w in tests.items()}
    agent.send(
        agent.line("phase", "unit", name="started"),
        agent.manifest(*tests),
        *(agent.test(name, word, **words[name]) for name, word in tests.items()),
        agent.line("phase", "unit", name="finished", exit_code=int(failed), duration_s=1.0),
        agent.line("phase", "demo", name="started"),
        agent.line("phase", "demo", name="finished", exit_code=0, duration_s=1.0),
    )
    desk.finish(run_id, "here", outcome=Outcome.FAILED if failed else Outcome.PASSED)
    return run_id


def put(desk: Desk, policy: str = POLICY) -> dict[str, object]:
    """Make it the gate's policy."""
    answer = desk.client.put(f"{API}/gates/release", json={"policy": policy, "name": "gate.yaml"})
    assert answer.status_code == 200, answer.text
    shown: dict[str, object] = answer.json()
    return shown


def check(desk: Desk, key: str = "check", **body: object) -> dict[str, object]:
    """A verdict."""
    headers = {"Idempotency-Key": key}
    answer = desk.client.post(f"{API}/gates/release/evaluate", json=body, headers=headers)
    assert answer.status_code == 201, answer.text
    shown: dict[str, object] = answer.json()
    return shown
