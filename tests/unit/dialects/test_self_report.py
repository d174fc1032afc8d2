"""What a job's own output says against it."""

from __future__ import annotations

import pytest

from orchestrator.adapters.dialects.self_report import read_self_report


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
    ],
)
def test_a_line_that_speaks_of_failure_is_found(output: str, line: str):
    assert read_self_report([output[:5].encode(), output[5:].encode()]) == line


def test_a_mark_in_the_middle_of_a_long_output_is_found():
    noise = b"step 1 of 2: loss 0.125\n" * 40_000
    assert read_self_report([noise, b"[FAIL] converges\n", noise]) == "[FAIL] converges"
    endless = [b"x" * 100_000] * 20
    assert read_self_report([*endless, b"\n[FAIL] converges"]) == "[FAIL] converges"
