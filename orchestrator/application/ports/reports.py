"""What making a report can be refused for."""

from __future__ import annotations


class ReportRefusedError(ValueError):
    """No report: it needs a cell, or contradicts its evidence; the text says why."""
