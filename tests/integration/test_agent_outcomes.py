"""What the agent says of payloads that go wrong in every way a suite or a demo can."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.agent_machine import (
    PAYLOADS,
    Evidence,
    Machine,
    command,
    lean_python,
    machine_at,
)


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    return lean_python(tmp_path_factory.mktemp("lean") / "venv")


@pytest.fixture
def machine(tmp_path):
    with machine_at(tmp_path / "base") as machine:
        yield machine


@pytest.fixture(scope="module")
def failing(tmp_path_factory, python):
    with machine_at(tmp_path_factory.mktemp("failing") / "base") as machine:
        yield machine.run("failing", python=python)


def test_phases_and_order(failing: Evidence) -> None:
    evidence = failing
    kinds = [
        (event["kind"], event["data"].get("name"))
        for event in evidence.events
        if event["kind"] not in ("heartbeat", "test", "artifact", "log")
    ]
    assert kinds == [
        ("phase", "preparing"),
        ("environment", None),
        ("phase", "running"),
        ("phase", "started"),
        ("manifest", None),
        ("phase", "finished"),
        ("phase", "packing"),
        ("end", None),
    ]
    assert evidence.end == {"outcome": "completed", "reason": None, "detail": ""}
    assert len(evidence.of("heartbeat")) >= 1
    heartbeat = evidence.of("heartbeat")[0]
    assert set(heartbeat) == {"job", "test", "disk_free_bytes", "load"}


def test_failing(failing: Evidence) -> None:
    evidence = failing
    assert evidence.outcomes() == {
        "test_failing.py::test_before": "passed",
        "test_failing.py::test_wrong": "failed",
        "test_failing.py::test_after": "passed",
    }
    assert evidence.of("manifest") == [{"tests": list(evidence.outcomes()), "process": 1}]
    (wrong,) = [one for one in evidence.reports() if one["outcome"] == "failed"]
    assert wrong["when"] == "call"
    assert "arithmetic is wrong" in wrong["longrepr"]
    assert wrong["crash"]["lineno"] == 7
    assert wrong["crash"]["path"].endswith("test_failing.py")
    assert wrong["crash"]["message"].startswith("AssertionError: arithmetic is wrong")
    assert wrong["sections"] == [["Captured stdout call", "seen in the failing one\n"]]
    finished = evidence.finished()
    assert (finished["exit_code"], finished["signal"], finished["cause"]) == (1, None, None)
    assert finished["restarts"] == 0
    assert b"1 failed, 2 passed" in evidence.log


def test_records_of_one_test_are_in_order_and_told_once(failing: Evidence) -> None:
    evidence = failing
    mine = [one for one in evidence.of("test") if one["nodeid"].endswith("test_before")]
    assert [(one["record"], one.get("when")) for one in mine] == [
        ("start", None),
        ("report", "setup"),
        ("report", "call"),
        ("report", "teardown"),
    ]
    assert [one.get("sections") for one in mine[1:]] == [
        [],
        [["Captured stdout call", "seen before\n"]],
        [],
    ]


def test_erroring(machine: Machine, python: str) -> None:
    evidence = machine.run("erroring", python=python)
    assert evidence.outcomes() == {
        "test_erroring.py::test_setup_error": "error",
        "test_erroring.py::test_teardown_error": "error",
        "test_erroring.py::test_fails_and_teardown_error": "error",
        "test_erroring.py::test_good": "passed",
    }
    failed = [(one["nodeid"].rpartition("::")[2], one["when"]) for one in evidence.reports()
              if one["outcome"] == "failed"]  # fmt: skip
    assert failed == [
        ("test_setup_error", "setup"),
        ("test_teardown_error", "teardown"),
        ("test_fails_and_teardown_error", "call"),
        ("test_fails_and_teardown_error", "teardown"),
    ]


def test_skipped(machine: Machine, python: str) -> None:
    evidence = machine.run("skipped", python=python)
    assert evidence.counts() == {"skipped": 3, "passed": 1}
    reasons = [one["longrepr"] for one in evidence.reports() if one["outcome"] == "skipped"]
    assert [reason[2] for reason in reasons] == [
        "Skipped: no such device here",
        "Skipped: found out inside",
        "Skipped: condition holds",
    ]
    (skipped,) = [one for one in evidence.of("test") if one["record"] == "collect_skip"]
    assert (skipped["nodeid"], skipped["longrepr"]) == (
        "test_module.py",
        "Skipped: a whole module is skipped",
    )
    assert any(
        "test_module.py was skipped at collection: Skipped: a whole module" in message
        for message in evidence.messages("info")
    )


def test_xfail(machine: Machine, python: str) -> None:
    evidence = machine.run("xfail", python=python)
    assert evidence.outcomes() == {
        "test_xfail.py::test_xfail": "xfailed",
        "test_xfail.py::test_xpass": "xpassed",
        "test_xfail.py::test_strict_xpass": "failed",
        "test_xfail.py::test_plain": "passed",
    }
    strict = [one["nodeid"] for one in evidence.reports() if one.get("strict_xpass")]
    assert strict == ["test_xfail.py::test_strict_xpass"]
    reasons = [one["wasxfail"] for one in evidence.reports() if "wasxfail" in one]
    assert reasons == ["known bug", "thought to be broken"]


@pytest.fixture(scope="module")
def names(tmp_path_factory, python):
    with machine_at(tmp_path_factory.mktemp("names") / "base") as machine:
        yield machine.run("names", python=python)


def test_names(names: Evidence) -> None:
    evidence = names
    tests = evidence.of("manifest")[0]["tests"]
    assert len(tests) == len(set(tests)) == 16 + 16 + 2_000 + 1
    assert evidence.counts() == {"passed": len(tests)}
    assert list(evidence.outcomes()) == tests
    text = "\n".join(tests)
    for part in ("emoji 🚢", "a|b", "brackets[0][1]", "new\nline", "<script>", "TestGrüße"):
        assert part in text
    assert evidence.finished()["exit_code"] == 0


def test_skip_list_of_strange_names(machine: Machine, python: str, names: Evidence) -> None:
    tests = names.of("manifest")[0]["tests"]
    left = [tests[3], tests[20], tests[-1]]
    skip = [test for test in tests if test not in left]
    second = machine.run("names", python=python, jobs=[{"skip": skip}])
    assert second.of("manifest")[0]["tests"] == tests
    assert list(second.outcomes()) == left


def test_everything_has_its_result_already(
    machine: Machine, python: str, failing: Evidence
) -> None:
    tests = list(failing.outcomes())
    evidence = machine.run("failing", python=python, jobs=[{"skip": tests}])
    assert evidence.of("manifest")[0]["tests"] == tests
    assert evidence.reports() == []
    assert evidence.finished()["exit_code"] == 0


def test_collection_error(machine: Machine, python: str) -> None:
    evidence = machine.run("collection_error", python=python)
    (error,) = [one for one in evidence.of("test") if one["record"] == "collect_error"]
    assert error["nodeid"] == "test_broken.py"
    assert "No module named 'a_module_that_does_not_exist'" in error["longrepr"]
    assert evidence.finished()["exit_code"] == 2
    assert evidence.reports() == []


def test_no_tests(machine: Machine, python: str) -> None:
    evidence = machine.run("no_tests", python=python)
    assert evidence.of("manifest") == [{"tests": [], "process": 1}]
    assert evidence.finished()["exit_code"] == 5
    assert evidence.finished()["cause"] is None


def test_noisy(machine: Machine, python: str) -> None:
    limit = 2**20
    evidence = machine.run(
        "noisy",
        python=python,
        jobs=[{"env": {"NOISY_MB": "16"}}],
        limits={"log_bytes": limit, "text_bytes": 4096},
    )
    assert evidence.counts() == {"passed": 3}
    cut = [message for message in evidence.messages("warning") if "passed 1048576 bytes" in message]
    assert len(cut) == 1
    assert limit < len(evidence.log) < limit + 80_000
    assert evidence.log.count(b"===== seatrial: output of suite passed") == 1
    assert evidence.log.rstrip().endswith(b"=====")
    assert b"3 passed in" in evidence.log[-500:]
    (call,) = [one for one in evidence.reports() if one["when"] == "call"
               and "captured" in one["nodeid"] and one["sections"]]  # fmt: skip
    (section,) = call["sections"]
    assert len(section[1].encode()) <= 4096
    assert "bytes left out" in section[1]
    artifact = machine.bundle(machine.attempts[0])["suite.txt"]
    assert limit < len(artifact) < limit + 80_000


def test_demo_that_fails(machine: Machine, python: str) -> None:
    evidence = machine.run("demo_fails", python=python, jobs=[command("{python}", "demo.py")])
    assert evidence.finished("demo")["exit_code"] == 3
    assert evidence.of("check", "demo") == [
        {"check": "adds", "outcome": "passed", "value": 4, "tolerance": 0, "unit": "1"},
        {"check": "converges", "outcome": "failed", "value": 0.5, "reason": "loss went up"},
        {"degraded": "fell back to the CPU"},
    ]
    assert evidence.of("metric", "demo") == [
        {"metric": "step", "samples": [1.5, 1.25], "unit": "ms", "direction": "lower", "params": {}}
    ]
    assert b"demo: 1 of 2 checks failed\n" in evidence.log


def test_bad_lines_are_named_and_left_out(machine: Machine, python: str, tmp_path: Path) -> None:
    payload = tmp_path / "payload"
    payload.mkdir()
    lines = [
        '{"check": "good", "outcome": "passed"}',
        "no json",
        '{"check": "nan", "outcome": "passed", "value": NaN}',
        '{"check": "bool", "outcome": true}',
        '{"metric": "m", "samples": [1, "2"], "unit": "s", "direction": "lower"}',
        '{"metric": "m", "samples": [1e999], "unit": "s", "direction": "lower"}',
        "[1, 2]",
        "[" * 100_000,
        '{"check": "also good", "outcome": "skipped", "reason": "later"}',
        '{"check": "torn", "outco',
    ]
    (payload / "lines").write_text("\n".join(lines))
    job = command("sh", "-c", 'cat lines > "$SEATRIAL_EVENTS"')
    evidence = machine.run(payload, python=python, jobs=[job])
    assert [check["check"] for check in evidence.of("check")] == ["good", "also good"]
    assert evidence.of("metric") == []
    numbers = [int(message.split()[1]) for message in evidence.messages("warning")]
    assert numbers == [2, 3, 4, 5, 6, 7, 8, 10]
    assert evidence.finished("demo")["exit_code"] == 0


def test_helper_module(machine: Machine, python: str, tmp_path: Path) -> None:
    payload = tmp_path / "payload"
    payload.mkdir()
    (payload / "demo.py").write_text(
        "import seatrial_events as say\n"
        "assert say.check('a', 'passed', value=1.5, unit='ms', tolerance=2)\n"
        "assert say.metric('m', [1, 2.5], unit='ms', direction='lower', params={'batch': 8})\n"
        "assert say.degraded('no GPU')\n"
    )
    evidence = machine.run(payload, python=python, jobs=[command("{python}", "demo.py")])
    assert evidence.finished("demo")["exit_code"] == 0
    assert evidence.of("check") == [
        {"check": "a", "outcome": "passed", "value": 1.5, "tolerance": 2, "unit": "ms"},
        {"degraded": "no GPU"},
    ]
    assert evidence.of("metric")[0]["params"] == {"batch": 8}


def test_artifacts(machine: Machine, python: str) -> None:
    evidence = machine.run("artifacts", python=python)
    announced = {one["name"]: one for one in evidence.of("artifact")}
    files = machine.bundle(machine.attempts[0])
    assert sorted(files) == sorted(announced)
    assert sorted(files) == [
        "environment.json",
        "suite.deep-er-trace_1.txt",
        "suite.result.json",
        "suite.txt",
    ]
    assert files["suite.result.json"] == b'{"answer": 42}'
    assert announced["suite.result.json"]["size_bytes"] == 14
    assert json.loads(files["environment.json"])["packages"]["pytest"]
    refused = [text for text in evidence.messages("warning") if "is not kept" in text]
    assert len(refused) == 3
    (call,) = [one for one in evidence.reports() if one["when"] == "call"]
    assert call["user_properties"] == [["speed", 12.5], ["odd", "nan"]]


SURROUNDINGS = """
import os

import inside


def test_surroundings(pytestconfig):
    assert not [name for name in os.environ if name.startswith(("PYTEST_ADD", "VIRTUAL_ENV"))]
    assert "SECRET_OF_THE_AGENT" not in os.environ
    assert os.environ["SEATRIAL_JOB"] == "suite"
    assert os.environ["GIVEN"] == "by the job"
    assert os.environ["ALSO"] == "by the environment"
    assert os.getcwd() == str(pytestconfig.rootpath)
    assert os.path.isdir(os.environ["TMPDIR"]) and len(os.environ["TMPDIR"]) <= 60
    path = os.environ["PYTHONPATH"].split(":")
    assert path[:2] == [os.path.join(os.getcwd(), "src"), os.getcwd()]
    assert path[-1].endswith("on_path")
"""
HOSTILE = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/root",
    "PYTEST_ADDOPTS": "--no-such-option",
    "PYTHONPATH": "/nowhere",
    "VIRTUAL_ENV": "/nowhere",
    "SECRET_OF_THE_AGENT": "x",
}


def test_surroundings_do_not_leak_in(machine: Machine, python: str, tmp_path: Path) -> None:
    """Neither configuration nor conftest above the payload, nor the agent's environment."""
    payload = tmp_path / "payload"
    (payload / "src").mkdir(parents=True)
    (payload / "src" / "inside.py").write_text("")
    (payload / "test_surroundings.py").write_text(SURROUNDINGS)
    given = {"GIVEN": "by the environment", "ALSO": "by the environment"}
    job = {
        "env": {"PYTHONPATH": "src:.", "GIVEN": "by the job"},
        "path_variables": ["PYTHONPATH"],
    }
    folder = machine.prepare(payload, python=python, environment={"variables": given}, jobs=[job])
    for above in (machine.base, machine.base / "attempts", folder):
        (above / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
        (above / "conftest.py").write_text("raise RuntimeError('a conftest above the payload')\n")
    machine.start(folder, env=HOSTILE)
    evidence = machine.wait(folder)
    assert evidence.counts() == {"passed": 1}, evidence.log.decode()


@pytest.mark.parametrize("name", ["pyproject.toml", "setup.cfg"])
def test_own_configuration_is_used(
    machine: Machine, python: str, tmp_path: Path, name: str
) -> None:
    headers = {"pyproject.toml": "tool.pytest.ini_options", "setup.cfg": "tool:pytest"}
    text = (
        'python_files = "check_*.py"' if name == "pyproject.toml" else "python_files = check_*.py"
    )
    payload = tmp_path / "payload"
    payload.mkdir()
    (payload / name).write_text(f"[{headers[name]}]\n{text}\n")
    (payload / "check_it.py").write_text("def test_it(): pass\n")
    evidence = machine.run(payload, python=python)
    assert evidence.outcomes() == {"check_it.py::test_it": "passed"}


def test_under_xdist(machine: Machine, python: str) -> None:
    """The payload's own use of pytest-xdist: same manifest, every test reported once."""
    args = ["-p", "xdist", "-n", "2", "."]
    plain = machine.run("sigkill", python=python, jobs=[{"pytest": ["-k", "not killer", "."]}])
    spread = machine.run("sigkill", python=python, jobs=[{"pytest": [*args, "-k", "not killer"]}])
    assert len(spread.of("manifest")) == 1
    assert spread.of("manifest")[0]["tests"] == plain.of("manifest")[0]["tests"]
    assert spread.counts() == {"passed": 7}
    assert len(spread.reports()) == 21


def test_payloads_are_described() -> None:
    """Every made-up payload has a manifest that names a job."""
    import tomllib

    folders = [path for path in PAYLOADS.iterdir() if path.is_dir() and path.name[0] not in "_."]
    assert len(folders) >= 12
    for folder in folders:
        manifest = tomllib.loads((folder / "payload.toml").read_text())
        assert manifest["name"] == folder.name
        assert manifest["job"]
