"""schedule: what is sent, and what a person is told."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from orchestrator.bootstrap.cli_wiring import CommandWiring
from orchestrator.domain.commit import Commit
from tests.integration.test_cli_gate import POLICY
from tests.unit.cli import in_process
from tests.unit.cli.fake_controller import Answer, FakeController, Request
from tests.unit.cli.in_process import Cli

cli, controller = in_process.cli, in_process.controller  # the fixtures
PATH = "/api/v1/schedules"
FIRING = {
    "schedule": "nightly",
    "claimed_at": "2026-10-25T00:00:00Z",
    "due_at": "2026-10-25T00:00:00Z",
    "state": "notified",
    "outcome": "errored",
    "reason": "https://git.example/x has no branch 'main' (any more)",
    "by": "",
    "overdue": True,
    "resolved": {"subject": "proof 1.11", "remarks": ["a remark"]},
    "run": "",
    "verdict": "",
}
SCHEDULE = {
    "name": "nightly",
    "cron": "0 2 * * *",
    "tz": "Europe/Berlin",
    "owner": "release team",
    "matrix": "kind: Matrix",
    "matrix_name": "release.yaml",
    "created_at": "2026-10-01T00:00:00Z",
    "gate": "",
    "deadline": "06:00",
    "overlap": "skip",
    "catch_up": "latest",
    "subject": {"kind": "latest", "package": "proof", "prereleases": False},
    "paused_at": None,
}
SHOWN = {
    "schedule": SCHEDULE,
    "upcoming": ["2026-10-26T01:00:00Z", "2026-10-27T01:00:00Z", "2026-10-28T01:00:00Z"],
    "firings": [FIRING],
}
WHEN = ("--cron", "0 2 * * *", "--tz", "Europe/Berlin")


@pytest.fixture
def kept(controller: FakeController) -> FakeController:
    def keep(request: Request) -> Answer:
        sent = request.json
        named = {name: sent[name] for name in ("name", "cron", "tz", "owner")}
        return Answer.of(SHOWN | {"schedule": SCHEDULE | named, "firings": []}, 201)

    controller.answers["POST", PATH] = keep
    controller.answers["GET", PATH] = Answer.of({"items": [SHOWN]})
    controller.answers["GET", f"{PATH}/nightly"] = Answer.of(SHOWN)
    return controller


def add(cli: Cli, *words: str) -> int:
    return cli("schedule", "add", "nightly", *WHEN, "--matrix", str(cli.matrix), *words)


def sent(controller: FakeController) -> dict[str, Any]:
    [request] = controller.sent("POST", PATH)
    body: dict[str, Any] = request.json
    return body


def test_a_schedule_is_sent_with_what_it_launches(cli: Cli, kept: FakeController) -> None:
    words = ("--deadline", "06:00", "--catch-up", "none", "--reuse", "36h", "--owner", "the team")
    assert add(cli, *words) == 0
    body = sent(kept)
    assert body["payload"] in " ".join(kept.stored)
    assert "kind: Matrix" in body["matrix"]
    assert (body["deadline"], body["catch_up"], body["reuse_hours"]) == ("06:00", "none", 36.0)
    assert (body["select"]["kind"], body["owner"]) == ("fixed", "the team")
    assert body["matrix_name"] == "release.yaml"
    assert "fires Mon 2026-10-26 01:00 UTC" in cli.err
    assert cli.out == ""


@pytest.mark.parametrize("words", [(), ("--subject", "latest")])
def test_the_commit_of_a_fixed_subject_is_sent(
    cli: Cli, kept: FakeController, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    commit = Commit(sha="1f0c2d9a41b2", branch="main", author="Ann")
    monkeypatch.setattr(CommandWiring, "commit", lambda *_: commit)
    assert add(cli, *words) == 0
    assert sent(kept).get("commit") == (None if words else asdict(commit))
    shown = SHOWN | {"schedule": SCHEDULE | {"commit": asdict(commit)}}
    kept.answers["GET", f"{PATH}/nightly"] = Answer.of(shown)
    assert cli("schedule", "show", "nightly") == 0
    assert "commit:    1f0c2d9a41b2 on main by Ann" in cli.out


def test_a_schedule_is_replaced(cli: Cli, kept: FakeController) -> None:
    kept.answers["PUT", f"{PATH}/nightly"] = kept.answers["POST", PATH]
    assert add(cli, "--replace") == 0
    [request] = kept.sent("PUT", f"{PATH}/nightly")
    assert request.json["name"] == "nightly"
    assert not kept.sent("POST", PATH)


def test_a_gate_is_named_by_its_policy_or_its_name(cli: Cli, kept: FakeController) -> None:
    file = cli.folder / "gate.yaml"
    file.write_text(POLICY)
    for given in (str(file), "release"):
        assert add(cli, "--gate", given) == 0
    by_file, by_name = (one.json for one in kept.sent("POST", PATH))
    assert (by_file["gate"], by_file["policy"]) == (
        "release",
        {"policy": POLICY, "name": str(file)},
    )
    assert (by_name["gate"], by_name["policy"]) == ("release", None)


def test_it_is_owned_by_whoever_adds_it(cli: Cli, kept: FakeController) -> None:
    assert add(cli) == 0
    assert sent(kept)["owner"]


@pytest.mark.parametrize(
    ("words", "select"),
    [
        (("latest",), {"kind": "latest", "package": "", "prereleases": False}),
        (("latest:other", "--pre"), {"kind": "latest", "package": "other", "prereleases": True}),
        (("branch",), {"kind": "branch", "url": "", "branch": ""}),
        (
            ("git+ssh://git@host.example/x.git@feature/y",),
            {"kind": "branch", "url": "ssh://git@host.example/x.git", "branch": "feature/y"},
        ),
        (
            ("git+git@host.example:x@main",),
            {"kind": "branch", "url": "git@host.example:x", "branch": "main"},
        ),
    ],
)
def test_subjects_that_are_resolved_when_it_fires(
    cli: Cli, kept: FakeController, words: tuple[str, ...], select: dict[str, object]
) -> None:
    assert add(cli, "--subject", *words) == 0
    found = sent(kept)["select"]
    assert {name: found[name] for name in select} == select


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--subject", "newest"), "say fixed, latest"),
        (("--subject", "branch:x"), "say fixed, latest"),
        (("--subject", "git+https://host.example/x"), "git+URL@BRANCH"),
        (("--subject", "branch", "--pre"), "--pre goes with --subject latest"),
        (("--reuse", "a day"), "say hours, such as 36h"),
        (("--reuse", "nan"), "say hours, such as 36h"),
        (("--reuse", "inf"), "say hours, such as 36h"),
        (("--gate", "no-such/policy.yaml"), "there is no such file"),
    ],
)
def test_what_cannot_be_meant_is_refused_here(
    cli: Cli, kept: FakeController, words: tuple[str, ...], said: str
) -> None:
    assert add(cli, *words) == 2
    assert said in cli.err
    assert kept.sent("POST", PATH) == []


def test_who_fires_it_is_said(cli: Cli, kept: FakeController) -> None:
    assert add(cli) == 0
    assert "only while `seatrial serve` runs, and none does" in cli.err
    assert "--local-jobs-as" not in cli.err
    cli.wiring.held_by = 7
    assert add(cli) == 0
    assert "It fires while `seatrial serve` runs, and it does." in cli.err


def test_a_schedule_with_local_jobs_says_what_its_controller_needs(
    cli: Cli, kept: FakeController
) -> None:
    matrix = "kind: Matrix\nplatforms:\n  - {id: here, provider: local}\n"
    shown = SHOWN | {"schedule": SCHEDULE | {"matrix": matrix}}
    kept.answers["POST", PATH] = Answer.of(shown, 201)
    assert add(cli) == 0
    assert "need a controller that names their account" in cli.err
    cli.wiring.held_by = 7
    kept.answers["GET", "/api/v1/platforms"] = Answer.of({"items": []})
    assert add(cli) == 0
    assert "need a controller" not in cli.err
    assert "local-jobs-as" not in cli.err, "it runs them"
    local = {"provider": "local", "rented": False, "keys": [], "required": []}
    refused = local | {"refused": "others can reach it"}
    kept.answers["GET", "/api/v1/platforms"] = Answer.of({"items": [refused]})
    assert add(cli) == 0
    assert "Its jobs of `provider: local` are refused there: others can reach it." in cli.err


def test_a_list_and_a_schedule_are_shown(cli: Cli, kept: FakeController) -> None:
    assert cli("schedule", "list") == 0
    assert "nightly" in cli.out
    assert "2026-10-26 01:00" in cli.out
    assert "errored" in cli.out
    assert cli("schedule", "show", "nightly") == 0
    assert "deadline:  06:00" in cli.out
    assert "subject:   latest proof" in cli.out
    assert "has no branch 'main'" in cli.out
    assert "after its deadline" in cli.out
    assert "proof 1.11" in cli.out
    assert "a remark" in cli.out
    assert cli("schedule", "show", "nightly", "--json") == 0
    assert '"upcoming"' in cli.out


def test_nothing_to_list_says_how_to_begin(cli: Cli, controller: FakeController) -> None:
    controller.answers["GET", PATH] = Answer.of({"items": []})
    assert cli("schedule", "list") == 0
    assert "`seatrial schedule add` makes one" in cli.err


def test_pause_resume_trigger_and_remove(cli: Cli, kept: FakeController) -> None:
    for verb in ("pause", "resume"):
        kept.answers["POST", f"{PATH}/nightly/{verb}"] = Answer.of(SHOWN)
        assert cli("schedule", verb, "nightly") == 0
    kept.answers["POST", f"{PATH}/nightly/trigger"] = Answer.of(FIRING, 202)
    assert cli("schedule", "trigger", "nightly") == 0
    assert kept.sent("POST", f"{PATH}/nightly/trigger")[0].json == {}
    assert "seatrial schedule show nightly" in cli.err
    kept.answers["DELETE", f"{PATH}/nightly"] = Answer(204)
    assert cli("schedule", "remove", "nightly") == 0
    assert cli("schedule", "remove", "weekly") == 2
