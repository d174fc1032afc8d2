"""Which jobs are proven by what, so that the unchanged is not run again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from orchestrator.application.ports.wheels import Interpreter
from orchestrator.domain.reuse_inputs import Ingredients, Reuse


@dataclass(frozen=True, slots=True)
class Prepared:
    """What an attempt was prepared with: enough to ask later whether that is still the same."""

    ingredients: Ingredients
    interpreter: Interpreter
    place: str
    """Where its machine was."""


@dataclass(frozen=True, slots=True)
class Proof:
    """Evidence of a job that passed, and what it depends on."""

    run: str
    cell: str
    """The cell's unique id."""
    job: str
    at: datetime
    """When it was produced."""
    prepared: Prepared


class ProofStore(Protocol):
    """Which jobs are proven by what, so that the unchanged is not run again.

    Each method is one transaction. Only what really ran is ever a proof: of a reused job the
    first cell stays the source, however often it is reused.
    """

    def prepare(self, attempt_id: str, prepared: Prepared) -> None:
        """Store or replace what an attempt was prepared with."""
        ...

    def preparations(self, cell_id: str) -> list[Prepared]:
        """Of its attempts, in their order; those that were not prepared are left out."""
        ...

    def prove(self, cell_id: str, jobs: Mapping[str, datetime]) -> None:
        """Keep jobs that passed, with when their evidence was produced; the first word stands.

        They depend on what the cell's last attempt was prepared with.
        """
        ...

    def find(self, asked: str, job: str, *, limit: int) -> list[Proof]:
        """Those of the same asked-for ingredients in cells that are done, newest first."""
        ...

    def newest(self, product: str, platform: str, environment: str, job: str) -> Proof | None:
        """The newest one of a job there, whatever it depends on."""
        ...

    def decide(self, cell_id: str, reuses: Sequence[Reuse], *, at: datetime) -> None:
        """Write down what becomes of each of the cell's jobs, once: the first decision stands."""
        ...

    def decided(self, cell_id: str) -> Mapping[str, Reuse]:
        """By job; empty while nothing was decided, and where nobody asked."""
        ...

    def decisions(self, cell_ids: Sequence[str]) -> Mapping[str, Mapping[str, Reuse]]:
        """The same of many cells, by cell id; those without a decision are left out."""
        ...
