"""The state of each gate: the newest verdict of every lineage, and runs that it waits for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from orchestrator.application.context import Context
from orchestrator.application.gate_policies import find_policy, policy_of
from orchestrator.application.schedules import next_firing
from orchestrator.domain.gate.policy import GatePolicy, duration
from orchestrator.domain.gate.verdict import Decision, RuleOutcome, StoredPolicy
from orchestrator.domain.grouping import grouped
from orchestrator.domain.schedule import Schedule
from orchestrator.store.verdict_rows import LineageHead, ProductRuns


class WaitReason(StrEnum):
    """The reason for which a gate waits."""

    VERDICT = "verdict"
    """The gate has no verdict."""
    JUDGEMENT = "judgement"
    """A finished run is newer than its last verdict."""
    RUN = "run"
    """A run is in progress."""
    FRESH_EVIDENCE = "fresh_evidence"
    """The evidence is older than the policy allows."""
    POLICY = "policy"
    """The last verdict used another policy."""
    APPROVAL = "approval"
    """An approval is missing."""
    EVIDENCE = "evidence"
    """Blocking rules are unknown."""


@dataclass(frozen=True, slots=True)
class PendingItem:
    """An item that a gate waits for."""

    lack: WaitReason
    run: str = ""
    sentence: str = ""
    """The rule's sentence, where a rule is open."""


@dataclass(frozen=True, slots=True)
class VerdictLineage:
    """A lineage of a gate's verdicts."""

    head: LineageHead
    is_stale: bool
    """Whether its evidence is older than the policy allows."""


@dataclass(frozen=True, slots=True)
class GateSchedule:
    """A schedule whose runs the gate evaluates."""

    schedule: Schedule
    next_at: datetime | None
    """Time of the next firing; None while the schedule is paused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateStatus:
    """The state of one gate."""

    stored: StoredPolicy
    policy: GatePolicy
    lines: tuple[VerdictLineage, ...]
    """Lineages, newest verdict first."""
    waits: tuple[PendingItem, ...]
    schedules: tuple[GateSchedule, ...]
    """Schedules, next due first; paused ones last."""


def gate_statuses(context: Context) -> list[GateStatus]:
    """Return every gate's status, by name, in a fixed number of statements."""
    gates = context.stores.gates
    policies = gates.policies()
    found = grouped((one.newest.gate, one) for one in gates.lineage_heads())
    return _stand(context, policies, found)


def gate_status(context: Context, gate: str) -> GateStatus:
    """Return one gate's status. Raises GateMissingError."""
    stored = find_policy(context, gate)
    return _stand(context, [stored], {gate: context.stores.gates.lineage_heads(gate=gate)})[0]


def _stand(
    context: Context,
    policies: Sequence[StoredPolicy],
    lineage_heads: Mapping[str, Sequence[LineageHead]],
) -> list[GateStatus]:
    runs = context.stores.gates.product_runs([one.product for one in policies])
    schedules = context.stores.schedules.list() if policies else []
    now = context.clock.now()
    statuses = []
    for stored in policies:
        policy = policy_of(stored)
        lines = tuple(_lines(policy, lineage_heads.get(stored.gate, ()), now))
        statuses.append(
            GateStatus(
                stored=stored,
                policy=policy,
                lines=lines,
                waits=tuple(_waits(stored, lines, runs.get(stored.product, ProductRuns()))),
                schedules=_due(context, [one for one in schedules if one.gate == stored.gate]),
            )
        )
    return statuses


def _lines(
    policy: GatePolicy, lineage_heads: Sequence[LineageHead], now: datetime
) -> list[VerdictLineage]:
    believed = duration(policy.spec.evidence.max_age)
    lines = [VerdictLineage(one, now - one.newest.at > believed) for one in lineage_heads]
    return sorted(lines, key=lambda one: one.head.newest.created_at, reverse=True)


def _waits(
    stored: StoredPolicy, lines: Sequence[VerdictLineage], runs: ProductRuns
) -> Iterator[PendingItem]:
    judged = max((run for line in lines for run in line.head.newest.runs), default="")
    if not lines:
        yield PendingItem(WaitReason.VERDICT, runs.newest_finished)
    elif runs.newest_finished > judged:
        yield PendingItem(WaitReason.JUDGEMENT, runs.newest_finished)
    if runs.newest_unfinished > judged:
        yield PendingItem(WaitReason.RUN, runs.newest_unfinished)
    if lines:
        yield from _of_newest(stored, lines[0])


def _of_newest(stored: StoredPolicy, line: VerdictLineage) -> Iterator[PendingItem]:
    newest = line.head.newest
    if line.is_stale:
        yield PendingItem(WaitReason.FRESH_EVIDENCE)
    if newest.policy_digest != stored.digest:
        yield PendingItem(WaitReason.POLICY)
    # A failed verdict waits for nothing, because no coming evidence would change it.
    is_open = newest.decision is Decision.INCONCLUSIVE
    for rule in newest.rules if is_open else ():
        if rule.blocking and rule.outcome is RuleOutcome.UNKNOWN:
            lack = WaitReason.APPROVAL if rule.kind == "approval" else WaitReason.EVIDENCE
            yield PendingItem(lack, sentence=rule.sentence)


def _due(context: Context, schedules: Sequence[Schedule]) -> tuple[GateSchedule, ...]:
    now = context.clock.now()
    found = [GateSchedule(one, next_firing(context, one, now)) for one in schedules]
    return tuple(sorted(found, key=lambda one: (one.next_at is None, one.next_at or now)))
