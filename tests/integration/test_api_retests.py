"""Trials, the search for a revision, and the second machine, over REST."""

from __future__ import annotations

from decimal import Decimal

import pytest

from orchestrator.application.retests import elsewhere
from orchestrator.domain.cell import CellState, Lease, LeaseState
from orchestrator.domain.matrix import Host, Platform
from orchestrator.domain.retests import SURE, RetestKind, RetestPlan
from tests.databases import Agent
from tests.integration.api_context import MATRIX, Desk

API = "/api/v1"
NODE = "tests/test_a.py::test_it"
WHEEL = b"not a wheel, and nobody opens it"
GIT = MATRIX.replace(
    'version: "1.10"}', 'version: "1.10", git: {url: "https://example.org/proof", rev: REV}}'
)


@pytest.fixture
def at(api):
    return api


def wheel(at: Desk) -> str:
    digest, _ = at.context.blobs.put([WHEEL])
    return digest


def failed(at: Desk, key: str = "key-1", *, rev: str = "", **body: object) -> str:
    """A run in which one test of `there` failed; both cells have had a machine."""
    if rev:
        body |= {"matrix": GIT.replace("REV", rev), "subject": wheel(at)}
    run = str(at.launch(key, **body)["id"])
    for cell in ("here", "there"):
        agent = at.begin(run, cell)
        lease(at, agent)
        outcome = "failed" if cell == "there" else "passed"
        agent.send(
            agent.line("phase", "unit", name="started"),
            agent.manifest(NODE),
            agent.test(NODE, outcome),
            agent.line("phase", "unit", name="finished", exit_code=1, restarts=0),
        )
    return run


def lease(at: Desk, agent: Agent, place: str = "north") -> None:
    leases, now = at.database.stores.leases, at.clock.now()
    name = f"{agent.attempt_id}-lease"
    row = Lease(
        id=name,
        attempt_id=agent.attempt_id,
        provider="fake",
        place=place,
        state=LeaseState.RESERVED,
        reserved_usd=Decimal("0.10"),
        price_usd_per_hour=Decimal(1),
        reserved_at=now,
    )
    run_id = at.database.stores.cells.get(agent.attempt_id[:-2]).run_id
    leases.reserve(row, run_id=run_id, exclusive=False)
    leases.active(name, f"machine-{name}", at=now)


def diagnosing(at: Desk, run: str) -> None:
    cell = at.cell_id(run, "there")
    for state in (CellState.COLLECTING, CellState.DIAGNOSING):
        at.database.stores.cells.enter(cell, state, at=at.clock.now())


def ask(at: Desk, run: str, key: str = "k", **body: object):
    shown = {"subject": wheel(at), **body}
    path = f"{API}/runs/{run}/cells/there/retests"
    return at.client.post(path, json=shown, headers={"Idempotency-Key": key})


def test_what_a_run_is_to_find_out_is_stored_with_it(at):
    run = at.launch(retests={"reruns": 2, "diagnose": True, "max_tests": 5})
    order = at.database.stores.runs.spec(str(run["id"])).retests
    assert (order.reruns, order.diagnose, order.max_tests) == (2, True, 5)


@pytest.mark.parametrize("limit", ["NaN", "Infinity", "0", "1441"])
def test_a_time_that_is_none_is_refused_at_launch(at, limit):
    body = f'{{"matrix": {{}}, "retests": {{"max_minutes": {limit}}}}}'
    headers = {"Idempotency-Key": limit, "Content-Type": "application/json"}
    answer = at.client.post(f"{API}/runs", content=body, headers=headers)
    assert answer.status_code == 422, answer.text
    assert "max_minutes" in answer.text


def test_retests_are_asked_for_while_the_machine_waits(at):
    run = failed(at, retests={"await_minutes": 30})
    assert ask(at, run).status_code == 409, "its jobs run"
    diagnosing(at, run)
    first = ask(at, run, changed="revision 1a2b3c4")
    assert first.status_code == 202, first.text
    assert first.json()["tests"] == {"unit": [NODE]}
    assert ask(at, run, changed="revision 1a2b3c4").json()["id"] == first.json()["id"]
    shown = at.client.get(f"{API}/runs/{run}/cells/there/retests").json()
    assert [(one["kind"], one["state"]) for one in shown["items"]] == [("bisect", "requested")]
    assert at.client.delete(f"{API}/runs/{run}/cells/there/retests").status_code == 204
    assert ask(at, run, "k2").status_code == 409, "nobody asks any more"


def test_a_machine_that_does_not_wait_takes_no_retests(at):
    run = failed(at)
    diagnosing(at, run)
    answer = ask(at, run)
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:seatrial:problem:no-retests")


def test_a_machine_that_leaves_while_a_retest_is_asked_for_takes_none(at, monkeypatch):
    run = failed(at, retests={"await_minutes": 30})
    diagnosing(at, run)
    stores, cell = at.database.stores, at.cell_id(run, "there")
    tests = stores.results.tests

    def let_go(cell_id):
        stores.cells.enter(cell, CellState.RELEASING, at=at.clock.now())
        return tests(cell_id)

    monkeypatch.setattr(stores.results, "tests", let_go)
    answer = ask(at, run)
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:seatrial:problem:no-retests")
    assert "cell there is releasing: its machine takes no retests" in answer.json()["detail"]
    assert "`seatrial gate bisect RUN` begins a search" in answer.json()["detail"]
    assert stores.retests.of_attempt(f"{cell}-1") == ()


def test_a_wheel_that_was_not_uploaded(at):
    run = failed(at, retests={"await_minutes": 30})
    diagnosing(at, run)
    assert ask(at, run, subject="0" * 64).status_code in (404, 422)


def test_who_broke_it_stands_beside_the_retests(at):
    run = failed(at)
    stores, attempt = at.database.stores, f"{at.cell_id(run, 'there')}-1"
    assert at.client.get(f"{API}/runs/{run}/cells/there/retests").json() == {
        "items": [],
        "attributions": [],
    }
    diagnosing(at, run)
    asked = RetestPlan(kind=RetestKind.RERUN, tests={"unit": (NODE,)}, times=2, key="1")
    retest_session = stores.retests.ask(attempt, asked, at=at.clock.now())
    key = f"unit::{NODE}"
    outcomes = ({key: "passed"}, {key: "failed"})
    stores.retests.end(retest_session.id, at=at.clock.now(), outcomes=outcomes)
    [blame] = at.client.get(f"{API}/runs/{run}/cells/there/retests").json()["attributions"]
    assert (blame["nodeid"], blame["answer"]) == (NODE, "flaky")


def test_a_search_begins_between_last_green_and_first_red(at):
    green = failed(at, rev="aaaa")
    stores, cell = at.database.stores, at.cell_id(green, "there")
    run = failed(at, "key-2", rev="bbbb")
    path = f"{API}/runs/{run}/cells/there/bisect"
    assert at.client.get(path).status_code == 409, "its jobs run"
    diagnosing(at, run)
    shown = at.client.get(path).json()
    assert (shown["url"], shown["good"], shown["bad"]) == ("https://example.org/proof", "", "bbbb")
    assert shown["tests"] == [f"unit::{NODE}"]
    assert stores.cells.get(cell).state is CellState.RUNNING


def test_a_search_is_a_run_of_the_failing_jobs_whose_machine_waits(at):
    run = failed(at, rev="bbbb")
    diagnosing(at, run)
    path = f"{API}/runs/{run}/cells/there/bisect"
    planned = at.client.post(f"{path}/plan", json={"minutes": 30})
    assert planned.status_code == 200, planned.text
    begun = at.client.post(path, json={"minutes": 30}, headers={"Idempotency-Key": "b"})
    assert begun.status_code == 202, begun.text
    spec = at.database.stores.runs.spec(begun.json()["id"])
    assert [platform.id for platform in spec.matrix.platforms] == ["there"]
    assert spec.only == {"there": ["unit"]}
    assert (spec.retests.await_minutes, spec.retests.diagnose) == (30, False)
    assert spec.matrix.limits.max_minutes == 90, "the machine's time is planned and reserved"
    again = at.client.post(path, json={"minutes": 30}, headers={"Idempotency-Key": "b"})
    assert again.json()["id"] == begun.json()["id"]


def test_only_a_subject_from_git_can_be_searched(at):
    run = failed(at)
    diagnosing(at, run)
    answer = at.client.get(f"{API}/runs/{run}/cells/there/bisect")
    assert answer.status_code == 409
    assert "git" in answer.json()["detail"]


def second(at: Desk, run: str, usd: str = "5"):
    answer = at.client.post(f"{API}/runs/{run}/confirmation-run", json={"max_usd": usd})
    assert answer.status_code == 200, answer.text
    return answer.json()["run"]


def test_the_second_machine_runs_what_failed_in_another_zone_first(at):
    run = failed(at)
    follow_up = second(at, run)
    spec = at.database.stores.runs.spec(follow_up)
    [platform] = spec.matrix.platforms
    assert (platform.id, platform.locations) == ("there", ("south", "north"))
    assert spec.only == {"there": ["unit"]}
    assert (spec.retests.reruns, spec.retests.tests) == (SURE, (f"unit::{NODE}",))
    assert at.database.stores.runs.get(follow_up).rerun_of == run
    assert second(at, run) == follow_up, "asking again launches nothing"


def test_a_second_machine_that_could_cost_too_much_is_not_asked(at):
    assert second(at, failed(at), usd="0.01") is None


def test_nothing_failed_and_nothing_is_asked(at):
    run = str(at.launch()["id"])
    assert second(at, run) is None


HOSTS = tuple(
    Host(address="10.0.0.1", user="me", key_file="k", host_key="ssh-ed25519 A", port=port)
    for port in (22, 23)
)


@pytest.mark.parametrize(
    ("used", "left"),
    [({"10.0.0.1:22"}, (23,)), ({"10.0.0.1:22", "10.0.0.1:23"}, None), (set(), (22, 23))],
)
def test_a_host_that_was_used_is_left_out_of_its_pool(used, left):
    pool = Platform(id="pool", provider="static", hosts=HOSTS)
    found = elsewhere(pool, used, rented=False)
    assert (found and tuple(host.port for host in found.hosts or ())) == left


def test_this_computer_has_no_second():
    assert elsewhere(Platform(id="here", provider="local"), set(), rented=False) is None
