"""What people do to a run: cancel it, and run it again."""

from __future__ import annotations

import hashlib
from typing import Annotated, get_args

from fastapi import APIRouter, Form, Response

from orchestrator.application.cancel_run import cancel_run
from orchestrator.application.launch_run import (
    IdempotencyKey,
    KeyInFlightError,
    KeyReusedError,
    PayloadMissingError,
)
from orchestrator.application.rerun_run import (
    NothingToRerunError,
    Only,
    StillRunningError,
    rerun_run,
)
from orchestrator.dashboard import urls
from orchestrator.dashboard.pages.run.content import run_page
from orchestrator.dashboard.path_lookup import run_of
from orchestrator.dashboard.responses import Asked, AskedDep
from orchestrator.dashboard.session import Viewer, needs
from orchestrator.domain.cell import Run
from orchestrator.domain.person import Scope
from orchestrator.domain.problems import InvalidDocumentError

MayRun = Annotated[Viewer, needs(Scope.RUN)]
_ONLY: dict[str, Only | None] = {"": None, **{word: word for word in get_args(Only)}}
_CONFLICTS = (
    NothingToRerunError,
    StillRunningError,
    KeyInFlightError,
    KeyReusedError,
    PayloadMissingError,
    InvalidDocumentError,
)

router = APIRouter()


@router.post(urls.RUNS + "/{run}/cancel")
def cancel(asked: AskedDep, viewer: MayRun, run: str) -> Response:
    """Ask for its end; a finished run stays as it is."""
    found = run_of(asked, run)
    cancel_run(asked.context, found.id)
    return asked.go(urls.run_url(found.id))


@router.post(urls.RUNS + "/{run}/rerun")
def rerun(
    asked: AskedDep,
    viewer: MayRun,
    run: str,
    only: Annotated[str, Form(max_length=20)] = "",
    key: Annotated[str, Form(max_length=100)] = "",
) -> Response:
    """Launch it, or some of its jobs, again; the same form twice launches once."""
    found = run_of(asked, run)
    if only not in _ONLY:
        return _refused(asked, found, f"{only!r} is nothing that can run again", only, 422)
    claim = form_key(key or asked.context.new_id(), f"rerun {found.id}", only)
    try:
        launched = rerun_run(asked.context, found.id, only=_ONLY[only], key=claim)
    except _CONFLICTS as error:
        return _refused(asked, found, str(error), only, 409)
    return asked.go(urls.run_url(launched.run.id))


def form_key(key: str, about: str, *values: str) -> IdempotencyKey:
    """The key of a form that was sent with these values: with others it is another request."""
    said = "\x00".join((about, *values))
    fingerprint = hashlib.sha256(said.encode()).hexdigest()
    return IdempotencyKey(f"page-{key}-{fingerprint[:12]}", fingerprint)


def _refused(asked: Asked, run: Run, why: str, chosen: str, status: int) -> Response:
    seen = asked.context.stores.feed.last(run.id)
    page = run_page(asked, run_of(asked, run.id), seen, refused=why, chosen=chosen)
    return asked.answer(page, status=status)
