"""Idle timeouts of jobs: from the matrix or payload, else from earlier durations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.domain.manifest import Job
from orchestrator.domain.matrix import idle_timeouts_of
from orchestrator.store.cells import AttemptState
from orchestrator.store.stores import Stores

DEFAULT_S = 180.0
_MARGIN = 2.0
"""Factor over the longest earlier duration."""


@dataclass(frozen=True, slots=True)
class IdleTimeout:
    """Seconds without output and events after which a job has hung."""

    seconds: float = DEFAULT_S
    tests: Mapping[str, float] = field(default_factory=dict)
    """Longer timeouts of single tests, by node id."""


def idle_timeouts(stores: Stores, now: AttemptState) -> Mapping[str, IdleTimeout]:
    """Return timeouts by job. Configured ones hold for every test of the job."""
    jobs = {job.id: job for job in now.spec.manifest.job if job.id in now.plan.jobs}
    stated = {
        name: minutes * 60
        for name, job in jobs.items()
        if (minutes := _stated_minutes(now, job)) is not None
    }
    others = [name for name in jobs if name not in stated]
    product, durations = now.spec.manifest.name, stores.durations
    silences = durations.longest_silences(product, others)
    tests = durations.long_tests(product, others)
    found = {name: IdleTimeout(seconds) for name, seconds in stated.items()}
    for name in others:
        seconds = max(DEFAULT_S, _MARGIN * silences.get(name, 0.0))
        known = {test: _MARGIN * took for test, took in tests.get(name, {}).items()}
        longer = {test: allowed for test, allowed in known.items() if allowed > seconds}
        found[name] = IdleTimeout(seconds, longer)
    return found


def _stated_minutes(now: AttemptState, job: Job) -> float | None:
    by_matrix = idle_timeouts_of(job.id, now.plan.platform.id, now.spec.matrix)
    return max(by_matrix) if by_matrix else job.idle_timeout_minutes
