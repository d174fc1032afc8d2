"""The clock of a process of the lab's clouds: what a file says, which the test moves."""

import os
import time
from pathlib import Path


def _moved() -> float:
    return float(Path(os.environ["LAB_CLOCK"]).read_text())


time.time = _moved
