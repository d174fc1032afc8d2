"""gate: check, explain, dry-run, history, waive, approve, keys, against a controller of ours."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.cli import in_process
from tests.unit.cli.fake_controller import Answer, FakeController, Request, stored_policy
from tests.unit.cli.in_process import ID, SHOWN, Cli

cli, controller = in_process.cli, in_process.controller  # the fixtures
API = "/api/v1"
GATE = f"{API}/gates/release"
POLICY = """\
apiVersion: seatrial/v1
kind: ReleaseGate
metadata: {name: release, product: torchbridge, owner: release-team}
spec:
  platforms:
    - {id: gcp-l4}
"""


def rule(name: str, outcome: str, *, blocking: bool = True, **more: object) -> dict[str, object]:
    plain = {"id": name, "kind": name.partition("/")[0], "blocking": blocking, "outcome": outcome}
    return {**plain, "sentence": f"{name} says so.", "inputs": {}, "by": [], **more}


RULES = [
    rule("job/moe@gcp-l4", "ok"),
    rule("platform/gcp-l4", "ok"),
    rule("platform/aws-a10g", "tolerated", by=["KI-0007"]),
    rule("platform/tpu", "violated"),
    rule("cost", "violated", blocking=False),
]
VERDICT = {
    "id": "V-0003",
    "gate": "release",
    "product": "torchbridge",
    "decision": "FAIL",
    "summary": "FAIL: 1 blocking rule is violated: platform/tpu.",
    "at": "2026-01-20T12:00:00Z",
    "subject": {"name": "torchbridge", "version": "0.4.6\x1b[31m"},
    "rules": RULES,
    "warnings": ["KI-0001 expired 3 days ago"],
    "runs": [ID],
    "lineage": "release",
    "policy_digest": "b" * 64,
    "evidence_digest": "c" * 64,
    "key_id": "k",
    "created_at": "2026-01-20T12:00:01Z",
    "snapshot_digest": "d" * 64,
    "document_digest": "e" * 64,
    "envelope_digest": "f" * 64,
}
PRESENT = "2" * 64
LINE = '{"payload":"e30="}\n'


@pytest.fixture
def policy(cli: Cli) -> str:
    path: Path = cli.folder / "gate.yaml"
    path.write_text(POLICY)
    return str(path)


@pytest.fixture
def gate(controller: FakeController) -> FakeController:
    controller.answers["GET", GATE] = Answer.of(stored_policy("2"))
    controller.answers["POST", f"{GATE}/evaluate"] = Answer.of(VERDICT, 201)
    controller.answers["GET", f"{API}/verdicts/V-0003"] = Answer.of(VERDICT)
    controller.answers["GET", f"{API}/verdicts/V-0003/statement"] = Answer(200, LINE.encode())
    return controller


BLAME = {
    "job": "moe",
    "nodeid": "test_moe.py::test_\x1b[31mrouting",
    "answer": "subject",
    "evidence": "With the baseline torchbridge 0.4.5 it failed 0 of 4 times.",
}


@pytest.mark.parametrize(
    "words", [("gate", "explain", "V-0003"), ("gate", "check", "POLICY", "--run", ID, "--no-wait")]
)
def test_a_verdict_names_who_broke_what_stands_in_the_way(
    cli: Cli, gate: FakeController, policy: str, words: tuple[str, ...]
) -> None:
    red = rule("job/moe@gcp-l4", "violated", inputs={"blame": [BLAME], "failing": 1})
    fine = rule("job/fp8@gcp-l4", "tolerated", blocking=False, inputs={"blame": [BLAME] * 2})
    told = Answer.of({**VERDICT, "rules": [red, fine]})
    gate.answers["GET", f"{API}/verdicts/V-0003"] = told
    gate.answers["POST", f"{GATE}/evaluate"] = told
    assert cli(*(policy if word == "POLICY" else word for word in words)) in (0, 1)
    shown = cli.out
    said = " ".join(shown.split())
    assert "root cause the subject test_moe.py::test_routing With the baseline" in said
    assert said.count("test_routing") == 1, "what only informs is not in the way"
    assert "job/moe@gcp-l4" in said
    assert "\x1b" not in shown


def decide(gate: FakeController, decision: str) -> None:
    said = {**VERDICT, "decision": decision}
    gate.answers["POST", f"{GATE}/evaluate"] = Answer.of(said, 201)


def states(*words: str) -> Callable[[Request], Answer]:
    left = list(words)

    def answer(_: Request) -> Answer:
        state = left.pop(0) if len(left) > 1 else left[0]
        run = in_process.runs.typical()
        return Answer.of({**run, "state": state})

    return answer


# check


def test_a_policy_file_is_stored_and_the_decision_comes_first(
    cli: Cli, gate: FakeController, policy: str
) -> None:
    assert cli("gate", "check", policy) == 1
    (asked,) = gate.sent("POST", f"{GATE}/evaluate")
    assert asked.json == {"runs": [], "lineage": "", "policy": POLICY, "name": policy}
    assert gate.sent("PUT", GATE) == []
    assert asked.headers["Idempotency-Key"]
    lines = cli.out.splitlines()
    assert lines[0].startswith("FAIL  release V-0003  torchbridge 0.4.6")
    assert lines[1] == "1 blocking rule is violated: platform/tpu."
    way = cli.out.index("blocking rules")
    excused = cli.out.index("what is excused")
    assert way < cli.out.index("platform/tpu says so.") < excused < cli.out.index("[KI-0007]")
    assert cli.out.index("[KI-0007]") < cli.out.index("for your information")
    assert "2 rules ok: 1 job, 1 platform" in cli.out
    assert "warning: KI-0001 expired 3 days ago" in cli.out
    assert "\x1b[31m" not in cli.out


def test_nothing_stands_in_the_way_of_a_pass_with_exceptions(
    cli: Cli, gate: FakeController, policy: str
) -> None:
    rules = [rule("platform/aws-a10g", "tolerated", by=["KI-0007"]), rule("x", "waived")]
    said = {**VERDICT, "decision": "PASS_WITH_EXCEPTIONS", "rules": rules}
    gate.answers["POST", f"{GATE}/evaluate"] = Answer.of(said, 201)
    assert cli("gate", "check", policy) == 0
    assert "blocking rules" not in cli.out
    assert "what is excused" in cli.out


@pytest.mark.parametrize(
    ("decision", "words", "code"),
    [
        ("PASS", (), 0),
        ("PASS_WITH_EXCEPTIONS", (), 0),
        ("PASS_WITH_EXCEPTIONS", ("--strict",), 10),
        ("FAIL", ("--strict",), 1),
        ("INCONCLUSIVE", (), 5),
        ("WHAT", (), 5),
    ],
)
def test_the_exit_code_is_the_decision(
    cli: Cli, gate: FakeController, decision: str, words: tuple[str, ...], code: int
) -> None:
    decide(gate, decision)
    assert cli("gate", "check", "release", *words) == code
    assert gate.sent("PUT", GATE) == []


def test_the_signed_verdict_is_written(cli: Cli, gate: FakeController) -> None:
    output = cli.folder / "verdict.json"
    assert cli("gate", "check", "release", "-o", str(output), "--json") == 1
    assert output.read_text() == LINE
    assert json.loads(cli.out) == VERDICT
    nowhere = cli.folder / "none" / "verdict.json"
    assert cli("gate", "check", "release", "-o", str(nowhere)) == 2
    assert len(gate.sent("POST", f"{GATE}/evaluate")) == 1, "nothing was decided for no file"


def test_the_signed_verdict_is_written_though_nobody_reads_the_rest(
    cli: Cli, gate: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = cli.folder / "verdict.json"
    read, write = os.pipe()
    os.close(read)  # as `head` does, once it has its lines
    with contextlib.suppress(SystemExit, BrokenPipeError), os.fdopen(write, "w") as unread:
        monkeypatch.setattr("sys.stdout", unread)
        cli("gate", "check", "release", "-o", str(output))
    assert output.read_text() == LINE


def test_runs_that_go_on_are_waited_for(cli: Cli, gate: FakeController) -> None:
    gate.answers["GET", SHOWN] = states("running", "running", "finished")
    assert cli("gate", "check", "release", "--run", ID) == 1
    (asked,) = gate.sent("POST", f"{GATE}/evaluate")
    assert asked.json["runs"] == [ID]
    assert asked.json["policy_digest"] == PRESENT
    assert "waiting for it to finish" in cli.err


def test_the_present_policy_decides_though_another_came_while_it_waited(
    cli: Cli, gate: FakeController
) -> None:
    finished = states("running", "finished", "finished")

    def overtaken(request: Request) -> Answer:
        gate.answers["GET", GATE] = Answer.of(stored_policy("3"))
        return finished(request)

    gate.answers["GET", SHOWN] = overtaken
    assert cli("gate", "check", "release", "--run", ID, "--run", ID) == 1
    (asked,) = gate.sent("POST", f"{GATE}/evaluate")
    assert asked.json == {"runs": [ID, ID], "lineage": "", "policy_digest": PRESENT}


def test_an_answer_without_the_policys_digest_decides_nothing(
    cli: Cli, gate: FakeController
) -> None:
    gate.answers["GET", GATE] = Answer.of({"gate": "release"})
    assert cli("gate", "check", "release") != 0
    assert "is not understood" in cli.err
    assert gate.sent("POST", f"{GATE}/evaluate") == []


def test_waiting_too_long_is_no_verdict(cli: Cli, gate: FakeController) -> None:
    gate.answers["GET", SHOWN] = states("running")
    assert cli("gate", "check", "release", "--run", ID, "--timeout", "0") == 7
    assert gate.sent("POST", f"{GATE}/evaluate") == []
    assert cli("gate", "check", "release", "--run", ID, "--no-wait") == 1


def test_a_policy_that_is_none_is_refused_here(cli: Cli, gate: FakeController, policy: str) -> None:
    Path(policy).write_text(f"{POLICY}  colour: red\n")
    assert cli("gate", "check", policy) == 2
    assert f"{policy}" in cli.err
    assert "7" in cli.err
    assert gate.sent("PUT", GATE) == []
    assert cli("gate", "check", "nowhere.yaml") == 2
    assert "nowhere.yaml" in cli.err


# explain, dry-run, history


@pytest.mark.parametrize(("ingested", "said"), [(False, "run run-1"), (True, "ingested run run-1")])
def test_a_verdict_says_which_runs_it_judged_and_when_they_ended(
    cli: Cli, gate: FakeController, policy: str, ingested: bool, said: str
) -> None:
    def rule(name: str, **inputs: object) -> dict[str, object]:
        told = {"id": name, "kind": name.partition("/")[0], "blocking": True, "outcome": "ok"}
        return {**told, "sentence": "ok", "inputs": inputs}

    cells = [{"cell": "a", "run": "run-1"}, {"cell": "b", "run": "run-1"}]
    rules = [
        rule("evidence", runs=["run-1", "run-2"]),
        rule("platform/p", cells=cells),
        rule("freshness/a", ended_at="2026-01-20T11:00:00+00:00"),
        rule("attestation/a", ingested=ingested),
        rule("freshness/b", ended_at="2026-01-20T13:30:00+01:00"),
    ]
    shown = Answer.of({**VERDICT, "decision": "PASS", "rules": rules}, 201)
    gate.answers["POST", f"{GATE}/evaluate"] = gate.answers["GET", f"{API}/verdicts/V-0003"] = shown
    for words in (("check", policy, "--no-wait"), ("explain", "V-0003")):
        assert cli("gate", *words) == 0
        assert f"evaluated: {said}, ended 2026-01-20 12:30 UTC; run run-2" in cli.out


def test_what_can_change_outcomes_has_a_line_of_its_own(
    cli: Cli, gate: FakeController, policy: str
) -> None:
    told = {"kind": "selection", "blocking": True, "outcome": "ok", "sentence": "unit on here: x."}
    inputs = {
        "deselected": [{"by": "-k", "count": 2, "asked": True, "tests": []}],
        "modules": [{"path": "m.py", "why": "no triton"}],
        "hooks": [
            {"name": "pytest_runtest_makereport", "file": "conftest.py"},
            {"name": "pytest_sessionfinish", "file": "plugin.py"},
            {"name": "pytest_runtest_call", "file": "conftest.py"},
            {"name": "mylib.double", "file": "conftest.py"},
        ],
    }
    level = {"id": "payload_level", "kind": "payload_level", "blocking": False, "inputs": {}}
    level |= {"outcome": "unknown", "sentence": f"The payload sha256:{'ab' * 32} is untrusted."}
    own = {**told, "id": "own_environment/here", "kind": "own_environment", "inputs": {}}
    own["sentence"] = "The jobs of here saw more."
    moved = rule("changed_tests/unit@here", "ok", inputs={"renamed": {"a": "b"}})
    skips = rule("skips/here", "ok", inputs={"other": 51})
    rules = [{**told, "id": "selection/unit@here", "inputs": inputs}, level, own, moved, skips]
    shown = Answer.of({**VERDICT, "decision": "PASS", "rules": rules}, 201)
    gate.answers["POST", f"{GATE}/evaluate"] = shown
    assert cli("gate", "check", policy, "--no-wait") == 0
    lines = [" ".join(line.split()) for line in cli.out.splitlines()]
    assert "The jobs of here saw more." in lines
    assert "changed_tests/unit@here says so." in lines
    assert "skips/here says so." in lines
    assert "selection/unit@here: -k deselected 2 tests" in lines
    assert "selection/unit@here: m.py skipped itself as a whole (no triton)" in lines
    assert (
        "selection/unit@here: conftest.py implements pytest_runtest_makereport and 1 more hook"
        in lines
    )
    assert "selection/unit@here: plugin.py implements pytest_sessionfinish" in lines
    assert "selection/unit@here: conftest.py replaces mylib.double" in lines
    assert "unknown payload_level The payload sha256:abababababab is untrusted." in lines


def test_a_verdict_is_explained_with_every_rule(cli: Cli, gate: FakeController) -> None:
    assert cli("gate", "explain", "V-0003") == 0
    assert "job/moe@gcp-l4 says so." in cli.out
    gate.answers["GET", f"{GATE}/verdicts"] = Answer.of({"items": [VERDICT], "next": None})
    assert cli("gate", "explain", "release") == 0
    assert "job/moe@gcp-l4 says so." in cli.out


@pytest.mark.parametrize(("identical", "code", "word"), [(True, 0, "ident"), (False, 1, "DIFF")])
def test_a_verdict_is_replayed(
    cli: Cli, gate: FakeController, identical: bool, code: int, word: str
) -> None:
    said = {"id": "V-0003", "identical": identical, "document_digest": "d", "replayed_digest": "e"}
    gate.answers["GET", f"{API}/verdicts/V-0003/replay"] = Answer.of({**said, "decision": "FAIL"})
    assert cli("gate", "explain", "V-0003", "--replay") == code
    assert word in cli.out


@pytest.mark.parametrize(
    ("decision", "strict", "code"),
    [
        ("PASS", False, 0),
        ("PASS_WITH_EXCEPTIONS", False, 0),
        ("PASS_WITH_EXCEPTIONS", True, 10),
        ("FAIL", False, 1),
        ("INCONCLUSIVE", False, 5),
    ],
)
def test_a_dry_run_ends_as_a_check_does(
    cli: Cli, gate: FakeController, policy: str, decision: str, strict: bool, code: int
) -> None:
    said = {**VERDICT, "id": "", "decision": decision}
    gate.answers["POST", f"{GATE}/dry-run"] = Answer.of(said)
    assert cli("gate", "dry-run", policy, *(["--strict"] if strict else [])) == code


def test_a_dry_run_maps_nothing_and_says_when(cli: Cli, gate: FakeController, policy: str) -> None:
    gate.answers["POST", f"{GATE}/dry-run"] = Answer.of({**VERDICT, "id": ""})
    assert cli("gate", "dry-run", policy, "--run", "latest", "--now", "2026-01-20T12:00") == 1
    (asked,) = gate.sent("POST", f"{GATE}/dry-run")
    assert asked.json == {
        "runs": ["latest"],
        "name": policy,
        "policy": POLICY,
        "now": "2026-01-20T12:00:00Z",
    }
    assert cli("gate", "dry-run", policy, "--now", "yesterday") == 2
    assert gate.sent("PUT", GATE) == []


def test_the_history_lists_verdicts_and_policies(cli: Cli, gate: FakeController) -> None:
    gate.answers["GET", f"{GATE}/verdicts"] = Answer.of({"items": [VERDICT], "next": None})
    assert cli("gate", "history", "release") == 0
    assert cli.out.splitlines()[1].startswith("V-0003  FAIL")
    assert cli("gate", "history", "release", "--json") == 0
    assert json.loads(cli.out)[0]["id"] == "V-0003"
    version = stored_policy("d")
    gate.answers["GET", f"{GATE}/policies"] = Answer.of({"items": [version]})
    assert cli("gate", "history", "release", "--policies") == 0
    assert "dddddddddddd" in cli.out
    gate.answers["GET", f"{API}/gates"] = Answer.of({"items": []})
    assert cli("gate", "list") == 0
    assert "No gate yet" in cli.err


# People and keys


WAIVER: dict[str, object] = {
    "id": "W-0001",
    "gate": "release",
    "rule": "platform/tpu",
    "reason": "late",
    "author": "al",
    "approver": "",
    "at": "2026-01-01T00:00:00Z",
    "evidence_digest": "c" * 64,
    "expires": "2026-02-01T00:00:00Z",
    "verdict": "V-0003",
    "is_expired": False,
    "failing": {"tpu: not_offered": 1, "USD": 13},
}


APPROVAL = {"gate": "release", "by": "bo", "at": "2026-01-20T12:00:00Z", "evidence": "c" * 64}


def test_a_rule_is_waived_and_evidence_approved(cli: Cli, gate: FakeController) -> None:
    gate.answers["POST", f"{API}/waivers"] = Answer.of(WAIVER, 201)
    words = ("--reason", "late", "--days", "7")
    gate.answers["GET", f"{GATE}/verdicts"] = Answer.of({"items": [VERDICT], "next": None})
    assert cli("gate", "waive", "release", "platform/tpu", *words) == 0
    assert cli.out == "W-0001\n"
    said = " ".join(cli.err.split())
    excused = "W-0001 excuses USD (13), tpu: not_offered; what else fails is not excused."
    assert excused in said
    (asked,) = gate.sent("POST", f"{API}/waivers")
    assert asked.json == {
        "gate": "release",
        "rule": "platform/tpu",
        "reason": "late",
        "days": 7,
        "only_this": False,
        "verdict": "V-0003",
    }
    assert cli("gate", "waive", "release", "platform/tpu", *words[:-1], "0") == 2
    gate.answers["GET", f"{API}/waivers"] = Answer.of({"items": [WAIVER]})
    assert cli("gate", "waivers") == 0
    assert "W-0001" in cli.out
    approved = {**WAIVER, "approver": "bo", "approved_at": "2026-01-01T00:00:00Z"}
    gate.answers["POST", f"{API}/waivers/W-0001/approve"] = Answer.of(approved)
    assert "`seatrial gate approve release --waiver W-0001`" in said
    assert cli("gate", "approve", "release", "--waiver", "W-0001") == 0
    assert "W-0001 counts, approved by bo" in cli.err
    assert excused in " ".join(cli.err.split())
    assert cli("gate", "approve", "release", "--waiver", "W-0002") == 2
    assert "W-0002 is no waiver of the gate release" in cli.err
    yes = APPROVAL
    gate.answers["POST", f"{API}/approvals"] = Answer.of(yes, 201)
    assert cli("gate", "approve", "release") == 0
    assert "bo approves the evidence cccccccccccc of V-0003" in cli.err
    assert "It counts for nothing" not in cli.err
    (asked,) = gate.sent("POST", f"{API}/approvals")
    assert asked.json == {"gate": "release", "verdict": "V-0003"}


def test_who_asks_for_a_waiver_reads_where_it_is_approved(cli: Cli, gate: FakeController) -> None:
    page = "https://seatrial.example.com/gates/release"
    gate.answers["POST", f"{API}/waivers"] = Answer.of({**WAIVER, "approval_page": page}, 201)
    words = ("--reason", "late", "--days", "7", "--verdict", "V-0003")
    assert cli("gate", "waive", "release", "platform/tpu", *words) == 0
    said = " ".join(cli.err.split())
    assert f"somebody else signs in and approves it at {page}" in said
    assert "token" not in said


def test_an_approval_that_counts_for_nothing_says_so(cli: Cli, gate: FakeController) -> None:
    yes = APPROVAL | {"remark": "bo asked for it"}
    gate.answers["POST", f"{API}/approvals"] = Answer.of(yes, 201)
    assert cli("gate", "approve", "release", "--verdict", "V-0003") == 1
    assert "It counts for nothing: bo asked for it." in cli.err
    assert "decides anew" not in cli.err
    assert cli("gate", "approve", "release", "--verdict", "V-0003", "--json") == 1
    assert json.loads(cli.out)["remark"] == "bo asked for it"


def test_what_people_say_is_of_the_verdict_that_they_name_or_are_shown(
    cli: Cli, gate: FakeController
) -> None:
    gate.answers["POST", f"{API}/waivers"] = Answer.of(WAIVER, 201)
    gate.answers["POST", f"{API}/approvals"] = Answer.of(APPROVAL, 201)
    words = ("--reason", "late", "--days", "7", "--only-this")
    gate.answers["GET", f"{GATE}/verdicts"] = Answer.of({"items": [VERDICT], "next": None})
    for named, meant in ((("--verdict", "V-0002"), "V-0002"), ((), "V-0003")):
        for path, action in (
            ("waivers", ("waive", "release", "platform/tpu", *words)),
            ("approvals", ("approve", "release")),
        ):
            assert cli("gate", *action, *named) == 0
            assert gate.sent("POST", f"{API}/{path}")[-1].json["verdict"] == meant
            is_shown = f"V-0003, the newest verdict: {VERDICT['summary']}" in cli.err
            assert is_shown is not bool(named)


def test_nobody_waives_or_approves_evidence_that_is_not_there(
    cli: Cli, gate: FakeController
) -> None:
    gate.answers["GET", f"{GATE}/verdicts"] = Answer.of({"items": [], "next": None})
    words = ("--reason", "late", "--days", "7", "--only-this")
    assert cli("gate", "waive", "release", "platform/tpu", *words) == 2
    assert "has no verdict yet: `seatrial gate check release`" in cli.err
    assert cli("gate", "approve", "release") == 2
    assert "has no verdict yet: `seatrial gate check release`" in cli.err
    assert gate.sent("POST", f"{API}/waivers") == gate.sent("POST", f"{API}/approvals") == []


def test_keys_are_listed_rotated_retired_and_exported(cli: Cli, gate: FakeController) -> None:
    key = {"id": "k1", "public": "aa", "created_at": "2026-01-20T12:00:00Z", "is_over": False}
    gate.answers["GET", f"{API}/keys"] = Answer.of({"items": [key]})
    gate.answers["POST", f"{API}/keys/rotate"] = Answer.of(key, 201)
    gate.answers["POST", f"{API}/keys/k1/retire"] = Answer.of(key)
    gate.answers["GET", f"{API}/keyring"] = Answer(200, b'{"kind": "seatrial-keyring"}\n')
    assert cli("gate", "keys", "list") == 0
    assert cli.out.splitlines()[1].split() == ["k1", "2026-01-20", "–", "–", "signs"]
    assert cli("gate", "keys", "rotate") == 0
    assert cli.out == "k1\n"
    assert cli("gate", "keys", "retire", "k1") == 0
    assert cli("gate", "keys", "export") == 0
    assert cli.out == '{"kind": "seatrial-keyring"}\n'
    output = cli.folder / "ring.json"
    assert cli("gate", "keys", "export", "-o", str(output)) == 0
    assert output.read_text() == '{"kind": "seatrial-keyring"}\n'
