"""Launching from the page: choose, see the plan, start."""

from __future__ import annotations

from orchestrator.dashboard.pages.launch.routes import router

__all__ = ["router"]
