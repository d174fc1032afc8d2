"""Gates and verdicts: the list, the page of one, the dry run of a policy, and a verdict."""

from __future__ import annotations

from fastapi import APIRouter

from orchestrator.dashboard.pages.gates import dry_run, gate, gate_list, verdict

router = APIRouter()
for one in (gate_list, gate, dry_run, verdict):
    router.include_router(one.router)
