"""Prunes what no rule keeps: in short steps, bounded in time, safe to interrupt and to repeat."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import TypeVar

from orchestrator.application.context import Context
from orchestrator.domain.blobs import StoredBlob
from orchestrator.domain.retention import (
    Amount,
    KeepRule,
    PruneLine,
    PruneReport,
    RetentionPolicy,
    RunPart,
)

T = TypeVar("T")
logger = logging.getLogger(__name__)

EVERY = timedelta(days=1)
"""Interval of the prunes that a controller begins by itself."""
TIME_LIMIT = timedelta(seconds=20)
"""Time limit of one call; the next call prunes the rest."""
_RUNS_AT_ONCE = 50
_BLOBS_AT_ONCE = 200
_UNUSED = KeepRule(1, "from when nothing refers to it; payloads: SEATRIAL_KEEP_PAYLOADS_DAYS")
_ELSEWHERE = (
    "this controller runs no cells: the engine's records are pruned by one that does",
    "of several controllers, each prunes the wheels, copies and reports of its own home",
)


class PruneBusyError(RuntimeError):
    """Another prune of the same database is running."""


def preview(context: Context, *, days: int | None = None) -> PruneReport:
    """Return what would be pruned now; removes nothing.

    `days` takes the place of every number of days in the policy, except for what it never prunes.
    """
    return _Prune(context, _policy(context, days), dry=True, until=None).run()


def prune(
    context: Context, *, days: int | None = None, time_limit: timedelta = TIME_LIMIT
) -> PruneReport:
    """Remove what is not kept, as long as there is time; `days` as in `preview`.

    Raises PruneBusyError.
    """
    with context.stores.retention.alone() as alone:
        if not alone:
            raise PruneBusyError("another prune is running: wait for it, or ask again later")
        until = context.clock.now() + time_limit
        report = _Prune(context, _policy(context, days), dry=False, until=until).run()
        if report.is_complete:
            context.stores.retention.end(at=context.clock.now())
    if report.rows:
        said = ", ".join(f"{line.rows} {line.what}" for line in report.lines if line.rows)
        logger.info("pruned %s (%d bytes)", said, report.size_bytes)
    return report


def prune_when_due(context: Context) -> None:
    """Prune by policy where the last prune is a day ago; another controller's counts as well."""
    last = context.stores.retention.last()
    if last is not None and context.clock.now() - last < EVERY:
        return
    try:
        prune(context)
    except PruneBusyError:
        logger.debug("another controller prunes")


def _policy(context: Context, days: int | None) -> RetentionPolicy:
    policy = context.retention.policy
    return policy if days is None else policy.narrowed(days)


@dataclass(slots=True)
class _PruneLine:
    """One line of the report."""

    what: str
    rule: KeepRule
    work: Callable[[datetime], Iterator[Amount]]
    """Prunes in short parts, or only counts."""


class _Prune:
    """One prune, or its preview."""

    def __init__(
        self, context: Context, policy: RetentionPolicy, *, dry: bool, until: datetime | None
    ) -> None:
        self._context = context
        self._store = context.stores.retention
        self._policy = policy
        self._dry = dry
        self._until = until
        self._now = context.clock.now()

    def run(self) -> PruneReport:
        """Do each step in turn."""
        lines, is_complete, last = [], True, self._store.last()
        for step in self._steps():
            before, total = step.rule.before(self._now), Amount()
            if before is not None and is_complete:
                for amount in step.work(before):
                    total += amount
                    if self._is_late():
                        is_complete = False
                        break
            lines.append(PruneLine(step.what, total.rows, total.size_bytes, step.rule.text))
        if not self._dry:
            self._store.give_back(self._is_late)
        before = self._policy.logs.before(self._now)
        return PruneReport(
            at=self._now,
            dry_run=self._dry,
            is_complete=is_complete,
            lines=tuple(lines),
            kept=self._store.kept(before) if before is not None else {},
            remarks=tuple(self._remarks()),
            last_at=last,
        )

    def _is_late(self) -> bool:
        return self._until is not None and self._context.clock.now() > self._until

    def _steps(self) -> Iterator[_PruneLine]:
        policy = self._policy
        yield _PruneLine("logs", policy.logs, self._logs)
        yield _PruneLine("artifacts", policy.artifacts, self._artifacts)
        yield _PruneLine("reports", policy.artifacts, self._reports)
        yield _PruneLine("blobs", _UNUSED, self._blobs)
        for name in self._store.history(self._now):
            yield _PruneLine(name, policy.history, partial(self._history, name))
        yield _PruneLine("flows", policy.caches, self._flows)
        yield _PruneLine("wheels", policy.caches, self._wheels)
        yield _PruneLine("local copies", policy.caches, self._copies)

    def _runs(self, part: RunPart, before: datetime) -> Iterator[list[str]]:
        after = ""
        while found := self._store.runs(part, before, after=after, limit=_RUNS_AT_ONCE):
            yield found
            after = found[-1]

    def _logs(self, before: datetime) -> Iterator[Amount]:
        rule, at = self._policy.logs, self._now
        for runs in self._runs(RunPart.LOGS, before):
            if self._dry:
                yield self._store.count_logs(runs)
                continue
            for run in runs:
                while gone := self._store.drop_logs(run, before, rule, at=at):
                    yield gone

    def _artifacts(self, before: datetime) -> Iterator[Amount]:
        for runs in self._runs(RunPart.ARTIFACTS, before):
            if self._dry:
                yield self._store.count_artifacts(runs)
                continue
            for run in runs:
                yield self._store.drop_artifacts(run, before, self._policy.artifacts, at=self._now)

    def _reports(self, before: datetime) -> Iterator[Amount]:
        home = self._context.retention.home
        for runs in _batches(home.reports(), _RUNS_AT_ONCE):
            for run in self._store.expired(runs, before):
                yield home.drop_reports(run, dry=self._dry)

    def _blobs(self, _: datetime) -> Iterator[Amount]:
        """Remove blobs that nothing refers to, whatever left them behind."""
        blobs = self._context.blobs
        payloads = self._policy.payloads.before(self._now)
        artifacts = self._policy.artifacts.before(self._now)
        in_use = self._store.digests_in_use(payloads=payloads, artifacts=artifacts)
        for some in _batches(blobs.stored(), _BLOBS_AT_ONCE):
            yield from self._unused(some, in_use, artifacts)

    def _unused(
        self, some: Sequence[StoredBlob], in_use: frozenset[str], artifacts: datetime | None
    ) -> Iterator[Amount]:
        idle = [one for one in some if one.digest not in in_use]
        kept = self._store.artifacts_in_use([one.digest for one in idle], artifacts)
        for one in idle:
            if one.digest in kept:
                continue
            if self._dry or self._context.blobs.remove(one.digest):
                yield Amount(1, one.size_bytes)

    def _history(self, name: str, before: datetime) -> Iterator[Amount]:
        work = self._store.history(before)[name]
        while amount := work(self._dry):
            yield amount
            if self._dry:
                return

    def _flows(self, before: datetime) -> Iterator[Amount]:
        flows = self._context.retention.flows
        if flows is not None:
            for number in flows.forget(before, self._store.finished_cells, dry=self._dry):
                yield Amount(number)

    def _wheels(self, before: datetime) -> Iterator[Amount]:
        yield from self._context.retention.home.drop_wheels(before, dry=self._dry)

    def _copies(self, before: datetime) -> Iterator[Amount]:
        yield from self._context.retention.home.drop_copies(before, dry=self._dry)

    def _remarks(self) -> Iterator[str]:
        if self._context.retention.flows is None:
            yield _ELSEWHERE[0]
        yield _ELSEWHERE[1]


def _batches(some: Iterator[T], size: int) -> Iterator[list[T]]:
    while batch := list(islice(some, size)):
        yield batch
