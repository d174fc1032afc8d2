"""Benchmarks: every one of a product, and the trend of each."""

from __future__ import annotations

from fastapi import APIRouter

from orchestrator.dashboard.pages.benchmarks import listing, trend

router = APIRouter()
router.include_router(listing.router)
router.include_router(trend.router)
