"""`failures`, and the logs of single jobs and tests, against a controller of the tests' own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.cli import in_process, runs
from tests.unit.cli.fake_controller import Answer, FakeController
from tests.unit.cli.in_process import ID, SHOWN, Cli

cli, controller = in_process.cli, in_process.controller  # the fixtures
SINKS = "tests/test_hull.py::test_sinks[a b]"
TRACEBACK = "def test_sinks():\n>   assert 1 == 2\nE   assert 1 == 2\n"


@pytest.fixture(autouse=True)
def failed(controller: FakeController) -> None:
    """A test fails on two cells, a job crashes on one of them, a third has no machine."""
    suite = runs.job(
        "hull", outcome="failed", reason="tests", counts=runs.counts(passed=3, failed=1)
    )
    crash = runs.job("demo", outcome="failed", reason="crashed", detail="SIGSEGV")
    output = {"name": "demo.txt", "size_bytes": 5, "digest": "d" * 64}
    bad = {"outcome": "failed", "reason": "tests"}
    here = runs.cell("cpu", "done", jobs=[suite, crash], artifacts=[output], **bad)
    there = runs.cell("gpu", "done", jobs=[suite, runs.passed("boot")], **bad)
    lost = runs.cell("tpu", "done", outcome="errored", reason="ssh", detail="refused")
    controller.shown = runs.run(here, there, lost, state="finished", outcome="failed")
    test: dict[str, Any] = {"job": "hull", "nodeid": SINKS, "outcome": "failed"}
    test |= {"message": "assert 1 == 2\nmore", "text": TRACEBACK}
    controller.tests = [test]
    path = f"{SHOWN}/cells/cpu/artifacts/demo.txt"
    controller.answers["GET", path] = Answer(200, b"boom\n", "text/plain")


def test_each_failure_has_its_place_its_error_and_the_command_for_its_log(cli: Cli) -> None:
    assert cli("failures") == 0
    assert cli.out.splitlines() == [
        f"✗ hull {SINKS}  failed on cpu, gpu",
        "    assert 1 == 2",
        f"    seatrial logs {ID} --job hull --test '{SINKS}' --cell cpu",
        "✗ demo  failed on cpu",
        "    SIGSEGV",
        f"    seatrial logs {ID} --job demo --cell cpu",
        "! the cell  errored on tpu",
        "    ssh: refused",
        f"    seatrial logs {ID} --cell tpu",
    ]
    assert cli("failures", ID, "--cell", "tpu", "--json") == 0
    (one,) = json.loads(cli.out)
    assert (one["job"], one["test"], one["cells"], one["error"]) == (
        "",
        "",
        ["tpu"],
        "ssh: refused",
    )
    assert cli("failures", ID, "--cell", "gpu", "--json") == 0
    (one,) = json.loads(cli.out)
    assert one["cells"] == ["gpu"]
    assert one["log"].endswith("--cell gpu")


def test_a_run_without_failures_says_so(cli: Cli, controller: FakeController) -> None:
    controller.shown = runs.run(runs.cell("cpu", "running"))
    assert cli("failures") == 0
    assert (cli.out, cli.err) == ("", f"Nothing failed in run {ID} so far.\n")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--job", "demo"], "===== cpu demo =====\nboom\n"),
        (
            ["--test", "test_sinks", "--cell", "gpu", "--failed"],
            f"===== gpu hull: {SINKS} failed =====\n{TRACEBACK}",
        ),
        (
            ["--failed", "--cell", "cpu"],
            f"===== cpu hull: {SINKS} failed =====\n{TRACEBACK}===== cpu demo =====\nboom\n",
        ),
    ],
    ids=["job", "test", "failed"],
)
def test_logs_of_a_job_a_test_or_all_that_failed(cli: Cli, options: list[str], said: str) -> None:
    assert cli("logs", ID, *options) == 0
    assert cli.out == said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--job", "hul"], f"run {ID} has no job 'hul'; did you mean 'hull'?"),
        (["--job", "hull"], f"run {ID} has no output of job 'hull'; "),
        (
            ["--failed", "--job", "boot", "--cell", "gpu"],
            f"run {ID} has no failure of job 'boot' in cell 'gpu'",
        ),
        (["--test", "nothing", "--failed"], f"run {ID} has no test 'nothing'; "),
        (["--follow", "--failed"], "--follow prints whole logs"),
    ],
)
def test_what_is_not_there_is_named(cli: Cli, options: list[str], said: str) -> None:
    assert cli("logs", ID, *options) == 2
    assert cli.out == ""
    assert cli.err.startswith(said)


@pytest.mark.parametrize(
    ("options", "out"),
    [
        (["--job", "demo"], "===== cpu demo =====\n"),
        (["--failed", "--cell", "cpu"], f"===== cpu hull: {SINKS} failed =====\n{TRACEBACK}"),
        (["--cell", "cpu"], ""),
        ([], "[gpu] what the others said\n"),
    ],
    ids=["job", "failed", "cell", "run"],
)
def test_what_was_pruned_is_said_after_all_that_is_left(
    cli: Cli, controller: FakeController, options: list[str], out: str
) -> None:
    said = f"the log of run {ID} was pruned at 2027-04-05 12:00 UTC: kept for 180 days (X)"
    gone = Answer.problem(410, said)
    for path in ("log", "artifacts/demo.txt"):
        controller.answers["GET", f"{SHOWN}/cells/cpu/{path}"] = gone
    controller.log = b"what the others said\n"
    assert cli("logs", ID, *options) == 2
    assert cli.out.startswith(out)
    assert cli.err.count(said) == 1


@pytest.mark.parametrize(
    ("log", "shown"),
    [
        (b"ssh: caf\xc3\xa9 refused", "ssh: café refused\n"),
        (b"", "nothing is stored of cell tpu (errored: no machine was reached: ssh: refused)\n"),
    ],
    ids=["log", "no log"],
)
def test_a_cell_that_failed_before_its_jobs_has_its_whole_log(
    cli: Cli, controller: FakeController, log: bytes, shown: str
) -> None:
    controller.log = log
    assert cli("logs", ID, "--failed", "--cell", "tpu") == 0
    assert cli.out == f"===== tpu =====\n{shown}"


def test_a_log_without_a_line_says_why(cli: Cli, controller: FakeController) -> None:
    reached = [{"at": runs.at(1), "attempt": 1, "from_state": "booting", "to_state": "preparing"}]
    silent = runs.cell("cpu", "done", outcome="passed", transitions=reached)
    lost = runs.cell("tpu", "done", outcome="errored", reason="ssh", detail="refused")
    waiting = runs.cell("gpu", "queued")
    controller.shown = runs.run(silent, lost, waiting)
    controller.log = b""
    assert cli("logs", ID) == 0
    assert (cli.out, cli.err.splitlines()) == (
        "",
        [
            "nothing is stored of cell cpu (passed)",
            "nothing is stored of cell tpu (errored: no machine was reached: ssh: refused)",
            "nothing is stored of cell gpu so far (queued)",
        ],
    )


def test_a_failing_job_without_its_output_is_named_with_the_command_that_there_is(
    cli: Cli, controller: FakeController
) -> None:
    lost = runs.job("demo", outcome="errored", reason="lost", detail="it was preempted")
    controller.shown = runs.run(runs.cell("cpu", "running", jobs=[lost]))
    assert cli("logs", ID, "--failed") == 0
    assert "nothing is stored of job demo of cell cpu (errored: lost: it was preempted)" in cli.out
    assert cli("failures") == 0
    assert cli.out.splitlines()[-1] == f"    seatrial logs {ID}"
