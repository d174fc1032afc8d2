"""gate bisect against a controller of ours: the machine leaves before the search is over."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path

import pytest

from orchestrator.application.ports.wheels import Revision, SubjectWheel
from orchestrator.cli.errors import FAILED
from tests import cli_answers
from tests.unit.cli import in_process, runs
from tests.unit.cli.fake_controller import Answer, FakeController, Request, plan
from tests.unit.cli.in_process import ID, SHOWN, Cli

cli, controller = in_process.cli, in_process.controller  # the fixtures
CELL = f"{SHOWN}/cells/gcp-l4"
BEGUN = "01jq8x5w3e7t9r2k4m6n8p0bis"
THERE = f"/api/v1/runs/{BEGUN}"
TRIALS = f"{THERE}/cells/gcp-l4/retests"
COMMITS = ("a" * 40, "b" * 40, "c" * 40)


@dataclass
class MadeUpRevisions:
    """A history of three commits, the last of which fails."""

    scratch: Path

    def between(self, good: str, bad: str) -> tuple[Revision, ...]:
        return tuple(Revision(commit, f"change {n}") for n, commit in enumerate(COMMITS))

    def wheel(self, commit: str) -> SubjectWheel:
        path = self.scratch / "lib-1-py3-none-any.whl"
        path.write_bytes(commit.encode())
        return SubjectWheel(path, "d" * 64, "lib", "1", commit)


@pytest.fixture
def search(cli: Cli, controller: FakeController, monkeypatch: pytest.MonkeyPatch) -> FakeController:
    """A search that has begun: the cell fails again, and its machine waits."""
    failing = runs.cell("gcp-l4", "done", outcome="failed")
    controller.shown = runs.run(failing, state="finished", outcome="failed")
    known = {"url": "https://git.example/lib", "good": COMMITS[0], "bad": COMMITS[2], "tests": []}
    known["good_run"] = ""
    controller.answers |= {
        ("GET", f"{CELL}/bisect"): Answer.of(known),
        ("POST", f"{CELL}/bisect/plan"): Answer.of(plan()),
        ("POST", f"{CELL}/bisect"): Answer.of(runs.run(id=BEGUN), 202),
        ("POST", TRIALS): Answer.of(retest_session(state="requested"), 202),
        ("DELETE", TRIALS): Answer(204),
    }
    states(controller)
    retest_sessions(controller)
    revisions = lambda url, scratch: MadeUpRevisions(scratch)  # noqa: E731
    monkeypatch.setattr(cli.wiring, "revisions", revisions, raising=False)
    return controller


def states(controller: FakeController, *then: str) -> None:
    """The cell is diagnosing, and afterwards this, one look at the run after the other."""
    seen = chain(["diagnosing"], then, repeat(then[-1] if then else "diagnosing"))

    def look(request: Request) -> Answer:
        return Answer.of(runs.run(runs.cell("gcp-l4", next(seen)), id=BEGUN))

    controller.answers["GET", THERE] = look


def retest_session(**told: object) -> dict[str, object]:
    plan = {"kind": "bisect", "changed": "revision a", "whole": False, "times": 2, "tests": {}}
    asked = {"asked_at": "2026-01-20T12:00:00Z", "started_at": None, "ended_at": None}
    return {"id": "t1", "number": 1, "outcomes": [], "trouble": "", **plan, **asked, **told}


def retest_sessions(controller: FakeController, *rows: dict[str, object]) -> None:
    controller.answers["GET", TRIALS] = Answer.of({"items": rows, "attributions": []})


def test_a_search_whose_machine_leaves_says_so_and_what_to_do(
    cli: Cli, search: FakeController
) -> None:
    states(search, "diagnosing", "releasing")
    retest_sessions(search, retest_session(state="requested"))
    assert cli("gate", "bisect", ID, "-y") == FAILED
    assert f"undecided: cell gcp-l4 of run {BEGUN} is releasing" in cli.out
    assert f"revision {'a' * 12} has no result" in cli.out
    assert f"`seatrial watch {BEGUN}` shows the reason" in cli.out
    assert "--minutes" in cli.out
    assert len(search.sent("DELETE", TRIALS)) == 1


def test_an_answer_that_came_before_the_machine_left_counts(
    cli: Cli, search: FakeController
) -> None:
    states(search, "releasing")
    retest_sessions(search, retest_session(state="ended", outcomes=[{"moe::test_a": "failed"}]))
    assert cli("gate", "bisect", ID, "-y", "--json") == FAILED
    cli_answers.check("seatrial gate bisect", cli.out)
    told = json.loads(cli.out)
    assert [(step["commit"], step["answer"]) for step in told["steps"]] == [(COMMITS[0], "bad")]
    assert told["undecided"].startswith("the first revision fails here too")


def test_a_machine_that_takes_no_retest_any_more_ends_the_search(
    cli: Cli, search: FakeController
) -> None:
    why = "cell gcp-l4 is releasing: its machine takes no retests"
    search.answers["POST", TRIALS] = Answer.problem(409, why)
    assert cli("gate", "bisect", ID, "-y", "--json") == FAILED
    told = json.loads(cli.out)
    assert told["undecided"] == why
    assert told["steps"] == []
    assert len(search.sent("DELETE", TRIALS)) == 1
