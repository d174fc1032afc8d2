"""The rules of the comment report."""

from __future__ import annotations

from collections.abc import Mapping

from reports.model.comment import CommentReport


def comment_figures(report: CommentReport) -> Mapping[str, tuple[int, ...]]:
    """Return the numbers that the comment's conclusion may use, by claim."""
    passed = sum(row.status.code == "passed" for row in report.cells)
    return {"run": (passed, len(report.cells))}
