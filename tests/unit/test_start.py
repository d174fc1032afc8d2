"""What a controller imports before it answers."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {"scipy", "numpy", "torch"}


def test_a_controller_starts_without_the_libraries_of_statistics() -> None:
    code = (
        "import sys\n"
        "import orchestrator.bootstrap.controller_process\n"
        "import orchestrator.bootstrap.controller_wiring\n"
        f"print(sorted({HEAVY!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "[]"
