"""The audit log: who changed what, newest first; for administrators."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Query, Response

from orchestrator.dashboard import urls
from orchestrator.dashboard.responses import Page, PageRequestDep, cursor_of
from orchestrator.dashboard.session import NotAllowedError
from orchestrator.dashboard.table import Column, Moment, Number, Row, Table, Text
from orchestrator.domain.audit import AuditFilters, AuditOutcome, ChainedEntry
from orchestrator.domain.caller_identity import Scope, missing_scope

PAGE_SIZE = 50
_CURSOR = re.compile(r"[1-9][0-9]{0,14}")
_ID = re.compile(r"(?<=/)([0-9a-z]{12})[0-9a-z]{14,}$")
_SHOWN = 20
"""Maximum changed fields in a row; `seatrial audit list --json` has all of them."""
_COLUMNS = (
    Column("at", "When"),
    Column("actor", "Who"),
    Column("address", "From"),
    Column("operation", "Operation"),
    Column("resource", "Resource"),
    Column("changed", "Changed"),
    Column("outcome", "Outcome"),
    Column("number", "Entry", is_number=True),
)

router = APIRouter()


@router.get(urls.AUDIT)
def show_audit_log(
    request: PageRequestDep,
    actor: Annotated[str, Query(max_length=300)] = "",
    resource: Annotated[str, Query(max_length=300)] = "",
) -> Response:
    """Show a page of entries."""
    viewer = request.viewer
    if not viewer.may(Scope.ADMIN):
        raise NotAllowedError(missing_scope(viewer.caller, Scope.ADMIN))
    chosen = AuditFilters(actor=actor.strip(), resource=resource.strip())
    before = cursor_of(request, _CURSOR)
    found = request.context.stores.audit.page(
        chosen, limit=PAGE_SIZE, before=int(before) if before else None
    )
    is_filtered = chosen != AuditFilters()
    table = Table(
        id="entries",
        caption="Entries, newest first",
        columns=_COLUMNS,
        rows=[_row(one) for one in found],
        empty="No entry is like that." if is_filtered else "Nothing was changed yet.",
        next=request.here(before=str(found.next)) if found.next else "",
        is_caption_hidden=True,
    )
    facts = {"chosen": chosen, "is_filtered": is_filtered}
    return request.answer(
        Page(template="audit.html.j2", title="Audit log", tables=(table,), facts=facts)
    )


def _row(one: ChainedEntry) -> Row:
    status = f" ({one.status})" if one.status is not None and one.status >= 400 else ""
    return Row(
        (
            Moment(one.at),
            Text(one.actor or "unknown"),
            Text(one.address or "this computer", note=one.agent),
            Text(one.operation, is_code=True),
            Text(one.resource, note=one.product, short=_ID.sub(r"\1…", one.resource)),
            Text(", ".join(changed_fields(one)[:_SHOWN])),
            Text(f"{one.outcome}{status}", note=one.reason),
            Number(one.number),
        ),
        tone="" if one.outcome is AuditOutcome.DONE else "warn",
    )


def changed_fields(entry: ChainedEntry) -> list[str]:
    """Return names of fields that differ between before and after, those of documents too."""
    if entry.before is None or entry.after is None:
        return ["created"] if entry.after else ["removed"] if entry.before else []
    found = []
    for name in {**entry.before, **entry.after}:
        earlier, later = entry.before.get(name), entry.after.get(name)
        if isinstance(earlier, dict) and isinstance(later, dict):
            names = {**earlier, **later}
            found += [inner for inner in names if earlier.get(inner) != later.get(inner)]
        elif earlier != later:
            found.append(name)
    return found
