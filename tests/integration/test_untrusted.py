"""Runs of untrusted code: what they get, what they may spend, and what their results decide."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.files.documents import FileDocuments
from orchestrator.api.app import create_app
from orchestrator.application.launch_run import LaunchOrder, payload_of
from orchestrator.domain.budget import Budget, Period
from orchestrator.domain.document_problems import InvalidDocumentError
from orchestrator.domain.matrix import Limits
from orchestrator.domain.outcome import Outcome
from tests.contract.provider_cases import HOST_KEY
from tests.e2e.home import ROOT
from tests.integration.agent_machine import Machine, command, laid_out
from tests.integration.api_context import MANIFEST, Desk, archive, sha256
from tests.integration.fake_world import FakeWorld
from tests.integration.gate_world import API, MATRIX, POLICY, check, put, ran
from tests.integration.test_agent_environment import wheel
from tests.unit.cli import in_process
from tests.unit.cli.fake_controller import FakeController
from tests.unit.cli.in_process import MATRIX as CLI_MATRIX
from tests.unit.cli.in_process import PAYLOAD, Cli

cli, controller = in_process.cli, in_process.controller  # the fixtures
BUDGET = Budget(Period.UNTRUSTED, Decimal(5))
RUNS = f"{API}/runs"


def desk_with(api: Desk, *budgets: Budget) -> Desk:
    """A desk where `local` stands for a cloud: a gate believes nothing that is simulated."""
    cloud = replace(api.context.traits["local"], rented=True, metadata_guard=True)
    traits = {**api.context.traits, "local": cloud}
    context = replace(api.context, traits=traits, budgets=budgets)
    return replace(api, context=context, app=create_app(context, guard=None))


@pytest.fixture
def here(api: Desk) -> Desk:
    return desk_with(api, BUDGET)


def refusals(desk: Desk, matrix: str = MATRIX, **body: object) -> list[str]:
    """Why it is refused, by a launch and by a plan; nothing is stored."""
    asked = {"matrix": matrix, "untrusted": True, **body}
    answers = (
        desk.client.post(RUNS, json=asked, headers={"Idempotency-Key": "k"}),
        desk.client.post(f"{API}/plan", json=asked),
    )
    assert {answer.status_code for answer in answers} == {422}
    launched, planned = ([e["detail"] for e in answer.json()["errors"]] for answer in answers)
    assert launched == planned
    assert desk.database.stores.runs.page(limit=9, before=None)[0] == []
    return launched


def test_a_controller_without_a_budget_for_it_runs_no_untrusted_code(api: Desk) -> None:
    for budgets in ((), (Budget(Period.DAY, Decimal(5)), Budget(Period.PROJECT, Decimal(9)))):
        (refused,) = refusals(desk_with(api, *budgets))
        assert "SEATRIAL_BUDGET_UNTRUSTED_USD" in refused


@pytest.mark.parametrize(
    "platform",
    [
        "{id: here, provider: local}",
        (
            "{id: here, provider: static, hosts: [{address: 10.0.0.1, user: ci, key_file: k, "
            f"host_key: {HOST_KEY}}}]}}"
        ),
        "{id: here, provider: tpu, accelerator_type: v5litepod-1}",
    ],
)
def test_it_runs_only_on_machines_that_are_rented_for_it(api: Desk, platform: str) -> None:
    """A host of somebody's, the controller's computer, and one whose jobs read the metadata."""
    there = replace(api, context=(context := replace(api.context, budgets=(BUDGET,))))
    there.app = create_app(context, guard=None)
    found = refusals(there, MATRIX.replace("{id: here, provider: local}", platform))
    assert any("only on machines that are rented for it" in one for one in found), found


def test_it_gets_no_secret_that_others_get(here: Desk) -> None:
    matrix = MATRIX + "secrets: {HF_TOKEN: {from: env}}\n"
    assert refusals(here, matrix) == ["untrusted code gets no secrets"]
    assert here.launch("trusted", matrix=matrix)["untrusted"] is False


def test_no_package_is_built_on_its_machine_before_its_user_is_chosen(here: Desk) -> None:
    whole = archive(MANIFEST.replace("[[job]]", "[env.image]\nindex = true\n[[job]]", 1))
    put_payload(here, whole)
    matrix = MATRIX.replace("jobs:", "payload: {path: .}\njobs:")
    (refused,) = refusals(here, matrix, payload=sha256(whole))
    assert "index = true" in refused


def put_payload(desk: Desk, whole: bytes) -> None:
    answer = desk.client.put(f"{API}/payloads/{sha256(whole)}", content=whole)
    assert answer.status_code in (200, 201), answer.text


def test_its_results_satisfy_no_gate(here: Desk) -> None:
    put(here)
    run = ran(here, untrusted=True)
    answer = here.client.post(
        f"{API}/gates/release/evaluate", json={"runs": [run]}, headers={"Idempotency-Key": "e"}
    )
    assert answer.status_code == 422
    assert answer.json()["detail"] == (
        f"run {run} is of untrusted code: its results satisfy no gate"
    )
    assert check(here)["decision"] == "INCONCLUSIVE", "nor as the newest one"
    trusted = ran(here, "later")
    newest = ran(here, "newest", untrusted=True)
    assert trusted < newest
    verdict = check(here, "after")
    assert (verdict["decision"], verdict["runs"]) == ("PASS", [trusted])


def test_its_failures_hinder_no_release(here: Desk) -> None:
    """A trusted failure of the same subject does: so that no run can be chosen."""
    put(here)
    run = ran(here, "good")
    ran(here, "bad", {"tests/test_a.py::one": "failed"}, untrusted=True)
    assert check(here, runs=[run])["decision"] == "PASS"
    ran(here, "trusted", {"tests/test_a.py::one": "failed"})
    assert check(here, "again", runs=[run])["decision"] != "PASS"


def test_no_policy_names_its_product_and_no_payload_has_its_name(here: Desk) -> None:
    policy = POLICY.replace("product: proof", 'product: "untrusted:proof"')
    answer = here.client.put(f"{API}/gates/release", json={"policy": policy, "name": "gate.yaml"})
    assert answer.status_code == 422
    assert "satisfy no gate" in answer.text
    with pytest.raises(InvalidDocumentError, match="untrusted code"):
        FileDocuments().read_manifest(MANIFEST.replace('"proof"', '"untrusted:proof"'), "p.toml")


def test_it_is_no_baseline_and_in_no_history(here: Desk) -> None:
    ran(here, untrusted=True)
    gates = here.database.stores.gates
    assert gates.last_green("proof", "here") is None
    assert gates.green_streak("proof", "here", before_run="") == 0
    run = ran(here, "trusted")
    green = gates.last_green("proof", "here")
    assert green is not None
    assert (green.run_id, green.streak) == (run, 1)
    (test,) = here.client.get(f"{API}/tests", params={"product": "proof"}).json()["items"]
    history = here.client.get(f"{API}/tests/{test['id']}/history").json()
    assert run in str(history)
    assert len(history["points"] if "points" in history else history["items"]) == 1


def test_what_repeats_it_is_untrusted_too(here: Desk) -> None:
    run = ran(here, "bad", {"tests/test_a.py::one": "failed"}, untrusted=True)
    answer = here.client.post(f"{RUNS}/{run}/rerun", headers={"Idempotency-Key": "r"})
    assert answer.json()["untrusted"] is True
    shown = here.client.get(f"{RUNS}/{answer.json()['id']}").json()
    assert shown["untrusted"] is True
    for origin in (run, shown["id"]):
        order = LaunchOrder(matrix=MATRIX, rerun_of=origin)
        assert payload_of(here.context, order).manifest.name == "untrusted:proof"
    assert payload_of(here.context, LaunchOrder(matrix=MATRIX)).manifest.name == "proof"


def test_lists_and_reports_call_it_untrusted(here: Desk) -> None:
    run = ran(here, untrusted=True)
    listed = here.client.get(RUNS).json()["items"]
    assert [(one["id"], one["untrusted"]) for one in listed] == [(run, True)]
    report = here.client.get(f"{RUNS}/{run}/reports/summary.md")
    assert "untrusted" in report.text


@pytest.fixture
def world(tmp_path: Path) -> Iterator[FakeWorld]:
    limits = Limits(max_minutes=12, max_usd=Decimal(10), infra_retries=0)
    budgets = (
        Budget(Period.DAY, Decimal("0.90")),
        Budget(Period.UNTRUSTED, Decimal("0.3084")),
    )
    world = FakeWorld(tmp_path, limits=limits, budgets=budgets)
    yield world
    world.close()


def test_its_budget_is_its_own_and_within_that_of_the_day(world: FakeWorld) -> None:
    """The first spends of it, so that another does not fit; trusted runs go on."""

    def finish(run: str, *, untrusted: bool) -> tuple[Outcome | None, str]:
        for cell_id in world.launch(run, untrusted=untrusted):
            world.engine.run(cell_id)
        cell = world.record(run).cells[0]
        return cell.outcome, cell.detail if cell.reason == "budget" else cell.reason

    assert finish("trusted", untrusted=False) == (Outcome.PASSED, "")
    assert finish("first", untrusted=True) == (Outcome.PASSED, "")
    outcome, detail = finish("second", untrusted=True)
    assert outcome is Outcome.ERRORED
    assert detail.startswith(
        "another machine could exceed untrusted runs' budget, SEATRIAL_BUDGET_UNTRUSTED_USD of"
    )
    assert finish("release", untrusted=False) == (Outcome.PASSED, "")
    day, own = world.database.stores.leases.budget_uses(world.budgets, world.clock.now())
    assert day.settled_usd == 3 * own.settled_usd


@pytest.mark.parametrize(
    ("more", "lacks"),
    [
        ({}, "separated_user is false: the plan asks for the agent's own user"),
        ({"metadata_guard": True}, "separated_user is false"),
    ],
)
def test_the_agent_runs_nothing_of_it_without_a_user_of_its_own(
    machine: Machine, tmp_path: Path, more: Mapping[str, Any], lacks: str
) -> None:
    jobs = [command("{python}", "-c", "print('ran')")]
    payload = laid_out(tmp_path / "payload", {"a.py": ""})
    evidence = machine.run(payload, python=sys.executable, jobs=jobs, untrusted=True, **more)
    end = evidence.end
    assert (end["outcome"], end["reason"]) == ("errored", "environment")
    assert f"untrusted code does not run here: {lacks}" in end["detail"]
    assert evidence.of("phase", "suite") == []


@pytest.fixture
def fork(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tree of a fork, like the trusted one that commands are started in."""
    monkeypatch.chdir(cli.folder)
    tree = cli.folder / "trees" / "fork"
    (tree / "pay" / "tests").mkdir(parents=True)
    (tree / "pay" / "tests" / "test_a.py").write_text("def test(): pass\n")
    (cli.folder / "pay" / "tests" / "test_a.py").write_text("def test(): assert 0\n")
    (tree / "pay" / "payload.toml").write_text(PAYLOAD.replace('"tests"', '"-h"') + EVIL)
    (tree / "release.yaml").write_text(CLI_MATRIX + "secrets: {HF_TOKEN: {from: env}}\n")
    return tree


EVIL = '[setup]\nindex = true\npip = ["evil"]\n'


def launched(cli: Cli, controller: FakeController, *words: str) -> dict[str, Any]:
    """The body of the launch."""
    code = cli("run", "release.yaml", "--untrusted", "trees/fork", "--detach", *words)
    assert code == 130, cli.err
    (sent,) = controller.sent("POST", f"{API}/runs")
    body: dict[str, Any] = sent.json
    return body


def shipped(controller: FakeController) -> dict[str, str]:
    (whole,) = [one for path, one in controller.stored.items() if "/payloads/" in path]
    with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
        return {one.name: tar.extractfile(one).read().decode() for one in tar if one.isreg()}


def test_files_come_from_the_tree_and_documents_from_here(
    cli: Cli, controller: FakeController, fork: Path
) -> None:
    body = launched(cli, controller)
    assert body["untrusted"] is True
    assert body["matrix"] == CLI_MATRIX
    assert shipped(controller) == {
        "payload.toml": PAYLOAD,
        "tests/test_a.py": "def test(): pass\n",
    }


@pytest.mark.parametrize("instead", ["link", "folder", "nothing"])
def test_what_the_tree_has_as_payload_toml_does_not_matter(
    cli: Cli, controller: FakeController, fork: Path, instead: str
) -> None:
    own = fork / "pay" / "payload.toml"
    own.unlink()
    if instead == "link":
        own.symlink_to("tests/test_a.py")
    elif instead == "folder":
        own.mkdir()
    launched(cli, controller)
    assert shipped(controller)["payload.toml"] == PAYLOAD


def test_the_wheel_comes_from_the_tree(cli: Cli, controller: FakeController, fork: Path) -> None:
    for tree, version in ((cli.folder, "1.5"), (fork, "1.6")):
        wheel(tree / "dist", "tool", version)
    matrix = CLI_MATRIX.replace(
        'subject: {name: torchbridge, version: "0.4.40"}',
        'subject: {name: tool, version: "1.6", wheel: "dist/*.whl"}',
    )
    cli.matrix.write_text(matrix)
    body = launched(cli, controller)
    path = fork / "dist" / "tool-1.6-py3-none-any.whl"
    assert body["subject"] == sha256(path.read_bytes())


@pytest.mark.parametrize("link", ["pay", "pay/tests", "dist"])
def test_nothing_of_this_computer_is_sent_through_a_link(
    cli: Cli, controller: FakeController, fork: Path, link: str
) -> None:
    secret = cli.folder / "secret"
    secret.mkdir()
    wheel(secret, "tool", "1.6")
    (secret / "key").write_text("hunter2")
    if link == "dist":
        cli.matrix.write_text(
            CLI_MATRIX.replace(
                'subject: {name: torchbridge, version: "0.4.40"}',
                'subject: {name: tool, version: "1.6", wheel: "dist/*.whl"}',
            )
        )
    shutil.rmtree(fork / link, ignore_errors=True)
    (fork / link).symlink_to(secret)
    assert cli("run", "release.yaml", "--untrusted", "trees/fork", "--detach") not in (0, 130)
    assert controller.stored == {}
    assert controller.sent("POST", f"{API}/runs") == []


def test_a_root_above_the_tree_is_refused(cli: Cli, controller: FakeController, fork: Path) -> None:
    """Such a payload.toml here ships a folder above; of a tree that would be this computer's."""
    text = PAYLOAD.replace('version = "1"\n', 'version = "1"\nroot = "../.."\n')
    text = text.replace('"tests"', '"fork/pay/tests"')
    (cli.folder / "pay" / "payload.toml").write_text(text)
    assert cli("run", "release.yaml", "--untrusted", "trees/fork", "--detach") not in (0, 130)
    assert "nothing of this computer is sent" in cli.err
    assert controller.stored == {}


def test_the_matrix_must_be_below_the_present_folder(
    cli: Cli, controller: FakeController, fork: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(fork)
    assert cli("run", str(cli.matrix), "--untrusted", ".", "--detach") not in (0, 130)
    assert "start it above the matrix" in cli.err


@pytest.mark.parametrize(("code", "state"), [(0, "success"), (1, "failure"), (5, "failure")])
def test_the_workflow_of_forks_tells_commit_and_pull_request(
    tmp_path: Path, code: int, state: str
) -> None:
    calls = tmp_path / "calls"
    tools = {
        "seatrial": f"case $1 in run) echo RUN; exit 130;; watch) exit {code};; esac; echo told",
        "gh": "case $2 in */pulls) echo 7;; esac",
    }
    for name, does in tools.items():
        tool = tmp_path / name
        tool.write_text(f'#!/bin/sh\necho "{name} $*" >> "{calls}"\n{does}\n')
        tool.chmod(0o755)
    variables = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "SEATRIAL_URL": "https://seatrial.example.org/",
        "MATRIX": "pr.yaml",
        "HEAD_SHA": "c0ffee",
        "GH_REPO": "we/ours",
    }
    done = subprocess.run(
        ("bash", str(ROOT / "docs/examples/ci/fork.sh")), env=variables, cwd=tmp_path, timeout=60
    )
    assert done.returncode == code
    assert (tmp_path / "comment.md").read_text() == "told\n"
    assert calls.read_text().splitlines() == [
        "seatrial run pr.yaml --untrusted fork --commit c0ffee -y --detach",
        "seatrial watch RUN --timeout 60",
        (
            f"gh api --method POST repos/we/ours/statuses/c0ffee --silent -f state={state}"
            " -f context=seatrial/untrusted -f target_url=https://seatrial.example.org/runs/RUN"
        ),
        (
            "gh api repos/we/ours/commits/c0ffee/pulls"
            ' --jq [.[] | select(.state == "open") | .number][0] // empty'
        ),
        "seatrial report RUN --kind comment",
        "gh api --method POST repos/we/ours/issues/7/comments --silent -F body=@comment.md",
    ]
