"""Checks torch and its device before the first job, so that a broken machine fails no test."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Dict, List, Mapping

from . import bounded_process, environment_facts, interpreters, processes
from .attempt_errors import NotReady
from .evidence_text import JsonValue
from .plan import Readiness
from .torch_device_check import NO_TORCH

_PROGRAM = Path(__file__).with_name("torch_device_check.py")
_REASONS = {"torch_import": "torch_device", "device_seen": "torch_device"}
_OUTPUT_CHARS = 1_000

Result = Dict[str, JsonValue]
Checks = List[Mapping[str, JsonValue]]


def see(readiness: Readiness, asker: environment_facts.Asker, *, has_torch: bool) -> Result:
    """Check the device in a separate process, which has ended when this returns.

    On some machines only one process may hold the device, so the first job finds it free. Without a
    requested device and without torch there is nothing to check, and no process.

    Args:
        readiness: The requested check.
        asker: Runs it in the overlay.
        has_torch: Whether torch may be importable there.

    Returns:
        ``{"device", "ok", "checks": [{"check", "ok", "detail", "seconds"}]}``.
    """
    if readiness.device is None and not has_torch:
        absent: Dict[str, JsonValue] = {"check": "torch_import", "ok": True, "detail": NO_TORCH}
        return {"device": None, "ok": True, "checks": [{**absent, "seconds": 0.0}]}
    answer = asker.ask(
        _PROGRAM.read_text(encoding="utf-8"),
        readiness.device or "none",
        timeout_s=readiness.timeout_s,
    )
    # No job runs yet: every process below belongs to the check, even in another session.
    processes.kill_all(
        lambda: (
            processes.below(os.getpid(), seen=processes.table())
            | processes.marked(asker.attempt.folder)
        )
    )
    found = interpreters.extract(answer.text) or {"at": "torch_import", "checks": []}
    checks = [dict(one) for one in _rows(found["checks"])]
    at = str(found["at"])
    if at != "end":
        seconds = readiness.timeout_s if answer.timed_out else None
        cut: Dict[str, JsonValue] = {"check": at, "ok": False, "detail": _why(answer, readiness)}
        checks.append({**cut, "seconds": seconds})
    ok = bool(checks) and all(one["ok"] is True for one in checks)
    return {"device": readiness.device, "ok": ok, "checks": list(checks)}


def enforce(readiness: Readiness, result: Result) -> None:
    """End the attempt if the device does not work and the plan enforces the check.

    Raises:
        NotReady: with reason ``torch_device`` or ``device_check``.
    """
    if result["ok"] is True or not readiness.enforce:
        return
    (failed, *_) = [one for one in _rows(result["checks"]) if one["ok"] is not True]
    name = str(failed["check"])
    what = f"the machine is not ready for device {readiness.device or 'cpu'}: {name} failed"
    raise NotReady(_REASONS.get(name, "device_check"), f"{what}: {failed['detail']}")


def _rows(value: JsonValue) -> Checks:
    rows = value if isinstance(value, (list, tuple)) else ()
    return [row for row in rows if isinstance(row, Mapping)]


def _why(answer: bounded_process.ProgramOutput, readiness: Readiness) -> str:
    if answer.timed_out:
        return f"no answer within {readiness.timeout_s:g} s"
    said = interpreters.without_answer(answer.text)[-_OUTPUT_CHARS:]
    return f"its process ended ({_ended(answer.exit_code)}){': ' + said if said else ''}"


def _ended(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
