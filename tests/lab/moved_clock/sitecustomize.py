"""The clock of a process of the lab's clouds: the computer's, moved by what a file says."""

import os
import time
from pathlib import Path

_computers = time.time


def _moved() -> float:
    return _computers() + float(Path(os.environ["LAB_CLOCK"]).read_text())


time.time = _moved
