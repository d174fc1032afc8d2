"""Trials: a failed test runs again on the same machine, with at most one thing changed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOrder:
    """What is wanted of trials, and their bounds."""

    reruns: int = 0
    """How often a failed test is run again with nothing changed."""
    diagnose: bool = False
    """Also with the baseline subject, and with the packages of the last green run."""
    max_tests: int = 20
    """Failing tests of a cell that are looked into."""
    max_minutes: float = 15.0
    """Of the machine's time."""
