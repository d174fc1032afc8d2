"""Vocabulary: the glyph, word and tone of every outcome, state and decision.

Pages, the command line and reports use it. Each medium adds only its own styles: CSS classes, ANSI
styles, or the coloured glyphs of Markdown. Every glyph is one terminal cell wide, and no meaning
depends on the colour alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Tone = Literal["good", "bad", "warn", "busy", "quiet"]
"""``warn``: needs attention; ``busy``: in progress."""


@dataclass(frozen=True, slots=True)
class Term:
    """The glyph, word and tone of a code."""

    glyph: str
    word: str
    tone: Tone
    several: str = ""
    """The plural of the word, if it is a noun."""

    def counted(self, many: int) -> str:
        """Return a number with the word: ``1 error``, ``2 errors``, ``2 failed``."""
        return f"{many:,} {self.word if many == 1 else self.several or self.word}"


TERMS = {
    "passed": Term("✓", "passed", "good"),
    "failed": Term("✗", "failed", "bad"),
    "error": Term("!", "error", "bad", "errors"),
    "errored": Term("!", "errored", "bad"),
    "timed_out": Term("◷", "timed out", "bad"),
    "cancelled": Term("■", "cancelled", "warn"),
    "not_available": Term("∅", "not available", "warn"),
    "not_run": Term("–", "not run", "warn"),
    "missing": Term("?", "missing", "warn"),
    "stale": Term("◔", "stale", "warn"),
    "skipped": Term("⊘", "skipped", "quiet"),
    "firing:skipped": Term("–", "not launched", "warn"),
    "place:skipped": Term("–", "not asked", "quiet"),
    "xfailed": Term("x", "xfailed", "quiet"),
    "xpassed": Term("X", "xpassed", "warn"),
    "degraded": Term("▽", "degraded", "warn"),
    "flaky": Term("≈", "flaky", "warn"),
    "PASS": Term("✓", "PASS", "good"),
    "PASS_WITH_EXCEPTIONS": Term("✓*", "PASS with exceptions", "warn"),
    "FAIL": Term("✗", "FAIL", "bad"),
    "INCONCLUSIVE": Term("?", "INCONCLUSIVE", "warn"),
    "ok": Term("✓", "ok", "good"),
    "violated": Term("✗", "violated", "bad"),
    "unknown": Term("?", "unknown", "warn"),
    "subject": Term("✗", "the subject", "bad"),
    "dependency": Term("◇", "a dependency", "warn"),
    "image_or_driver": Term("◇", "image or driver", "warn"),
    "machine": Term("◇", "the machine", "warn"),
    "applies": Term("✓*", "applies", "warn"),
    "ended": Term("–", "ended", "quiet"),
    "gone": Term("●", "gone", "quiet"),
    "excepted": Term("✓*", "excepted", "warn"),
    "tolerated": Term("✓*", "tolerated", "warn"),
    "waived": Term("✓*", "waived", "warn"),
    "active": Term("●", "active", "good"),
    "unapproved": Term("?", "needs approval", "warn"),
    "expired": Term("◌", "expired", "quiet"),
    "retired": Term("–", "retired", "quiet"),
    "failing": Term("✗", "failing", "bad"),
    "disabled": Term("■", "disabled", "warn"),
    "new": Term("+", "new", "bad"),
    "lapsed": Term("◌", "issue over", "warn"),
    "expired_failing": Term("◌", "expired", "warn"),
    "unowned": Term("!", "unowned for a week", "warn"),
    "quarantined": Term("≈", "quarantined", "quiet"),
    "known": Term("●", "known", "quiet"),
    "exceeded": Term("▲", "more than expected", "bad"),
    "untried": Term("–", "nothing of it ran", "quiet"),
    "unmatched": Term("◔", "unmatched", "warn"),
    "retried": Term("≈", "passed on retry", "quiet"),
    "split": Term("≈", "both with one build", "quiet"),
    "paused": Term("■", "paused", "warn"),
    "missed": Term("?", "missed", "bad"),
    "deadline_missed": Term("◷", "deadline missed", "bad"),
    "in_time": Term("✓", "in time", "good"),
    "new_failure": Term("✗", "new failure", "bad"),
    "still_failing": Term("✗", "still failing", "bad"),
    "newly_skipped": Term("⊘", "newly skipped", "warn"),
    "fixed": Term("✓", "fixed", "good"),
    "changed": Term("≠", "changed", "quiet"),
    "differs": Term("≠", "differs", "warn"),
    "equal": Term("=", "equal", "quiet"),
    "worse": Term("▼", "worse", "bad"),
    "better": Term("▲", "better", "good"),
    "alike": Term("≈", "alike", "quiet"),
    "single": Term("?", "single sample", "warn"),
    "steady": Term("–", "steady", "quiet"),
    "short": Term("…", "too few runs", "quiet"),
    "insufficient": Term("✗", "insufficient", "bad"),
    "orphan": Term("!", "orphan", "bad"),
    "idle": Term("!", "idle", "warn"),
    "queued": Term("○", "queued", "busy"),
    "done": Term("●", "done", "quiet"),
    "finished": Term("●", "finished", "quiet"),
}
"""Terms by code of the API.

A code that tests also use has the prefix of its kind, such as ``firing:``.
"""

TEST_OUTCOMES = (
    "passed", "failed", "error", "skipped", "xfailed", "xpassed", "missing", "not_run",
)  # fmt: skip
"""The eight numbers of `Counts`, in the order of display."""

REASONS = {
    "tests": "a suite fails when one of its tests fails or errors",
    "missing": "a suite fails when a collected test never reports",
    "no_tests": "a suite that collects nothing fails",
    "crashed": "a job whose process dies fails",
    "hung": "a job that stops saying anything fails",
    "checks": "a job fails when one of its own checks fails",
    "exit": "a job fails when it exits with anything but 0",
    "interrupted": "a suite that pytest ends early fails",
    "pytest_internal": "a suite that pytest ends early fails",
    "pytest_usage": "a suite that pytest ends early fails",
    "wrong_subject": "tests count only if what they import is what was installed",
    "wrong_pytest": "tests count only if the environment's own pytest ran them",
    "forged_records": "results count only if the recorder wrote them, in order",
    "start_failed": "a job that cannot be started fails",
    "timeout": "a job that exceeds its own time is timed out",
    "deadline": "an attempt that reaches its deadline is stopped",
    "cancelled": "the run was cancelled",
    "not_offered": "the provider does not sell this machine",
    "lost": "a machine that is lost is an infrastructure fault",
}
"""Explanations of outcomes, by reason."""


def term(code: str) -> Term:
    """Return the term of a code; an unknown code gets the tone of work in progress."""
    return TERMS.get(code) or Term("▸", phrase(code), "busy")


_OF_TESTS = "tests"
"""Reason of a job with failed tests, and of its cell."""


def reason_text(reason: str, detail: str, ended_by: str = "") -> str:
    """Return reason and detail in one text: ``host key: the machine answers with ...``.

    A reason that the detail already contains is not repeated: ``tests`` with ``unit: 2
    failed``. If another reason ended the work, that reason comes first: ``cancelled; unit: 2
    failed``.
    """
    word = phrase(reason)
    is_said = reason == _OF_TESTS or detail == word or detail.startswith(f"{word}: ")
    why = detail if detail and is_said else ": ".join(part for part in (word, detail) if part)
    return "; ".join(part for part in (phrase(ended_by), why) if part)


def refusal_text(stored: str) -> str:
    """Return a stored refusal, such as ``not_offered: no such type``, as a text for a person."""
    reason, _, detail = stored.partition(": ")
    return reason_text(reason, detail)


def phrase(code: str) -> str:
    """Return a code, such as a reason, as words: ``host key`` for ``host_key``."""
    return code.replace("_", " ")
