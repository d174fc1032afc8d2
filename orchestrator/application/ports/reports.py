"""Errors of report rendering."""

from __future__ import annotations


class ReportRefusedError(ValueError):
    """The report was refused: it needs a cell, or contradicts its evidence; the text says why."""
