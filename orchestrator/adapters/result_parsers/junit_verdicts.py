"""Words that report passing or failing in attributes and properties of JUnit XML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from orchestrator.adapters.result_parsers.bounded_input import as_count, as_line
from orchestrator.domain.outcome import TestOutcome

ELEMENTS: Final = {
    "failure": TestOutcome.FAILED,
    "error": TestOutcome.ERROR,
    "skipped": TestOutcome.SKIPPED,
}
"""JUnit's own elements of a testcase."""
NOT_RUN: Final = {
    *("notrun", "disabled", "skipped", "skip", "ignored", "pending", "suppressed", "notapplicable")
}
_GOOD: Final = {
    *("passed", "pass", "success", "successful", "succeeded", "ok", "good", "fixed", "true", "yes"),
    *("run", "ran", "executed", "complete", "completed", "finished", "done"),
}
"""Words of attributes of a passed test.

A word that is neither here nor in `NOT_RUN` contradicts that the test passed; a number does not.
"""
BAD: Final = {
    **dict.fromkeys(
        ("failed", "failure", "fail", "ko", "notok", "regression"),
        TestOutcome.FAILED,
    ),
    **dict.fromkeys(
        (
            *("error", "errored", "broken", "timeout", "timedout", "aborted", "crashed", "crash"),
            *("canceled", "cancelled", "interrupted", "killed"),
        ),
        TestOutcome.ERROR,
    ),
}
"""Words of attributes and properties of a failed test, with their outcome."""
_TAGS: Final = {**BAD, **ELEMENTS}
"""Lower-case names of elements that report an outcome; some writers use names of their own."""
VERDICTS: Final = {"outcome", "result", "state", "status", "verdict"}
"""Names of attributes and properties whose value is a word of `BAD`, `NOT_RUN` or `_GOOD`."""
_TRUTHS: Final = {"success", "executed", "passed"}
"""Names of attributes that are true for a passed test."""
COUNTS_OF_FAILURES: Final = (
    *("timeouts", "timedout", "aborted", "crashed", "crashes", "broken"),
    *("failed", "errored", "canceled", "cancelled", "interrupted", "unexpected"),
)
"""Attributes of a suite that count failures beside JUnit's own."""
_EXIT_CODES: Final = {"exitcode", "exitstatus", "returncode"}
_FAULTS: Final = {
    *({*BAD} - {"timeout", "regression"}),  # a time limit, and what a test is for
    *("failures", "errors", *COUNTS_OF_FAILURES, *_EXIT_CODES),
}
"""Names of attributes that are absent, false or 0 if all tests passed."""
_NO: Final = {"", "false", "no", "none", "null"}
_BETWEEN_WORDS = re.compile(r"[\s_-]+")


def word_of(value: str) -> str:
    """Return a value in lower case without spaces, underscores and hyphens."""
    return _BETWEEN_WORDS.sub("", value.lower())


def outcome_of(tag: str, text: str) -> TestOutcome | None:
    """Return the outcome that an element reports; None if it reports none.

    An element of a writer's own whose text is a number is a setting, such as a time limit.
    """
    is_setting = tag.lower() not in ELEMENTS and text.strip()[:1].isdigit()
    return None if is_setting else _TAGS.get(_BETWEEN_WORDS.split(tag.lower())[-1])


def contradiction(attributes: Mapping[str, str]) -> tuple[str, TestOutcome]:
    """Return the first attribute that contradicts passing, and its outcome.

    Without such an attribute return an empty text and PASSED.
    """
    for name, value in attributes.items():
        key, word = word_of(name), word_of(value)
        good = _GOOD | (NOT_RUN if key in VERDICTS else set())
        is_stated = key in VERDICTS | _TRUTHS and word[:1].isalpha() and word not in good
        is_fault = key in _FAULTS and word not in _NO and as_count(value) != 0
        if is_stated or is_fault:
            kind = "failed" if key in ("success", "passed", "failures") else key
            return f'{name}="{as_line(value)}"', BAD.get(word, BAD.get(kind, TestOutcome.ERROR))
    return "", TestOutcome.PASSED


def contradiction_of_property(name: str, value: str) -> str:
    """Return ``name="value"`` if a property of a suite reports a failure; else an empty text.

    Properties are also settings, so only a word of failure, a false truth or an exit code counts.
    """
    key, word = word_of(name), word_of(value)
    is_stated = key in VERDICTS and word in BAD
    is_false = key in _TRUTHS and word in ("false", "no")
    is_fault = key in _EXIT_CODES and word not in _NO and as_count(value) != 0
    return f'{name}="{as_line(value)}"' if is_stated or is_false or is_fault else ""
