"""What machines of the lab will be sent, fetched while there is still a network."""

from __future__ import annotations

import subprocess
import sys

from tests.e2e.home import ROOT
from tests.lab.image import LAB_FOLDER

WHEELS = LAB_FOLDER / "wheels"
NEEDED = ("pytest>=8",)
"""Of the built-in payload's environments, what the machine image lacks."""


def fetch() -> None:
    """Fill the folder; what is there already is not fetched again."""
    WHEELS.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    constraints = ["--retries=10", "--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, *constraints, "--dest", str(WHEELS), *NEEDED], check=True)


if __name__ == "__main__":
    fetch()
