"""The console script: passes the wiring to the command line."""

from __future__ import annotations

import sys

from orchestrator.bootstrap import uncollected

INTERRUPTED = 130


def main() -> None:
    """Run a command and exit with its code."""
    try:
        # Imported here, because an interrupt may come during the import.
        with uncollected():
            from orchestrator.bootstrap.cli_wiring import CommandWiring  # noqa: PLC0415
            from orchestrator.cli.app import main as run  # noqa: PLC0415

        code = run(CommandWiring())
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)


if __name__ == "__main__":
    main()
