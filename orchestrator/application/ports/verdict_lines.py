"""Verdicts as lists show them: the newest of each line, and what changed from one to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from orchestrator.domain.gate.verdict import Decision, RuleOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleLine:
    """What one rule came to."""

    id: str
    kind: str
    blocking: bool
    outcome: RuleOutcome
    sentence: str
    """Why, where a blocking rule is open or violated; of others nobody asks here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictLine:
    """A stored verdict without the inputs of its rules."""

    id: str
    gate: str
    lineage: str
    decision: Decision
    summary: str
    at: datetime
    created_at: datetime
    subject: Mapping[str, str]
    runs: tuple[str, ...]
    policy_digest: str
    rules: tuple[RuleLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The newest verdict of a line of a gate."""

    newest: VerdictLine
    since: datetime
    """When the first of the verdicts was made that say the same without a break."""
    first: str
    """Its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductRuns:
    """Where a product's runs are; reruns, second machines and bisections are not looked at."""

    newest_finished: str = ""
    newest_unfinished: str = ""


class VerdictLines(Protocol):
    """Each method is one transaction of a fixed number of statements."""

    def standings(self, *, gate: str | None = None) -> list[Standing]:
        """The newest verdict of every line, by gate and line."""
        ...

    def verdict_lines(
        self,
        gate: str,
        *,
        lineage: str | None = None,
        limit: int = 20,
        before: str | None = None,
        after: str | None = None,
    ) -> list[VerdictLine]:
        """Of a gate, newest first; with `after`, those that came next, the oldest first."""
        ...

    def product_runs(self, products: Sequence[str]) -> Mapping[str, ProductRuns]:
        """Of each of these products."""
        ...
