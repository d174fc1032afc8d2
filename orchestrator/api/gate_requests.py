"""What clients send to gates, with an example of each."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Body
from fastapi.openapi.models import Example
from pydantic import AwareDatetime, BeforeValidator, Field, WithJsonSchema

from orchestrator.api.models import Filled, RequestModel, Word
from orchestrator.domain.gate.payload_review import LONGEST_REVIEW, PayloadLevel

POLICY_TEXT = """\
apiVersion: seatrial/v1
kind: ReleaseGate
metadata: {name: release, product: torchbridge, owner: release-team}
spec:
  platforms:
    - {id: gcp-l4}
"""
_POLICY_OBJECT = {
    "apiVersion": "seatrial/v1",
    "kind": "ReleaseGate",
    "metadata": {"name": "release", "product": "torchbridge", "owner": "release-team"},
    "spec": {"platforms": [{"id": "gcp-l4"}]},
}


def _is_source(value: object) -> object:
    if not isinstance(value, str | dict):
        raise ValueError("a policy is the text of a YAML file, or an object")
    return value


Policy = Annotated[
    Any,
    BeforeValidator(_is_source),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}], "title": "Policy"}),
]
Runs = Annotated[list[Filled], Field(max_length=50)]


class PolicyRequest(RequestModel):
    """A policy for a gate."""

    policy: Policy
    """The text of a policy file, or the same as an object."""
    name: str = Field(default="policy", min_length=1, max_length=200)
    """What messages call it: its file's name."""


def _is_written_out(value: object) -> object:
    """Numbers, and digits alone, would be read as seconds since 1970."""
    if isinstance(value, str) and not value.strip().lstrip("+-").replace(".", "").isdecimal():
        return value
    raise ValueError("must be a time with its zone, as 2026-01-20T12:00:00Z")


Moment = Annotated[
    AwareDatetime,
    BeforeValidator(_is_written_out),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


class EvaluateRequest(RequestModel):
    """What a gate is to look at."""

    runs: Runs = Field(default=[])
    """Ids of runs, the beginning of them, or ``latest``; none: the product's newest finished."""
    lineage: Word = ""
    """The line of verdicts that it stands in; the gate's own by default."""
    policy_digest: Word = ""
    """The version of the gate's policy that decides, as its PUT answered; the present one by
    default."""


class DryRunRequest(RequestModel):
    """What a gate would decide; nothing is kept."""

    policy: Policy | None = None
    """null: the gate's present policy."""
    name: str = Field(default="policy", min_length=1, max_length=200)
    """What messages call it."""
    runs: Runs = Field(default=[])
    """As of an evaluation."""
    now: Moment | None = None
    """The time that ages and expiries are measured at; null: now."""

    def at(self, now: datetime) -> datetime:
        """The time that it is made for."""
        return self.now or now


class WaiverRequest(RequestModel):
    """An exception for one rule of a gate, for some days. The caller is its author."""

    gate: Filled
    rule: Filled
    """As the verdict prints it: ``platform/aws-a10g``."""
    reason: Annotated[str, Field(min_length=1, max_length=2000)]
    days: int = Field(ge=1, le=36_500)
    """At most the policy's `exception_max_age`."""
    verdict: Word = ""
    """``V-0001``, which its author has read; the gate's newest one by default."""
    only_this: bool = False
    """It is for the evidence of that verdict only."""


class ReviewRequest(RequestModel):
    """A person's word that they read a payload."""

    payload: Filled
    """sha256 of its archive, as verdicts and `PUT /payloads/{sha256}` have it."""
    level: PayloadLevel
    """What they hold it for; `untrusted` takes back what was said before."""
    days: int = Field(ge=1, le=LONGEST_REVIEW.days)
    note: Annotated[str, Field(max_length=2000)] = ""
    """What the reviewer read; verdicts show it."""


class ApprovalRequest(RequestModel):
    """An approval of a verdict's evidence. The caller is the approver."""

    gate: Filled
    verdict: Word = ""
    """``V-0001``; the gate's newest one by default."""


_PUT: dict[str, Example] = {
    "text": {
        "summary": "A policy file's text",
        "value": {"policy": POLICY_TEXT, "name": "release.yaml"},
    },
    "object": {"summary": "The policy as an object", "value": {"policy": _POLICY_OBJECT}},
}
_EVALUATE: dict[str, Example] = {
    "newest": {"summary": "The newest finished run of the product", "value": {"runs": []}},
    "named": {"summary": "Two runs, one of them ingested", "value": {"runs": ["01jc", "01jd"]}},
}
_DRY_RUN: dict[str, Example] = {
    "change": {
        "summary": "What another policy would have said, back then",
        "value": {"policy": POLICY_TEXT, "runs": ["latest"], "now": "2026-01-20T12:00:00Z"},
    }
}
_WAIVE: dict[str, Example] = {
    "week": {
        "summary": "For a week",
        "value": {
            "gate": "release",
            "rule": "platform/aws-a10g",
            "reason": "The region is out of machines; its last run was green.",
            "days": 7,
        },
    }
}
_REVIEW: dict[str, Example] = {
    "quarter": {
        "summary": "For a quarter",
        "value": {
            "payload": "0f1e2d3c" * 8,
            "level": "reviewed",
            "days": 90,
            "note": "conftest.py and the plugins, and what changed since 0.4.39",
        },
    }
}
_APPROVE: dict[str, Example] = {
    "newest": {"summary": "The newest verdict", "value": {"gate": "release"}}
}

PutPolicy = Annotated[PolicyRequest, Body(openapi_examples=_PUT)]
Evaluate = Annotated[EvaluateRequest | None, Body(openapi_examples=_EVALUATE)]
DryRun = Annotated[DryRunRequest | None, Body(openapi_examples=_DRY_RUN)]
Waive = Annotated[WaiverRequest, Body(openapi_examples=_WAIVE)]
Review = Annotated[ReviewRequest, Body(openapi_examples=_REVIEW)]
Approve = Annotated[ApprovalRequest, Body(openapi_examples=_APPROVE)]
