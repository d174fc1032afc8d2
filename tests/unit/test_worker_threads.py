"""Named work in threads."""

from __future__ import annotations

import threading

from orchestrator.bootstrap.controller_process import WorkerThreads
from orchestrator.store.errors import StoreError


def test_what_is_under_way_is_not_begun_again_and_what_failed_may_be() -> None:
    workers = WorkerThreads(2, "work")
    begun: list[str] = []
    go_on, done = threading.Event(), threading.Semaphore(0)

    def slowly() -> None:
        begun.append("slow")
        assert go_on.wait(60)
        done.release()

    def fail(error: Exception) -> None:
        begun.append("fail")
        done.release()
        raise error

    for _ in range(3):
        workers.begin("slow", slowly)
    for error in (ValueError("broken"), StoreError("away")):
        workers.begin(f"fail {error}", lambda error=error: fail(error))
        assert done.acquire(timeout=60)
    go_on.set()
    assert done.acquire(timeout=60)
    assert sorted(begun) == ["fail", "fail", "slow"]
