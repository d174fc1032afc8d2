"""The page of a run, which follows it while it goes on."""

from __future__ import annotations

from fastapi import APIRouter, Response

from orchestrator.dashboard import urls
from orchestrator.dashboard.pages.run.content import run_page
from orchestrator.dashboard.path_lookup import run_of
from orchestrator.dashboard.responses import AskedDep, Format

router = APIRouter()


@router.get(urls.RUNS + "/{run}")
def show_run(asked: AskedDep, run: str) -> Response:
    """Everything about it but its single tests."""
    seen = asked.context.stores.feed.last(run)
    found = run_of(asked, run)
    if found.id != run and asked.wanted is Format.HTML:
        return asked.go(urls.with_query(urls.run_url(found.id), **asked.query))
    return asked.answer(run_page(asked, found, seen))
