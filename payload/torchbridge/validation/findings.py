"""Results of checks; a check that raises has failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

PASS, WARNING, FAIL = "pass", "warning", "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check; `details` are JSON values, `recommendation` says what to do."""

    name: str
    status: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)
    recommendation: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as a dict."""
        return asdict(self)


Check = Callable[..., Finding]


def passed(message: str, **details: Any) -> Finding:
    """Return a finding of a check that passed."""
    return Finding("", PASS, message, details)


def warned(message: str, recommendation: str, **details: Any) -> Finding:
    """Return a finding that something optional is missing."""
    return Finding("", WARNING, message, details, recommendation)


def failed(message: str, recommendation: str, **details: Any) -> Finding:
    """Return a finding of a check that failed."""
    return Finding("", FAIL, message, details, recommendation)


@dataclass(frozen=True, slots=True)
class Report:
    """The findings of one subject, in order."""

    title: str
    findings: tuple[Finding, ...]

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __getitem__(self, name: str) -> Finding:
        """Return the finding of the named check.

        Raises:
            KeyError: there is no check of that name.
        """
        for finding in self.findings:
            if finding.name == name:
                return finding
        raise KeyError(f"{self.title}: no check {name!r} in {[f.name for f in self.findings]}")

    def names(self, status: str) -> tuple[str, ...]:
        """Return the names of the findings with this status."""
        return tuple(finding.name for finding in self.findings if finding.status == status)

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return not self.names(FAIL)

    @property
    def score(self) -> str:
        """Passed checks of all, e.g. "5/5"."""
        return f"{len(self.names(PASS))}/{len(self.findings)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        findings = [finding.to_dict() for finding in self.findings]
        return {"title": self.title, "ok": self.ok, "score": self.score, "findings": findings}


def examine(title: str, checks: Mapping[str, Check] | Sequence[Check], *of: object) -> Report:
    """Run every check with the arguments `of`, regardless of the results of earlier ones.

    Checks without a given name are named by their function.
    """
    named = checks if isinstance(checks, Mapping) else {one.__name__: one for one in checks}
    made = (replace(_made(check, *of), name=name) for name, check in named.items())
    return Report(title, tuple(made))


def _made(check: Check, *of: object) -> Finding:
    """Run a check with gradients enabled, whatever mode the caller set."""
    try:
        with torch.inference_mode(mode=False), torch.enable_grad():
            return check(*of)
    except Exception as error:  # any exception makes the finding a failure
        advice = "read the error: the check could not be finished"
        return failed(f"{type(error).__name__}: {error}", advice)
