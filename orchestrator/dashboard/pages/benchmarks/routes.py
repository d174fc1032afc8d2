"""The two pages of benchmarks."""

from __future__ import annotations

from fastapi import APIRouter

from orchestrator.dashboard.pages.benchmarks.listing import router as listing
from orchestrator.dashboard.pages.benchmarks.trend import router as trend

router = APIRouter()
router.include_router(listing)
router.include_router(trend)
