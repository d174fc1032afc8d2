"""What the agent says of payloads that go wrong in every way a suite or a demo can."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.agent_machine import PAYLOADS, Evidence, Machine, command, machine_at

SUITES = (
    "failing", "erroring", "skipped", "xfail", "collection_error", "no_tests", "artifacts", "names",
)  # fmt: skip
BAD_LINES = (
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
)
HELPED = """
import seatrial_events as say
assert say.check('a', 'passed', value=1.5, unit='ms', tolerance=2)
assert say.metric('m', [1, 2.5], unit='ms', direction='lower', params={'batch': 8})
assert say.degraded('no GPU')
"""
SURROUNDINGS = """
import os

import inside


def test_surroundings(pytestconfig):
    assert not [name for name in os.environ if name.startswith(("PYTEST_ADD", "VIRTUAL_ENV"))]
    assert "SECRET_OF_THE_AGENT" not in os.environ
    assert os.environ["SEATRIAL_JOB"] == "surroundings"
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
OWN_SETTINGS = """
[pytest]
python_files = test_*.py check_*.py
disable_test_id_escaping_and_forfeit_all_rights_to_community_support = True
"""
JOBS: list[dict[str, Any]] = [
    *({"id": name, "pytest": [name]} for name in SUITES),
    {"id": "configured", "pytest": ["configured"]},
    {"id": "nowhere", "pytest": ["tests_of_nothing"]},
    {
        "id": "surroundings",
        "pytest": ["surroundings"],
        "env": {"PYTHONPATH": "src:.", "GIVEN": "by the job"},
        "path_variables": ["PYTHONPATH"],
    },
    {"id": "spread", "pytest": ["-p", "xdist", "-n", "2", "sigkill", "-k", "not killer"]},
    command("{python}", "demo_fails/demo.py"),
    command("sh", "-c", 'cat lines > "$SEATRIAL_EVENTS"', id="lines"),
    command("{python}", "helped.py", id="helped"),
]


@pytest.fixture(scope="module")
def payload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The made-up payloads, side by side."""
    folder = tmp_path_factory.mktemp("payload")
    ignore = shutil.ignore_patterns("payload.toml", "pytest.ini", "__pycache__")
    for name in (*SUITES, "sigkill", "demo_fails", "noisy"):
        shutil.copytree(PAYLOADS / name, folder / name, ignore=ignore)
    for name, text in {
        "pytest.ini": OWN_SETTINGS,
        "configured/check_it.py": "def test_it(): pass\n",
        "surroundings/test_surroundings.py": SURROUNDINGS,
        "src/inside.py": "",
        "lines": "\n".join(BAD_LINES),
        "helped.py": HELPED,
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with machine_at(tmp_path_factory.mktemp("shared") / "base") as machine:
        yield machine


@pytest.fixture(scope="module")
def ran(shared: Machine, lean: str, payload: Path) -> Evidence:
    """One attempt of all jobs, with settings and variables around it that must not leak in.

    Its cloud does not answer, and nothing of the jobs minds.
    """
    given = {"GIVEN": "by the environment", "ALSO": "by the environment"}
    folder = shared.prepare(
        payload, python=lean, environment={"variables": given}, jobs=JOBS,
        preemption="aws", metadata_url="http://127.0.0.1:9",
    )  # fmt: skip
    for above in (shared.base, shared.base / "attempts", folder):
        (above / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
        (above / "conftest.py").write_text("raise RuntimeError('a conftest above the payload')\n")
    shared.start(folder, env=HOSTILE)
    return shared.wait(folder, timeout_s=240)


def short(evidence: Evidence, job: str) -> dict[str, str]:
    """Outcomes by the last part of their name."""
    return {name.rpartition("::")[2]: word for name, word in evidence.outcomes(job).items()}


def test_phases_and_order(ran: Evidence) -> None:
    kinds = [
        (event["kind"], event["data"].get("name"))
        for event in ran.events
        if event["kind"] not in ("heartbeat", "test", "artifact", "log")
        and event["job"] in (None, "failing")
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
    assert ran.end == {"outcome": "completed", "reason": None, "detail": ""}
    assert "readiness" not in ran.of("environment")[0], "nothing was asked"
    assert set(ran.of("heartbeat")[0]) == {"job", "test", "disk_free_bytes", "load"}


def test_failing(ran: Evidence) -> None:
    assert short(ran, "failing") == {
        "test_before": "passed", "test_wrong": "failed", "test_after": "passed",
    }  # fmt: skip
    tests = list(ran.outcomes("failing"))
    assert ran.of("manifest", "failing") == [{"tests": tests, "process": 1}]
    assert tests[0] == "failing/test_failing.py::test_before"
    (wrong,) = [one for one in ran.reports("failing") if one["outcome"] == "failed"]
    assert wrong["when"] == "call"
    assert "arithmetic is wrong" in wrong["longrepr"]
    assert wrong["crash"]["lineno"] == 7
    assert wrong["crash"]["path"].endswith("test_failing.py")
    assert wrong["crash"]["message"].startswith("AssertionError: arithmetic is wrong")
    assert wrong["sections"] == [["Captured stdout call", "seen in the failing one\n"]]
    finished = ran.finished("failing")
    assert (finished["exit_code"], finished["signal"], finished["cause"]) == (1, None, None)
    assert finished["restarts"] == 0
    assert b"1 failed, 2 passed" in ran.log


def test_records_of_one_test_are_in_order_and_told_once(ran: Evidence) -> None:
    mine = [one for one in ran.of("test", "failing") if one["nodeid"].endswith("test_before")]
    assert [(one["record"], one.get("when"), one.get("sections")) for one in mine] == [
        ("start", None, None),
        ("report", "setup", []),
        ("report", "call", [["Captured stdout call", "seen before\n"]]),
        ("report", "teardown", []),
    ]


def test_erroring(ran: Evidence) -> None:
    assert short(ran, "erroring") == {
        "test_setup_error": "error",
        "test_teardown_error": "error",
        "test_fails_and_teardown_error": "error",
        "test_good": "passed",
    }
    failed = [(one["nodeid"].rpartition("::")[2], one["when"]) for one in ran.reports("erroring")
              if one["outcome"] == "failed"]  # fmt: skip
    assert failed == [
        ("test_setup_error", "setup"),
        ("test_teardown_error", "teardown"),
        ("test_fails_and_teardown_error", "call"),
        ("test_fails_and_teardown_error", "teardown"),
    ]


def test_skipped(ran: Evidence) -> None:
    assert ran.counts("skipped") == {"skipped": 3, "passed": 1}
    reasons = [one["longrepr"] for one in ran.reports("skipped") if one["outcome"] == "skipped"]
    assert [reason[2] for reason in reasons] == [
        "Skipped: no such device here",
        "Skipped: found out inside",
        "Skipped: condition holds",
    ]
    (skipped,) = [one for one in ran.of("test", "skipped") if one["record"] == "collect_skip"]
    assert (skipped["nodeid"], skipped["longrepr"]) == (
        "skipped/test_module.py",
        "Skipped: a whole module is skipped",
    )
    assert any(
        "test_module.py was skipped at collection: Skipped: a whole module" in message
        for message in ran.messages("info")
    )


def test_xfail(ran: Evidence) -> None:
    assert short(ran, "xfail") == {
        "test_xfail": "xfailed",
        "test_xpass": "xpassed",
        "test_strict_xpass": "failed",
        "test_plain": "passed",
    }
    strict = [one["nodeid"] for one in ran.reports("xfail") if one.get("strict_xpass")]
    assert strict == ["xfail/test_xfail.py::test_strict_xpass"]
    reasons = [one["wasxfail"] for one in ran.reports("xfail") if "wasxfail" in one]
    assert reasons == ["known bug", "thought to be broken"]


def test_names(ran: Evidence) -> None:
    (manifest,) = ran.of("manifest", "names")
    tests = manifest["tests"]
    assert len(tests) == len(set(tests)) == 16 + 16 + 200 + 1
    assert ran.outcomes("names") == dict.fromkeys(tests, "passed")
    assert list(ran.outcomes("names")) == tests
    text = "\n".join(tests)
    for part in ("emoji 🚢", "a|b", "brackets[0][1]", "new\nline", "<script>", "TestGrüße"):
        assert part in text
    assert ran.finished("names")["exit_code"] == 0


def test_collection_error(ran: Evidence) -> None:
    records = ran.of("test", "collection_error")
    (error,) = [one for one in records if one["record"] == "collect_error"]
    assert error["record"] == "collect_error"
    assert error["nodeid"] == "collection_error/test_broken.py"
    assert "No module named 'a_module_that_does_not_exist'" in error["longrepr"]
    assert ran.finished("collection_error")["exit_code"] == 2
    assert ran.reports("collection_error") == []


def test_no_tests(ran: Evidence) -> None:
    assert ran.of("manifest", "no_tests") == [{"tests": [], "process": 1}]
    finished = ran.finished("no_tests")
    assert (finished["exit_code"], finished["cause"]) == (5, None)


def test_what_pytest_refused_is_told(ran: Evidence) -> None:
    finished = ran.finished("nowhere")
    assert (finished["exit_code"], finished["cause"]) == (4, None)
    assert finished["detail"] == "exit code 4: file or directory not found: tests_of_nothing"


def test_demo_that_fails(ran: Evidence) -> None:
    assert ran.finished("demo")["exit_code"] == 3
    assert ran.of("check", "demo") == [
        {"check": "adds", "outcome": "passed", "value": 4, "tolerance": 0, "unit": "1"},
        {"check": "converges", "outcome": "failed", "value": 0.5, "reason": "loss went up"},
        {"degraded": "fell back to the CPU"},
    ]
    assert ran.of("metric", "demo") == [
        {"metric": "step", "samples": [1.5, 1.25], "unit": "ms", "direction": "lower", "params": {}}
    ]
    assert b"demo: 1 of 2 checks failed\n" in ran.log


def test_bad_lines_are_named_and_left_out_and_fail_a_check(ran: Evidence) -> None:
    *good, unusable = ran.of("check", "lines")
    assert [check["check"] for check in good] == ["good", "also good"]
    assert (unusable["check"], unusable["outcome"]) == ("unusable-events", "failed")
    assert unusable["reason"].startswith("line 2 of $SEATRIAL_EVENTS is left out: ")
    assert ran.of("metric", "lines") == []
    warnings = [one["message"] for one in ran.of("log", "lines") if one["level"] == "warning"]
    assert [int(text.split()[1]) for text in warnings] == [2, 3, 4, 5, 6, 7, 8, 10]
    assert ran.finished("lines")["exit_code"] == 0


def test_helper_module(ran: Evidence) -> None:
    assert ran.finished("helped")["exit_code"] == 0
    assert ran.of("check", "helped") == [
        {"check": "a", "outcome": "passed", "value": 1.5, "tolerance": 2, "unit": "ms"},
        {"degraded": "no GPU"},
    ]
    assert ran.of("metric", "helped")[0]["params"] == {"batch": 8}


def test_artifacts(ran: Evidence, shared: Machine) -> None:
    announced = {one["name"]: one for one in ran.of("artifact")}
    files = shared.bundle(shared.attempts[0])
    assert sorted(files) == sorted(announced)
    assert {name for name in files if name.startswith(("artifacts.", "environment"))} == {
        "artifacts.deep-er-trace_1.txt",
        "artifacts.result.json",
        "artifacts.txt",
        "environment.json",
    }
    assert files["artifacts.result.json"] == b'{"answer": 42}'
    assert announced["artifacts.result.json"]["size_bytes"] == 14
    assert json.loads(files["environment.json"])["packages"]["pytest"]
    refused = [text for text in ran.messages("warning") if "is not kept" in text]
    assert len(refused) == 3
    (call,) = [one for one in ran.reports("artifacts") if one["when"] == "call"]
    assert call["user_properties"] == [["speed", 12.5], ["odd", "nan"]]


def test_neither_settings_nor_variables_of_the_surroundings_leak_in(ran: Evidence) -> None:
    assert short(ran, "surroundings") == {"test_surroundings": "passed"}, ran.log.decode()


def test_own_configuration_is_used(ran: Evidence) -> None:
    assert ran.outcomes("configured") == {"configured/check_it.py::test_it": "passed"}


def test_under_xdist(ran: Evidence) -> None:
    """The payload's own use of pytest-xdist: one manifest in order, every test reported once."""
    (manifest,) = ran.of("manifest", "spread")
    module = "sigkill/test_sigkill.py"
    assert manifest["tests"] == [
        *(f"{module}::test_before[{n}]" for n in range(3)),
        *(f"{module}::test_after[{n}]" for n in range(4)),
    ]
    assert ran.counts("spread") == {"passed": 7}
    assert len(ran.reports("spread")) == 21


def test_metadata_that_does_not_answer_is_said_once(ran: Evidence) -> None:
    (said,) = [text for text in ran.messages("warning") if "metadata" in text]
    assert said.startswith("the machine's metadata does not answer (URLError: ")


LIMIT = 2**20


@pytest.fixture(scope="module")
def again(shared: Machine, lean: str, payload: Path, ran: Evidence) -> Evidence:
    """A later attempt, for what the first one left."""
    (manifest,) = ran.of("manifest", "names")
    left = [manifest["tests"][n] for n in (3, 20, -1)]
    skip = [test for test in manifest["tests"] if test not in left]
    return shared.run(
        payload,
        python=lean,
        limits={"log_bytes": LIMIT, "text_bytes": 4096},
        jobs=[
            {"id": "names", "pytest": ["names"], "skip": skip},
            {"id": "failing", "pytest": ["failing"], "skip": list(ran.outcomes("failing"))},
            {"id": "noisy", "pytest": ["noisy"], "env": {"NOISY_MB": "4"}},
        ],
    )


def test_skip_list_of_strange_names(ran: Evidence, again: Evidence) -> None:
    assert again.of("manifest", "names") == ran.of("manifest", "names")
    tests = again.of("manifest", "names")[0]["tests"]
    assert list(again.outcomes("names")) == [tests[3], tests[20], tests[-1]]


def test_everything_has_its_result_already(ran: Evidence, again: Evidence) -> None:
    assert again.of("manifest", "failing") == ran.of("manifest", "failing")
    assert again.reports("failing") == []
    assert again.finished("failing")["exit_code"] == 0


def test_noisy(shared: Machine, again: Evidence) -> None:
    assert again.counts("noisy") == {"passed": 3}
    cut = [message for message in again.messages("warning") if "passed 1048576 bytes" in message]
    assert len(cut) == 1
    log = again.log[again.log.index(b"===== seatrial: noisy (suite)") :]
    assert LIMIT < len(log) < LIMIT + 80_000
    assert log.count(b"===== seatrial: output of noisy passed") == 1
    assert log.rstrip().endswith(b"=====")
    assert b"3 passed in" in log[-500:]
    (call,) = [one for one in again.reports("noisy") if one["when"] == "call"
               and "captured" in one["nodeid"] and one["sections"]]  # fmt: skip
    (section,) = call["sections"]
    assert len(section[1].encode()) <= 4096
    assert "bytes left out" in section[1]
    assert LIMIT < len(shared.bundle(shared.attempts[1])["noisy.txt"]) < LIMIT + 80_000


def test_payloads_are_described() -> None:
    """Every made-up payload has a manifest that names a job."""
    folders = [path for path in PAYLOADS.iterdir() if path.is_dir() and path.name[0] not in "_."]
    assert len(folders) >= 12
    for folder in folders:
        manifest = tomllib.loads((folder / "payload.toml").read_text())
        assert manifest["name"] == folder.name
        assert manifest["job"]
