"""How long a job may be silent: what its author says, else what earlier runs took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.domain.manifest import Job
from orchestrator.domain.matrix import idle_timeouts_of
from orchestrator.store.cells import AttemptState
from orchestrator.store.stores import Stores

DEFAULT_S = 180.0
_MARGIN = 2.0
"""Something may take so many times what it took before."""


@dataclass(frozen=True, slots=True)
class IdleTimeout:
    """After how many seconds without output and records a job is ended as hung."""

    seconds: float = DEFAULT_S
    tests: Mapping[str, float] = field(default_factory=dict)
    """By node id, of tests that are known to take longer."""


def idle_timeouts(stores: Stores, now: AttemptState) -> Mapping[str, IdleTimeout]:
    """By job. What the matrix or payload.toml says holds for every test of the job."""
    jobs = {job.id: job for job in now.spec.manifest.job if job.id in now.plan.jobs}
    stated = {
        name: minutes * 60
        for name, job in jobs.items()
        if (minutes := _stated_minutes(now, job)) is not None
    }
    others = [name for name in jobs if name not in stated]
    product, durations = now.spec.manifest.name, stores.durations
    silences = durations.longest_silences(product, others)
    tests = durations.long_tests(product, others, over_s=DEFAULT_S / _MARGIN)
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
