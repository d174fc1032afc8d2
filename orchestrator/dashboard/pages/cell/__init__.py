"""One cell of a run: its tests, and all else that came home from it."""

from __future__ import annotations

from orchestrator.dashboard.pages.cell.routes import router

__all__ = ["router"]
