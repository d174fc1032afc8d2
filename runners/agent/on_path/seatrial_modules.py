"""Reports how many modules of the subject a process of a job loaded, and those from elsewhere.

The environment's ``seatrial_overlay.pth`` runs this file at the start of each process of its
Python. In pytest's own processes the recorder does it. Below a suite, only modules from the payload
count: a test may start a program with a subject that it made itself.
"""
# ruff: noqa: INP001, PTH120 - no package; runs before each job's own code

from __future__ import annotations

import atexit
import os
from typing import Dict

_PROBLEMS = 20
"""Maximum number of modules that are named."""


def report(given: Dict[str, str]) -> None:
    """Append one line of JSON to $SEATRIAL_MODULES if modules of the subject were loaded.

    Args:
        given: The agent's variables, saved before the job's own code could change them.
    """
    import json  # noqa: PLC0415 - not before the job's own modules
    import sys  # noqa: PLC0415

    tops = given["SEATRIAL_SUBJECT_TOPS"].split()
    if "seatrial_pytest" in sys.modules or not (
        {"*"} & set(tops) or sys.modules.keys() & set(tops)
    ):
        return
    os.environ.update(given)
    sys.path[:0] = [os.path.dirname(__file__), given["SEATRIAL_SUBJECT_HOME"]]
    from seatrial_origins import (  # noqa: PLC0415
        InstalledFiles,
        RequiredDistributions,
        below_payload,
    )

    subject = InstalledFiles(given["SEATRIAL_SUBJECT"])
    found = RequiredDistributions((), subject).problems()
    is_below_suite = "SEATRIAL_RECORDS" in given
    if is_below_suite:
        files = (problem.file for _, problem in found)
        below = {file for file in files if file and below_payload(file) != file}
        found = [each for each in found if each[1].file in below]
    if found or not is_below_suite:
        told = [{"reason": reason, **problem._asdict()} for reason, problem in found[:_PROBLEMS]]
        line = json.dumps({"problems": told, "subject_modules": len(subject.of(sys.modules))})
        file = os.open(given["SEATRIAL_MODULES"], os.O_WRONLY | os.O_APPEND)
        os.write(file, f"{line}\n".encode("ascii"))
        os.close(file)


_GIVEN = {name: value for name, value in os.environ.items() if name.startswith("SEATRIAL_")}
if "SEATRIAL_SUBJECT_HOME" in _GIVEN:
    atexit.register(report, _GIVEN)
