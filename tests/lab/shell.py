"""A shell in the lab: ``python -m tests.lab.seal -- python -m tests.lab.shell``.

Whoever has no account rents machines of the emulated clouds from it, with the commands of the
documentation. Leaving the shell removes every machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.doc_pages import Terminal
from tests.e2e.home import Home
from tests.lab.lab_machines import LabMachines
from tests.lab.site import Site, a_site, put_prices_of_today

WHAT_PIP_BUILDS_WITH = {"PIP_NO_BUILD_ISOLATION": "false"}
"""The lab has no index: setuptools of this environment. pip reads the variable as negated."""


@contextmanager
def lab_terminal(site: Site, folder: Path) -> Iterator[Terminal]:
    """A terminal whose commands find the emulated clouds."""
    terminal = Terminal(folder, site.environment | WHAT_PIP_BUILDS_WITH)
    programs = Path(sys.executable).parent
    terminal.environment["PATH"] = f"{folder / 'bin'}:{programs}:{os.environ['PATH']}"
    terminal.environment["SEATRIAL_HOME"] = str(folder / "var")
    put_prices_of_today(folder / "var")
    try:
        yield terminal
    finally:
        Home(folder / "var").stop()


def main() -> int:
    with (
        tempfile.TemporaryDirectory(prefix="lab-shell-") as made,
        LabMachines() as machines,
        a_site(machines) as site,
        lab_terminal(site, Path(made) / "you") as terminal,
    ):
        print("AWS, Google Cloud and Cloud TPU are emulated here; `exit` removes every machine.")
        environment = terminal.environment | {
            "TERM": os.environ.get("TERM", "dumb"),
            "PS1": "lab$ ",
        }
        shell = ["bash", "--norc", "--noprofile"]
        return subprocess.run(shell, cwd=terminal.folder, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
