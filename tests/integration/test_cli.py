"""What leads to an outcome, against a controller of the tests' own over a real socket."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.unit.cli import in_process
from tests.unit.cli.fake_controller import Answer, FakeController, Request, plan
from tests.unit.cli.in_process import ID, MATRIX, SHOWN, Cli, report_of

cli, controller = in_process.cli, in_process.controller  # the fixtures


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        ("passed", 0),
        ("failed", 1),
        ("timed_out", 1),
        ("errored", 5),
        ("cancelled", 5),
        ("not_available", 5),
    ],
)
@pytest.mark.parametrize("command", ["run", "watch", "rerun"])
def test_the_exit_code_is_the_outcome(
    cli: Cli, controller: FakeController, command: str, outcome: str, code: int
) -> None:
    report = report_of(cli)
    controller.finish(outcome)
    controller.answers["POST", f"{SHOWN}/rerun"] = Answer.of(controller.shown, 202)
    assert cli(command, str(cli.matrix) if command == "run" else ID) == code
    assert cli.out == f"report: {report}\n"


def test_what_run_prints_without_a_terminal(cli: Cli, controller: FakeController) -> None:
    report_of(cli)
    bad = {"job": "moe", "nodeid": "tests/t.py::a\n[x]", "outcome": "failed", "message": "1 != 2"}
    controller.tests = [bad]

    def happen(looks: int) -> None:
        if looks == 2:
            controller.finish("failed")

    controller.on_look = happen
    assert cli("run", str(cli.matrix)) == 1
    lines = [re.sub(r"^ *\d\S*( \d\S*)?  ", "TIME  ", line) for line in cli.err.splitlines()]
    start = lines.index("plan: 1 cell, 2 jobs, free")
    assert lines[start : start + 3] == [
        "plan: 1 cell, 2 jobs, free",
        f"run {ID}",
        "TIME  local-cpu moe: passed in 31s (48 passed)",
    ]
    assert "TIME  gcp-l4 moe: failed tests/t.py::a↵[x]: 1 != 2" in lines
    assert lines[-1].endswith("run: failed (78 passed, 1 failed, 17 missing)")
    assert "\x1b" not in cli.err + cli.out


def test_what_the_controller_tells_is_a_line_each(cli: Cli, controller: FakeController) -> None:
    """What the run shows by itself is not told twice."""
    report_of(cli)
    controller.told = [
        {"cell": "local-cpu", "notice": "diagnosing: 1 failing test again, 4 times\x1b[2J"},
        {"cell": "local-cpu", "notice": "its machine is kept", "shown": "kept_until"},
    ]
    events = f"{SHOWN}/events"

    def happen(looks: int) -> None:
        if len(controller.sent("GET", events)) >= 2:
            controller.finish("failed")

    controller.on_look = happen
    assert cli("watch", ID) == 1
    lines = [re.sub(r"^ *\d\S*( \d\S*)?  ", "TIME  ", line) for line in cli.err.splitlines()]
    assert lines.count("TIME  local-cpu: diagnosing: 1 failing test again, 4 times") == 1
    assert "its machine is kept" not in cli.err
    assert lines[-1].startswith("TIME  run: failed")


@pytest.mark.parametrize("command", ["run", "watch", "rerun"])
def test_an_outcome_that_only_newer_controllers_have_is_no_verdict(
    cli: Cli, controller: FakeController, command: str
) -> None:
    controller.finish("something_new")
    controller.answers["POST", f"{SHOWN}/rerun"] = Answer.of(controller.shown, 202)
    assert cli(command, str(cli.matrix) if command == "run" else ID) == 5
    assert "the controller's answer is not understood: outcome" in cli.err
    assert "of the same version?" in cli.err


def test_show_tells_who_broke_it(cli: Cli, controller: FakeController) -> None:
    one = {
        "cell": "gcp-l4",
        "job": "moe",
        "nodeid": "tests/t.py::a",
        "answer": "subject",
        "sentence": "With the baseline torchbridge 0.4.5 it failed 0 of 4 times.",
        "evidence": [],
        "again": [
            {"kind": "rerun", "changed": "", "whole": False, "outcomes": ["failed"] * 4},
            {
                "kind": "baseline",
                "changed": "torchbridge 0.4.5",
                "whole": False,
                "outcomes": ["passed"] * 4,
            },
        ],
    }
    controller.shown |= {"diagnosed": [one]}
    assert cli("show", ID) == 0
    said = " ".join(cli.out.split())
    assert (
        "root cause the subject moe::tests/t.py::a gcp-l4 failed 4 of 4 again; passed 4 of 4"
        in said
    )
    assert cli("show", ID, "--json") == 0
    assert json.loads(cli.out)["diagnosed"] == [one]


def test_run_names_what_the_payload_needs_and_git_ignores(
    cli: Cli, controller: FakeController
) -> None:
    report_of(cli)
    controller.finish("passed")
    folder = cli.matrix.parent / "pay"
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / ".gitignore").write_text("_version.py\nx_cases\n*.csv\n")
    (folder / "a.csv").write_text("1,2\n")
    (folder / "_version.py").write_text("")
    (folder / "t.py").write_text("import _version\n")
    (folder / "test_b.py").write_text("")
    (folder / "x_cases").mkdir()
    for name in ("test_a.py", "test_c 2.py"):
        (folder / "x_cases" / name).write_text("")
    assert cli("run", str(cli.matrix)) == 0
    assert (
        "note: x_cases/test_a.py, x_cases/test_c 2.py have names of tests and are not shipped,"
        " because git ignores them: no job runs them. Fix: `git add --force x_cases/test_a.py"
        " 'x_cases/test_c 2.py'`, or name it in `exclude` of payload.toml"
    ) in cli.err
    assert (
        "note: a.csv lies among tests and is not shipped, because git ignores it: no test can read"
        " it. Fix: `git add --force a.csv`, or name it in `exclude` of payload.toml"
    ) in cli.err
    assert (
        "note: the payload imports _version.py, which is not shipped, because git ignores it."
        " Fix: `git add --force _version.py`, or `!_version.py` in .gitignore"
    ) in cli.err


def test_run_uploads_what_is_not_known_and_sends_one_key(
    cli: Cli, controller: FakeController
) -> None:
    report_of(cli)
    controller.finish("passed")
    assert cli("run", str(cli.matrix)) == 0
    ((path, archive),) = controller.stored.items()
    digest = hashlib.sha256(archive).hexdigest()
    assert path == f"/api/v1/payloads/{digest}"
    launch = controller.sent("POST", "/api/v1/runs")[0]
    assert launch.json == {
        "matrix": MATRIX,
        "name": "release.yaml",
        "payload": digest,
        "subject": None,
    }
    assert launch.headers["Idempotency-Key"]
    assert cli("run", str(cli.matrix)) == 0
    assert len(controller.sent("PUT", path)) == 1


def test_a_launch_that_is_answered_with_busy_is_repeated_with_its_key(
    cli: Cli, controller: FakeController
) -> None:
    report_of(cli)
    controller.finish("passed")
    answers = iter([503, 409])

    def launch(request: Request) -> Answer:
        status = next(answers, 202)
        return Answer.of(controller.shown, status)

    controller.answers["POST", "/api/v1/runs"] = launch
    assert cli("run", str(cli.matrix)) == 0
    keys = [r.headers["Idempotency-Key"] for r in controller.sent("POST", "/api/v1/runs")]
    assert len(keys) == 3
    assert len(set(keys)) == 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("provider: local}", "provder: local}", "release.yaml:7:21: platforms.0.provder: "),
        ("provider: local}", "provider: locl}", "did you mean 'local'?"),
        ('"0.4.40"', "1.10", "release.yaml:4:39: subject.version: "),
        ("path: pay", "path: pai", "release.yaml:5:17: payload.path: there is no "),
        ('"*"', '"nothing*"', "release.yaml:9:"),
    ],
)
def test_a_bad_matrix_is_refused_before_anything_is_sent(
    cli: Cli, controller: FakeController, old: str, new: str, said: str
) -> None:
    cli.matrix.write_text(MATRIX.replace(old, new))
    assert cli("run", str(cli.matrix)) == 2
    assert said in cli.err
    assert cli.out == ""
    assert controller.requests == []


def test_a_matrix_that_is_not_text_is_refused_where_it_stops_being_that(
    cli: Cli, controller: FakeController
) -> None:
    cli.matrix.write_bytes("kind: Matrix\nmetadata: {name: é".encode() + b"\xff}\n")
    assert cli("run", str(cli.matrix)) == 2
    assert cli.err == f"{cli.matrix}:2:19: is not UTF-8 text\n"
    assert controller.requests == []


def test_what_the_controller_refuses_is_located(cli: Cli, controller: FakeController) -> None:
    errors = [{"pointer": "/secrets/HF_TOKEN", "line": 4, "column": 9, "detail": "is not there"}]
    controller.answers["POST", "/api/v1/plan"] = Answer.problem(422, "no", errors=errors)
    assert cli("plan", str(cli.matrix)) == 2
    assert cli.err.splitlines()[-1] == f"{cli.matrix}:4:9: secrets.HF_TOKEN: is not there"


@pytest.mark.parametrize(
    ("status", "code"), [(400, 2), (401, 4), (403, 4), (404, 2), (409, 2), (422, 2), (500, 5)]
)
def test_refusals_have_their_exit_codes(
    cli: Cli, controller: FakeController, status: int, code: int
) -> None:
    controller.answers["GET", f"/api/v1/runs/{ID}"] = Answer.problem(status, "because")
    assert cli("show", ID) == code
    assert "because" in cli.err
    assert "Traceback" not in cli.err


def test_a_missing_matrix_names_its_neighbour(cli: Cli) -> None:
    assert cli("run", str(cli.folder / "relase.yaml")) == 2
    assert "did you mean 'release.yaml'?" in cli.err


def test_what_costs_money_is_not_rented_without_a_yes(cli: Cli, controller: FakeController) -> None:
    report_of(cli)
    controller.finish("passed")
    controller.answers["POST", "/api/v1/plan"] = Answer.of(plan("cloud", "1.25"))
    assert cli("run", str(cli.matrix)) == 2
    assert "say -y" in cli.err
    assert "$1.25" in cli.err
    assert controller.sent("POST", "/api/v1/runs") == []
    assert cli("run", "-y", str(cli.matrix)) == 0
    assert len(controller.sent("POST", "/api/v1/runs")) == 1


def test_detach_prints_the_id_and_leaves(cli: Cli, controller: FakeController) -> None:
    assert cli("run", "--detach", str(cli.matrix)) == 130
    assert cli.out == f"{ID}\n"
    assert f"seatrial watch {ID}" in cli.err
    assert cli("run", "--detach", "--json", str(cli.matrix)) == 130
    assert json.loads(cli.out)["id"] == ID


def test_waiting_too_long_is_told_apart(cli: Cli, controller: FakeController) -> None:
    assert cli("watch", ID, "--timeout", "0.01") == 7
    assert "goes on" in cli.err
    assert cli.out == ""


def test_json_is_what_the_controller_shows(cli: Cli, controller: FakeController) -> None:
    report_of(cli)
    assert cli("show", ID, "--json") == 0
    assert json.loads(cli.out) == controller.shown
    controller.finish("failed")
    assert cli("watch", ID, "--json") == 1
    assert json.loads(cli.out) == controller.shown


def test_set_changes_the_document_that_is_sent(cli: Cli, controller: FakeController) -> None:
    assert cli("plan", str(cli.matrix), "--set", "local-cpu.optional=true", "--json") == 0
    sent = controller.sent("POST", "/api/v1/plan")[0].json["matrix"]
    assert sent["platforms"] == [{"id": "local-cpu", "provider": "local", "optional": True}]
    assert cli("plan", str(cli.matrix), "--set", "local-cpu.optinal=true") == 2
    assert "did you mean 'optional'?" in cli.err


def wheel(path: Path) -> None:
    """As small as a wheel can be."""
    name, version = path.name.split("-")[:2]
    with zipfile.ZipFile(path, "w") as archive:
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        archive.writestr(f"{name}-{version}.dist-info/METADATA", text)
        archive.writestr(
            f"{name}-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n"
        )
        archive.writestr(f"{name}-{version}.dist-info/RECORD", "")


@pytest.mark.parametrize(
    ("names", "code"), [(["torchbridge"], 0), ([], 2), (["torchbridge", "other"], 2)]
)
def test_a_wheel_pattern_must_match_exactly_one(
    cli: Cli, controller: FakeController, names: list[str], code: int
) -> None:
    report_of(cli)
    controller.finish("passed")
    cli.matrix.write_text(MATRIX.replace('"0.4.40"}', '"0.4.40", wheel: "dist/*.whl"}'))
    (cli.folder / "dist").mkdir()
    for name in names:
        wheel(cli.folder / "dist" / f"{name}-0.4.40-py3-none-any.whl")
    assert cli("run", str(cli.matrix)) == code
    if code:
        said = f"must match one file; it matches {len(names)}"
        assert f"release.yaml:4:56: subject.wheel: 'dist/*.whl' {said}" in cli.err
        assert ("`pip wheel --no-deps -w dist .`" in cli.err) is (not names)
        assert controller.requests == []
        return
    sent = (cli.folder / "dist" / "torchbridge-0.4.40-py3-none-any.whl").read_bytes()
    digest = hashlib.sha256(sent).hexdigest()
    assert controller.stored[f"/api/v1/subjects/{digest}"] == sent
    assert controller.sent("POST", "/api/v1/runs")[0].json["subject"] == digest


def test_a_wheel_of_another_version_than_the_project_s_is_noted(
    cli: Cli, controller: FakeController
) -> None:
    report_of(cli)
    controller.finish("passed")
    cli.matrix.write_text(MATRIX.replace('"0.4.40"}', '"0.4.40", wheel: "dist/*.whl"}'))
    (cli.folder / "dist").mkdir()
    wheel(cli.folder / "dist" / "torchbridge-0.4.40-py3-none-any.whl")
    project = cli.folder / "pay" / "pyproject.toml"
    project.write_text('[project]\nname = "torchbridge"\nversion = "0.4.40"\n')
    assert cli("run", str(cli.matrix)) == 0
    assert "pyproject.toml says" not in cli.err
    project.write_text('[project]\nname = "TorchBridge"\nversion = "0.4.41"\n')
    assert cli("run", str(cli.matrix)) == 0
    assert "note: pyproject.toml says 0.4.41, the wheel " in cli.err
    assert "torchbridge-0.4.40-py3-none-any.whl is 0.4.40: `pip wheel . " in cli.err


def test_a_baseline_is_uploaded_beside_the_subject(cli: Cli, controller: FakeController) -> None:
    report_of(cli)
    controller.finish("passed")
    subject = MATRIX.replace('"0.4.40"}', '"0.4.40", wheel: "new-wheels/*.whl"}')
    cli.matrix.write_text(subject + 'baseline: {wheel: "old-wheels/*.whl"}\n')
    for folder, version in (("new-wheels", "0.4.40"), ("old-wheels", "0.4.39")):
        (cli.folder / folder).mkdir()
        wheel(cli.folder / folder / f"torchbridge-{version}-py3-none-any.whl")
    assert cli("run", str(cli.matrix)) == 0, cli.err
    [launched] = controller.sent("POST", "/api/v1/runs")
    assert launched.json["baseline"] != launched.json["subject"]
    assert f"/api/v1/subjects/{launched.json['baseline']}" in controller.stored


def test_a_baseline_that_is_not_there_is_refused_at_its_place(
    cli: Cli, controller: FakeController
) -> None:
    cli.matrix.write_text(MATRIX + "baseline: {payload: {path: ../old}}\n")
    assert cli("run", str(cli.matrix)) == 2
    assert "baseline.payload: there is no" in cli.err
    assert controller.requests == []


@pytest.mark.parametrize("words", [("plan",), ("gate", "check")])
def test_a_file_that_is_not_there_or_is_of_another_kind_is_one_line(
    cli: Cli, words: tuple[str, ...]
) -> None:
    policy = cli.folder / "policy.yaml"
    policy.write_text("apiVersion: seatrial/v1\nkind: ReleaseGate\nmetadata: {name: g}\n")
    wrong, other = (
        (policy, "is a policy (for `seatrial gate check`), not a matrix")
        if words == ("plan",)
        else (cli.matrix, "is a matrix (for `seatrial run`), not a policy")
    )
    assert cli(*words, str(wrong)) == 2
    assert cli.err.count("\n") == 1
    assert other in cli.err
    assert cli(*words, str(cli.folder / "polcy.yaml")) == 2
    assert cli.err.endswith("polcy.yaml: there is no such file; did you mean 'policy.yaml'?\n")
    assert cli(*words, str(cli.folder / "pay" / "payload.toml")) == 2
    assert "is TOML, as a payload.toml, not a" in cli.err
    assert cli.err.count("\n") == 1


@pytest.mark.parametrize("command", [("report",), ("compare", ID)])
def test_a_wrong_form_and_a_file_for_a_folder_are_refused_in_a_sentence(
    cli: Cli, command: tuple[str, ...]
) -> None:
    assert cli(*command, "--format", "pdf") == 2
    assert "'pdf' is not one of" in " ".join(cli.err.split())
    assert "Value error" not in cli.err
    afile = cli.folder / "afile"
    afile.write_text("")
    assert cli(*command, "-o", str(afile)) == 2
    assert cli.err.endswith("afile: is a file; -o names the folder to write into\n")
