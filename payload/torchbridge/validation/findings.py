"""What checks found, for people and for programs. A check that throws has failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

PASS, WARNING, FAIL = "pass", "warning", "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """`details` are what was seen, as JSON knows it; `recommendation` is what to do about it."""

    name: str
    status: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)
    recommendation: str = ""

    def to_dict(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)


Check = Callable[..., Finding]


def passed(message: str, **details: Any) -> Finding:
    """All is well."""
    return Finding("", PASS, message, details)


def doubtful(message: str, recommendation: str, **details: Any) -> Finding:
    """It works, but something is missing."""
    return Finding("", WARNING, message, details, recommendation)


def failed(message: str, recommendation: str, **details: Any) -> Finding:
    """It does not work."""
    return Finding("", FAIL, message, details, recommendation)


@dataclass(frozen=True, slots=True)
class Report:
    """The findings of one subject, in order."""

    title: str
    findings: tuple[Finding, ...]

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __getitem__(self, name: str) -> Finding:
        """One finding.

        Raises:
            KeyError: nothing of that name was checked.
        """
        for finding in self.findings:
            if finding.name == name:
                return finding
        raise KeyError(f"{self.title}: no check {name!r} in {[f.name for f in self.findings]}")

    def names(self, status: str) -> tuple[str, ...]:
        """Of the findings with this status."""
        return tuple(finding.name for finding in self.findings if finding.status == status)

    @property
    def ok(self) -> bool:
        """Did nothing fail?"""
        return not self.names(FAIL)

    @property
    def score(self) -> str:
        """Passed of all: "5/5"."""
        return f"{len(self.names(PASS))}/{len(self.findings)}"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        findings = [finding.to_dict() for finding in self.findings]
        return {"title": self.title, "ok": self.ok, "score": self.score, "findings": findings}


def examine(title: str, checks: Mapping[str, Check] | Sequence[Check], *of: object) -> Report:
    """Make every check `of` something, whatever the ones before it found.

    A check without a name has its function's.
    """
    named = checks if isinstance(checks, Mapping) else {one.__name__: one for one in checks}
    made = (replace(_made(check, *of), name=name) for name, check in named.items())
    return Report(title, tuple(made))


def _made(check: Check, *of: object) -> Finding:
    """Of a check that may differentiate, whatever the caller has switched off."""
    try:
        with torch.inference_mode(mode=False), torch.enable_grad():
            return check(*of)
    except Exception as error:  # what the check met is its finding
        advice = "read the error: the check could not be finished"
        return failed(f"{type(error).__name__}: {error}", advice)
