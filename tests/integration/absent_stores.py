"""Stores that know nothing: for flows that nobody asks about results, proofs or quarantines."""

from __future__ import annotations


class _Nothing:
    """Answers that there is nothing."""

    def _none(self, *_: object, **__: object) -> None:
        """Nothing."""

    def _nothing(self, *_: object, **__: object) -> dict[str, object]:
        return {}

    def _empty(self, *_: object, **__: object) -> list[object]:
        return []


class NoResults(_Nothing):
    """No test, no job, no file."""

    environment = put_artifacts = put_checks = put_degraded = _Nothing._none
    tally = final_tests = jobs = jobs_of_attempt = of_cells = _Nothing._nothing
    tests = checks = metrics = notices = artifacts = _Nothing._empty


class NoReusableResults(_Nothing):
    """Nothing is proven, and nobody asks."""

    prepare = prove = decide = newest = _Nothing._none
    decided = decisions = _Nothing._nothing
    preparations = find = _Nothing._empty


class NoQuarantines(_Nothing):
    """No test is flaky."""

    list = _Nothing._empty
