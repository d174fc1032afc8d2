"""Stores verdicts, and reads them for lists: with rules, but without the rules' inputs."""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Select, func, insert, literal, select, union_all
from sqlalchemy.orm import Session, aliased
from sqlalchemy.sql.selectable import ScalarSelect

from orchestrator.domain.cell import RunState
from orchestrator.domain.copied_fields import filled
from orchestrator.domain.gate.gate_documents import canonical, read_verdict, verdict_document
from orchestrator.domain.gate.verdict import (
    Decision,
    RuleLine,
    RuleOutcome,
    StoredVerdict,
    VerdictLine,
)
from orchestrator.store.errors import DamagedError
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import insert_into, slices
from orchestrator.store.tables import RunRow, VerdictRow, VerdictRunRow


def keep_verdict(session: Session, verdict: StoredVerdict, *, key: str | None) -> int | None:
    """Store a verdict with its runs; return its number, or None if the key has one already."""
    values = {
        "key": key,
        "gate": verdict.gate,
        "lineage": verdict.lineage,
        "decision": verdict.verdict.decision,
        "policy_digest": verdict.verdict.policy_digest,
        "last_run": max(verdict.runs, default=""),
        "created_at": verdict.created_at,
        "document": canonical(verdict_document(verdict.verdict)).decode(),
        "snapshot_digest": verdict.snapshot_digest,
        "document_digest": verdict.document_digest,
        "envelope_digest": verdict.envelope_digest,
        "key_id": verdict.key_id,
    }
    new = insert_into(session, VerdictRow).values(values).on_conflict_do_nothing()
    added = session.scalars(new.returning(VerdictRow.pk)).one_or_none()
    rows = [
        {"verdict": added, "position": position, "run_id": run}
        for position, run in enumerate(verdict.runs)
    ]
    if added is not None and rows:
        session.execute(insert(VerdictRunRow), rows)
    return added


def read_verdicts(session: Session, query: Select[VerdictRow]) -> list[StoredVerdict]:
    """Return the verdicts of a query, in its order."""
    rows = session.scalars(query).all()
    runs = runs_of_verdicts(session, [row.pk for row in rows])
    return [_verdict(row, runs.get(row.pk, [])) for row in rows]


def runs_of_verdicts(session: Session, verdicts: Sequence[int]) -> Mapping[int, list[str]]:
    """Return the runs of each of these verdicts, in order."""
    found: dict[int, list[str]] = {}
    for some in slices(verdicts):
        query = select(VerdictRunRow.verdict, VerdictRunRow.run_id)
        query = query.where(VerdictRunRow.verdict.in_(some)).order_by(VerdictRunRow.position)
        for verdict, run in session.execute(query):
            found.setdefault(verdict, []).append(run)
    return found


def _verdict(row: VerdictRow, runs: Sequence[str]) -> StoredVerdict:
    try:
        verdict = read_verdict(json.loads(row.document))
    except ValueError as error:
        raise DamagedError(f"the stored verdict V-{row.pk:04d} cannot be read back") from error
    return filled(StoredVerdict, row, id=f"V-{row.pk:04d}", verdict=verdict, runs=tuple(runs))


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageHead:
    """The newest verdict of a gate's lineage."""

    newest: VerdictLine
    since: datetime
    """When the present decision of the lineage began."""
    first: str
    """Id of the first verdict with that decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductRuns:
    """Newest runs of a product, without reruns, confirmation runs and bisections."""

    newest_finished: str = ""
    newest_unfinished: str = ""


LINES_KEPT = 300
_ID = re.compile(r"V-0*([1-9][0-9]{0,8})")
Key = tuple[int, str]
"""Number of a verdict, and the digest of its document."""


class VerdictLines:
    """Verdict lists. Each method is one transaction of a fixed number of statements."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._read = ReadLines()

    def lineage_heads(self, *, gate: str | None = None) -> list[LineageHead]:
        """Return the newest verdict of every lineage, by gate and lineage."""
        newest = select(func.max(VerdictRow.pk)).group_by(VerdictRow.gate, VerdictRow.lineage)
        if gate is not None:
            newest = newest.where(VerdictRow.gate == gate)
        rows = select(VerdictRow).where(VerdictRow.pk.in_(newest))
        with self._sessions.read() as session:
            lines = self._lines(session, rows.order_by(VerdictRow.gate, VerdictRow.lineage))
            since = _since(session, [_number(line.id) for line in lines])
        return [
            LineageHead(newest=line, first=_name(pk), since=at)
            for line in lines
            for pk, at in (since[_number(line.id)],)
        ]

    def verdict_lines(
        self,
        gate: str,
        *,
        lineage: str | None = None,
        limit: int = 20,
        before: str | None = None,
        after: str | None = None,
    ) -> list[VerdictLine]:
        """Return verdicts of a gate, newest first; with `after`, the next ones, oldest first."""
        order = VerdictRow.pk.asc() if after else VerdictRow.pk.desc()
        query = select(VerdictRow).where(VerdictRow.gate == gate).order_by(order).limit(limit)
        if lineage is not None:
            query = query.where(VerdictRow.lineage == lineage)
        if before and _ID.fullmatch(before):
            query = query.where(VerdictRow.pk < _number(before))
        if after and _ID.fullmatch(after):
            query = query.where(VerdictRow.pk > _number(after))
        with self._sessions.read() as session:
            return self._lines(session, query)

    def product_runs(self, products: Sequence[str]) -> Mapping[str, ProductRuns]:
        """Return the newest runs by product, in one statement."""
        if not products:
            return {}
        asked = [
            select(
                literal(product).label("product"),
                _newest(product, is_finished=True).label("finished"),
                _newest(product, is_finished=False).label("unfinished"),
            )
            for product in sorted(set(products))
        ]
        return {
            product: ProductRuns(newest_finished=finished or "", newest_unfinished=unfinished or "")
            for product, finished, unfinished in self._sessions.rows(union_all(*asked))
        }

    def _lines(self, session: Session, query: Select[VerdictRow]) -> list[VerdictLine]:
        """Return verdict lines; documents are immutable and read once."""
        named = query.with_only_columns(VerdictRow.pk, VerdictRow.document_digest)
        keys: list[Key] = [(row[0], row[1]) for row in session.execute(named)]
        known = self._read.find(keys)
        lacking = [pk for pk, digest in keys if (pk, digest) not in known]
        if lacking:
            rows = session.scalars(select(VerdictRow).where(VerdictRow.pk.in_(lacking))).all()
            runs = runs_of_verdicts(session, lacking)
            read = {(row.pk, row.document_digest): _line(row, runs.get(row.pk, ())) for row in rows}
            self._read.keep(read)
            known |= read
        return [known[key] for key in keys]


class ReadLines:
    """Cache of verdict lines, limited to a few megabytes."""

    def __init__(self) -> None:
        self._lines: OrderedDict[Key, VerdictLine] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, keys: Sequence[Key]) -> dict[Key, VerdictLine]:
        """Return the cached lines of these verdicts."""
        with self._lock:
            found = {key: self._lines[key] for key in keys if key in self._lines}
            for key in found:
                self._lines.move_to_end(key)
            return found

    def keep(self, lines: Mapping[Key, VerdictLine]) -> None:
        """Cache these lines; drop the least recently used ones."""
        with self._lock:
            self._lines.update(lines)
            while len(self._lines) > LINES_KEPT:
                self._lines.popitem(last=False)


def _newest(product: str, *, is_finished: bool) -> ScalarSelect[str]:
    state = RunRow.state == RunState.FINISHED if is_finished else RunRow.state != RunState.FINISHED
    mine = (RunRow.product == product, RunRow.rerun_of.is_(None), state)
    return select(func.max(RunRow.id)).where(*mine).scalar_subquery()


def _since(session: Session, newest: Sequence[int]) -> Mapping[int, tuple[int, datetime]]:
    """Return by verdict the number and time of the first one in a row with its decision."""
    if not newest:
        return {}
    mine, other, first = aliased(VerdictRow), aliased(VerdictRow), aliased(VerdictRow)
    same_line = (other.gate == mine.gate, other.lineage == mine.lineage)
    changed = select(func.max(other.pk)).where(*same_line, other.decision != mine.decision)
    after = func.coalesce(changed.correlate(mine).scalar_subquery(), 0)
    begun = select(func.min(first.pk)).where(
        first.gate == mine.gate, first.lineage == mine.lineage, first.pk > after
    )
    query = select(mine.pk, begun.correlate(mine).scalar_subquery()).where(mine.pk.in_(newest))
    firsts = {row[0]: row[1] for row in session.execute(query)}
    told = select(VerdictRow.pk, VerdictRow.created_at).where(VerdictRow.pk.in_(firsts.values()))
    times = {row[0]: row[1] for row in session.execute(told)}
    return {pk: (start, times[start]) for pk, start in firsts.items()}


def _line(row: VerdictRow, runs: Sequence[str]) -> VerdictLine:
    try:
        told = json.loads(row.document)
        return VerdictLine(
            id=_name(row.pk),
            gate=row.gate,
            lineage=row.lineage,
            decision=Decision(row.decision),
            summary=told["summary"],
            at=datetime.fromisoformat(told["at"]),
            created_at=row.created_at,
            subject=told["subject"],
            runs=tuple(runs),
            policy_digest=row.policy_digest,
            rules=tuple(_rule(one) for one in told["rules"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedError(f"the stored verdict {_name(row.pk)} cannot be read back") from error


def _rule(document: Mapping[str, object]) -> RuleLine:
    outcome, blocking = RuleOutcome(str(document["outcome"])), document["blocking"] is True
    is_asked = blocking and outcome in (RuleOutcome.UNKNOWN, RuleOutcome.VIOLATED)
    return RuleLine(
        id=str(document["id"]),
        kind=str(document["kind"]),
        blocking=blocking,
        outcome=outcome,
        sentence=str(document["sentence"]) if is_asked else "",
    )


def _name(pk: int) -> str:
    return f"V-{pk:04d}"


def _number(verdict_id: str) -> int:
    found = _ID.fullmatch(verdict_id)
    return int(found[1]) if found else 0
