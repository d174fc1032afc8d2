"""The transcript of a smoke run: which call, how answered, how long; nothing of the account's own.

What is written of an answer is its shape: the names of its fields, the words of a few that say how
it went, and stand-ins for all else. A stand-in is a keyed hash, so that the same id has the same
one in every process, and nobody without the key (which is never written) can go back.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

SAID = frozenset(
    {
        *("AvailabilityZone", "Architecture", "Code", "HttpTokens", "InstanceLifecycle"),
        *("InstanceType", "Key", "ResourceType", "SpotPrice", "VolumeType", "acceleratorType"),
        *(
            "code",
            "domain",
            "metric",
            "operationType",
            "provisioningModel",
            "reason",
            "runtimeVersion",
        ),
        *("state", "status"),
    }
)
"""Fields whose words are kept, where they look like words."""
EC2_STATES = frozenset({"pending", "running", "shutting-down", "stopping", "stopped", "terminated"})
LISTED = 3
"""Entries of a list that are shown; the rest is counted."""
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,40}")
_TELLING = re.compile(r"[0-9]{6}|[0-9a-f]{8}|\d+\.\d+\.\d+\.\d+")
_KINDS = (
    ("address", re.compile(r"\d+\.\d+\.\d+\.\d+(/\d+)?|[0-9a-f:]*:[0-9a-f:]+")),
    ("key", re.compile(r"(ssh-|ecdsa-|-----BEGIN|AAAA).*", re.DOTALL)),
    ("account", re.compile(r"\d{6,}")),
    ("link", re.compile(r"(https?://|projects/|arn:).*", re.DOTALL)),
    ("id", re.compile(r"[a-z]+-[0-9a-f]{8,}")),
)


@dataclass(frozen=True, slots=True)
class Disguise:
    """Stand-ins for whatever belongs to one account."""

    secret: bytes

    def of(self, value: str) -> str:
        """The stand-in: what kind of thing it was, and the same letters for the same thing."""
        kind = next((name for name, like in _KINDS if like.fullmatch(value)), "text")
        mark = hmac.new(self.secret, value.encode(), hashlib.sha256).hexdigest()[:8]
        return f"<{kind} {mark}>"

    def shape(self, value: object, field: str = "") -> object:
        """What may be written of an answer."""
        match value:
            case None | bool():
                return value
            case datetime():
                return value.isoformat()
            case int() | float():
                return value if abs(value) < 1e6 else self.of(str(value))
            case str():
                return value if _is_said(field, value) else self.of(value)
            case Mapping():
                return {self._name(str(key)): self.shape(v, str(key)) for key, v in value.items()}
            case Sequence() if not isinstance(value, bytes | bytearray):
                shown = [self.shape(one, field) for one in value[:LISTED]]
                left = len(value) - LISTED
                return [*shown, f"and {left} more"] if left > 0 else shown
        return f"<{type(value).__name__}>"

    def _name(self, key: str) -> str:
        return key if _WORD.fullmatch(key) and not _TELLING.search(key) else self.of(key)


def _is_said(field: str, value: str) -> bool:
    if not value or (field == "Name" and value in EC2_STATES):
        return True
    return field in SAID and bool(_WORD.fullmatch(value)) and not _TELLING.search(value)


@dataclass(frozen=True, slots=True)
class Transcript:
    """A file that several processes add lines to."""

    path: Path
    disguise: Disguise

    def call(
        self,
        cloud: str,
        name: str,
        *,
        where: str,
        code: str,
        status: int,
        duration_s: float,
        answer: object,
        at: float,
    ) -> None:
        """Write one call: `code` is ``ok``, the cloud's own word, or ``no answer``."""
        self._write(
            {
                "at": round(at, 3),
                "cloud": cloud,
                "call": name,
                "where": where if _is_said("code", where) else self.disguise.of(where),
                "code": code if _is_said("code", code) else self.disguise.of(code),
                "status": status,
                "duration_s": round(duration_s, 3),
                "answer": self.disguise.shape(answer),
            }
        )

    def fact(self, cloud: str, name: str, value: float) -> None:
        """Write what was measured around the calls, such as ``boot_s``."""
        self._write({"cloud": cloud, "fact": name, "value": round(value, 3)})

    def _write(self, line: Mapping[str, Any]) -> None:
        text = json.dumps(line, sort_keys=True) + "\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def read(path: Path) -> list[dict[str, Any]]:
    """A transcript's lines. Raises ValueError naming the line that is none."""
    found = []
    for number, text in enumerate(path.read_text().splitlines(), 1):
        try:
            line = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path.name}, line {number}: {error}") from error
        if not isinstance(line, dict) or "cloud" not in line or not {"call", "fact"} & line.keys():
            raise ValueError(f"{path.name}, line {number}: neither a call nor a fact of a cloud")
        found.append(line)
    return found
