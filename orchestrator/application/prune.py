"""Prunes expired data in short steps; bounded in time, safe to interrupt and to repeat."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import TypeVar

from orchestrator.application.context import Context
from orchestrator.domain.retention import (
    Amount,
    KeepRule,
    PruneLine,
    PruneReport,
    RetentionPolicy,
    RunPart,
)
from orchestrator.store.audit_recorder import note

T = TypeVar("T")
logger = logging.getLogger(__name__)

EVERY = timedelta(days=1)
"""Interval of the prunes that a controller begins by itself."""
TIME_LIMIT = timedelta(seconds=20)
"""Time limit of one call; the next call prunes the rest."""
_RUNS_AT_ONCE = 50
_BLOBS_AT_ONCE = 200
_ELSEWHERE = (
    "this controller runs no cells: the engine's records are pruned by one that does",
    "of several controllers, each prunes the wheels, copies and reports of its own home",
)


class PruneBusyError(RuntimeError):
    """Another prune of the same database is running."""


def preview(context: Context, *, days: int | None = None) -> PruneReport:
    """Return what would be pruned now; removes nothing.

    Nothing is kept for longer than `days`, except for what the policy never prunes.
    """
    return _Prune(context, _policy(context, days), dry=True, is_late=lambda: False).run()


def prune(
    context: Context,
    *,
    days: int | None = None,
    time_limit: timedelta = TIME_LIMIT,
    is_stopped: Callable[[], bool] = lambda: False,
) -> PruneReport:
    """Remove expired data until the time limit.

    Args:
        context: The context.
        days: As in `preview`.
        time_limit: The next call removes the rest.
        is_stopped: Asked after each short step; True ends this call as the time limit does.

    Raises:
        PruneBusyError: Another one is running.
    """
    with context.stores.retention.alone() as alone:
        if not alone:
            raise PruneBusyError("another prune is running: wait for it, or ask again later")
        until = context.clock.now() + time_limit

        def is_late() -> bool:
            return is_stopped() or context.clock.now() > until

        report = _Prune(context, _policy(context, days), dry=False, is_late=is_late).run()
        if report.is_complete:
            context.stores.retention.end(at=context.clock.now())
    note("prune", after={"days": days, "rows": report.rows, "size_bytes": report.size_bytes})
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
        self,
        context: Context,
        policy: RetentionPolicy,
        *,
        dry: bool,
        is_late: Callable[[], bool],
    ) -> None:
        self._context = context
        self._store = context.stores.retention
        self._policy = policy
        self._dry = dry
        self._is_late = is_late
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

    def _steps(self) -> Iterator[_PruneLine]:
        policy = self._policy
        yield _PruneLine("logs", policy.logs, self._logs)
        yield _PruneLine("artifacts", policy.artifacts, self._artifacts)
        yield _PruneLine("reports", policy.artifacts, self._reports)
        unused = f"from when nothing refers to it; payloads and wheels are {policy.payloads.text}"
        yield _PruneLine("blobs", KeepRule(1, unused), self._blobs)
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
        """Remove blobs that no row uses.

        Runs past the retention of payloads or artifacts do not use theirs.
        """
        blobs = self._context.blobs
        payloads = self._policy.payloads.before(self._now)
        artifacts = self._policy.artifacts.before(self._now)
        in_use = self._store.digests_in_use(payloads=payloads, artifacts=artifacts)
        uploads = self._store.uploads_of_runs()
        for some in _batches(blobs.stored(), _BLOBS_AT_ONCE):
            idle = [one for one in some if one.digest not in in_use]
            kept = self._store.artifacts_in_use([one.digest for one in idle], artifacts)
            for one in idle:
                if one.digest in kept:
                    continue
                if self._dry or self._is_removed(one.digest, is_upload=one.digest in uploads):
                    yield Amount(1, one.size_bytes)
            yield Amount()  # ends a short step, even if nothing was removed

    def _is_removed(self, digest: str, *, is_upload: bool) -> bool:
        """Remove a blob unless it is claimed; the reason is stored first where runs name it."""
        if is_upload:
            self._store.note_blob(digest, self._policy.payloads, at=self._now)
        is_removed = self._context.blobs.remove(digest)
        if is_upload and not is_removed:
            self._store.blob_is_back(digest)
        return is_removed

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
