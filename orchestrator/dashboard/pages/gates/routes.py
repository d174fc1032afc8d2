"""Every address of gates and verdicts."""

from __future__ import annotations

from fastapi import APIRouter

from orchestrator.dashboard.pages.gates import (
    actions,
    dry_run,
    gate,
    keys_channels,
    listing,
    verdict,
)

router = APIRouter()
for one in (listing, gate, dry_run, actions, verdict, keys_channels):
    router.include_router(one.router)
