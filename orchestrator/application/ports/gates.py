"""Policies, verdicts, waivers and approvals. Nothing of it is ever changed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from orchestrator.application.ports.signer import PublicKey
from orchestrator.application.ports.verdict_lines import VerdictLines
from orchestrator.domain.gate.payload_review import PayloadReview
from orchestrator.domain.gate.snapshot import Approval, Waiver
from orchestrator.domain.gate.verdict import Verdict
from orchestrator.domain.person import Person


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPolicy:
    """One version of a policy, and since when it stands at its gate."""

    gate: str
    product: str
    digest: str
    """Of what it says: it stays when only comments or layout change."""
    text: str
    """The file as it came."""
    document: str
    """The same with every default spelled out, as canonical JSON; `digest` is of these bytes."""
    first_seen: datetime
    """When this version was first put, at any gate."""
    since: datetime
    """When it became this gate's policy; a version that comes back has a new line."""
    by: str = ""
    """Who put it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVerdict:
    """A verdict and where the bytes are that it was made from. All digests are of blobs."""

    id: str
    """``V-0001``; empty of one that is about to be stored."""
    gate: str
    verdict: Verdict
    runs: tuple[str, ...]
    """Whose evidence it is about."""
    lineage: str
    """The line of verdicts that it stands in; the gate's name where nobody says."""
    created_at: datetime
    snapshot_digest: str
    """Of the frozen evidence with the waivers and approvals that it was made with."""
    document_digest: str
    """Of the verdict's canonical bytes."""
    envelope_digest: str
    """Of the signed statements."""
    key_id: str
    """Who signed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWaiver:
    """A waiver, and what its author had before them."""

    waiver: Waiver
    verdict: str
    """Its id: the one that they named, else the gate's newest; empty if there was none."""
    seen: str
    """That verdict's evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastGreen:
    """The newest run in which a platform passed."""

    run_id: str
    cell_id: str
    """Of its first environment."""
    cell: str
    """Its name."""
    collected: int
    """Tests of all its environments."""
    streak: int
    """So many runs in a row, this one the newest, in which it passed; counted up to 100."""


class GateStore(VerdictLines, Protocol):
    """Policies, verdicts, waivers and approvals. Nothing of it is ever changed.

    Each method is one transaction.
    """

    def put_policy(self, policy: StoredPolicy) -> StoredPolicy:
        """Make it its gate's policy; the one that stands already changes nothing.

        Of several that are put at once each becomes a version of the gate. A gate keeps its
        product: a policy of another one is not stored, and the answer is the one that stands.
        """
        ...

    def policy(self, gate: str) -> StoredPolicy | None:
        """The gate's present policy, or None where there is no such gate."""
        ...

    def policy_version(self, digest: str) -> StoredPolicy | None:
        """The version of a digest, as it was first put."""
        ...

    def policies(self) -> list[StoredPolicy]:
        """The present one of every gate, by the gate's name."""
        ...

    def policy_history(self, gate: str) -> list[StoredPolicy]:
        """Every policy that the gate had, newest first."""
        ...

    def add_verdict(self, verdict: StoredVerdict, *, key: str = "") -> StoredVerdict:
        """Store it under a new id. With a key it is stored once: the first one is the answer."""
        ...

    def verdict(self, verdict_id: str) -> StoredVerdict | None:
        """The verdict, or None."""
        ...

    def verdict_of_key(self, key: str) -> StoredVerdict | None:
        """What was stored with a key, or None."""
        ...

    def verdicts(
        self,
        *,
        gate: str | None = None,
        lineage: str | None = None,
        run: str | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> list[StoredVerdict]:
        """Newest first; `before` is the id of the last one seen, `run` one whose evidence it is."""
        ...

    def last_passed(self, gate: str, *, before_run: str = "") -> StoredVerdict | None:
        """The gate's newest PASS or PASS_WITH_EXCEPTIONS, of runs before that one.

        Verdicts of nothing but reruns of some jobs do not count.
        """
        ...

    def newest_finished(self, product: str) -> str | None:
        """Id of the product's newest finished run; reruns of some jobs alone do not count."""
        ...

    def failed_runs(self, product: str, *, since: datetime, until: datetime) -> list[str]:
        """Ids of the product's finished runs in which a cell failed, oldest first.

        However they were launched: runs of their own, reruns, second machines, cancelled ones.

        Args:
            product: Of the runs.
            since: They ended then or later,
            until: and then or earlier.
        """
        ...

    def last_green(
        self, product: str, platform: str, *, before_run: str = "", ingested: bool = True
    ) -> LastGreen | None:
        """The newest run, before that one, in which the platform passed on real machines.

        `ingested` says whether what others produced counts. Simulated machines never do, nor
        do runs of some jobs alone: reruns of what failed, second machines, bisections.
        """
        ...

    def green_streak(
        self, product: str, platform: str, *, before_run: str, ingested: bool = True
    ) -> int:
        """How many runs in a row right before that one the platform passed; up to 100.

        Counted as in `last_green`.
        """
        ...

    def add_waiver(self, waiver: StoredWaiver) -> StoredWaiver:
        """Store it under a new id; the given id is not read. Not idempotent."""
        ...

    def waivers(self, *, gate: str | None = None) -> list[StoredWaiver]:
        """By id, those that are over too."""
        ...

    def approve_waiver(self, waiver_id: str, *, by: Person, at: datetime) -> StoredWaiver | None:
        """Say who approved it, once: the first one stands. None where there is none."""
        ...

    def add_approval(self, gate: str, approval: Approval) -> Approval:
        """Store a person's yes to some evidence; their first one stands."""
        ...

    def approvals(self, gate: str, *, evidence: str | None = None) -> list[Approval]:
        """In the order they came."""
        ...

    def add_review(self, review: PayloadReview) -> PayloadReview:
        """Store a person's word about a payload under a new id; the given id is not read."""
        ...

    def reviews(self, payloads: Collection[str] | None = None) -> list[PayloadReview]:
        """By id, those that are over too; of these payloads, by digest, or of all."""
        ...

    def add_key(self, key: PublicKey) -> PublicKey:
        """Make a public key known to every controller; one that is known stays as it is."""
        ...

    def signing_keys(self) -> list[PublicKey]:
        """Oldest first, those that are over too."""
        ...

    def retire_key(self, key_id: str, *, at: datetime) -> PublicKey | None:
        """End it now, once; None where there is none."""
        ...
