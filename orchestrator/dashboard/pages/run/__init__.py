"""One run: where each of its cells is, how its jobs went, why, and what it costs."""

from __future__ import annotations

from fastapi import APIRouter

from orchestrator.dashboard.pages.run import actions, routes

router = APIRouter()
router.include_router(routes.router)
router.include_router(actions.router)
