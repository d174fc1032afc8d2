"""Known issues: list, add, expire."""

from __future__ import annotations

from fastapi import APIRouter, Security

from orchestrator.api.dependencies import ContextDep
from orchestrator.api.errors import NotFoundError
from orchestrator.api.history import ProductQuery
from orchestrator.api.history_requests import Decide, Issue
from orchestrator.api.history_responses import KnownIssueListResponse, KnownIssueResponse
from orchestrator.api.history_serializers import tell_known_issue
from orchestrator.api.identity import CallerDep
from orchestrator.api.security import bearer, secured
from orchestrator.application.known_issues import add_known_issue, end_known_issue
from orchestrator.application.ports.stores import Scope

_ASKED = [Security(bearer)]
reading = APIRouter(tags=["known issues"], route_class=secured(Scope.READ), dependencies=_ASKED)
writing = APIRouter(tags=["known issues"], route_class=secured(Scope.GATE), dependencies=_ASKED)


@reading.get("/known-issues")
def list_known_issues(context: ContextDep, product: ProductQuery = None) -> KnownIssueListResponse:
    """Every known issue, those that are over too."""
    today = context.clock.now().date()
    issues = context.stores.known_issues.list(product=product)
    return KnownIssueListResponse(items=[tell_known_issue(issue, on=today) for issue in issues])


@writing.post("/known-issues", status_code=201)
def create_known_issue(context: ContextDep, body: Issue, caller: CallerDep) -> KnownIssueResponse:
    """Add one, opened today. The failures that it explains stay failures in every count."""
    issue = add_known_issue(context, body.new_issue(caller))
    return tell_known_issue(issue, on=context.clock.now().date())


@writing.post("/known-issues/{issue_id}/expire")
def expire_known_issue(
    context: ContextDep, issue_id: str, caller: CallerDep, body: Decide = None
) -> KnownIssueResponse:
    """End one now; doing so again changes nothing."""
    issue = end_known_issue(context, issue_id, by=caller.name)
    if issue is None:
        raise NotFoundError(
            f"there is no known issue {issue_id!r}; GET /api/v1/known-issues lists them"
        )
    return tell_known_issue(issue, on=context.clock.now().date())
