"""quarantine, and the option --reuse, against a controller of the tests' own."""

from __future__ import annotations

import json

from tests.unit.cli import in_process
from tests.unit.cli.fake_controller import Answer, FakeController
from tests.unit.cli.in_process import Cli

cli, controller = in_process.cli, in_process.controller  # the fixtures

API = "/api/v1"
ONE = {
    "id": "Q-0001",
    "product": "p",
    "reason": "no seed",
    "opened": "2026-01-20T00:00:00Z",
    "nodeid": "t.py::test_a\x1b[31m",
    "platforms": ["gcp-l4"],
    "owner": "me",
    "expires": "2026-02-03T00:00:00Z",
    "ended_at": None,
    "ended_by": "",
    "state": "active",
}
WORDS = ("--product", "p", "--reason", "no seed", "--owner", "me")


def test_a_test_is_put_in_quarantine(cli: Cli, controller: FakeController) -> None:
    controller.answers["POST", f"{API}/quarantines"] = Answer.of(ONE, 201)
    more = ("--days", "14", "--platform", "gcp-l4", "--returns-after", "5")
    assert cli("quarantine", "add", "t.py::test_a", *WORDS, *more) == 0
    assert cli.out == "Q-0001\n"
    assert "A gate whose policy says nothing of approvals asks for somebody else's yes." in cli.err
    (request,) = controller.sent("POST", f"{API}/quarantines")
    assert request.json == {
        "product": "p",
        "nodeid": "t.py::test_a",
        "reason": "no seed",
        "owner": "me",
        "days": 14,
        "platforms": ["gcp-l4"],
        "returns_after": 5,
    }
    assert cli("quarantine", "add", "t.py::test_a", *WORDS) == 2
    assert cli("quarantine", "add", "t.py::test_a", *WORDS, "--days", "0") == 2
    assert cli("quarantine", "add", "t.py::test_a", *WORDS, "--days", "3", "--json") == 0
    assert json.loads(cli.out)["id"] == "Q-0001"


def test_quarantines_are_listed_and_ended(cli: Cli, controller: FakeController) -> None:
    over = ONE | {"id": "Q-0002", "state": "expired", "platforms": []}
    back = {"state": "ended", "ended_at": "2026-01-30T00:00:00Z", "ended_by": "me"}
    items = [ONE, over, ONE | back | {"id": "Q-0003"}]
    controller.answers["GET", f"{API}/quarantines"] = Answer.of({"items": items})
    assert cli("quarantine", "list") == 0
    lines = cli.out.splitlines()[1:]
    assert "active" in lines[0]
    assert "expired" in lines[1]
    assert "ended 2026-01-30: me" in lines[2]
    assert "\x1b[31m" not in cli.out
    assert cli("quarantine", "list", "--json") == 0
    assert len(json.loads(cli.out)) == 3
    controller.answers["POST", f"{API}/quarantines/Q-0001/end"] = Answer.of(ONE)
    assert cli("quarantine", "end", "Q-0001") == 0
    (request,) = controller.sent("POST", f"{API}/quarantines/Q-0001/end")
    assert request.json == {}
    controller.answers["GET", f"{API}/quarantines"] = Answer.of({"items": []})
    assert cli("quarantine", "list") == 0
    assert "No test is in quarantine" in cli.err


def test_candidates_are_shown(cli: Cli, controller: FakeController) -> None:
    flaky = {"passed_on_retry": 2, "mixed_builds": 0, "flips": 1, "chances": 4, "results": 8}
    flaky |= {"failures": 2, "min_failure_rate": 0.25}
    found = {"job": "unit", "nodeid": "t::a", "platforms": ["l4"], "evidence": flaky}
    path = f"{API}/quarantines/suggestions"
    controller.answers["GET", path] = Answer.of({"items": [found | {"quarantine": "Q-0001"}]})
    assert cli("quarantine", "suggest", "--product", "p") == 0
    [titles, line] = cli.out.splitlines()
    assert titles.split("  ")[-1].strip() == "quarantine"
    assert "suite's retries" in titles
    assert line.split() == ["t::a", "unit", "l4", "2", "25.0%", "Q-0001"]
    assert cli("quarantine", "suggest", "--product", "p", "--json") == 0
    controller.answers["GET", path] = Answer.of({"items": []})
    assert cli("quarantine", "suggest", "--product", "p") == 0
    assert cli.out == ""
