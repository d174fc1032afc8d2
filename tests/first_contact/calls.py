"""A call of the first contact: what it asks, what Seatrial assumes, what was found."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

Verdict = Literal["confirmed", "refuted", "not shown"]
PROJECT = "seatrial-first-contact"
"""The tag of what the calls rent: all that they end."""
_PATTERNS = (
    ("private key", r"-----BEGIN[A-Z ]*PRIVATE KEY-----.*?-----END[A-Z ]*PRIVATE KEY-----"),
    ("token", r"\bya29\.[\w.-]+"),
    ("access key", r"\b(?:AKIA|ASIA|AIDA|AROA|ANPA)[A-Z0-9]{12,}\b"),
    ("email", r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"),
    ("account", r"(?<!\d)\d{12}(?!\d)"),
    ("address", r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])"),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a call showed."""

    verdict: Verdict
    text: str


class Scrubber:
    """Replaces what says whose account it is; the same thing by the same words everywhere."""

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        """`names`: texts that no pattern finds, such as a project's id, and their kind."""
        self._names = dict(names or {})
        self._known: dict[str, str] = {}

    def hide(self, text: str, kind: str) -> None:
        """From now on this text is replaced as well."""
        if text:
            self._names[text] = kind

    def clean(self, text: str) -> str:
        """The text without account numbers, emails, keys, addresses and the names to hide."""
        for name, kind in sorted(self._names.items(), key=lambda item: -len(item[0])):
            text = text.replace(name, self._stand_in(name, kind))
        for kind, pattern in _PATTERNS:
            found = re.compile(pattern, re.DOTALL)
            text = found.sub(lambda one, kind=kind: self._stand_in(one[0], kind), text)
        return text

    def _stand_in(self, text: str, kind: str) -> str:
        count = sum(one.startswith(f"<{kind} ") for one in self._known.values())
        return self._known.setdefault(text, f"<{kind} {count + 1}>")


@dataclass(slots=True)
class Contact:
    """What the calls are handed: how they wait, and where their answers go."""

    now: Callable[[], datetime]
    sleep: Callable[[float], None]
    scrubber: Scrubber = field(default_factory=Scrubber)
    answers: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)
    """What a later call needs of an earlier one."""

    def keep(self, number: int, asked: str, answer: object) -> None:
        """Keep a raw answer of a call."""
        self.answers.setdefault(number, []).append(
            {"at": self.now().isoformat(), "asked": asked, "answer": answer}
        )

    def text(self, number: int) -> str:
        """The answers of a call as they go into the archive."""
        found = json.dumps(self.answers.get(number, []), indent=1, default=str)
        return self.scrubber.clean(found)


@dataclass(frozen=True, slots=True)
class ContactCall:
    """One of the fifteen."""

    number: int
    cloud: str
    asks: str
    assumes: str
    run: Callable[[Contact], Finding]
    ceiling_usd: Decimal = Decimal(0)
    """What it can cost at most; zero only reads."""


def in_order(calls: Iterable[ContactCall]) -> list[ContactCall]:
    """Those that only read first, each part by number."""
    return sorted(calls, key=lambda call: (call.ceiling_usd > 0, call.number))


def all_of(missing: Iterable[str], what: str) -> Finding:
    """Confirmed where nothing is missing."""
    names = list(missing)
    if not names:
        return Finding("confirmed", what)
    return Finding("refuted", f"{what}: not {', '.join(names)}")
