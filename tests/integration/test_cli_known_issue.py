"""known-issue and alias, against a controller of the tests' own."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli import in_process
from tests.unit.cli.fake_controller import Answer, FakeController
from tests.unit.cli.in_process import Cli

cli, controller = in_process.cli, in_process.controller  # the fixtures

API = "/api/v1"
ISSUE = {
    "id": "KI-0001",
    "product": "p",
    "title": "Scaling\x1b[31m",
    "match": {"signature": "", "exception": "ValidationError", "frame": "", "contains": ""},
    "owner": "fp8-team",
    "opened": "2026-03-01",
    "expires": "2026-04-30",
    "ended_at": None,
    "is_over": False,
}
ALIAS = {
    "id": 7,
    "state": "suggested",
    "change": "moved",
    "old": "a::A::t",
    "new": "a::B::t",
    "product": "p",
    "job": "unit",
    "old_test": 1,
    "new_test": 2,
    "similarity": 0.9,
    "suggested_at": "2026-03-01T00:00:00Z",
}


def test_a_known_issue_is_added_with_all_that_was_said(
    cli: Cli, controller: FakeController
) -> None:
    controller.answers["POST", f"{API}/known-issues"] = Answer.of(ISSUE, 201)
    controller.answers["GET", f"{API}/runs"] = Answer.of({"items": [], "next": None})
    words = ("--product", "p", "--owner", "o", "--expires", "2026-04-30", "--exception", "V*")
    more = ("--platform", "aws-a10g", "--platform", "gcp-l4", "--max-failures", "11")
    more += ("--test", "t/test_a.py::test_b[1]", "--test", "t/test_c.py::*")
    assert cli("known-issue", "add", "Scaling", *words, *more) == 0
    assert cli.out == "KI-0001\n"
    assert "There is no run yet: whether a payload is named p is unknown." in cli.err
    (request,) = controller.sent("POST", f"{API}/known-issues")
    assert request.json == {
        "product": "p",
        "title": "Scaling",
        "owner": "o",
        "expires": "2026-04-30",
        "match": {"signature": "", "exception": "V*", "frame": "", "contains": ""},
        "scope": {
            "platforms": ["aws-a10g", "gcp-l4"],
            "jobs": [],
            "versions": "",
            "requires_package": "",
            "tests": ["t/test_a.py::test_b[1]", "t/test_c.py::*"],
        },
        "url": "",
        "max_failures": 11,
    }
    assert cli("known-issue", "add", "Scaling", "--product", "p", "--owner", "o") == 2


@pytest.mark.parametrize(
    ("text", "mark"), [("assert 3 == 4", "'assert <n> == <n>'"), ("assert <n>", ""), ("oom", "")]
)
def test_a_text_that_no_masked_message_has_is_noted(
    cli: Cli, controller: FakeController, text: str, mark: str
) -> None:
    added = ISSUE | {"match": {"contains": text}}
    controller.answers["POST", f"{API}/known-issues"] = Answer.of(added, 201)
    controller.answers["GET", f"{API}/runs"] = Answer.of({"items": [], "next": None})
    words = ("--product", "p", "--owner", "o", "--expires", "2026-04-30", "--contains", text)
    assert cli("known-issue", "add", "Scaling", *words) == 0
    assert (f"write {mark}" in cli.err) is bool(mark)
    assert ("note:" in cli.err) is bool(mark)


def test_known_issues_are_listed_and_ended(cli: Cli, controller: FakeController) -> None:
    over = ISSUE | {"id": "KI-0002", "is_over": True}
    ended = over | {"id": "KI-0003", "ended_at": "2026-03-01T00:00:00Z"}
    controller.answers["GET", f"{API}/known-issues"] = Answer.of({"items": [ISSUE, over, ended]})
    assert cli("known-issue", "list") == 0
    assert [line.split()[-1] for line in cli.out.splitlines()[1:]] == [
        "force",
        "expired",
        "ended",
    ]
    assert cli.out.splitlines()[1].endswith(" in force")
    assert "\x1b[31m" not in cli.out
    assert cli("known-issue", "list", "--json") == 0
    assert [one["id"] for one in json.loads(cli.out)] == ["KI-0001", "KI-0002", "KI-0003"]
    controller.answers["POST", f"{API}/known-issues/KI-0001/expire"] = Answer.of(over)
    assert cli("known-issue", "expire", "KI-0001") == 0
    (request,) = controller.sent("POST", f"{API}/known-issues/KI-0001/expire")
    assert request.json == {}


def test_aliases_are_suggested_and_decided(cli: Cli, controller: FakeController) -> None:
    moved = {"old": "a::A::t", "new": "a::B::t", "change": "moved", "similarity": 0.9}
    changes = {"same": ["a"] * 64, "suggestions": [moved], "new": ["n"], "gone": ["g"]}
    family = {"family": "nvidia-backend", "changes": changes}
    told = {"old_run": "1", "new_run": "2", "families": [family], "suggestions": [ALIAS]}
    controller.answers["POST", f"{API}/aliases"] = Answer.of(told)
    assert cli("alias", "suggest", "one", "two") == 0
    assert "nvidia-backend: 66 = 64 same + 1 moved + 1 new, 1 gone" in cli.out
    assert "a::B::t" in cli.out
    (request,) = controller.sent("POST", f"{API}/aliases")
    assert request.json == {"old_run": "one", "new_run": "two"}
    for verb, state in (("confirm", "confirmed"), ("reject", "rejected"), ("undo", "suggested")):
        answer = Answer.of(ALIAS | {"state": state})
        controller.answers["POST", f"{API}/aliases/7/{verb}"] = answer
        assert cli("alias", verb, "7") == 0
        assert f"Alias 7 is {state}." in cli.err
    controller.answers["GET", f"{API}/aliases"] = Answer.of({"items": []})
    assert cli("alias", "list", "--state", "confirmed") == 0
    assert "No alias" in cli.err
