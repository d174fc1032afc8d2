"""The ledger: machines and their money, and what the janitor saw. One transaction a method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Protocol

from orchestrator.application.ports.read_models import Spending
from orchestrator.domain.attestation import Attestation
from orchestrator.domain.cell import Lease, PlaceChoice
from orchestrator.domain.machine import Login, Reach


class Reservation(StrEnum):
    """The ledger's answer."""

    RESERVED = "reserved"
    BUSY = "busy"
    """Another lease holds the exclusive place."""
    OVER_BUDGET = "over_budget"


class LeaseStore(Protocol):
    """The ledger: one row per machine, written before the launch call."""

    def reserve(
        self, lease: Lease, *, run_id: str, exclusive: bool, max_usd: Decimal | None
    ) -> Reservation:
        """Set money and place aside. The run's settled costs and open reservations count.

        A lease of this id that exists already answers RESERVED.
        """
        ...

    def get(self, lease_id: str) -> Lease:
        """The lease."""
        ...

    def of_attempt(self, attempt_id: str) -> list[Lease]:
        """In the order they were reserved."""
        ...

    def of_run(self, run_id: str) -> dict[str, list[Lease]]:
        """By cell id."""
        ...

    def spending(self, run_ids: Sequence[str]) -> Mapping[str, Spending]:
        """By run; one without machines is left out."""
        ...

    def open(self) -> list[Lease]:
        """Every lease that is not GONE."""
        ...

    def launching(self, lease_id: str, *, at: datetime) -> None:
        """The provider is about to be asked; a machine may exist from now on."""
        ...

    def held(self, lease_id: str, machine_id: str, *, at: datetime) -> None:
        """The machine's id is known."""
        ...

    def reached(self, lease_id: str, reach: Reach) -> None:
        """How the machine is reached is known."""
        ...

    def releasing(self, lease_id: str) -> None:
        """The provider was told to take it back."""
        ...

    def gone(self, lease_id: str, *, at: datetime, cost_usd: Decimal, refusal: str = "") -> None:
        """Close it; the place and the money not spent are free again. Its login is erased."""
        ...

    def reopen(self, lease_id: str, machine_id: str) -> None:
        """A machine of a lease that is GONE turned up: to RELEASING, to be paid for after all."""
        ...

    def note(self, lease_id: str, facts: Mapping[str, str], *, simulated: bool) -> None:
        """Keep what the provider says the machine is; empty facts change nothing."""
        ...

    def refused_since(self, provider: str, since: datetime) -> list[Lease]:
        """Leases of any run, gone since then, that the provider refused; newest first."""
        ...

    def by_token(self, lease_ids: Iterable[str]) -> dict[str, Lease]:
        """Those of them that the ledger has, by id."""
        ...

    def providers(self) -> list[str]:
        """Every provider that ever stood in the ledger."""
        ...

    def keep_login(self, lease_id: str, login: Login) -> Login:
        """Store the lease's keys; the first ones stand, and are the answer."""
        ...

    def login(self, lease_id: str) -> Login | None:
        """Its keys; None when there are none, or it is gone."""
        ...

    def attest(self, lease_id: str, attestation: Attestation) -> None:
        """Store or replace who produces the results of the lease's attempt."""
        ...

    def attestations(self, run_id: str) -> dict[str, Attestation]:
        """By lease id."""
        ...

    def decide(self, attempt_id: str, decision: PlaceChoice) -> None:
        """Keep one line; the same (place, verdict, reason) of an attempt is kept once."""
        ...

    def decisions(self, run_id: str) -> dict[str, list[PlaceChoice]]:
        """By cell id, in their order, each with its attempt's number."""
        ...


class SightingStore(Protocol):
    """What the janitor saw and knows no owner of: it kills nothing at first sight."""

    def see(
        self, provider: str, machine_ids: Iterable[str], *, at: datetime
    ) -> dict[str, datetime]:
        """Note these, forget all others of the provider; answer when each was first seen."""
        ...
