"""Turns a transcript into a script for the lab's clouds: their delays, refusals and boot times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.cloud_smoke.recording import NO_ANSWER
from tests.cloud_smoke.transcript import read
from tests.lab.aws.codes import aws_fault
from tests.lab.faults import Fault, Faults
from tests.lab.google.codes import gce_fault, tpu_fault

NOTICEABLE_S = 0.05
_KNOWN: Mapping[str, Callable[[str], Fault]] = {
    "aws": aws_fault,
    "gcp": gce_fault,
    "tpu": tpu_fault,
}


@dataclass(frozen=True, slots=True)
class LabScript:
    """What one cloud did, call by call, in the order of each call's name."""

    boot_delay_s: float
    """For `NoMachines(boot_delay_s=...)`: from the grant until SSH answered."""
    faults: Mapping[str, tuple[Fault | None, ...]]

    def play(self, faults: Faults) -> None:
        """Write the script; calls beyond it are answered as ever."""
        for name, each in self.faults.items():
            faults.script(name, each)


def lab_script(path: Path, cloud: str, *, pace: float = 1.0) -> LabScript:
    """The script of one cloud in a transcript.

    Args:
        path: The transcript.
        cloud: ``aws``, ``gcp`` or ``tpu``.
        pace: 0.1 makes every delay a tenth.

    Raises:
        ValueError: The transcript has nothing of that cloud, or a line that is none.
    """
    lines = [line for line in read(path) if line["cloud"] == cloud]
    if not lines:
        raise ValueError(f"{path.name} has nothing of {cloud}")
    boots = [float(line["value"]) for line in lines if line.get("fact") == "boot_s"]
    calls = sorted((line for line in lines if "call" in line), key=lambda line: line["at"])
    return LabScript(max(boots, default=0.0) * pace, _by_name(calls, cloud, pace))


def _by_name(
    calls: Sequence[Mapping[str, Any]], cloud: str, pace: float
) -> dict[str, tuple[Fault | None, ...]]:
    found: dict[str, tuple[Fault | None, ...]] = {}
    for line in calls:
        name = str(line["call"])
        found[name] = (*found.get(name, ()), _fault(line, cloud, pace))
    return found


def _fault(line: Mapping[str, Any], cloud: str, pace: float) -> Fault | None:
    delay_s = float(line["duration_s"]) * pace
    code = str(line["code"])
    if code == "ok":
        return Fault(delay_s=delay_s) if delay_s >= NOTICEABLE_S else None
    if code == NO_ANSWER:
        return Fault(drop=True, delay_s=delay_s)
    try:
        fault = _KNOWN[cloud](code)
    except KeyError:  # a refusal that the lab has no sentence for
        fault = Fault(code, "as it was recorded", int(line["status"]) or 400)
    return replace(fault, delay_s=delay_s)
