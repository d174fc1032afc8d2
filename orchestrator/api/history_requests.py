"""What clients send about tests' names and known issues, with an example of each."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from fastapi import Body
from fastapi.openapi.models import Example
from pydantic import Field

from orchestrator.api.models import Filled, RequestModel, Word
from orchestrator.application.known_issues import NewIssue
from orchestrator.domain.known_issue import IssueMatch, IssueScope
from orchestrator.domain.person import Person


class MatchRequest(RequestModel):
    """Two runs whose tests are compared."""

    old_run: Filled
    """A run's id, the beginning of it, or ``latest``."""
    new_run: Filled


class DecisionRequest(RequestModel):
    """Nothing: whoever sends it says so."""


class IssueMatchRequest(RequestModel):
    """Which failures are meant: all of what is not empty."""

    signature: Word = ""
    exception: Word = ""
    """The exception's class; ``*`` stands for anything."""
    frame: Word = ""
    """``module.function``; ``*`` stands for anything."""
    contains: Word = ""
    """Stands in the masked message."""


class IssueScopeRequest(RequestModel):
    """Where it applies; what is empty does not restrict."""

    platforms: tuple[Filled, ...] = ()
    jobs: tuple[Filled, ...] = ()
    versions: Word = ""
    """Of the subject: ``>=0.4.6,<0.5``."""
    requires_package: Word = ""


class KnownIssueRequest(RequestModel):
    """A known issue to add."""

    product: Filled
    """The payload's name."""
    title: Filled
    owner: Filled
    expires: date
    """The last day on which it applies."""
    match: IssueMatchRequest
    scope: IssueScopeRequest = IssueScopeRequest()
    url: Annotated[str, Field(max_length=1000, pattern=r"^(https?://[!-~]+)?$")] = ""
    max_failures: int | None = Field(default=None, ge=1, le=10**9)

    def new_issue(self, author: Person) -> NewIssue:
        """As the operation takes it."""
        return NewIssue(
            product=self.product,
            title=self.title,
            owner=self.owner,
            author=author,
            expires=self.expires,
            match=IssueMatch(**dict(self.match)),
            scope=IssueScope(**dict(self.scope)),
            url=self.url,
            max_failures=self.max_failures,
        )


_NOTHING: dict[str, Example] = {"nothing": {"summary": "Nothing", "value": {}}}
_MATCH: dict[str, Example] = {
    "versions": {
        "summary": "A run of the version before, and one of the new version",
        "value": {"old_run": "01jc0000000000000000000000", "new_run": "latest"},
    }
}
_ISSUE: dict[str, Example] = {
    "patterns": {
        "summary": "By what the failures have in common",
        "value": {
            "product": "torchbridge",
            "title": "Transformer Engine's DelayedScaling refuses its recipe",
            "owner": "fp8-team",
            "expires": "2026-04-30",
            "match": {
                "exception": "ValidationError",
                "frame": "fp8_training_engine.to_te_recipe",
                "contains": "scaling_factor_compute_algo",
            },
            "scope": {
                "platforms": ["aws-a10g"],
                "versions": ">=0.4.6,<0.5",
                "requires_package": "transformer_engine",
            },
            "url": "https://github.com/example/torchbridge/issues/123",
            "max_failures": 11,
        },
    },
    "signature": {
        "summary": "By a signature, on every platform",
        "value": {
            "product": "torchbridge",
            "title": "A test asks a compiled model for its mode",
            "owner": "tpu-team",
            "expires": "2026-04-30",
            "match": {"signature": "s1-0123456789ab"},
        },
    },
}

Match = Annotated[MatchRequest, Body(openapi_examples=_MATCH)]
Decide = Annotated[DecisionRequest | None, Body(openapi_examples=_NOTHING)]
Issue = Annotated[KnownIssueRequest, Body(openapi_examples=_ISSUE)]
