"""What the programs around pytest say below its log: that a step failed."""

from __future__ import annotations

import pytest

from orchestrator.adapters.result_parsers.pytest_text import PytestText
from orchestrator.domain.parsed_results import ParsedProblem
from tests.unit.result_parsers.pytest_logs import bar, told, written


def read(folder, text):
    return told(PytestText(), written(folder, text))


GREEN = bar("test session starts") + "\nt/test_a.py .  [100%]\n" + bar("1 passed in 0.01s") + "\n"
STAMP = "2026-03-01T10:00:00.1234567Z "


BROKEN_STEPS = [
    "npm ERR! Test failed.  See above for more details.",
    "npm error Lifecycle script `test` failed with error:",
    "error Command failed with exit code 1.",
    'error Command failed with signal "SIGKILL".',
    "ELIFECYCLE\u2009 Command failed with exit code 1.",
    "Too long with no output (exceeded 10m0s): context deadline exceeded",
    "Done. Your build exited with 1.",
    "Error: The operation was canceled.",
    "Error: The runner has received a shutdown signal.",
    "The job running on runner r 2 has exceeded the maximum execution time of 6 minutes.",
    "Error: The action 'Test' has timed out after 5 minutes.",
    "Bash exited with code '1'.",
    "slurmstepd: error: *** JOB 123 ON n1 CANCELLED AT 2026-11-29T10:00:00 DUE TO TIME LIMIT ***",
    "slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 2026-11-29T10:00:00 DUE TO PREEMPTION ***",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=1.batch.",
    "slurmstepd-n1: error: Detected 2 oom-kill event(s) in step 1.batch cgroup.",
    "srun: error: n1: task 0: Exited with exit code 1",
    "srun: error: n1: tasks 0-3: Killed",
    "srun: error: n1: task 2: Segmentation fault (core dumped)",
    "mpirun noticed that process rank 0 with PID 1 on node n1 exited on signal 11 (Segmentation",
    "mpiexec detected that one or more processes exited with non-zero status, thus causing",
    "MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD",
    "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
    "//pkg:test                                                FAILED in 3.1s",
    "//pkg:test                                                TIMEOUT in 300.1s",
    "//pkg/sub:test (cached) NO STATUS",
    "ERROR: Build did NOT complete successfully",
    "Executed 1 out of 1 test: 1 fails locally.",
    "BUILD FAILED in 1m 3s",
    "BUILD FAILED",
    "> Task :app:test FAILED",
    "ninja: build stopped: subcommand failed.",
    "Error: command exited with code 2",
    "error: Recipe `test` failed on line 3 with exit code 1",
    "error: Recipe `test` was terminated on line 3 by signal 9",
    'task: Failed to run task "test": exit status 1',
    "command terminated with exit code 137",
    "client_loop: send disconnect: Broken pipe",
    "test-1 exited with code 1",
    "srun: error: node1: task 0: Segmentation fault",
    "pytest exited with code 139",
    "python -m pytest exited with status 1",
    "Command failed with exit code 2: pytest",
    "terminate called after throwing an instance of 'std::runtime_error'",
    "Out of memory: Killed process 123 (python)",
    "[12345.678] Out of memory: Killed process 123 (python)",
    "Memory cgroup out of memory: Killed process 123 (python) total-vm:1kB",
    "==1==ERROR: AddressSanitizer: heap-use-after-free on address 0x602",
    "==1==ERROR: LeakSanitizer: detected memory leaks",
    "WARNING: ThreadSanitizer: data race (pid=1)",
    "SUMMARY: UndefinedBehaviorSanitizer: undefined-behavior a.c:1",
    "========= ERROR SUMMARY: 3 errors",
    "==123== ERROR SUMMARY: 12 errors from 3 contexts (suppressed: 0 from 0)",
]
"""Messages of the program that started a failed step, or of a program above it."""


@pytest.mark.parametrize("line", BROKEN_STEPS)
def test_what_a_test_is_called_or_prints_is_no_step_that_failed(tmp_path, line):
    starts, ends = bar("test session starts"), bar("1 passed in 0.01s")
    named = f"t/test_a.py::test[{line}] PASSED [100%]"
    printed = f"t/test_a.py::test\n{line}\nPASSED"
    captured = (
        f"t/test_a.py .  [100%]\n{bar('PASSES')}\n{bar('test', '_')}\n"
        f"{bar('Captured stdout call', '-')}\n{line}"
    )
    sessions = [f"{starts}\n{body}\n{ends}\n" for body in (named, printed, captured)]
    for log in (f"{line}\n{GREEN}", *sessions):
        said = read(tmp_path, log)
        assert (said.end.exit_code, said.end.detail) == (0, "")
        assert not said.problems


@pytest.mark.parametrize(
    "line",
    [
        "make: *** [Makefile:3: test] Error 1",
        "make[2]: *** Waiting for unfinished jobs....",
        f"{STAMP}##[error]Process completed with exit code 1.",
        "Error: Process completed with exit code 2.",
        "::error file=a.py,line=1::it is wrong",
        "ERROR: Job failed: exit code 1",
        "FAIL Required test coverage of 80% not reached. Total coverage: 50.00%",
        "ERROR: Coverage failure: total of 50 is less than fail-under=80",
        "Finished: FAILURE",
        "ERROR: script returned exit code 1",
        "Exited with code exit status 1",
        'The command "pytest" exited with 1.',
        "py311: FAIL code 1 (0.10 seconds)",
        "evaluation failed :( (0.15 seconds)",
        "nox > Session tests failed.",
        "npm ERR! errno 1",
        "npm ERR! code ELIFECYCLE",
        "🚨 Error: The command exited with status 1",
        'ERROR: process "/bin/sh -c pytest" did not complete successfully: exit code: 1',
        "Process completed with exit code 1.",
        "exit status 1",
        "exit code: 1",
        "Exit code 137",
        "exit_code=2",
        "EXIT: 1",
        "rc=1",
        "rc: 2",
        "return code: 1",
        "returncode=1",
        "pytest exit code: 1",
        "Tests finished with exit code 1",
        "Process finished with exit code 1",
        "Process finished with exit code -1073741819 (0xC0000005)",
        "+ exit 1",
        "CalledProcessError: Command 'pytest' returned non-zero exit status 1.",
        "subprocess.CalledProcessError: Command '['x', '-m']' returned non-zero exit status 2.",
        "subprocess.CalledProcessError: Command 'pytest' died with <Signals.SIGSEGV: 11>.",
        "FAILED (failures=1)",
        "[FAIL] scale",
        "test result: FAILED. 1 passed; 1 failed; 0 ignored",
        *BROKEN_STEPS,
    ],
)
def test_a_step_that_failed_below_a_green_session_is_no_good_end(tmp_path, line):
    said = read(tmp_path, GREEN + line + "\n")
    assert said.end.exit_code == 1
    assert said.end.detail == line.removeprefix(STAMP)
    assert f"a step failed: {line.removeprefix(STAMP)}" in said.messages


RED = (
    bar("test session starts")
    + "\nt/test_a.py F  [100%]\n"
    + f"{bar('short test summary info')}\nFAILED t/test_a.py::test_a - assert 0\n"
    + bar("1 failed in 0.01s")
    + "\n"
)


@pytest.mark.parametrize(
    "line",
    [
        f"{STAMP}##[error]Process completed with exit code 1.",
        "make: *** [Makefile:3: test] Error 1",
        "Finished: FAILURE",
        "ERROR: Job failed: exit code 1",
        "::error file=t/test_a.py,line=1::assert 0",
    ],
)
def test_failed_tests_explain_the_step_that_failed(tmp_path, line):
    said = read(tmp_path, RED + line + "\n")
    assert (said.end.exit_code, said.end.detail) == (1, line.removeprefix(STAMP))
    assert not [one for one in said.said if isinstance(one, ParsedProblem)]


def test_failed_tests_do_not_explain_a_coverage_limit(tmp_path):
    """An exception for the tests does not cover the limit."""
    line = "FAIL Required test coverage of 80% not reached. Total coverage: 50.00%"
    said = read(tmp_path, f"{RED}{line}\nError: Process completed with exit code 1.\n")
    assert f"a step failed: {line}" in said.messages
    said = read(tmp_path, f"{RED}Error: Process completed with exit code 1.\n{line}\n")
    assert f"a step failed: {line}" in said.messages


@pytest.mark.parametrize("line", ["Attaching to db-1, test-1", "db-1  | ready"])
def test_a_service_of_docker_compose_that_failed_is_no_good_end(tmp_path, line):
    said = read(tmp_path, f"{line}\n{GREEN}test-1 exited with code 1\n")
    assert (said.end.exit_code, said.end.detail) == (1, "test-1 exited with code 1")
    said = read(tmp_path, f"{line}\n{GREEN}db-1 exited with code 137\nrank0 exited with code 1\n")
    assert (said.end.exit_code, said.end.detail) == (0, "")


def test_a_traceback_below_a_green_session_is_no_good_end(tmp_path):
    said = read(tmp_path, f"{GREEN}Traceback (most recent call last):\n  File x\nKeyError: 1\n")
    assert (said.end.exit_code, said.end.detail) == (1, "KeyError: 1")


def test_a_failure_in_the_short_summary_of_a_green_sum_is_a_contradiction(tmp_path):
    summary = f"{bar('short test summary info')}\nFAILED t/test_a.py::test_a - assert 0\n"
    said = read(tmp_path, GREEN.replace("\n====", f"\n{summary}===="))
    assert said.end.exit_code == 1
    assert "its short summary names t/test_a.py::test_a, and its sum no failure" in said.messages


def test_a_step_that_failed_above_the_session_is_not_of_the_tests(tmp_path):
    """As of ``make lint || true; pytest``."""
    said = read(tmp_path, f"make: *** [Makefile:3: lint] Error 1\n{GREEN}")
    assert (said.end.exit_code, said.end.detail) == (0, "")
    said = read(tmp_path, f"make: *** lint\n{GREEN}make: *** [Makefile:3: test] Error 1\n")
    assert (said.end.exit_code, said.end.detail) == (1, "make: *** [Makefile:3: test] Error 1")


def test_a_step_that_failed_between_two_green_sessions_is_no_good_end(tmp_path):
    said = read(tmp_path, f"{GREEN}make: *** [Makefile:3: test] Error 1\n{GREEN}")
    assert (said.end.exit_code, said.end.detail) == (1, "make: *** [Makefile:3: test] Error 1")


@pytest.mark.parametrize(
    "line",
    [
        "make: [Makefile:3: test] Error 1 (ignored)",
        "make: Nothing to be done for 'all'.",
        "Process completed with exit code 0.",
        "Required test coverage of 80% reached. Total coverage: 90.00%",
        'echo "::error::nothing"',
        "//pkg:test                                                PASSED in 3.1s",
        "//pkg:test                                       FLAKY, failed in 1 out of 2 in 3s",
        "Executed 1 out of 1 test: 1 test passes.",
        "BUILD SUCCESSFUL in 3s",
        "Bash exited with code '0'.",
        "slurmstepd: error: *** STEP 123.1 ON n1 CANCELLED AT 2026-11-29T10:00:00 ***",
        "srun: error: n1: task 0: Terminated",
        "srun: error: n1: task 0: Exited with exit code 0",
        "ninja: no work to do.",
        "command terminated with exit code 0",
        "Finished: SUCCESS",
        "test-1 exited with code 0",
        "db-1 exited with code 137",
        "exit status 0",
        "exit code: 0",
        "exit code: 1\ndone",
        "rc=0",
        "rc=1\nupload finished",
        "Process finished with exit code 0",
        "+ exit 0",
        "expected exit code: 1",
        "arc=1",
        "version 1.0 rc: none",
        "exit status 1\ndone",
        "Process completed with exit code 1.\ndone",
        "npm notice",
        "0 failed, 3 passed in 0.1s",
        "#9 DONE 1.2s",
        "process exited with code 3",
        "subprocess exited with code 1",
        "worker-1 exited with code 1\ndone",
        "rank0 exited with code 139",
        "Exited with code 3",
        'The command "pytest" exited with 0.',
        "nox > Session tests was successful.",
        "pytest exited with code 0",
        "========= ERROR SUMMARY: 0 errors",
        "==123== ERROR SUMMARY: 0 errors from 0 contexts (suppressed: 0 from 0)",
        "========= COMPUTE-SANITIZER",
        "the worker exited with code 1 and was started again",
    ],
)
def test_words_of_failures_that_are_none_are_no_alarm(tmp_path, line):
    said = read(tmp_path, GREEN + line + "\n")
    assert (said.end.exit_code, said.end.detail) == (0, "")


@pytest.mark.parametrize("rows", [".F  [100%]", "t/test_a.py .E  [100%]", "F [ 50%]\n. [100%]"])
@pytest.mark.parametrize("head", ["", bar("test session starts")])
def test_letters_of_a_failure_contradict_a_green_sum(tmp_path, rows, head):
    sum_ = bar("2 passed in 0.01s") if head else "2 passed in 0.01s\n"
    said = read(tmp_path, f"{head}{rows}\n{sum_}")
    assert said.end.exit_code == 1
    assert any("and its sum of none" in message for message in said.messages)


@pytest.mark.parametrize(
    "line",
    [
        "[gw1] node down: Not properly terminated",
        "+++++++++++++++++++ Timeout +++++++++++++++++++",
        "!!!!!!!!!!!! _pytest.outcomes.Exit: done !!!!!!!!!!!!",
        bar("_pytest.outcomes.Exit: done", "!").strip(),
        "!!!!!!!!!!!! stopping after 1 failures !!!!!!!!!!!!",
        "test_b failed (2 runs remaining out of 3).",
    ],
)
def test_a_line_that_contradicts_the_green_sum_below_it_is_no_good_end(tmp_path, line):
    starts, ends = bar("test session starts"), bar("2 passed in 0.01s")
    body = "t/test_a.py::a PASSED [ 50%]\nt/test_a.py::b PASSED [100%]\n"
    said = read(tmp_path, f"{starts}{body}{line}\n{ends}")
    assert said.end.exit_code
    assert said.problems
    printed = body.replace("b PASSED [100%]", f"b\n{line}\nPASSED")
    if len(line) < 79:  # pytest's own row is one wherever it stands
        assert read(tmp_path, f"{starts}{printed}{ends}").end.exit_code == 0


def test_a_try_of_pytest_retry_is_an_earlier_failure(tmp_path):
    starts, ends = bar("test session starts"), bar("2 passed, 1 retried in 0.01s")
    rows = (
        "t/test_a.py::a PASSED [ 50%]\nt/test_a.py::b RETRY [100%]\nt/test_a.py::b PASSED [100%]\n"
    )
    said = read(tmp_path, f"{starts}{rows}{ends}")
    assert said.end.exit_code == 0
    assert [outcome.word for outcome in said.first["t/test_a.py::b"].earlier] == ["failed"]
