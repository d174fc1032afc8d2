"""Every address of gates and verdicts."""

from __future__ import annotations

from fastapi import APIRouter

from orchestrator.dashboard.pages.gates import acting, gate, listing, people, trying, verdict

router = APIRouter()
for one in (listing, gate, trying, acting, verdict, people):
    router.include_router(one.router)
