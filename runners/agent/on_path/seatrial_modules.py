"""Reports the modules of the subject that a process without pytest loaded from elsewhere.

The environment's ``seatrial_overlay.pth`` runs this file at the start of each process of its
Python, where the agent set SEATRIAL_MODULES: for demos, benchmarks and use cases. For suites, the
recorder does it.
"""
# ruff: noqa: INP001, PTH120 - no package; runs before each job's own code

from __future__ import annotations

import atexit
import os
from typing import Dict

_PROBLEMS = 20
"""Maximum number of modules that are named."""


def report(given: Dict[str, str]) -> None:
    """Append one line of JSON to $SEATRIAL_MODULES if modules are not the installed ones.

    Args:
        given: The agent's variables, saved before the job's own code could change them.
    """
    import json  # noqa: PLC0415 - not before the job's own modules
    import sys  # noqa: PLC0415

    os.environ.update(given)
    sys.path[:0] = [os.path.dirname(__file__), given["SEATRIAL_SUBJECT_HOME"]]
    from seatrial_origins import InstalledFiles, RequiredDistributions  # noqa: PLC0415

    subject = InstalledFiles(given["SEATRIAL_SUBJECT"])
    found = RequiredDistributions((), subject).problems()
    if found:
        told = [{"reason": reason, **problem._asdict()} for reason, problem in found[:_PROBLEMS]]
        file = os.open(given["SEATRIAL_MODULES"], os.O_WRONLY | os.O_APPEND)
        os.write(file, f"{json.dumps({'problems': told})}\n".encode("ascii"))
        os.close(file)


_GIVEN = {name: value for name, value in os.environ.items() if name.startswith("SEATRIAL_")}
if "SEATRIAL_SUBJECT_HOME" in _GIVEN:
    atexit.register(report, _GIVEN)
