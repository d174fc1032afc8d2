"""What a job's own output says against it."""

from __future__ import annotations

import pytest

from orchestrator.adapters.result_parsers.reported_failure import read_self_report


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("all is well\n", ""),
        ("[PASS] a\n[FAIL] b: off by 3\n[FAIL] c\n", "[FAIL] b: off by 3"),
        ("  [ FAILED ] b\n", "[ FAILED ] b"),
        ("\x1b[31m[FAIL]\x1b[0m b\n", "[FAIL] b"),
        ("Results: 0/8 demos passed\n", "Results: 0/8 demos passed"),
        ("Results: 8/8 demos passed\n  [PASS] a\n", ""),
        ("Results: 7/8 demos passed\n  [SKIP] a (no GPU)\n", ""),
        ("  [SKIP] a (no GPU)\nResults: 6/8 demos passed\n", "Results: 6/8 demos passed"),
        ("Results: 3/8 demos passed\nResults: 8/8 demos passed\n", "Results: 3/8 demos passed"),
        ("[ERROR] cannot reach the cache, going on without\n", ""),
        ("[ERROR] a\nResults: 8/8 demos passed\n", "[ERROR] a"),
        ("1 of 8 requests failed, and was sent again\n", ""),
        ("attempt 1 failed, attempt 2 passed\n", ""),
        ("2 failed attempts, then it passed\n", ""),
        ("== 1 failed, 2 passed in 0.12s ==\n", "== 1 failed, 2 passed in 0.12s =="),
        ("1 failed in 0.12s (0:00:00)\n", "1 failed in 0.12s (0:00:00)"),
        ("2 passed, 1 error in 3.1s\n", "2 passed, 1 error in 3.1s"),
        ("3 passed, 1 xfailed, 2 warnings in 3.1s\n", ""),
        ("FAILED t/test_a.py::test_a - assert 1\n", "FAILED t/test_a.py::test_a - assert 1"),
        ("ERROR t/test_a.py - ImportError\n", "ERROR t/test_a.py - ImportError"),
        ("ERROR cache is cold\n", ""),
        ("Ran 3 tests in 0.1s\n\nFAILED (failures=1)\n", "FAILED (failures=1)"),
        ("Ran 3 tests in 0.1s\n\nOK (skipped=1)\n", ""),
        ("Passed: 3, Failed: 2\n", "Passed: 3, Failed: 2"),
        ("Passed: 3, Failed: 0\n", ""),
        ("Summary: 3 passed; 2 failed\n", "Summary: 3 passed; 2 failed"),
        ("Passed: 3\nFailed: 2\n", "Failed: 2"),
        ("Failed: 2\nretry\nFailed: 0\nPassed: 5\n", ""),
        ("Failed: 2\n", ""),
        ("7/8 tests passed\n", "7/8 tests passed"),
        ("7/8 tests passed\n8/8 tests passed\n", ""),
        ("7 of 8 checks passed.\n[SKIP] a (no GPU)\n", ""),
        ("1,234/1,235 tests passed\n", "1,234/1,235 tests passed"),
        ("1,235/1,235 tests passed\n", ""),
        ("**Results:** 7/8 tests passed\n", "**Results:** 7/8 tests passed"),
        ("[FAIL] a\r[PASS] a\r\n", "[FAIL] a"),
        ("1/8 tests passed\r8/8 tests passed\r", ""),
        ("TestResults(failed=2, attempted=5)\n", "TestResults(failed=2, attempted=5)"),
        ("TestResults(failed=0, attempted=5)\n", ""),
        ("--- FAIL: TestA (0.00s)\n", "--- FAIL: TestA (0.00s)"),
        (
            "test result: FAILED. 1 passed; 1 failed; 0 ignored\n",
            "test result: FAILED. 1 passed; 1 failed; 0 ignored",
        ),
        ("ok 1 - a\nnot ok 2 - b\n", "not ok 2 - b"),
        ("not ok 2 - b # TODO later\n", ""),
        (
            "75% tests passed, 1 tests failed out of 4\n",
            "75% tests passed, 1 tests failed out of 4",
        ),
        ("100% tests passed, 0 tests failed out of 4\n", ""),
        ("Tests:       1 failed, 2 passed, 3 total\n", "Tests:       1 failed, 2 passed, 3 total"),
        ("Tests:       3 passed, 3 total\n", ""),
        ("3 errors, 5 warnings\n", ""),
        ("Passed: 3 Failed: 2\n", "Passed: 3 Failed: 2"),
        ("| Passed | 3 |\n| Failed | 2 |\n", "| Failed | 2 |"),
        ("| Passed | 3 |\n| Failed | 0 |\n", ""),
        ("[fail] converges\n", "[fail] converges"),
        ("[error] no cache\n", ""),
        ("2026-11-23 10:00:00 INFO [FAIL] converges\n", "[FAIL] converges"),
        ("ERROR:root:[FAIL] converges\n", "[FAIL] converges"),
        ("CRITICAL:root:scale check FAILED\n", "scale check FAILED"),
        ("2026-11-23T10:00:00.123Z [FAIL] converges\n", "[FAIL] converges"),
        ("    not ok 2 - x\n", "not ok 2 - x"),
        ("FAIL: test_double (t.T)\n", "FAIL: test_double (t.T)"),
        ("FAILED: converges\n", "FAILED: converges"),
        ("FAILED: 0\n", ""),
        ("Passed: 3\nFailed: 2\nErrors: 0\n", "Failed: 2"),
        ("Passed: 3\nFailed: 2\nPassed: 4\nFailed: 0\n", "Failed: 2"),
        ("Pass: 3\nFail: 2\n", "Fail: 2"),
        ("Total: 5\nFailed: 2\n", "Failed: 2"),
        ("ERROR loader.py - retrying\n", ""),
        ("not ok 3 # todo\n", ""),
        ("FAILED: none\n", ""),
        ("Summary: 4 of 5 checks passed\n", "Summary: 4 of 5 checks passed"),
        ("passed 4 out of 5\n", "passed 4 out of 5"),
        ("Passed: 4/5\n", "Passed: 4/5"),
        ("4 out of 5 demos succeeded\n", "4 out of 5 demos succeeded"),
        ("Summary: 5 of 5 checks passed\n", ""),
        ("passed 4 out of 5\npassed 5 out of 5\n", ""),
        ("batch 4 of 5 passed through the network\n", ""),
        ("epoch 1: 12 errors, 3 warnings so far\n", ""),
        *(
            (f"{line}\n", line.strip()[:200])
            for line in (
                "Tests run: 3, Failures: 1, Errors: 0, Skipped: 0",
                "test cases: 3 | 2 passed | 1 failed",
                "[doctest] test cases:  2 |  1 passed |  1 failed | 0 skipped",
                "[doctest] Status: FAILURE!",
                "3 examples, 1 failure",
                "Failed!  - Failed:     1, Passed:     2, Skipped:     0, Total:     3",
                "make: [Makefile:2: check] Error 1 (ignored)",
                "make[1]: *** [Makefile:2: check] Error 2",
                "** TEST FAILED **",
                "Result = FAIL",
                "Test FAILED",
                "Results: 1/8 demos failed",
                "Overall result: FAIL",
                "converges ... FAIL",
                "converges: FAILED",
                "***Test Failed*** 1 failures.",
                "Exception in thread Thread-1 (go):",
                "Process ForkProcess-1:",
                "Task exception was never retrieved",
                "  py311: FAIL code 1 (0.10=setup[0.05]+cmd[0.05] seconds)",
                "  py311: FAIL \u2716 in 1.2 seconds",
                "  evaluation failed :( (0.15 seconds)",
                "ERROR: InvocationError for command pytest (exited with code 1)",
                "ERROR:   py311: commands failed",
                "nox > Session tests-3.11 failed.",
                "nox > * tests-3.11: failed",
                "Failed Tests (1):",
                '*** 1 failure is detected in the test module "scale"',
                "Executed 3 of 3 (1 FAILED)",
                "Segmentation fault (core dumped)",
                "run.sh: line 3: 1234 Aborted                 (core dumped) ./demo",
                "1 of 3 tests failed",
                "2 out of 3 checks failed.",
                "all checks passed: False",
                "ALL TESTS PASSED = no",
                "result: FAIL (max diff 3.0)",
                "result: FAIL (0 of 5 passed)",
                "result: FAIL (0.5 above the limit)",
                "✗ scale",
                "  ❌ scale: expected 3, got 4",
                "- ✘ scale",
                "[✗] scale",
                "❌ 3 checks failed",
                "[NG] scale",
                "[NOT OK] scale",
                "scale NOT OK",
                "scale: NOT OK!",
                "scale [FAIL]",
                f"{'long ' * 900}: FAILED",
                f"[FAIL] {'long ' * 900}",
                "| FAIL | scale | 0.5 |",
                "120/500 sample kernels passed",
                "scale .... [NG]",
                "| scale | FAIL |",
                "| scale | **FAILED** | 3 ms |",
                "│ scale │ FAIL   │",
                "Some checks failed!",
                "2 checks failed",
                "3 smoke tests failed.",
                "Summary: 1 test failed",
                "All checks failed",
                "At least one check has failed.",
            )
        ),
        *(
            (f"{line}\n", "")
            for line in (
                "Tests run: 3, Failures: 0, Errors: 0, Skipped: 1",
                "[doctest] test cases: 2 | 2 passed | 0 failed | 0 skipped",
                "[doctest] Status: SUCCESS!",
                "3 examples, 0 failures",
                "Result = PASS",
                "Results: 0/8 demos failed",
                "expected result: FAIL",
                "the retry after a FAILED request works",
                "Process 1: loss 0.5",
                "  py311: OK (0.10 seconds)",
                "  evaluation failed to improve for 3 epochs",
                "nox > Session tests was successful.",
                "Failed Tests (0):",
                "*** No errors detected",
                "Executed 3 of 3 SUCCESS",
                "the Segmentation fault (core dumped) of release 1 is mended",
                "0 of 3 tests failed",
                "1 of 3 tests failed before the mend, none does now",
                "Failures: 1",
                "Failures: 3 in the last year",
                "all checks passed: True",
                "all checks passed: 8 of 8",
                "1..3",
                "range 1..3 is ok",
                "Status: FAILED (as expected)",
                "Result: FAIL (expected failure)",
                "Result: FAILURE (rate 0.01)",
                "overall: FAILED (0 of 5)",
                "status: FAIL (0)",
                "Segmentation fault (core dumped), as expected",
                "✗ = failed",
                "✗: failed",
                "✗ failed · ✓ passed",
                "❌ 0 failed",
                "❌ Failed: 0",
                "✗ refused, as expected",
                "✅ scale",
                "[OK] scale",
                "it is NOT OK to go on after a fault",
                "| test | PASS | FAIL |",
                "| FAIL | 0 |",
                "| expected | FAIL |",
                "| a failed request is sent again |",
                "0 checks failed",
                "2 checks failed, and passed when run again",
                "Retries: 2 checks failed",
                "Some checks failed before the mend, none does now",
                "CRITICAL:root:FAILED=0",
                "CRITICAL:root:the disk is nearly full",
                "ERROR:root:the first try FAILED",
                "Error: ",
                "scale correct: False",
                "quorum: 2 of 3 replicas ok",
                "120/500 samples passed",
                "student A: passed 7 out of 8",
            )
        ),
        ("  2 passing (4ms)\n  1 failing\n", "1 failing"),
        (
            "Ok:                 2\nExpected Fail:      0\nFail:               1\n",
            "Fail:               1",
        ),
        ("Ok:                 3\nExpected Fail:      1\nFail:               0\n", ""),
        ("1..3\nok 1\nok 2\n", "1..3"),
        ("ok 1 - a\nok 2 - b\n1..3\n", "1..3"),
        ("1..3\nok 1\nok 2 - b\nnot ok 3 # TODO later\n", ""),
        ("1..1\nok 1\n1..2\nok 1\nok 2\n", ""),
        ("1..4\nok 1 - a\nok 2 3x3 matmul\nok 3 - c\n", "1..4"),
        ("TAP version 13\n1..3\nok - a\nok b\n", "1..3"),
        *(
            (f"1..3\nok 1 - a\n{result}\nok 3 - c\n", "")
            for result in (
                *("ok 2 3x3 matmul", "ok 2 [bf16] k", "ok 2 (k)", "ok 2 'q'", "ok 2 .", "ok 2 $x"),
                *("ok 2", "ok", "ok - b", "[PASS] b"),
            )
        ),
        ("1..10\nok\n", ""),
        ("Segmentation fault (core dumped)\nthe worker was started again\n", ""),
        (
            "step 1\nSegmentation fault (core dumped)\n\n+ exit 0\n",
            "Segmentation fault (core dumped)",
        ),
        ("  2 passing (4ms)\n", ""),
        ("Accuracy: 95/100 passed\n", ""),
        ("WER: errors: 37, total: 1000\n", ""),
        ("Retries: 1 failed, 9 ok\n", ""),
        ("HumanEval: 60/164 problems passed\n", ""),
        ("[PASS] = fine\n[FAIL] = broken\n[PASS] converges\n", ""),
        ("| PASS | 0.91 |\n| FAIL | 0.88 |\n", ""),
        ("|  | PASS | FAIL |\n| PASS | 90 | 3 |\n| FAIL | 2 | 88 |\n", ""),
        ("| PASS | 0.9 |\n| FAIL | 0.8 |\n| FAIL | 0.7 |\n", "| FAIL | 0.8 |"),
    ],
)
def test_a_line_that_speaks_of_failure_is_found(output: str, line: str):
    assert read_self_report([output[:5].encode(), output[5:].encode()]).failure == line


def test_a_mark_in_the_middle_of_a_long_output_is_found():
    noise = b"step 1 of 2: loss 0.125\n" * 40_000
    assert read_self_report([noise, b"[FAIL] converges\n", noise]).failure == "[FAIL] converges"
    endless = [b"x" * 100_000] * 20
    assert read_self_report([*endless, b"\n[FAIL] converges"]).failure == "[FAIL] converges"


TRACEBACK = """Traceback (most recent call last):
  File "demo.py", line 3, in <module>
    assert scale([1], 3) == [3], "wrong"
           ^^^^^^^^^^^^^^^^^^^^
AssertionError: wrong
"""


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (f"begins\n{TRACEBACK}", "AssertionError: wrong"),
        (f"{TRACEBACK}\n\n", "AssertionError: wrong"),
        (TRACEBACK.replace(": wrong", ""), "AssertionError"),
        (f"{TRACEBACK}handled, and the demo goes on\n", ""),
        (TRACEBACK.replace("\n", "\n  "), ""),
        (f"Exception ignored in: <function Pool.__del__ at 0x7f>\n{TRACEBACK}", ""),
        (
            f"ok\nException ignored in atexit callback: <function f>\n{TRACEBACK}",
            "AssertionError: wrong",
        ),
        (f"Exception ignored while calling deallocator <function A.__del__>:\n{TRACEBACK}", ""),
        ("Traceback (most recent call last):\nAssertionError\n", "AssertionError"),
        ("\x1b[31mTraceback (most recent call last):\x1b[0m\n  File\nKeyError: 1\n", "KeyError: 1"),
    ],
)
def test_a_traceback_at_the_end_is_a_failure_of_the_program(output: str, line: str):
    noise = b"step\n" * 10_000
    assert read_self_report([noise, output[:20].encode(), output[20:].encode()]).failure == line


def test_a_level_after_a_time_does_not_hide_what_is_critical():
    line = "2026-11-23 10:00:00,123 CRITICAL scale FAILED"
    assert read_self_report([line.encode()]).failure == "scale FAILED"


def test_a_fallback_is_found_by_the_phrases_of_ingested_logs():
    noise = b"step 1 of 2: loss 0.125\n" * 40_000
    said = read_self_report([noise, b"Warning: falling back to CPU implementation\n", noise])
    assert (said.failure, said.fallbacks) == ("", ("falling back to CPU implementation",))
    assert read_self_report([b"all kernels ran without falling back\n"]).fallbacks == ()


@pytest.mark.parametrize(
    ("output", "line"),
    [
        *(
            (f"{output}\n", output.strip().splitlines()[-1])
            for output in (
                "Ran 0 tests in 0.000s",
                "Ran 2 tests in 0.000s\n\nOK (skipped=2)",
                "Ran 2 tests in 0.000s\n\nOK (skipped=1, expected failures=1)",
                "1 skipped in 0.02s",
                "== 2 xfailed, 1 skipped, 1 warning in 0.02s ==",
                "== 3 deselected in 0.02s ==",
                "===== no tests ran in 0.01s =====",
                "No tests were found!!!",
                "1..0 # SKIP no GPU",
                "test result: ok. 0 passed; 0 failed; 3 ignored",
                "[  PASSED  ] 0 tests.",
                "testing: warning: no tests to run",
                "  py39: SKIP (0.01 seconds)",
                "py310: SKIP ⚠ in 0.02 seconds",
                "nox > * tests-3.9: skipped",
                "0 passed, 0 failed",
                "Passed: 0\nTotal: 8",
                "Tests run: 3, Failures: 0, Errors: 0, Skipped: 3",
            )
        ),
        *(
            (f"{output}\n", "")
            for output in (
                "all is well",
                "Ran 0 tests in 0.0s\n\nRan 1 test in 0.0s\n\nOK",
                "Ran 2 tests in 0.000s\n\nOK (skipped=1)",
                "1 skipped in 0.02s\n1 passed, 1 skipped in 0.02s",
                "1 skipped in 0.02s\n[PASS] converges",
                "test result: ok. 0 passed; 0 failed\ntest result: ok. 2 passed; 0 failed",
                "1..0\n1..1\nok 1 - a",
                "no test files\nok  \texample.com/a\t0.01s",
                "  py39: SKIP (0.01 seconds)\n  py311: OK (3.20 seconds)",
                "  py39: SKIP ⚠ in 0.01 seconds\n  py311: OK ✔ in 3.2 seconds",
                "nox > * tests-3.9: skipped\nnox > * tests-3.11: success",
                "Total: 5 in 3.2 s",
                "3 warnings in 2.1 s",
                "  2 passing (4ms)",
                "0 skipped, 4 in all",
            )
        ),
    ],
)
def test_a_test_runner_in_which_nothing_passed_is_found(output: str, line: str):
    said = read_self_report([output[:5].encode(), output[5:].encode()])
    assert (said.failure, said.nothing_passed) == ("", line)
