"""Known issues: list, add, expire."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from fastapi import APIRouter, Body, Security
from fastapi.openapi.models import Example
from pydantic import Field

from orchestrator.api.dependencies import ContextDep, NumberedPageDep
from orchestrator.api.errors import NotFoundError
from orchestrator.api.history import (
    Decide,
    ProductQuery,
)
from orchestrator.api.models import NumberedPageResponse, RequestModel
from orchestrator.api.security import CallerDep, bearer, secured
from orchestrator.application.known_issues import add_known_issue, end_known_issue
from orchestrator.domain.caller_identity import Person, Scope
from orchestrator.domain.field_limits import Filled
from orchestrator.domain.known_issue import (
    IssueMatch,
    IssueScope,
    KnownIssue,
    KnownIssueResponse,
    issue_answer,
)


class KnownIssueRequest(RequestModel):
    """A known issue to add."""

    product: Filled
    """The payload's name."""
    title: Filled
    owner: Filled
    expires: date
    """The last day on which the issue applies."""
    match: IssueMatch
    scope: IssueScope = IssueScope()
    url: Annotated[str, Field(max_length=1000, pattern=r"^(https?://[!-~]+)?$")] = ""
    max_failures: int | None = Field(default=None, ge=1, le=10**9)

    def known_issue(self, author: Person, opened: date) -> KnownIssue:
        """Return the issue to store, without an id."""
        return KnownIssue(
            **dict(self), id="", opened=opened, author=author.name, author_token=author.token
        )


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
                "frame": "kernel_pytorch.precision.fp8_training_engine.to_te_recipe",
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
Issue = Annotated[KnownIssueRequest, Body(openapi_examples=_ISSUE)]


_ASKED = [Security(bearer)]
reading = APIRouter(tags=["known issues"], route_class=secured(Scope.READ), dependencies=_ASKED)
writing = APIRouter(tags=["known issues"], route_class=secured(Scope.GATE), dependencies=_ASKED)


@reading.get("/known-issues")
def list_known_issues(
    context: ContextDep, page: NumberedPageDep, product: ProductQuery = None
) -> NumberedPageResponse[KnownIssueResponse]:
    """List the known issues by id, expired ones included."""
    today = context.clock.now().date()
    found = context.stores.known_issues.list(product=product, page=page)
    items = [issue_answer(issue, today) for issue in found]
    return NumberedPageResponse(items=items, next=found.next)


@writing.post("/known-issues", status_code=201)
def create_known_issue(context: ContextDep, body: Issue, caller: CallerDep) -> KnownIssueResponse:
    """Add a known issue, opened today. Matching failures stay failures in every count."""
    today = context.clock.now().date()
    return issue_answer(add_known_issue(context, body.known_issue(caller, today)), today)


@writing.post("/known-issues/{issue_id}/expire")
def expire_known_issue(
    context: ContextDep, issue_id: str, caller: CallerDep, body: Decide = None
) -> KnownIssueResponse:
    """End a known issue now; idempotent."""
    issue = end_known_issue(context, issue_id, by=caller.name)
    if issue is None:
        raise NotFoundError(
            f"there is no known issue {issue_id!r}; GET /api/v1/known-issues lists them"
        )
    return issue_answer(issue, context.clock.now().date())
