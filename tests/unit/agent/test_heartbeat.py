"""What heartbeats tell of a job that is silent."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from runners.agent.heartbeat import Heartbeat


class Written:
    """Takes events."""

    def __init__(self) -> None:
        self.data: list[dict[str, Any]] = []

    def emit(self, _kind: str, _job: str | None, data: dict[str, Any]) -> None:
        self.data.append(data)

    def sync(self, *, now: bool = False) -> None:
        """Nothing is on a disk."""


def test_a_long_silence_is_told_and_once_that_it_is_over(tmp_path: Path) -> None:
    events = Written()
    quiet = SimpleNamespace(notice=None, trouble=lambda: None)
    heartbeat = Heartbeat(
        SimpleNamespace(folder=tmp_path, stop=tmp_path / "stop"),  # type: ignore[arg-type]
        events,  # type: ignore[arg-type]
        quiet,  # type: ignore[arg-type]
        heartbeat_s=0.0,
        left_s=60.0,
    )
    for silent_s in (3.0, 25.0, 30.0, 1.0, 2.0):
        heartbeat.beat("moe", "t", (silent_s, 180.0))
    told = [(one.get("silent_s"), one.get("idle_timeout_s")) for one in events.data]
    assert told == [(None, None), (25.0, 180.0), (30.0, 180.0), (0.0, None), (None, None)]
