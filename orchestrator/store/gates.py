"""Policies, verdicts, waivers and approvals; append-only."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Row, Select, and_, exists, func, not_, or_, select, update
from sqlalchemy.orm import Session

from orchestrator.domain.caller_identity import Person
from orchestrator.domain.cell import RunState
from orchestrator.domain.copied_fields import filled
from orchestrator.domain.gate.payload_review import PayloadReview
from orchestrator.domain.gate.snapshot import Approval, Waiver
from orchestrator.domain.gate.verdict import Decision, PublicKey, StoredPolicy, StoredVerdict
from orchestrator.domain.outcome import Outcome, TestOutcome
from orchestrator.store import reuse
from orchestrator.store.column_types import short
from orchestrator.store.reuse import LastGreen
from orchestrator.store.sql import ListPage, PageAsked, changed, insert_into, values_of
from orchestrator.store.tables import (
    ApprovalRow,
    CellRow,
    GatePolicyRow,
    PayloadReviewRow,
    PolicyRow,
    RunRow,
    SigningKeyRow,
    TestResultRow,
    VerdictRow,
    VerdictRunRow,
    WaiverRow,
)
from orchestrator.store.verdict_rows import VerdictLines, keep_verdict, read_verdicts


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWaiver:
    """A waiver with the verdict that its author read."""

    waiver: Waiver
    verdict: str
    """Id of the named verdict, else of the gate's newest; empty without one."""
    evidence_digest: str
    """sha256 of the evidence of that verdict."""


_ID = re.compile(r"V-0*([1-9][0-9]{0,8})")
_WAIVER = re.compile(r"W-0*([1-9][0-9]{0,8})")
_PASSED = (Decision.PASS, Decision.PASS_WITH_EXCEPTIONS)
_FAILED = (Outcome.FAILED, Outcome.TIMED_OUT)
_FAILED_TEST = (TestOutcome.FAILED, TestOutcome.ERROR)


class _VerdictKeptError(Exception):
    """The key already has a verdict, so the transaction is rolled back."""


class GateStore(VerdictLines):
    """Policies, verdicts, waivers and approvals; append-only.

    Each method is one transaction.
    """

    def put_policy(self, policy: StoredPolicy) -> StoredPolicy:
        """Store a policy as the present policy of its gate; idempotent.

        Concurrent policies each become a version of the gate. Raises InvalidDocumentError for a
        policy of another product than the gate's.
        """
        with self._sessions.write() as session:
            return keep_policy(session, policy)

    def policy(self, gate: str) -> StoredPolicy | None:
        """Return the gate's present policy, or None for an unknown gate."""
        with self._sessions.read() as session:
            row = _present(session, gate)
            return _policy(*row) if row else None

    def policy_version(self, digest: str) -> StoredPolicy | None:
        """Return the version with a digest, as it was first stored."""
        query = _policies().where(PolicyRow.digest == digest).order_by(GatePolicyRow.pk).limit(1)
        with self._sessions.read() as session:
            row = session.execute(query).one_or_none()
            return _policy(*row) if row else None

    def policies(self, page: PageAsked[str] | None = None) -> ListPage[StoredPolicy, str]:
        """Return the present policy of each gate, by name."""
        newest = select(func.max(GatePolicyRow.pk)).group_by(GatePolicyRow.gate)
        query = _policies().where(GatePolicyRow.pk.in_(newest))
        return self._sessions.page(query, GatePolicyRow.gate, page).each(_policy)

    def policy_history(
        self, gate: str, page: PageAsked[int] | None = None
    ) -> ListPage[StoredPolicy, int]:
        """Return versions of the gate's policy, newest first."""
        query = _policies().where(GatePolicyRow.gate == gate)
        found = self._sessions.page(query, GatePolicyRow.number, page, newest_first=True)
        return found.each(_policy)

    def add_verdict(
        self, verdict: StoredVerdict, *, key: str = "", policy: StoredPolicy | None = None
    ) -> StoredVerdict:
        """Store a verdict under a new id, together with `policy`; idempotent by key.

        If the key already has a verdict, return that one and store nothing. Raises the errors of
        `put_policy`.
        """
        try:
            with self._sessions.write() as session:
                if policy is not None:
                    keep_policy(session, policy)
                added = keep_verdict(session, verdict, key=short(key) if key else None)
                if added is None:
                    raise _VerdictKeptError
                return read_verdicts(session, select(VerdictRow).where(VerdictRow.pk == added))[0]
        except _VerdictKeptError:
            with self._sessions.read() as session:
                return read_verdicts(session, _of_key(key))[0]

    def verdict(self, verdict_id: str) -> StoredVerdict | None:
        """Return the verdict, or None."""
        number = _ID.fullmatch(verdict_id)
        if number is None:
            return None
        query = select(VerdictRow).where(VerdictRow.pk == int(number[1]))
        return self._first(query)

    def verdict_of_key(self, key: str) -> StoredVerdict | None:
        """Return the verdict stored with a key, or None."""
        return self._first(_of_key(key))

    def verdicts(
        self,
        *,
        gate: str | None = None,
        lineage: str | None = None,
        run: str | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> list[StoredVerdict]:
        """Return verdicts, newest first; `before` is a cursor, `run` is one of their runs."""
        query = select(VerdictRow).order_by(VerdictRow.pk.desc()).limit(limit)
        if gate is not None:
            query = query.where(VerdictRow.gate == gate)
        if lineage is not None:
            query = query.where(VerdictRow.lineage == lineage)
        if run is not None:
            of_run = select(VerdictRunRow.verdict).where(VerdictRunRow.run_id == run)
            query = query.where(VerdictRow.pk.in_(of_run))
        number = _ID.fullmatch(before or "")
        if number is not None:
            query = query.where(VerdictRow.pk < int(number[1]))
        with self._sessions.read() as session:
            return read_verdicts(session, query)

    def last_passed(self, gate: str, *, without: Collection[str] = ()) -> StoredVerdict | None:
        """Return the gate's PASS or PASS_WITH_EXCEPTIONS of the newest runs.

        Verdicts on any run in `without` and verdicts on partial reruns only do not count.
        """
        query = select(VerdictRow).where(VerdictRow.gate == gate, VerdictRow.decision.in_(_PASSED))
        theirs = select(VerdictRunRow.verdict).where(VerdictRunRow.run_id.in_(without))
        query = query.where(VerdictRow.pk.not_in(theirs))
        query = query.order_by(VerdictRow.last_run.desc(), VerdictRow.pk.desc())
        with self._sessions.read() as session:
            known = session.scalars(query.with_only_columns(VerdictRow.pk))
            found = next((pk for pk in known if _has_whole_run(session, pk)), None)
            if found is None:
                return None
            return read_verdicts(session, select(VerdictRow).where(VerdictRow.pk == found))[0]

    def evaluated_runs(self, gate: str, *, before_run: str) -> list[str]:
        """Return the runs before `before_run` that have a verdict of the gate, newest first."""
        query = (
            select(VerdictRunRow.run_id)
            .join(VerdictRow, VerdictRow.pk == VerdictRunRow.verdict)
            .where(VerdictRow.gate == gate, VerdictRunRow.run_id < before_run)
            .order_by(VerdictRunRow.run_id.desc())
            .distinct()
        )
        return list(self._sessions.scalars(query))

    def newest_finished(self, product: str) -> str | None:
        """Return the product's newest finished run, without partial reruns."""
        done = (RunRow.product == product, RunRow.state == RunState.FINISHED)
        original = select(func.max(RunRow.id)).where(*done, RunRow.rerun_of.is_(None))
        again = select(RunRow.id).where(*done, RunRow.rerun_of.is_not(None))
        with self._sessions.read() as session:
            newest = session.scalar(original)
            later = again.where(RunRow.id > (newest or "")).order_by(RunRow.id.desc())
            whole = (one for one in session.scalars(later) if reuse.is_whole(session, one))
            return next(whole, newest)

    def failed_runs(self, product: str, *, since: datetime, until: datetime) -> list[str]:
        """Return the product's runs with a failed cell or test, oldest first.

        Reruns, confirmation runs and cancelled runs count too, and an unfinished run if a test has
        failed in it.

        Args:
            product: The product of the runs.
            since: Earliest end of a finished run, or launch of an unfinished one.
            until: Latest end of a finished run, or launch of an unfinished one.
        """
        failed = exists().where(CellRow.run_id == RunRow.id, CellRow.outcome.in_(_FAILED))
        failing = exists().where(
            CellRow.run_id == RunRow.id,
            TestResultRow.cell == CellRow.pk,
            TestResultRow.final,
            TestResultRow.outcome.in_(_FAILED_TEST),
        )
        is_over = RunRow.state == RunState.FINISHED
        ended_then = RunRow.finished_at.between(since, until)
        goes_on = and_(not_(is_over), RunRow.created_at.between(since, until))
        query = (
            select(RunRow.id)
            .where(RunRow.product == product)
            .where(or_(and_(is_over, ended_then, failed), and_(goes_on, or_(failed, failing))))
            .order_by(RunRow.id)
        )
        return list(self._sessions.scalars(query))

    def last_green(
        self, product: str, platform: str, *, before_run: str = "", ingested: bool = True
    ) -> LastGreen | None:
        """Return the newest run before `before_run` in which the platform passed on real machines.

        `ingested` says whether ingested evidence counts. Simulated machines never count, nor do
        runs of some jobs only: reruns of failed jobs, confirmation runs, bisections.
        """
        asked = reuse.ReuseQuery(product, platform, before_run, ingested)
        with self._sessions.read() as session:
            return reuse.last_green(session, asked)

    def green_streak(
        self, product: str, platform: str, *, before_run: str, ingested: bool = True
    ) -> int:
        """Return the platform's number of consecutive passing runs before `before_run`; up to 100.

        The same runs count as in `last_green`.
        """
        asked = reuse.ReuseQuery(product, platform, before_run, ingested)
        with self._sessions.read() as session:
            return reuse.streak(session, asked)

    def add_waiver(self, waiver: StoredWaiver) -> StoredWaiver:
        """Store a waiver under a new id; the given id is ignored. Not idempotent."""
        with self._sessions.write() as session:
            row = WaiverRow(
                gate=waiver.waiver.gate,
                document=replace(waiver.waiver, id=""),
                verdict=waiver.verdict,
                evidence_digest=waiver.evidence_digest,
            )
            session.add(row)
            session.flush()
            return _waiver(row)

    def waivers(
        self, *, gate: str | None = None, page: PageAsked[int] | None = None
    ) -> ListPage[StoredWaiver, int]:
        """Return waivers by id, expired ones included."""
        query = select(WaiverRow)
        if gate is not None:
            query = query.where(WaiverRow.gate == gate)
        return self._sessions.page(query, WaiverRow.pk, page).each(_waiver)

    def approve_waiver(self, waiver_id: str, *, by: Person, at: datetime) -> StoredWaiver | None:
        """Store a waiver's approver; the first one is kept. None for an unknown waiver."""
        number = _WAIVER.fullmatch(waiver_id)
        if number is None:
            return None
        with self._sessions.write() as session:
            row = session.get(WaiverRow, int(number[1]), with_for_update=True)
            if row is None:
                return None
            if row.document.approved_at is None:
                row.document = replace(
                    row.document, approver=by.name, approver_token=by.token, approved_at=at
                )
                session.flush()
            return _waiver(row)

    def add_approval(self, gate: str, approval: Approval) -> Approval:
        """Store a person's approval of evidence; their first one is kept."""
        by, token = short(approval.by), approval.token or None
        given = {"gate": gate, "evidence": approval.evidence, "by": by}
        said = {"at": approval.at, "token": token}
        same = (
            ApprovalRow.gate == gate,
            ApprovalRow.evidence == approval.evidence,
            ApprovalRow.by == by,
        )
        with self._sessions.write() as session:
            new = insert_into(session, ApprovalRow).values({**given, **said})
            session.execute(new.on_conflict_do_nothing())
            if token:  # an approval with a token replaces one whose name was only typed
                typed = update(ApprovalRow).where(*same, ApprovalRow.token.is_(None))
                changed(session, typed.values(said))
            return _approval(session.scalars(select(ApprovalRow).where(*same)).one())

    def approvals(
        self, gate: str, *, evidence: str | None = None, page: PageAsked[int] | None = None
    ) -> ListPage[Approval, int]:
        """Return the gate's approvals, or those of one evidence digest, oldest first."""
        query = select(ApprovalRow).where(ApprovalRow.gate == gate)
        if evidence is not None:
            query = query.where(ApprovalRow.evidence == evidence)
        return self._sessions.page(query, ApprovalRow.pk, page).each(_approval)

    def add_review(self, review: PayloadReview) -> PayloadReview:
        """Store a payload review under a new id; the given id is ignored."""
        with self._sessions.write() as session:
            row = PayloadReviewRow(payload=review.payload, document=replace(review, id=""))
            session.add(row)
            session.flush()
            return _review(row)

    def reviews(
        self, payloads: Collection[str] | None = None, page: PageAsked[int] | None = None
    ) -> ListPage[PayloadReview, int]:
        """Return reviews by id, expired ones included; of these payloads, or of all."""
        query = select(PayloadReviewRow)
        if payloads is not None:
            query = query.where(PayloadReviewRow.payload.in_(payloads))
        return self._sessions.page(query, PayloadReviewRow.pk, page).each(_review)

    def add_key(self, key: PublicKey) -> PublicKey:
        """Register a public key; a known one is unchanged."""
        values = values_of(SigningKeyRow, key)
        with self._sessions.write() as session:
            new = insert_into(session, SigningKeyRow).values(values).on_conflict_do_nothing()
            changed(session, new)
            return _key(session.get_one(SigningKeyRow, key.id))

    def signing_keys(self) -> list[PublicKey]:
        """Return signing keys, oldest first, retired ones included."""
        query = select(SigningKeyRow).order_by(SigningKeyRow.created_at, SigningKeyRow.id)
        return [_key(row) for row in self._sessions.scalars(query)]

    def retire_key(self, key_id: str, *, at: datetime) -> PublicKey | None:
        """Retire a key now; idempotent. None for an unknown key."""
        with self._sessions.write() as session:
            row = session.get(SigningKeyRow, key_id, with_for_update=True)
            if row is None:
                return None
            row.retired_at = row.retired_at or at
            session.flush()
            return _key(row)

    def _first(self, query: Select[VerdictRow]) -> StoredVerdict | None:
        with self._sessions.read() as session:
            return next(iter(read_verdicts(session, query.limit(1))), None)


def _has_whole_run(session: Session, verdict: int) -> bool:
    """Return whether any run of the verdict is no partial rerun; True without runs."""
    query = select(VerdictRunRow.run_id).where(VerdictRunRow.verdict == verdict)
    runs = session.scalars(query).all()
    return not runs or any(reuse.is_whole(session, run) for run in runs)


def _policies() -> Select[GatePolicyRow, PolicyRow]:
    joined = GatePolicyRow.digest == PolicyRow.digest
    return select(GatePolicyRow, PolicyRow).join(PolicyRow, joined)


def _present(session: Session, gate: str) -> Row[GatePolicyRow, PolicyRow] | None:
    query = _policies().where(GatePolicyRow.gate == gate)
    return session.execute(query.order_by(GatePolicyRow.number.desc()).limit(1)).one_or_none()


def keep_policy(session: Session, policy: StoredPolicy) -> StoredPolicy:
    """Store a policy as `GateStore.put_policy` does, in the caller's transaction."""
    present = _present(session, policy.gate)
    # Of two concurrent transactions the second finds the number taken, and uses the next one.
    while present is None or present[0].digest != policy.digest:
        if present is not None:
            policy.refuse_other_product(_policy(*present), name=f"gate {policy.gate}")
        _put_next(session, policy, number=present[0].number + 1 if present else 1)
        present = _present(session, policy.gate)
    return _policy(*present)


def _of_key(key: str) -> Select[VerdictRow]:
    return select(VerdictRow).where(VerdictRow.key == short(key))


def _put_next(session: Session, policy: StoredPolicy, *, number: int) -> None:
    """Insert the gate's next policy version, unless the number is taken."""
    version = values_of(PolicyRow, policy)
    session.execute(insert_into(session, PolicyRow).values(version).on_conflict_do_nothing())
    line = values_of(GatePolicyRow, policy, number=number)
    session.execute(insert_into(session, GatePolicyRow).values(line).on_conflict_do_nothing())


def _policy(line: GatePolicyRow, version: PolicyRow) -> StoredPolicy:
    return filled(StoredPolicy, version, gate=line.gate, since=line.since, by=line.by)


def _waiver(row: WaiverRow) -> StoredWaiver:
    known = replace(row.document, id=f"W-{row.pk:04d}")
    return StoredWaiver(waiver=known, verdict=row.verdict, evidence_digest=row.evidence_digest)


def _review(row: PayloadReviewRow) -> PayloadReview:
    return replace(row.document, id=f"R-{row.pk:04d}")


def _approval(row: ApprovalRow) -> Approval:
    return Approval(by=row.by, token=row.token or "", at=row.at, evidence=row.evidence)


def _key(row: SigningKeyRow) -> PublicKey:
    return filled(PublicKey, row)
