"""Interpreters that were described before: while nothing of theirs changes, none is started again.

The file beside the agent has what an interpreter said, and a mark of its program, of every folder
that it imports from, and of the metadata of each installed package. Where jobs run as the agent's
own user, they could write it, as they could write the interpreter's packages.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any, Dict

from . import interpreters
from .file_marks import mark_of
from .masking import JsonValue

_FILE = Path(__file__).resolve().parent.parent / "interpreters.json"
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_SETTLED_NS = 2_000_000_000
"""What changed less than this before it was read may change again within one tick of its clock."""
_MOST = 32


def describe(candidate: str, file: Path = _FILE) -> Dict[str, JsonValue]:
    """Describe one interpreter, as `interpreters.ask` does; start it only if it may have changed.

    Args:
        candidate: Its path, or its name on PATH.
        file: Where descriptions are kept.

    Returns:
        The description; `error` has the reason if it cannot be described.
    """
    path = shutil.which(interpreters.at_home(candidate))
    known = _read(file)
    kept = known.get(path or "")
    if kept is not None and kept["marks"] == _marks(kept["marks"]):
        return {"candidate": candidate, **kept["found"]}
    began_ns = time.time_ns()
    found, watched = interpreters.ask(candidate)
    if path is None or found["error"] is not None:
        return found
    marks = _marks([path, *watched])
    changed_ns = max(max(mark[2:]) for mark in marks.values() if mark is not None)
    if changed_ns < began_ns - _SETTLED_NS:
        told = {name: value for name, value in found.items() if name != "candidate"}
        newest = [*known.items(), (path, {"found": told, "marks": marks})][-_MOST:]
        _write(file, dict(newest))
    return found


def _marks(paths: Any) -> Dict[str, Any]:  # noqa: ANN401 - names, or a table by name
    return {path: None if (mark := mark_of(path)) is None else list(mark) for path in paths}


def _boot() -> str:
    """Return the id of the machine's start; empty where the system has none."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


def _read(file: Path) -> Dict[str, Any]:
    """Return what was kept since the machine started, by path; nothing of a damaged file."""
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        if not kept["boot"] or kept["boot"] != _boot():
            return {}
        return {
            path: {"found": dict(one["found"]), "marks": dict(one["marks"])}
            for path, one in kept["known"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _write(file: Path, known: Dict[str, Any]) -> None:
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps({"boot": _boot(), "known": known}), encoding="utf-8")
        temporary.rename(file)
    except OSError:  # a full disk: the next probe starts the interpreter again
        with contextlib.suppress(OSError):
            temporary.unlink()
