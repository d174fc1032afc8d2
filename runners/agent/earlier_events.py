"""What an earlier agent of the same attempt has already said (it died; this one goes on)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Mapping, Optional, Set


@dataclass
class History:
    """The part of an event stream that a second agent must know."""

    last_seq: int = 0
    began_at: Optional[float] = None
    ended: bool = False
    finished: Set[str] = field(default_factory=set)
    done: Dict[str, Set[str]] = field(default_factory=dict)


def read(path: Path) -> History:
    """Read the events written so far; a missing file is an empty history."""
    history = History()
    try:
        stream = path.open("rb")
    except FileNotFoundError:
        return history
    with stream:
        for line in stream:
            event = _parsed(line)
            if event is not None:
                _note(history, event)
    return history


def is_final(data: Mapping[str, object]) -> bool:
    """Say whether a test record settles its test: its teardown's report, or a made-up one."""
    return data.get("record") == "report" and (data.get("when") == "teardown" or "cause" in data)


def _parsed(line: bytes) -> Optional[Mapping[str, object]]:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("seq"), int) else None


def _note(history: History, event: Mapping[str, object]) -> None:
    seq, ts, job, data = (event.get(key) for key in ("seq", "ts", "job", "data"))
    history.last_seq = max(history.last_seq, seq if isinstance(seq, int) else 0)
    if history.began_at is None and isinstance(ts, (int, float)):
        history.began_at = float(ts)
    history.ended = history.ended or event.get("kind") == "end"
    if not isinstance(job, str) or not isinstance(data, dict):
        return
    if event.get("kind") == "phase" and data.get("name") == "finished":
        history.finished.add(job)
    if event.get("kind") == "test" and is_final(data):
        history.done.setdefault(job, set()).add(str(data.get("nodeid")))
