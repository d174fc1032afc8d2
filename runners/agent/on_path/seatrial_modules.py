"""Reports how many modules of the subject a process of a job loaded, and those from elsewhere.

The environment's ``seatrial_overlay.pth`` runs this file at the start of each process of its
Python. In pytest's own processes the recorder does it. Below a suite, only modules from the payload
count, or installed ones where the payload is the subject: a test may start a program with a subject
that it made itself.
"""
# ruff: noqa: INP001, PTH120, PTH123 - no package; runs before each job's own code

from __future__ import annotations

import atexit
import os
import sys
from typing import Dict

_PROBLEMS = 20
"""Maximum number of modules that are named."""


def report(given: Dict[str, str]) -> None:
    """Append one line of JSON to $SEATRIAL_MODULES if modules of the subject were loaded.

    Args:
        given: The agent's variables, saved before the job's own code could change them.
    """
    import json  # noqa: PLC0415 - not before the job's own modules

    tops = given["SEATRIAL_SUBJECT_TOPS"].split()
    if "seatrial_pytest" in sys.modules or not (
        {"*"} & set(tops) or sys.modules.keys() & set(tops)
    ):
        return
    os.environ.update(given)
    home = given.get("SEATRIAL_SUBJECT_HOME")
    sys.path[:0] = [os.path.dirname(__file__), *([home] if home else [])]
    from seatrial_origins import (  # noqa: PLC0415
        InstalledFiles,
        RequiredDistributions,
        below_payload,
    )

    subject = InstalledFiles(given["SEATRIAL_SUBJECT"]) if home else None
    found = RequiredDistributions((), subject).problems()
    is_below_suite = "SEATRIAL_RECORDS" in given
    if is_below_suite:
        sites = ("site-packages", "dist-packages")
        found = [
            (reason, one)
            for reason, one in found
            if (one.file and below_payload(one.file) != one.file)
            or (subject is None and any(f"/{site}/" in one.file for site in sites))
        ]
    if found or not is_below_suite:
        told = [{"reason": reason, **problem._asdict()} for reason, problem in found[:_PROBLEMS]]
        number = len(subject.of(sys.modules)) if subject else 0
        line = json.dumps({"problems": told, "subject_modules": number})
        file = os.open(given["SEATRIAL_MODULES"], os.O_WRONLY | os.O_APPEND)
        os.write(file, f"{line}\n".encode("ascii"))
        os.close(file)


def _variables() -> Dict[str, str]:
    """Return the agent's variables: this process's, or else those of the nearest one above it.

    A process may be started with an empty environment. What it was started by can be gone, and
    only Linux tells the environment of another process: then nothing is found.
    """
    rows = [f"{name}={value}" for name, value in os.environ.items()]
    pid = os.getppid()
    try:
        while pid > 1 and not any(row.startswith("SEATRIAL_ATTEMPT=") for row in rows):
            with open(f"/proc/{pid}/environ", "rb") as variables:
                rows = os.fsdecode(variables.read()).split("\0")
            with open(f"/proc/{pid}/stat", "rb") as line:
                pid = int(line.read().rpartition(b")")[2].split()[1])
    except OSError:
        return {}
    return dict(row.split("=", 1) for row in rows if row.startswith("SEATRIAL_") and "=" in row)


if vars(sys).setdefault("_seatrial_report", report) is report:  # Python reads a .pth twice
    _GIVEN = _variables()
    if "SEATRIAL_SUBJECT_TOPS" in _GIVEN:
        atexit.register(report, _GIVEN)
