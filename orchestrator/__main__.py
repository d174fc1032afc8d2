"""The console script: hands the wiring to the command line."""

from __future__ import annotations

import sys

from orchestrator.bootstrap.reading import CommandWiring
from orchestrator.cli.app import main as run


def main() -> None:
    """Run a command and exit with its code."""
    sys.exit(run(CommandWiring()))


if __name__ == "__main__":
    main()
