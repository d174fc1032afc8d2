"""notify, against a controller of the tests' own."""

from __future__ import annotations

import json

from tests.unit.cli import in_process
from tests.unit.cli.fake_controller import Answer, FakeController
from tests.unit.cli.in_process import Cli

cli, controller = in_process.cli, in_process.controller  # the fixtures

API = "/api/v1/channels"
CHANNEL = {
    "id": "01jc",
    "name": "room",
    "kind": "slack",
    "target": "https://hooks.slack.com/…",
    "lineages": ["nightly*"],
    "allow_private": False,
    "api_base": "https://api.github.com",
    "token_from": "",
    "created_at": "2026-03-01T00:00:00Z",
    "signing_secrets": 1,
    "disabled_at": "2026-03-01T01:00:00Z",
    "disabled_reason": "HTTP 410\x1b[31m",
    "waiting": 2,
    "secret": "whsec_c2VjcmV0",
    "unmatched_lineages": ["nightly*"],
    "present_lineages": ["release", "release@nightly"],
}


def test_a_channel_is_added_with_all_that_was_said(cli: Cli, controller: FakeController) -> None:
    controller.answers["POST", API] = Answer.of(CHANNEL, 201)
    more = ("--lineage", "nightly*", "--lineage", "main", "--allow-private")
    assert cli("channel", "add", "room", "https://x.example/", "--kind", "slack", *more) == 0
    assert cli.out == "whsec_c2VjcmV0\n"
    assert "Keep it" in cli.err
    assert "no lineage matches nightly* so far" in cli.err
    assert "There are: release, release@nightly." in cli.err
    (request,) = controller.sent("POST", API)
    assert request.json == {
        "name": "room",
        "target": "https://x.example/",
        "kind": "slack",
        "lineages": ["nightly*", "main"],
        "allow_private": True,
        "token_from": "",
    }
    assert cli("channel", "add", "room", "x", "--kind", "mail") == 2


def test_githubs_needs_no_secret_of_ours(cli: Cli, controller: FakeController) -> None:
    controller.answers["POST", API] = Answer.of(CHANNEL | {"secret": None}, 201)
    words = ("--kind", "github", "--token-from", "env:GITHUB_TOKEN", "--api-base", "https://gh/api")
    assert cli("channel", "add", "commits", "acme/lib", *words) == 0
    assert cli.out == ""
    (request,) = controller.sent("POST", API)
    assert (request.json["token_from"], request.json["api_base"]) == (
        "env:GITHUB_TOKEN",
        "https://gh/api",
    )


def test_channels_and_what_was_sent_are_listed(cli: Cli, controller: FakeController) -> None:
    controller.answers["GET", API] = Answer.of({"items": [CHANNEL]})
    assert cli("channel", "list") == 0
    assert "disabled: HTTP 410" in cli.out
    assert "\x1b" not in cli.out
    assert cli("channel", "list", "--json") == 0
    assert json.loads(cli.out) == [CHANNEL]
    told = ("HTTP 500", "no answer within 10 s")
    tried = {"delivery": "d1", "at": "2026-03-01T03:00:00Z"}
    attempts = [
        tried | {"number": n, "receipt": {"result": "failed", "response_excerpt": text}}
        for n, text in enumerate(told, 1)
    ]
    log = {
        "id": "d1",
        "state": "waiting",
        "is_test": False,
        "title": "FAIL\nof <b>",
        "lineage": "release",
        "lineage_state": "fail",
        "previous": None,
        "created_at": "2026-03-01T03:00:00Z",
        "due_at": None,
        "done_at": None,
        "attempts": attempts,
    }
    controller.answers["GET", f"{API}/room/deliveries"] = Answer.of({"items": [log]})
    assert cli("channel", "log", "room") == 0
    (line,) = cli.out.splitlines()[1:]
    assert line.split("  ")[0] == "2026-03-01T03:00:00Z"
    assert " ".join(line.split()[1:]) == "waiting 2 no answer within 10 s FAIL↵of <b>"
    controller.answers["GET", API] = Answer.of({"items": []})
    assert cli("channel", "list") == 0
    assert "channel add" in cli.err


def test_a_test_that_does_not_get_through_is_a_failure(
    cli: Cli, controller: FakeController
) -> None:
    said = {"result": "accepted", "response_excerpt": "HTTP 204", "status": 204, "seconds": 0.1}
    controller.answers["POST", f"{API}/room/test"] = Answer.of(said)
    assert cli("channel", "test", "room", "--commit", "a" * 40) == 0
    assert cli.out == "accepted: HTTP 204\n"
    (request,) = controller.sent("POST", f"{API}/room/test")
    assert request.json == {"git_sha": "a" * 40}
    failed = said | {"result": "failed", "response_excerpt": "HTTP 404\x1b[2J"}
    controller.answers["POST", f"{API}/room/test"] = Answer.of(failed)
    assert cli("channel", "test", "room") == 1
    assert cli.out == "failed: HTTP 404\n"


def test_a_secret_is_renewed_and_a_channel_forgotten(cli: Cli, controller: FakeController) -> None:
    answer = {"secret": "whsec_bmV3", "old_until": "2026-03-02T00:00:00Z"}
    controller.answers["POST", f"{API}/room/rotate"] = Answer.of(answer)
    assert cli("channel", "rotate", "room", "--overlap-hours", "1.5") == 0
    assert cli.out == "whsec_bmV3\n"
    (request,) = controller.sent("POST", f"{API}/room/rotate")
    assert request.json == {"overlap_hours": 1.5}
    controller.answers["DELETE", f"{API}/a%2Fb"] = Answer(204)
    assert cli("channel", "remove", "a/b") == 0
    assert "forgotten" in cli.err
