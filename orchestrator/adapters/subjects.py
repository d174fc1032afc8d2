"""Subjects that are resolved when they are needed."""

from __future__ import annotations


class GitAndPipSubjects:
    """Implements the Subjects."""
