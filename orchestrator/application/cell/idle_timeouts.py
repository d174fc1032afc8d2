"""Idle timeouts of jobs: from the matrix or payload, else from earlier durations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from orchestrator.domain.manifest import Job
from orchestrator.domain.matrix import idle_timeouts_of
from orchestrator.store.cells import AttemptState
from orchestrator.store.stores import Stores

DEFAULT_S = 180.0
_MARGIN = 2.0
"""Factor over the longest earlier duration."""


Source = Literal["matrix", "payload", "durations", "default"]


@dataclass(frozen=True, slots=True)
class IdleTimeout:
    """Seconds without output and events after which a job has hung."""

    seconds: float = DEFAULT_S
    tests: Mapping[str, float] = field(default_factory=dict)
    """Longer timeouts of single tests, by node id: always from durations."""
    source: Source = "default"
    """Where `seconds` comes from; durations are those of earlier runs."""


def idle_timeouts(stores: Stores, now: AttemptState) -> Mapping[str, IdleTimeout]:
    """Return timeouts by job. Configured ones hold for every test of the job."""
    jobs = {job.id: job for job in now.spec.manifest.job if job.id in now.plan.jobs}
    found = {
        name: stated for name, job in jobs.items() if (stated := _stated(now, job)) is not None
    }
    others = [name for name in jobs if name not in found]
    product, durations = now.spec.manifest.name, stores.durations
    silences = durations.longest_silences(product, others)
    tests = durations.long_tests(product, others)
    for name in others:
        silence_s = _MARGIN * silences.get(name, 0.0)
        seconds = max(DEFAULT_S, silence_s)
        source: Source = "durations" if silence_s > DEFAULT_S else "default"
        known = {test: _MARGIN * took for test, took in tests.get(name, {}).items()}
        longer = {test: allowed for test, allowed in known.items() if allowed > seconds}
        found[name] = IdleTimeout(seconds, longer, source)
    return found


def _stated(now: AttemptState, job: Job) -> IdleTimeout | None:
    by_matrix = idle_timeouts_of(job.id, now.plan.platform.id, now.spec.matrix)
    if by_matrix:
        return IdleTimeout(max(by_matrix) * 60, source="matrix")
    if job.idle_timeout_minutes is None:
        return None
    return IdleTimeout(job.idle_timeout_minutes * 60, source="payload")
